"""Gauges on their way out: as Prometheus' text, by its own client, and to an OTLP receiver, by OpenTelemetry's.

Rules of this file: what is sent is what stands in the text, read back by the client's own parser, so both say the same.
The text has no time in it; whoever scrapes it adds one. Sending keeps nothing: a receiver that was away gets the gauges
of the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from client_sdk.errors import TelemetryError
from collector.reports.gauges import Gauge
from collector.service.versions import installed_version

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

TIMEOUT_S: Final = 30.0
SCOPE: Final = "ldp_telemetry.job"
BATCH: Final = 2_000
"""Series of one message."""


class TelemetryDownError(TelemetryError):
    """The receiver did not take the gauges."""


def to_text(gauges: Sequence[Gauge]) -> bytes:
    """As the node exporter's textfile collector reads it."""
    import prometheus_client as prometheus

    registry = prometheus.CollectorRegistry(auto_describe=False)
    for gauge in gauges:
        family = prometheus.Gauge(gauge.name, gauge.text, gauge.labels, registry=registry)
        for labels, value in gauge.series:
            family.labels(*labels).set(value)
    return bytes(prometheus.generate_latest(registry))


def families_of(text: bytes) -> list[Metric]:
    """What `to_text` wrote."""
    from prometheus_client.parser import text_string_to_metric_families

    return list(text_string_to_metric_families(text.decode("utf-8")))


def send(text: bytes, endpoint: str) -> int:
    """How many series the receiver took. endpoint: http:// or https://, gRPC. Raises TelemetryDownError.

    What else the exporter needs (headers, certificates) it reads from its own OTEL_EXPORTER_OTLP_* variables.
    """
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult

    families, reader = families_of(text), InMemoryMetricReader()
    provider = _provider(reader, families)
    exporter = OTLPMetricExporter(endpoint, timeout=TIMEOUT_S, max_export_batch_size=BATCH)
    try:
        data = reader.get_metrics_data()
        if data is not None and exporter.export(data) is not MetricExportResult.SUCCESS:
            raise TelemetryDownError(f"otlp {endpoint}: the receiver did not take the gauges; the next run sends them")
    finally:
        exporter.shutdown()
        provider.shutdown()
    return sum(len(family.samples) for family in families)


def _provider(reader: Any, families: Sequence[Metric]) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    resource = Resource({"service.name": "ldp-telemetry", "service.version": installed_version()})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter(SCOPE)
    for family in families:
        gauge = meter.create_gauge(family.name, description=family.documentation)
        for sample in family.samples:
            gauge.set(sample.value, sample.labels)
    return provider
