"""What a masked input looks like to a collector that opens nothing: like noise, and like no other round's.

Entropy is seeded, so the figures are the same every time; the limits are 5 sigma of the chi-square law.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from client_sdk.secagg.masking import ring_from_bytes
from client_sdk.secagg.messages import MaskedInputPiece
from tests.fleet import Fleet, SeededEntropy, rules

LENGTH = 4096
BOUNDS = {16: 1000, 32: 2**20, 64: 2**40}
REPORTS = {"zeros": lambda bound: [0] * LENGTH, "the bound": lambda bound: [bound] * LENGTH,
           "one hot": lambda bound: [bound, *[0] * (LENGTH - 1)]}  # fmt: skip


def masked_inputs(bits: int, report: str, rounds: int, drops: dict[int, str] | None = None) -> list[np.ndarray]:
    """Member 1's masked inputs of one and the same report, in rounds that differ in their fresh entropy only."""
    found = []
    for number in range(rounds):
        vectors = [REPORTS[report](BOUNDS[bits])] * 4
        fleet = Fleet(
            vectors,
            rules(LENGTH, min_size=3, bound=BOUNDS[bits]),
            entropy_for=lambda i, number=number: SeededEntropy(b"%d in %d" % (i, number)),
        )
        assert fleet.run(drops).total is not None
        assert fleet.round.bits == bits
        pieces = [m.data for i, m in fleet.sent if i == 1 and isinstance(m, MaskedInputPiece)]
        found.append(ring_from_bytes(b"".join(pieces), bits))
    return found


def assert_uniform(vectors: Iterable[np.ndarray]) -> None:
    """Every byte of an element, and every bit, takes all its values evenly; and neighbours do not follow each other."""
    vectors = list(vectors)
    width = vectors[0].itemsize
    rows = np.concatenate([vector.view(np.uint8).reshape(-1, width) for vector in vectors])
    for column in rows.T:
        assert_flat(np.bincount(column, minlength=256))
    for bit in range(8 * width):
        ones = int(((rows[:, bit // 8] >> (bit % 8)) & 1).sum())
        assert_flat(np.array([ones, len(rows) - ones]))
    pairs = (rows[:-1, -1].astype(np.int64) >> 4) * 16 + (rows[1:, -1] >> 4)
    assert_flat(np.bincount(pairs, minlength=256))


def assert_flat(counts: np.ndarray) -> None:
    expected, degrees = counts.sum() / len(counts), len(counts) - 1
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < degrees + 5 * (2 * degrees) ** 0.5 + 12, (chi_square, degrees)


@pytest.mark.parametrize("bits", BOUNDS)
@pytest.mark.parametrize("report", REPORTS)
def test_a_masked_input_is_uniform(bits: int, report: str) -> None:
    assert_uniform(masked_inputs(bits, report, 4))


def test_the_test_sees_what_is_not() -> None:
    """A mask that is too short, one that repeats, and none."""
    (good,) = masked_inputs(32, "zeros", 1)
    for bad in (np.zeros_like(good), good & 0xFFFFFF, good | 1, np.sort(good)):
        with pytest.raises(AssertionError):
            assert_uniform([bad] * 4)


@pytest.mark.parametrize("bits", BOUNDS)
def test_the_same_report_in_another_round_is_another_masked_input(bits: int) -> None:
    """No two have anything to do with each other: differences and sums are uniform too, and uncorrelated."""
    vectors = masked_inputs(bits, "the bound", 4)
    pairs = [(a, b) for i, a in enumerate(vectors) for b in vectors[i + 1 :]]
    assert_uniform([a - b for a, b in pairs])
    assert_uniform([a + b for a, b in pairs])
    for a, b in pairs:
        assert not np.any(a == b) or bits == 16
        scaled = [vector.astype(np.float64) / 2.0**bits - 0.5 for vector in (a, b)]
        assert abs(float(np.corrcoef(*scaled)[0, 1])) < 5 / LENGTH**0.5


def test_nor_is_it_related_to_another_members() -> None:
    """In one round, with the same report: pairwise masks make members' sums known, not their differences."""
    fleet = Fleet([[7] * LENGTH] * 4, rules(LENGTH, min_size=3, bound=2**20))
    fleet.run()
    sent = {i: ring_from_bytes(m.data, 32) for i, m in fleet.sent if isinstance(m, MaskedInputPiece)}
    for i, a in sent.items():
        for j, b in sent.items():
            if i < j:
                assert_uniform([a - b, a + b])
