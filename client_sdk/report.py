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
import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from client_sdk.errors import ConfigurationError, PlanError, RefusalReason, StorageError, ValueRefusedError
from client_sdk.folding import Categories, Numbers, Reading, finite, fold_of
from client_sdk.mechanisms import Entropy, Value, Vector
from client_sdk.plan.model import Metric, Plan


class PeriodState:
    """The readings of one open period, folded by each metric's `on_device`. In memory only.

    period_start: decides which metrics have expired (None: none has, whatever the plan says).
    adders: metric name -> add(value, entropy), for callers that look each method up once.
    """

    __slots__ = ("_folds", "adders", "plan")

    def __init__(self, plan: Plan, period_start: int | None = None) -> None:
        self.plan = plan
        self._folds = {name: fold_of(metric, period_start) for name, metric in plan.metrics.items()}
        self.adders: Mapping[str, Callable[[Reading, Entropy], None]] = MappingProxyType(
            {name: fold.add for name, fold in self._folds.items()}
        )

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

        None where an optional metric has no reading.
        """
        return {name: fold.value() for name, fold in self._folds.items()}

    def dump(self) -> bytes:
        """The state as bytes. RAW DATA: the caller seals it before it touches a disk."""
        folds = {name: [fold.seen, finite(fold.held)] for name, fold in self._folds.items()}
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
    """What each metric's value counts as: a number cut to [lower, upper], a category after `other`, None as None.

    This is the truth that estimates aim at. Raises ValueRefusedError for a value that no report can hold.
    """
    return {name: _clipped(metric, values[name]) for name, metric in plan.metrics.items()}


def _clipped(metric: Metric, value: Value) -> Value:
    if value is None and metric.optional:
        return None
    if metric.lower is None or metric.upper is None:
        return Categories(metric).read(value)
    return min(max(Numbers(metric).read(value), float(metric.lower)), float(metric.upper))


def make_report(plan: Plan, state: PeriodState, entropy: Entropy) -> Vector:
    """Perturb every metric that the report holds once: `plan.length` integers in the order of `plan.slices`."""
    if state.plan.hash != plan.hash:
        raise ConfigurationError("a report is made under the plan that its readings were recorded under")
    held = draw_metrics(plan, entropy)
    vector: Vector = []
    for name, value in state.values().items():
        mechanism = plan.metrics[name].mechanism
        if name not in held:
            vector += [0] * mechanism.length
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


_WIDTHS: Final = {1: "b", 2: "h", 4: "i", 8: "q"}


def pack_vector(vector: Sequence[int], bound: int) -> bytes:
    """A report's bytes for the spool: one byte of width, then signed little-endian integers of that width.

    The width comes from `bound`, the plan's, never from the values: a file's size must not tell them.
    Raises PlanError when an element lies outside [-bound, bound]; its text holds no element.
    """
    width = next((w for w in _WIDTHS if bound < 1 << (8 * w - 1)), None)
    if width is None or any(not -bound <= element <= bound for element in vector):
        raise PlanError(f"a report has elements beyond the plan's bound of {bound}")
    return struct.pack(f"<B{len(vector)}{_WIDTHS[width]}", width, *vector)


def unpack_vector(data: bytes) -> Vector:
    """The vector that `pack_vector` packed. Raises StorageError for bytes that it cannot have written."""
    code = _WIDTHS.get(data[0]) if data else None
    if code is None or (len(data) - 1) % data[0]:
        raise StorageError("a spooled report is damaged")
    return list(struct.unpack_from(f"<{(len(data) - 1) // data[0]}{code}", data, 1))


def report_digest(packed: bytes) -> bytes:
    """SHA-256 of a packed report, 32 bytes: what the device's log keeps of it."""
    return hashlib.sha256(packed).digest()
