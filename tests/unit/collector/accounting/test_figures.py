"""A user's figures: one composition under one delta, three views in order, nothing lost, nothing changed by reading."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.accounting.ledger import Cohort, FoldedReports, LedgerEntry
from client_sdk.errors import ConfigurationError
from collector.accounting.composition import Composer
from collector.accounting.figures import (
    AS_LOCAL,
    COMPOSED,
    FILTER,
    PURE_CARRIED,
    PURE_CHANGED,
    PURE_DAMAGED,
    SUMS,
    Figures,
    figures,
)
from collector.accounting.losses import central_pair, local_pair
from tests.unit.collector.accounting.ledgers import DAY_S, METRICS, NOW, PLAN, by_hash, entry, ledger, plan_of, unsent

PLANS = by_hash(PLAN)
LOSSES = [loss for metric in PLAN.metrics.values() for loss in metric.losses]


def of(*entries: LedgerEntry, **changes: Any) -> Figures:
    return figures(ledger(*entries, **changes), PLANS)


def test_every_kind_of_report_in_one_composition_under_one_delta() -> None:
    """Ten in sums of 96, three in one of 60, two that fell back, one that never left. case C01: a repeat costs once"""
    entries = [entry(day) for day in range(10)] + [entry(day, cohort=Cohort(74, 120, 2)) for day in range(10, 13)]
    entries += [entry(13, resent=True), entry(14, outcome="aborted", cohort=None), unsent(15)]
    found = of(*entries)
    pairs = [central_pair(loss, n_h) for loss in LOSSES for n_h in (96, 60)] + [local_pair(loss) for loss in LOSSES]
    assert found.eps_central == pytest.approx(Composer(pairs).epsilon([10, 3, 10, 3, 2, 2], 1e-6), rel=1e-9)
    local = Composer([local_pair(loss) for loss in LOSSES]).epsilon([16, 16], 1e-6)
    assert found.eps_local == pytest.approx(local, rel=1e-9)
    assert found.eps_local_pure == Decimal(24)
    assert (found.reports, found.failed_but_spent, found.n_h, found.n_min) == (16, 1, 60, 74)
    assert (found.method, found.central_method) == (COMPOSED, SUMS)
    assert found.fallbacks == {"failed_but_spent": 1, "resent": 1}
    assert [(one.round, one.period_start) for one in found.fallback_rounds] == [
        ("r13", NOW - 14 * DAY_S),
        ("r14", NOW - 15 * DAY_S),
    ]


def test_one_sum_costs_what_it_costs() -> None:
    plan = plan_of(METRICS.partition("[metrics.seconds]")[0].replace("0.5", "1").replace(', "blue"', ""))
    book = ledger(entry(plan=plan, cohort=Cohort(1000, 1000, 0)), plans=(plan,))
    found = figures(book, by_hash(plan), corrupt=Fraction(0))
    assert found.eps_central == pytest.approx(0.14867062, abs=1e-6)
    assert (found.n_h, found.n_min) == (1000, 1000)


def test_where_no_sum_hides_anything_central_is_local() -> None:
    found = of(*(entry(day, resent=True) for day in range(5)))
    assert found.eps_central == found.eps_local < float(found.eps_local_pure)
    assert (found.n_h, found.central_method) == (1, AS_LOCAL)
    everybody = figures(ledger(*(entry(day) for day in range(5))), PLANS, corrupt=Fraction(1))
    assert everybody.eps_central == everybody.eps_local == found.eps_local
    assert everybody.fallbacks == {"too_few_honest": 5}


def test_nothing_was_spent() -> None:
    found = of()
    assert (found.eps_local_pure, found.eps_local, found.eps_central, found.n_h, found.n_min) == (0, 0.0, 0.0, 1, None)
    only_unsent = of(unsent())
    assert (only_unsent.eps_local_pure, only_unsent.eps_central) == (Decimal("1.5"), 0.0)
    assert only_unsent.eps_local > 1.4, "charged is charged"


def test_windows_end_now() -> None:
    book = ledger(entry(0), entry(1), entry(6), entry(7))
    counts = {w: figures(book, PLANS, window=w).reports for w in ("24h", "7d", "30d", "365d", "lifetime")}
    assert counts == {"24h": 1, "7d": 3, "30d": 4, "365d": 4, "lifetime": 4}
    assert figures(book, PLANS, now=NOW + 7 * DAY_S, window="7d").reports == 0
    assert figures(book, PLANS, now=NOW - 9 * DAY_S, window="24h").reports == 4, "charges of the future count in all"


def test_a_ledger_with_gaps_claims_nothing_but_the_plain_sum() -> None:
    entries = [entry(day) for day in range(20)]
    sound = of(*entries)
    carried = of(*entries, carried_micro_epsilon=2_000_000)
    assert (carried.eps_local, carried.method) == (32.0, PURE_CARRIED)
    assert carried.eps_central == pytest.approx(sound.eps_central + 2.0)
    before = figures(
        ledger(*entries, carried_micro_epsilon=2_000_000, carried_until=NOW - 40 * DAY_S), PLANS, window="30d"
    )
    assert (before.eps_local, before.eps_central) == (sound.eps_local, sound.eps_central)
    damaged = of(*entries, damaged="unreadable")
    assert (damaged.eps_local, damaged.eps_central, damaged.method) == (30.0, 30.0, PURE_DAMAGED)


def test_a_plan_that_came_after_sums_were_seen() -> None:
    second = plan_of(version=2, metrics=METRICS.replace("0.5", "0.25"))
    old = [entry(day, cohort=Cohort(1000, 1000, 0)) for day in range(20, 40)]
    new = [entry(day, second, cohort=Cohort(1000, 1000, 0)) for day in range(20)]
    book = ledger(*old, *new, plans=(PLAN, second))
    plans = by_hash(PLAN, second)
    found = figures(book, plans, corrupt=Fraction(0))
    assert (found.method, found.central_method) == (PURE_CHANGED, FILTER)
    assert found.eps_local == float(found.eps_local_pure) == 20 * 1.5 + 20 * 1.25
    expected = 0.0
    for plan in (PLAN, second):
        losses = [loss for metric in plan.metrics.values() for loss in metric.losses]
        # of 400 reports that 600 pays for at 1.5, each has 1/400 of half of delta; and of that, its metrics their parts
        share = 1e-6 / 2 * plan.report_micro_epsilon / 600e6
        for loss in losses:
            part = share * loss.micro_epsilon / sum(one.micro_epsilon for one in losses)
            expected += 20 * central_pair(loss, 1000).epsilon(part)
    assert found.eps_central == pytest.approx(expected, rel=1e-9)
    assert found.eps_central < found.eps_local
    recent = figures(book, plans, window="7d", corrupt=Fraction(0))
    assert (recent.method, recent.central_method) == (COMPOSED, SUMS), "within the week nothing changed"


def test_plans_used_side_by_side_from_the_start_are_one_composition() -> None:
    other = plan_of(name="q")
    entries = [entry(day, plan) for day in range(5) for plan in (PLAN, other)]
    found = figures(ledger(*entries, plans=(PLAN, other)), by_hash(PLAN, other))
    assert (found.method, found.central_method) == (COMPOSED, SUMS)
    unseen = [unsent(9), *(entry(day, other) for day in range(5))]
    found = figures(ledger(*unseen, plans=(PLAN, other)), by_hash(PLAN, other))
    assert found.method == COMPOSED, "nobody has seen what never left"


def test_a_ledger_beyond_its_budget_has_no_shares_left() -> None:
    tight, second = plan_of(lifetime="3"), plan_of(version=2, metrics=METRICS.replace("0.5", "0.25"), lifetime="3")
    entries = [entry(3, tight), entry(2, tight), entry(1, second)]
    found = figures(ledger(*entries, plans=(tight, second)), by_hash(tight, second))
    assert found.eps_central == found.eps_local == 4.25


def test_folded_reports_are_reports() -> None:
    folded = FoldedReports(PLAN.hash.hex(), NOW - 4 * DAY_S, 6, 9_000_000, resent=False, cohort=Cohort(110, 120, 2))
    found = of(*(entry(day) for day in range(4)), folded=(folded,))
    whole = of(*(entry(day) for day in range(10)))
    assert (found.reports, found.eps_local, found.eps_central) == (10, whole.eps_local, whole.eps_central)
    hidden_by_nobody = of(folded=(replace(folded, resent=True),))
    assert hidden_by_nobody.fallbacks == {"resent": 6}


def test_what_is_left() -> None:
    found = of(*(entry(day) for day in range(10))).allowance
    assert (found.cap_micro_epsilon, found.left_micro_epsilon) == (600_000_000, 585_000_000)
    assert found.stops_on == NOW + 390 * DAY_S
    lowered = plan_of(version=2, lifetime="21")
    book = ledger(*(entry(day) for day in range(3, 13)), entry(0, lowered), plans=(PLAN, lowered))
    found = figures(book, by_hash(PLAN, lowered)).allowance
    assert (found.cap_micro_epsilon, found.left_micro_epsilon) == (21_000_000, 4_500_000)
    assert found.stops_on == NOW + 3 * DAY_S
    endless = plan_of(
        METRICS.replace("0.5", "0.000001").replace("epsilon = 1", "epsilon = 0.000001"), lifetime="1000000"
    )
    assert figures(ledger(entry(plan=endless), plans=(endless,)), by_hash(endless)).allowance.stops_on is None
    assert figures(ledger(plans=()), {}).allowance.cap_micro_epsilon is None


@pytest.mark.parametrize("delta", [-1e-6, 1.0, float("nan"), float("inf")])
def test_a_delta_that_is_none(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        figures(ledger(entry()), PLANS, delta=delta)


def test_a_plan_that_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="no plan has the hash"):
        figures(ledger(entry()), {})


def test_a_sampled_report_in_hardly_any_company_is_no_worse_than_local() -> None:
    """In a sum it is taken to hold all three metrics, before everybody's eyes the two dearest."""
    table = '[metrics.{}]\nkind = "categorical"\ncategories = ["x", "y"]\nepsilon = 1\n'
    plan = plan_of("".join(map(table.format, "abc")), more="sample_metrics = 2")
    row = entry(plan=plan, cohort=Cohort(9, 9, 0), metric_contributors=dict.fromkeys("abc", 3))
    found = figures(ledger(row, plans=(plan,)), by_hash(plan), corrupt=Fraction(0))
    assert (found.eps_local_pure, found.n_h, found.n_min) == (2, 3, 3)
    assert found.eps_central == found.eps_local == pytest.approx(2.0, abs=1e-4)


