"""The report's document: its shape, its windows, its versions."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

from client_sdk.errors import PlanError
from client_sdk.plan import Plan, parse_plan
from collector.accounting.losses import central_pair
from collector.release import ReleasedSum
from collector.reports import UnknownMetricError, build_report, to_json
from collector.reports.report import COLUMNS, report_rows

DAY_S = 86_400


def make_plan(version: int = 1, epsilon: str = "1.0", name: str = "p", categories: str = '"x", "y"') -> Plan:
    return parse_plan(f"""
[plan]
name = "{name}"
version = {version}
period = "1d"
[cohort]
min_size = 2
target_size = 10
max_wait = "30s"
[budget]
lifetime = 365
[metrics.colour]
kind = "categorical"
categories = [{categories}]
other = "other"
epsilon = {epsilon}
[metrics.seconds]
kind = "numeric"
lower = 0
upper = 10
epsilon = {epsilon}
""")


def rows_of(plan: Plan, day: int, colour: tuple[int, ...], seconds: int) -> list[ReleasedSum]:
    n = sum(colour)
    return [
        ReleasedSum(f"{plan.version}-{day}", plan.hash, day * DAY_S, "colour", colour, n),
        ReleasedSum(f"{plan.version}-{day}", plan.hash, day * DAY_S, "seconds", (seconds,), n),
    ]


def test_the_documents_shape() -> None:
    plan = make_plan()
    document = build_report([plan], rows_of(plan, 0, (60, 30, 10), 50_000), 0, DAY_S)
    assert list(document) == ["since", "until", "plans", "metrics"]
    assert (document["since"], document["until"]) == ("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z")
    assert document["plans"] == [{"name": "p", "version": 1, "hash": plan.hash.hex()}]
    colour, seconds = document["metrics"]
    assert {"name", "kind", "mechanism", "epsilon", "plan_versions", "contributors", "estimates"} <= set(colour)
    assert (colour["name"], colour["kind"], colour["mechanism"]) == ("colour", "categorical", "randomized_response")
    assert (colour["epsilon"], colour["plan_versions"], colour["contributors"]) == (1.0, [1], 100)
    assert [row["label"] for row in colour["estimates"]] == ["x", "y", "other"]
    (mean,) = seconds["estimates"]
    assert list(mean)[:4] == ["label", "estimate", "standard_error", "ci95"], "later fields come after those"
    assert (mean["label"], mean["estimate"]) == ("mean", 5.0)
    low, high = mean["ci95"]
    assert high - low == pytest.approx(2 * 1.959964 * mean["standard_error"], rel=1e-6)


def test_rounds_of_the_window_are_added_and_no_others() -> None:
    plan = make_plan()
    rows = [row for day in range(4) for row in rows_of(plan, day, (10 * 2**day, 0, 0), 0)]
    for since, until, contributors in (
        (None, None, 150), (DAY_S, None, 140), (DAY_S, 3 * DAY_S, 60), (DAY_S, DAY_S, 0), (None, 0, 0),
    ):  # fmt: skip
        document = build_report([plan], rows, since, until)
        assert [m["contributors"] for m in document["metrics"]] == [contributors] * 2


# case A03
def test_an_empty_window_is_zero_and_nulls() -> None:
    document = json.loads(to_json(build_report([make_plan()], [])))
    for metric in document["metrics"]:
        assert (metric["contributors"], metric["plan_versions"]) == (0, [])
        for row in metric["estimates"]:
            assert (row["estimate"], row["standard_error"], row["ci95"]) == (None, None, [None, None])
    assert "NaN" not in to_json(document)
    assert build_report([], []) == {"since": None, "until": None, "plans": [], "metrics": []}


def test_versions_are_combined_and_named() -> None:
    v1, v2, v3 = make_plan(1), make_plan(2, "3.0", categories='"x", "z"'), make_plan(3, "2.0", categories='"w"')
    document = build_report(
        [v3, v2, v1], rows_of(v1, 0, (50, 40, 10), 0) + rows_of(v2, 1, (80, 10, 10), 0), metric="colour"
    )
    (colour,) = document["metrics"]
    assert (colour["plan_versions"], colour["contributors"]) == ([1, 2], 200)
    assert colour["epsilon"] == 3.0
    assert [(v["version"], v["epsilon"], v["contributors"]) for v in colour["versions"]] == [
        (1, 1.0, 100),
        (2, 3.0, 100),
    ]
    assert [row["label"] for row in colour["estimates"]] == ["x", "z", "y", "other"]
    assert sum(row["estimate"] for row in colour["estimates"]) == pytest.approx(200)


def test_versions_are_ordered_by_number() -> None:
    v9, v10 = make_plan(9), make_plan(10)
    document = build_report([v10, v9], rows_of(v10, 0, (5, 0, 0), 0) + rows_of(v9, 0, (5, 0, 0), 0))
    assert document["metrics"][0]["plan_versions"] == [9, 10]


def test_plans_of_other_names_are_not_mixed() -> None:
    a, b = make_plan(name="a"), make_plan(name="b")
    document = build_report([a, b], rows_of(a, 0, (5, 0, 0), 0) + rows_of(b, 0, (7, 0, 0), 0), metric="colour")
    assert [(m["plan"], m["contributors"]) for m in document["metrics"]] == [("a", 5), ("b", 7)]


@dataclass
class Stored:
    hash: bytes
    text: str


def test_a_stored_plan_that_reads_differently_today_is_no_base_for_decoding() -> None:
    plan = make_plan()
    rows = rows_of(plan, 0, (5, 0, 0), 0)
    assert build_report([Stored(plan.hash, plan.text)], rows) == build_report([plan], rows)
    with pytest.raises(PlanError, match="version 1"):
        build_report([Stored(b"\0" * 32, plan.text)], [])


# case H03
@pytest.mark.parametrize("name", ["../escape", "nope", "", "x" * 500])
def test_an_unknown_metric(name: str) -> None:
    with pytest.raises(UnknownMetricError, match="colour, seconds") as caught:
        build_report([make_plan()], [], metric=name)
    assert len(str(caught.value)) < 250


def test_rows_for_csv() -> None:
    plan = make_plan()
    rows = report_rows(build_report([plan], rows_of(plan, 0, (60, 30, 10), 50_000)))
    assert [len(row) for row in rows] == [len(COLUMNS)] * 4
    assert rows[3][:8] == ["p", "seconds", "numeric", "laplace", 1.0, "1", 100, "mean"]
    empty = dict(zip(COLUMNS, report_rows(build_report([plan], []))[0], strict=True))
    assert {name for name, cell in empty.items() if cell is not None} == {
        "plan", "metric", "kind", "mechanism", "epsilon", "plan_versions", "contributors", "label",
        "reports", "estimator", "verdict", "epsilon_local", "direct", "false_devices", "cohorts", "standing_out",
    }  # fmt: skip
    assert COLUMNS[:15] == (
        "plan", "metric", "kind", "mechanism", "epsilon", "plan_versions", "contributors", "label", "estimate",
        "standard_error", "ci95_low", "ci95_high", "expires", "one_false_report", "one_broken_device",
    ), "columns of earlier versions keep their places"  # fmt: skip


def test_sums_of_an_expired_metric_are_left_out_and_it_is_labelled() -> None:
    plan = parse_plan(make_plan().text.replace('other = "other"', 'other = "other"\nexpires = 1970-01-03'))
    rows = [row for day in range(4) for row in rows_of(plan, day, (10 * 2**day, 0, 0), 0)]
    colour, seconds = build_report([plan], rows)["metrics"]
    assert (colour["contributors"], colour["expires"]) == (30, "1970-01-03"), "days 0 and 1 only"
    assert (seconds["contributors"], seconds["expires"]) == (150, None)
    table = [dict(zip(COLUMNS, row, strict=True)) for row in report_rows(build_report([plan], rows))]
    assert {row["metric"]: row["expires"] for row in table} == {"colour": "1970-01-03", "seconds": None}


# case H05
def test_the_report_says_how_far_one_false_report_moves_a_number() -> None:
    plan = make_plan(categories=", ".join(f'"{c}"' for c in "abcdefghi"))
    document = build_report([plan], rows_of(plan, 0, (10,) * 10, 50_000))
    count, mean = (metric["one_false_report"] for metric in document["metrics"])
    assert count == pytest.approx(6.238, abs=0.01)
    assert mean == pytest.approx(10 * (1 + 45) / 100), "one of a hundred, over the range and its tail"
    assert [row[COLUMNS.index("one_false_report")] for row in report_rows(document)] == [*[count] * 10, mean]
    broken = [metric["one_broken_device"] for metric in document["metrics"]]
    assert broken[0] > 90 * count, "all hundred, about"
    assert broken[1] == pytest.approx(10 * (1 + 2 * 45)), "anything from one end of the range to the other"
    assert [row[COLUMNS.index("one_broken_device")] for row in report_rows(document)] == [*[broken[0]] * 10, broken[1]]
    for key in ("one_false_report", "one_broken_device"):
        assert [metric[key] for metric in build_report([plan], [])["metrics"]] == [None, None]


# --- what one report costs ----------------------------------------------------------------------------


def hidden(plan: Plan, day: int, contributors: int, **sizes: object) -> list[ReleasedSum]:
    sums = rows_of(plan, day, (contributors, 0, 0), 0)
    return [replace(row, **{"roster": contributors, **sizes}) for row in sums]  # type: ignore[arg-type]


def test_a_metric_says_what_one_report_costs_and_under_which_conditions() -> None:
    plan = make_plan()
    rows = hidden(plan, 0, 1112) + hidden(plan, 1, 2000)
    colour, seconds = json.loads(to_json(build_report([plan], rows)))["metrics"]
    assert (colour["epsilon_local"], colour["n_h"], colour["delta"]) == (1.0, 1000, 1e-6), "1112 less 112 corrupt"
    assert seconds["epsilon_central"] == pytest.approx(0.0796, abs=5e-4)
    assert seconds["central_method"] == "exact sum of noises"
    expected = central_pair(plan.metrics["colour"].losses[0], 1000).epsilon(1e-6)
    assert colour["epsilon_central"] == pytest.approx(expected, rel=1e-9)
    assert "n_h of each sum's reports being honest" in colour["central_conditions"]
    header = report_rows(build_report([plan], rows))[0]
    assert dict(zip(COLUMNS, header, strict=True))["n_h"] == 1000


@pytest.mark.parametrize(
    ("sizes", "n_h"),
    [({}, 45), ({"resent": 10}, 35), ({"roster": 99}, 40), ({"resent": 45}, 1), ({"delivery": "direct"}, 1)],
)
def test_n_h_is_the_smallest_of_the_windows_sums(sizes: dict[str, object], n_h: int) -> None:
    plan = make_plan()
    rows = hidden(plan, 0, 50, **sizes) + hidden(plan, 1, 60)
    for metric in build_report([plan], rows)["metrics"]:
        assert metric["n_h"] == n_h
        assert metric["epsilon_central"] <= metric["epsilon_local"]
        assert (metric["epsilon_central"] > 0.9999) == (n_h == 1) == ("as local" in metric["central_method"])
    (later, _) = build_report([plan], rows, since=DAY_S)["metrics"]
    assert later["n_h"] == 54


def test_of_versions_the_dearest_counts_and_without_a_sum_there_is_none() -> None:
    cheap, dear = make_plan(1, "0.5"), make_plan(2, "2.0")
    (colour, _) = build_report([cheap, dear], hidden(cheap, 0, 50) + hidden(dear, 1, 500))["metrics"]
    assert (colour["epsilon_local"], colour["n_h"]) == (2.0, 450)
    assert colour["epsilon_central"] > build_report([cheap], hidden(cheap, 0, 50))["metrics"][0]["epsilon_central"]
    (colour, _) = build_report([cheap], [])["metrics"]
    assert (colour["epsilon_local"], colour["epsilon_central"], colour["n_h"]) == (0.5, None, None)
