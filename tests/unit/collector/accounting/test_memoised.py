"""Memoised metrics in the accounts: no sum hides them, and their reports together cost what their number does."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from client_sdk.accounting.ledger import FoldedReports
from client_sdk.plan import Plan
from collector.accounting.basic import FleetHistory
from collector.accounting.exposure import exposed_by_plan, exposures, local_losses
from collector.accounting.figures import AS_LOCAL, figures
from collector.accounting.fleet import fleet_figures, micro_rho
from collector.accounting.memoised import MEMOISED, memo_losses, spent_micro
from collector.service.cli_recompute import _contradictions
from tests.unit.collector.accounting.ledgers import DAY_S, METRICS, by_hash, entry, ledger, plan_of, unsent

MEMO = '[metrics.answer]\nkind = "categorical"\ncategories = ["a", "b", "c"]\nepsilon = 0.5\n'
MEMO += "memoize = true\nepsilon_inf = 1.5\nmax_distinct = 2\n"
ALONE = plan_of(MEMO)
MIXED = plan_of(METRICS + MEMO, name="q")
HALF, WHOLE = 500_000, 1_500_000
CHARGES = [HALF, 2 * WHOLE - HALF, 1, 1, 1]


def lived(plan: Plan, reports: int, **changes: object) -> list[object]:
    """As many reports of consecutive days, each at its price."""
    plain = plan.plain_micro_epsilon
    return [entry(reports - day, plan, micro_epsilon=plain + CHARGES[day], **changes) for day in range(reports)]


def test_losses_by_number_of_reports() -> None:
    key = ALONE.hash.hex()
    for reports, expected in ((1, (Decimal("0.5"), 1)), (2, (Decimal("1.5"), 2)), (9, (Decimal("1.5"), 2))):
        ((loss, count),) = memo_losses({key: reports}, by_hash(ALONE))[key].items()
        assert (loss.mechanism, loss.epsilon, count) == (MEMOISED, *expected)
    assert memo_losses({key: 0}, by_hash(ALONE)) == {}
    assert spent_micro({key: 5}, by_hash(ALONE)) == sum(CHARGES)


def test_versions_that_share_permanent_answers_count_together() -> None:
    later = plan_of(MEMO + METRICS, version=2)
    plans, both = by_hash(ALONE, later), {ALONE.hash.hex(): 1, later.hash.hex(): 1}
    assert [loss.epsilon for losses in memo_losses(both, plans).values() for loss in losses] == [Decimal("1.5")] * 2
    assert spent_micro(both, plans) == later.plain_micro_epsilon + 2 * WHOLE
    other = plan_of(MEMO.replace("1.5", "1.6"), version=2)
    apart = {ALONE.hash.hex(): 1, other.hash.hex(): 1}
    assert spent_micro(apart, by_hash(ALONE, other)) == 2 * HALF
    elsewhere = plan_of(MEMO, name="r")
    assert spent_micro({ALONE.hash.hex(): 1, elsewhere.hash.hex(): 1}, by_hash(ALONE, elsewhere)) == 2 * HALF


@pytest.mark.parametrize("reports", [1, 2, 5])
def test_central_is_local_where_all_is_memoised(reports: int) -> None:
    book = ledger(*lived(ALONE, reports), plans=(ALONE,))
    found = figures(book, by_hash(ALONE))
    assert found.eps_local == found.eps_central
    assert (found.n_h, found.central_method, dict(found.fallbacks)) == (1, AS_LOCAL, {MEMOISED: reports})
    assert float(found.eps_local_pure) == sum(CHARGES[:reports]) / 1e6
    assert found.eps_local <= (0.5 if reports == 1 else 3.0)
    assert found.eps_local == pytest.approx(0.5 if reports == 1 else 3.0, rel=1e-3)


def test_only_the_other_metrics_are_amplified() -> None:
    plans = by_hash(MIXED)
    (row,) = exposures(ledger(*lived(MIXED, 1), plans=(MIXED,)), plans, None, "lifetime")
    assert set(row.n_h) == {"colour", "seconds"}
    assert all(loss.mechanism != "memoized_randomized_response" for loss in local_losses(MIXED))
    counts = exposed_by_plan([row], plans)[MIXED.hash.hex()]
    assert sorted((loss.mechanism, n_h) for loss, n_h in counts) == [
        ("laplace", 96), ("memoised", 1), ("randomized_response", 96),
    ]  # fmt: skip
    found = figures(ledger(*lived(MIXED, 5), plans=(MIXED,)), plans)
    assert 3.0 <= found.eps_central < 3.0 + 1.5 < found.eps_local
    apart = figures(ledger(*lived(MIXED, 5), plans=(MIXED,)), plans, corrupt=Fraction(1))
    assert apart.eps_central == apart.eps_local


def test_reports_that_never_left_cost_locally_and_tell_nobody_who_sees_sums() -> None:
    left = lived(ALONE, 1)
    gone = replace(unsent(0), plan=ALONE.hash.hex(), micro_epsilon=2 * WHOLE - HALF)
    book = ledger(*left, gone, plans=(ALONE,))
    found = figures(book, by_hash(ALONE))
    assert found.eps_local == pytest.approx(3.0, rel=1e-3)
    assert found.eps_central == pytest.approx(0.5, rel=1e-4)


def test_a_fleet_has_the_figures_of_its_ledgers() -> None:
    plans = by_hash(MIXED, ALONE)
    histories = [
        FleetHistory(3, ((MIXED.hash, 96, 5),)),
        FleetHistory(1, ((ALONE.hash, 1, 1),)),
        FleetHistory(2, ((ALONE.hash, 1, 4),)),
    ]
    fleet = fleet_figures(histories, plans, 1e-6)
    one = figures(ledger(*lived(MIXED, 5), plans=(MIXED,)), plans)
    assert fleet[0].eps_local == pytest.approx(one.eps_local, rel=1e-3)
    assert fleet[0].eps_central == pytest.approx(one.eps_central, rel=1e-3)
    assert [round(each.eps_local, 2) for each in fleet[1:]] == [0.5, 3.0]
    assert micro_rho(ALONE) >= 1.5 * 0.635 * 1e6, "each report may be of a new value"


def test_a_ledger_that_charged_too_little_contradicts_its_plan() -> None:
    plans = by_hash(ALONE)
    sound = ledger(*lived(ALONE, 5), plans=(ALONE,))
    assert not list(_contradictions(sound, plans))
    cheap = ledger(*lived(ALONE, 2), entry(0, ALONE, micro_epsilon=1), plans=(ALONE,))
    assert not list(_contradictions(cheap, plans))
    short = ledger(entry(0, ALONE, micro_epsilon=HALF), entry(1, ALONE, micro_epsilon=HALF), plans=(ALONE,))
    (line,) = _contradictions(short, plans)
    assert line.startswith("p: micro_epsilon of all its reports: 1000000, but together they cost 3000000")
    paid_twice = ledger(*lived(ALONE, 2), *lived(ALONE, 2), plans=(ALONE,))
    assert not list(_contradictions(paid_twice, plans)), "opted out and in again"
    assert list(_contradictions(ledger(*lived(ALONE, 2), *lived(ALONE, 2), plans=(ALONE,), source="collector"), plans))


def test_folded_reports_count_with_the_rest() -> None:
    folded = FoldedReports(ALONE.hash.hex(), 10**9, 3, 2 * WHOLE + 1, resent=False)
    book = ledger(entry(0, ALONE, micro_epsilon=1), plans=(ALONE,), folded=(folded,), source="collector")
    assert not list(_contradictions(book, by_hash(ALONE)))
    assert figures(book, by_hash(ALONE)).eps_local == pytest.approx(3.0, rel=1e-3)


def test_a_window_is_priced_by_its_own_reports() -> None:
    """The fifth report was charged a millionth; whoever sees it alone learns what any first report tells."""
    book = ledger(*lived(ALONE, 5), plans=(ALONE,))
    found = figures(replace(book, as_of=book.as_of - DAY_S), by_hash(ALONE), window="24h")
    assert found.reports == 1
    assert (float(found.eps_local_pure), found.eps_local) == (0.5, pytest.approx(0.5, rel=1e-5))
    two = figures(book, by_hash(ALONE), window="24h", now=book.as_of)
    assert two.reports == 0
    assert two.eps_local_pure == 0
