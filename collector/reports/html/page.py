"""A report as one HTML file: no script, nothing loaded, readable offline, on a phone and in the dark.

Rules of this file: every text comes from the template with escaping on, and stands between tags, never in an attribute,
a style or an address; ids are made of numbers. The page allows itself one style, by its digest, and nothing else. What
is shown of a document is bounded, whatever its size, and the page says what it leaves out. The same documents give the
same bytes: there is no clock in here.
What it does not do: it reads no file; template and style come in as texts, and are the project's own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from client_sdk.errors import MissingExtraError
from client_sdk.mechanisms.verdict import RULE
from collector.reports.html import beside, views
from collector.reports.series import series_of
from collector.reports.shown import COHORT_NOTE, NOTE
from collector.reports.text import printable

MOST_CHARACTERS: Final = 400
"""Of one name."""


@dataclass(frozen=True, slots=True)
class PageData:
    """report: over all windows. header: of the windows, and they themselves, taken one at a time (`windowed`).

    cohorts: `cohorts_by_window`; fleet: `with_windows(fleet_privacy(...))`; None where they could not be read.
    left_out: windows before these that are not shown.
    """

    report: Mapping[str, Any]
    header: Mapping[str, Any]
    windows: Iterable[Mapping[str, Any]]
    cohorts: Mapping[str, Any] | None = None
    fleet: Mapping[str, Any] | None = None
    left_out: int = 0


def html_report(data: PageData, template: str, style: str) -> str:
    """The page. Raises MissingExtraError, and ValueError for a style that would end before its end."""
    if "</" in style:
        raise ValueError("a style with an end tag in it")
    labels, series = series_of(data.report, data.windows, most_labels=views.MOST_PANELS)
    page = {
        "style": style,
        "policy": policy(style),
        "report": data.report,
        "header": data.header,
        "left_out": data.left_out,
        "metrics": [views.metric_view(one, labels, place) for place, one in enumerate(series[: views.MOST_METRICS])],
        "more_metrics": max(0, len(series) - views.MOST_METRICS),
        "windows": labels,
        "cohorts": None if data.cohorts is None else beside.cohorts_view(data.cohorts),
        "fleet": None if data.fleet is None else beside.fleet_view(data.fleet),
        "notes": [NOTE, COHORT_NOTE, f"Verdicts: {RULE}."],
    }
    return str(_environment(template).render(page))


def policy(style: str) -> str:
    """What a browser may do with the page: apply this very style, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _environment(template: str) -> Any:
    try:
        import jinja2
    except ModuleNotFoundError:
        raise MissingExtraError("a page", "reports") from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["seen"] = seen
    return environment.from_string(template)


def seen(text: object) -> str:
    """A name as it can be seen: what moves or hides text is written out, and a very long one is cut."""
    shown = printable(str(text))
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]}…"
