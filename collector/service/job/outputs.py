"""A window's files, as bytes: the same report as JSON, CSV, Parquet, a page and gauges, and what devices have spent.

Rules of this file: nothing of the moment or the machine is in the bytes, so the same sums make the same files.
`report.json` and `report.csv` are what `report --since --until` prints. What it does not do: it writes no file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from client_sdk.errors import MissingExtraError
from collector.reports import to_csv, to_json
from collector.reports.gauges import gauges_of
from collector.reports.report import COLUMNS, report_rows
from collector.reports.text import Cell
from collector.reports.windows import Window
from collector.service.job.config import JobConfig
from collector.service.job.telemetry import to_text
from collector.service.report_answers import Answers
from collector.service.report_windows import Zone

if TYPE_CHECKING:
    import pyarrow as pa

GAUGES: Final = "gauges.prom"

FILES: Final = {
    "json": "report.json",
    "csv": "report.csv",
    "html": "report.html",
    "parquet": "report.parquet",
    "privacy": "privacy.json",
    "prometheus": GAUGES,
    "otlp": GAUGES,
}
"""By what the configuration calls it."""

_NEEDS: Final = {
    "html": ("jinja2", "reports"), "parquet": ("pyarrow", "reports"), "otlp": ("opentelemetry.exporter.otlp", "otel"),
}  # fmt: skip


def files_of(config: JobConfig) -> tuple[str, ...]:
    """Of each window, in the order in which they are written."""
    return tuple(dict.fromkeys(FILES[output] for output in config.outputs))


def check_extras(config: JobConfig) -> None:
    """Before anything is read. Raises MissingExtraError."""
    for output in config.outputs:
        module, extra = _NEEDS.get(output, ("sys", ""))
        if not _is_there(module):
            raise MissingExtraError(f"{output!r} of a job's outputs", extra)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is in
        return False


class WindowFiles:
    """Of one window; each is made when it is asked for. answers: to the question about it."""

    def __init__(self, answers: Answers, window: Window, zone: Zone) -> None:
        self._answers = answers
        self._window = window
        self._zone = zone

    def make(self, name: str) -> bytes:
        """name: of FILES' values. Raises what reading raises, and MissingExtraError."""
        makers: Mapping[str, Callable[[], bytes]] = {
            "report.json": lambda: _json(self._report),
            "report.csv": lambda: to_csv(COLUMNS, report_rows(self._report)).encode(),
            "report.html": self._page,
            "report.parquet": lambda: _parquet(report_rows(self._report)),
            "privacy.json": lambda: _json(self._answers.fleet()),
            GAUGES: lambda: to_text(gauges_of(self._report, self._window.label, self._window.until)),
        }
        return makers[name]()

    @cached_property
    def _report(self) -> Mapping[str, Any]:
        return self._answers.report()

    def _page(self) -> bytes:
        from collector.service.report_page import page

        return page(self._answers, None, self._zone).encode()


def _json(document: object) -> bytes:
    return (to_json(document) + "\n").encode()


# --- Parquet ----------------------------------------------------------------------------------------

_WHOLE: Final = frozenset({"contributors", "reports", "n_h", "direct", "cohorts", "standing_out"})
_WORDS: Final = frozenset(
    {
        "plan", "metric", "kind", "mechanism", "plan_versions", "label", "expires", "estimator", "verdict",
        "central_method", "population_interval",
    }
)  # fmt: skip


def _parquet(rows: Sequence[Sequence[Cell]]) -> bytes:
    """The columns of the CSV: texts, whole numbers and floating-point numbers, nothing known is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([pa.field(name, _type(name)) for name in COLUMNS])
    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
    arrays = [pa.array(_cells(column, field.type), field.type) for field, column in zip(schema, columns, strict=True)]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out, compression="zstd")
    return out.getvalue()


def _type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name in _WORDS:
        return pa.string()
    return pa.int64() if name in _WHOLE else pa.float64()


def _cells(column: Sequence[Cell], to: pa.DataType) -> Sequence[Cell]:
    import pyarrow as pa

    return [None if cell is None else float(cell) for cell in column] if pa.types.is_floating(to) else column
