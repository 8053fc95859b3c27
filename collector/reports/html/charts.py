"""Where a chart's lines go: numbers in, coordinates out. What a coordinate becomes is the template's business.

Rules of this file: paths hold digits only, whatever came in, and are as long as their points are many; a number that
lies beyond the chart is drawn at its edge and counted, never dropped in silence; nothing overflows, however large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from collector.reports.series import Point

WIDTH: Final = 340
HEIGHT: Final = 150
LEFT: Final = 52
RIGHT: Final = 8
TOP: Final = 8
BOTTOM: Final = 22
MOST_BARS: Final = 60
"""Points of which each has an error bar of its own; of more, the bars make a band."""

LONGEST: Final = 16
"""Characters of a window's name under a chart: its beginning and its end, where a version's number stands."""

SIZES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
USABLE: Final = "usable"
LARGEST: Final = 1e307
"""What is beyond is drawn at the edge: sums of larger numbers may be none."""

SMALLEST: Final = 1e-200
"""What is nearer to 0 is drawn there: the step between ticks would be none."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Where an axis has a word. anchor: of the text."""

    at: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Chart:
    """Paths of one line over windows. weak: the dots of what is not usable. beyond: points outside, drawn at the edge.

    zero: where 0 lies, None outside.
    """

    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    line: str
    band: str
    bars: str
    dots: str
    weak: str
    zero: float | None
    beyond: int


Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Domain:
    """What an axis spans, low < high, both finite."""

    low: float
    high: float

    def fraction(self, value: float) -> float:
        """0 at low, 1 at high, cut to the two."""
        return min(1.0, max(0.0, self.place(value)))

    def place(self, value: float) -> float:
        """The same, beyond the ends too."""
        return (value - self.low) / (self.high - self.low)


def domain_of(points: Iterable[Point], *, from_zero: bool = False) -> Domain:
    """What usable points and their intervals span, or all of them where none is usable; never empty.

    Points that are not usable widen it by no more than it is wide, or one of three devices would flatten the rest.
    """
    known = [point for point in points if point.value is not None]
    shown = [point for point in known if point.verdict == USABLE] or known
    ends = [end for point in shown for end in (point.value, point.low, point.high) if end is not None]
    domain = widened([*ends, *([0.0] if from_zero else [])])
    near = [point.value for point in known if point.value is not None and -1 <= domain.place(point.value) <= 2]
    return widened([domain.low, domain.high, *near])


def domain_of_rows(points: Sequence[Point], *, from_zero: bool) -> Domain:
    """What all rows of one report span, and the intervals of those that are usable."""
    values = [point.value for point in points if point.value is not None]
    usable = domain_of(points, from_zero=from_zero)
    return widened([*values, usable.low, usable.high])


