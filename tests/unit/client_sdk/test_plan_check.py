"""`plan check`: costs against hand-made sums, errors against the mechanisms' formulas, warnings one by one."""

from __future__ import annotations

import json
import math
import re

import pytest

from client_sdk.errors import PlanError
from client_sdk.plan import Plan, check_plan, format_check, parse_plan

PLAN = """
[plan]
name = "app-health"
version = 3
period = "{period}"
[cohort]
min_size = 50
target_size = 200
[budget]
{budget}
[metrics.cold_start_ms]
kind = "numeric"
lower = 0
upper = 5000
epsilon = 1.0
{numeric}
[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular", "offline"]
other = "other"
epsilon = 1.0
"""


def plan_text(period: str = "1d", budget: str = "lifetime = 365", numeric: str = "") -> str:
    return PLAN.format(period=period, budget=budget, numeric=numeric)


def section(text: str, title: str) -> list[list[str]]:
    """The lines below one that begins with `title`, up to the next blank one, as cells."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(title)) + 1
    end = next((at for at in range(start, len(lines)) if not lines[at]), len(lines))
    return [re.split(r" {2,}", line.strip()) for line in lines[start:end]]


def metric_cells(text: str) -> list[list[str]]:
    return section(text, "metrics")[1:]


@pytest.mark.parametrize(
    ("period", "budget", "day", "month", "year", "stops"),
    [
        ("1d", "lifetime = 10000", "2", "60", "730", 5000),
        ("1d", "lifetime = 365", "2", "60", "364", 182),  # half a report is left and never sent
        ("1h", "lifetime = 100000", "48", "1440", "17520", 2084),
        ("1h", "lifetime = 100000\nrolling_24h = 4.5", "4", "120", "1460", 25_000),
        ("7d", "lifetime = 100", "2", "10", "100", 350),
        ("1d", "lifetime = 0", "0", "0", "0", None),
        ("1d", "lifetime = 10\nrolling_24h = 1.5", "0", "0", "0", None),
    ],
)
def test_what_a_device_spends(period: str, budget: str, day: str, month: str, year: str, stops: int | None) -> None:
    check = check_plan(parse_plan(plan_text(period, budget)))
    assert check.epsilon_report == "2"
    assert (check.epsilon_day, check.epsilon_30_days, check.epsilon_year) == (day, month, year)
    assert check.stops_after_days == stops


def test_expected_errors_are_the_formulas() -> None:
    number, category = check_plan(parse_plan(plan_text())).metrics
    r = math.exp(-1 / 1000)  # epsilon 1 over 1000 levels
    one = 5 * math.sqrt(2 * r / (1 - r) ** 2 + 0.25)
    assert [e.standard_error for e in number.errors] == pytest.approx(
        [one / 10, one / 1000**0.5, one / 100, one / 100_000**0.5]
    )
    assert number.errors[0].percent == pytest.approx(100 * one / 10 / 5000)
    e, k, n = math.e, 4, 10_000
    p, q = e / (e + k - 1), 1 / (e + k - 1)
    se = math.sqrt(n * (p * (1 - p) / k + (1 - 1 / k) * q * (1 - q))) / (p - q)
    assert category.errors[2].standard_error == pytest.approx(se)
    assert category.errors[2].percent == pytest.approx(100 * se / n)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (plan_text(budget="lifetime = 0"), "budget.lifetime: 0 is less than one report"),
        (plan_text(budget="lifetime = 1.5"), "budget.lifetime: 1.5 is less than one report"),
        (plan_text(budget="lifetime = 9\nrolling_24h = 1"), "budget.rolling_24h: less than one report"),
        (plan_text(budget="lifetime = 365\nrolling_24h = 2"), "budget.rolling_24h: less than the reports"),
        (plan_text(budget="lifetime = 20"), "budget.lifetime: used up after 10 days"),
        (plan_text().replace("epsilon = 1.0", "epsilon = 9"), "one report costs epsilon 18"),
        (plan_text().replace("min_size = 50", "min_size = 5"), "cohort.min_size: "),
        (plan_text().replace("[cohort]", "[cohort]\ncorrupt_fraction = 0"), "cohort.corrupt_fraction: "),
        (plan_text().replace("version = 3", 'version = 3\nmax_delay = "6h"'), "plan.max_delay: "),
        (plan_text(numeric='on_device = "sum"').replace("lower = 0", "lower = 1"), "metrics.cold_start_ms: without a"),
        (
            plan_text().replace("epsilon = 1.0", "epsilon = 0.01"),
            "metrics.cold_start_ms: one cohort of 200 tells nothing",
        ),
        (plan_text().replace("epsilon = 1.0", "epsilon = 0.01"), "metrics.network: one cohort of 200 tells nothing"),
    ],
)
def test_warnings(text: str, warning: str) -> None:
    assert any(line.startswith(warning) for line in check_plan(parse_plan(text)).warnings)


def test_a_sound_plan_has_no_warning_and_prints_its_defaults() -> None:
    check = check_plan(parse_plan(plan_text(budget="lifetime = 400")))
    assert check.warnings == ()
    text = format_check(check)
    assert "stops after 200 reports, day 200" in text
    assert [cells[4] for cells in metric_cells(text)] == ["2500", "other"]
    assert "warning" not in text
    document = json.loads(json.dumps(check.as_dict(), allow_nan=False))
    assert document["epsilon_30_days"] == "60"
    assert document["metrics"][0]["errors"][0]["contributors"] == 100


def test_it_says_when_a_metric_ends_and_who_vouches_for_devices() -> None:
    key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    registrar = f'[registrar]\naddress = "registrar.example:443"\nkey = "{key}"\n'
    check = check_plan(parse_plan(plan_text(numeric="expires = 2027-01-01") + registrar))
    assert [metric.expires for metric in check.metrics] == ["2027-01-01", None]
    lines = format_check(check).splitlines()
    assert f"registrar registrar.example:443 {key}" in lines
    assert [cells[-1] for cells in metric_cells("\n".join(lines))] == ["2027-01-01", "never"]
    assert json.loads(json.dumps(check.as_dict()))["registrar"] == f"registrar.example:443 {key}"


def test_it_says_who_shares_masks_with_how_many() -> None:
    large = plan_text().replace("target_size = 200", "target_size = 1000")
    check = check_plan(parse_plan(large))
    assert [(r.size, r.neighbours, r.threshold, r.is_complete) for r in check.rosters] == [
        (56, 55, 31, True),
        (1000, 138, 98, False),
    ]
    lines = [line.split() for line in format_check(check).splitlines()]
    assert ["56", "55", "31", "complete"] in lines
    assert ["1,000", "138", "98", "sparse"] in lines
    assert json.loads(json.dumps(check.as_dict()))["rosters"][1]["neighbours"] == 138
    one_size = check_plan(parse_plan(plan_text().replace("target_size = 200", "target_size = 56")))
    assert [r.size for r in one_size.rosters] == [56]


@pytest.mark.parametrize(("min_size", "warns"), [(39, True), (40, False)])
def test_a_sampled_metric_has_no_floor_of_its_own(min_size: int, warns: bool) -> None:
    """Half of the reports hold it: 19 of 39 hide each other among fewer than 20."""
    sampled = plan_text().replace("version = 3", "version = 3\nsample_metrics = 1")
    text = sampled.replace("min_size = 50", f"min_size = {min_size}")
    found = [line for line in check_plan(parse_plan(text)).warnings if line.startswith("plan.sample_metrics: ")]
    assert bool(found) is warns
    assert all("about 19 devices hold each metric" in line for line in found)
    every = check_plan(parse_plan(plan_text().replace("min_size = 50", f"min_size = {min_size}"))).warnings
    assert not any("sample_metrics" in line for line in every)


FAR = "lower = 100000000000000000000000000000\nupper = 100000000000000000000000000020\nepsilon = 1\n"


@pytest.mark.parametrize("more", ["", "optional = true\n"])
def test_a_range_far_from_zero_has_its_width(more: str) -> None:
    """As doubles its ends are one number; as decimals they are 20 apart."""
    near, far = (
        check_plan(parse_plan(plan_text() + f'[metrics.far]\nkind = "numeric"\n{ends}{more}'))
        for ends in ("lower = 0\nupper = 20\nepsilon = 1\n", FAR)
    )
    format_check(far)
    (here,), (there,) = ([m for m in check.metrics if m.name == "far"] for check in (near, far))
    assert there.usable_from == here.usable_from
    assert there.choices == here.choices
    assert [error.percent for error in there.errors] == pytest.approx([error.percent for error in here.errors])


@pytest.mark.parametrize("kind", ["histogram", "quantiles"])
def test_bins_that_no_double_can_tell_apart_are_refused(kind: str) -> None:
    with pytest.raises(PlanError, match=r"^metrics\.far: edges: 1000\d* and the next one are the same double"):
        parse_plan(plan_text() + f'[metrics.far]\nkind = "{kind}"\n{FAR}')


def with_delivery(*lines: str) -> Plan:
    return parse_plan(plan_text() + "[delivery]\n" + "\n".join(lines) + "\n")


def test_a_direct_plan_says_what_it_costs_and_nothing_of_cohorts() -> None:
    check = check_plan(with_delivery('delivery = "direct"'))
    assert (check.delivery, check.fallback_after_s, check.rosters) == ("direct", None, ())
    text = format_check(check)
    assert "delivery direct: no cohorts; central epsilon is the local one" in text
    assert "rosters" not in text
    (warning,) = [line for line in check.warnings if line.startswith("delivery.")]
    assert "at its local epsilon" in warning
    assert "never amplified" in warning
    assert not any(line.startswith("cohort.") for line in check.warnings)
    assert json.loads(json.dumps(check.as_dict()))["delivery"] == "direct"


def test_a_fallback_says_when_and_what_it_costs() -> None:
    check = check_plan(with_delivery('fallback = "direct"', 'fallback_after = "12h"'))
    assert (check.delivery, check.fallback_after_s, len(check.rosters) > 0) == ("interactive", 43_200, True)
    assert "without a cohort 43200 s after its period's end goes direct where the device allows it" in format_check(
        check
    )
    (warning,) = [line for line in check.warnings if line.startswith("delivery.")]
    assert "goes unmasked where the device allows it" in warning
    soon = check_plan(with_delivery('fallback = "direct"', 'fallback_after = "1h"')).warnings
    assert [line.split(":")[0] for line in soon if line.startswith("delivery.")] == [
        "delivery.fallback", "delivery.fallback_after",
    ]  # fmt: skip


def test_without_direct_delivery_nothing_is_said_of_it() -> None:
    check = check_plan(with_delivery('resend = "never"'))
    assert (check.delivery, check.fallback_after_s) == ("interactive", None)
    assert "direct" not in format_check(check)


def test_a_window_in_rho_that_some_periods_find_full_is_warned_of() -> None:
    """A report costs rho 0.924: one fits into 1, the two that 24 hours can touch do not."""
    tight, wide = (
        check_plan(parse_plan(plan_text(budget=f"lifetime = 365\nrolling_24h_rho = {limit}"))) for limit in ("1", "1.9")
    )
    line = "less than the reports that a window of 24 hours can touch: some periods will go without a report"
    assert f"budget.rolling_24h_rho: {line}" in tight.warnings
    assert not any("rolling_24h_rho" in warning for warning in wide.warnings)
