"""Reports of optional and of sampled metrics: what is held, what is kept of a period, and who is drawn."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

import pytest

from client_sdk.errors import RefusalReason, StorageError, ValueRefusedError
from client_sdk.mechanisms.categories import ABSENT
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState, clipped_values, draw_metrics, make_report
from tests.branching import exact_law
from tests.entropy import Untouched, seeded

HEAD = """
[plan]
name = "app-health"
version = 1
period = "1d"
{}
[cohort]
min_size = 3
target_size = 5
[budget]
lifetime = 365
"""
NUMBER = 'kind = "numeric"\nlower = 0\nupper = 10\n'
LABELS = 'kind = "categorical"\ncategories = ["a", "b"]\nother = "rest"\n'
BINS = 'kind = "histogram"\nlower = 0\nupper = 10\nbins = 4\nmechanism = "subset_selection"\n'
SHARES = 'kind = "quantiles"\nlower = 0\nupper = 10\nbins = 4\nmechanism = "hadamard"\n'
FIRST_EXPIRED = 1_798_761_600  # 2027-01-01T00:00Z
SECRET = 7.828125


def plan_of(*metrics: str, head: str = "", epsilon: str = "1") -> Plan:
    tables = (f"[metrics.m{i}]\n{metric}epsilon = {epsilon}\n" for i, metric in enumerate(metrics))
    return parse_plan(HEAD.format(head) + "".join(tables))


def optional(metric: str, more: str = "") -> str:
    return metric + "optional = true\n" + more


# --- no reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_device", ["last", "first", "sample", "mean", "sum", "max", "count"])
@pytest.mark.parametrize("kind", [NUMBER, BINS, SHARES])
def test_an_optional_number_without_a_reading_is_none_and_goes_on_as_such(kind: str, on_device: str) -> None:
    plan = plan_of(optional(kind, f'on_device = "{on_device}"\n'))
    state = PeriodState(plan)
    assert state.values() == {"m0": None}
    assert json.loads(state.dump())["folds"]["m0"][0] == 0
    loaded = PeriodState.load(plan, state.dump())
    for one in (state, loaded):
        assert one.values() == {"m0": None}
        one.add("m0", 4, os.urandom)
        assert one.values() == {"m0": 1.0 if on_device == "count" else 4.0}
    again = PeriodState.load(plan, loaded.dump())
    assert again.values() == state.values()


def test_an_optional_category_without_a_reading() -> None:
    plan = plan_of(optional(LABELS))
    state = PeriodState.load(plan, PeriodState(plan).dump())
    assert state.values() == {"m0": None}
    state.add("m0", ABSENT, Untouched())
    assert state.values() == {"m0": "rest"}, "the label of those without a reading is nobody's reading"
    strict = PeriodState(plan_of(optional(LABELS.replace('other = "rest"\n', ""))))
    with pytest.raises(ValueRefusedError):
        strict.add("m0", ABSENT, Untouched())


@pytest.mark.parametrize("kind", [NUMBER, LABELS, BINS, SHARES])
def test_none_is_no_reading_that_could_be_recorded(kind: str) -> None:
    state = PeriodState(plan_of(optional(kind)))
    with pytest.raises(ValueRefusedError) as caught:
        state.add("m0", None, Untouched())  # type: ignore[arg-type]
    assert caught.value.reason is RefusalReason.WRONG_TYPE
    assert state.values() == {"m0": None}


def test_damaged_saved_periods_of_optional_metrics() -> None:
    plan = plan_of(optional(NUMBER))
    good = json.loads(PeriodState(plan).dump())
    for fold in ([1, None], [0, "a"], [-1, None], [0, True], [None, None], [0], [0, [SECRET]]):
        data = json.dumps(good | {"folds": {"m0": fold}}).encode()
        with pytest.raises(StorageError) as caught:
            PeriodState.load(plan, data)
        assert str(SECRET) not in str(caught.value)
        assert caught.value.__context__ is None
    other = plan_of(NUMBER)
    data = json.dumps({"plan": other.hash.hex(), "folds": {"m0": [0, None]}}).encode()
    with pytest.raises(StorageError):  # only an optional metric can hold nothing
        PeriodState.load(other, data)


def test_an_expired_optional_metric_reports_no_reading() -> None:
    plan = plan_of(*(optional(kind, "expires = 2027-01-01\n") for kind in (NUMBER, LABELS, BINS, SHARES)), epsilon="40")
    before = PeriodState(plan, FIRST_EXPIRED - 86_400)
    for name, value in {"m0": 3, "m1": "a", "m2": 3, "m3": 3}.items():
        before.add(name, value, Untouched())
        with pytest.raises(ValueRefusedError) as refused:
            PeriodState(plan, FIRST_EXPIRED).add(name, value, Untouched())
        assert refused.value.reason is RefusalReason.METRIC_EXPIRED
    after = PeriodState.load(plan, before.dump(), FIRST_EXPIRED)
    assert set(after.values().values()) == {None}
    assert None not in before.values().values()
    # at epsilon 40 a report all but says what it was made from: which cell is "no reading"
    report, labels = make_report(plan, after, os.urandom), plan.metrics["m1"].mechanism.labels
    assert report[plan.slices["m1"]].index(1) == labels.index(ABSENT)
    assert report[plan.slices["m0"]][-1] == 0
    assert make_report(plan, before, os.urandom)[plan.slices["m0"]][-1] == 1
    assert len(report) == plan.length


def test_clipping_leaves_no_reading_as_it_is() -> None:
    plan = plan_of(optional(NUMBER), optional(LABELS), BINS)
    assert clipped_values(plan, {"m0": None, "m1": None, "m2": 99}) == {"m0": None, "m1": None, "m2": 10.0}
    with pytest.raises(ValueRefusedError):
        clipped_values(plan, {"m0": None, "m1": None, "m2": None})


def test_nothing_shows_a_reading() -> None:  # case H02
    plan = plan_of(optional(NUMBER), BINS, head="sample_metrics = 1")
    state = PeriodState(plan)
    state.add("m0", SECRET, Untouched())
    texts = [repr(state), repr(state.adders), repr(state.adders["m0"].__self__)]  # type: ignore[attr-defined]
    for call in (
        lambda: state.add("m1", f"{SECRET}", Untouched()),
        lambda: PeriodState.load(plan_of(NUMBER), state.dump()),
        lambda: PeriodState.load(plan, state.dump().replace(b"[1, ", b"[-1, ")),
        lambda: clipped_values(plan, {"m0": f"{SECRET}", "m1": 1}),
    ):
        with pytest.raises((ValueRefusedError, StorageError)) as caught:
            call()
        texts += [str(caught.value), repr(caught.value), repr(caught.value.__context__)]
    assert not any(str(SECRET) in text for text in texts)


# --- samples ----------------------------------------------------------------------------------------


def drawn_law(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> dict[frozenset[str], Fraction]:
    """The complete law of the draw: every outcome of every uniform choice."""

    def run(choose: Callable[[Sequence[Fraction]], int]) -> frozenset[str]:
        monkeypatch.setattr("client_sdk.sampling.uniform_below", lambda n, _: choose([Fraction(1, n)] * n))
        return draw_metrics(plan, Untouched())

    return exact_law(run)


@pytest.mark.parametrize(("metrics", "sampled"), [(2, 1), (3, 1), (3, 2), (4, 2), (5, 3), (6, 5)])
def test_each_set_of_metrics_is_equally_likely(monkeypatch: pytest.MonkeyPatch, metrics: int, sampled: int) -> None:
    plan = plan_of(*[NUMBER] * metrics, head=f"sample_metrics = {sampled}")
    law = drawn_law(plan, monkeypatch)
    wanted = [frozenset(chosen) for chosen in combinations(plan.metrics, sampled)]
    assert law == dict.fromkeys(wanted, Fraction(1, len(wanted)))


def test_without_sampling_nothing_is_drawn() -> None:
    plan = plan_of(NUMBER, LABELS)
    assert draw_metrics(plan, Untouched()) == {"m0", "m1"}
    assert plan.counts == {}


READINGS: list[dict[str, float | str]] = [{}, {"m0": 0, "m1": "a", "m2": 10}, {"m0": 10, "m1": "b", "m2": 0}]


def test_what_is_drawn_does_not_follow_from_the_readings() -> None:
    """The same bytes draw the same metrics, whatever was read: the draw comes before any value is looked at."""
    plan = plan_of(NUMBER, LABELS, optional(BINS), head="sample_metrics = 1")
    for seed in range(60):
        drawn = set()
        for readings in READINGS:
            state = PeriodState(plan)
            for name, value in readings.items():
                state.add(name, value, Untouched())
            report = make_report(plan, state, seeded(f"draw {seed}"))
            drawn.add(tuple(report[at] for at in plan.counts.values()))
        assert len(drawn) == 1


def test_the_draw_is_the_first_thing_that_asks_for_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(NUMBER, LABELS, head="sample_metrics = 1")
    order: list[str] = []
    monkeypatch.setattr("client_sdk.report.draw_metrics", lambda *_: order.append("draw") or frozenset({"m0"}))
    values = PeriodState.values
    monkeypatch.setattr(PeriodState, "values", lambda self: order.append("values") or values(self))
    make_report(plan, PeriodState(plan), os.urandom)
    assert order == ["draw", "values"]


def test_a_sampled_report_has_the_plans_shape_with_zeros_for_the_rest() -> None:
    plan = plan_of(NUMBER, LABELS, optional(NUMBER), BINS, SHARES, head="sample_metrics = 2")
    seen = set()
    for seed in range(200):
        report = make_report(plan, PeriodState(plan), seeded(f"shape {seed}"))
        assert len(report) == plan.length
        assert all(type(element) is int and -plan.bound <= element <= plan.bound for element in report)
        held = {name for name, at in plan.counts.items() if report[at] == 1}
        assert len(held) == 2
        assert all(report[at] in (0, 1) for at in plan.counts.values())
        for name in plan.metrics.keys() - held:
            assert not any(report[plan.slices[name]])
        for name in held & {"m1", "m3", "m4"}:
            assert plan.metrics[name].mechanism.is_plausible(report[plan.slices[name]], 1)
        seen.add(frozenset(held))
    assert len(seen) == 10, "all pairs of five"


def test_only_what_is_drawn_is_perturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric that is not held costs no noise: else its cells would be noise that nobody counts."""
    plan = plan_of(NUMBER, NUMBER, head="sample_metrics = 1")
    kind = type(plan.metrics["m0"].mechanism)
    calls: list[object] = []
    perturb = kind.perturb
    monkeypatch.setattr(kind, "perturb", lambda self, *given: calls.append(self) or perturb(self, *given))
    make_report(plan, PeriodState(plan), os.urandom)
    assert len(calls) == 1


