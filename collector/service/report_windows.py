"""Where the windows of a report come from: sums at hand, or a running collector that is asked for one after the other.

Rules of this file: zones are looked up in here, and by name only; sums are read once, so all windows of a store are of
one moment. Over the network each window is a question of its own, and right by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from collector.reduced import Reduced
from collector.reports import build_report
from collector.reports.windowed import Build, builder, starts_of, windowed, windowed_header
from collector.reports.windows import Window, calendar_windows, windows_of

UTC_NAME: Final = "UTC"

FINEST_FIRST: Final = ("day", "week", "month")

MOST_ROWS: Final = 1_000_000
"""Of all windows that nobody asked for: about half a minute."""

NO_PERIOD: Final = Window("", 1, 1)
"""An empty window, to ask what is known without any."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone and the name that it was asked for by."""

    name: str = UTC_NAME
    rules: tzinfo = field(default=UTC, repr=False)


def zone_of(name: str) -> Zone:
    """Raises ConfigurationError."""
    if name == UTC_NAME:  # which needs no files
        return Zone()
    try:
        return Zone(name, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"--zone {name[:64]!r}: no such zone on this machine; give a name such as Europe/Zurich (where no name is "
            "known, the `reports` extra brings them)"
        ) from None


@dataclass(frozen=True, slots=True)
class Question:
    """What a report is asked for: which metric, which periods, how many contributors may be false."""

    metric: str | None
    since: int | None
    until: int | None
    false_devices: Fraction | int


@dataclass(frozen=True, slots=True)
class Windowed:
    """A report by windows: what stands before them, they themselves, and who makes the report of each."""

    header: Mapping[str, Any]
    windows: Sequence[Window]
    build: Build = field(repr=False)

    def documents(self) -> Iterator[dict[str, Any]]:
        """One at a time."""
        return windowed(self.build, self.windows)

    def last(self, most: int) -> Windowed:
        """Its last `most` windows."""
        return Windowed(self.header, self.windows[-most:], self.build)


def from_sums(
    plans: Sequence[Plan], reduced: Reduced, by: str, zone: Zone, question: Question, *, numbers_only: bool = False
) -> Windowed:
    """reduced: of the periods that are asked for. numbers_only: what a chart needs, see `builder`.

    Raises UnknownMetricError, and ConfigurationError for too many windows.
    """
    build_report(plans, (), metric=question.metric)  # a metric that no plan has is refused without a window, too
    starts = starts_of(reduced, question.metric)
    windows = windows_of(by, zone.rules, plans, starts, question.since, question.until)
    header = windowed_header(by, zone.name, plans, starts, windows)
    build = builder(plans, reduced, windows, question.metric, question.false_devices, numbers_only=numbers_only)
    return Windowed(header, windows, build)


def finest(plans: Sequence[Plan], reduced: Reduced, zone: Zone, question: Question, most: int) -> str:
    """`day`, or what makes the shortest windows of which there are no more than `most`, and which have no more than
    MOST_ROWS rows together; else `month`.
    """
    starts, rows = starts_of(reduced, question.metric), _rows_of(plans, question.metric)
    for by in FINEST_FIRST[:-1]:
        try:
            windows = windows_of(by, zone.rules, plans, starts, question.since, question.until)
        except ConfigurationError:
            continue
        if len(windows) <= most and len(windows) * rows <= MOST_ROWS:
            return by
    return FINEST_FIRST[-1]


def _rows_of(plans: Sequence[Plan], metric: str | None) -> int:
    """About how many a report of one window has: those of the newest versions."""
    newest = {plan.name: plan for plan in sorted(plans, key=lambda plan: plan.version)}
    metrics = (each for plan in newest.values() for name, each in plan.metrics.items() if metric in (None, name))
    return sum(len(each.mechanism.labels) for each in metrics)


def from_collector(build: Build, by: str, zone: Zone, question: Question) -> Windowed:
    """build: asks a running collector, which tells neither its periods nor one version's sums alone. Raises
    ConfigurationError.
    """
    if by == "version":
        raise ConfigurationError("--by version needs the store: give --db")
    if question.since is None or question.until is None:
        raise ConfigurationError(f"--by {by} with --server needs --since and --until: say which windows to ask for")
    if question.since < 0:
        raise ConfigurationError("--since: nothing was collected before 1970")
    last = question.until - 1
    windows = calendar_windows(by, zone.rules, question.since, last, cut=(question.since, question.until))
    plans = build(NO_PERIOD)["plans"]  # and a metric that no plan has is refused
    # how long periods are, no document says
    header = {**windowed_header(by, zone.name, (), {}, windows), "plans": plans, "straddling": None}
    return Windowed(header, windows, build)
