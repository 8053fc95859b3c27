"""Subset selection: its complete law from the shipped integers, one by one and vectorised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from math import comb

import numpy as np
import pytest

from client_sdk.mechanisms import subset_selection
from client_sdk.mechanisms.subset_selection import SubsetSelection, choose_many
from client_sdk.sampling_vectorised import Keystream
from tests.branching import e_to, exact_law
from tests.entropy import Untouched, seeded

ONE = 1 << 64
SETTINGS = [(2, "1"), (3, "0.5"), (4, "0.000001"), (5, "0.5"), (6, "1"), (7, "0.1"), (5, "40")]
Law = dict[tuple[int, ...], Fraction]
Choose = Callable[[Sequence[Fraction]], int]


def mechanism(k: int, epsilon: str) -> SubsetSelection:
    return SubsetSelection(tuple(f"c{i}" for i in range(k)), Decimal(epsilon))


def one_by_one(mech: SubsetSelection, truth: int, monkeypatch: pytest.MonkeyPatch) -> Law:
    def run(choose: Choose) -> tuple[int, ...]:
        def kept(numerator: int, entropy: object) -> bool:
            return choose([Fraction(numerator, ONE), 1 - Fraction(numerator, ONE)]) == 0

        monkeypatch.setattr(subset_selection, "bernoulli_2_64", kept)
        monkeypatch.setattr(subset_selection, "uniform_below", lambda n, entropy: choose([Fraction(1, n)] * n))
        return tuple(mech.perturb_code(truth, Untouched()))

    return exact_law(run)


FIRST_SHARE = subset_selection._first_share


class BranchingBytes(Keystream):
    """Each byte is 0 or 255: below `share`, whatever that is, or not; with the probabilities of that."""

    def __init__(self, choose: Choose) -> None:
        super().__init__(seeded("unused"))
        self._choose = choose
        self.share = Fraction(1, 2)

    def __call__(self, size: int) -> bytes:
        weights = [self.share, 1 - self.share]
        return bytes(255 * self._choose(weights) for _ in range(size - 1)) + b"\xff"


def branch_vectorised(monkeypatch: pytest.MonkeyPatch, choose: Choose) -> BranchingBytes:
    """For one row. A place that was drawn before never fits again, and changes nothing where it does not fit: so
    drawing each place at most once has the same law, and always ends."""
    stream, met = BranchingBytes(choose), set()

    def kept(numerator: int, count: int, stream: object) -> np.ndarray:
        assert count == 1
        return np.array([choose([1 - Fraction(numerator, ONE), Fraction(numerator, ONE)])], np.uint8)

    def place(n: int, count: int, stream: object) -> np.ndarray:
        assert count == 1
        fresh = [i for i in range(n) if i not in met]
        met.add(drawn := fresh[choose([Fraction(1, len(fresh))] * len(fresh))])
        return np.array([drawn])

    def share(places: int, sizes: np.ndarray) -> int:
        stream.share = Fraction(FIRST_SHARE(places, sizes), 256)
        return FIRST_SHARE(places, sizes)

    monkeypatch.setattr(subset_selection, "bernoulli_2_64_many", kept)
    monkeypatch.setattr(subset_selection, "uniform_below_many", place)
    monkeypatch.setattr(subset_selection, "_first_share", share)
    return stream


def unlisted(mech: SubsetSelection, truth: int, monkeypatch: pytest.MonkeyPatch) -> Law:
    """As where the list of all subsets would be too long."""
    monkeypatch.setattr(subset_selection, "LISTED", 0)
    return vectorised(mech, truth, monkeypatch)


def vectorised(mech: SubsetSelection, truth: int, monkeypatch: pytest.MonkeyPatch) -> Law:
    def run(choose: Choose) -> tuple[int, ...]:
        stream = branch_vectorised(monkeypatch, choose)
        return tuple(mech._answers(np.array([truth]), stream)[0].tolist())

    return exact_law(run)


@pytest.mark.parametrize(
    ("half", "k", "epsilon"),
    [
        (half, *setting)
        for setting in SETTINGS
        for half in (one_by_one, vectorised, unlisted)
        if setting[0] <= 5 or half is not unlisted
    ],
)
def test_largest_ratio_over_all_inputs_and_outputs(
    half: Callable[..., Law], k: int, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mech = mechanism(k, epsilon)
    laws = [half(mech, truth, monkeypatch) for truth in range(k)]
    p, w = Fraction(mech.keep, ONE), mech.size
    for truth, law in enumerate(laws):
        assert len(law) == comb(k, w)
        for report, mass in law.items():
            assert sum(report) == w
            assert mass == (p / comb(k - 1, w - 1) if report[truth] else (1 - p) / comb(k - 1, w))
        for label in range(k):
            chance = sum(mass for report, mass in law.items() if report[label])
            assert chance == (mech.p if label == truth else mech.q)
    worst = max(a[y] / b[y] for a, b in permutations(laws, 2) for y in a)
    assert worst == mech.worst_ratio <= e_to(Decimal(epsilon))


@pytest.mark.parametrize(("k", "epsilon"), [*SETTINGS, (128, "1"), (1024, "0.1")])
def test_keep_is_the_largest_private_integer(k: int, epsilon: str) -> None:
    mech = mechanism(k, epsilon)
    w, keep = mech.size, mech.keep
    assert Fraction((keep + 1) * (k - w), (ONE - keep - 1) * w) > e_to(Decimal(epsilon))


@pytest.mark.parametrize(("places", "size"), [(1, 0), (1, 1), (4, 0), (4, 2), (4, 3), (4, 4)])
@pytest.mark.parametrize("share", [0, 3, 128, 255])
def test_subsets_are_uniform_from_whatever_first_share(
    places: int, size: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few or too many to begin with: places are added or dropped, and every subset is as probable."""

    def run(choose: Choose) -> tuple[int, ...]:
        stream = branch_vectorised(monkeypatch, choose)
        stream.share = Fraction(share, 256)
        monkeypatch.setattr(subset_selection, "_first_share", lambda places, sizes: share)
        return tuple(choose_many(places, np.array([size]), stream)[0, :-1].tolist())

    law = exact_law(run)
    assert set(law.values()) == {Fraction(1, comb(places, size))}
    assert len(law) == comb(places, size)


