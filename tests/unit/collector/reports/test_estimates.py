"""A report's rows: which number stands in which column, how good it is, and what it must not be taken for."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest

from client_sdk.mechanisms import Estimate
from client_sdk.mechanisms.verdict import FEWEST, RULE, count_tolerance, range_tolerance, verdict
from client_sdk.plan import Plan, parse_plan
from collector.combination import Combined
from collector.release import ReleasedSum
from collector.reports import build_report, to_csv
from collector.reports.estimates import INTERVALS, estimate_rows
from collector.reports.report import COLUMNS, report_rows
from tests.entropy import seeded
from tests.unit.collector.plans import SAMPLED, make_plan, plan_of

Row = dict[str, Any]


def sums_of(plan: Plan, **totals: tuple[tuple[int, ...], int]) -> list[ReleasedSum]:
    return [ReleasedSum("r", plan.hash, 0, name, cells, n) for name, (cells, n) in totals.items()]


def table_of(plan: Plan, rows: list[ReleasedSum]) -> list[dict[str, str]]:
    """The report as whoever opens its CSV sees it."""
    text = to_csv(COLUMNS, report_rows(build_report([plan], rows)))
    return list(csv.DictReader(io.StringIO(text, newline="")))


# case A09
def test_raw_normalised_and_interval_stand_in_columns_of_their_own() -> None:
    plan = make_plan()
    low = table_of(plan, sums_of(plan, colour=((200, 800), 1000)))[:2]
    assert float(low[0]["estimate"]) == pytest.approx(-149.186, abs=0.01)
    assert sum(float(row["estimate"]) for row in low) == pytest.approx(1000, abs=1e-6)
    assert [float(row["normalised"]) for row in low] == [0.0, 1000.0]
    assert float(low[0]["ci95_high"]) < 0, "an end is cut no more than the estimate"
    assert {row["estimator"] for row in low} == {"unbiased"}
    even = table_of(plan, sums_of(plan, colour=((5000, 5000), 10000)))[0]
    assert float(even["estimate"]) == pytest.approx(5000, abs=1e-6)
    assert 187 <= (float(even["ci95_high"]) - float(even["ci95_low"])) / 2 <= 213
    assert [even["verdict"], low[0]["verdict"]] == ["usable", "too noisy"]


def test_intervals_of_all_rows_and_of_the_population_are_wider() -> None:
    plan = make_plan(categories=("a", "b", "c", "d"))
    rows = build_report([plan], sums_of(plan, colour=((300, 300, 200, 200), 1000)))["metrics"][0]["estimates"]
    z_one, z_all = 1.959964, 2.497705  # of 0.975 and of 1 - 0.05 / 8
    for row in rows:
        widths = [row[name][1] - row[name][0] for name in INTERVALS]
        assert widths[:2] == pytest.approx([2 * z * row["standard_error"] for z in (z_one, z_all)], rel=1e-6)
        # of the population Wilson's, of a share that is far from 0 and 1 nearly the normal one
        assert widths[2:] == pytest.approx([2 * z * row["population_error"] for z in (z_one, z_all)], rel=5e-3)
        assert row["population_error"] > row["standard_error"]


def wilson(support: int, n: int, z: float) -> tuple[float, float]:
    """The roots of (support/n - s)^2 = z^2 s (1 - s) / n, by bisection."""

    def root(inside: float, outside: float) -> float:
        for _ in range(200):
            middle = (inside + outside) / 2
            if (support / n - middle) ** 2 <= z * z * middle * (1 - middle) / n:
                inside = middle
            else:
                outside = middle
        return inside

    return root(support / n, 0.0), root(support / n, 1.0)


def test_the_populations_interval_of_a_rare_count_is_wilsons() -> None:
    """Epsilon 12, no support at all: the normal interval has no width, and misses a share of 1 % ever again."""
    plan = make_plan(epsilon="12", categories=("a", "b", "c"))
    document = build_report([plan], sums_of(plan, colour=((70, 30, 0), 100)))["metrics"][0]
    rare = document["estimates"][2]
    assert document["population_interval"] == "Wilson"
    assert rare["population_error"] < 0.1
    p, q = math.exp(12) / (math.exp(12) + 2), 1 / (math.exp(12) + 2)
    for name, z in (("population_ci95", 1.959964), ("population_ci95_simultaneous", 2.393980)):
        wanted = [100 * (end - q) / (p - q) for end in wilson(0, 100, z)]
        assert rare[name] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
    assert rare["population_ci95"][1] > 3.6, "of a hundred: the rule of three"
    assert table_of(plan, sums_of(plan, colour=((70, 30, 0), 100)))[0]["population_interval"] == "Wilson"


def test_counts_of_several_versions_say_that_their_interval_is_normal() -> None:
    v1, v2 = make_plan(1, "1"), make_plan(2, "2")
    rows = sums_of(v1, colour=((50, 50), 100)) + sums_of(v2, colour=((60, 40), 100))
    colour = build_report([v1, v2], rows)["metrics"][0]
    assert colour["population_interval"] == "normal"
    row = colour["estimates"][0]
    low, high = row["population_ci95"]
    assert high - low == pytest.approx(2 * 1.959964 * row["population_error"], rel=1e-6)


def test_a_mean_has_a_sum() -> None:
    plan = make_plan()
    (row,) = build_report([plan], sums_of(plan, seconds=((60_000,), 100)))["metrics"][1]["estimates"]
    assert row["sum"] == pytest.approx(100 * row["estimate"])
    assert row["sum_standard_error"] == pytest.approx(100 * row["standard_error"])
    assert table_of(plan, sums_of(plan, seconds=((60_000,), 100)))[-1]["sum"] == repr(row["sum"])
    assert {"sum", "sum_standard_error"} <= set(COLUMNS)
    report = kinds_report()
    mean, present = report["rare"]
    assert mean["sum"] == pytest.approx(mean["estimate"] * present["estimate"]), "over those that had a reading"
    assert (present["sum"], report["bins"][0]["sum"], report["middle"][0]["sum"]) == (None,) * 3


def test_the_error_of_an_optional_sum_is_of_its_parts() -> None:
    """S' + d C: the noise of the distances from the middle d, and d times the count's; against the parts' variances."""
    mechanism: Any = KINDS.metrics["rare"].mechanism
    total = [round(400 * mechanism.inner.law.centre) + 40_000, 200]
    parts, estimate = mechanism.parts(total, 400), mechanism.estimate(total, 400)
    value, error = estimate.total()
    assert value == pytest.approx(float(parts.excess + parts.absent * parts.count))
    wanted = math.sqrt(parts.excess_variance + parts.absent**2 * parts.count_variance)
    assert error == pytest.approx(wanted, rel=1e-9)


