"""How a period's readings become one value: a fold for each `on_device`.

Rules of this file: a reading is checked before anything is kept of it; what is kept is the least that `on_device`
needs (an unknown category becomes `other` at once). A metric without a reading takes its default, or None where it is
optional. Nothing here shows a reading: not a repr, not an exception.
What it does not do: clip. A number may lie outside of its range until it is perturbed.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from binascii import Error as NotBase64Error
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from operator import add
from typing import TYPE_CHECKING, Any, Final, Protocol

from client_sdk.errors import RefusalReason, StorageError, ValueRefusedError

if TYPE_CHECKING:
    from client_sdk.mechanisms import Entropy, Value
    from client_sdk.plan.model import Metric

LARGEST: Final = sys.float_info.max


class NumpyArray(Protocol):
    """What a vector of numpy's looks like from here, where numpy is not imported."""

    @property
    def dtype(self) -> Any:
        """Of its elements."""

    def tolist(self) -> Any:
        """The same as a list."""


Reading = float | int | str | Sequence[float] | NumpyArray
"""What a host records: a number, a category's name, or a vector (list, tuple, array or numpy array of one dimension).
Never None: no reading is said by not recording one."""


class Numbers:
    """Turns a reading into a finite float or refuses it."""

    __slots__ = ("_name",)

    def __init__(self, metric: Metric) -> None:
        self._name = metric.name

    def read(self, value: object) -> float:
        """Raises ValueRefusedError."""
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
            return LARGEST if value > 0 else -LARGEST  # type: ignore[operator]  # typeshed's Real has no order
        except (TypeError, ValueError, ArithmeticError):
            number = math.nan
        if math.isfinite(number):
            return number
        if isinstance(value, Decimal) and value.is_finite():
            return math.copysign(LARGEST, number)
        raise ValueRefusedError(self._name, RefusalReason.NOT_FINITE)


class Categories:
    """Turns a reading into a label of the plan or refuses it."""

    __slots__ = ("_labels", "_name", "_other")

    def __init__(self, metric: Metric) -> None:
        self._name = metric.name
        self._labels = {label: label for label in metric.categories}
        self._other = metric.other

    def read(self, value: object) -> str:
        """Raises ValueRefusedError."""
        if not isinstance(value, str):
            raise ValueRefusedError(self._name, RefusalReason.WRONG_TYPE)
        label = self._labels.get(value, self._other)
        if label is None:
            raise ValueRefusedError(self._name, RefusalReason.UNKNOWN_CATEGORY)
        return label


class Vectors:
    """Turns a reading into an own copy, an array of finite doubles, or refuses it."""

    __slots__ = ("_dimension", "_name", "_number")

    def __init__(self, metric: Metric) -> None:
        self._name = metric.name
        self._number = Numbers(metric).read
        self._dimension = 0 if metric.vector is None else metric.vector.dimension

    def read(self, value: object) -> array[float]:
        """Raises ValueRefusedError."""
        listed: Any = value
        if hasattr(value, "dtype") and hasattr(value, "astype"):
            listed = self._from_numpy(value)
        elif not isinstance(value, (list, tuple, array)):
            raise ValueRefusedError(self._name, RefusalReason.WRONG_TYPE)
        if len(listed) != self._dimension:
            raise ValueRefusedError(self._name, RefusalReason.WRONG_LENGTH)
        if not isinstance(listed, array) and not all(type(number) is float for number in listed):
            listed = [self._number(number) for number in listed]
        copy = array("d", listed)
        if not all(map(math.isfinite, copy)):
            raise ValueRefusedError(self._name, RefusalReason.NOT_FINITE)
        return copy

    def _from_numpy(self, value: Any) -> array[float]:
        """Of one dimension, and of real numbers."""
        if value.dtype.kind not in "fiu" or len(value.shape) != 1:
            raise ValueRefusedError(self._name, RefusalReason.WRONG_TYPE)
        return array("d", value.astype("=f8").tobytes())

    @property
    def zeros(self) -> array[float]:
        """What stands for no reading."""
        return array("d", bytes(8 * self._dimension))


