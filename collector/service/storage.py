"""The collector's store: what a restart must find again.

Rules of this file: every method is one transaction, on disk before it returns, or nothing at all. How a store is
opened, `storage_base.py` knows; the statements stand in `storage_reads.py` and `storage_writes.py` and are every
engine's.

What it does not do: it keeps no report and no list of identities, decides nothing about privacy beyond refusing a
release under `min_size`, and deletes nothing by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection, select

from client_sdk.accounting.ledger import Ledger
from client_sdk.certificate import Role
from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan
from collector.accounting.basic import WINDOWS, DeviceSpending, EveryDevice, FleetHistory, FleetSum
from collector.release import ReleasedSum
from collector.service import migrations, retention
from collector.service import storage_fleet as fleet
from collector.service import storage_folding as folding
from collector.service import storage_forgetting as forgetting
from collector.service import storage_histories as histories
from collector.service import storage_plans as plans
from collector.service import storage_reads as reads
from collector.service import storage_tokens as tokens
from collector.service import storage_writes as writes
from collector.service import tables as t
from collector.service.retention import Retention, Tidied
from collector.service.storage_base import Store
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_rows import (
    Contribution,
    Contributor,
    DuplicateContributionError,
    Question,
    Release,
    RoundRecord,
    Standing,
    StoredPlan,
)
from collector.service.storage_schema import Schema
from collector.service.storage_tokens import AccessToken

__all__ = [
    "AccessToken",
    "CollectorStore",
    "Contribution",
    "Contributor",
    "DuplicateContributionError",
    "Question",
    "Release",
    "RoundRecord",
    "Standing",
    "StoreError",
    "StoreProblem",
    "StoredPlan",
]

T = TypeVar("T")

MIN_KEPT_S: Final = max(WINDOWS.values())
DEFAULT_RETENTION: Final = Retention()

SCHEMA: Final = Schema(
    migrations.REVISIONS,
    Path(migrations.__file__).parent,
    t.metadata,
    "alembic_version",
    where="give the --db that `ldp-collector serve` uses",
    make="start `ldp-collector serve` on it once",
)


class CollectorStore(Store):
    """Synchronous and thread-safe; one connection per transaction from a small pool."""

    schema = SCHEMA

    # --- plans ----------------------------------------------------------------------------------

    def put_plan(self, plan: Plan, now: float) -> None:
        """Keep a plan version; idempotent. Raises PlanError for a changed version or period."""
        self._write_alone(plans.put_plan, plan, int(now))

    def plans(self) -> list[StoredPlan]:
        """Every plan version, by name and version."""
        c = t.plans.c
        with self._reading() as conn:
            rows = conn.execute(select(c.hash, c.name, c.version, c.text).order_by(c.name, c.version))
            return [StoredPlan(*row) for row in rows]

    # --- rounds ---------------------------------------------------------------------------------

    def device_totals(self, device_id: str) -> tuple[int, int]:
        """(reports counted, micro-epsilon) over the device's whole life; zeros for an unknown one."""
        c = t.device_totals.c
        with self._reading(quick=True) as conn:
            row = conn.execute(select(c.reports, c.micro_epsilon).where(c.device == device_id)).first()
            return (0, 0) if row is None else (row.reports, row.micro_epsilon)

    def standings(self, questions: Sequence[Question]) -> dict[Question, Standing]:
        """What is booked for each of the devices that are asked about, all as of one moment."""
        devices: dict[tuple[str, int], list[str]] = defaultdict(list)
        for device_id, plan_name, period_start in questions:
            devices[plan_name, period_start].append(device_id)
        with self._reading(quick=True) as conn:
            return {
                (device_id, *period): standing
                for period, asked in devices.items()
                for device_id, standing in reads.standings(conn, asked, *period).items()
            }

    def store_release(self, release: Release) -> None:
        """All of an opened sum, or nothing. When it returns, receipts may go out.

        Raises DuplicateContributionError naming the devices that are already counted.
        """
        (refused,) = self.store_releases([release])
        if refused is not None:
            raise refused

    def store_releases(self, releases: Sequence[Release]) -> list[DuplicateContributionError | None]:
        """Several opened sums, each whole or not at all: per sum None, or why it was not stored.

        One transaction, and one wait for the disk. What else is wrong with one of them is raised, and none is stored.
        """
        return self._write(writes.insert_releases, releases)

    def record_aborted(self, record: RoundRecord) -> None:
        """A round that ended without a sum: reason and counts only. Idempotent; a stored sum stays one."""
        self._write(writes.insert_round, record)

    def forget(self, device_id: str, now: float, *, certified: bool) -> bool:
        """Unlink a device's ledger and never take it again; idempotent. False: there was nothing left to do.

        certified: has a registrar ever vouched for it? Else it is not even listed, unless it is known here: the list
        must not grow by whoever draws keys.
        """
        with self._reading(quick=True) as conn:  # a request that comes again and again must not hold up writers
            if forgetting.is_forgotten(conn, device_id):
                return False
            if not certified and not forgetting.knows(conn, device_id):
                return False
        return self._write_alone(forgetting.forget, device_id, int(now))

    def agreed_time(self, now: float, *, by_hand: bool = False) -> float:
        """By what time `keep_house` may be asked to tidy up, where this machine says `now`; see `retention`.

        by_hand: a person answers for the clock of a store that has no other one. Raises ClockError.
        """
        with self._reading(quick=True) as conn:
            newest = None if by_hand else retention.newest_round(conn)
            return retention.agreed_time(now, self._backend.now(conn), newest)

    def keep_house(self, now: float, keep: Retention = DEFAULT_RETENTION) -> Tidied:
        """Garbage collection, idempotent: folds old spends, drops what `keep` says and what is left of devices that
        opted out once its periods are too old to be sent.

        now: of `agreed_time`; what a wrong clock has dropped would be counted twice.
        """
        return Tidied.all_of(self.house_pieces(now, keep))

    def house_pieces(self, now: float, keep: Retention = DEFAULT_RETENTION) -> Iterator[Tidied]:
        """`keep_house`, a short transaction at each step."""
        while keep.spends_s != retention.FOREVER and (some := self._fold_some(now, int(keep.spends_s))):
            yield Tidied(spends=some)
        for piece in retention.SLICES:
            yield Tidied(contributions=self._tidy(forgetting.drop_old_contributions, int(now), piece))
        for first, end in retention.SLICES:
            after: str | None = first
            while after is not None:
                rest = (after, end)
                dropped, after = self._tidy(retention.drop_contributions, int(now), keep.contributions_s, rest)
                yield Tidied(contributions=dropped)
        while some := self._tidy(retention.drop_rounds, int(now), keep.rounds_s):
            yield Tidied(rounds=some)

    def fold_spends(self, now: float, keep_s: int = MIN_KEPT_S) -> int:
        """Garbage collection: spends older than `keep_s` go; the lifetime stays, with what its figures are made of.

        Returns the rows dropped. Raises ConfigurationError where `keep_s` is shorter than the longest window shown.
        """
        folded = 0
        while some := self._fold_some(now, keep_s):  # in between, others get their turn
            folded += some
        return folded

    def _fold_some(self, now: float, keep_s: int) -> int:
        if keep_s < MIN_KEPT_S:
            raise ConfigurationError(f"spends must be kept for at least {MIN_KEPT_S} s, the longest window shown")
        return self._tidy(folding.fold_spends, int(now) - keep_s)

    # --- for the reports ------------------------------------------------------------------------

    def rounds(self) -> list[RoundRecord]:
        """Every finished round, in the order in which they finished."""
        with self._reading() as conn:
            return reads.rounds(conn)

    def released_sums(
        self, metric: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[ReleasedSum]:
        """Per round and metric the opened totals, for since <= period_start < until."""
        with self._reading() as conn:
            return reads.released_sums(conn, metric, since, until)

    def contributions(
        self, device_id: str | None = None, since: int | None = None, until: int | None = None
    ) -> list[Contribution]:
        """Who is counted where, for since <= period_start < until."""
        with self._reading() as conn:
            return reads.contributions(conn, device_id, since, until)

    def lifetimes_micro_epsilon(self) -> list[int]:
        """The lifetime of each device with a counted report, in no order."""
        with self._reading() as conn:
            return list(conn.execute(select(t.device_totals.c.micro_epsilon)).scalars())

    def spending(self, now: float, device_id: str | None = None) -> list[DeviceSpending]:
        """Per device with a counted report (or the one asked for) its windows up to `now` and its lifetime."""
        with self._reading() as conn:
            return reads.spending(conn, int(now), device_id)

    def ledger(self, now: float, device_id: str) -> Ledger | None:
        """What is booked for a device, as the document that it can be compared with; None: nothing is."""
        with self._reading() as conn:
            return histories.ledger_of(conn, device_id, int(now))

    def fleet_sums(self, now: float, window: str, micro_rhos: Mapping[bytes, int]) -> list[FleetSum]:
        """Over every device with a counted report: what the closed form is made of, like ones together.

        micro_rhos: per plan, the zero-concentrated loss of one report in millionths.
        """
        with self._reading() as conn:
            return fleet.fleet_sums(conn, int(now), window, micro_rhos)

    def fleet_histories(
        self,
        now: float,
        window: str,
        corrupt: Mapping[bytes, Fraction],
        most: int = fleet.MOST_HISTORIES,
        ratios: Sequence[float] = fleet.RATIOS,
    ) -> list[FleetHistory]:
        """Over every device with a counted report: what exact figures are made of, like ones together.

        corrupt: per plan, the share of a roster that is assumed to collude. More than `most` are rounded by `ratios`.
        """
        with self._reading() as conn:
            return fleet.fleet_histories(conn, int(now), window, corrupt, most, ratios)

    def every_device(
        self,
        now: float,
        windows: Sequence[str],
        corrupt: Mapping[bytes, Fraction],
        most: int = fleet.MOST_HISTORIES,
        ratios: Sequence[float] = fleet.RATIOS,
    ) -> EveryDevice:
        """The same device by device, in each of the windows, and what is left of budgets: all as of one moment."""
        with self._reading() as conn:
            return EveryDevice(
                tuple(reads.spending(conn, int(now), None)),
                fleet.plan_spends(conn),
                {w: fleet.every_device(conn, int(now), w, corrupt, most, ratios) for w in windows},
            )

    def smallest_sum(self, now: float, window: str) -> int | None:
        """Contributors of the smallest sum that was released in the window, over all metrics; None without one."""
        with self._reading() as conn:
            return fleet.smallest_sum(conn, int(now), window)

    def period_range(self, device_id: str) -> tuple[int | None, int | None]:
        """First and last period in which the device is counted."""
        with self._reading() as conn:
            return reads.period_range(conn, device_id)

    def look(self, ask: Callable[[Connection], T]) -> T:
        """For the doctor: one question, as of one moment; it changes nothing."""
        with self._reading() as conn:
            return ask(conn)

    # --- who may read ---------------------------------------------------------------------------

    def issue_access(self, role: Role, name: str, now: float, ttl_s: int) -> str:
        """A bearer token for an analyst, an operator or a health check; only its hash is kept."""
        return self._write(tokens.issue, role, name, int(now), ttl_s)

    def access_tokens(self) -> list[AccessToken]:
        """Every token that was issued, the ended ones too."""
        with self._reading(quick=True) as conn:
            return tokens.all_tokens(conn)

    def revoke_access(self, token_hash: bytes, now: float) -> None:
        """End a token before its time."""
        self._write(tokens.revoke, [token_hash], int(now))
