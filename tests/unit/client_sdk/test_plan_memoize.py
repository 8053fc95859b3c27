"""The fields of memoised metrics: what they default to, what is refused in one line, what the plan's price becomes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from client_sdk.errors import PlanError
from client_sdk.plan import Plan, canonical_form, parse_plan
from client_sdk.plan.check import check_plan
from client_sdk.plan.check_text import format_check
from client_sdk.plan.diff import diff_plans

LABELS = 'kind = "categorical"\ncategories = ["a", "b", "c", "d", "e"]\nepsilon = 1\n'
NUMBER = 'kind = "numeric"\nlower = 0\nupper = 10\nepsilon = 0.5\n'


def text(*metrics: str, version: int = 1, head: str = "", lifetime: str = "365") -> str:
    tables = "".join(f"[metrics.m{number}]\n{metric}\n" for number, metric in enumerate(metrics))
    return (
        f'[plan]\nname = "p"\nversion = {version}\nperiod = "1d"\n{head}[cohort]\nmin_size = 20\ntarget_size = 100\n'
        f"[budget]\nlifetime = {lifetime}\n{tables}"
    )


def planned(*metrics: str, **options: Any) -> Plan:
    return parse_plan(text(*metrics, **options))


def problem(*metrics: str, **options: Any) -> str:
    with pytest.raises(PlanError) as caught:
        planned(*metrics, **options)
    (line,) = caught.value.problems
    return line


def test_defaults_are_left_out_of_the_canonical_form() -> None:
    short = planned(LABELS + "memoize = true")
    spelled = planned(LABELS + "max_distinct = 4\nepsilon_inf = 2.0\nmemoize = true")
    assert short.hash == spelled.hash
    assert '"memoize":true' in canonical_form(short)
    assert "epsilon_inf" not in canonical_form(short)
    assert "max_distinct" not in canonical_form(short)
    other = planned(LABELS + "memoize = true\nepsilon_inf = 3\nmax_distinct = 2")
    assert '"epsilon_inf":"3"' in canonical_form(other)
    assert '"max_distinct":2' in canonical_form(other)
    assert len({short.hash, other.hash, planned(LABELS).hash}) == 3
    assert planned(LABELS + "memoize = false").hash == planned(LABELS).hash
    assert pickle.loads(pickle.dumps(other)) == other  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("metric", "line"),
    [
        (LABELS + "memoize = 1", "metrics.m0.memoize: must be true or false, not 1"),
        (LABELS + 'memoize = true\nmechanism = "hadamard"', "metrics.m0.memoize: goes with mechanism = "),
        (LABELS + 'memoize = true\nmechanism = "auto"', "metrics.m0.memoize: goes with mechanism = "),
        (LABELS + "memoize = true\nepsilon_inf = 1", "metrics.m0.epsilon_inf: must lie above epsilon (1, what one"),
        (LABELS + "memoize = true\nepsilon_inf = 40.1", "metrics.m0.epsilon_inf: must lie above"),
        (LABELS + "memoize = true\nmax_distinct = 0", "metrics.m0.max_distinct: must be a whole number from 1 to 5"),
        (LABELS + "memoize = true\nmax_distinct = 6", "metrics.m0.max_distinct: must be a whole number from 1 to 5"),
        (LABELS + "max_distinct = 2", "metrics.m0.max_distinct: means nothing without memoize = true"),
        (LABELS + "memoize = false\nepsilon_inf = 2", "metrics.m0.epsilon_inf: means nothing without memoize"),
        (NUMBER + "memoize = true", "metrics.m0.memoize: only categories are memoised, not numeric"),
        (LABELS.replace("epsilon = 1", "epsilon = 40") + "memoize = true", "metrics.m0.epsilon_inf: must lie above"),
    ],
)
def test_what_is_refused(metric: str, line: str) -> None:
    assert problem(metric).startswith(line)


def test_sampling_and_memory_do_not_go_together() -> None:
    line = problem(LABELS + "memoize = true", NUMBER, head="sample_metrics = 1\n")
    assert line.startswith("plan.sample_metrics: every report must hold m0, which is memoised")


def test_an_optional_metric_is_memoised_with_one_label_more() -> None:
    plan = planned(LABELS + "memoize = true\noptional = true\nmax_distinct = 6")
    assert plan.memos["m0"].max_distinct == 6
    assert plan.metrics["m0"].mechanism.length == 6


def test_the_plans_prices() -> None:
    plan = planned(LABELS + "memoize = true\nmax_distinct = 3", NUMBER, lifetime="10")
    assert (plan.plain_micro_epsilon, plan.report_micro_epsilon) == (500_000, 3_500_000)
    assert [plan.spent_micro(n) for n in range(5)] == [0, 1_500_000, 5_000_000, 7_500_000, 8_000_001]
    assert plan.lifetime_reports == 7, "6.000004 and seven halves"
    assert plan.reports_within(1_000_002, earlier=3) == 2
    assert plan.reports_within(1_000_001, earlier=3) == 1
    assert plan.reports_within(0) == 0
    assert plan.budget.rolling_24h_micro == 2 * 3_500_000


def test_the_key_names_permanent_answers() -> None:
    """What changes law or price means other answers; what does not keeps them."""
    base = LABELS + "memoize = true"
    key = planned(base).memos["m0"].key
    assert planned(base + "\nepsilon_inf = 2", NUMBER, version=2).memos["m0"].key == key
    assert planned(base + '\ndefault = "b"\non_device = "first"').memos["m0"].key == key
    for other in (
        base + "\nepsilon_inf = 2.5",
        base + "\nmax_distinct = 3",
        base.replace("epsilon = 1", "epsilon = 1.5"),
        base.replace('"d", "e"', '"e", "d"'),
        base + '\nother = "f"',
        base + "\noptional = true",
        base + '\nmechanism = "optimized_unary"',
    ):
        assert planned(other).memos["m0"].key != key, other
    assert planned(NUMBER, base).memos["m1"].key != key


def test_check_says_what_it_costs_and_what_a_change_tells() -> None:
    check = check_plan(planned(LABELS + "memoize = true"))
    memo = check.metrics[0].memo
    assert memo is not None
    assert (memo.epsilon_first, memo.epsilon_inf, memo.max_distinct, memo.epsilon_most) == ("1", "2", 4, "8")
    assert memo.relation == "replace one value wherever the device held it"
    assert (check.epsilon_report, check.epsilon_day, check.epsilon_year) == ("3", "3", "8.000361")
    shown = format_check(check)
    assert "m0: memoised: one report alone loses epsilon 1, all reports of one value together 2, of 4 values" in shown
    assert f"each report can tell by {memo.epsilon_change:.4g}, which adds up" in shown
    bits = check_plan(planned(LABELS.replace('"e"', '"e", "f"') + 'memoize = true\nmechanism = "optimized_unary"'))
    assert any(
        line.startswith("metrics.m0: one report can tell a change of the value by epsilon 8.45; randomized_response")
        for line in bits.warnings
    )
    many = check_plan(planned(LABELS.replace("epsilon = 1", "epsilon = 2") + "memoize = true"))
    assert any(line.startswith("metrics.m0: 4 values at epsilon_inf cost 16 together") for line in many.warnings)


def test_diff_says_that_other_answers_are_paid_for_again() -> None:
    old = planned(LABELS + "memoize = true")
    new = planned(LABELS + "memoize = true\nepsilon_inf = 3", version=2)
    lines = [line for line in diff_plans(old, new).changes if ".memoize: " in line]
    assert lines == [
        "metrics.m0.memoize: other labels, epsilons or max_distinct: new permanent answers; all reports under them "
        "cost up to 12 beside what was spent"
    ]
    same = planned(LABELS + "memoize = true", NUMBER, version=2)
    assert not [line for line in diff_plans(old, same).changes if ".memoize: " in line]
    assert any("m0.memoize: false" in line for line in diff_plans(old, planned(LABELS, version=2)).changes)
    assert any(
        "m0.memoize: true" in line
        for line in diff_plans(planned(LABELS), planned(LABELS + "memoize = true", version=2)).changes
    )
