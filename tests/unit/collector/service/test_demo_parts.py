"""The demo's own logic, without running it: who drops out where, rows to devices, truth and verdict."""

from __future__ import annotations

import errno
import gzip
import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.identity import IdentityKey
from client_sdk.mechanisms import Value
from client_sdk.plan import Plan, Registrar, parse_plan
from collector.release import ReleasedSum
from collector.reports import build_report
from collector.service.demo import result, run, show
from collector.service.demo.command import demo_folder
from collector.service.demo.fleet import Readings, builtin_plan, csv_fleet, generated_fleet
from collector.service.demo.run import DROP_STEPS, DeviceRun, cohort_batches, drop_schedule, true_values
from collector.service.settings import MachineError
from tests.registrar import KEY

CSV_PLAN = """
[plan]
name = "facts"
version = 1
period = "1d"
[cohort]
min_size = 3
target_size = 8
max_wait = "10s"
corrupt_fraction = 0.1
dropout_fraction = 0.1
[budget]
lifetime = 100
[metrics.seconds]
kind = "numeric"
lower = 0
upper = 100
epsilon = 1.0
on_device = "mean"
[metrics.os]
kind = "categorical"
categories = ["a", "b"]
other = "other"
epsilon = 1.0
"""


@pytest.fixture
def plan() -> Plan:
    return parse_plan(CSV_PLAN)


@pytest.mark.parametrize("devices", [5, 6, 7, 20, 99, 100, 101, 300, 1000])
@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.3, 1.0])
def test_the_builtin_plan_scales_to_the_fleet(devices: int, dropout: float) -> None:
    plan = parse_plan(builtin_plan(devices, dropout))
    assert plan.cohort.target_size <= devices
    assert plan.round_rules().min_roster <= devices
    assert all(len(r) > 0 or dropout >= 0 for r in generated_fleet(plan, devices).readings)


def test_dropouts_are_spread_over_steps_and_fleet() -> None:
    schedule = drop_schedule(300, 0.1)
    assert len(schedule) == 30
    assert set(Counter(schedule.values()).values()) == {7, 8}
    assert set(schedule.values()) == set(DROP_STEPS)
    for third in range(3):
        assert sum(third * 100 <= number < (third + 1) * 100 for number in schedule) == 10
    assert drop_schedule(300, 0.0) == {}


def test_the_remainder_joins_the_last_cohort() -> None:
    assert [len(b) for b in cohort_batches(300, 100)] == [100, 100, 100]
    assert [len(b) for b in cohort_batches(399, 100)] == [100, 100, 199]
    assert [len(b) for b in cohort_batches(60, 100)] == [60]
    assert [n for b in cohort_batches(21, 8) for n in b] == list(range(21))


def test_rows_become_devices_and_what_is_left_out_is_counted(tmp_path: Path, plan: Plan) -> None:
    rows = "dev,date,os,seconds,unused\n1,2020-01-01,a,10,x\n2,2020-01-01,b,,x\n1,2020-01-02,,20,x\n"
    rows += ",2020-01-01,a,3,x\n3,2020-01-01,zz,7,x\n4,2020-01-01,a,5,x\n5,2020-01-01\n"
    path = tmp_path / "facts.csv.gz"
    path.write_bytes(gzip.compress(rows.encode()))
    fleet = csv_fleet(path, "dev", plan, devices=2)
    assert [sorted(map(str, r)) for r in fleet.readings] == [
        ["('os', 'a')", "('seconds', 10.0)", "('seconds', 20.0)"],
        ["('os', 'zz')", "('seconds', 7.0)"],
    ]
    assert fleet.left_out == {
        "rows_without_device": 1,
        "refused_readings": 0,
        "incomplete_devices": 2,
        "further_devices": 1,
    }


def test_readings_that_the_sdk_refuses_make_no_device_complete_and_are_counted(tmp_path: Path) -> None:
    plan = parse_plan(CSV_PLAN.replace('other = "other"\n', ""))
    path = tmp_path / "facts.csv"
    path.write_text("\ufeffdev,os,seconds\n1,a,1\n2,new,1\n3,a,nan\n3,b,inf\n4,b,2\n4,new,3\n", encoding="utf-8")
    fleet = csv_fleet(path, "dev", plan, devices=2)
    assert fleet.left_out["refused_readings"] == 4
    assert fleet.left_out["incomplete_devices"] == 2
    assert [len(readings) for readings in fleet.readings] == [2, 4], "every cell is recorded, the odd ones too"


