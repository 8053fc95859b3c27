"""n_h of a report, metric by metric, and why a report falls back."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from client_sdk.accounting.ledger import Cohort, FoldedReports
from client_sdk.errors import ConfigurationError
from collector.accounting.exposure import ALONE, NOT_BY_METRIC, exposed, exposures, fraction_above, honest, local_losses
from tests.unit.collector.accounting.ledgers import DAY_S, NOW, PLAN, by_hash, entry, ledger, plan_of, unsent

SAMPLED = plan_of(
    """
[metrics.a]
kind = "categorical"
categories = ["x", "y"]
epsilon = 1
[metrics.b]
kind = "numeric"
lower = 0
upper = 1
epsilon = 3
[metrics.c]
kind = "categorical"
categories = ["x", "y"]
epsilon = 2
""",
    more="sample_metrics = 2",
)


def test_n_h_leaves_out_the_corrupt_of_the_roster_and_the_resent() -> None:
    assert honest(1000, Cohort(1000, 1000, 0), Fraction("0.9")) == 100, "no binary fraction"
    assert honest(110, Cohort(110, 121, 2), Fraction("0.1")) == 110 - 13 - 2, "rounded up"
    assert honest(5, Cohort(5, 100, 0), Fraction(1)) == 1, "the victim is there"


@pytest.mark.parametrize("largest", [1, 2, 3, 7, 12])
def test_the_smallest_fraction_that_is_no_less(largest: int) -> None:
    all_of_them = sorted({Fraction(a, b) for b in range(1, largest + 1) for a in range(b + 1)})
    shares = [*all_of_them, *(Fraction(i, 997) for i in range(998)), Fraction(10**18 - 1, 10**18), Fraction(1, 10**18)]
    for share in shares:
        assert fraction_above(share, largest) == min(one for one in all_of_them if one >= share)


def test_a_share_of_many_digits_hides_as_many_and_fits_into_64_bits() -> None:
    for share in (Fraction("0.123456789012345678"), Fraction("0.333333333333333334"), Fraction(1, 10**18)):
        small = fraction_above(share, 1 << 14)
        assert (1 << 14) * share.numerator > 2**63 or share.numerator == 1
        assert (1 << 14) * small.numerator + small.denominator < 2**63
        assert all(math.ceil(small * roster) == math.ceil(share * roster) for roster in range(1, 1 << 14, 7))


def test_a_counted_report_is_hidden_by_metric() -> None:
    (one,) = exposures(ledger(entry()), by_hash(PLAN), None, "lifetime")
    assert (one.n_h, one.falls_back, one.contributors) == ({"colour": 96, "seconds": 96}, None, 110)
    assert [(loss.mechanism, n_h) for loss, n_h in exposed(one, PLAN)] == [("randomized_response", 96), ("laplace", 96)]
    (one,) = exposures(ledger(entry()), by_hash(PLAN), Fraction(0), "lifetime")
    assert set(one.n_h.values()) == {108}, "the asked share goes before the plan's"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resent": True}, "resent"),
        ({"delivery": "direct"}, "direct"),
        ({"delivery": "direct", "resent": True}, "direct"),
        ({"outcome": "aborted", "cohort": None}, "failed_but_spent"),
        ({"outcome": "waiting", "cohort": None}, "failed_but_spent"),
        ({"cohort": None}, "unknown_cohort"),
        ({"cohort": Cohort(20, 180, 1)}, ALONE),
    ],
)
def test_a_report_that_no_sum_hides_exposes_its_local_losses(changes: dict[str, object], reason: str) -> None:
    (one,) = exposures(ledger(entry(**changes)), by_hash(PLAN), None, "lifetime")
    assert (one.falls_back, one.n_h) == (reason, {})
    assert list(exposed(one, PLAN)) == [(loss, 1) for loss in local_losses(PLAN)]


def test_a_report_that_never_left_exposes_nothing() -> None:
    (one,) = exposures(ledger(unsent()), by_hash(PLAN), None, "lifetime")
    assert (one.falls_back, list(exposed(one, PLAN))) == (None, [])


def test_a_report_of_some_metrics() -> None:
    """n_h of each metric: its own count less all of the corrupt and all of the resent."""
    counts = {"a": 80, "b": 14, "c": 0}
    book = ledger(entry(plan=SAMPLED, metric_contributors=counts), entry(1, plan=SAMPLED), plans=(SAMPLED,))
    known, unknown = exposures(book, by_hash(SAMPLED), None, "lifetime")
    assert (known.n_h, known.contributors) == ({"a": 66, "b": 1}, 14), "nobody holds c, so neither does this report"
    assert unknown.falls_back == NOT_BY_METRIC
    assert [(loss.mechanism, loss.epsilon) for loss in local_losses(SAMPLED)] == [("pure", 3), ("pure", 2)]
    assert [(loss.epsilon, n_h) for loss, n_h in exposed(known, SAMPLED)] == [(1, 66), (3, 1)]


def test_windows_are_half_open_and_folded_rows_count_all_their_reports() -> None:
    folded = FoldedReports(PLAN.hash.hex(), NOW - 40 * DAY_S, 7, 7 * 1_500_000, resent=False, cohort=Cohort(50, 60, 0))
    book = ledger(entry(0), entry(1), entry(-1), folded=(folded,))
    assert [one.charged_at for one in exposures(book, by_hash(PLAN), None, "24h")] == [NOW, NOW + DAY_S]
    (row,) = [one for one in exposures(book, by_hash(PLAN), None, "365d") if one.period_start is None]
    assert (row.reports, set(row.n_h.values()), row.contributors) == (7, {44}, 50)


def test_a_plan_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match=f"p version 1.*{PLAN.hash.hex()}"):
        exposures(ledger(entry()), {}, None, "lifetime")
