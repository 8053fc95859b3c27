"""`slice_by` in a plan: what is read and refused, the hash, prices, versions, and the slice that a device reports."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from client_sdk.errors import PlanError
from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.sliced import SlicedNumber
from client_sdk.plan import Plan, canonical_form, check_plan, format_check, parse_plan
from client_sdk.plan.diff import diff_plans
from client_sdk.plan.names import broken_names
from client_sdk.plan.prices import REFERENCE, choices, expected_error, usable_from
from client_sdk.plan.slicing import why_no_slices
from client_sdk.report import PeriodState, clipped_values, make_report
from tests.entropy import seeded

HEAD = """
[plan]
name = "p"
version = {version}
period = "1d"
{head}
[cohort]
min_size = 50
target_size = 200
[budget]
lifetime = 365
"""
NETWORK = 'kind = "categorical"\ncategories = ["wifi", "cellular", "offline"]\nother = "other"\nepsilon = 2\n'
LOAD = 'kind = "numeric"\nlower = 0\nupper = 100\nepsilon = 1\n'
SLICED = LOAD + 'slice_by = "network"\n'
DAY = 86_400


def plan(load: str = SLICED, network: str = NETWORK, *more: str, version: int = 1, head: str = "") -> Plan:
    """`load` comes first by name, `network` after it; `more` are further tables, each with its header."""
    tables = f"[metrics.load]\n{load}[metrics.network]\n{network}" + "".join(more)
    return parse_plan(HEAD.format(version=version, head=head) + tables)


def mechanism(of: Plan) -> SlicedNumber:
    found = of.metrics["load"].mechanism
    assert isinstance(found, SlicedNumber)
    return found


def test_a_sliced_number_is_one_metric_over_the_product() -> None:
    made = plan()
    metric, mech = made.metrics["load"], mechanism(made)
    assert (metric.kind, metric.slice_by, metric.chosen, metric.levels) == ("numeric", "network", True, 1)
    assert mech.slices == ("wifi", "cellular", "offline", "other")
    assert (mech.name, mech.length) == ("subset_selection", 8)
    assert list(made.metrics) == ["load", "network"], "in the order of their names"
    assert made.slices["load"] == slice(0, 8)
    assert made.report_micro_epsilon == 3_000_000, "the whole of its epsilon, beside network's own"
    assert metric.micro_epsilon == 1_000_000
    assert [loss.epsilon for loss in metric.losses] == [1]


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("optional", [False, True])
def test_labels_of_either_metric_without_a_reading(absent: bool, optional: bool) -> None:
    made = plan(SLICED + "optional = true\n" * optional, NETWORK + "optional = true\n" * absent)
    assert mechanism(made).slices[-1] == (ABSENT if absent else "other")
    assert mechanism(made).length == 2 * (4 + absent) + optional
    assert made.metrics["load"].default is (None if optional else made.metrics["load"].default)


@pytest.mark.parametrize(
    ("load", "line"),
    [
        (LOAD + 'slice_by = "load"\n', 'slice_by: must name a categorical metric; "load" is no other metric'),
        (LOAD + 'slice_by = "nettwork"\n', 'slice_by: must name a categorical metric; "nettwork" is no other metric'),
        (LOAD + "slice_by = 3\n", "slice_by: must name a categorical metric; 3 is no other metric of this plan"),
        (LOAD + 'slice_by = ["network"]\n', "slice_by: must name a categorical metric; a list is no other metric"),
        (LOAD + 'slice_by = "plain"\n', "slice_by: must name a categorical metric; plain is numeric"),
        (LOAD + 'slice_by = "more"\n', 'slice_by: must name a categorical metric; "more" is sliced itself'),
        (LOAD + 'slice_by = "held"\n', "slice_by: held is memoised: slices would tell its category anew"),
        (SLICED + 'mechanism = "laplace"\n', 'mechanism: must be one of "auto", "randomized_response"'),
        (SLICED + 'mechanism = "hadamard"\n', 'mechanism: must be one of "auto", "randomized_response"'),
        (SLICED + "levels = 0\n", "levels: must be a whole number from 1 to 64, not 0"),
        (SLICED + "levels = 65\n", "levels: must be a whole number from 1 to 64, not 65"),
        (SLICED + "optional = true\npresence_share = 0.5\n", "presence_share: a sliced number has none; remove it"),
        (SLICED.replace('kind = "numeric"', 'kind = "histogram"'), "slice_by: only numbers are sliced, not histogram"),
        (SLICED.replace("epsilon = 1", "epsilon = 50"), "epsilon: must lie between 0.000001 and 40"),
        (SLICED + "memoize = true\n", "memoize: only categories are memoised"),
    ],
)  # fmt: skip
def test_what_cannot_be_sliced_is_refused_in_one_line(load: str, line: str) -> None:
    held = "[metrics.held]\n" + NETWORK + "memoize = true\n"
    more = "[metrics.more]\n" + SLICED
    with pytest.raises(PlanError) as refused:
        plan(load, NETWORK, held, more, "[metrics.plain]\n" + LOAD)
    (problem,) = refused.value.problems
    assert problem.startswith(f"metrics.load.{line}")


def test_a_metric_with_problems_of_its_own_is_named_as_that() -> None:
    with pytest.raises(PlanError) as refused:
        plan(SLICED, NETWORK.replace("epsilon = 2", "epsilon = 0"))
    assert [line.split(":")[0] for line in refused.value.problems] == [
        "metrics.network.epsilon",
        "metrics.load.slice_by",
    ]
    assert refused.value.problems[1].endswith('"network" is sliced itself, or has problems of its own')


def test_how_much_may_be_asked_for_is_said_before_it_is_made() -> None:
    labels = json.dumps([f"c{i}" for i in range(30_000)])
    network = f'kind = "categorical"\ncategories = {labels}\nepsilon = 2\n'
    tables = [f"[metrics.n{i}]\n" + SLICED for i in range(20)]
    with pytest.raises(PlanError, match="a report would have 1290000 elements or more"):
        plan(SLICED, network, *tables)
    with pytest.raises(PlanError, match=r"load\.levels: 30000 slices of 3 points are 90000 cells; at most 65536"):
        plan(SLICED + "levels = 2\n", network)
    many = [f"[metrics.n{i}]\n" + SLICED.replace("epsilon = 1", f"epsilon = 1.{i:03}") for i in range(70)]
    with pytest.raises(PlanError, match=r"70 different settings .* of sliced ones"):
        plan(SLICED, NETWORK, *many)


# --- the hash ---------------------------------------------------------------------------------------


def test_the_canonical_form_names_what_was_chosen() -> None:
    auto, named = plan(), plan(SLICED + 'mechanism = "subset_selection"\nlevels = 1\n')
    assert auto.hash == named.hash == plan(SLICED + 'mechanism = "auto"\n').hash
    load = json.loads(canonical_form(auto))["metrics"]["load"]
    assert load == {
        "epsilon": "1", "kind": "numeric", "levels": 1, "lower": "0", "mechanism": "subset_selection",
        "slice_by": "network", "upper": "100",
    }  # fmt: skip
    assert len({made.hash for made in (auto, plan(SLICED + "levels = 2\n"), plan(LOAD))}) == 3


def test_other_plans_keep_their_form() -> None:
    load = json.loads(canonical_form(plan(LOAD)))["metrics"]["load"]
    assert load == {"epsilon": "1", "kind": "numeric", "lower": "0", "upper": "100"}


# --- plan check -------------------------------------------------------------------------------------


def test_plan_check_says_what_it_is_and_costs() -> None:
    checked = check_plan(plan())
    text = format_check(checked)
    assert (
        "load: sliced by network: one metric over 4 slices x 2 points, 8 labels in all; epsilon 1 is of number and "
        "slice together, beside network's own 2"
    ) in text
    assert 'to keep it, write mechanism = "subset_selection" and levels = 1' in text
    assert checked.epsilon_report == "3"
    assert json.loads(json.dumps(checked.as_dict(), default=str))["metrics"][0]["sliced"]["by"] == "network"


@pytest.mark.parametrize("epsilon", ["1", "4"])
@pytest.mark.parametrize("optional", ["", "optional = true\n"])
def test_errors_to_expect_are_those_of_slices_of_one_size(epsilon: str, optional: str) -> None:
    metric = plan(SLICED.replace("epsilon = 1", f"epsilon = {epsilon}") + optional).metrics["load"]
    mech: Any = metric.mechanism
    n, k = 200_000, mech.inner.k
    p, q = float(mech.inner.p), float(mech.inner.q)
    present = 0.5 if optional else 1.0
    shares = [0.0] * k
    middle = [mech.levels // 2] if mech.levels % 2 == 0 else [mech.levels // 2, mech.levels // 2 + 1]
    for place in range(4):
        for point in middle:
            shares[place * mech.points + point] = present / 4 / len(middle)
    if optional:
        shares[-1] = 0.5
    total = [round(n * (q + (p - q) * share)) for share in shares]
    total[0] += n * (mech.inner.ones or 0) - sum(total) if mech.inner.ones else 0
    wanted = mech.estimate(total, n)
    found = expected_error(metric, n)
    assert found.standard_error == pytest.approx(wanted.standard_errors[0], rel=1e-3)
    assert found.percent == pytest.approx(found.standard_error, rel=1e-9), "of a range of 100"
    assert wanted.values[0] == pytest.approx(50, abs=0.1)
    usable = usable_from(metric)
    assert usable is not None
    at = expected_error(metric, 10 * usable).standard_error
    assert at is not None
    assert at * 10**0.5 * 2 * 1.96 == pytest.approx(10.0, rel=0.01), "a tenth of the range wide"


def test_other_mechanisms_are_priced_beside_it() -> None:
    metric = plan(SLICED.replace("epsilon = 1", "epsilon = 4")).metrics["load"]
    found = {choice.mechanism: choice for choice in choices(metric)}
    assert list(found) == ["randomized_response", "symmetric_unary", "optimized_unary", "subset_selection"]
    assert [word for word, choice in found.items() if choice.chosen] == [metric.mechanism.name]
    assert found[metric.mechanism.name].standard_error == pytest.approx(
        expected_error(metric, REFERENCE).standard_error
    )
    assert all(choice.standard_error for choice in found.values())


def test_a_cohort_too_small_is_warned_of() -> None:
    (warning,) = [line for line in check_plan(plan()).warnings if line.startswith("metrics.load")]
    assert "one cohort of 200 tells nothing" in warning


# --- versions ---------------------------------------------------------------------------------------


def test_versions() -> None:
    by_day = '[metrics.daypart]\nkind = "categorical"\ncategories = ["day", "night"]\nepsilon = 1\n'
    first = plan(SLICED, NETWORK, by_day)

    def broken(load: str) -> list[str]:
        return [line.split(":")[0] for line in broken_names(first, plan(load, NETWORK, by_day, version=2))]

    assert (
        broken(SLICED) == broken(SLICED + "levels = 3\n") == broken(SLICED.replace("epsilon = 1", "epsilon = 2")) == []
    )
    assert broken(LOAD) == broken(LOAD + 'slice_by = "daypart"\n') == ["metrics.load.slice_by"]
    assert broken_names(plan(LOAD, NETWORK, by_day), plan(SLICED, NETWORK, by_day, version=2))


def test_plan_diff_tells_a_new_slicing_and_other_levels() -> None:
    new = "[metrics.heat]\n" + SLICED
    found = diff_plans(plan(), plan(SLICED + "levels = 2\n", NETWORK, new, version=2))
    assert not found.breaks
    assert "metrics.heat: new (numeric sliced by network, subset_selection, epsilon 1)" in found.changes
    assert any(line.startswith("metrics.load.levels: 2, 1 before; each version is decoded") for line in found.changes)
    found = diff_plans(plan(), plan(LOAD, version=2))
    assert any(line.startswith("metrics.load.slice_by: not sliced, but sliced by network") for line in found.breaks)


def test_whoever_asks_for_slices_of_sums_is_told_why_there_are_none() -> None:
    line = why_no_slices(plan(LOAD).metrics.values(), "network")
    assert line == (
        "load was not collected by network: reports were added up before anybody saw them, and a sum cannot be split; "
        'give a new metric slice_by = "network" in the next plan version: one metric over the product, priced as one'
    )
    many = plan(LOAD, NETWORK, *(f"[metrics.n{i}]\n{LOAD}" for i in range(4))).metrics.values()
    assert (why_no_slices(many, "network") or "").startswith("load, n0, n1 and others were not collected by network: ")
    network = [metric for metric in plan(LOAD).metrics.values() if metric.name == "network"]
    assert why_no_slices(network, "load") == (
        "network is categorical; only numbers are collected by the categories of another metric"
    )
    assert (why_no_slices([], "network") or "").startswith("nothing was collected by network: ")
    assert why_no_slices(plan().metrics.values(), "network") is None
    assert why_no_slices(plan().metrics.values(), "daypart") is not None


# --- on the device ----------------------------------------------------------------------------------


def state(made: Plan, *readings: tuple[str, Any], start: int | None = None) -> PeriodState:
    period = PeriodState(made, start)
    for name, value in readings:
        period.add(name, value, seeded("fold"))
    return period


def test_the_slice_is_the_category_that_the_other_metric_reports() -> None:
    made = plan(SLICED, NETWORK + 'on_device = "first"\n')
    readings = [("load", 20), ("network", "cellular"), ("network", "wifi"), ("load", 30.0)]
    values = state(made, *readings).values()
    assert values == {"load": ("cellular", 30.0), "network": "cellular"}
    assert state(made, ("network", "6g"), ("load", 999)).values()["load"] == ("other", 999.0)
    assert state(made).values()["load"] == ("other", 50.0), "defaults of both"
    assert clipped_values(made, state(made, ("network", "6g"), ("load", 999)).values())["load"] == ("other", 100.0)


def test_no_reading_of_an_optional_one_is_none() -> None:
    made = plan(SLICED + "optional = true\n", NETWORK + "optional = true\n")
    assert state(made).values()["load"] == (None, None)
    assert clipped_values(made, state(made).values())["load"] == (None, None)
    assert len(make_report(made, state(made), seeded("nothing"))) == made.length == 11 + 5


def test_a_report_holds_the_pair_in_one_metrics_cells() -> None:
    loud = SLICED.replace("epsilon = 1", "epsilon = 40") + "levels = 2\n"
    made = plan(loud, NETWORK.replace("epsilon = 2", "epsilon = 40"))
    report = make_report(made, state(made, ("network", "offline"), ("load", 100)), seeded("pair"))
    assert (report[:12], report[12:]) == ([0] * 8 + [1, 0, 0, 0], [0, 0, 1, 0])
    saved = PeriodState.load(made, state(made, ("network", "offline"), ("load", 100)).dump())
    assert saved.values()["load"] == ("offline", 100.0), "a period that was kept goes on"


def test_an_expired_one_tells_no_slice_any_more() -> None:
    made = plan(SLICED + "expires = 2027-01-01\n", NETWORK)
    last, first = (20_819 - 1) * DAY, 20_819 * DAY
    assert made.metrics["load"].is_expired(first)
    assert state(made, ("network", "wifi"), ("load", 3), start=last).values()["load"] == ("wifi", 3.0)
    assert state(made, ("network", "wifi"), start=first).values() == {"load": ("other", 50.0), "network": "wifi"}


def test_a_sampled_plan_slices_by_a_metric_that_the_report_need_not_hold() -> None:
    made = plan(SLICED.replace("epsilon = 1", "epsilon = 40"), NETWORK, head="sample_metrics = 1")
    period = state(made, ("network", "cellular"), ("load", 0))
    reports = [make_report(made, period, seeded(f"sampled {i}")) for i in range(20)]
    held = [report[: made.slices["load"].stop] for report in reports if report[made.counts["load"]]]
    assert held
    width = made.slices["load"].stop // 4
    assert all(report[width] == 1 and sum(report) == 1 for report in held)
    assert made.report_micro_epsilon == 40_000_000


def test_a_plan_travels_between_processes() -> None:
    import pickle

    made = plan()
    assert pickle.loads(pickle.dumps(made)).hash == made.hash  # noqa: S301 - our own bytes
    assert Decimal(1) == made.metrics["load"].epsilon
