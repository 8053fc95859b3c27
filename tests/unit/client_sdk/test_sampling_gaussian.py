"""The exact discrete Gaussian: certified bins, exact coins, both samplers against the theoretical law."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from client_sdk import sampling, sampling_gaussian
from client_sdk.sampling import discrete_gaussian
from client_sdk.sampling_gaussian import (
    GaussianBins,
    add_discrete_gaussian,
    bin_law,
    discrete_gaussian_many,
)
from client_sdk.sampling_thresholds import certified
from client_sdk.sampling_vectorised import Keystream
from tests.entropy import seeded

SMALL = [Fraction(1, 64), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(100)]
LARGE = [Fraction(64**2), Fraction(5001), Fraction(35_000**2 + 1, 3), Fraction(1 << 62), Fraction((1 << 89) + 5)]


def stream(seed: str) -> Keystream:
    return Keystream(seeded(seed))


def pmf(variance: Fraction, reach: int) -> dict[int, Decimal]:
    """exp(-x^2 / 2v) over the sum of all of them, in 60 digits; beyond `reach` lies less than 10^-40."""
    with localcontext(Context(prec=60)):
        weights = {
            x: (Decimal(-(x**2) * variance.denominator) / (2 * variance.numerator)).exp()
            for x in range(-reach, reach + 1)
        }
        total = sum(weights.values())
        return {x: weight / total for x, weight in weights.items()}


@pytest.mark.parametrize("variance", SMALL)
def test_small_bins_are_single_integers_with_the_theoretical_law(variance: Fraction) -> None:
    """Enumerated: every one of the 65,536 cells of the table, against thresholds of the pmf in 60 digits."""
    bins = GaussianBins(variance)
    assert (bins.shift, bins.width) == (0, 1)
    law = pmf(variance, bins.bins + 8 * math.isqrt(int(variance) + 1) + 8)
    with localcontext(Context(prec=60)):
        below, so_far = [], Decimal(0)
        for x in range(-max(law), bins.bins):
            so_far += law.get(x, Decimal(0))
            if x >= -bins.bins - 1:
                below.append(so_far)
    # The outermost bins stand for all beyond: their weight is that of a proposal, a little more than the law's.
    with localcontext(Context(prec=60)):
        proposed = bin_law(variance, 1, bins.bins)
        assert all(abs(a - b) < Decimal("1e-14") for a, b in zip(proposed, below, strict=True))
        inner = [b - a for a, b in itertools.pairwise(proposed)]
        wanted = [law[x] for x in range(-bins.bins, bins.bins)]
        ratio = inner[bins.bins] / wanted[bins.bins]
        assert all(abs(got - ratio * want) < Decimal("1e-50") for got, want in zip(inner, wanted, strict=True))
        assert abs(ratio - 1) < Decimal("1e-13")
    # what rounds to 1 in 60 digits lies just below it
    floors = np.sort([min(int(p * (1 << 16)), (1 << 16) - 1) for p in proposed])
    cells = np.arange(1 << 16)
    expected = -bins.bins - 1 + np.searchsorted(floors, cells, side="left")
    expected[floors] = bins.table.mark
    assert np.array_equal(bins.table.values, expected)


@pytest.mark.parametrize("variance", LARGE)
def test_bins_and_coins_together_give_every_integer_its_weight(variance: Fraction) -> None:
    """Bin weight / width x coin is exp(-x^2 / 2v), for places everywhere in every bin."""
    bins = GaussianBins(variance)
    deviation = math.isqrt(math.ceil(variance)) + 1
    assert deviation / 64 <= bins.width <= deviation / 32
    assert bins.bins * bins.width >= 8 * (deviation - 1)
    with localcontext(Context(prec=60)):
        law = bin_law(variance, bins.width, bins.bins)
        masses = [b - a for a, b in itertools.pairwise(law)]
        base = masses[bins.bins]
        for o in (-bins.bins, -7, -1, 0, 1, 9, bins.bins - 1):
            near = o * bins.width if o >= 0 else -((o + 1) * bins.width - 1)
            weight = (Decimal(-(near**2) * variance.denominator) / (2 * variance.numerator)).exp()
            assert abs(masses[bins.bins + o] / base - weight) < Decimal("1e-45")


def test_sure_coins_are_sure_anywhere_in_their_bin() -> None:
    bins = GaussianBins(Fraction(35_000**2))
    starts = np.unique(bins.table.values[bins.table.values != bins.table.mark])
    for start in starts.tolist():
        (cell,) = np.flatnonzero(bins.table.values == start)[:1]
        sure = int(bins.sure[cell])
        if not -bins.bins * bins.width <= start < bins.bins * bins.width:
            assert sure == 0, "a tail has no coin"
            continue
        sizes = (abs(start), abs(start + bins.width - 1))
        near, far = min(sizes), max(sizes)
        chance = math.exp(-(far - near) * (far + near) / (2 * 35_000**2))
        assert chance * 65_536 - 2 < sure <= chance * 65_536
    assert not bins.sure[bins.table.values == bins.table.mark].any()


def test_a_coin_that_floats_cannot_decide_is_decided_exactly() -> None:
    bins = GaussianBins(Fraction(5001))
    near, size = 10, 11
    floors = certified(partial(sampling_gaussian._single_law, Fraction(near**2 - size**2) / (2 * bins.variance)))
    (chance,) = floors(64)
    (longer,) = floors(128)
    rest = longer & ((1 << 64) - 1)
    asked: list[int] = []

    def entropy(further: int):  # type: ignore[no-untyped-def]
        def draw(n: int) -> bytes:
            asked.append(n)
            return further.to_bytes(8, "big")

        return draw

    assert bins._head(near, size, chance - 1, entropy(0)) is True
    assert bins._head(near, size, chance + 1, entropy(0)) is False
    assert asked == []
    assert bins._head(near, size, chance, entropy(rest - 1)) is True, "the tie is decided by the next 64 bits"
    assert bins._head(near, size, chance, entropy(rest + 1)) is False
    assert asked == [8, 8]
    assert bins._head(near, near, (1 << 64) - 1, entropy(0)) is True, "the heaviest place is always kept"
    starts, noise = np.array([10 * bins.width]), np.array([10 * bins.width + 1])
    exponent = (2 * starts[0] + 1) / (2.0 * float(bins.variance))
    assert (
        abs(
            math.exp(-exponent)
            - float(
                Fraction(
                    certified(
                        partial(
                            sampling_gaussian._single_law,
                            Fraction(-int(noise[0] ** 2 - starts[0] ** 2)) / (2 * bins.variance),
                        )
                    )(64)[0],
                    1 << 64,
                )
            )
        )
        < 2**-50
    )


def test_floats_and_exact_coins_agree_where_both_decide() -> None:
    bins = GaussianBins(Fraction(35_000**2))
    rng = np.random.default_rng(5)
    starts = rng.integers(-bins.bins, bins.bins, 400) * bins.width
    noise = starts + rng.integers(0, bins.width, 400)
    coins = rng.integers(0, 1 << 16, 400).astype(np.uint16)
    seen: list[np.ndarray] = []

    class Recorded(Keystream):
        def words(self, count: int, width: int) -> np.ndarray:
            seen.append(super().words(count, width))
            return seen[-1]

    heads = bins._heads(starts, noise, coins, Recorded(seeded("coins")))
    for i in range(400):
        near = starts[i] if starts[i] >= 0 else -(starts[i] + bins.width - 1)
        prefix = (int(coins[i]) << 48) | (int(seen[0][i]) >> 16)
        assert heads[i] == bins._head(int(near), abs(int(noise[i])), prefix, seeded("never"))


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(7, 2)])
def test_the_scalar_sampler_accepts_with_the_rest_of_the_weight(variance: Fraction) -> None:
    """CKS20, algorithm 3: proposal x coin is proportional to the pmf, exactly as fractions of exponents."""
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    asked: list[Fraction] = []
    candidates = iter([3, -3, 0, 2, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "discrete_laplace", lambda s, entropy: next(candidates) if s == scale else None)
        patch.setattr(sampling, "bernoulli_exp", lambda gamma, entropy: bool(asked.append(gamma)) or len(asked) == 5)
        assert discrete_gaussian(variance, seeded("x")) == 1
    for x, gamma in zip((3, 3, 0, 2, 1), asked, strict=True):
        # |x| / scale + gamma = x^2 / 2v + a constant
        assert Fraction(x, scale) + gamma - Fraction(x**2) / (2 * variance) == variance / (2 * scale**2)


def chi_square_z(draws: np.ndarray, law: dict[int, Decimal]) -> float:
    """(chi^2 - cells) / sqrt(2 cells) over cells of at least ten expected draws, the rest together."""
    n = draws.size
    values, counts = np.unique(draws, return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    cells = [(seen.get(x, 0), float(p) * n) for x, p in law.items() if float(p) * n >= 10]
    rest = n - sum(count for count, _ in cells), n - sum(expected for _, expected in cells)
    cells += [rest] if rest[1] >= 5 else []
    chi = sum((count - expected) ** 2 / expected for count, expected in cells)
    return (chi - (len(cells) - 1)) / math.sqrt(2 * (len(cells) - 1))


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(7, 2), Fraction(64**2), Fraction(5001)])
def test_bulk_draws_have_the_theoretical_law(variance: Fraction) -> None:
    draws = discrete_gaussian_many(variance, 1_000_000, stream(f"bulk {variance}"))
    assert abs(chi_square_z(draws, pmf(variance, 14 * (math.isqrt(int(variance)) + 1)))) < 5


def test_single_draws_have_the_theoretical_law() -> None:
    entropy = seeded("single draws")
    draws = np.array([discrete_gaussian(Fraction(7, 2), entropy) for _ in range(5_000)])
    assert abs(chi_square_z(draws, pmf(Fraction(7, 2), 40))) < 5


@pytest.mark.parametrize("variance", [Fraction(35_000**2), Fraction(1 << 62), Fraction((1 << 89) + 5)])
def test_wide_draws_have_the_moments(variance: Fraction) -> None:
    """A million draws over their deviation: mean, mean square and mean fourth power within 5 of their errors."""
    x = discrete_gaussian_many(variance, 1_000_000, stream(f"wide {variance}")) / float(variance) ** 0.5
    assert abs(x.mean()) < 5e-3
    assert abs((x**2).mean() - 1) < 5 * 2**0.5 * 1e-3
    assert abs((x**4).mean() - 3) < 5 * 96**0.5 * 1e-3
    places = discrete_gaussian_many(variance, 100_000, stream("places")) & 15
    assert np.bincount(places.astype(np.int64), minlength=16).std() < 5 * (100_000 / 16) ** 0.5, "low bits are even"


def test_a_tail_goes_on_without_end() -> None:
    """Beyond the bins, given that, the law's ratio of neighbours is the Gaussian's own."""
    bins = GaussianBins(Fraction(9))
    draws = np.array([bins.tail(sign, stream(f"tail {i} {sign}")) for i in range(1500) for sign in (1, -1)])
    first = bins.bins
    assert draws[0::2].min() == first
    assert draws[1::2].max() == -first - 1
    weights = [math.exp(-((first + j) ** 2) / 18) for j in range(12)]
    share = weights[0] / sum(weights)
    assert abs((draws[0::2] == first).mean() - share) < 5 * (share * (1 - share) / 1500) ** 0.5
    far = GaussianBins(Fraction(35_000**2))
    one = far.tail(-1, stream("far"))
    assert -one > far.bins * far.width


def test_a_drawn_tail_bin_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    bins = GaussianBins(Fraction(5001))
    monkeypatch.setattr(GaussianBins, "tail", lambda self, sign, entropy: sign * 12_345)
    monkeypatch.setattr(bins.table, "refine", lambda cells, entropy: np.array([bins.bins, -bins.bins - 1, 0]))
    marked = np.flatnonzero(bins.table.values == bins.table.mark)[:3].astype(np.uint16)
    noise = bins._resolved(marked, np.array([1, 1, 1]), np.array([65_535, 65_535, 0], np.uint16), stream("cut"))
    assert noise[:2].tolist() == [12_345, -12_345]


def test_points_are_added_and_sums_clamped() -> None:
    points = np.array([-1000, 0, 1000] * 1000, np.int32)
    noisy = add_discrete_gaussian(Fraction(10_000), points, (-1000, 1000), stream("points"))
    assert noisy.min() == -1000
    assert noisy.max() == 1000
    for point in (-1000, 0, 1000):
        mine = noisy[points == point]
        assert abs(np.median(mine) - point) < 20
        assert 300 < int((np.abs(mine) == 1000).sum()) < 700 or point == 0


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1)])
def test_a_variance_that_is_none_is_refused(variance: Fraction) -> None:
    with pytest.raises(ValueError, match="variance"):
        discrete_gaussian(variance, seeded("x"))
    with pytest.raises(ValueError, match="variance"):
        discrete_gaussian_many(variance, 1, stream("x"))


def test_limits_beyond_the_sampler_are_refused() -> None:
    with pytest.raises(ValueError, match="limits"):
        add_discrete_gaussian(Fraction(1), np.zeros(1, np.int32), (-(1 << 40), 1 << 40), stream("x"))
