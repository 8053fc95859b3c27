"""Answers to one question about a report: whole, by windows, and what a page shows beside it.

Rules of this file: what is read of a store is read once for all answers; whoever reads (a store, an export by an
engine) is a `Reading`, and a running collector answers for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from client_sdk.wire.messages import GetPrivacyRequest, GetReportRequest
from client_sdk.wire.methods import GET_PRIVACY_METHOD, GET_REPORT_METHOD
from collector.reduced import Reduced
from collector.reports import build_report
from collector.reports.cohorts import RoundsOfPeriod, cohorts_by_window
from collector.reports.privacy import LIFETIME
from collector.reports.windows import Window
from collector.service.remote import Remote, fetch, wrong_question
from collector.service.report_windows import Question, Windowed, Zone, finest, from_collector, from_sums

MOST_POINTS: Final = 400
"""Windows of a page: a chart has no room for more."""


class Reading(Protocol):
    """One way to what is stored."""

    def sums(self, question: Question) -> tuple[Sequence[Plan], Reduced]:
        """Every plan, and the sums of the periods and the metric that are asked for."""

    def rounds(self, question: Question) -> Sequence[RoundsOfPeriod]:
        """Finished rounds of those periods, whatever the metric."""

    def fleet(self) -> Mapping[str, Any] | None:
        """What the devices have spent in their lives, in all views; None: they are left out."""


class Answers(Protocol):
    """To one question."""

    def report(self) -> Mapping[str, Any]:
        """Over all periods."""

    def windowed(self, by: str | None, zone: Zone, *, numbers_only: bool = False) -> Windowed:
        """By windows; None: by the shortest that a chart has room for. numbers_only: no more than a chart needs."""

    def cohorts(self, windows: Sequence[Window]) -> Mapping[str, Any] | None:
        """Sizes and dropouts in all periods and in these windows; None: they cannot be read from here."""

    def fleet(self) -> Mapping[str, Any] | None:
        """What the devices have spent; None: it cannot be read from here."""


class LocalAnswers:
    """From what is stored."""

    def __init__(self, reading: Reading, question: Question) -> None:
        self._reading = reading
        self._question = question

    @cached_property
    def _sums(self) -> tuple[Sequence[Plan], Reduced]:
        return self._reading.sums(self._question)

    @property
    def plans(self) -> Sequence[Plan]:
        """All that the store has."""
        return self._sums[0]

    def report(self) -> Mapping[str, Any]:
        q = self._question
        return build_report(*self._sums, q.since, q.until, q.metric, q.false_devices)

    def windowed(self, by: str | None, zone: Zone, *, numbers_only: bool = False) -> Windowed:
        by = by or finest(*self._sums, zone, self._question, MOST_POINTS)
        return from_sums(*self._sums, by, zone, self._question, numbers_only=numbers_only)

    def cohorts(self, windows: Sequence[Window]) -> Mapping[str, Any]:
        return cohorts_by_window(self._reading.rounds(self._question), windows)

    def fleet(self) -> Mapping[str, Any] | None:
        return self._reading.fleet()


class RemoteAnswers:
    """From a running collector, asked once for each. It keeps rounds to itself.

    false_devices: as it was given.
    """

    def __init__(self, remote: Remote, question: Question, false_devices: str) -> None:
        if question.until is not None and question.until <= 0:
            raise ConfigurationError("--until: nothing was collected before 1970")
        self._remote = remote
        self._question = question
        self._false_devices = false_devices

    def report(self) -> Mapping[str, Any]:
        return self._fetched(self._question.since, self._question.until)

    def _fetched(self, since: int | None, until: int | None) -> Mapping[str, Any]:
        with wrong_question():
            metric = self._question.metric or ""
            request = GetReportRequest(metric, max(since or 0, 0), until or 0, self._false_devices)
            return fetch(self._remote, GET_REPORT_METHOD, request)

    def windowed(self, by: str | None, zone: Zone, *, numbers_only: bool = False) -> Windowed:  # noqa: ARG002
        def build(window: Window) -> Mapping[str, Any]:
            return self._fetched(window.since, window.until)

        if by is None:  # a page without windows
            return Windowed({"by": "day", "zone": zone.name, "straddling": None}, (), build)
        return from_collector(build, by, zone, self._question)

    def cohorts(self, windows: Sequence[Window]) -> None:  # noqa: ARG002 - see the class
        return None

    def fleet(self) -> Mapping[str, Any]:
        with wrong_question():
            return fetch(self._remote, GET_PRIVACY_METHOD, GetPrivacyRequest(window=LIFETIME))
