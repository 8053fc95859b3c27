"""The documents that an operator or an analyst asks for, from a store: what the command line and the network share.

Rules of this file: a document is made of one store and one question and of nothing else, so both edges answer alike;
who may ask is decided before (`gate`, `reporting`), and what the documents look like in `collector.reports`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Protocol

from client_sdk.accounting.ledger import Ledger
from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from client_sdk.secagg.parameters import MAX_ROSTER
from collector.accounting import fleet
from collector.accounting.allowance import Allowance, allowed
from collector.accounting.basic import WINDOWS, Amount, DeviceSpending, EveryDevice, FleetHistory, FleetSum, PlanSpend
from collector.accounting.exposure import fraction_above
from collector.accounting.figures import DELTA
from collector.accounting.fleet import Progress
from collector.plan_texts import read_plan
from collector.poisoning import SHARE
from collector.reports import all_devices, build_report, device_ledger, fleet_privacy
from collector.reports.fleet import fleet_window, with_windows
from collector.reports.privacy import LIFETIME, with_every_figure, with_ledger
from collector.service.storage import CollectorStore
from collector.service.storage_fleet import MOST_HISTORIES, RATIOS
from collector.service.storage_rows import StoredPlan

Document = Mapping[str, Any]


class UnknownDeviceError(ConfigurationError):
    """No report of the device that was asked for is counted."""


def report_document(
    store: CollectorStore,
    metric: str | None,
    since: int | None,
    until: int | None,
    false_devices: Fraction | int = SHARE,
) -> Document:
    """Estimates for since <= period_start < until. false_devices: how many, or a share of the contributors. Raises
    UnknownMetricError, StoreError.
    """
    if since is not None and until is not None and since > until:
        raise ConfigurationError("--since lies after --until; swap them")
    rows = store.released_sums(metric, since, until)
    plans = store.plans()  # after the sums: a plan that comes between is one too many, never one too few
    return build_report(plans, rows, since, until, metric, false_devices)


class FleetSource(Protocol):
    """What the documents of a fleet are made of: a store, or an export of one; see `CollectorStore`."""

    def plans(self) -> Sequence[StoredPlan]:
        """Every plan version."""

    def lifetimes_micro_epsilon(self) -> Sequence[int]:
        """Of each device."""

    def fleet_sums(self, now: float, window: str, micro_rhos: Mapping[bytes, int]) -> Sequence[FleetSum]:
        """What the closed form is made of."""

    def fleet_histories(
        self, now: float, window: str, corrupt: Mapping[bytes, Fraction], most: int, ratios: Sequence[float]
    ) -> Sequence[FleetHistory]:
        """What exact figures are made of."""

    def every_device(
        self, now: float, windows: Sequence[str], corrupt: Mapping[bytes, Fraction], most: int, ratios: Sequence[float]
    ) -> EveryDevice:
        """The same device by device."""

    def smallest_sum(self, now: float, window: str) -> int | None:
        """Contributors of the smallest sum of the window."""

    def spending(self, now: float) -> Sequence[DeviceSpending]:
        """Each device's windows and lifetime."""


def fleet_document(store: FleetSource, now: float, delta: float = DELTA) -> Document:
    """The distribution of lifetimes over all devices, by the closed form: its cost is one query. Raises StoreError."""
    plans = _plans(store)
    rhos = {plan.hash: fleet.micro_rho(plan) for plan in plans.values()}
    sums = store.fleet_sums(now, LIFETIME, rhos)
    is_pure = _is_pure(plans)
    forms = fleet.closed_forms(sums, delta, is_pure=is_pure)
    row = fleet_window(LIFETIME, sums, forms, None, delta=delta, is_pure=is_pure)
    return with_windows(fleet_privacy(store.lifetimes_micro_epsilon(), is_pure=is_pure), [row])


@dataclass(frozen=True, slots=True)
class Assumed:
    """What figures hold for. corrupt: the share of each roster that colludes; None: as each plan says.

    More than `most` histories are rounded by `ratios`, one after the other: figures that are higher, sooner there.
    """

    delta: float = DELTA
    corrupt: Fraction | None = None
    most: int = MOST_HISTORIES
    ratios: tuple[float, ...] = RATIOS


DEFAULT: Final = Assumed()


def exact_fleet_document(
    store: FleetSource, now: float, windows: Sequence[str], assumed: Assumed, progress: Progress | None = None
) -> Document:
    """The distribution in each window, exactly: minutes for a large fleet. Raises StoreError.

    progress: called with (histories done, histories in all), window by window.
    """
    rows = [_exact_window(store, now, window, assumed, progress) for window in windows]
    lifetimes = store.lifetimes_micro_epsilon()
    return with_windows(fleet_privacy(lifetimes, is_pure=_is_pure(_plans(store))), rows)


