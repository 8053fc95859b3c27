"""An export, as `report` and `privacy` ask it in place of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from client_sdk.errors import ConfigurationError
from collector.reduced import Reduced
from collector.reports.cohorts import STEPS, RoundsOfPeriod
from collector.service.engines import arrow, expressions, in_python
from collector.service.engines.base import Engine, Files
from collector.service.engines.choice import start
from collector.service.engines.plans import stored_plans
from collector.service.engines.spending import Spending
from collector.service.parquet_tables import ExportError
from collector.service.storage_rows import StoredPlan


@contextmanager
def open_export(folder: Path, engine: str, master: str | None = None) -> Iterator[Exported]:
    """engine: one of `choice.ENGINES`. Raises ExportError, MissingExtraError, EngineError."""
    files = Files.of(folder)
    exported = Exported(files, start(engine, files, master))
    try:
        yield exported
    finally:
        exported.close()


class Exported:
    """The same questions as `CollectorStore`. engine: None: plain Python, which knows the released sums alone."""

    def __init__(self, files: Files, engine: Engine | None) -> None:
        self.files = files
        self._engine = engine

    def plans(self) -> Sequence[StoredPlan]:
        """Every plan version, by name and version."""
        return stored_plans(self.files)

    def reduced(self, metric: str | None = None, since: int | None = None, until: int | None = None) -> Reduced:
        """What a report needs of the released sums, for since <= period_start < until."""
        if self._engine is None:
            return in_python.reduced(self.files, metric, since, until)
        return arrow.reduced(self._engine, metric, since, until)

    def rounds_of_periods(self, since: int | None, until: int | None) -> list[RoundsOfPeriod]:
        """Finished rounds of cohorts, added up by plan version, period and how they ended."""
        rounds, sums = self.engine.table("rounds"), self.engine.table("released_sums")
        found = arrow.rows(self.engine.batches(expressions.rounds_of_periods(rounds, sums, since, until)))
        return [
            RoundsOfPeriod(
                bytes.fromhex(plan_hash), start, reason, count, int(joined), int(contributors), least, most,
                {step: int(dropped) for step, dropped in zip(STEPS, dropouts, strict=True)},
            )
            for plan_hash, start, reason, count, joined, contributors, least, most, *dropouts in found
        ]  # fmt: skip

    @property
    def as_of(self) -> int:
        """The moment that it shows."""
        return self.files.manifest.exported_at

    @property
    def has_devices(self) -> bool:
        """Does it say what they have spent?"""
        return "device_totals" in self.files.paths

    def spending(self) -> Spending:
        """What the devices have spent. Raises ExportError where it does not say that, or not of all periods."""
        if not self.has_devices:
            raise ExportError(self.files.folder, "was made with --sums-only and says nothing of devices; export all")
        if (self.files.manifest.since, self.files.manifest.until) != (None, None):
            what = "holds some periods only, and what devices have spent is of all: export without --since and --until"
            raise ExportError(self.files.folder, what)
        return Spending(self.files, self.engine)

    @property
    def engine(self) -> Engine:
        """Raises ConfigurationError for plain Python."""
        if self._engine is None:
            raise ConfigurationError("--engine python adds up released sums and nothing else; take --engine duckdb")
        return self._engine

    def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            self._engine.close()
