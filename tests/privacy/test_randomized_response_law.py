"""Randomised response's complete output law from its shipped integers, and the ratio against e^epsilon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.sampling_vectorised import Keystream
from tests.entropy import OutOfScript, Scripted, seeded

SETTINGS = [(2, "1"), (2, "0.000001"), (3, "0.5"), (4, "0.5"), (5, "2"), (16, "1"), (100, "3"), (64, "0.1"), (3, "40")]
KEEP, LIE = bytes(8), b"\xff" * 8


def mechanism(k: int, epsilon: str) -> RandomizedResponse:
    return RandomizedResponse(tuple(f"c{i}" for i in range(k)), Decimal(epsilon))


def e_to(epsilon: str) -> Decimal:
    with localcontext(Context(prec=120)):
        return Decimal(epsilon).exp()


def output_law(mech: RandomizedResponse, truth: int) -> dict[int, Fraction]:
    """Law of the cell that is set: both sides of the keep comparison, times every byte of the lie's first draw.

    A rejected byte draws again, so the lie's law is that of the accepted bytes.
    """
    p = Fraction(mech.keep, 2**64)
    assert answer(mech, truth, (mech.keep - 1).to_bytes(8, "big"), b"\x00") == truth
    assert answer(mech, truth, mech.keep.to_bytes(8, "big"), b"\x00") != truth
    law: dict[int, Fraction] = {}
    for first, share in ((KEEP, p), (LIE, 1 - p)):
        cells: Counter[int] = Counter()
        for byte in range(256):
            try:
                cells[answer(mech, truth, first, bytes([byte]))] += 1
            except OutOfScript:
                continue
        for cell, count in cells.items():
            law[cell] = law.get(cell, Fraction(0)) + share * Fraction(count, sum(cells.values()))
    return law


def answer(mech: RandomizedResponse, truth: int, first: bytes, lie: bytes) -> int:
    script = (first,) if mech.length == 2 else (first, lie)
    report = mech.perturb(f"c{truth}", Scripted(*script))
    assert sorted(report) == [0] * (mech.length - 1) + [1]
    return report.index(1)


@pytest.mark.parametrize(("k", "epsilon"), SETTINGS)
def test_largest_ratio_over_all_inputs_and_outputs(k: int, epsilon: str) -> None:
    mech = mechanism(k, epsilon)
    laws = [output_law(mech, truth) for truth in range(k)]
    p = Fraction(mech.keep, 2**64)
    for truth, law in enumerate(laws):
        assert law == {cell: p if cell == truth else (1 - p) / (k - 1) for cell in range(k)}
    worst = max(max(law[y] for law in laws) / min(law[y] for law in laws) for y in range(k))
    if k <= 5:
        assert worst == max(a[y] / b[y] for a, b in permutations(laws, 2) for y in range(k))
    assert worst == mech.worst_ratio <= Fraction(e_to(epsilon) * (1 - Decimal("1e-110")))


@pytest.mark.parametrize(("k", "epsilon"), SETTINGS)
def test_keep_is_the_largest_private_integer(k: int, epsilon: str) -> None:
    keep = mechanism(k, epsilon).keep
    larger = Fraction((keep + 1) * (k - 1), 2**64 - keep - 1)
    assert larger > Fraction(e_to(epsilon)), "one unit more would break epsilon; anything less would waste it"


class AllCells(Keystream):
    """A stream whose next words are given: every cell once instead of cells at random."""

    def __init__(self, *words: np.ndarray) -> None:
        super().__init__(seeded("beyond the script"))
        self._script = list(words)
        self.beyond: list[int] = []

    def words(self, count: int, width: int) -> np.ndarray:
        if not self._script:
            self.beyond.append(count)
            return super().words(count, width)
        words = self._script.pop(0)
        assert words.shape == (count,)
        assert words.dtype.itemsize == width
        return words


@pytest.mark.parametrize("k", [2, 3, 4, 16, 17, 100])
def test_vectorised_lies_are_uniform_over_all_words(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 16-bit word once: each lie is met equally often, the rest is drawn again."""
    mech = mechanism(k, "1")
    size = 1 << 16
    truth = 1
    stream = AllCells(np.full(size, 2**64 - 1, "<u8"), np.arange(size, dtype="<u2"))
    answers = mech._answers(np.full(size, truth), stream)
    rows = mech.rows(answers)
    assert (rows.shape, rows.sum(axis=1).tolist()) == ((size, k), [1] * size)
    redrawn = stream.beyond[0] if stream.beyond else 0
    assert redrawn == size % (k - 1), "as many as do not divide evenly"
    counts = rows.sum(axis=0, dtype=np.int64)
    assert (mech.total_of(answers) == counts).all()
    assert counts[truth] == 0
    lies = np.delete(counts, truth)
    assert lies.max() - lies.min() <= redrawn
    assert lies.min() >= size // (k - 1)


def test_vectorised_keep_compares_the_same_integer() -> None:
    mech = mechanism(4, "0.5")
    words = np.array([0, mech.keep - 1, mech.keep, 2**64 - 1], "<u8")
    answers = mech._answers(np.full(4, 2), AllCells(words, np.full(4, 40000, "<u2")))
    assert (answers == 2).tolist() == [True, True, False, False]


SHARES: list[tuple[int, str, float, float, float, float]] = [
    (2, "1", 0.731059, 0.0045, 0.268941, 0.0045),
    (4, "0.5", 0.354661, 0.0049, 0.215113, 0.0043),
]


@pytest.mark.parametrize(("k", "epsilon", "kept", "kept_tolerance", "each", "each_tolerance"), SHARES)
@pytest.mark.parametrize("many", [True, False], ids=["vectorised", "one by one"])
def test_shares_over_many_reports(
    k: int, epsilon: str, kept: float, kept_tolerance: float, each: float, each_tolerance: float, many: bool
) -> None:
    # case A07
    mech = mechanism(k, epsilon)
    n = 200_000 if many else 20_000
    entropy: Callable[[int], bytes] = seeded(f"A07 {k} {many}")
    if many:
        totals = mech.total_of(mech.perturb_codes(np.zeros(n, np.int64), entropy)).tolist()
        widen = 1.0
    else:
        reports = [mech.perturb("c0", entropy) for _ in range(n)]
        totals = [sum(column) for column in zip(*reports, strict=True)]
        widen = 10**0.5
    shares = [total / n for total in totals]
    assert shares[0] == pytest.approx(kept, abs=kept_tolerance * widen)
    assert shares[1:] == pytest.approx([each] * (k - 1), abs=each_tolerance * widen)
