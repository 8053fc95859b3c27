"""The privacy documents: lifetime always there, plain decimals, nulls over nobody, central never without its n_h."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from client_sdk.accounting.ledger import Cohort, Ledger, LedgerEntry, LedgerPlan
from client_sdk.accounting.ledger_reader import read_ledger
from client_sdk.errors import ConfigurationError, PlanError
from client_sdk.plan import Plan
from collector.accounting.allowance import Allowance
from collector.accounting.basic import Amount, DeviceHistory, DeviceSpending, FleetSum
from collector.accounting.figures import figures
from collector.accounting.fleet import FleetFigures
from collector.reports import all_devices, device_ledger, fleet_privacy, to_csv, to_json
from collector.reports.fleet import FLEET_COLUMNS, fleet_rows, fleet_window, quantiles, with_windows
from collector.reports.fleet import TABLE_COLUMNS as FLEET_TABLE
from collector.reports.fleet import table_rows as fleet_table
from collector.reports.privacy import (
    ALL_COLUMNS,
    ALL_TABLE_COLUMNS,
    ALL_WINDOWS,
    DEVICE_COLUMNS,
    TABLE_COLUMNS,
    all_rows,
    all_table_rows,
    device_rows,
    rounded_up,
    table_rows,
    with_every_figure,
    with_figures,
    with_ledger,
)
from tests.unit.collector.plans import make_plan, plan_of

SPENDING = DeviceSpending(
    "d" * 32,
    {"24h": Amount(0, 0), "7d": Amount(1, 1), "30d": Amount(2, 333_334), "365d": Amount(3, 333_335)},
    Amount(40, 123_456_789_000_001),
    3,
    0,
    86_400,
)
DAY_S, NOW = 86_400, 1_780_000_000
PLAN = make_plan()


GAUSSIAN = plan_of('[metrics.v]\nkind = "vector"\ndimension = 3\nclip = 1\nnorm = "l2"\nepsilon = 2\ndelta = 1e-6')


def booked(days: int, *, resent: int = -1, plan: Plan = PLAN) -> dict[str, Any]:
    """A device with a report a day, the last one now, each among fifty, of whom five may be corrupt."""
    entries = tuple(
        LedgerEntry(
            plan.hash.hex(), NOW - day * DAY_S, NOW - day * DAY_S, 2_000_000, "counted", True, day == resent,
            round=f"r{day}", cohort=Cohort(50, 50, int(day == resent)),
        )
        for day in range(days)
    )  # fmt: skip
    used = LedgerPlan(plan.hash.hex(), plan.name, plan.version, NOW - (days - 1) * DAY_S)
    ledger = Ledger("collector", "d" * 32, NOW, (used,), entries).with_stated()
    windows = {w: Amount(0, micro) for w, micro in ledger.stated.windows.items()}
    spending = DeviceSpending("d" * 32, windows, Amount(days, 2_000_000 * days), int(resent >= 0), 0, NOW)
    return with_ledger(device_ledger(spending, is_pure=plan is PLAN), ledger, {plan.hash: plan.text})


def read(document: object) -> Any:
    return json.loads(to_json(document))


# --- one device -------------------------------------------------------------------------------------


def test_a_device_has_every_window_and_the_lifetime() -> None:
    document = read(device_ledger(SPENDING, is_pure=True))
    assert (document["reports"], document["resent_reports"]) == (40, 3)
    assert [w["window"] for w in document["windows"]] == ["24h", "7d", "30d", "365d", "lifetime"]
    assert [w["micro_epsilon"] for w in document["windows"]] == [0, 1, 333_334, 333_335, 123_456_789_000_001]
    assert (document["first_period"], document["last_period"]) == ("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z")
    assert (document["relation"], document["composition"], document["delta"]) == ("replace one value", "basic", 0)


def test_the_ledger_adds_its_figures() -> None:
    document = read(with_figures(booked(9, resent=4), ALL_WINDOWS, 1e-6, None))
    assert "plans" not in document
    assert "ledger" not in document
    rows = {row["window"]: row for row in document["windows"]}
    assert list(rows) == list(ALL_WINDOWS)
    for window, row in rows.items():
        assert row["eps_local_pure"] == row["epsilon_local"]
        assert row["eps_central"] <= row["eps_local"] <= row["eps_local_pure"]
        assert (row["n_min"], row["eps_delta"]) == (50, 1e-6)
        assert row["n_h"] == 45, window
    assert rows["lifetime"]["reports"] == 9
    assert rows["24h"]["eps_central"] < 0.5 * rows["24h"]["eps_local"]
    assert rows["24h"]["fallbacks"] == {}
    assert rows["lifetime"]["fallbacks"] == {"resent": 1}
    (fallback,) = rows["lifetime"]["fallback_rounds"]
    assert (fallback["round"], fallback["reason"], fallback["reports"]) == ("r4", "resent", 1)
    assert rows["lifetime"]["cap"] == 365.0
    assert rows["lifetime"]["left"] == 365.0 - 18.0
    assert "honest" in document["conditions"]
    assert set(document["in_words"]) == set(ALL_WINDOWS)


def test_figures_are_the_accountants_and_read_back_to_the_last_digit() -> None:
    document = booked(5)
    for delta, corrupt in ((1e-6, None), (1e-9, Fraction(1, 2))):
        rows = read(with_figures(read(document), ["7d", "lifetime"], delta, corrupt))["windows"]
        for row in rows:
            plans = {PLAN.hash.hex(): PLAN}
            own = figures(read_ledger(document["ledger"]), plans, delta=delta, corrupt=corrupt, window=row["window"])
            assert (row["eps_local"], row["eps_central"], row["n_h"]) == (own.eps_local, own.eps_central, own.n_h)


def test_a_window_never_goes_without_the_lifetime_in_any_form() -> None:
    document = with_figures(booked(9), ["7d", "lifetime"], 1e-6, None)
    lines = to_csv(DEVICE_COLUMNS, device_rows(document)).split("\r\n")
    header, *rows = (line.split(",") for line in lines[:3])
    assert [row[header.index("window")] for row in rows] == ["7d", "lifetime"]
    assert [row[header.index("epsilon_local")] for row in rows] == ["14", "18"]
    assert {len(row) for row in rows} == {len(header)}
    shown = [dict(zip(TABLE_COLUMNS, row, strict=True)) for row in table_rows(document)]
    assert [str(row["eps_local_pure"]) for row in shown] == ["14", "18"]
    assert [row["window"] for row in shown] == ["7d", "lifetime"]
    assert shown[0]["n_h"] == shown[1]["n_h"] == 45
    assert str(shown[0]["cap"]) == "365"
    assert "T" not in str(shown[0]["stops_on"])


def test_gaussian_reports_are_pure_at_no_epsilon() -> None:
    """The plain sum stands with the sum of its reports' deltas, or with none; never with 0."""
    document = booked(5, plan=GAUSSIAN)
    assert (document["composition"], document["delta"]) == ("basic", None)
    shown = with_figures(document, ["24h", "lifetime"], 1e-6, None)
    assert [row["delta_pure"] for row in shown["windows"]] == pytest.approx([1e-6, 5e-6])
    assert shown["delta"] == pytest.approx(5e-6), "enough for every sum that is shown"
    assert with_figures(document, ["24h"], 1e-6, None)["delta"] == pytest.approx(1e-6)
    assert with_figures(booked(5), ["lifetime"], 1e-6, None)["delta"] == 0
    told = {**booked(5), "delta": None}  # of a store that has such plans, by a device that never saw one
    assert with_figures(told, ["lifetime"], 1e-6, None)["delta"] == 0