@pytest.mark.parametrize(
    ("content", "device_column", "words"),
    [
        ("dev,os,seconds\n1,a,ten\n", "dev", ["line 2", "'seconds'", "not a number"]),
        ("dev,os\n1,a\n", "dev", ["no column 'seconds'"]),
        ("dev,os,seconds\n1,a,1\n", "device", ["no column 'device'"]),
        ("dev,os,seconds\n1,a,1\n", "dev", ["1 of 1 devices", "5 asked for"]),
        ("dev,os,os,seconds\n1,a,b,1\n", "dev", ["column 'os'", "2 times"]),
        ("dev;os;seconds\n1;a;1\n", "dev", ["no column 'dev'", "commas"]),
        ("", "dev", ["no column 'dev'"]),
        ("dev,os,seconds\n\xff\xfe,a,1\n", "dev", ["not a readable CSV file"]),
    ],
)
def test_a_wrong_file_is_one_clear_line(
    tmp_path: Path, plan: Plan, content: str, device_column: str, words: list[str]
) -> None:
    path = tmp_path / "facts.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigurationError) as caught:
        csv_fleet(path, device_column, plan, devices=5)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in [str(path), *words])
    assert "ten" not in message.replace("written", ""), "a cell is a reading: it stays out of the message"


def test_a_broken_gzip_is_one_clear_line(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "facts.csv.gz"
    path.write_bytes(b"no gzip at all")
    with pytest.raises(ConfigurationError, match="not a readable CSV file"):
        csv_fleet(path, "dev", plan, devices=5)


def test_truth_is_taken_after_on_device_and_clipping(plan: Plan) -> None:
    values = true_values(plan, [("seconds", 150.0), ("seconds", 170.0), ("os", "never heard of")])
    assert values == {"seconds": 100, "os": "other"}
    metric = plan.metrics["os"]
    assert result.true_estimates(metric, ["a", "other", "a"]) == [2.0, 0.0, 1.0]
    assert result.true_estimates(plan.metrics["seconds"], [10.0, 30.0]) == [20.0]
    assert result.true_estimates(metric, []) == [None, None, None]


def test_truth_for_every_kind_of_answer() -> None:
    plan = parse_plan(
        CSV_PLAN.split("[metrics.", maxsplit=1)[0]
        + """
[metrics.bins]
kind = "histogram"
lower = 0
upper = 10
bins = 2
epsilon = 1
optional = true
[metrics.middle]
kind = "quantiles"
lower = 0
upper = 10
epsilon = 1
quantiles = [0.5, 0.9]
[metrics.rare]
kind = "numeric"
lower = 0
upper = 10
epsilon = 1
optional = true
[metrics.os]
kind = "categorical"
categories = ["a", "b"]
epsilon = 1
optional = true
"""
    )
    values: list[Value] = [1.0, 2.0, 7.0, None]
    wanted = {"bins": [2, 1, 1], "middle": [2, 7], "rare": [10 / 3, 3], "os": [1, 2, 1]}
    for name, metric in plan.metrics.items():
        asked = ["a", "b", "b", None] if name == "os" else values
        assert result.true_estimates(metric, asked) == pytest.approx(wanted[name])
    assert result.true_estimates(plan.metrics["rare"], [None]) == [None, None]


def test_the_truth_of_a_metric_that_few_reports_hold_is_theirs_in_proportion() -> None:
    plan = parse_plan(CSV_PLAN.replace('period = "1d"', 'period = "1d"\nsample_metrics = 1'))
    row = {"name": "os", "contributors": 2, "estimates": [
        {"estimate": 1.5, "standard_error": 0.1, "population_error": 1.0, "estimator": "unbiased"} for _ in range(3)
    ]}  # fmt: skip
    devices = [DeviceRun(0, "d", {"os": value}, None, 1, {}) for value in ("a", "a", "b", "other")]
    estimates = result._with_truth(row, plan, devices)["estimates"]
    assert [e["truth"] for e in estimates] == [1.0, 0.5, 0.5]
    assert estimates[0]["judged_by"] == "population_error", "who held it is chance too"
    assert result.standard_errors_off(estimates[0]) == pytest.approx(0.5 / estimates[0]["judged_error"])
    # p = e / (e + 2), q = 1 / (e + 2) at epsilon 1: half of two reports support it with p, the other half with q
    seen = (math.e + 1) / (math.e + 2) / 2
    wanted = math.sqrt(2 * seen * (1 - seen) + 1) * (math.e + 2) / (math.e - 1)
    assert estimates[0]["judged_error"] == pytest.approx(wanted, rel=1e-9)


STRONG = """
[metrics.letter]
kind = "categorical"
categories = ["a", "b", "c"]
epsilon = 12
[metrics.bit]
kind = "numeric"
lower = 0
upper = 100
epsilon = 12
mechanism = "one_bit"
[metrics.gap]
kind = "numeric"
lower = 0
upper = 100
epsilon = 12
optional = true
[metrics.places]
kind = "quantiles"
lower = 0
upper = 100
epsilon = 12
[metrics.wave]
kind = "histogram"
lower = 0
upper = 100
mechanism = "square_wave"
epsilon = 2
"""


def strong_row(name: str, total: list[int], truths: Sequence[Value], sampled: int | None) -> list[dict[str, Any]]:
    head = CSV_PLAN.split("[metrics.", maxsplit=1)[0]
    head = head if sampled is None else head.replace('period = "1d"', f'period = "1d"\nsample_metrics = {sampled}')
    plan = parse_plan(head + STRONG)
    n = 100 if sampled is None else 40
    row = build_report([plan], [ReleasedSum("r", plan.hash, 0, name, tuple(total), n, reports=100)])["metrics"]
    (found,) = (metric for metric in row if metric["name"] == name)
    devices = [DeviceRun(0, "d", {name: value}, None, 1, {}) for value in truths]
    estimates: list[dict[str, Any]] = result._with_truth(found, plan, devices)["estimates"]
    return estimates


@pytest.mark.parametrize("sampled", [None, 2])
def test_a_rare_label_that_no_report_supports_is_no_failure(sampled: int | None) -> None:
    """At epsilon 12 its estimate is about 0 and so is the error of that: four of a hundred are two of the forty."""
    truths = ["a"] * 60 + ["b"] * 36 + ["c"] * 4
    total = [60, 36, 4] if sampled is None else [25, 15, 0]
    rows = strong_row("letter", total, truths, sampled)
    if sampled:
        assert rows[2]["population_error"] < 0.1
    offs = [result.standard_errors_off(row) for row in rows]
    assert all(off is not None and off < 2 for off in offs), offs


def test_a_number_at_the_end_of_its_range_is_judged_by_the_truths_error() -> None:
    truths = [0.0] * 92 + [100.0] * 8
    (row,) = strong_row("bit", [0], truths, 2)  # of forty, nobody with 100 held it: chance does that in one of 30
    assert row["population_error"] < 1e-1
    assert row["judged_error"] == pytest.approx(100 * math.sqrt(0.08 * 0.92 / 40 + 1 / 40**2), rel=1e-2)
    assert result.standard_errors_off(row) == pytest.approx(1.61, abs=0.02)


def test_a_table_shows_each_rows_own_error_and_says_what_is_not_unbiased() -> None:
    truths: list[Value] = [10.0] * 50 + [20.0] * 30 + [None] * 20
    rows = strong_row("gap", [40 * 300, 32], truths, 2)
    assert show._label(rows[0]) == "mean (ratio)"
    assert show._label(rows[1]) == "present"
    metric = {"name": "gap", "mechanism": "laplace", "epsilon": 12.0, "contributors": 40, "estimates": rows}
    table = show._metric_table(metric)
    assert table.columns[2].header == "SE (population)"
    assert list(table.columns[2].cells) == [show._number(row["population_error"]) for row in rows]
    n, cells = 100, [5] * 20
    places = strong_row("places", cells, [50.0] * n, None)
    assert [show._label(row) for row in places] == ["p50 (quantile)", "p90 (quantile)", "p99 (quantile)"]
    assert [result.standard_errors_off(row) for row in places] == [None] * 3
    waves = strong_row("wave", [n, *[0] * 23], [50.0] * n, None)
    assert show._label(waves[0]).endswith("(smoothed)")
    assert {row["judged_error"] for row in waves} == {None}


def test_a_plan_of_quantiles_alone_is_not_called_unreleased() -> None:
    ok, text = result._verdict([ROUND], [_metric(None, 5.0)], [_device()], {"d": 1})
    assert ok
    assert "no row is judged" in text


def test_the_truth_of_a_sampled_reading_is_what_the_device_drew(tmp_path: Path) -> None:
    text = CSV_PLAN.replace('"mean"', '"sample"')
    path = tmp_path / "plan.toml"
    path.write_text(text)
    addresses = run.Addresses("127.0.0.1:1", "127.0.0.1:1", KEY)
    runner = run._FleetRunner(parse_plan(text), path, addresses, tmp_path, time.time(), lambda step: None)
    readings: Readings = [("seconds", float(n)) for n in range(100)]
    drawn = []
    seal = run.TelemetryClient.flush
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.TelemetryClient, "flush", lambda self, **_: drawn.append(runner._drawn_values(self)))
        truths = [runner._sealed_client(n, readings, "token")[1]["seconds"] for n in range(3)]
    assert seal is run.TelemetryClient.flush
    assert truths == [d["seconds"] for d in drawn]
    assert len(set(truths)) > 1, "the truth is the draw, not a constant"


