"""A report as a page: its template and its style are files of the package, read in here."""

from __future__ import annotations

from importlib import resources
from typing import Final

from collector.reports.html import PageData, html_report
from collector.service.report_answers import MOST_POINTS, Answers
from collector.service.report_windows import Zone

PACKAGE: Final = "collector.reports.html"


def page(answers: Answers, by: str | None, zone: Zone) -> str:
    """Of all that there is. Raises MissingExtraError, and what reading it raises."""
    report = answers.report()
    windowed = answers.windowed(by, zone, numbers_only=True)
    shown = windowed.last(MOST_POINTS)
    data = PageData(
        report=report,
        header=windowed.header,
        windows=shown.documents(),
        cohorts=answers.cohorts(shown.windows),
        fleet=answers.fleet(),
        left_out=len(windowed.windows) - len(shown.windows),
    )
    return html_report(data, _text("report.html.j2"), _text("report.css"))


def _text(name: str) -> str:
    return resources.files(PACKAGE).joinpath(name).read_text(encoding="utf-8")
