"""The documents that an operator or an analyst asks for, from a store: what the command line and the network share.

Rules of this file: a document is made of one store and one question and of nothing else, so both edges answer alike;
who may ask is decided before (`gate`, `reporting`), and what the documents look like in `collector.reports`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client_sdk.errors import ConfigurationError
from collector.accounting.basic import WINDOWS, Amount, DeviceSpending
from collector.reports import all_devices, build_report, device_ledger, fleet_privacy
from collector.service.storage import CollectorStore

Document = Mapping[str, Any]


class UnknownDeviceError(ConfigurationError):
    """No report of the device that was asked for is counted."""


def report_document(store: CollectorStore, metric: str | None, since: int | None, until: int | None) -> Document:
    """Estimates for since <= period_start < until. Raises UnknownMetricError, StoreError."""
    if since is not None and until is not None and since > until:
        raise ConfigurationError("--since lies after --until; swap them")
    rows = store.released_sums(metric, since, until)
    plans = store.plans()  # after the sums: a plan that comes between is one too many, never one too few
    return build_report(plans, rows, since, until, metric)


def fleet_document(store: CollectorStore) -> Document:
    """The distribution of lifetimes over all devices. Raises StoreError."""
    return fleet_privacy(store.lifetimes_micro_epsilon())


def all_devices_document(store: CollectorStore, now: float) -> Document:
    """One entry per device with a counted report. Raises StoreError."""
    return all_devices(store.spending(now))


def device_document(store: CollectorStore, device_id: str, now: float) -> Document:
    """One device's ledger. Raises UnknownDeviceError, StoreError."""
    found = store.spending(now, device_id)
    if not found:
        raise UnknownDeviceError(
            f"--device {device_id[:64]!r}: no such device has a counted report here; --all lists those"
        )
    return _ledger(store, found[0])


def own_document(store: CollectorStore, device_id: str, now: float) -> Document:
    """The same for the device itself, which may have nothing here yet. Raises StoreError."""
    found = store.spending(now, device_id)
    nothing = DeviceSpending(device_id, dict.fromkeys(WINDOWS, Amount(0, 0)), Amount(0, 0), 0)
    return _ledger(store, found[0] if found else nothing)


def _ledger(store: CollectorStore, spending: DeviceSpending) -> Document:
    first, last = store.period_range(spending.device_id)
    return device_ledger(
        DeviceSpending(spending.device_id, spending.windows, spending.lifetime, spending.resent_reports, first, last)
    )
