"""A fleet's figures are those of one ledger each, computed once for all who are alike."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from client_sdk.accounting.ledger import Cohort, FoldedReports, Ledger, LedgerEntry, LedgerPlan
from client_sdk.plan import Plan
from collector.accounting import fleet
from collector.accounting.basic import FleetHistory, FleetSum
from collector.accounting.composition import Composer
from collector.accounting.exposure import local_losses
from collector.accounting.figures import PURE_CHANGED, figures
from collector.accounting.fleet import closed_forms, fleet_figures, micro_rho
from tests.unit.collector.plans import SAMPLED, make_plan

V1, V2 = make_plan(1), make_plan(2, "0.5")
PLANS = {plan.hash.hex(): plan for plan in (V1, V2, SAMPLED)}
DELTA = 1e-6


def ledger(*rows: tuple[Plan, int, int], first_used: int = 0, carried: int = 0) -> Ledger:
    """rows: plan, n_h (1: resent), reports; each plan first used `first_used` after the one before."""
    plans = list(dict.fromkeys(plan for plan, _, _ in rows))
    used = tuple(LedgerPlan(p.hash.hex(), p.name, p.version, i * first_used) for i, p in enumerate(plans))
    entries = []
    for plan, n_h, reports in rows:
        held = {} if plan.sample_metrics is None else dict.fromkeys(plan.metrics, n_h)
        for _ in range(reports):
            entries.append(
                LedgerEntry(
                    plan.hash.hex(), len(entries), plans.index(plan) * first_used, plan.report_micro_epsilon, "counted",
                    True, n_h == 1, cohort=Cohort(max(2, n_h), max(2, n_h), 0), metric_contributors=held,
                )
            )  # fmt: skip
    return Ledger("collector", None, 10**6, used, tuple(entries), carried).with_stated()


def history(*rows: tuple[Plan, int, int], whole: bool = True, carried: int = 0, devices: int = 1) -> FleetHistory:
    return FleetHistory(devices, tuple((plan.hash, n_h, count) for plan, n_h, count in rows), whole, carried)


HISTORIES = [
    [(V1, 40, 3)],
    [(V1, 1, 2)],
    [(V1, 1, 1), (V1, 40, 7), (V1, 200, 4)],
    [(SAMPLED, 50, 3)],
    [(SAMPLED, 1, 2)],
    [(SAMPLED, 1, 2), (SAMPLED, 50, 3)],
    [(V1, 40, 2), (V2, 40, 5)],
]


def test_of_each_history_the_figures_are_its_ledgers() -> None:
    for place, found in enumerate(fleet_figures([history(*rows) for rows in HISTORIES], PLANS, DELTA)):
        own = figures(ledger(*HISTORIES[place]), PLANS, delta=DELTA, corrupt=Fraction(0))
        assert found.eps_local == pytest.approx(own.eps_local, rel=2e-4)
        assert found.eps_central == pytest.approx(own.eps_central, rel=2e-4)
        assert found.n_h == own.n_h
        assert found.eps_central <= found.eps_local <= own.eps_local_pure


def test_where_plans_changed_after_sums_were_seen_the_filter_holds() -> None:
    rows = [(V2, 40, 5), (V1, 40, 2), (V1, 1, 1)]
    own = figures(ledger(*rows, first_used=100), PLANS, delta=DELTA, corrupt=Fraction(0))
    assert own.method == PURE_CHANGED
    (found,) = fleet_figures([history(*rows, whole=False)], PLANS, DELTA)
    assert found.eps_local == float(own.eps_local_pure)
    assert found.eps_central == pytest.approx(own.eps_central, rel=1e-9)
    (composed,) = fleet_figures([history(*rows)], PLANS, DELTA)
    assert composed.eps_central < found.eps_central


def test_what_no_row_explains_is_spent_all_the_same() -> None:
    own = figures(ledger((V1, 40, 2), carried=3_000_000), PLANS, delta=DELTA, corrupt=Fraction(0))
    (found,) = fleet_figures([history((V1, 40, 2), whole=False, carried=3_000_000)], PLANS, DELTA)
    assert (found.eps_local, found.eps_central) == (own.eps_local, own.eps_central)
    assert found.eps_local == 7.0
    (nothing_else,) = fleet_figures([history(whole=False, carried=3_000_000)], PLANS, DELTA)
    assert (nothing_else.eps_local, nothing_else.eps_central, nothing_else.n_h) == (3.0, 3.0, None)


def test_many_different_sums_are_composed_at_fewer_n_h_and_never_below() -> None:
    many = [history((V1, n_h, 2), (V1, n_h + 1, 1)) for n_h in range(40, 140, 2)]
    found = fleet_figures(many, PLANS, DELTA)
    for one, own in list(zip(found, many, strict=True))[::10]:
        exact = figures(ledger(*[(V1, n_h, count) for _, n_h, count in own.reports]), PLANS, corrupt=Fraction(0))
        assert exact.eps_central * (1 - 1e-4) <= one.eps_central <= 1.6 * exact.eps_central
        assert one.n_h == min(n_h for _, n_h, _ in own.reports), "as it was assumed, before it was rounded"


def test_progress_tells_every_history_in_order() -> None:
    told: list[tuple[int, int]] = []
    histories = [history((V1, 40, n)) for n in (1, 2, 3)] + [history(), history((V1, 40, 1), whole=False, carried=1)]
    found = fleet_figures(histories, PLANS, DELTA, lambda done, total: told.append((done, total)))
    assert [one.eps_local for one in found][3] == 0.0
    assert [done for done, _ in told] == list(range(1, 9))
    assert {total for _, total in told} == {8}
    assert fleet_figures([], PLANS, DELTA) == []


def test_those_who_are_alike_are_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories that differ in their sums alone lose the same to whoever sees reports."""
    composed: list[tuple[int, ...]] = []
    epsilon = Composer.epsilon

    def counted(self: Composer, counts: Sequence[int], delta: float) -> float:
        composed.append(tuple(counts))
        return epsilon(self, counts, delta)

    monkeypatch.setattr(Composer, "epsilon", counted)
    rows = [[(V1, 40, 5)], [(V1, 200, 5)], [(V1, 1, 5)], [(V1, 40, 2)]]
    found = fleet_figures([history(*one) for one in rows], PLANS, DELTA)
    assert len(composed) == 2 + 4, "five reports and two, locally; four in sums"
    assert len(composed[0]) == len(local_losses(V1))
    assert found[0].eps_local == found[1].eps_local == found[2].eps_local > found[3].eps_local
    assert found[1].eps_central < found[0].eps_central < found[2].eps_central