def widened(ends: Sequence[float]) -> Domain:
    """A domain that holds all that are finite, and is no point."""
    known = [max(-LARGEST, min(LARGEST, end)) for end in ends if math.isfinite(end)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if high - low > max(abs(low), abs(high), SMALLEST) * 1e-12:
        return Domain(low, high)
    room = max(abs(high) * 0.1, 0.5)
    return Domain(low - room, high + room)


def ticks(domain: Domain, most: int = 5) -> list[float]:
    """Round numbers inside it, about `most` of them."""
    span = domain.high / most - domain.low / most
    power = 10.0 ** math.floor(math.log10(span))
    step = next((one * power for one in (1, 2, 2.5, 5) if one * power >= span), 10 * power)
    if not math.isfinite(step):
        return [domain.low, domain.high]
    first = math.ceil(domain.low / step)
    places = (first + i for i in range(2 * most))
    return [place * step for place in places if domain.place(place * step) <= 1 + 1e-9] or [domain.low]


def short(value: float, unit: str = "") -> str:
    """A tick's text: few digits, a letter for large ones."""
    for size, letter in SIZES:
        if size <= abs(value) < 1000 * SIZES[0][0]:
            scaled = value / (1000.0 if letter == "k" else size)
            return f"{scaled:.4g}{letter}{unit}"
    return f"{value:.4g}{unit}" if abs(value) >= 1e-12 else f"0{unit}"


def over_windows(labels: Sequence[str], points: Sequence[Point], domain: Domain, unit: str = "") -> Chart:
    """points: one per label, in their order."""
    xs = _places(len(labels))
    y = _vertical(domain)
    runs = list(_runs(points))
    is_band = len(points) > MOST_BARS
    banded = [run for run in runs if is_band and len(run) > 1]
    barred = [place for run in runs if run not in banded for place in run]
    return Chart(
        x_ticks=_window_ticks(labels, xs),
        y_ticks=[Tick(y(value), short(value, unit), "end") for value in ticks(domain)],
        line="".join(_polyline((xs[i], y(points[i].value or 0.0)) for i in run) for run in runs),
        band="".join(_band(points, run, xs, y) for run in banded),
        bars="".join(_bar(points[i], xs[i], y) for i in barred),
        dots=_dots((i for i in barred if points[i].verdict == USABLE), points, xs, y),
        weak=_dots((i for i in barred if points[i].verdict != USABLE), points, xs, y),
        zero=y(0.0) if domain.low < 0.0 < domain.high else None,
        beyond=sum(not -1e-9 <= domain.place(p.value) <= 1 + 1e-9 for p in points if p.value is not None),
    )


def _places(count: int) -> list[float]:
    width = WIDTH - LEFT - RIGHT
    return [LEFT + width * (i + 0.5) / count for i in range(count)]


def _vertical(domain: Domain) -> Scale:
    height = HEIGHT - TOP - BOTTOM
    return lambda value: TOP + height * (1.0 - domain.fraction(value))


def _runs(points: Sequence[Point]) -> Iterator[list[int]]:
    """Places of points that have numbers and follow each other: a line does not cross a gap."""
    run: list[int] = []
    for place, point in enumerate(points):
        if point.value is not None:
            run.append(place)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _window_ticks(labels: Sequence[str], xs: Sequence[float]) -> list[Tick]:
    """The first, the middle and the last, as far as they fit."""
    if not labels:
        return []
    labels = [label if len(label) <= LONGEST else f"{label[:7]}…{label[-8:]}" for label in labels]
    last = len(labels) - 1
    if last == 0:
        return [Tick(xs[0], labels[0])]
    ends = [Tick(LEFT, labels[0], "start"), Tick(WIDTH - RIGHT, labels[last], "end")]
    if last % 2 or max(map(len, labels)) > 10:
        return ends
    return [ends[0], Tick(xs[last // 2], labels[last // 2]), ends[1]]


def _polyline(points: Iterable[tuple[float, float]]) -> str:
    places = [f"{x:.1f} {y:.1f}" for x, y in points]
    return f"M{'L'.join(places)}" if len(places) > 1 else ""


def _ends(point: Point) -> tuple[float, float]:
    value = point.value or 0.0
    return value if point.low is None else point.low, value if point.high is None else point.high


def _band(points: Sequence[Point], run: Sequence[int], xs: Sequence[float], y: Scale) -> str:
    upper = [(xs[i], y(_ends(points[i])[1])) for i in run]
    lower = [(xs[i], y(_ends(points[i])[0])) for i in reversed(run)]
    return _polyline([*upper, *lower]) + "Z"


def _bar(point: Point, x: float, y: Scale) -> str:
    low, high = _ends(point)
    return f"M{x:.1f} {y(low):.1f}V{y(high):.1f}"


def _dots(places: Iterable[int], points: Sequence[Point], xs: Sequence[float], y: Scale) -> str:
    """Lines of no length, which round ends make visible."""
    return "".join(f"M{xs[i]:.1f} {y(points[i].value or 0.0):.1f}h0" for i in places)


# --- rows of one window -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A number on a horizontal axis of 100 units: from `start`, `length` long, its interval from `low` to `high`."""

    start: float
    length: float
    zero: float
    at: float
    low: float | None = None
    high: float | None = None


def bar(value: float | None, low: float | None, high: float | None, domain: Domain) -> Bar | None:
    """None where there is no number."""
    if value is None:
        return None
    zero, at = 100 * domain.fraction(0.0), 100 * domain.fraction(value)
    ends = [None if end is None else round(100 * domain.fraction(end), 2) for end in (low, high)]
    return Bar(round(min(zero, at), 2), round(abs(at - zero), 2), round(zero, 2), round(at, 2), *ends)


# --- spans on a logarithmic axis --------------------------------------------------------------------


def logarithmic(values: Iterable[float]) -> Domain:
    """Powers of ten around all positive ones, as exponents."""
    exponents = [math.log10(value) for value in values if value > 0]
    low, high = math.floor(min(exponents, default=0.0)), math.ceil(max(exponents, default=1.0))
    return Domain(low, max(high, low + 1))


def log_place(value: float, domain: Domain) -> float:
    """0 to 100; what is not positive is at the left end."""
    return round(100 * domain.fraction(math.log10(value)), 2) if value > 0 else 0.0
