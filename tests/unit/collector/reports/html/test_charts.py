"""Where a chart's lines go."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.reports.html import charts
from collector.reports.html.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Domain
from collector.reports.series import Point

ANY = st.floats(allow_nan=False) | st.integers(-(2**80), 2**80).map(float)
POINTS = st.lists(
    st.just(Point(0))
    | st.tuples(ANY, ANY, ANY, st.sampled_from(["usable", "too noisy", "too few", "?"])).map(
        lambda t: Point(10, t[0], 1.0, min(t[1:3]), max(t[1:3]), t[3])
    ),
    max_size=70,
)


def usable(value: float, low: float | None = None, high: float | None = None) -> Point:
    return Point(100, value, 1.0, low, high, "usable")


def places(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[0-9.]+) (-?[0-9.]+)", path)]


@given(POINTS)
def test_whatever_comes_in_lies_inside(points: list[Point]) -> None:
    chart = charts.over_windows([f"w{i}" for i in range(len(points))], points, charts.domain_of(points))
    drawn = 0
    for path in (chart.line, chart.band, chart.bars, chart.dots, chart.weak):
        assert re.fullmatch(r"[MLVhZ0-9. ]*", path), "digits only, and none is negative"
        for x, y in places(path):
            assert LEFT <= x <= WIDTH - RIGHT
            assert TOP - 0.06 <= y <= HEIGHT - BOTTOM + 0.06
            drawn += 1
    assert drawn >= sum(point.value is not None for point in points), "each point is somewhere"
    for tick in chart.y_ticks:
        assert TOP - 0.06 <= tick.at <= HEIGHT - BOTTOM + 0.06
        assert "nan" not in tick.text
        assert len(tick.text) < 14


@given(ANY, ANY)
@example(0.0, 5e-324)
@example(-1e-213, 1e-213)
def test_ticks_are_few_and_inside(a: float, b: float) -> None:
    domain = charts.widened([a, b])
    found = charts.ticks(domain)
    assert 1 <= len(found) <= 11
    assert all(-1e-6 <= domain.place(one) <= 1 + 1e-6 for one in found)
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (-150, 280, [-100, 0, 100, 200]), (0, 7, [0, 2, 4, 6]),
        (812, 812.5, [812, 812.1, 812.2, 812.3, 812.4, 812.5]),
    ],
)  # fmt: skip
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert charts.ticks(Domain(low, high)) == pytest.approx(expected)


def test_what_is_no_number_widens_nothing() -> None:
    assert charts.widened([1.0, math.inf, 3.0, -math.inf, math.nan]) == Domain(1.0, 3.0)
    assert charts.widened([]) == Domain(0.0, 1.0)
    assert charts.widened([2.0]) == Domain(1.5, 2.5)


def test_higher_numbers_stand_higher() -> None:
    chart = charts.over_windows(["a", "b", "c"], [usable(v) for v in (1.0, 3.0, 2.0)], Domain(1.0, 3.0))
    (_, first), (_, second), (_, third) = places(chart.dots)
    assert (first, second, third) == (HEIGHT - BOTTOM, TOP, (HEIGHT - BOTTOM + TOP) / 2)
    assert chart.zero is None


def test_a_line_does_not_cross_a_gap() -> None:
    points = [usable(1.0), usable(2.0), Point(0), usable(3.0)]
    chart = charts.over_windows(list("abcd"), points, Domain(0.0, 4.0))
    assert len(places(chart.line)) == 2, "the point that stands alone has a dot and no line"
    assert len(places(chart.dots)) == 3


def test_what_is_not_usable_does_not_flatten_the_rest_and_is_counted() -> None:
    points = [usable(10.0, 9.0, 11.0), usable(12.0, 11.0, 13.0), Point(3, 9000.0, 1.0, -9e4, 9e4, "too few")]
    domain = charts.domain_of(points)
    assert (domain.low, domain.high) == (9.0, 13.0)
    chart = charts.over_windows(list("abc"), points, domain)
    assert chart.beyond == 1
    assert places(chart.weak)[0][1] == TOP, "at the edge"
    near = charts.domain_of([*points[:2], Point(3, 15.0, 1.0, -9e4, 9e4, "too few")])
    assert (near.low, near.high) == (9.0, 15.0)
    none = charts.domain_of([points[2]])
    assert (none.low, none.high) == (-9e4, 9e4), "where none is usable all count"


def test_many_points_make_a_band() -> None:
    points = [usable(1.0, 0.0, 2.0) for _ in range(charts.MOST_BARS + 1)]
    points[3] = points[5] = Point(0)
    chart = charts.over_windows([str(i) for i in range(len(points))], points, Domain(0.0, 2.0))
    assert chart.band.count("Z") == 2
    assert len(places(chart.bars)) == len(places(chart.dots)) == 1, "one that stands alone has its bar"


def test_first_middle_and_last_window_are_named() -> None:
    def texts(*labels: str) -> list[str]:
        return [tick.text for tick in charts.over_windows(labels, [Point(0)] * len(labels), Domain(0, 1)).x_ticks]

    assert texts() == []
    assert texts("a") == ["a"]
    assert texts("a", "b") == ["a", "b"]
    assert texts("a", "b", "c") == ["a", "b", "c"]
    assert texts("a", "b" * 30, "c") == ["a", "c"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1e-300, "0"), (-0.25, "-0.25"), (1234.0, "1234"), (12_340.0, "12.34k"), (-2.5e6, "-2.5M"),
     (3e9, "3G"), (4e12, "4T"), (1e300, "1e+300")],
)  # fmt: skip
def test_short(value: float, text: str) -> None:
    assert charts.short(value) == text


def test_a_bar_begins_at_nothing_and_ends_at_its_number() -> None:
    bar = charts.bar(-1.0, -3.0, 1.0, Domain(-2.0, 2.0))
    assert bar == charts.Bar(25.0, 25.0, 50.0, 25.0, 0.0, 75.0)
    assert charts.bar(None, None, None, Domain(0.0, 1.0)) is None
    assert charts.bar(1.0, None, None, Domain(0.0, 2.0)) == charts.Bar(0.0, 50.0, 0.0, 50.0)


def test_logarithmic_places() -> None:
    domain = charts.logarithmic([0.02, 5.0, 0.0])
    assert (domain.low, domain.high) == (-2, 1)
    assert charts.log_place(0.01, domain) == charts.log_place(0.0, domain) == 0.0
    assert charts.log_place(10.0, domain) == 100.0
    assert charts.log_place(math.sqrt(0.1), domain) == 50.0
    assert charts.logarithmic([]).low == 0