def test_totals_of_a_sampled_plan_count_their_contributors() -> None:
    plan = plan_of(LABELS, optional(LABELS), head="sample_metrics = 1", epsilon="30")
    total = [0] * plan.length
    for seed in range(300):
        state = PeriodState(plan)
        state.add("m0", "a", Untouched())
        total = [a + b for a, b in zip(total, make_report(plan, state, seeded(f"total {seed}")), strict=True)]
    held = {name: total[at] for name, at in plan.counts.items()}
    assert sum(held.values()) == 300
    assert abs(held["m0"] - 150) < 5 * (300 / 4) ** 0.5
    found = plan.metrics["m0"].mechanism.estimate(total[plan.slices["m0"]], held["m0"])
    assert found.values[0] == pytest.approx(held["m0"])
    absent = plan.metrics["m1"].mechanism.estimate(total[plan.slices["m1"]], held["m1"])
    assert absent.values[-1] == pytest.approx(held["m1"])


def test_a_reports_largest_reading_is_a_number_still() -> None:
    plan = plan_of(optional(NUMBER, 'on_device = "sum"\n'))
    state = PeriodState(plan)
    for _ in range(2):
        state.add("m0", 1e308, Untouched())
    assert PeriodState.load(plan, state.dump()).values() == {"m0": sys.float_info.max}
