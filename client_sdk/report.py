"""From readings to one report: what a period holds, and the vector that is made of it once.

Rules of this file: a report carries every metric of its plan, or as many as the plan samples, drawn before any value
is looked at, with zeros in the places of the others: its length, order, types and size on disk follow from the plan and
never from a value. A metric without a reading takes its default, or, where it is optional, is perturbed as one without
a reading. Nothing here shows a reading: not a repr, not an exception, nor one that hangs on it as its context (so
nothing is raised from within a handler whose exception may quote a reading).
What it does not do: it charges no budget, and `dump()` is raw data: only sealed bytes of it may rest on disk.
A PeriodState is not locked; its owner calls it from one thread at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from client_sdk.errors import ConfigurationError, PlanError, RefusalReason, StorageError, ValueRefusedError
from client_sdk.folding import Categories, Numbers, Reading, Vectors, fold_of
from client_sdk.mechanisms import Entropy, Value, Vector
from client_sdk.plan.model import Metric, Plan, VectorRules

if TYPE_CHECKING:
    from client_sdk.mechanisms.memoized import Memoized


class PeriodState:
    """The readings of one open period, folded by each metric's `on_device`. In memory only.

    period_start: decides which metrics have expired (None: none has, whatever the plan says).
    adders: metric name -> add(value, entropy), for callers that look each method up once.
    """

    __slots__ = ("_folds", "_slicers", "adders", "plan")

    def __init__(self, plan: Plan, period_start: int | None = None) -> None:
        self.plan = plan
        self._folds = {name: fold_of(metric, period_start) for name, metric in plan.metrics.items()}
        self._slicers = {name: self._slicer(metric, period_start) for name, metric in plan.metrics.items()}
        self.adders: Mapping[str, Callable[[Reading, Entropy], None]] = MappingProxyType(
            {name: fold.add for name, fold in self._folds.items()}
        )

    def _slicer(self, metric: Metric, period_start: int | None) -> Callable[[], Value] | None:
        """What says the slice of a sliced number: what the other metric reports. An expired one tells none of it."""
        if metric.slice_by is None:
            return None
        fold = self._folds[metric.slice_by]
        expired = period_start is not None and metric.is_expired(period_start)
        return (lambda: fold.default) if expired else fold.value

    def add(self, metric: str, value: Reading, entropy: Entropy) -> None:
        """Fold one reading in. Raises ValueRefusedError, and then nothing has changed.

        `entropy` is drawn from only for `sample`. An unknown metric's name is not repeated in the error: in a
        call with swapped arguments it would be the reading.
        """
        adder = self.adders.get(metric) if isinstance(metric, str) else None
        if adder is None:
            raise ValueRefusedError("?", RefusalReason.UNKNOWN_METRIC)
        adder(value, entropy)

    def values(self) -> dict[str, Value]:
        """What the readings became: one finite float or label per metric, defaults filled in, not clipped.

        None where an optional metric has no reading. Of a sliced number: (label, number).
        """
        values: dict[str, Value] = {}
        for name, fold in self._folds.items():
            slicer, value = self._slicers[name], fold.value()
            values[name] = value if slicer is None else cast("Value", (slicer(), value))
        return values

    def dump(self) -> bytes:
        """The state as bytes. RAW DATA: the caller seals it before it touches a disk."""
        folds = {name: [fold.seen, fold.dumped()] for name, fold in self._folds.items()}
        return json.dumps({"plan": self.plan.hash.hex(), "folds": folds}, allow_nan=False).encode()

    @classmethod
    def load(cls, plan: Plan, data: bytes, period_start: int | None = None) -> PeriodState:
        """The state that `dump` wrote under the same plan. Raises StorageError for anything else."""
        state = cls(plan, period_start)
        if not state._restore(data):
            raise StorageError("the saved period is damaged")
        return state

    def _restore(self, data: bytes) -> bool:
        """False for what `dump` cannot have written."""
        try:
            document = json.loads(data)
            if document["plan"] != self.plan.hash.hex() or document["folds"].keys() != self.plan.metrics.keys():
                raise StorageError("the saved period belongs to another plan")
            for name, (seen, held) in document["folds"].items():
                self._folds[name].restore(seen, held)
        except (ValueError, TypeError, KeyError, AttributeError):
            return False
        return True

    def __repr__(self) -> str:
        return f"PeriodState({self.plan!r})"


def clipped_values(plan: Plan, values: Mapping[str, Value]) -> dict[str, Value]:
    """What each metric's value counts as: a number cut to [lower, upper], a vector scaled to its clipping norm, a
    category after `other`, None as None, a sliced number as (category, number).

    This is the truth that estimates aim at. Raises ValueRefusedError for a value that no report can hold.
    """
    clipped = {}
    for name, metric in plan.metrics.items():
        value = values[name]
        if metric.slice_by is None:
            clipped[name] = _clipped(metric, value)
        else:
            category, number = cast("tuple[Value, Value]", value)
            pair = _clipped(plan.metrics[metric.slice_by], category), _clipped(metric, number)
            clipped[name] = cast("Value", pair)
    return clipped


def _clipped(metric: Metric, value: Value) -> Value:
    if value is None and metric.optional:
        return None
    if metric.vector is not None:
        return _clipped_vector(metric.vector, Vectors(metric).read(value))
    if metric.lower is None or metric.upper is None:
        return Categories(metric).read(value)
    return min(max(Numbers(metric).read(value), float(metric.lower)), float(metric.upper))


def _clipped_vector(rules: VectorRules, numbers: Sequence[float]) -> Value:
    """Scaled down to the clipping norm where it is longer. In shares of the largest coordinate nothing overflows."""
    largest = max(map(abs, numbers))
    if not largest:
        return tuple(numbers)
    shares = [number / largest for number in numbers]
    length = math.fsum(map(abs, shares)) if rules.norm == "l1" else math.hypot(*shares)
    reach = min(largest, float(rules.clip) / length)
    return tuple(share * reach for share in shares)


def memo_codes(plan: Plan, state: PeriodState) -> dict[str, int]:
    """The place among its labels of each memoised metric's value: what its permanent answer is asked for."""
    values = state.values()
    codes = {}
    for name in plan.memos:
        mechanism = cast("Memoized", plan.metrics[name].mechanism)
        try:
            codes[name] = mechanism.code(values[name])
        except ValueRefusedError as error:
            raise ValueRefusedError(name, error.reason) from None
    return codes


