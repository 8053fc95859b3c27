"""From released sums to the next model: expected counts, cohorts, what a state says, what one false device can do."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from typing import Any

import pytest

from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState, make_report
from collector.federated.averaging import RoundSum, State, Task, advance
from collector.federated.clipping import ClipRule
from collector.release import ReleasedSum, implausible_metrics

CLIP = 4.0
EXPECTED = 10
TASK = Task("update", "fits", EXPECTED, clip=ClipRule(rate=0.2))
START = State(0, (1.0, 2.0, 3.0), CLIP)


def plan_of(norm: str, epsilon: str = "40") -> Plan:
    noise = f'norm = "{norm}"\nepsilon = {epsilon}\n' + ("delta = 1e-6\n" if norm == "l2" else "")
    return parse_plan(
        '[plan]\nname = "learning"\nversion = 1\nperiod = "1d"\n[cohort]\nmin_size = 2\ntarget_size = 10\n'
        "corrupt_fraction = 0\ndropout_fraction = 0\n[budget]\nlifetime = 1000\n"
        f'[metrics.update]\nkind = "vector"\ndimension = 3\nclip = 1\n{noise}'
        f'[metrics.fits]\nkind = "vector"\ndimension = 1\nclip = 0.5\n{noise}'
    )


PLANS = {norm: plan_of(norm) for norm in ("l1", "l2")}


def exact(plan: Plan, updates: Sequence[Sequence[float]], bits: Sequence[float]) -> list[list[int]]:
    """Reports without noise: the lattice points of what the app hands over, vectors in the ball."""
    levels = plan.metrics["update"].levels or 0
    points = [[round(x * levels) for x in update] for update in updates]
    return [placed(plan, point, round(2 * bit * levels)) for point, bit in zip(points, bits, strict=True)]


def placed(plan: Plan, update: Sequence[int], bit: int) -> list[int]:
    """One report: each metric where the plan has it."""
    report = [0] * plan.length
    report[plan.slices["update"]], report[plan.slices["fits"]] = update, [bit]
    return report


def cohort(plan: Plan, reports: Sequence[Sequence[int]], name: str = "a") -> list[ReleasedSum]:
    totals = [sum(column) for column in zip(*reports, strict=True)]
    return [
        ReleasedSum(name, plan.hash, 0, metric, tuple(totals[plan.slices[metric]]), len(reports), len(reports))
        for metric in plan.metrics
    ]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_round_of_all_that_were_expected(plan: Plan) -> None:
    reports = exact(plan, [[0.5, -0.25, 0.0]] * EXPECTED, [0.5] * 7 + [-0.5] * 3)
    outcome = advance(TASK, plan, START, cohort(plan, reports))
    assert outcome.average == pytest.approx([2.0, -1.0, 0.0])
    assert outcome.state.model == pytest.approx([3.0, 1.0, 3.0])
    assert outcome.fraction == pytest.approx(0.7)
    assert outcome.state.clip == pytest.approx(CLIP * math.exp(-0.2 * 0.2)), "too many fitted: C shrinks"
    assert (outcome.contributors, outcome.state.number) == (EXPECTED, 1)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_denominator_is_the_expected_count(plan: Plan) -> None:
    """Four of ten came: the step is four tenths of theirs; over the realised count it would be all of it."""
    reports = exact(plan, [[0.5, -0.25, 0.0]] * 4, [0.5] * 4)
    outcome = advance(TASK, plan, START, cohort(plan, reports))
    assert outcome.average == pytest.approx([0.8, -0.4, 0.0])
    assert outcome.fraction == pytest.approx(0.7), "four of ten fitted, of six nothing is known: 1/2 + 4/20"
    one_less = advance(TASK, plan, START, cohort(plan, reports[1:]))
    moved = math.dist(outcome.average, one_less.average)
    assert moved == pytest.approx(math.hypot(0.5, 0.25) * CLIP / EXPECTED), "add or remove: at most C / expected"
    busy = advance(TASK, plan, START, cohort(plan, exact(plan, [[0.5, -0.25, 0.0]] * 20, [0.5] * 20)))
    assert busy.average == pytest.approx([4.0, -2.0, 0.0]), "more than expected: a longer step"


def test_cohorts_of_a_round_add_up_as_integers() -> None:
    plan = PLANS["l2"]
    reports = exact(plan, [[0.1 * i, 0.0, -0.05 * i] for i in range(7)], [0.5, -0.5] * 3 + [0.5])
    whole = advance(TASK, plan, START, cohort(plan, reports))
    parts = [*cohort(plan, reports[:3], "a"), *cohort(plan, reports[3:5], "b"), *cohort(plan, reports[5:], "c")]
    assert advance(TASK, plan, START, parts) == whole
    found = RoundSum.of(plan.metrics["update"], parts)
    assert (found.contributors, found.smallest) == (7, 2)


def test_reports_that_came_unmasked_hide_nobody() -> None:
    plan = PLANS["l1"]
    parts = cohort(plan, exact(plan, [[0.1, 0.0, 0.0]] * 5, [0.5] * 5))
    bare = [dataclasses.replace(one, round_id="b", delivery="direct") for one in parts]
    found = RoundSum.of(plan.metrics["update"], [*parts, *bare])
    assert (found.contributors, found.smallest) == (10, 1)


def test_sums_of_another_version_or_of_two_periods_are_refused() -> None:
    """A lattice step of another version has another length: added up, they would be neither's."""
    plan, other = PLANS["l1"], plan_of("l1", "20")
    parts = cohort(plan, exact(plan, [[0.1, 0.0, 0.0]] * 5, [0.5] * 5))
    for wrong, words in (
        (cohort(other, exact(other, [[0.1, 0.0, 0.0]], [0.5])), "another plan than learning version 1"),
        ([dataclasses.replace(one, period_start=86_400) for one in parts], "2 periods"),
    ):
        with pytest.raises(ValueError, match=words):
            advance(TASK, plan, START, [*parts, *wrong])
    elsewhere = dataclasses.replace(parts[0], metric="of no round", plan_hash=b"")
    assert advance(TASK, plan, START, [*parts, elsewhere]) == advance(TASK, plan, START, parts)


