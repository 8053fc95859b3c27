"""The square wave: its complete law from the shipped integers, one by one and vectorised; the ratio to e^epsilon."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from client_sdk.mechanisms import square_wave
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.mechanisms.square_wave import SquareWave
from tests.branching import e_to
from tests.entropy import seeded
from tests.structured_law import ONE, Half, one_by_one, vectorised

SETTINGS = [(2, "1"), (3, "0.5"), (5, "0.000001"), (7, "2"), (10, "1"), (16, "4"), (6, "40")]


def mechanism(places: int, epsilon: str) -> SquareWave:
    return SquareWave(tuple(f"bin {i}" for i in range(places)), Decimal(epsilon))


@pytest.mark.parametrize("half", [one_by_one, vectorised])
@pytest.mark.parametrize(("places", "epsilon"), SETTINGS)
def test_largest_ratio_over_all_inputs_and_outputs(
    half: Half, places: int, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mech = mechanism(places, epsilon)
    laws = [half(square_wave, mech, truth, monkeypatch) for truth in range(places)]
    near, far = Fraction(mech.inside, ONE * mech.window), Fraction(ONE - mech.inside, ONE * (places - 1))
    for truth, law in enumerate(laws):
        assert sum(law.values()) == 1
        window = range(truth, truth + mech.window)
        assert law == {cell: near if cell in window else far for cell in range(mech.length)}
        assert mech.table()[truth] == pytest.approx([float(law[cell]) for cell in range(mech.length)], rel=1e-15)
    worst = max(a[cell] / b[cell] for a, b in permutations(laws, 2) for cell in a)
    assert worst == mech.worst_ratio <= e_to(Decimal(epsilon))


@pytest.mark.parametrize(("places", "epsilon"), [*SETTINGS, (100, "1"), (1024, "0.1"), (4096, "3")])
def test_the_integer_is_the_largest_private_one(places: int, epsilon: str) -> None:
    mech = mechanism(places, epsilon)
    one_more = Fraction(mech.inside + 1, mech.window) / Fraction(ONE - mech.inside - 1, places - 1)
    assert mech.worst_ratio <= e_to(Decimal(epsilon)) < one_more


def test_a_histogram_adds_nothing_to_the_law() -> None:
    """Two readings of one bin have the same report under the same entropy; the ratio is the inner mechanism's."""
    mech = Histogram((Decimal(0), Decimal(1), Decimal("2.5"), Decimal(4)), Decimal(1), "square_wave")
    assert mech.worst_ratio == mech.inner.worst_ratio <= e_to(Decimal(1))
    for low, high in ((-1e300, 0.999), (1, 2.4), (2.5, 10**400)):
        assert mech.perturb(low, seeded("same")) == mech.perturb(high, seeded("same"))


@pytest.mark.parametrize("many", [False, True], ids=["one by one", "vectorised"])
def test_shares_over_many_reports(many: bool) -> None:
    mech = mechanism(8, "1")
    n = 200_000 if many else 20_000
    if many:
        totals = mech.total_of(mech.perturb_codes(np.full(n, 3), seeded("square wave")))
    else:
        entropy = seeded("square wave, one by one")
        totals = np.sum([mech.perturb_code(3, entropy) for _ in range(n)], axis=0)
    expected = n * mech.table()[3]
    assert (np.abs(totals - expected) < 5 * np.sqrt(expected)).all()
