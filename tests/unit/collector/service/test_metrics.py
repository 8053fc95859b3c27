"""Prometheus: names, fixed vocabularies, and the page itself, read back by prometheus-client's own parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from client_sdk.errors import AbortReason, RejectionReason
from collector.secagg.blame import Fault
from collector.service import metrics, monitoring
from collector.service.metrics import COLLECTOR, NAMES, REGISTRAR, SAMPLES, Counter, Gauge, Histogram, Page
from collector.service.monitoring import BOUNDS, Monitor
from collector.service.storage_errors import StoreProblem

ROOT = Path(__file__).resolve().parents[4]
NO_DROPOUTS = {"shares": 0, "masked_input": 0, "confirm": 0, "unmask": 0}


def samples(page: Page) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(page.text().decode()) for sample in family.samples]


def value(page: Page, name: str, **labels: str) -> float:
    found = [sample.value for sample in samples(page) if sample.name == name and sample.labels == labels]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def collector_page(monitor: Monitor, **gauges: float) -> Page:
    return Page(COLLECTOR, monitor, lambda: gauges, "1.2.3")


def test_every_metric_has_one_name_of_the_right_kind() -> None:
    for kind in (COLLECTOR, REGISTRAR):
        names = [metric.name for metric in kind]
        assert len(set(names)) == len(names)
        for metric in kind:
            assert metric.name.startswith("ldp_")
            assert metric.help
            assert metric.name.endswith("_total") is isinstance(metric, Counter)
    both = {metric.name: metric for metric in REGISTRAR} | {metric.name: metric for metric in COLLECTOR}
    assert all(both[metric.name] == metric for metric in REGISTRAR), "one meaning in both services"
    assert {"ldp_build_info", *both} == NAMES
    assert {"ldp_step_seconds_bucket", "ldp_step_seconds_count", "ldp_rounds_total"} <= SAMPLES


def test_every_reason_has_its_series_from_the_start() -> None:
    page = collector_page(Monitor())
    found = {(s.name, tuple(s.labels.values())): s.value for s in samples(page) if s.name.endswith("_total")}
    for reason in AbortReason:
        assert found["ldp_rounds_total", ("aborted", reason.value)] == 0
    assert found["ldp_rounds_total", ("released", "none")] == 0
    for rejection in RejectionReason:
        assert found["ldp_rejections_total", (rejection.value,)] == 0
    for problem in StoreProblem:
        assert found["ldp_outages_total", (problem.value,)] == 0
    for fault in Fault:
        assert found["ldp_blames_total", (fault.value,)] == 0
    for step in NO_DROPOUTS:
        assert found["ldp_dropouts_total", (step,)] == 0


def test_what_the_monitor_counts_is_what_the_page_says() -> None:
    monitor = Monitor()
    page = collector_page(monitor)
    monitor.round_released(57, NO_DROPOUTS | {"confirm": 2}, 3.5)
    monitor.round_released(100, NO_DROPOUTS, 0.2)
    monitor.round_aborted(AbortReason.TOO_FEW_SHARERS, NO_DROPOUTS | {"shares": 9}, 30.0)
    monitor.rejected(RejectionReason.LATE)
    monitor.rejected(StoreProblem.FULL)
    monitor.blamed([Fault.WRONG_SHARE.value])
    monitor.direct_stored(7)
    monitor.count(monitoring.IDENTITY_FULL, 2)
    monitor.count("outages.full")
    monitor.count("certificates.expired", 3)
    assert value(page, "ldp_rounds_total", outcome="released", reason="none") == 2
    assert value(page, "ldp_rounds_total", outcome="aborted", reason="too_few_sharers") == 1
    assert value(page, "ldp_contributions_total", delivery="interactive") == 157
    assert value(page, "ldp_contributions_total", delivery="direct") == 7
    assert value(page, "ldp_direct_sums_total") == 1
    assert value(page, "ldp_direct_identity_full_total") == 2
    assert value(page, "ldp_dropouts_total", step="confirm") == 2
    assert value(page, "ldp_dropouts_total", step="shares") == 9
    assert value(page, "ldp_rejections_total", reason="late") == 1
    assert value(page, "ldp_rejections_total", reason="storage") == 1
    assert value(page, "ldp_blames_total", what="wrong_share") == 1
    assert value(page, "ldp_outages_total", problem="full") == 1
    assert value(page, "ldp_certificate_rejections_total", reason="expired") == 3
    assert value(page, "ldp_build_info", version="1.2.3") == 1


def test_a_histogram_is_cumulative_and_a_bound_belongs_to_its_class() -> None:
    monitor = Monitor()
    page = collector_page(monitor)
    for seconds in (0.0005, 0.001, 0.0011, 7.0, 99.0):
        monitor.database("standings", seconds)
    of = {"operation": "standings"}
    assert value(page, "ldp_database_seconds_bucket", le="0.001", **of) == 2
    assert value(page, "ldp_database_seconds_bucket", le="0.0025", **of) == 3
    assert value(page, "ldp_database_seconds_bucket", le="10.0", **of) == 4
    assert value(page, "ldp_database_seconds_bucket", le="+Inf", **of) == 5
    assert value(page, "ldp_database_seconds_count", **of) == 5
    assert value(page, "ldp_database_seconds_sum", **of) == pytest.approx(106.0026)


def test_skew_has_classes_on_both_sides() -> None:
    monitor = Monitor()
    page = collector_page(monitor)
    for seconds in (-200.0, -3.0, 0.5, 400.0):
        monitor.observe(monitoring.CLOCK_SKEW_SECONDS, seconds)
    assert value(page, "ldp_device_clock_skew_seconds_bucket", le="-120.0") == 1
    assert value(page, "ldp_device_clock_skew_seconds_bucket", le="0.0") == 2
    assert value(page, "ldp_device_clock_skew_seconds_bucket", le="300.0") == 3
    assert value(page, "ldp_device_clock_skew_seconds_bucket", le="+Inf") == 4


def test_labels_come_from_fixed_vocabularies_whatever_is_counted() -> None:
    """Somebody who found a way to a counter's name would still add no series and no text of their own."""
    monitor = Monitor()
    page = collector_page(monitor)
    before = {(sample.name, *sample.labels.values()) for sample in samples(page)}
    monitor.count('rejections.evil"} 1\n')
    monitor.count("aborts.0123456789abcdef0123456789abcdef")
    monitor.count("blamed.somebody")
    monitor.database("drop table", 0.1)
    after = {(sample.name, *sample.labels.values()) for sample in samples(page)}
    added = {sample[1] for sample in after - before if sample[0].startswith("ldp_")}
    assert added == {"other"} | {s[1] for s in after - before if s[0] == "ldp_database_seconds_bucket"}
    assert "evil" not in page.text().decode()
    assert "0123456789abcdef" not in page.text().decode()