def test_a_cohorts_sum_counts_once() -> None:
    """Read twice, as from a store and its replica, it would be twice the average, and twice the devices."""
    plan = PLANS["l2"]
    parts = cohort(plan, exact(plan, [[0.1, 0.0, 0.0]] * 5, [0.5] * 5))
    other = cohort(plan, exact(plan, [[0.1, 0.0, 0.0]] * 5, [0.5] * 5), "b")  # as large, and another one
    assert advance(TASK, plan, START, [*parts, *other]).contributors == 10
    bits = [one for one in parts if one.metric == "fits"]
    again = [dataclasses.replace(one, contributors=one.contributors + 1) for one in parts]
    for twice in (parts, bits, again):
        with pytest.raises(ValueError, match="a cohort's sum more than once"):
            advance(TASK, plan, START, [*parts, *other, *twice])


def test_sums_may_come_from_a_generator() -> None:
    plan = PLANS["l1"]
    parts = cohort(plan, exact(plan, [[0.5, -0.25, 0.0]] * 5, [0.5] * 5))
    assert advance(TASK, plan, START, (one for one in parts)) == advance(TASK, plan, START, parts)


def test_a_round_without_a_sum_moves_nothing() -> None:
    task = Task("update", "fits", EXPECTED, clip=ClipRule(quantile=0.8))  # where half that fitted would move C
    outcome = advance(task, PLANS["l1"], START, [])
    assert (outcome.state.model, outcome.state.clip, outcome.contributors) == (START.model, CLIP, 0)