def test_a_plan_that_reads_otherwise_here_is_named() -> None:
    document = booked(1)
    document["plans"] = {PLAN.hash.hex(): make_plan(2).text}
    with pytest.raises(PlanError, match="'p' version 2 in the store has hash"):
        with_figures(document, ["lifetime"], 1e-6, None)
    with pytest.raises(ConfigurationError, match="no plan has the hash"):
        with_figures({**document, "plans": {}}, ["lifetime"], 1e-6, None)


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(0.0, "0.0"), (1.0, "1.0"), (0.1, "0.1"), (0.123_451, "0.12346"), (1.00001e-7, "0.00000010001"),
     (123_456.7, "123460"), (0.99999500001, "1.0000")],
)  # fmt: skip
def test_epsilons_are_shown_rounded_up_and_without_an_exponent(epsilon: float, shown: str) -> None:
    assert rounded_up(epsilon) == shown
    assert float(shown) >= epsilon


# --- all, and a fleet -------------------------------------------------------------------------------


def test_all_devices_one_row_each() -> None:
    (device,) = all_devices([SPENDING], is_pure=True)["devices"]
    assert device["epsilon_local"] == {
        "24h": 0.0, "7d": 0.000001, "30d": 0.333334, "365d": 0.333335, "lifetime": 123456789.000001,
    }  # fmt: skip
    assert all_devices([], is_pure=True)["devices"] == []