# case A03
def test_over_nobody_every_number_is_null() -> None:
    for metric in build_report([SAMPLED], [])["metrics"]:
        for row in metric["estimates"]:
            assert row["verdict"] == "too few"
            numbers = [
                row[name] for name in ("estimate", "standard_error", "population_error", "smoothed", "normalised")
            ]
            assert [*numbers, *(end for name in INTERVALS for end in row[name])] == [None] * 13


# --- what kind of number ------------------------------------------------------------------------------

KINDS = plan_of(
    """
[metrics.bins]
kind = "histogram"
lower = 0
upper = 10
bins = 4
epsilon = 4
[metrics.middle]
kind = "quantiles"
lower = 0
upper = 10
bins = 10
mechanism = "optimized_unary"
quantiles = [0.5, 0.9]
epsilon = 4
[metrics.rare]
kind = "numeric"
lower = 0
upper = 10
epsilon = 4
optional = true
[metrics.wave]
kind = "histogram"
lower = 0
upper = 10
bins = 4
mechanism = "square_wave"
epsilon = 4
"""
)
READINGS = [1.0, 2.0, 3.0, 9.0]


def kinds_report(n: int = 2000) -> dict[str, list[Row]]:
    rows = []
    for name, metric in KINDS.metrics.items():
        values = [None if name == "rare" and i % 2 else READINGS[i % 4] for i in range(n)]
        total = metric.mechanism.perturb_many(values, seeded(name)).sum(axis=0)
        rows.append(ReleasedSum("r", KINDS.hash, 0, name, tuple(int(cell) for cell in total), n))
    return {metric["name"]: metric["estimates"] for metric in build_report([KINDS], rows)["metrics"]}


def test_every_row_says_what_its_number_is() -> None:
    report = kinds_report()
    assert [row["estimator"] for row in report["bins"]] == ["unbiased"] * 4
    assert [row["estimator"] for row in report["middle"]] == ["quantile"] * 2
    assert [(row["label"], row["estimator"]) for row in report["rare"]] == [("mean", "ratio"), ("present", "unbiased")]
    assert [row["estimator"] for row in report["wave"]] == ["smoothed"] * 4
    assert [row["estimate"] for row in report["wave"]] == [None] * 4, "what is smoothed is no unbiased estimate"
    assert math.fsum(row["smoothed"] for row in report["wave"]) == pytest.approx(2000)
    assert [row["normalised"] for row in report["wave"]] == [None] * 4, "adds up already"
    for name in ("bins", "middle", "rare"):
        assert {row["smoothed"] for row in report[name]} == {None}
    assert {name for name, rows in report.items() if rows[0]["normalised"] is not None} == {"bins"}


def test_numbers_of_every_kind_lie_near_the_truth() -> None:
    report = kinds_report()
    for row, truth in zip(report["bins"], (1000, 500, 0, 500), strict=True):
        assert abs(row["estimate"] - truth) < 5 * row["standard_error"]
    mean, present = report["rare"]
    assert abs(mean["estimate"] - 2.0) < 5 * mean["standard_error"]  # of 1 and 3
    assert abs(present["estimate"] - 1000) < 5 * present["standard_error"]
    assert 1 <= report["middle"][0]["estimate"] <= 3.5
    assert 8 <= report["middle"][1]["estimate"] <= 10