# --- properties -------------------------------------------------------------------------------------

ENTRY = st.builds(
    lambda size, changes: {"cohort": Cohort(size, size + 10, 0)} | changes,
    st.sampled_from([20, 40, 60, 80]),
    st.sampled_from(
        [{}, {}, {"resent": True}, {"outcome": "aborted", "cohort": None}, {"outcome": "expired", "left_device": False}]
    ),
)
HISTORY = st.lists(ENTRY, min_size=1, max_size=12).map(
    lambda rows: [entry(day, **changes) for day, changes in enumerate(rows)]
)
QUICK = settings(max_examples=15, deadline=None)


@QUICK
@given(HISTORY, st.randoms(use_true_random=False))
def test_the_order_of_a_ledger_changes_no_digit_and_reading_changes_nothing(
    entries: list[LedgerEntry], rng: random.Random
) -> None:
    book = ledger(*entries)
    before, found = book.to_json(), figures(book, PLANS)
    assert figures(book, PLANS) == found
    assert book.to_json() == before
    shuffled = rng.sample(entries, len(entries))
    other = figures(ledger(*shuffled), PLANS)
    assert replace(other, fallback_rounds=()) == replace(found, fallback_rounds=())
    assert set(other.fallback_rounds) == set(found.fallback_rounds)


