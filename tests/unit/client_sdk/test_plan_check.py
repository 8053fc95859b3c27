"""`plan check`: costs against hand-made sums, errors against the mechanisms' formulas, warnings one by one."""

from __future__ import annotations

import json
import math

import pytest

from client_sdk.plan import check_plan, format_check, parse_plan

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
    assert [line.split()[4] for line in text.splitlines() if "laplace" in line or "randomized" in line] == [
        "2500",
        "other",
    ]
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
    ends = [line.split()[-1] for line in lines if "laplace" in line or "randomized" in line]
    assert ends == ["2027-01-01", "never"]
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
