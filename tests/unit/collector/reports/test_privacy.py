"""The privacy documents: lifetime always there, plain decimals, nulls over nobody."""

from __future__ import annotations

import json

from collector.accounting.basic import Amount, DeviceSpending
from collector.reports import all_devices, device_ledger, fleet_privacy, to_csv, to_json
from collector.reports.privacy import ALL_COLUMNS, DEVICE_COLUMNS, FLEET_COLUMNS, all_rows, device_rows, fleet_rows

SPENDING = DeviceSpending(
    "d" * 32,
    {"24h": Amount(0, 0), "7d": Amount(1, 1), "30d": Amount(2, 333_334)},
    Amount(40, 123_456_789_000_001),
    3,
    0,
    86_400,
)


def test_fleet() -> None:
    document = fleet_privacy([1, 2_000_000, 500_000])
    assert document["devices"] == 3
    assert document["epsilon_local"] == {"min": 0.000001, "median": 0.5, "max": 2.0}
    assert fleet_privacy([])["epsilon_local"] == {"min": None, "median": None, "max": None}
    assert (
        to_csv(FLEET_COLUMNS, fleet_rows(fleet_privacy([1, 2_000_000, 500_000]))).split("\r\n")[1] == "3,0.000001,0.5,2"
    )
    assert to_csv(FLEET_COLUMNS, fleet_rows(fleet_privacy([]))).split("\r\n")[1] == "0,,,"


def test_a_device_has_every_window_and_the_lifetime() -> None:
    document = json.loads(to_json(device_ledger(SPENDING)))
    assert (document["reports"], document["resent_reports"]) == (40, 3)
    assert [w["window"] for w in document["windows"]] == ["24h", "7d", "30d", "lifetime"]
    assert [w["micro_epsilon"] for w in document["windows"]] == [0, 1, 333_334, 123_456_789_000_001]
    assert (document["first_period"], document["last_period"]) == ("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z")
    assert (document["composition"], document["delta"]) == ("basic", 0)
    lines = to_csv(DEVICE_COLUMNS, device_rows(device_ledger(SPENDING))).split("\r\n")
    assert [line.split(",")[3] for line in lines[1:5]] == ["0", "0.000001", "0.333334", "123456789.000001"]


def test_all_devices_one_row_each() -> None:
    (device,) = all_devices([SPENDING])["devices"]
    assert device["epsilon_local"] == {"24h": 0.0, "7d": 0.000001, "30d": 0.333334, "lifetime": 123456789.000001}
    lines = to_csv(ALL_COLUMNS, all_rows(all_devices([SPENDING]))).split("\r\n")
    assert lines[1] == f"{'d' * 32},40,3,0,0.000001,0.333334,123456789.000001"
    assert all_devices([])["devices"] == []
