"""Rows of an engine back to values: `Reduced`, the same whoever added up, in whatever order its rows come.

Rules of this file: integers stay integers; what an engine leaves out (a cell without a number, a metric without all of
its cells) is an error, for a total without it would look like any other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from client_sdk.errors import StorageError
from collector.reduced import Head, Key, PeriodKey, Reduced, in_order, is_cohort, not_compared
from collector.release import ReleasedSum
from collector.service.engines import expressions
from collector.service.engines.base import Engine

Ints = npt.NDArray[np.int64]
Row = tuple[Any, ...]


class SumsError(StorageError):
    """Released sums that do not fit together, as no store writes them."""


def reduced(engine: Engine, metric: str | None, since: int | None, until: int | None) -> Reduced:
    """What `collector.reduced.reduce_sums` makes of these rows. Raises EngineError, ExportError, SumsError."""
    sums = expressions.inside(engine.table("released_sums"), metric, since, until)
    heads = [Head(*_head(row)) for row in rows(engine.batches(expressions.heads(sums)))]
    totals = _totals(engine.batches(expressions.totals(sums)), heads)
    too_many = not_compared((len(totals[head.key]), head.metric, head.rounds) for head in heads if is_cohort(head))
    compared = {head.metric for head in heads if is_cohort(head)} - too_many
    return Reduced(heads, totals, _cohorts(engine, sums, too_many) if compared else {}, too_many)


def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """As tuples of Python's own values."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _head(row: Row) -> Row:
    plan_hash, *rest = row
    return (bytes.fromhex(plan_hash), *rest)


# --- totals -----------------------------------------------------------------------------------------


def _totals(batches: Iterable[pa.RecordBatch], heads: Iterable[Head]) -> dict[PeriodKey, list[int]]:
    table = _Gathered(("plan_hash", "metric"))
    for batch in batches:
        table.add(batch)
    codes = [table.column(name) for name in ("plan_hash", "metric", "period_start", "cell")]
    order = np.lexsort(codes[::-1])
    rounds: Counter[PeriodKey] = Counter()
    for head in heads:
        rounds[head.key] += head.rounds
    found: dict[PeriodKey, list[int]] = {}
    totals, counts, known = table.integers("total"), table.column("rounds"), table.column("known")
    ends = _ends(codes[:3], order)
    firsts = order[ends[:-1]]
    plans, metrics = (table.texts_at(name, firsts) for name in table.texts)
    for (start, end), plan, metric, period in zip(
        pairwise(ends), plans, metrics, codes[2][firsts].tolist(), strict=True
    ):
        key, places = (bytes.fromhex(plan), metric, period), order[start:end]
        _check(key, codes[3][places], counts[places], known[places], rounds[key])
        found[key] = [totals[place] for place in places.tolist()]
    if missing := set(rounds) - set(found):
        raise SumsError(odd(min(missing)))
    return found


def _check(key: PeriodKey, cells: Ints, counts: Ints, known: Ints, rounds: int) -> None:
    """Every cell is there, of every round, and a number."""
    whole = np.array_equal(cells, np.arange(len(cells))) and bool((counts == rounds).all())
    if not whole or not np.array_equal(counts, known):
        raise SumsError(odd(key))


def odd(key: PeriodKey) -> str:
    """What is said of sums that are not whole."""
    return (
        f"released sums of metric {key[1]!r}, plan {key[0].hex()[:12]}, period {key[2]}: some of their cells are "
        "missing or double; export again, or let `ldp-collector doctor` look at the store"
    )


def _ends(codes: Sequence[Ints], order: npt.NDArray[np.intp]) -> list[int]:
    """Where rows that have the same codes begin, which `order` puts side by side; and the end of the last."""
    if not len(order):
        return [0]
    differs = np.zeros(len(order) - 1, bool)
    for code in codes:
        ordered = code[order]
        differs |= ordered[1:] != ordered[:-1]
    return [0, *(np.flatnonzero(differs) + 1).tolist(), len(order)]