def test_what_a_plan_must_hold() -> None:
    TASK.check_plan(PLANS["l1"])
    for task in (Task("none", "fits", 1), Task("fits", "fits", 1), Task("update", "update", 1)):
        with pytest.raises(ValueError, match='kind "vector"'):
            task.check_plan(PLANS["l1"])
        with pytest.raises(ValueError, match='kind "vector"'):
            advance(task, PLANS["l1"], START, [])
    for expected in (0, -1, 2.5, 2.0, True, math.nan, "2"):
        with pytest.raises(ValueError, match=r"^expected: must be a whole number of at least 1, got "):
            Task("update", "fits", expected)  # type: ignore[arg-type]
    for fields in ({"expected": 1, "step": 0.0}, {"expected": 1, "step": math.nan}):
        with pytest.raises(ValueError, match="step"):
            Task("update", "fits", **fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the model has 2"):
        advance(TASK, PLANS["l1"], State(0, (1.0, 2.0), 1.0), [])


def test_a_state_comes_back_as_it_was() -> None:
    state = State(7, (0.1, -1e-300, 3e300), 1 / 3)
    assert State.from_json(state.to_json()) == state
    assert json.loads(state.to_json())["round"] == 7


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "{}", "[" * 100_000, '{"round": 1, "clip": 1}'),
        *(f'{{"round": {number}, "clip": 1, "model": [1]}}' for number in ("1.0", "-1", "true")),
        *(f'{{"round": 1, "clip": {clip}, "model": [1]}}' for clip in ("0", "-1", "NaN", "Infinity", "null")),
        *(f'{{"round": 1, "clip": 1, "model": {model}}}' for model in ("[]", "[true]", "[Infinity]", '["1"]', "[[1]]")),
        '{"round": 1, "clip": 1, "model": [1' + "0" * 400 + "]}",
    ],
)
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a model|clipping norm|Expecting|too long|digits"):
        State.from_json(text)


# --- one false device -----------------------------------------------------------------------------------


def report_of(plan: Plan, **values: Any) -> list[int]:
    state = PeriodState(plan)
    for name, value in values.items():
        state.add(name, value, os.urandom)
    return list(make_report(plan, state, os.urandom))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_device_that_ignores_its_clip_is_clipped_by_the_sdk(plan: Plan) -> None:
    """What it hands over is 10^30 times too long; what leaves lies in the ball, and its noise around it."""
    mechanism: Any = plan.metrics["update"].mechanism
    for huge in ([1e30, 0.0, 0.0], [1e30, -1e30, 1e30], [1e308, 1e308, 1e308]):
        point = mechanism.ball.encode(huge, os.urandom)
        length = sum(map(abs, point)) if mechanism.name == "laplace" else math.hypot(*point)
        assert length <= math.sqrt(mechanism.ball.radius_squared), "at most C / expected, but for rounding"
        report = report_of(plan, update=huge, fits=[1e30])
        quiet = cohort(plan, [report])
        assert max(map(abs, quiet[0].totals)) <= mechanism.bound
        assert not implausible_metrics(plan, [x for one in quiet for x in one.totals], 1)


def unit(mechanism: Any) -> float:
    return float(mechanism.unit)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_device_that_lies_moves_the_average_by_the_mechanisms_bound_at_most(plan: Plan) -> None:
    """A well-formed report of nothing but extremes, in place of zeros."""
    # case H05
    mechanism, other = (plan.metrics[name].mechanism for name in ("update", "fits"))
    honest = [report_of(plan, update=[0.1, 0.2, 0.3], fits=[0.5]) for _ in range(EXPECTED - 1)]
    false = placed(plan, [mechanism.bound] * 3, other.bound)
    most = unit(mechanism) * mechanism.bound * CLIP / EXPECTED
    with_it, without = (advance(TASK, plan, START, cohort(plan, [*honest, last])) for last in (false, [0] * 4))
    moved = [abs(a - b) for a, b in zip(with_it.average, without.average, strict=True)]
    assert moved == pytest.approx([most] * 3), "the bound is reached: it says no more than is true"
    assert implausible_metrics(plan, [x + 1 for x in false], 1) == list(plan.metrics), "a sum of one, beyond it"
    bit = unit(other) * other.bound / EXPECTED  # by which its bit moves C, is known too
    assert with_it.state.clip == pytest.approx(without.state.clip * math.exp(-0.2 * bit), rel=1e-9)