class Last:
    """Keeps `seen` (how many readings matter so far) and `held` (a reading or a total): all that any rule needs."""

    __slots__ = ("_read", "default", "held", "seen")

    def __init__(self, metric: Metric) -> None:
        reader = _READERS.get(metric.kind, Numbers)(metric)
        self._read: Callable[[object], Any] = reader.read  # a float for numbers, a label for categories
        # None, no reading, where the metric is optional.
        self.default: Value = float(metric.default) if isinstance(metric.default, Decimal) else metric.default
        if isinstance(reader, Vectors):
            self.default = reader.zeros
        self.seen = 0
        self.held: Any = self.default

    def add(self, value: Reading, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        self.held = self._read(value)
        self.seen = 1

    def value(self) -> Value:
        return self.held if self.seen else self.default

    def dumped(self) -> object:
        """What is held, as JSON takes it. RAW DATA."""
        return finite(self.held)

    def restore(self, seen: object, held: object) -> None:
        if type(seen) is not int or seen < 0:
            raise StorageError("the saved period is damaged")
        nothing = not seen and held is self.default is None
        self.seen, self.held = seen, None if nothing else self._read(held)


class _First(Last):
    __slots__ = ()

    def add(self, value: Reading, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        reading = self._read(value)
        if not self.seen:
            self.held = reading
            self.seen = 1


class _Sample(Last):
    """One reading, each as likely as any other: the n-th replaces what is held with chance 1/n."""

    __slots__ = ()

    def add(self, value: Reading, entropy: Entropy) -> None:
        from client_sdk.sampling import uniform_below

        reading = self._read(value)
        self.seen += 1
        if self.seen == 1 or uniform_below(self.seen, entropy) == 0:
            self.held = reading


class _Sum(Last):
    """A float total. It may grow beyond floats (to infinity, never to NaN: readings are finite): then it is cut."""

    __slots__ = ()

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self.held = 0.0

    def add(self, value: Reading, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        self.held += self._read(value)
        self.seen += 1

    def value(self) -> Value:
        return min(max(self.held, -LARGEST), LARGEST) if self.seen else self.default


class _Mean(_Sum):
    __slots__ = ()

    def value(self) -> Value:
        return min(max(self.held, -LARGEST), LARGEST) / self.seen if self.seen else self.default


class _Max(Last):
    __slots__ = ()

    def add(self, value: Reading, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        reading = self._read(value)
        if not self.seen or reading > self.held:
            self.held = reading
            self.seen = 1


class _Count(Last):
    """How many readings there were; each must be a number, which one is not kept."""

    __slots__ = ()

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self.held = 0.0

    def add(self, value: Reading, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        self._read(value)
        self.seen += 1

    def value(self) -> Value:
        return float(self.seen) if self.seen else self.default


class _VectorLast(Last):
    """A vector is held as doubles and dumped as their bytes in base64, whose length tells nothing of it."""

    __slots__ = ()

    def dumped(self) -> object:
        return base64.b64encode(_little_endian(self.held).tobytes()).decode("ascii")

    def restore(self, seen: object, held: object) -> None:
        if type(seen) is not int or seen < 0 or not isinstance(held, str):
            raise StorageError("the saved period is damaged")
        try:
            numbers = array("d", base64.b64decode(held, validate=True))
        except (NotBase64Error, ValueError):
            raise StorageError("the saved period is damaged") from None
        self.seen, self.held = seen, self._read(_little_endian(numbers))


class _VectorFirst(_VectorLast, _First):
    __slots__ = ()


class _VectorMean(_VectorLast):
    """Totals by coordinate, cut to floats as `_Sum` cuts its own."""

    __slots__ = ()

    def add(self, value: Reading, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        reading = self._read(value)
        totals = array("d", map(add, self.held, reading)) if self.seen else reading
        if not all(map(math.isfinite, totals)):
            totals = array("d", [min(max(total, -LARGEST), LARGEST) for total in totals])
        self.held = totals
        self.seen += 1

    def value(self) -> Value:
        return array("d", [total / self.seen for total in self.held]) if self.seen else self.default


def _little_endian(numbers: array[float]) -> array[float]:
    """The same doubles in the other order of bytes where this machine's is the other one; either way round."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


class _Expired(Last):
    """Nothing is asked any more: it stays its default, so that the report keeps its length, order and noise."""

    __slots__ = ("_name",)

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._name = metric.name

    def add(self, value: Reading, entropy: Entropy) -> None:  # noqa: ARG002 - every rule is called alike
        raise ValueRefusedError(self._name, RefusalReason.METRIC_EXPIRED)

    def restore(self, seen: object, held: object) -> None:  # noqa: ARG002 - every rule is called alike
        return


class _ExpiredVector(_Expired):
    __slots__ = ()

    def dumped(self) -> object:
        return base64.b64encode(self.held.tobytes()).decode("ascii")  # zeros


_RULES: Final[dict[str, type[Last]]] = {
    "last": Last,
    "first": _First,
    "sample": _Sample,
    "mean": _Mean,
    "sum": _Sum,
    "max": _Max,
    "count": _Count,
}


_VECTOR_RULES: Final[dict[str, type[Last]]] = {"last": _VectorLast, "first": _VectorFirst, "mean": _VectorMean}

_READERS: Final[dict[str, type[Numbers] | type[Categories] | type[Vectors]]] = {
    "categorical": Categories,
    "vector": Vectors,
}


def fold_of(metric: Metric, period_start: int | None) -> Last:
    """What folds a metric's readings of the period that begins then (None: nothing has expired)."""
    expired = period_start is not None and metric.is_expired(period_start)
    if metric.vector is not None:
        return _ExpiredVector(metric) if expired else _VECTOR_RULES[metric.on_device](metric)
    return _Expired(metric) if expired else _RULES[metric.on_device](metric)


def finite(held: float | str | None) -> float | str | None:
    """What a fold holds, with a total that has grown beyond floats cut to them."""
    return min(max(held, -LARGEST), LARGEST) if isinstance(held, (int, float)) else held