def test_rows_of_many_sizes_do_not_disturb_each_other() -> None:
    """All sizes at once, over several reaches of 255 places: each row gets its own, and each place its share."""
    places, n = 300, 3010
    sizes = np.arange(n) % (places + 1)
    rows = choose_many(places, sizes, Keystream(seeded("sizes")))[:, :-1]
    assert (rows.sum(axis=1) == sizes).all()
    assert rows.max() == 1
    variance = (sizes / places * (1 - sizes / places)).sum()
    assert np.abs(rows.sum(axis=0) - sizes.sum() / places).max() < 5 * variance**0.5


@pytest.mark.parametrize("many", [True, False], ids=["vectorised", "one by one"])
def test_shares_of_all_subsets_over_many_reports(many: bool) -> None:
    mech, n = mechanism(6, "0.5"), 120_000 if many else 10_000
    entropy = seeded("subsets")
    if many:
        rows = mech.perturb_codes(np.full(n, 4), entropy).tolist()
    else:
        rows = [mech.perturb_code(4, entropy) for _ in range(n)]
    counts = Counter(map(tuple, rows))
    inside, outside = float(mech.p) / comb(5, mech.size - 1), float(1 - mech.p) / comb(5, mech.size)
    assert len(counts) == comb(6, mech.size)
    chi2 = sum((c - n * (e := inside if y[4] else outside)) ** 2 / (n * e) for y, c in counts.items())
    freedom = len(counts) - 1
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5
