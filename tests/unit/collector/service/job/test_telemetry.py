"""Gauges at an OTLP receiver: a real one, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from collector.reports.gauges import MOST_SERIES, Gauge
from collector.service.job import telemetry
from collector.service.job.telemetry import TelemetryDownError, send, to_text

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs the otel extra")

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service


class Receiver(service.MetricsServiceServicer):
    def __init__(self) -> None:
        self.got: list[Any] = []
        self.code: grpc.StatusCode | None = None

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - its name in the proto
        if self.code is not None:
            context.abort(self.code, "no")
        self.got.append(request)
        return messages.ExportMetricsServiceResponse()


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    found = Receiver()
    server = grpc.server(ThreadPoolExecutor(2))
    service.add_MetricsServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]  # generated
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield found, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


def points(found: Receiver) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    all_of: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for request in found.got:
        for metric in request.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.gauge.data_points:
                key = tuple(sorted((one.key, one.value.string_value) for one in point.attributes))
                all_of.setdefault(metric.name, {})[key] = point.as_double or float(point.as_int)
    return all_of


def test_it_gets_what_prometheus_gets(receiver: tuple[Receiver, str]) -> None:
    found, endpoint = receiver
    gauge = Gauge("ldp_report_estimate", "What.", ("label", "metric"), [(('"a"\\\n', "m"), -2.5), (("b", "m"), 0.25)])
    assert send(to_text([gauge]), endpoint) == 2
    assert points(found) == {
        "ldp_report_estimate": {(("label", '"a"\\\n'), ("metric", "m")): -2.5, (("label", "b"), ("metric", "m")): 0.25}
    }
    resource = {one.key: one.value.string_value for one in found.got[0].resource_metrics[0].resource.attributes}
    assert resource["service.name"] == "ldp-telemetry"


def test_as_many_series_as_there_may_be_keep_their_names(receiver: tuple[Receiver, str]) -> None:
    found, endpoint = receiver
    gauges = [Gauge(f"g{i}", "x", ("label",), [((f"c{j}",), float(j + 1)) for j in range(MOST_SERIES)]) for i in (0, 1)]
    assert send(to_text(gauges), endpoint) == 2 * MOST_SERIES
    wanted = {(("label", f"c{j}"),): float(j + 1) for j in range(MOST_SERIES)}
    assert points(found) == {"g0": wanted, "g1": wanted}


def test_a_receiver_that_refuses_or_is_away_is_said(
    receiver: tuple[Receiver, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, endpoint = receiver
    found.code = grpc.StatusCode.PERMISSION_DENIED
    text = to_text([Gauge("g", "x", ("label",), [(("a",), 1.0)])])
    with pytest.raises(TelemetryDownError, match="did not take the gauges; the next run sends them"):
        send(text, endpoint)
    monkeypatch.setattr(telemetry, "TIMEOUT_S", 1.0)
    with pytest.raises(TelemetryDownError):
        send(text, "http://127.0.0.1:9")
