"""What the page shows beside estimates: the cohorts that they come from, and what they have cost the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collector.reports.fleet import EPSILONS, QUANTILES
from collector.reports.html import charts
from collector.reports.html.views import UNKNOWN, said
from collector.reports.privacy import as_plain, rounded_up
from collector.reports.series import Line, Point
from collector.reports.text import plain

# --- cohorts ----------------------------------------------------------------------------------------


def cohorts_view(cohorts: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes and dropouts, in words, in two charts and as a table."""
    windows = cohorts["windows"]
    labels = [window["window"] for window in windows]
    sizes = [Point(w["contributors"], w["mean"], None, w["smallest"], w["largest"], charts.USABLE) for w in windows]
    lost = [Point(w["joined"], _lost(w), verdict=charts.USABLE) for w in windows]
    return {
        "counts": cohorts,
        "lost": "" if (share := _lost(cohorts)) is None else f"{share:.2g} %",
        "mean": UNKNOWN if cohorts["mean"] is None else f"{cohorts['mean']:,.1f}",
        "dropouts": [(step.replace("_", " "), f"{count:,}") for step, count in cohorts["dropouts"].items()],
        "reasons": [(reason.replace("_", " "), f"{count:,}") for reason, count in cohorts["reasons"].items()],
        "panels": []
        if len(labels) < 2
        else [
            _cohort_panel("Contributors of a cohort", "smallest, mean and largest", labels, sizes, ""),
            _cohort_panel("Lost on the way", "% of those who joined", labels, lost, "%"),
        ],
        "table": [_cohort_cells(window) for window in windows] if len(labels) > 1 else [],
    }


def _cohort_panel(label: str, unit: str, labels: Sequence[str], points: Sequence[Point], mark: str) -> dict[str, Any]:
    line = Line(label, bool(mark), list(points))
    chart = charts.over_windows(labels, points, charts.domain_of(points, from_zero=True), mark)
    return {"label": label, "unit": unit, "chart": chart, "said": said(line, labels)}


def _lost(counts: Mapping[str, Any]) -> float | None:
    joined = counts["joined"]
    return 100 * (joined - counts["contributors"]) / joined if joined else None


def _cohort_cells(window: Mapping[str, Any]) -> list[str]:
    mean = UNKNOWN if window["mean"] is None else f"{window['mean']:,.1f}"
    sizes = [UNKNOWN if window[name] is None else f"{window[name]:,}" for name in ("smallest", "largest")]
    lost = window["joined"] - window["contributors"]
    counts = [f"{window[name]:,}" for name in ("rounds", "aborted", "joined", "contributors")]
    return [window["window"], *counts, sizes[0], mean, sizes[1], f"{lost:,}"]


# --- what users have spent --------------------------------------------------------------------------


def fleet_view(fleet: Mapping[str, Any]) -> dict[str, Any]:
    """The distribution over devices, a row per window and view; central ones beside their n_h and conditions."""
    rows = [(window, name) for window in fleet["windows"] for name in EPSILONS if window[name] is not None]
    values = [value for window, name in rows for value in window[name].values() if value is not None]
    domain = charts.logarithmic(values)
    powers = range(int(domain.low), int(domain.high) + 1)
    last = fleet["windows"][-1] if fleet["windows"] else {}
    return {
        "devices": f"{fleet['devices']:,}",
        "any_device": fleet["devices"] > 0,
        "conditions": fleet["conditions"],
        "delta": plain(last["eps_delta"]) if last else UNKNOWN,
        # an older collector's document has none: Gaussian noise came later
        "is_pure": fleet.get("delta", 0) is not None,
        "by_plain_sum": last.get("by_plain_sum") or 0,
        "ticks": [(round(100 * domain.fraction(one), 2), charts.short(10.0**one)) for one in powers],
        "rows": [_fleet_row(window, name, domain) for window, name in rows],
    }


def _fleet_row(window: Mapping[str, Any], name: str, domain: charts.Domain) -> dict[str, Any]:
    values = window[name]
    known = None not in values.values()
    is_central, is_pure = name == "eps_central", name == "eps_local_pure"
    method = window["central_method"] if is_central else "basic composition" if is_pure else window["method"]
    return {
        "window": window["window"],
        "view": EPSILONS[name],
        "digits": [_digits(values[quantile], exact=is_pure) for quantile in QUANTILES],
        "places": [charts.log_place(values[quantile], domain) for quantile in QUANTILES] if known else None,
        "n_h": _count(window["n_h"]) if is_central else "",
        "n_min": _count(window["n_min"]) if is_central else "",
        "method": method,
    }


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _digits(value: float | None, *, exact: bool) -> str:
    if value is None:
        return UNKNOWN
    return f"{as_plain(value)}" if exact else rounded_up(value)
