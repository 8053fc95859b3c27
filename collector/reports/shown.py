"""What people read of a report's document, in a table or on a page: a row's number, its digits, a metric's title.

Rules of this file: words and digits only, nothing is computed; names are handed on as they are, and whoever prints
them escapes them for the place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from collector.reports.privacy import rounded_up
from collector.reports.text import plain

NOTE: Final = (
    "Estimates are unbiased for the clipped values, unless they are labelled ratio, quantile or smoothed. "
    "Nothing is cut to what is possible, no interval's end either: a count below 0 is noise."
)
COHORT_NOTE: Final = "Standard errors are for these contributors: only the noise and the rounding are random."

LARGE: Final = 1e15
"""From here on digits are no help, and a float has no more of them."""


def rounded(value: float, standard_error: float) -> str:
    """As many decimals as show two digits of the standard error; more would be noise."""
    if not 0 < standard_error < math.inf or abs(value) >= LARGE:
        return f"{value:,.6g}"
    text = f"{value:,.{min(9, max(0, 1 - math.floor(math.log10(standard_error))))}f}"
    return text if text.strip("-0.") else text.removeprefix("-")


def number(row: Mapping[str, Any]) -> float | None:
    """What a row's errors and intervals are of."""
    value: float | None = row["estimate"] if row["smoothed"] is None else row["smoothed"]
    return value


def number_header(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the numbers of a metric are, where they are not simply unbiased."""
    kinds = {row["estimator"] for row in rows} - {"unbiased"}
    return " or ".join(["estimate", *sorted(f"({kind})" for kind in kinds)]).replace("estimate or", "estimate")


def largest(rows: Sequence[Mapping[str, Any]], most: int) -> Sequence[Mapping[str, Any]]:
    """The `most` largest, in their order: nobody reads a hundred thousand rows."""
    if len(rows) <= most:
        return rows
    by_size = sorted(range(len(rows)), key=lambda place: -(number(rows[place]) or 0.0))
    return [rows[place] for place in sorted(by_size[:most])]


def title(metric: Mapping[str, Any]) -> str:
    """A metric's name, kind, mechanisms, contributors and plan versions, in one line."""
    return f"{metric['name']}: {kind(metric)}, {contributors(metric)} ({plan_versions(metric)})"


def kind(metric: Mapping[str, Any]) -> str:
    """With its mechanisms, and from when on it is not asked for."""
    words = f"{metric['kind']}, {mechanisms(metric)}"
    if metric["expires"] is not None:
        words += f", not asked for in periods from {metric['expires']} on"
    return words


def contributors(metric: Mapping[str, Any]) -> str:
    """How many, of how many reports, and how many of them unmasked."""
    sampled = "" if metric["reports"] == metric["contributors"] else f" of {metric['reports']:,} reports"
    # an older collector's document has no such field
    bare = f", {direct:,} of them unmasked" if (direct := metric.get("direct")) else ""
    return f"{metric['contributors']:,} contributors{sampled}{bare}"


def plan_versions(metric: Mapping[str, Any]) -> str:
    """The plan's name and the versions that the estimates are of."""
    versions = ", ".join(str(v) for v in metric["plan_versions"])
    return f"{metric['plan']} version {versions}" if versions else f"{metric['plan']}, no sum in this window"


def mechanisms(metric: Mapping[str, Any]) -> str:
    """Every mechanism and epsilon of the versions used, with the versions where there are several."""
    used: dict[str, list[int]] = {}
    for version in metric["versions"] or [{**metric, "version": 0}]:
        used.setdefault(f"{version['mechanism']}, epsilon {plain(version['epsilon'])}", []).append(version["version"])
    if len(used) == 1:
        return next(iter(used))
    return "; ".join(f"{what} (version {', '.join(map(str, versions))})" for what, versions in used.items())


def since_until(document: Mapping[str, Any]) -> str:
    """Between what instants the periods start."""
    return f"Periods from {document['since'] or 'the first'} until {document['until'] or 'the last'}"


# --- sentences --------------------------------------------------------------------------------------


def cost(metric: Mapping[str, Any]) -> str | None:
    """What one report costs its device, in both views; None where no sum has been released."""
    if (central := metric.get("epsilon_central")) is None:
        return None
    # an older collector's document has no such field
    but = f" but for delta {plain(delta)}" if (delta := metric.get("delta_local")) else ""
    return (
        f"One report costs epsilon {plain(metric['epsilon_local'])}{but} against whoever sees it; at delta "
        f"{plain(metric['delta'])} it costs {rounded_up(central)} (n_h {metric['n_h']:,}, {metric['central_method']}) "
        f"{metric['central_conditions']}."
    )


def standing_out(metric: Mapping[str, Any], most: int) -> list[str]:
    """Of cohorts, `most` of them named; nothing where the document is an older collector's."""
    if metric.get("cohorts_compared") is False:
        return [f"Its {metric['cohorts']:,} cohorts are too many to be compared with each other."]
    if (rate := metric.get("false_alarm_rate")) is None:
        return []
    named, alarm = metric["standing_out"], f"false alarms: at most {100 * rate:g} %"
    if not named:
        return [f"None of its {metric['cohorts']:,} cohorts stands out ({alarm})."]
    said = [
        f"Round {one['round']} of period {one['period']} stands out in {one['label']}: {one['per_report']:.4g} a "
        f"report, in the others {one['per_report_of_others']:.4g} (p {one['p']:.2g}; {alarm})."
        for one in named[:most]
    ]
    return said if len(named) <= most else [*said, f"And {len(named) - most} more, which --format json names."]


def reach(metric: Mapping[str, Any]) -> list[str]:
    """How far one false report, and one device that breaks the protocol, move a number; nothing where not known."""
    if (influence := metric.get("one_false_report")) is None:
        return []
    kinds = {"categorical": "count", "histogram": "count", "quantiles": "quantile", "vector": "coordinate"}
    what = kinds.get(metric["kind"], "mean")
    most = metric["one_broken_device"]
    far = "by any amount" if most is None else f"in one round, by anything up to {most:,.4g}"
    return [
        f"One well-formed false report among them moves a {what} by at most {influence:,.4g};",
        f"a device that breaks the protocol can move it, {far} (all that passes the plausibility check of a sum).",
    ]


def rest(metric: Mapping[str, Any], shown: int) -> list[str]:
    """What of its rows is not shown, and where it is."""
    rows, said = len(metric["estimates"]), []
    if (vector := metric.get("vector")) is not None and vector["dimension"] > rows:
        said.append(f"Of {vector['dimension']:,} coordinates the first {rows:,} have rows; --format json has them all.")
    if shown < rows:
        said.append(f"The {shown} largest of {rows:,} rows; --format csv and json have them all.")
    return said