def test_a_number_that_became_optional_is_another_number() -> None:
    """A mean over everybody, defaults included, and one over who had a reading are not averaged with each other."""
    plain = '[metrics.rare]\nkind = "numeric"\nlower = 0\nupper = 10\nepsilon = 4\n'
    v1, v2 = plan_of(plain), plan_of(plain + "optional = true\n", version=2)
    rows = sums_of(v1, rare=((500 * 100,), 100)) + sums_of(v2, rare=((500 * 100, 50), 100))
    first, second = build_report([v1, v2], rows)["metrics"]
    assert [first["plan_versions"], second["plan_versions"]] == [[1], [2]]
    assert [len(metric["estimates"]) for metric in (first, second)] == [1, 2]


# --- reports that hold a sample of the metrics ---------------------------------------------------------


def test_a_sampled_metric_is_decoded_with_its_own_count() -> None:
    rows = [
        ReleasedSum("r", SAMPLED.hash, 0, "colour", (30, 30), 60, reports=100),
        ReleasedSum("r", SAMPLED.hash, 0, "seconds", (500 * 80,), 80, reports=100),
        ReleasedSum("r", SAMPLED.hash, 0, "shape", (20, 20, 20), 60, reports=100),
    ]
    document = build_report([SAMPLED], rows)
    assert [(m["contributors"], m["reports"]) for m in document["metrics"]] == [(60, 100), (80, 100), (60, 100)]
    colour, seconds, _ = document["metrics"]
    assert [row["estimate"] for row in colour["estimates"]] == pytest.approx([30.0, 30.0])
    assert seconds["estimates"][0]["estimate"] == pytest.approx(0.0), "500 of 1000 steps from -10 to 10"
    # all hundred could have been in the round's count of it
    assert colour["one_broken_device"] == pytest.approx(100 / 0.4621171, rel=1e-6)
    assert {row["reports"] for row in table_of(SAMPLED, rows)} == {"100"}


# --- verdicts -----------------------------------------------------------------------------------------


def test_the_rule_of_the_verdicts() -> None:
    assert verdict(None, 1.0, 10**6) == "too few"
    assert [verdict(0.0, 1.0, n) for n in (0, FEWEST - 1, FEWEST)] == ["too few", "too few", "usable"]
    assert [verdict(width, 1.0, 1000) for width in (0.99, 1.0, 1.01)] == ["usable", "usable", "too noisy"]
    assert [count_tolerance(count, 1000) for count in (-50.0, 0.0, 20.0, 500.0, 5000.0)] == [20, 20, 20, 500, 1000]
    assert range_tolerance(40.0) == 4.0
    assert f"under {FEWEST} contributors" in RULE


def rows_with(value: float | None, error: float | None, metric: str, n: int = 1000) -> Row:
    plan = make_plan()
    answer = plan.metrics[metric].mechanism.answer
    combined = Combined(("row",), Estimate((value,), (error,), n), answer)
    return estimate_rows(combined, [plan.metrics[metric]])[0]


def test_verdicts_of_rows() -> None:
    """1.96 standard errors to each side: a count of 200 bears 51, a range of 20 bears 0.51."""
    assert [rows_with(200.0, error, "colour")["verdict"] for error in (51.0, 51.1)] == ["usable", "too noisy"]
    assert [rows_with(-3.0, error, "colour")["verdict"] for error in (5.1, 5.11)] == ["usable", "too noisy"]
    assert [rows_with(0.0, error, "seconds")["verdict"] for error in (0.51, 0.511)] == ["usable", "too noisy"]
    assert rows_with(0.0, 0.1, "seconds", n=29)["verdict"] == "too few"
    assert rows_with(None, None, "seconds")["verdict"] == "too few"


def test_an_optional_mean_of_hardly_anybody_is_too_few() -> None:
    rows = sums_of(KINDS, rare=((500 * 1000, 269), 1000))  # 269 ones are what nobody's bits give at epsilon 1
    (rare,) = (m for m in build_report([KINDS], rows)["metrics"] if m["name"] == "rare")
    mean, present = rare["estimates"]
    assert (mean["estimate"], mean["ci95"], mean["verdict"]) == (None, [None, None], "too few")
    assert abs(present["estimate"]) < 1
    assert rare["one_false_report"] is None


def test_a_mean_is_measured_by_the_narrowest_range_of_its_versions() -> None:
    """Two ranges under one name: an interval of 2 says much within [0, 1000], nothing within [-10, 10]."""
    narrow = make_plan()
    wide = parse_plan(make_plan(2).text.replace("lower = -10\nupper = 10", "lower = 0\nupper = 1000"))
    combined = Combined(("mean",), Estimate((5.0,), (0.52,), 1000), "mean")
    for versions, found in (((wide,), "usable"), ((narrow, wide), "too noisy"), ((wide, narrow), "too noisy")):
        (row,) = estimate_rows(combined, [plan.metrics["seconds"] for plan in versions])
        assert row["verdict"] == found
