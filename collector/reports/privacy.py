"""What the devices have spent, as the collector has booked it: over the fleet, for one device, for all.

All figures are pure local epsilon by basic composition: what somebody could learn who sees every report of the
device unmasked. The neighbouring relation is "replace one report's values". The lifetime is always shown: a
window that has emptied is no budget renewed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from client_sdk.accounting.budget import format_micro
from collector.accounting.basic import WINDOWS, Amount, DeviceSpending, best_certainty, distribution
from collector.reports.text import Cell, format_instant, micro_as_number

COMPOSITION = {"relation": "replace one report's values", "composition": "basic", "delta": 0}

FLEET_COLUMNS = ("devices", "epsilon_local_min", "epsilon_local_median", "epsilon_local_max")
DEVICE_COLUMNS = ("device", "window", "reports", "epsilon_local")
ALL_COLUMNS = ("device", "reports", "resent_reports", *(f"epsilon_local_{window}" for window in (*WINDOWS, "lifetime")))


def fleet_privacy(lifetimes_micro: Sequence[int]) -> dict[str, Any]:
    """`{devices, epsilon_local{min, median, max}}` over devices with a counted report; nulls over nobody."""
    d = distribution(lifetimes_micro)
    smallest, middle, largest = (micro_as_number(x) for x in (d.min_micro, d.median_micro, d.max_micro))
    return {
        "devices": d.devices,
        "epsilon_local": {"min": smallest, "median": middle, "max": largest},
        **COMPOSITION,
    }


def fleet_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """Such a document as one row, in FLEET_COLUMNS, amounts as plain decimals."""
    amounts = document["epsilon_local"]
    return [[document["devices"], *(_plain(amounts[name]) for name in ("min", "median", "max"))]]


def device_ledger(spending: DeviceSpending) -> dict[str, Any]:
    """One device: reports, each window and the lifetime, first and last period, and what it means."""
    return {
        "device": spending.device_id,
        "reports": spending.lifetime.reports,
        "resent_reports": spending.resent_reports,
        "first_period": format_instant(spending.first_period_start),
        "last_period": format_instant(spending.last_period_start),
        "windows": [
            {
                "window": window,
                "reports": amount.reports,
                "epsilon_local": micro_as_number(amount.micro_epsilon),
                "micro_epsilon": amount.micro_epsilon,
            }
            for window, amount in _amounts(spending)
        ],
        "best_certainty": best_certainty(spending.lifetime.micro_epsilon),
        **COMPOSITION,
    }


def device_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """Such a document as one row per window, in DEVICE_COLUMNS."""
    return [
        [document["device"], window["window"], window["reports"], _plain(window["epsilon_local"])]
        for window in document["windows"]
    ]


def all_devices(spendings: Iterable[DeviceSpending]) -> dict[str, Any]:
    """`{devices: [...]}`, one object per device, and the relation that the figures hold for."""
    return {
        "devices": [
            {
                "device": spending.device_id,
                "reports": spending.lifetime.reports,
                "resent_reports": spending.resent_reports,
                "epsilon_local": {
                    window: micro_as_number(amount.micro_epsilon) for window, amount in _amounts(spending)
                },
            }
            for spending in spendings
        ],
        **COMPOSITION,
    }


def all_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """Such a document as one row per device, in ALL_COLUMNS."""
    return [
        [
            device["device"],
            device["reports"],
            device["resent_reports"],
            *(_plain(device["epsilon_local"][window]) for window in (*WINDOWS, "lifetime")),
        ]
        for device in document["devices"]
    ]


def _amounts(spending: DeviceSpending) -> list[tuple[str, Amount]]:
    windows: Mapping[str, Amount] = spending.windows
    return [*windows.items(), ("lifetime", spending.lifetime)]


def _plain(epsilon: float | None) -> Decimal | None:
    """A document's amount as a number cell: prints as a plain decimal, never with an exponent."""
    return None if epsilon is None else Decimal(format_micro(round(Decimal(str(epsilon)) * 1_000_000)))