def test_closed_forms_bound_the_exact_ones() -> None:
    """Case of the reference: 1825 x 0.2 is 81.216."""
    (bound,) = closed_forms([FleetSum(7, 1825 * 200_000, round(1825 * 0.019933600 * 1e6), whole=True)], DELTA)
    assert bound[0] == pytest.approx(81.216, abs=5e-3)
    assert bound[1] == 7
    assert closed_forms([], DELTA) == []
    for reports in (1, 5, 60, 400):
        micro = V1.report_micro_epsilon * reports
        (whole, plain) = closed_forms(
            [FleetSum(1, micro, micro_rho(V1) * reports, is_whole) for is_whole in (True, False)], DELTA
        )
        (exact,) = fleet_figures([history((V1, 40, reports))], PLANS, DELTA)
        assert exact.eps_local <= whole[0] <= plain[0] == micro / 1e6


def test_rho_is_that_of_the_dearest_metrics_a_report_can_hold() -> None:
    import math

    dearest = sum(epsilon * math.tanh(epsilon / 2) for epsilon in (3, 2))
    assert dearest * 1e6 <= micro_rho(SAMPLED) <= dearest * 1e6 + 1
    assert fleet.micro_rho(V1) >= 2 * math.tanh(0.5) * 1e6


def test_folded_reports_say_as_much() -> None:
    """What `figures` reads of a folded row is what it reads of as many entries."""
    rows = [(V1, 40, 3), (V1, 1, 1)]
    entries = ledger(*rows)
    folded = tuple(
        FoldedReports(V1.hash.hex(), 0, count, count * 2_000_000, n_h == 1, cohort=Cohort(max(2, n_h), max(2, n_h), 0))
        for _, n_h, count in rows
    )
    packed = Ledger("collector", None, 10**6, entries.plans, (), 0, folded=folded).with_stated()
    one, other = (figures(each, PLANS, corrupt=Fraction(0)) for each in (entries, packed))
    assert (one.eps_local, one.eps_central, one.n_h) == (other.eps_local, other.eps_central, other.n_h)