@QUICK
@given(HISTORY)
def test_central_is_at_most_local_is_at_most_pure(entries: list[LedgerEntry]) -> None:
    found = of(*entries)
    assert 0.0 <= found.eps_central <= found.eps_local <= float(found.eps_local_pure)


@QUICK
@given(HISTORY, st.data())
def test_a_ledger_split_in_two_adds_up(entries: list[LedgerEntry], data: st.DataObject) -> None:
    """Pure to the last digit; the others never above the sum of the parts, and the merged one is the whole."""
    cut = data.draw(st.integers(0, len(entries)))
    whole, first, second = of(*entries), of(*entries[:cut]), of(*entries[cut:])
    assert whole.eps_local_pure == first.eps_local_pure + second.eps_local_pure
    assert whole.reports == first.reports + second.reports
    twice = figures(ledger(*entries), PLANS, delta=2e-6)
    for part in ("eps_local", "eps_central"):
        parts = [float(getattr(one, part)) for one in (first, second)]
        # each part has a delta of its own here, so this is basic composition at twice the delta
        assert float(getattr(twice, part)) <= sum(parts) * (1 + 3e-5)
        assert float(getattr(whole, part)) >= max(parts) * (1 - 3e-5)
    assert of(*entries[cut:], *entries[:cut]).eps_central == whole.eps_central


@QUICK
@given(HISTORY)
def test_more_reports_more_doubt_and_a_smaller_delta_never_cost_less(entries: list[LedgerEntry]) -> None:
    book = ledger(*entries)
    found = figures(book, PLANS)
    for other in (
        figures(ledger(*entries, entry(50)), PLANS),
        figures(book, PLANS, delta=1e-9),
        figures(book, PLANS, corrupt=Fraction(1, 2)),
    ):
        assert other.eps_central >= found.eps_central * (1 - 3e-5)
        assert other.eps_local >= found.eps_local * (1 - 3e-5)
    assert of(*entries[1:]).eps_central <= found.eps_central * (1 + 3e-5)


def test_a_year_of_many_cohorts_is_bounded_by_its_smallest_and_its_largest() -> None:
    """Far more different n_h than are composed: rounded down, within a grid step of the truth."""
    sizes = [100 + 7 * day for day in range(120)]
    found = of(*(entry(day, cohort=Cohort(size, size, 0)) for day, size in enumerate(sizes)))
    exact = {size: size - -(-size // 10) for size in sizes}
    pairs = {n: [central_pair(loss, n) for loss in LOSSES] for n in (min(exact.values()), max(exact.values()))}
    low, high = (Composer(pairs[n]).epsilon([120, 120], 1e-6) for n in (max(pairs), min(pairs)))
    assert low < found.eps_central < high
    assert found.n_h == min(exact.values())
