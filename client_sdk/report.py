"""From readings to one report: what a period's readings become, and the vector that is made of them once.

Rules of this file: a reading is checked before anything is kept of it; what is kept is the least that
`on_device` needs (an unknown category becomes `other` at once). A report carries every metric of its plan, so
its length, order, types and size on disk follow from the plan and never from a value; a metric without a
reading takes its default. Nothing here shows a reading: not a repr, not an exception, nor one that hangs on it
as its context (so nothing is raised from within a handler whose exception may quote a reading).
What it does not do: it charges no budget, and `dump()` is raw data: only sealed bytes of it may rest on disk.
A PeriodState is not locked; its owner calls it from one thread at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import Any, Final

from client_sdk.errors import ConfigurationError, PlanError, RefusalReason, StorageError, ValueRefusedError
from client_sdk.mechanisms import Entropy, Value, Vector
from client_sdk.plan.model import Metric, Plan

_LARGEST: Final = sys.float_info.max


class _Numbers:
    """Turns a reading into a finite float or refuses it."""

    __slots__ = ("_name",)

    def __init__(self, metric: Metric) -> None:
        self._name = metric.name

    def read(self, value: object) -> float:
        if type(value) is float:
            if value - value == 0.0:  # neither NaN nor infinite: cheaper than a call
                return value
            raise ValueRefusedError(self._name, RefusalReason.NOT_FINITE)
        return self._other_number(value)

    def _other_number(self, value: Any) -> float:
        # numpy's scalars are Real; a bool is an int to Python, but no number to a plan.
        if isinstance(value, bool) or not isinstance(value, (int, float, Real, Decimal)):
            raise ValueRefusedError(self._name, RefusalReason.WRONG_TYPE)
        try:
            number = float(value)
        except OverflowError:  # an int or a fraction too large for a float is a finite number all the same
            return _LARGEST if value > 0 else -_LARGEST  # type: ignore[operator]  # typeshed's Real has no order
        except (TypeError, ValueError, ArithmeticError):
            number = math.nan
        if math.isfinite(number):
            return number
        if isinstance(value, Decimal) and value.is_finite():
            return math.copysign(_LARGEST, number)
        raise ValueRefusedError(self._name, RefusalReason.NOT_FINITE)


class _Categories:
    """Turns a reading into a label of the plan or refuses it."""

    __slots__ = ("_labels", "_name", "_other")

    def __init__(self, metric: Metric) -> None:
        self._name = metric.name
        self._labels = {label: label for label in metric.categories}
        self._other = metric.other

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueRefusedError(self._name, RefusalReason.WRONG_TYPE)
        label = self._labels.get(value, self._other)
        if label is None:
            raise ValueRefusedError(self._name, RefusalReason.UNKNOWN_CATEGORY)
        return label


class _Last:
    """Keeps `seen` (how many readings matter so far) and `held` (a reading or a total): all that any rule needs."""

    __slots__ = ("_read", "default", "held", "seen")

    def __init__(self, metric: Metric) -> None:
        reader = _Numbers(metric) if metric.kind == "numeric" else _Categories(metric)
        self._read: Callable[[object], Any] = reader.read  # a float for numbers, a label for categories
        self.default = metric.default if isinstance(metric.default, str) else float(metric.default)
        self.seen = 0
        self.held: Any = self.default

    def add(self, value: Value, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        self.held = self._read(value)
        self.seen = 1

    def value(self) -> Value:
        return self.held if self.seen else self.default

    def restore(self, seen: object, held: object) -> None:
        if type(seen) is not int or seen < 0:
            raise StorageError("the saved period is damaged")
        self.seen, self.held = seen, self._read(held)


class _First(_Last):
    __slots__ = ()

    def add(self, value: Value, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        reading = self._read(value)
        if not self.seen:
            self.held = reading
            self.seen = 1


class _Sample(_Last):
    """One reading, each as likely as any other: the n-th replaces what is held with chance 1/n."""

    __slots__ = ()

    def add(self, value: Value, entropy: Entropy) -> None:
        from client_sdk.sampling import uniform_below

        reading = self._read(value)
        self.seen += 1
        if self.seen == 1 or uniform_below(self.seen, entropy) == 0:
            self.held = reading


class _Sum(_Last):
    """A float total. It may grow beyond floats (to infinity, never to NaN: readings are finite): then it is cut."""

    __slots__ = ()

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self.held = 0.0

    def add(self, value: Value, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        self.held += self._read(value)
        self.seen += 1

    def value(self) -> Value:
        return min(max(self.held, -_LARGEST), _LARGEST) if self.seen else self.default


class _Mean(_Sum):
    __slots__ = ()

    def value(self) -> Value:
        return min(max(self.held, -_LARGEST), _LARGEST) / self.seen if self.seen else self.default


class _Max(_Last):
    __slots__ = ()

    def add(self, value: Value, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        reading = self._read(value)
        if not self.seen or reading > self.held:
            self.held = reading
            self.seen = 1


class _Count(_Last):
    """How many readings there were; each must be a number, which one is not kept."""

    __slots__ = ()

    def add(self, value: Value, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        self._read(value)
        self.seen += 1

    def value(self) -> Value:
        return float(self.seen)


class _Expired(_Last):
    """Nothing is asked any more: it stays its default, so that the report keeps its length, order and noise."""

    __slots__ = ("_name",)

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._name = metric.name

    def add(self, value: Value, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        raise ValueRefusedError(self._name, RefusalReason.METRIC_EXPIRED)

    def restore(self, seen: object, held: object) -> None:  # noqa: ARG002 - every rule is called alike
        return


_RULES: Final[dict[str, type[_Last]]] = {
    "last": _Last,
    "first": _First,
    "sample": _Sample,
    "mean": _Mean,
    "sum": _Sum,
    "max": _Max,
    "count": _Count,
}


def _rule(metric: Metric, period_start: int | None) -> type[_Last]:
    expired = period_start is not None and metric.is_expired(period_start)
    return _Expired if expired else _RULES[metric.on_device]


class PeriodState:
    """The readings of one open period, folded by each metric's `on_device`. In memory only.

    period_start: decides which metrics have expired (None: none has, whatever the plan says).
    adders: metric name -> add(value, entropy), for callers that look each method up once.
    """

    __slots__ = ("_folds", "adders", "plan")

    def __init__(self, plan: Plan, period_start: int | None = None) -> None:
        self.plan = plan
        self._folds = {name: _rule(metric, period_start)(metric) for name, metric in plan.metrics.items()}
        self.adders: Mapping[str, Callable[[Value, Entropy], None]] = MappingProxyType(
            {name: fold.add for name, fold in self._folds.items()}
        )

    def add(self, metric: str, value: Value, entropy: Entropy) -> None:
        """Fold one reading in. Raises ValueRefusedError, and then nothing has changed.

        `entropy` is drawn from only for `sample`. An unknown metric's name is not repeated in the error: in a
        call with swapped arguments it would be the reading.
        """
        adder = self.adders.get(metric) if isinstance(metric, str) else None
        if adder is None:
            raise ValueRefusedError("?", RefusalReason.UNKNOWN_METRIC)
        adder(value, entropy)

    def values(self) -> dict[str, Value]:
        """What the readings became: one finite float or label per metric, defaults filled in, not clipped."""
        return {name: fold.value() for name, fold in self._folds.items()}

    def dump(self) -> bytes:
        """The state as bytes. RAW DATA: the caller seals it before it touches a disk."""
        folds = {
            name: [fold.seen, fold.held if isinstance(fold.held, str) else min(max(fold.held, -_LARGEST), _LARGEST)]
            for name, fold in self._folds.items()
        }
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
    """What each metric's value counts as: a number cut to [lower, upper], a category after `other`.

    This is the truth that estimates aim at. Raises ValueRefusedError for a value that no report can hold.
    """
    return {name: _clipped(metric, values[name]) for name, metric in plan.metrics.items()}


def _clipped(metric: Metric, value: Value) -> Value:
    if metric.lower is None or metric.upper is None:
        return _Categories(metric).read(value)
    return min(max(_Numbers(metric).read(value), float(metric.lower)), float(metric.upper))


def make_report(plan: Plan, state: PeriodState, entropy: Entropy) -> Vector:
    """Perturb every metric once: `plan.length` integers in the order of `plan.slices`."""
    if state.plan.hash != plan.hash:
        raise ConfigurationError("a report is made under the plan that its readings were recorded under")
    vector: Vector = []
    for name, value in state.values().items():
        try:
            vector += plan.metrics[name].mechanism.perturb(value, entropy)
        except ValueRefusedError as error:
            raise ValueRefusedError(name, error.reason) from None
    return vector


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
