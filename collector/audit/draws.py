"""Reports to audit: which inputs of a metric, and many reports of each, from the samplers that ship.

Rules of this file: what a sampler returns is passed on as it is, whatever its length or size; only the width of the
integers that hold it is chosen here. Entropy is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from client_sdk.mechanisms import Entropy, Mechanism, Value
from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.memoized import Memoized
from client_sdk.mechanisms.memoized_unary import MemoizedUnary
from client_sdk.mechanisms.sliced import SlicedNumber
from client_sdk.plan.model import Metric
from collector.audit.events import Ints
from collector.slices import sliced

CELLS_PER_CALL = 1 << 22

Draw = Callable[[Sequence[Value], int], list[Ints]]
"""n reports of each input: one array of shape (n, elements) per input."""


def inputs_of(metric: Metric) -> tuple[Value, ...]:
    """Readings whose reports must not be told apart: those that the mechanism treats differently.

    Categories: the first, the middle and the last one listed, one that is not listed where `other` takes it. Numbers:
    both ends and the middle of the range, and one beyond it, which must count as the end. No reading, where optional.
    Vectors: all of the norm in the first coordinate, either way, or in the last; none; and one far beyond the ball.
    """
    if metric.vector is not None:
        return _vectors(metric.vector.dimension, float(metric.vector.clip))
    if metric.slice_by is not None:
        return _pairs(sliced(metric), metric)
    absent: tuple[Value, ...] = (None,) if metric.optional else ()
    if metric.lower is None or metric.upper is None:
        listed = metric.categories
        unknown = () if metric.other is None else ("?" * (1 + max(map(len, listed))),)
        return (*dict.fromkeys((listed[0], listed[len(listed) // 2], listed[-1])), *unknown, *absent)
    width = metric.upper - metric.lower
    return (*map(float, (metric.lower, metric.lower + width / 2, metric.upper, metric.upper + width)), *absent)


def _pairs(mechanism: SlicedNumber, metric: Metric) -> tuple[Value, ...]:
    """Each end of the range in the first and in the last slice, the middle and a number beyond, and none."""
    low, high = float(metric.lower or 0), float(metric.upper or 0)
    first, last = mechanism.slices[0], mechanism.slices[-1]
    ends = [None if mechanism.by.optional and name == ABSENT else name for name in (first, last)]
    pairs: list[Any] = [(name, number) for name in ends for number in (low, high)]
    pairs += [(ends[0], low + (high - low) / 2), (ends[1], high + (high - low))]
    return (*pairs, *([(ends[0], None)] if metric.optional else []))


def _vectors(dimension: int, clip: float) -> tuple[Value, ...]:
    rest = (0.0,) * (dimension - 1)
    return ((clip, *rest), (-clip, *rest), (*rest, clip), (0.0, *rest), (100.0 * clip,) * dimension)


def in_bulk(mechanism: Mechanism, entropy: Entropy) -> Draw:
    """`perturb_many`, the inputs taking turns, as readings of a fleet would; blocks of bounded size."""

    def draw(inputs: Sequence[Value], n: int) -> list[Ints]:
        per_call = max(1, CELLS_PER_CALL // (mechanism.length * len(inputs)))
        blocks = []
        for start in range(0, n, per_call):
            count = min(per_call, n - start)
            reports = mechanism.perturb_many(_readings(inputs, count), entropy)
            blocks.append(_narrow(np.asarray(reports).reshape(count, len(inputs), -1)))
        rows = np.concatenate(blocks)
        return [rows[:, i] for i in range(len(inputs))]

    return draw


def one_by_one(report: Callable[[Value], Sequence[int]]) -> Draw:
    """Any sampler that makes one report of whole numbers at a time, in an order that counts.

    Reports of differing lengths are filled up, and told apart by one more element: their length.
    """

    def draw(inputs: Sequence[Value], n: int) -> list[Ints]:
        reports = [[tuple(report(value)) for _ in range(n)] for value in inputs]
        lengths = {len(one) for made in reports for one in made}
        if len(lengths) > 1:
            widest = max(lengths)
            reports = [[(*one, *[0] * (widest - len(one)), len(one)) for one in made] for made in reports]
        return [np.array(made, np.int64) for made in reports]

    return draw


def permanent_answer(mechanism: Memoized, value: Value, entropy: Entropy) -> tuple[int, ...]:
    """A value's permanent answer, drawn afresh: a label's place, or the bits of all labels."""
    answer = mechanism.permanent(mechanism.code(value), entropy)
    if not isinstance(mechanism, MemoizedUnary):
        return (answer,)
    return tuple(answer >> cell & 1 for cell in range(max(mechanism.k, answer.bit_length())))


def _readings(inputs: Sequence[Value], count: int) -> Sequence[Value] | npt.NDArray[np.float64]:
    """The inputs `count` times over; numbers as the float array that a fleet's readings would come as."""
    listed = list(inputs) * count
    bulk = all(isinstance(value, float) or _is_vector(value) for value in inputs)
    return np.array(listed, np.float64) if bulk else listed


def _is_vector(value: Value) -> bool:
    return isinstance(value, tuple) and all(isinstance(number, float) for number in value)


def _narrow(reports: npt.NDArray[Any]) -> Ints:
    """The same numbers in the narrowest integers that hold them."""
    low, high = int(reports.min()), int(reports.max())
    for narrow in (np.int8, np.int16, np.int32):
        if np.iinfo(narrow).min <= low and high <= np.iinfo(narrow).max:
            return reports.astype(narrow)
    return reports
