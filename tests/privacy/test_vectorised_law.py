"""The vectorised sampler against thresholds computed another way: every cell, every tie, every tail.

The thresholds here come from integers alone (a Taylor series for exp, then sums of products), to 224 bits;
the sampler's come from decimals.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from client_sdk import sampling, sampling_vectorised
from client_sdk.sampling_vectorised import (
    SATURATION,
    Keystream,
    LaplaceDigits,
    ThresholdTable,
    add_discrete_laplace,
    discrete_laplace_many,
    uniform_below_many,
)
from tests.entropy import Scripted, seeded

BITS = 224
WORK = 320
SCALES = [Fraction(1), Fraction(7, 2), Fraction(1000), Fraction(1 << 20)]


def exp_minus(gamma: Fraction) -> int:
    """floor-ish exp(-gamma) * 2^WORK, off by less than 2^20: halve the argument, sum the series, square back."""
    halvings = max(0, (gamma.numerator // gamma.denominator).bit_length()) + 1
    guard = WORK + 64
    x = (gamma.numerator << guard) // (gamma.denominator << halvings)
    total = term = 1 << guard
    n = 1
    while term:
        term = -term * x // (n << guard)
        total += term
        n += 1
        if abs(term) <= 1:
            break
    for _ in range(halvings):
        total = total * total >> guard
    return total >> 64


@cache
def powers(scale: Fraction, count: int) -> list[int]:
    ratio = exp_minus(1 / scale)
    out = [1 << WORK]
    for _ in range(count - 1):
        out.append(out[-1] * ratio >> WORK)
    return out


def digit_pmf(scale: Fraction) -> list[int]:
    """P(D = d) * 2^WORK for d = -255 .. 255: the geometric's 256 masses multiplied out, pair by pair."""
    mass = powers(scale, 256)
    total = sum(mass)
    share = [(m << WORK) // total for m in mass]
    side = [sum(share[j] * share[j + d] for j in range(256 - d)) >> WORK for d in range(256)]
    return [*reversed(side), *side[1:]]


def top_pmf(scale: Fraction, reach: int) -> list[int]:
    """P(X = x) * 2^WORK for |x| <= reach, between two cells for all that lies beyond."""
    p = powers(scale, reach + 2)
    one = 1 << WORK
    side = [(one - p[1]) * p[x] // (one + p[1]) for x in range(reach + 1)]
    tail = (p[reach + 1] << WORK) // (one + p[1])
    return [tail, *reversed(side), *side[1:], tail]


def thresholds(pmf: list[int]) -> list[int]:
    """Cumulative sums without the last, cut to BITS; none may sit where the cut could have moved its first 128 bits."""
    sums, total = [], 0
    for mass in pmf[:-1]:
        total += mass
        sums.append(total)
    assert abs(total + pmf[-1] - (1 << WORK)) < 1 << 40
    for s in sums:
        rest = s & ((1 << (WORK - 128)) - 1)
        assert 1 << 60 < rest < (1 << (WORK - 128)) - (1 << 60)
    return [s >> (WORK - BITS) for s in sums]


@cache
def digits(scale: Fraction) -> LaplaceDigits:
    made = LaplaceDigits(scale)
    for table in made.tables:
        table._floors = cache(table._floors)  # ties are so rare that the sampler itself keeps none
    return made


@cache
def reference(scale: Fraction) -> list[list[int]]:
    """One list of thresholds per table."""
    tables = digits(scale).tables
    lists = [thresholds(digit_pmf(scale / 256**i)) for i in range(len(tables) - 1)]
    top = digits(scale)
    return [*lists, thresholds(top_pmf(top.top_scale, top.top_reach))]


def pairs() -> list[tuple[Fraction, int]]:
    return [(scale, i) for scale in SCALES for i in range(len(digits(scale).tables))]


def test_digits_per_scale() -> None:
    assert [len(digits(scale).tables) for scale in SCALES] == [1, 1, 2, 3]
    assert [digits(scale).tables[-1].step for scale in SCALES] == [1, 1, 256, 65536]


@pytest.mark.parametrize(("scale", "i"), pairs())
def test_every_cell(scale: Fraction, i: int) -> None:
    """65,536 cells: an unmarked one lies between two thresholds, those of its outcome; a marked one holds one."""
    table, exact = digits(scale).tables[i], reference(scale)[i]
    assert table.thresholds == len(exact)
    width = 1 << (BITS - 16)
    marked = 0
    for cell, value in enumerate(table.values.tolist()):
        low, high = cell * width, (cell + 1) * width
        inside = bisect_left(exact, high) - bisect_left(exact, low)
        if value == table.mark:
            marked += 1
            assert inside > 0
        else:
            assert inside == 0
            assert value == (table.first + bisect_right(exact, low)) * table.step
    assert 0 < marked <= 0.012 * 65536, "few enough to be cheap"


@pytest.mark.parametrize(("scale", "i"), pairs())
@pytest.mark.parametrize("bits", [16, 64, 128])
def test_every_threshold(scale: Fraction, i: int, bits: int) -> None:
    table, exact = digits(scale).tables[i], reference(scale)[i]
    assert table._floors(bits) == [threshold >> (BITS - bits) for threshold in exact]


@pytest.mark.parametrize("scale", SCALES)
def test_the_digits_add_up_to_discrete_laplace(scale: Fraction) -> None:
    """Convolution of all digits' laws, sampled at several noises, against (1-r)/(1+r) r^|x|."""
    tables = digits(scale).tables
    laws: list[dict[int, int]] = []
    for i, table in enumerate(tables):
        floors = [0, *table._floors(BITS), 1 << BITS]
        masses = [b - a for a, b in pairwise(floors)]
        outcomes = {(table.first + at) * table.step: mass for at, mass in enumerate(masses)}
        if i == len(tables) - 1:  # the two outermost stand for whole tails, not for one outcome
            outcomes = {x: m for x, m in outcomes.items() if abs(x) <= digits(scale).top_reach * table.step}
        laws.append(outcomes)

    def mass_at(x: int, remaining: list[dict[int, int]]) -> int:
        if len(remaining) == 1:
            return remaining[0].get(x, 0)
        lower, rest, step = remaining[0], remaining[1:], 256 ** (len(tables) - len(remaining))
        first = (x // step) % 256 * step
        return sum(
            lower.get(d, 0) * mass_at(x - d, rest) >> BITS for d in (first, first - 256 * step) if lower.get(d, 0)
        )

    r = Fraction(exp_minus(1 / scale), 1 << WORK)
    front = (1 - r) / (1 + r)
    middle = int(scale)
    for x in {0, 1, -1, 2, 255, -255, 256, -256, 257, middle, -middle, 3 * middle + 1, -10 * middle - 5}:
        if abs(x) > digits(scale).top_reach * tables[-1].step:
            continue
        expected = int(front * (1 << BITS)) * exp_minus(abs(x) / scale) >> WORK
        assert abs(mass_at(x, laws) - expected) < 1 << 40, x


# --- refinement and ties ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "i"), pairs())
def test_marked_cells_are_decided_by_64_bits(scale: Fraction, i: int) -> None:
    """One unit of 2^-64 below and above every threshold's own 64 bits: no tie, the right side."""
    table, exact = digits(scale).tables[i], reference(scale)[i]
    floors = [threshold >> (BITS - 64) for threshold in exact]
    assert len(set(floors)) == len(floors)
    for shift, expected in ((-1, 0), (1, 1)):
        around = np.array([floor + shift for floor in floors], np.uint64)
        outcomes = table.refine_from_64(around, Scripted())
        crossed = [bisect_left(exact, (floor + shift) << (BITS - 64)) for floor in floors]
        assert outcomes.tolist() == [table.first + count for count in crossed]
        assert sum(count == at + expected for at, count in enumerate(crossed)) > len(floors) * 0.9


@pytest.mark.parametrize(("scale", "i"), pairs())
def test_forced_ties_go_on_for_64_bits_and_64_more(scale: Fraction, i: int) -> None:
    table, exact = digits(scale).tables[i], reference(scale)[i]
    ties = 0
    for at, threshold in enumerate(exact):
        prefix = np.array([threshold >> (BITS - 64)], np.uint64)
        following = (threshold >> (BITS - 128)) & (2**64 - 1)
        script = [((following - 1) % 2**64, at if following else None), (following + 1, at + 1)]
        for drawn, expected in script:
            if expected is None or drawn >= 2**64:
                continue
            entropy = Scripted(drawn.to_bytes(8, "big"))
            assert table.refine_from_64(prefix, entropy).tolist() == [table.first + expected]
            ties += entropy.asked == [8]
    assert ties == 2 * len(exact), "each threshold was tied twice, and each tie took exactly 64 more bits"


def test_a_tie_of_128_bits_goes_on() -> None:
    table, exact = digits(Fraction(1000)).tables[1], reference(Fraction(1000))[1]
    threshold = exact[len(exact) // 2]
    prefix = np.array([threshold >> (BITS - 64)], np.uint64)
    same = ((threshold >> (BITS - 128)) & (2**64 - 1)).to_bytes(8, "big")
    for last, expected in ((bytes(8), 0), (b"\xff" * 8, 1)):
        entropy = Scripted(same, last)
        assert table.refine_from_64(prefix, entropy).tolist() == [table.first + len(exact) // 2 + expected]
        assert entropy.asked == [8, 8]


def test_a_tie_splits_as_the_threshold_says() -> None:
    """Share of the 64-bit cell below the threshold, from draws: within 5 standard deviations of the exact share."""
    table, exact = digits(Fraction(1000)).tables[0], reference(Fraction(1000))[0]
    at = 100
    share = float(Fraction(exact[at] & ((1 << (BITS - 64)) - 1), 1 << (BITS - 64)))
    n = 400
    prefixes = np.full(n, exact[at] >> (BITS - 64), np.uint64)
    below = int((table.refine_from_64(prefixes, seeded("ties")) == table.first + at).sum())
    assert 0.02 < share < 0.98
    assert abs(below - n * share) < 5 * (n * share * (1 - share)) ** 0.5


def test_thresholds_closer_than_64_bits_are_told_apart() -> None:
    """Two thresholds with the same first 64 bits: a tie is settled among both."""
    first, second = (5 << 200) + 7, (5 << 200) + (3 << 190)

    def floors(bits: int) -> list[int]:
        return [first >> (264 - bits), second >> (264 - bits)]

    table = ThresholdTable(0, 1, floors, 1 << 28, np.int32)
    prefix = np.array([5], np.uint64)
    for drawn, expected in ((1, 1), ((3 << 54) - 1, 1), ((3 << 54) + 1, 2)):
        assert table.refine_from_64(prefix, Scripted(drawn.to_bytes(8, "big"))).tolist() == [expected]


# --- the draw as a whole ------------------------------------------------------------------------------------


class GivenCells(Keystream):
    """A stream whose first words are given (or all, `again`); single bytes are the keystream's, or all `fill`."""

    def __init__(self, words: np.ndarray, fill: bytes | None = None, again: bool = False) -> None:
        super().__init__(seeded("after the given words"))
        self._given: np.ndarray | None = words
        self._fill = fill
        self._again = again

    def __call__(self, size: int) -> bytes:
        return super().__call__(size) if self._fill is None else self._fill * size

    def words(self, count: int, width: int) -> np.ndarray:
        given, self._given = self._given, self._given if self._again else None
        if given is None:
            return super().words(count, width)
        assert (given.size, given.dtype.itemsize) == (count, width)
        return given


def test_a_draw_is_the_sum_of_its_cells() -> None:
    """All 65,536 cells of the low digit against all of the high one in another order; marked ones refined."""
    scale = Fraction(1000)
    low, high = digits(scale).tables
    order = np.arange(65536, dtype="<u2")
    other = (order.astype(np.uint32) * 40503 % 65536).astype("<u2")
    draws = discrete_laplace_many(scale, 65536, GivenCells(np.concatenate([order, other])))
    marked = (low.values[order] == low.mark) | (high.values[other] == high.mark)
    expected = low.values[order].astype(np.int64) + high.values[other]
    assert (draws[~marked] == expected[~marked]).all()
    assert 400 < marked.sum() < 1000
    assert (np.abs(draws[marked]) < 60_000).all(), "no mark survives into a draw"


def test_marked_draws_of_every_block_get_their_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks: a marked low digit comes out beside its neighbouring cells' digits, in every block."""
    monkeypatch.setattr(sampling_vectorised, "BLOCK", 4096)
    low, high = digits(Fraction(1000)).tables
    rng = np.random.default_rng(1)
    middle = np.flatnonzero((high.values == 1024) | (high.values == -1024))
    cells = np.stack([rng.integers(2000, 63000, 4096), rng.choice(middle, 4096)], axis=1).T.astype("<u2")
    stream = GivenCells(cells.reshape(-1), again=True)
    draws = discrete_laplace_many(Fraction(1000), 3 * 4096, stream).reshape(3, 4096)
    around = np.stack([np.roll(low.values, 1), low.values, np.roll(low.values, -1)])[:, cells[0]].astype(np.int64)
    marked = around[1] == low.mark
    assert 20 < marked.sum() < 60
    for block in draws:
        digit = block - high.values[cells[1]]
        assert (digit[~marked] == around[1, ~marked]).all()
        assert (digit[marked] >= around[0, marked]).all()
        assert (digit[marked] <= around[2, marked]).all()


def test_tails_start_anew() -> None:
    top = digits(Fraction(1000))
    outermost = np.array([top.top_reach + 1, -top.top_reach - 1, top.top_reach, 0])
    outcomes = top._tails(outermost.copy(), seeded("tails"))
    entropy = seeded("tails")
    further = [sampling.geometric(top.top_scale, entropy) for _ in range(2)]
    assert outcomes.tolist() == [top.top_reach + 1 + further[0], -top.top_reach - 1 - further[1], top.top_reach, 0]


def test_a_tail_longer_than_64_bits_saturates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_vectorised, "geometric", lambda *_: 1 << 70)
    top = digits(Fraction(1000))
    plain = int(np.flatnonzero(top.tables[0].values == 0)[0])
    for sign, cell, fill in ((1, 65535, b"\xff"), (-1, 0, b"\x00")):
        cells = np.array([[plain], [cell]], np.uint16)
        total = int(top.exact(cells, Scripted(b"", fill * 8))[0])
        assert abs(SATURATION - sign * total) < 1 << 10
        limits = (-45_000, 46_000)
        given = GivenCells(np.array([plain, cell], "<u2"), fill)
        noisy = add_discrete_laplace(Fraction(1000), np.array([7], np.int32), limits, given)
        assert noisy.tolist() == [limits[sign > 0]], "a mechanism's clamp lies far below"


def test_points_are_added_and_the_sum_clamped() -> None:
    points = np.arange(1001, dtype=np.int32)
    plain = discrete_laplace_many(Fraction(1000), 1001, Keystream(seeded("same")))
    summed = add_discrete_laplace(Fraction(1000), points, (-SATURATION, SATURATION), Keystream(seeded("same")))
    clamped = add_discrete_laplace(Fraction(1000), points, (-5, 1005), Keystream(seeded("same")))
    assert (summed == plain + points).all()
    assert (clamped == np.clip(plain + points, -5, 1005)).all()
    assert (clamped != summed).sum() > 100


@pytest.mark.parametrize("count", [0, 1, 2, 131071, 131072, 131073])
def test_any_count(count: int) -> None:
    draws = discrete_laplace_many(Fraction(3), count, Keystream(seeded("count")))
    assert draws.shape == (count,)
    assert draws.dtype == np.int64


def test_scales_out_of_reach_are_refused() -> None:
    for bad in (Fraction(0), Fraction(-1), Fraction(1, 2000), Fraction(1 << 46)):
        with pytest.raises(ValueError, match="scale"):
            discrete_laplace_many(bad, 1, Keystream(seeded("x")))


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(7, 2), Fraction(1000), Fraction(10**12), Fraction(1, 20)])
def test_moments_over_many_draws(scale: Fraction) -> None:
    """A sanity check, not the proof: mean and variance within 5 standard errors."""
    n = 200_000
    draws = discrete_laplace_many(scale, n, Keystream(seeded(f"moments {scale}"))).astype(np.float64)
    variance = 0.5 / np.sinh(float(1 / (2 * scale))) ** 2
    assert abs(draws.mean()) < 5 * (variance / n) ** 0.5
    assert abs((draws**2).mean() - variance) < 5 * ((12 * variance**2 + variance) / n) ** 0.5


def test_chi_square_over_small_noises() -> None:
    n = 400_000
    counts = Counter(discrete_laplace_many(Fraction(1), n, Keystream(seeded("chi"))).tolist())
    r = exp_minus(Fraction(1)) / 2**WORK
    expected = {x: n * (1 - r) / (1 + r) * r ** abs(x) for x in range(-8, 9)}
    chi = sum((counts[x] - e) ** 2 / e for x, e in expected.items())
    assert chi < 17 + 5 * (2 * 17) ** 0.5


@pytest.mark.parametrize("n", [1, 2, 3, 15, 4096, 4097, 100_000, 1 << 31])
def test_uniform_below_many_stays_in_range(n: int) -> None:
    draws = uniform_below_many(n, 5000, Keystream(seeded(f"uniform {n}")))
    assert draws.min() >= 0
    assert draws.max() < n
    assert abs(draws.mean() - (n - 1) / 2) <= 5 * n / (12 * 5000) ** 0.5


def test_uniform_below_many_refuses_what_it_cannot_draw() -> None:
    for bad in (0, (1 << 31) + 1):
        with pytest.raises(ValueError, match="n must lie"):
            uniform_below_many(bad, 1, Keystream(seeded("x")))


def test_a_keystream_draws_its_key_once_and_never_repeats_itself() -> None:
    entropy = Scripted(bytes(32), bytes(range(32)))
    one, two = Keystream(entropy), Keystream(entropy)
    assert entropy.asked == [32, 32]
    assert one(64) != two(64)
    assert one(64) != one(64)
    assert "Keystream" in repr(one)
    assert bytes(32).hex() not in repr(vars(one))