def test_all_devices_with_the_figures_of_their_histories() -> None:
    """A rounded history bounds its devices; each one's own plain sum does too, and that is never rounded."""
    like = FleetFigures(7, 3.5, 2.75, 45, "exact composition", "composition of sums")
    mine = [DeviceHistory("d" * 32, 0, 2, 3_000_000, 50), DeviceHistory("e" * 32, 0, 2, 2_500_000, None)]
    both = [SPENDING, replace(SPENDING, device_id="e" * 32)]
    allowances = {"d" * 32: Allowance(365_000_000, 1, 0), "e" * 32: Allowance(None, None, None)}
    likes = {"lifetime": [(one, like) for one in mine]}
    figured = with_every_figure(all_devices(both, is_pure=True), likes, allowances, 1e-6, is_pure=True)
    first, second = (device["windows"][0] for device in read(figured)["devices"])
    assert (first["eps_local_pure"], first["eps_local"], first["eps_central"]) == (3.0, 3.0, 2.75)
    assert (second["eps_local_pure"], second["eps_local"], second["eps_central"]) == (2.5, 2.5, 2.5)
    assert (first["n_h"], first["n_min"], second["n_min"]) == (45, 50, None)
    assert (first["cap"], first["left"], first["stops_on"]) == (365.0, 0.000001, "1970-01-01T00:00:00Z")
    assert "honest" in figured["conditions"]
    lines = to_csv(ALL_COLUMNS, all_rows(figured)).split("\r\n")
    expected = f"{'d' * 32},lifetime,2,3,0,3.0,3.0,exact composition,2.75,45,50,365.0,0.000001,1970-01-01T00:00:00Z"
    assert lines[1].startswith(expected)
    assert lines[1].endswith(",3,0,0.000001,0.333334,0.333335,123456789.000001")
    shown = [dict(zip(ALL_TABLE_COLUMNS, row, strict=True)) for row in all_table_rows(figured)]
    assert [row["device"] for row in shown] == ["d" * 32, "e" * 32]
    assert str(shown[0]["eps_central"]) == "2.75"


def test_fleet() -> None:
    document = fleet_privacy([1, 2_000_000, 500_000], is_pure=True)
    assert document["devices"] == 3
    assert document["epsilon_local"] == {"min": 0.000001, "median": 0.5, "max": 2.0}
    assert fleet_privacy([], is_pure=True)["epsilon_local"] == {"min": None, "median": None, "max": None}


@pytest.mark.parametrize(("is_pure", "delta"), [(True, 0), (False, None)])
def test_sums_over_devices_name_no_delta_where_noise_is_gaussian(is_pure: bool, delta: int | None) -> None:
    for document in (all_devices([SPENDING], is_pure=is_pure), fleet_privacy([1, 2], is_pure=is_pure)):
        assert (document["relation"], document["composition"], document["delta"]) == (
            "replace one value",
            "basic",
            delta,
        )
    like, mine = FleetFigures(1, 3.5, 2.75, 45, "exact composition", "sums"), DeviceHistory("d" * 32, 0, 2, 1, 50)
    allowances = {"d" * 32: Allowance(None, None, None)}
    figured = with_every_figure(
        all_devices([SPENDING], is_pure=is_pure), {"7d": [(mine, like)]}, allowances, 1e-6, is_pure=is_pure
    )
    (row,) = figured["devices"][0]["windows"]
    assert (figured["delta"], row["eps_local"]) == (delta, 1e-6 if is_pure else 3.5)