def _exact_window(
    store: FleetSource, now: float, window: str, assumed: Assumed, progress: Progress | None
) -> dict[str, Any]:
    known = _plans(store).values()
    sums = store.fleet_sums(now, window, {plan.hash: fleet.micro_rho(plan) for plan in known})
    histories = store.fleet_histories(now, window, _shares(known, assumed), assumed.most, assumed.ratios)
    plans = _plans(store)  # after the histories: a plan that comes between is one too many, never one too few
    found = fleet.fleet_figures(histories, plans, assumed.delta, progress)
    local, central = ([(getattr(one, name), one.devices) for one in found] for name in ("eps_local", "eps_central"))
    n_h = min((one.n_h for one in found if one.n_h is not None), default=None)
    n_min = store.smallest_sum(now, window)
    is_pure = _is_pure(plans)
    return fleet_window(window, sums, local, central, delta=assumed.delta, is_pure=is_pure, n_h=n_h, n_min=n_min)


def _plans(store: FleetSource) -> dict[str, Plan]:
    return {plan.hash.hex(): read_plan(plan.text, plan.hash) for plan in store.plans()}


def _is_pure(plans: Mapping[str, Plan]) -> bool:
    """No plan has Gaussian noise; see `reports.privacy.composition`."""
    return not any(plan.report_delta for plan in plans.values())


def _shares(plans: Iterable[Plan], assumed: Assumed) -> dict[bytes, Fraction]:
    """Each plan's share that colludes, as one that engines can multiply a roster by."""
    corrupt = assumed.corrupt
    shares = {plan.hash: plan.cohort.corrupt_fraction if corrupt is None else corrupt for plan in plans}
    return {plan: fraction_above(share, MAX_ROSTER) for plan, share in shares.items()}


def all_devices_document(
    store: FleetSource,
    now: float,
    windows: Sequence[str] = (),
    assumed: Assumed = DEFAULT,
    progress: Progress | None = None,
) -> Document:
    """One entry per device with a counted report; its pure epsilons, and all its figures in `windows`. Raises
    StoreError.
    """
    if not windows:
        spendings = store.spending(now)
        return all_devices(spendings, is_pure=_is_pure(_plans(store)))
    every = store.every_device(now, windows, _shares(_plans(store).values(), assumed), assumed.most, assumed.ratios)
    plans = _plans(store)  # after the histories, as above
    likes = {}
    for window, found in every.windows.items():
        figures = fleet.fleet_figures(found.histories, plans, assumed.delta, progress)
        least = [fleet.alone(one, plans) for one in found.histories]
        likes[window] = [
            (replace(one, micro_epsilon=max(one.micro_epsilon, least[one.history])), figures[one.history])
            for one in found.devices
        ]
    is_pure = _is_pure(plans)
    document = all_devices(every.spendings, is_pure=is_pure)
    allowances = _allowances(every, plans, int(now))
    return with_every_figure(document, likes, allowances, assumed.delta, is_pure=is_pure)


def _allowances(every: EveryDevice, plans: Mapping[str, Plan], now: int) -> dict[str, Allowance]:
    """By device; one computation for all that have spent alike."""
    found: dict[tuple[tuple[PlanSpend, ...], int], Allowance] = {}
    of_device = {}
    for one in every.spendings:
        spends = every.plan_spends.get(one.device_id, ())
        key = spends, one.lifetime.micro_epsilon - sum(spend.micro_epsilon for spend in spends)
        if key not in found:
            found[key] = allowed(spends, plans, carried_micro_epsilon=key[1], as_of=now)
        of_device[one.device_id] = found[key]
    return of_device


def device_document(store: CollectorStore, device_id: str, now: float) -> Document:
    """One device's ledger, and what its figures are computed from. Raises UnknownDeviceError, StoreError."""
    found = store.spending(now, device_id)
    if not found:
        raise UnknownDeviceError(
            f"--device {device_id[:64]!r}: no such device has a counted report here; --all lists those"
        )
    return _ledger(store, found[0], now)


def own_document(store: CollectorStore, device_id: str, now: float) -> Document:
    """The same for the device itself, which may have nothing here yet. Raises StoreError."""
    found = store.spending(now, device_id)
    nothing = DeviceSpending(device_id, dict.fromkeys(WINDOWS, Amount(0, 0)), Amount(0, 0), 0)
    return _ledger(store, found[0] if found else nothing, now)


def _ledger(store: CollectorStore, spending: DeviceSpending, now: float) -> Document:
    """No figure that takes longer than a query: whoever asks over the network computes those."""
    device = spending.device_id
    first, last = store.period_range(device)
    ledger = store.ledger(now, device) or Ledger("collector", device, int(now), (), ()).with_stated()
    texts = {plan.hash: plan.text for plan in store.plans()}
    used = {one.hash: read_plan(texts[bytes.fromhex(one.hash)], bytes.fromhex(one.hash)) for one in ledger.plans}
    shown = DeviceSpending(device, spending.windows, spending.lifetime, spending.resent_reports, first, last)
    return with_ledger(device_ledger(shown, is_pure=_is_pure(used)), ledger, texts)
