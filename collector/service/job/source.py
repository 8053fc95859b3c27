"""What a job reads: a store, a store whose sums an engine adds up, or an export of one.

Rules of this file: the sums of a window and the rounds that they are said to be of are read in one transaction, so that
a manifest and its report are of one moment while uploads go on; nothing is written here, and no window is held longer
than it is written. An export shows the moment that it was made: what has happened since, no job knows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, select

from client_sdk.errors import MissingExtraError
from client_sdk.plan import Plan
from collector.plan_texts import read_plan
from collector.reduced import Reduced, is_between, reduce_sums
from collector.reports.cohorts import RoundsOfPeriod
from collector.reports.due import Held, Round, held_of
from collector.reports.privacy import LIFETIME
from collector.reports.text import format_instant
from collector.reports.windows import Window
from collector.service import storage_reads as reads
from collector.service import tables as t
from collector.service.documents import DEFAULT, Assumed, exact_fleet_document
from collector.service.engines.choice import DUCKDB, MOST_PYTHON_CELLS, PYTHON, is_installed, require
from collector.service.job.config import JobConfig
from collector.service.logs import PASSWORD
from collector.service.parquet_tables import DAY_S, day_name
from collector.service.report_windows import Question
from collector.service.reporting import MOST_HISTORIES, RATIOS
from collector.service.storage import CollectorStore
from collector.service.storage_cells import released_cells
from collector.service.storage_cohorts import rounds_of_periods

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from collector.service.engines.base import Engine, Files
    from collector.service.engines.exported import Exported

T = TypeVar("T")

PIECE: Final = 10_000
RELEASED: Final = "released"


class Snapshot(Protocol):
    """Some periods of a source."""

    def read(self, window: Window, late_from: int) -> tuple[Sequence[Plan], Reduced, Held]:
        """Every plan; the sums of the window's rounds that ended before `late_from`; and which rounds there are."""

    def rounds(self, question: Question) -> Sequence[RoundsOfPeriod]:
        """Of `Reading`."""

    def fleet(self) -> Mapping[str, Any] | None:
        """Of `Reading`; computed once."""


class Source(Protocol):
    """identity: for the manifests. as_of: the moment that it shows."""

    identity: Mapping[str, Any]
    as_of: int

    def plans(self) -> Sequence[Plan]:
        """Every version."""

    def covers(self, window: Window) -> bool:
        """Does it hold all of its periods?"""

    def has_devices(self) -> bool:
        """Does it say what all of them have spent?"""

    def look(self, consume: Callable[[Iterator[Round]], T]) -> T:
        """What `consume` makes of all released rounds, by period."""

    def snapshot(self, since: int, until: int) -> Any:
        """A context: the `Snapshot` of these periods."""


@contextmanager
def opened(config: JobConfig, now: int) -> Iterator[Source]:
    """Raises what opening it raises."""
    if config.parquet is not None:
        if not is_installed(DUCKDB):
            raise MissingExtraError("a job from `parquet`", "reports")
        require(config.engine or DUCKDB)
        yield ExportSource(config, now)
        return
    if config.engine is not None:
        require(config.engine)
    store = CollectorStore.open(config.db or "", read_only=True)
    try:
        yield StoreSource(store, config, now)
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class WindowReading:
    """What the documents of one window are made of; a `Reading`."""

    plans: Sequence[Plan]
    reduced: Reduced
    snapshot: Snapshot

    def sums(self, question: Question) -> tuple[Sequence[Plan], Reduced]:  # noqa: ARG002 - it was asked before
        return self.plans, self.reduced

    def rounds(self, question: Question) -> Sequence[RoundsOfPeriod]:
        return self.snapshot.rounds(question)

    def fleet(self) -> Mapping[str, Any] | None:
        return self.snapshot.fleet()


# --- a store ----------------------------------------------------------------------------------------


