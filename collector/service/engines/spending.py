"""What a fleet has spent, asked of an export: the same answers as the store's, out of an engine.

Rules of this file: an engine's grouped sums become the values that `storage_fleet` makes of a store's, by the same
code. A single device is asked about in a small store of its own, made of its rows: its ledger is the store's, whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from collector.accounting.basic import WINDOWS, Amount, DeviceSpending, EveryDevice, FleetHistory, FleetSum, PlanSpend
from collector.service import storage_fleet
from collector.service.engines import ledger
from collector.service.engines.arrow import Row, rows
from collector.service.engines.base import Engine, Files
from collector.service.engines.plans import stored_plans
from collector.service.storage_rows import StoredPlan

if TYPE_CHECKING:
    import ibis.expr.types as ir


class Spent(NamedTuple):
    """See `storage_fleet.Spent`."""

    device: str
    whole: int
    carried: int
    cost: int
    plan_hash: bytes | None
    n_h: int | None
    reports: int | None
    first: int | None
    least: int | None


class Spending:
    """Questions to the ledger of an export, as `CollectorStore` answers them of its own."""

    def __init__(self, files: Files, engine: Engine) -> None:
        self._files = files
        self._engine = engine

    def plans(self) -> list[StoredPlan]:
        """Every plan version, by name and version."""
        return stored_plans(self._files)

    @cached_property
    def _tables(self) -> ledger.Tables:
        names = ("spends", "folded_spends", "folded_cohorts", "device_totals", "released_sums", "rounds")
        return ledger.Tables.of(self._numbers(), *(self._engine.table(name) for name in names))

    @cached_property
    def _hashes(self) -> list[bytes]:
        """By number."""
        return [plan.hash for plan in self.plans()]

    def _numbers(self) -> ir.Table:
        first: dict[object, object] = dict(
            rows(self._engine.batches(ledger.first_metrics(self._engine.table("spends"))))
        )
        hashes = [plan_hash.hex() for plan_hash in self._hashes]
        columns = {"plan_hash": "string", "plan": "int64", "first_metric": "string"}
        numbered = [(plan_hash, number, first.get(plan_hash)) for number, plan_hash in enumerate(hashes)]
        return self._engine.lookup("plan_numbers", columns, numbered)

    def lifetimes_micro_epsilon(self) -> list[int]:
        """The lifetime of each device, in no order."""
        found = self._engine.batches(self._engine.table("device_totals").select("micro_epsilon"))
        return [cost for (cost,) in rows(found)]

    def fleet_sums(self, now: float, window: str, micro_rhos: Mapping[bytes, int]) -> list[FleetSum]:
        """How many devices have spent the same."""
        devices = ledger.of_devices(self._tables, self._rhos(micro_rhos), int(now), window)
        found = rows(self._engine.batches(ledger.alike(devices)))
        sums = [FleetSum(int(n), int(cost), int(rho), bool(whole)) for cost, rho, whole, n in found]
        return sorted(sums, key=lambda one: (one.micro_epsilon, one.micro_rho, one.whole))

    def fleet_histories(
        self, now: float, window: str, corrupt: Mapping[bytes, Fraction], most: int, ratios: Sequence[float]
    ) -> list[FleetHistory]:
        """What exact figures are made of, like ones together."""
        return storage_fleet.like_histories(self._by_device(int(now), window, corrupt), most, ratios)

    def every_device(
        self, now: float, windows: Sequence[str], corrupt: Mapping[bytes, Fraction], most: int, ratios: Sequence[float]
    ) -> EveryDevice:
        """The same device by device, and what is left of budgets."""
        return EveryDevice(
            tuple(self.spending(now)),
            self._plan_spends(),
            {w: storage_fleet.each_history(self._by_device(int(now), w, corrupt), most, ratios) for w in windows},
        )

    def smallest_sum(self, now: float, window: str) -> int | None:
        """Contributors of the smallest sum that was released in the window, over all metrics; None without one."""
        ((found,),) = rows(self._engine.batches(ledger.smallest_sum(self._tables, int(now), window)))
        return None if found is None else int(found)

    def spending(self, now: float) -> list[DeviceSpending]:
        """Every device with its windows and its lifetime."""
        found = rows(self._engine.batches(ledger.spending(self._tables, int(now))))
        return [
            DeviceSpending(device, _windows(amounts), Amount(reports, micro_epsilon), resent)
            for device, reports, micro_epsilon, resent, *amounts in found
        ]

    def _plan_spends(self) -> dict[str, tuple[PlanSpend, ...]]:
        found = rows(self._engine.batches(ledger.plan_spends(self._engine.table("spends"), self._tables)))
        return {
            device: tuple(PlanSpend(plan_hash, int(cost), last) for _, plan_hash, cost, last in group)
            for device, group in groupby(found, key=lambda row: row[0])
        }

    def _by_device(self, now: int, window: str, corrupt: Mapping[bytes, Fraction]) -> Iterator[tuple[str, list[Spent]]]:
        tables, shares = self._tables, self._shares(corrupt)
        devices = ledger.of_devices(tables, self._rhos(dict.fromkeys(corrupt, 0)), now, window)
        reports = ledger.reports_by_n_h(tables, shares, now, window)
        found = rows(self._engine.batches(ledger.by_device(devices, reports)))
        for device, group in groupby(found, key=lambda row: row[0]):
            made: list[Row] = []
            known: Row | None = None
            for row in group:
                if row[_PLAN] is None:
                    known = row
                else:
                    made.append(row)
            if known is not None:
                yield device, self._spent(known, made)

    def _spent(self, known: Row, made: Sequence[Row]) -> list[Spent]:
        device, whole, carried, cost = known[:_PLAN]
        if not made:
            return [Spent(device, whole, carried, cost, None, None, None, None, None)]
        in_order = sorted(made, key=lambda row: row[_PLAN:])
        return [Spent(device, whole, carried, cost, self._hashes[plan], *rest) for _, _, _, _, plan, *rest in in_order]

    def _rhos(self, micro_rhos: Mapping[bytes, int]) -> ir.Table:
        rows = [(n, micro_rhos[plan]) for n, plan in enumerate(self._hashes) if plan in micro_rhos]
        return self._engine.lookup("micro_rhos", {"plan": "int64", "micro_rho": "int64"}, rows)

    def _shares(self, corrupt: Mapping[bytes, Fraction]) -> ir.Table:
        columns = {"plan": "int64", "numerator": "int64", "denominator": "int64"}
        shares = [(n, corrupt[plan]) for n, plan in enumerate(self._hashes) if plan in corrupt]
        return self._engine.lookup("corrupt_shares", columns, [(n, s.numerator, s.denominator) for n, s in shares])


_PLAN: Final = 4
"""Where a row of `ledger.by_device` has its plan's number."""


def _windows(amounts: Sequence[int]) -> dict[str, Amount]:
    pairs = zip(amounts[::2], amounts[1::2], strict=True)
    return {name: Amount(int(reports), int(cost)) for name, (reports, cost) in zip(WINDOWS, pairs, strict=True)}