def test_every_bound_rises_and_every_measure_is_shown() -> None:
    assert all(list(bounds) == sorted(set(bounds)) for bounds in BOUNDS.values())
    shown = {metric.measured for metric in COLLECTOR if isinstance(metric, Histogram)}
    assert shown == set(BOUNDS)


def test_gauges_that_nobody_knows_are_left_out() -> None:
    monitor = Monitor()
    names = {sample.name for sample in samples(collector_page(monitor, ldp_serving=1.0))}
    assert "ldp_serving" in names
    assert "ldp_tls_certificate_expiry_timestamp_seconds" not in names
    every = {metric.name: 2.0 for metric in COLLECTOR if isinstance(metric, Gauge)}
    page = collector_page(monitor, **every)
    assert all(value(page, name) == 2 for name in every)


def test_the_process_is_on_the_page_and_the_number_of_series_is_small() -> None:
    monitor = Monitor()
    page = collector_page(monitor)
    names = {sample.name for sample in samples(page)}
    assert {"process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"} <= names
    for operation in monitoring.OPERATIONS:
        monitor.database(operation, 0.1)
    for step in NO_DROPOUTS:
        monitor.observe(monitoring.STEP_SECONDS, 1.0, step)
    assert len(samples(page)) < 600


def test_the_registrars_page() -> None:
    monitor = Monitor()
    page = Page(REGISTRAR, monitor, dict, "1")
    monitor.count("enrolled", 4)
    assert value(page, "ldp_certificates_issued_total", how="enrolled") == 4
    assert not [sample for sample in samples(page) if sample.name.startswith("ldp_rounds")]


def test_the_command_line_does_without_prometheus_and_structlog() -> None:
    """Also with the names of all metrics at hand, which deployments' tests want."""
    code = (
        "import sys; from collector.service import cli, metrics, cli_serve\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('prometheus_client', 'structlog', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ModuleNotFoundError, match="prometheus_client"):
        Page(metrics.COLLECTOR, Monitor(), dict, "1")
