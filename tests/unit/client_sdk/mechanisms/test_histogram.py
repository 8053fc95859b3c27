"""Numbers into bins: exact edges, labels, refusals; what is sent and decoded is the inner mechanism's."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism
from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.choice import CATEGORICAL, cheapest
from client_sdk.mechanisms.histogram import Histogram, bin_labels, histogram_choice, next_float
from tests.entropy import Untouched, seeded

D = Decimal
WORDS = [*CATEGORICAL, "square_wave"]
EDGES = (D("0"), D("0.1"), D("0.3"), D("1e3"), D("1000.0000000000000000001"))


def histogram(word: str = "randomized_response", edges: tuple[Decimal, ...] = EDGES, **more: bool) -> Histogram:
    return Histogram(edges, D(1), word, **more)


@pytest.mark.parametrize("word", WORDS)
def test_it_is_a_mechanism_and_says_what_is_inside(word: str) -> None:
    mech = histogram(word)
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.answer, mech.bins) == (word, "counts", 4)
    assert (mech.length, mech.bound, mech.worst_ratio) == (mech.inner.length, 1, mech.inner.worst_ratio)
    assert mech.smoothed == (word == "square_wave")
    assert mech == histogram(word) != histogram(word, EDGES[:-1])


def test_labels_have_the_fewest_digits() -> None:
    assert bin_labels((D("0.0"), D("1.50"), D("1E+3"), D("2000"))) == ("[0, 1.5)", "[1.5, 1000)", "[1000, 2000]")
    assert bin_labels((D("-0.0"), D("1e-7"), D("10"))) == ("[0, 0.0000001)", "[0.0000001, 10]")
    assert histogram(optional=True).labels == (*bin_labels(EDGES), ABSENT)


@pytest.mark.parametrize("word", WORDS)
def test_a_reading_counts_in_its_bin(word: str) -> None:
    """At epsilon 40 nothing is moved: the estimate is the histogram."""
    mech = Histogram(EDGES, D(40), word)
    readings = [-5, 0, 0.05, 0.1, 0.2, 0.3, 999.9, 1000, 2000.0, 10**400]  # float 0.3 lies below the decimal 0.3
    total = mech.perturb_many(readings, seeded("bins")).sum(axis=0).tolist()
    assert mech.is_plausible(total, 10)
    if word not in ("hadamard", "optimized_unary"):  # half of a report is noise at any epsilon
        expected = np.array([3, 3, 1, 3])
        assert np.array(mech.estimate(total, 10).values) == pytest.approx(expected, abs=0.2)
    assert mech.codes(readings).tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3]


@given(
    st.lists(st.floats(-20, 20).map(lambda x: x if abs(x) > 1e-200 else 0.0), min_size=3, max_size=9, unique=True),
    st.integers(0, 2**32),
)
def test_bulk_is_exact_comparison_at_and_beside_every_edge(numbers: list[float], shift: int) -> None:
    """Edges that no float is, readings an ulp to either side of them, floats, integers and single precision."""
    exact = Context(prec=400)
    edges = tuple(sorted(exact.add(D(number), D(shift).scaleb(-40)) for number in numbers))
    mech = histogram(edges=edges)
    readings = [math.nextafter(float(edge), to) for edge in edges for to in (-math.inf, math.inf)]
    readings += [float(edge) for edge in edges]
    expected = []
    for reading in readings:
        below = sum(Fraction(edge) <= Fraction(reading) for edge in edges) - 1
        expected.append(min(max(below, 0), mech.bins - 1))
    assert mech.codes(np.array(readings)).tolist() == mech.codes(readings).tolist() == expected
    assert [mech.code(reading) for reading in readings] == expected
    single = np.array(readings, np.float32)
    assert mech.codes(single).tolist() == [mech.code(float(reading)) for reading in single]
    whole = np.arange(-25, 25)
    assert mech.codes(whole).tolist() == [mech.code(int(reading)) for reading in whole]


def test_next_float_is_the_first_that_reaches() -> None:
    for exact in (Fraction(1, 10), Fraction(3, 10), Fraction(1), Fraction(-1, 3), Fraction(0), Fraction(10**20 + 1)):
        reached = next_float(exact)
        assert Fraction(reached) >= exact > Fraction(math.nextafter(reached, -math.inf))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), RefusalReason.NOT_FINITE),
        (float("inf"), RefusalReason.NOT_FINITE),
        ("3", RefusalReason.WRONG_TYPE),
        (True, RefusalReason.WRONG_TYPE),
        (None, RefusalReason.WRONG_TYPE),
    ],
)
def test_refusals_before_any_entropy(value: object, reason: RefusalReason) -> None:
    mech = histogram()
    for call in (
        lambda: mech.perturb(value, Untouched()),  # type: ignore[arg-type]
        lambda: mech.perturb_many([1.0, value], Untouched()),  # type: ignore[list-item]
    ):
        with pytest.raises(ValueRefusedError) as caught:
            call()
        assert caught.value.reason is reason
    with pytest.raises(ValueRefusedError):
        mech.perturb_many(np.array([1.0, np.nan]), Untouched())


def test_no_reading_has_a_place_of_its_own_where_optional() -> None:
    mech = Histogram(EDGES, D(40), "randomized_response", optional=True)
    total = mech.perturb_many([None, 0.0, None, 5000], seeded("optional")).sum(axis=0).tolist()
    assert total == [1, 0, 0, 1, 2]
    assert mech.perturb(None, seeded("x")) == [0, 0, 0, 0, 1]
    with pytest.raises(PlanError, match="optional: square_wave"):
        histogram("square_wave", optional=True)


@pytest.mark.parametrize(
    ("edges", "line"),
    [
        ((D(0), D(1)), "3 to 4097"),
        ((D(0), D(1), D(1)), "ascend"),
        ((D(0), D("nan"), D(1)), "finite"),
        ((D(0), D(1), D("1e400")), "finite"),
        ((D(0), D("1e-300"), D(1)), "finite"),
        (tuple(map(D, range(4098))), "3 to 4097"),
    ],
)
def test_edges_that_cannot_work(edges: tuple[Decimal, ...], line: str) -> None:
    with pytest.raises(PlanError, match=f"edges: .*{line}"):
        histogram(edges=edges)


def test_other_parameters_that_cannot_work() -> None:
    with pytest.raises(PlanError, match="edges: must be a Decimal"):
        histogram(edges=(0.0, 1.0, 2.0))  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="mechanism"):
        histogram("laplace")
    with pytest.raises(PlanError, match="epsilon"):
        Histogram(EDGES, D(0), "square_wave")


def test_auto_is_the_least_error_per_bin() -> None:
    for bins, epsilon in ((4, "1"), (16, "1"), (16, "2"), (128, "1")):
        assert histogram_choice(bins, D(epsilon)) == cheapest(bins, D(epsilon)) != "square_wave"


@pytest.mark.parametrize("word", WORDS)
def test_totals_of_split_cohorts_add_up(word: str) -> None:
    mech = Histogram(tuple(map(D, range(9))), D(1), word)
    values = np.random.default_rng(8).uniform(-1, 10, 1000)
    reports = mech.perturb_many(values, seeded("split"))
    whole = mech.estimate(reports.sum(axis=0).tolist(), 1000)
    parts = reports[:300].sum(axis=0) + reports[300:].sum(axis=0)
    assert mech.estimate(parts.tolist(), 1000) == whole
    counts = [count for count in whole.values if count is not None]
    if word in ("randomized_response", "square_wave"):
        assert sum(counts) == pytest.approx(1000)
    assert all(low < high for low, high in pairwise(map(float, mech.edges)))


ONE_REPORT = """
import os, sys
from decimal import Context, Decimal
from client_sdk.mechanisms.histogram import Histogram
from client_sdk.mechanisms.quantiles import Quantiles, quantiles_choice
edges = tuple(map(Decimal, range(21)))
for word in ("square_wave", "subset_selection", quantiles_choice(edges, Decimal(1), (Decimal("0.5"),))):
    Histogram(edges, Decimal(1), word).perturb(3.5, os.urandom)
    Quantiles(edges, Decimal(1), word).perturb(3.5, os.urandom)
print(sorted({"numpy", "cryptography", "grpc", "google.protobuf"} & set(sys.modules)))
"""


def test_one_report_needs_the_standard_library_only() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ONE_REPORT], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"
