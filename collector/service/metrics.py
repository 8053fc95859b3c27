"""Prometheus metrics: which there are, and the page that a scrape gets.

Rules of this file:
- metrics are about the service, never about values: no device, address, round, plan or total is a label, and each
  label's values are a fixed vocabulary, so that the number of series cannot be driven from outside;
- every series of a counter is there from the start, at 0, so that its first event is an increase that alerts see;
- one truth: numbers are read from `monitoring` at the scrape, the same that `GetCounters` tells. Nothing is counted
  twice, and a collector that nobody scrapes pays nothing.
What it does not do: it opens no port (`metrics_http` does). A name that stands here never gets another meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from client_sdk.errors import AbortReason, RejectionReason
from collector.secagg.blame import Fault
from collector.service import monitoring as m
from collector.service.monitoring import IDENTITY_FULL, Monitor
from collector.service.storage_errors import StoreProblem
from collector.service.storage_rows import DROPOUT_STEPS

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Gauges = Mapping[str, float]
"""Values of the moment by metric name; one that is not known is left out."""


@dataclass(frozen=True, slots=True)
class Counter:
    """series: the labels' values -> the name under which `Monitor` counts it."""

    name: str
    help: str
    series: Mapping[tuple[str, ...], str]
    labels: tuple[str, ...] = ()

    def family(self, monitor: Monitor, _gauges: Gauges) -> Family:
        """What a scrape gets of it."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name.removesuffix("_total"), self.help, labels=self.labels)
        for values, counted in self.series.items():
            family.add_metric(values, monitor.counted(counted))
        return family


@dataclass(frozen=True, slots=True)
class Histogram:
    """measured: the name under which `Monitor` measures it, one series for each of `values`."""

    name: str
    help: str
    measured: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ("",)

    def family(self, monitor: Monitor, _gauges: Gauges) -> Family:
        """What a scrape gets of it."""
        from prometheus_client.core import HistogramMetricFamily
        from prometheus_client.utils import floatToGoString

        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for value in self.values:
            seen = monitor.histogram(self.measured, value)
            if self.labels and not any(seen.counts):
                continue  # a latency of nothing alerts nobody, and a class is a series
            bounds = [*map(floatToGoString, seen.bounds), "+Inf"]
            buckets = list(zip(bounds, map(float, accumulate(seen.counts)), strict=True))
            family.add_metric([value] if self.labels else [], buckets, seen.total)
        return family


@dataclass(frozen=True, slots=True)
class Gauge:
    """A value of the moment, from whoever knows it."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def family(self, _monitor: Monitor, gauges: Gauges) -> Family:
        """What a scrape gets of it."""
        from prometheus_client.core import GaugeMetricFamily

        return GaugeMetricFamily(self.name, self.help, value=gauges.get(self.name))


Metric = Counter | Histogram | Gauge


def _one(counted: str) -> dict[tuple[str, ...], str]:
    return {(): counted}


def _by(prefix: str, values: Sequence[str]) -> dict[tuple[str, ...], str]:
    return {(value,): f"{prefix}.{value}" for value in values}


CERTIFICATE_REASONS: Final = ("malformed", "wrong_identity", "wrong_role", "expired", "bad_signature", "revoked")
HOUSEKEEPING: Final = ("spends", "contributions", "rounds")

REJECTIONS: Final = Counter(
    "ldp_rejections_total",
    "Messages and participants that were refused, by reason",
    _by("rejections", [reason.value for reason in RejectionReason]),
    ("reason",),
)
CERTIFICATES: Final = Counter(
    "ldp_certificate_rejections_total",
    "Certificates that were refused, by which check failed",
    _by("certificates", CERTIFICATE_REASONS),
    ("reason",),
)
OUTAGES: Final = Counter(
    "ldp_outages_total",
    "Outages of the store that began, by what was wrong with it",
    _by("outages", [problem.value for problem in StoreProblem]),
    ("problem",),
)
DATABASE_SECONDS: Final = Histogram(
    "ldp_database_seconds",
    "Time that the store took for one call, without waiting for the calls before it",
    m.DATABASE_SECONDS,
    ("operation",),
    tuple(sorted(m.OPERATIONS)),
)
SHARED: Final[tuple[Metric, ...]] = (
    Gauge("ldp_serving", "1 where a device that came now could be served; 0 in an outage and when draining"),
    Gauge("ldp_database_up", "1 unless the store is in an outage"),
    Gauge("ldp_tls_certificate_expiry_timestamp_seconds", "When the served TLS certificate ends, by its own word"),
    REJECTIONS,
    CERTIFICATES,
    OUTAGES,
    DATABASE_SECONDS,
)

