"""A report's gauges: what they say, and that there are never more than so many."""

from __future__ import annotations

from typing import Any

from collector.reports.gauges import MOST_LABELS, MOST_SERIES, gauges_of
from collector.service.job.telemetry import families_of, to_text


def metric(name: str, rows: int = 1, **more: Any) -> dict[str, Any]:
    estimates = [{"label": f"c{i}", "estimate": float(i), "smoothed": None, "standard_error": 0.5} for i in range(rows)]
    return {"plan": "p", "name": name, "contributors": 9, "plan_versions": [1], "estimates": estimates, **more}


def series(metrics: list[dict[str, Any]]) -> dict[str, dict[tuple[str, ...], float]]:
    return {gauge.name: dict(gauge.series) for gauge in gauges_of({"metrics": metrics}, "2026-W48", 1_000)}


def test_what_they_say() -> None:
    found = series([metric("m", 2)])
    assert found == {
        "ldp_report_estimate": {("p", "m", "c0", "2026-W48"): 0.0, ("p", "m", "c1", "2026-W48"): 1.0},
        "ldp_report_standard_error": {("p", "m", "c0", "2026-W48"): 0.5, ("p", "m", "c1", "2026-W48"): 0.5},
        "ldp_report_contributors": {("p", "m", "2026-W48"): 9},
        "ldp_report_rows_left_out": {("p", "m", "2026-W48"): 0},
        "ldp_report_window_end_timestamp_seconds": {("2026-W48",): 1_000},
    }


def test_a_metric_without_a_sum_has_contributors_and_no_estimate() -> None:
    nothing = {"label": "mean", "estimate": None, "smoothed": None, "standard_error": None}
    found = series([metric("m", estimates=[nothing], contributors=0)])
    assert found["ldp_report_estimate"] == {}
    assert found["ldp_report_contributors"] == {("p", "m", "2026-W48"): 0}


def test_a_smoothed_number_is_the_one_that_errors_are_of() -> None:
    row = {"label": "b", "estimate": None, "smoothed": 4.5, "standard_error": 1.0}
    assert series([metric("m", estimates=[row])])["ldp_report_estimate"] == {("p", "m", "b", "2026-W48"): 4.5}


# case G05
def test_of_many_labels_the_largest() -> None:
    found = series([metric("m", 100_000)])
    labels = {key[2] for key in found["ldp_report_estimate"]}
    assert labels == {f"c{i}" for i in range(100_000 - MOST_LABELS, 100_000)}
    assert found["ldp_report_rows_left_out"] == {("p", "m", "2026-W48"): 100_000 - MOST_LABELS}


def test_of_many_metrics_as_many_as_there_is_room_for() -> None:
    found = series([metric(f"m{i:04}", 70) for i in range(2_000)])
    assert len(found["ldp_report_estimate"]) == len(found["ldp_report_standard_error"]) == MOST_SERIES
    assert found["ldp_report_rows_left_out"]["p", "m0021", "2026-W48"] == 70 - MOST_SERIES % 70
    assert found["ldp_report_rows_left_out"]["p", "m0022", "2026-W48"] == 70
    assert max(map(len, found.values())) <= MOST_SERIES


def test_a_metric_that_changed_its_kind_is_its_newest() -> None:
    found = series([metric("m", 2, plan_versions=[3]), metric("m", 1, plan_versions=[1, 2], contributors=1)])
    assert found["ldp_report_contributors"] == {("p", "m", "2026-W48"): 9}
    assert len(found["ldp_report_estimate"]) == 2


# case G06
def test_prometheus_reads_any_name_back() -> None:
    names = ['"><b id=zz>', "a\\b", "line\nbreak", "名前", "{{7*7}}", "\\n", "tab\tand 'quotes'"]
    rows = [{"label": one, "estimate": 1.5, "smoothed": None, "standard_error": 0.1} for one in names]
    text = to_text(gauges_of({"metrics": [metric(names[0], estimates=rows, plan=names[2])]}, "2026-11", 7))
    families = {family.name: family for family in families_of(text)}
    samples = families["ldp_report_estimate"].samples
    assert [sample.labels["label"] for sample in samples] == names
    assert {(sample.labels["plan"], sample.labels["metric"], sample.value) for sample in samples} == {
        (names[2], names[0], 1.5)
    }
    assert all(family.type == "gauge" for family in families.values())
    assert text.endswith(b"\n")