def make_report(
    plan: Plan, state: PeriodState, entropy: Entropy, permanent: Mapping[str, int] = MappingProxyType({})
) -> Vector:
    """Perturb every metric that the report holds once: `plan.length` integers in the order of `plan.slices`.

    permanent: by memoised metric, the answer that the device keeps for its value. ConfigurationError where one is
    missing: drawn afresh, it would be no permanent one.
    """
    if not plan.memos.keys() <= permanent.keys():
        raise ConfigurationError("a memoised metric is reported from the permanent answer that its device keeps")
    if state.plan.hash != plan.hash:
        raise ConfigurationError("a report is made under the plan that its readings were recorded under")
    held = draw_metrics(plan, entropy)
    vector: Vector = []
    for name, value in state.values().items():
        mechanism = plan.metrics[name].mechanism
        if name not in held:
            vector += [0] * mechanism.length
        elif name in plan.memos:
            vector += cast("Memoized", mechanism).instantaneous(permanent[name], entropy)
        else:
            try:
                vector += mechanism.perturb(value, entropy)
            except ValueRefusedError as error:
                raise ValueRefusedError(name, error.reason) from None
        if name in plan.counts:
            vector.append(int(name in held))
    return vector


def draw_metrics(plan: Plan, entropy: Entropy) -> frozenset[str]:
    """The metrics that one report holds: all, or `sample_metrics` of them, each such set as likely as any other.

    No reading is looked at: what is drawn says nothing of them.
    """
    names = list(plan.metrics)
    if plan.sample_metrics is None:
        return frozenset(names)
    from client_sdk.sampling import uniform_below

    return frozenset(names.pop(uniform_below(len(names), entropy)) for _ in range(plan.sample_metrics))


LONG_BYTES: Final = 1 << 16
"""A packed report above this is unpacked in bulk."""

_WIDTHS: Final = {1: "b", 2: "h", 4: "i", 8: "q"}


def pack_vector(vector: Sequence[int], bound: int) -> bytes:
    """A report's bytes for the spool: one byte of width, then signed little-endian integers of that width.

    The width comes from `bound`, the plan's, never from the values: a file's size must not tell them.
    Raises PlanError when an element lies outside [-bound, bound]; its text holds no element.
    """
    width = packed_width(bound)
    if any(not -bound <= element <= bound for element in vector):
        raise PlanError(f"a report has elements beyond the plan's bound of {bound}")
    return struct.pack(f"<B{len(vector)}{_WIDTHS[width]}", width, *vector)


def packed_width(bound: int) -> int:
    """Bytes of one element of a packed report. PlanError for a bound beyond 64 bits."""
    width = next((w for w in _WIDTHS if bound < 1 << (8 * w - 1)), None)
    if width is None:
        raise PlanError(f"a report has elements beyond the plan's bound of {bound}")
    return width


def unpack_vector(data: bytes) -> Vector:
    """The vector that `pack_vector` packed. Raises StorageError for bytes that it cannot have written."""
    code = _WIDTHS.get(data[0]) if data else None
    if code is None or (len(data) - 1) % data[0]:
        raise StorageError("a spooled report is damaged")
    return list(struct.unpack_from(f"<{(len(data) - 1) // data[0]}{code}", data, 1))


def unpack_array(data: bytes) -> array[int]:
    """The same as an array of 64-bit integers: a million of them in a millisecond."""
    if len(data) <= LONG_BYTES:
        return array("q", unpack_vector(data))
    import numpy as np

    width = data[0]
    if width not in _WIDTHS or (len(data) - 1) % width:
        raise StorageError("a spooled report is damaged")
    return array("q", np.frombuffer(data, f"<i{width}", offset=1).astype(np.int64).tobytes())


def report_digest(packed: bytes) -> bytes:
    """SHA-256 of a packed report, 32 bytes: what the device's log keeps of it."""
    return hashlib.sha256(packed).digest()