def _device(spent: int = 1) -> DeviceRun:
    return DeviceRun(0, "d", {}, None, spent, {})


ROUND = {"outcome": "released", "contributors": 9}


def _metric(estimate: float | None, truth: float | None) -> dict[str, object]:
    judged = None if estimate is None else 1.0
    return {"name": "m", "estimates": [{"label": "x", "estimate": estimate, "truth": truth, "judged_error": judged}]}


def test_the_verdict_fails_an_estimate_too_far_from_its_truth() -> None:
    ok, text = result._verdict([ROUND], [_metric(10.0, 5.0)], [_device()], {"d": 1})
    assert ok
    assert text.startswith("OK: 1 of 1 rounds released 9 reports")
    ok, text = result._verdict([ROUND], [_metric(10.1, 5.0)], [_device()], {"d": 1})
    assert not ok
    assert "5.1 standard errors" in text


def test_the_verdict_fails_where_nothing_was_released() -> None:
    ok, text = result._verdict(
        [{"outcome": "aborted", "contributors": 0}], [_metric(None, None)], [_device()], {"d": 0}
    )
    assert not ok
    assert "nothing was released" in text


def test_the_verdict_fails_where_a_device_booked_less_than_the_collector() -> None:
    ok, text = result._verdict([ROUND], [_metric(5.0, 5.0)], [_device(spent=1)], {"d": 2})
    assert not ok
    assert "booked less" in text


def test_a_plans_registrar_gives_way_to_the_demos(plan: Plan) -> None:
    assert run.with_registrar(plan, KEY) is plan
    other = IdentityKey(b"o" * 32).public_key.hex()
    for key in (other, other.upper()):
        table = f'[registrar]  # of {key}\naddress = "r.example:7444"\nkey = "{key}"\n'
        changed = run.with_registrar(parse_plan(CSV_PLAN + table), KEY)
        assert changed.registrar == Registrar("r.example:7444", KEY)
        assert parse_plan(changed.text) == changed
        assert list(changed.metrics) == list(plan.metrics)
    escaped = f'[registrar]\naddress = "r.example:7444"\nkey = "\\u{ord(other[0]):04x}{other[1:]}"\n'
    with pytest.raises(ConfigurationError, match=r"--plan: .*\[registrar\]"):
        run.with_registrar(parse_plan(CSV_PLAN + escaped), KEY)


def test_a_folder_that_may_not_be_used_is_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"--out .*file"), demo_folder(tmp_path / "file"):
        pass
    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(MachineError, match=r"--out .*Permission denied"), demo_folder(tmp_path / "out"):
        pass