def test_a_percentile_is_what_so_many_have_no_more_than() -> None:
    values = [(float(n), 1) for n in range(1, 101)]
    assert quantiles(values) == {"min": 1.0, "p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    assert quantiles([(3.0, 2), (1.0, 98)]) == {"min": 1.0, "p50": 1.0, "p95": 1.0, "p99": 3.0, "max": 3.0}
    assert quantiles([(3.0, 1), (1.0, 99)])["p99"] == 1.0
    assert set(quantiles([]).values()) == {None}


def test_the_fleets_windows() -> None:
    sums = [FleetSum(2, 500_000, 0, whole=True), FleetSum(1, 2_000_000, 0, whole=False)]
    lifetime = fleet_window(
        "lifetime", sums, [(0.4, 2), (2.0, 1)], [(0.1, 2), (2.0, 1)], delta=1e-6, is_pure=True, n_h=45, n_min=50
    )
    week = fleet_window("7d", sums[:1], [(0.4, 2)], None, delta=1e-6, is_pure=True)
    document = read(with_windows(fleet_privacy([500_000, 500_000, 2_000_000], is_pure=True), [week, lifetime]))
    assert document["windows"][1]["eps_central"] == {"min": 0.1, "p50": 0.1, "p95": 2.0, "p99": 2.0, "max": 2.0}
    assert (document["windows"][1]["n_h"], document["windows"][1]["by_plain_sum"]) == (45, 1)
    assert (document["windows"][0]["eps_central"], document["windows"][0]["method"]) == (None, "closed form")
    lines = to_csv(FLEET_COLUMNS, fleet_rows(document)).split("\r\n")
    assert lines[1].startswith("2,0.5,0.5,0.5,7d,")
    assert lines[2].startswith("3,0.5,0.5,2,lifetime,")
    assert {len(line.split(",")) for line in lines[:3]} == {len(FLEET_COLUMNS)}
    shown = fleet_table(document)
    assert len(shown) == 6
    assert {len(row) for row in shown} == {len(FLEET_TABLE)}
    assert [str(cell) for cell in shown[5]][:7] == ["lifetime: central", "0.1", "0.1", "2.0", "2.0", "2.0", "45"]
    nobody = with_windows(
        fleet_privacy([], is_pure=True), [fleet_window("lifetime", [], [], [], delta=1e-6, is_pure=True)]
    )
    assert to_csv(FLEET_COLUMNS, fleet_rows(nobody)).split("\r\n")[1].startswith("0,,,,lifetime,,,")


def test_rounded_histories_cost_no_more_than_what_bounds_them() -> None:
    """Histories are rounded up where there are many: a percentile is then the least of its bounds."""
    sums = [FleetSum(3, 1_000_000, 1, whole=True), FleetSum(1, 5_000_000, 5, whole=True)]
    rounded = [(4.0, 3), (4.5, 1)]
    pure = fleet_window("lifetime", sums, rounded, [(6.0, 3), (0.5, 1)], delta=1e-6, is_pure=True)
    assert pure["eps_local"] == {"min": 1.0, "p50": 1.0, "p95": 4.5, "p99": 4.5, "max": 4.5}
    assert pure["eps_central"] == {"min": 0.5, "p50": 1.0, "p95": 4.5, "p99": 4.5, "max": 4.5}
    gaussian = fleet_window("lifetime", sums, rounded, None, delta=1e-6, is_pure=False)
    assert gaussian["eps_local"]["min"] == 4.0, "a plain sum holds with another delta, and bounds nothing"