# --- rounds one by one ------------------------------------------------------------------------------


def _cohorts(engine: Engine, sums: Any, without: frozenset[str]) -> dict[Key, Sequence[ReleasedSum]]:
    cells = _Gathered(("round", "plan_hash", "metric", "delivery"))
    for batch in engine.batches(expressions.cohorts(sums, without)):
        cells.add(batch)
    codes = [cells.column(name) for name in ("round", "metric", "cell")]
    order = np.lexsort(codes[::-1])
    ends = _ends(codes[:2], order)
    firsts = order[ends[:-1]]
    totals: list[int] = cells.column("total")[order].tolist()
    texts = [cells.texts_at(name, firsts) for name in cells.texts]
    numbers = [cells.column(name)[firsts].tolist() for name in _NUMBERS]
    hashes = {text: bytes.fromhex(text) for text in set(texts[1])}
    found: dict[Key, list[ReleasedSum]] = defaultdict(list)
    for (start, end), round_id, plan, metric, delivery, period, *sizes in zip(
        pairwise(ends), *texts, *numbers, strict=True
    ):
        n, roster, resent, reports = sizes
        key, whole = (hashes[plan], metric), tuple(totals[start:end])
        found[key].append(ReleasedSum(round_id, key[0], period, metric, whole, n, roster, resent, delivery, reports))
    return {key: in_order(one) for key, one in found.items()}


_NUMBERS: Final = ("period_start", "contributors", "roster", "resent", "reports")


# --- columns ----------------------------------------------------------------------------------------

_LIMB: Final = 64


@dataclass(slots=True)
class _Gathered:
    """Batches as columns of numbers: texts become the numbers of their words, so that millions of rows fit in memory.

    texts: the columns that hold texts.
    """

    texts: tuple[str, ...]
    parts: dict[str, list[Ints]] = field(default_factory=lambda: defaultdict(list))
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    high: dict[str, list[Ints]] = field(default_factory=lambda: defaultdict(list))

    def add(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in self.texts:
                self.parts[name].append(self._codes(name, column))
            elif pa.types.is_decimal(column.type):
                low, high = _limbs(column)
                self.parts[name].append(low)
                self.high[name].append(high)
            else:
                self.parts[name].append(column.to_numpy(zero_copy_only=False).astype(np.int64))

    def _codes(self, name: str, column: Any) -> Ints:
        known = self.words.setdefault(name, {})
        encoded = column.dictionary_encode()
        codes = np.array([known.setdefault(word, len(known)) for word in encoded.dictionary.to_pylist()], np.int64)
        found: Ints = codes[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def column(self, name: str) -> Ints:
        found = self.parts.get(name)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def integers(self, name: str) -> list[int]:
        """A column of decimals, exactly."""
        low, high = self.column(name), np.concatenate(self.high[name] or [np.zeros(0, np.int64)])
        below_all: list[int] = low.tolist()
        if np.array_equal(high, low >> (_LIMB - 1)):
            return below_all
        return [
            (above << _LIMB) + (below % (1 << _LIMB)) for below, above in zip(below_all, high.tolist(), strict=True)
        ]

    def texts_at(self, name: str, places: npt.NDArray[np.intp]) -> list[str]:
        """Of these rows."""
        words = list(self.words.get(name, ()))
        return [words[code] for code in self.column(name)[places].tolist()]


def _limbs(column: Any) -> tuple[Ints, Ints]:
    """Of 128-bit integers the lower and the upper half, both as signed; a missing one is 0: `known` tells."""
    wide = column.cast(pa.decimal128(38, 0))
    data = np.frombuffer(wide.buffers()[1], "<i8").reshape(-1, 2)[wide.offset : wide.offset + len(wide)]
    return data[:, 0].astype(np.int64), data[:, 1].astype(np.int64)