COLLECTOR: Final[tuple[Metric, ...]] = (
    Counter(
        "ldp_rounds_total",
        "Rounds that ended: released with a sum, or aborted without one and why",
        {
            ("released", "none"): "rounds.released",
            **{("aborted", reason.value): f"aborts.{reason.value}" for reason in AbortReason},
        },
        ("outcome", "reason"),
    ),
    Counter(
        "ldp_dropouts_total",
        "Participants that left a round without sending that step's message",
        _by("dropouts", DROPOUT_STEPS),
        ("step",),
    ),
    Counter(
        "ldp_contributions_total",
        "Reports that were stored in a sum and acknowledged, by how they came",
        {("interactive",): "contributors", ("direct",): "contributors.direct"},
        ("delivery",),
    ),
    Counter(
        "ldp_blames_total",
        "Participants that broke a round's rules provably, by what they did",
        _by("blamed", [fault.value for fault in Fault]),
        ("what",),
    ),
    Counter("ldp_direct_sums_total", "Sums that were stored of reports that came unmasked", _one("direct.sums")),
    Counter(
        "ldp_direct_identity_full_total",
        "Unmasked reports that were put off for what their own device had on its way already",
        _one(IDENTITY_FULL),
    ),
    Counter("ldp_joins_total", "Participants that proved their identity and joined", _one("joins")),
    Counter(
        "ldp_come_backs_total", "Participants whose cohort stayed too small, told when to come back", _one("come_back")
    ),
    Counter("ldp_already_counted_total", "Joins for a report that a sum counts already", _one("already_counted")),
    Counter("ldp_streams_total", "Participants' streams that were opened", _one("streams.total")),
    Counter("ldp_documents_total", "Reports and ledgers that were read over the network", _one("documents")),
    Counter(
        "ldp_deletions_total",
        "Devices that opted out: the first request of each, and repeats",
        {("first",): "deletions", ("repeated",): "deletions_repeated"},
        ("request",),
    ),
    Counter(
        "ldp_housekeeping_rows_total",
        "Rows that housekeeping folded or dropped, by table",
        _by("housekeeping", HOUSEKEEPING),
        ("table",),
    ),
    Counter("ldp_housekeeping_failures_total", "Housekeeping runs that failed", _one("housekeeping.failures")),
    Histogram("ldp_cohort_size", "Contributors of each released sum", m.COHORT_SIZE),
    Histogram("ldp_round_seconds", "From a round's forming to its release", m.ROUND_SECONDS),
    Histogram("ldp_step_seconds", "How long a round's step took", m.STEP_SECONDS, ("step",), DROPOUT_STEPS),
    Histogram("ldp_opening_seconds", "Time to open one sum, queueing for a worker included", m.OPENING_SECONDS),
    Histogram(
        "ldp_device_clock_skew_seconds",
        "How far devices' clocks are ahead of this one, from times that proven devices sent",
        m.CLOCK_SKEW_SECONDS,
    ),
    Gauge("ldp_streams_open", "Participants' streams that are open"),
    Gauge("ldp_waiting_devices", "Participants that wait for a cohort"),
    Gauge("ldp_running_rounds", "Rounds that are between their roster and their end"),
    Gauge("ldp_housekeeping_last_success_timestamp_seconds", "When housekeeping last succeeded in this process"),
    *SHARED,
)
"""What a collector shows, beside `ldp_build_info` and the process's own."""

REGISTRAR: Final[tuple[Metric, ...]] = (
    Counter(
        "ldp_certificates_issued_total",
        "Certificates that were issued: for a token, or for an earlier certificate",
        {("enrolled",): "enrolled", ("renewed",): "renewed"},
        ("how",),
    ),
    *SHARED,
)
"""What a registrar shows, beside the same."""

BUILD_INFO: Final = "ldp_build_info"
NAMES: Final = frozenset({BUILD_INFO, *(metric.name for metric in (*COLLECTOR, *REGISTRAR))})
"""Every metric of ours."""

SAMPLES: Final = NAMES | {
    f"{metric.name}{suffix}"
    for metric in (*COLLECTOR, *REGISTRAR)
    if isinstance(metric, Histogram)
    for suffix in ("_bucket", "_sum", "_count")
}
"""What rules and dashboards may ask for by name."""


class Page:
    """The scrape's page over one service. Made and asked on the event loop, like the monitor it reads.

    gauges: asked at every scrape. Raises ModuleNotFoundError where prometheus-client is missing.
    """

    def __init__(self, metrics: Sequence[Metric], monitor: Monitor, gauges: Callable[[], Gauges], version: str) -> None:
        from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

        self._metrics = tuple(metrics)
        self._monitor = monitor
        self._gauges = gauges
        self._version = version
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self)

    def describe(self) -> list[Family]:
        """Nothing ahead of a scrape: that no name comes twice, a test sees."""
        return []

    def collect(self) -> Iterator[Family]:
        """Every family as of now."""
        from prometheus_client.core import GaugeMetricFamily

        build = GaugeMetricFamily(BUILD_INFO, "1, with the version as its label", labels=("version",))
        build.add_metric((self._version,), 1)
        yield build
        gauges = self._gauges()
        for metric in self._metrics:
            if not isinstance(metric, Gauge) or metric.name in gauges:
                yield metric.family(self._monitor, gauges)

    def text(self) -> bytes:
        """The text format, UTF-8."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)