class StoreSource:
    """See `Source`."""

    def __init__(self, store: CollectorStore, config: JobConfig, now: int) -> None:
        self._store = store
        self._config = config
        self.as_of = now
        self.identity: Mapping[str, Any] = {"kind": "store", "url": PASSWORD.sub(r"\g<before>***", config.db or "")}
        self._fleet = _OfStore(store, now)

    def plans(self) -> Sequence[Plan]:
        return _plans(self._store)

    def covers(self, window: Window) -> bool:  # noqa: ARG002 - see the class
        return True

    def has_devices(self) -> bool:
        return True

    def look(self, consume: Callable[[Iterator[Round]], T]) -> T:
        return self._store.look(lambda conn: consume(_rounds(conn, None, None)))

    @contextmanager
    def snapshot(self, since: int, until: int) -> Iterator[Snapshot]:
        engine = self._config.engine
        if engine is None and is_installed(DUCKDB):
            cells = self._store.look(lambda conn: released_cells(conn, None, since, until))
            engine = DUCKDB if cells > MOST_PYTHON_CELLS else PYTHON
        if engine in {None, PYTHON}:
            yield self._fleet
            return
        from collector.service.engines.exported import open_export
        from collector.service.parquet_export import Asked, export

        with tempfile.TemporaryDirectory(prefix="ldp-job-") as name:
            folder = Path(name) / "export"
            asked = Asked(since // DAY_S * DAY_S, -(-until // DAY_S) * DAY_S, devices=False)
            self._store.look(lambda conn: export(conn, folder, self.as_of, asked))
            with open_export(folder, str(engine), self._config.master) as exported:
                yield ExportSnapshot(exported, self._fleet.fleet)


class _OfStore:
    """A store as it is: each window in a transaction of its own. A `Snapshot`."""

    def __init__(self, store: CollectorStore, now: int) -> None:
        self._store = store
        self._now = now

    def read(self, window: Window, late_from: int) -> tuple[Sequence[Plan], Reduced, Held]:
        rounds, rows = self._store.look(
            lambda conn: (
                list(_rounds(conn, window.since, window.until)),
                reads.released_sums(conn, None, window.since, window.until),
            )
        )
        held = held_of(window, rounds, late_from)
        reduced = reduce_sums(row for row in rows if row.round_id not in held.late)
        return _plans(self._store), reduced, held

    def rounds(self, question: Question) -> Sequence[RoundsOfPeriod]:
        return self._store.look(lambda conn: rounds_of_periods(conn, question.since, question.until))

    def fleet(self) -> Mapping[str, Any]:
        return self._exact

    @cached_property
    def _exact(self) -> Mapping[str, Any]:
        return exact_fleet_document(self._store, self._now, (LIFETIME,), DEFAULT)


def _plans(store: CollectorStore | Exported) -> Sequence[Plan]:
    return [read_plan(plan.text, plan.hash) for plan in store.plans()]


def _rounds(conn: Connection, since: int | None, until: int | None) -> Iterator[Round]:
    c = t.rounds.c
    query = select(c.period_start, c.round, c.plan_hash, c.contributors, c.finished_at).where(c.outcome == RELEASED)
    query = query if since is None else query.where(c.period_start >= since)
    query = query if until is None else query.where(c.period_start < until)
    for row in conn.execute(query.order_by(c.period_start, c.round), execution_options={"yield_per": PIECE}):
        yield Round(row.period_start, row.round, row.plan_hash.hex(), row.contributors, row.finished_at)


# --- an export --------------------------------------------------------------------------------------


class ExportSource:
    """See `Source`."""

    def __init__(self, config: JobConfig, now: int) -> None:
        from collector.service.engines.base import Files

        self._config = config
        self._folder = config.parquet or Path()
        self._files = Files.of(self._folder)
        manifest = self._files.manifest
        self.as_of = min(now, manifest.exported_at)
        self.identity: Mapping[str, Any] = {
            "kind": "export", "folder": str(self._folder), "exported_at": format_instant(manifest.exported_at),
        }  # fmt: skip

    def plans(self) -> Sequence[Plan]:
        from collector.service.engines.plans import stored_plans

        return [read_plan(plan.text, plan.hash) for plan in stored_plans(self._files)]

    def covers(self, window: Window) -> bool:
        manifest = self._files.manifest
        return is_between(window.since, manifest.since, None) and (
            manifest.until is None or window.until <= manifest.until
        )

    def has_devices(self) -> bool:
        return _says_spending(self._files)

    def look(self, consume: Callable[[Iterator[Round]], T]) -> T:
        return consume(_rounds_of_files(self._files, None, None))

    @contextmanager
    def snapshot(self, since: int, until: int) -> Iterator[Snapshot]:  # noqa: ARG002 - all of it
        from collector.service.engines.exported import open_export

        with open_export(self._folder, self._config.engine or DUCKDB, self._config.master) as exported:
            yield ExportSnapshot(exported, None)


class ExportSnapshot:
    """See `Snapshot`. fleet: where the export says nothing of devices, and something else does."""

    def __init__(self, exported: Exported, fleet: Callable[[], Mapping[str, Any]] | None) -> None:
        self._exported = exported
        self._elsewhere = fleet

    def read(self, window: Window, late_from: int) -> tuple[Sequence[Plan], Reduced, Held]:
        from collector.service.engines import arrow

        found = _rounds_of_files(self._exported.files, window.since, window.until)
        held = held_of(window, found, late_from)
        engine = self._exported.engine
        without: Engine = _Without(engine, held.late) if held.late else engine
        return _plans(self._exported), arrow.reduced(without, None, window.since, window.until), held

    def rounds(self, question: Question) -> Sequence[RoundsOfPeriod]:
        return self._exported.rounds_of_periods(question.since, question.until)

    def fleet(self) -> Mapping[str, Any] | None:
        return self._exact

    @cached_property
    def _exact(self) -> Mapping[str, Any] | None:
        if self._elsewhere is not None:
            return self._elsewhere()
        if not _says_spending(self._exported.files):
            return None
        assumed = Assumed(most=MOST_HISTORIES, ratios=RATIOS)  # as of a store
        return exact_fleet_document(self._exported.spending(), self._exported.as_of, (LIFETIME,), assumed)


class _Without:
    """An engine whose released sums lack some rounds."""

    def __init__(self, engine: Engine, rounds: Collection[str]) -> None:
        self._engine = engine
        self._rounds = sorted(rounds)

    def table(self, name: str) -> ir.Table:
        table = self._engine.table(name)
        if name != "released_sums":
            return table
        late = self.lookup("late_rounds", {"round": "string"}, [(one,) for one in self._rounds])
        return table.anti_join(late, "round")

    def lookup(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> ir.Table:
        return self._engine.lookup(name, columns, rows)

    def batches(self, expression: ir.Table) -> Iterator[pa.RecordBatch]:
        return self._engine.batches(expression)

    def close(self) -> None:
        self._engine.close()


def _says_spending(files: Files) -> bool:
    """Of all devices and all periods."""
    return "device_totals" in files.paths and (files.manifest.since, files.manifest.until) == (None, None)


def _rounds_of_files(files: Files, since: int | None, until: int | None) -> Iterator[Round]:
    """By period: an export's files are one a day, each in that order."""
    import pyarrow.parquet as pq

    columns = ["period_start", "round", "plan_hash", "contributors", "finished_at", "outcome"]
    files.of_table("rounds")  # that it is there, and whole
    parts = sorted(files.manifest.tables["rounds"], key=lambda part: part.day or "")
    for part in parts:
        if part.day is not None and not _is_of(part.day, since, until):
            continue
        with pq.ParquetFile(files.folder / part.path) as file:
            for batch in file.iter_batches(columns=columns):
                for *head, outcome in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    if outcome == RELEASED and is_between(head[0], since, until):
                        yield Round(*head)


def _is_of(day: str, since: int | None, until: int | None) -> bool:
    """May a period of the window start on that UTC day? ISO dates are in order as texts."""
    return (since is None or day_name(since // DAY_S) <= day) and (until is None or day <= day_name(until // DAY_S))
