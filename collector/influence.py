"""How far can one device have moved a number? `influence`: with a well-formed false report. `reach`: without the rules.

A report that has the form of one cannot be told from an honest one; that is the promise to its owner. A device that
breaks the protocol adds what it likes under its mask, and is held to what `is_plausible` lets through, about as far as
all contributors of its round together.

Rules of this file: a mechanism is known by its answer and by what it says itself (what it finds plausible, how it
decodes); both figures are bounds that hold whatever the other devices sent, None where there is none or none is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol, cast

from client_sdk.mechanisms import Answer, Estimate, Mechanism
from client_sdk.mechanisms.categories import CategoricalMechanism
from client_sdk.mechanisms.distribution import QuantileEstimate, quantiles_of
from client_sdk.mechanisms.pure import CountEstimate
from collector.slices import slices_influence, slices_reach

if TYPE_CHECKING:
    from client_sdk.mechanisms.optional import OptionalNumber, RatioParts
    from client_sdk.mechanisms.quantiles import Quantiles
    from client_sdk.mechanisms.vector import VectorMechanism
    from collector.combination import Pool


class Decoder(Protocol):
    """What counts are decoded with: a mechanism, or what it hands its reports to."""

    @property
    def length(self) -> int:
        """Elements of the vector."""

    def estimate(self, total: Sequence[int], contributors: int) -> Estimate:
        """Summed cells -> counts."""


def influence(pools: Sequence[Pool], estimate: Estimate) -> float | None:
    """How far one well-formed false report among the contributors of `pools` moves a row of `estimate`, at most.

    Against the same sum without it. Counts: its label's count goes up by (1 - q) / (p - q), whoever else reports;
    others go down by less. A mean: from anywhere in the metric's range, by the value that lies farthest from there of
    those that one report can hold, divided by the contributors. None that does less can be told apart.
    """
    return _most(_INFLUENCE[pool.metric.mechanism.answer](pool, estimate) for pool in pools)


def reach(pools: Sequence[Pool], estimate: Estimate) -> float | None:
    """How far whatever passes the plausibility check in the largest round of a pool moves a row of `estimate`.

    The width of what that check lets through, from the lowest to the highest sum of that round: no device in it can
    do more, whatever it sends, and one that knows the others' sum can do nearly all of it. It may do so once a period.
    """
    return _most(_REACH[pool.metric.mechanism.answer](pool, estimate) for pool in pools)


def _most(figures: Iterable[float | None]) -> float | None:
    known = list(figures)
    return None if None in known else max((figure for figure in known if figure is not None), default=None)


# --- counts -----------------------------------------------------------------------------------------


def law_of(mechanism: Decoder) -> tuple[float, float] | None:
    """p and q of what supports a label; None where counts are not made from such supports (smoothed ones)."""
    nobody = mechanism.estimate([0] * mechanism.length, 0)
    return (nobody.p, nobody.q) if isinstance(nobody, CountEstimate) else None


def _counts_influence(pool: Pool, estimate: Estimate) -> float | None:  # noqa: ARG001 - whoever else reports
    law = law_of(pool.metric.mechanism)
    return None if law is None else max(1 - law[1], law[1]) / (law[0] - law[1])


def _counts_reach(pool: Pool, estimate: Estimate) -> float | None:  # noqa: ARG001
    """A label is supported by none .. all reports of the round."""
    law = law_of(pool.metric.mechanism)
    return None if law is None else pool.largest / (law[0] - law[1])


# --- a mean -----------------------------------------------------------------------------------------


def _mean_influence(pool: Pool, estimate: Estimate) -> float | None:
    metric = pool.metric
    low, high = extremes(metric.mechanism, 1)
    return max(high - float(metric.lower or 0), float(metric.upper or 0) - low) / estimate.contributors


def _mean_reach(pool: Pool, estimate: Estimate) -> float | None:
    low, high = extremes(pool.metric.mechanism, pool.largest)
    return (high - low) * min(pool.largest / estimate.contributors, 1.0)


def extremes(mechanism: Mechanism, reports: int) -> tuple[float, float]:
    """The lowest and the highest mean that a plausible sum of `reports` reports decodes to; one cell, 0 plausible."""
    ends = (_furthest(mechanism, reports, sign) for sign in (-1, 1))
    low, high = (mechanism.estimate([end], reports).values[0] or 0.0 for end in ends)
    return low, high


def _furthest(mechanism: Mechanism, reports: int, sign: int) -> int:
    """The last plausible sum from 0 in one direction: plausible sums are neighbours."""
    inside, outside = 0, mechanism.bound * reports + 1
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if mechanism.is_plausible([sign * middle], reports):
            inside = middle
        else:
            outside = middle
    return sign * inside


# --- a vector --------------------------------------------------------------------------------------


def _vector_influence(pool: Pool, estimate: Estimate) -> float | None:
    """Of any coordinate: from anywhere in the clipping ball to the farthest value that a report can hold."""
    mechanism = cast("VectorMechanism", pool.metric.mechanism)
    return float(mechanism.unit) * (mechanism.bound + mechanism.levels) / estimate.contributors


def _vector_reach(pool: Pool, estimate: Estimate) -> float | None:
    mechanism = cast("VectorMechanism", pool.metric.mechanism)
    return 2.0 * float(mechanism.unit) * mechanism.bound * min(pool.largest / estimate.contributors, 1.0)


# --- a ratio: the mean over those that had a reading --------------------------------------------------


def _ratio_influence(pool: Pool, estimate: Estimate) -> float | None:
    """One report can hold the number that lies farthest off, and either bit. None where the rest has no mean."""
    parts = corners(cast("OptionalNumber", pool.metric.mechanism), 1)
    return _ratio_move(estimate, [(float(part.excess + part.absent * part.count), float(part.count)) for part in parts])


def _ratio_reach(pool: Pool, estimate: Estimate) -> float | None:
    """The round's part may have been at one end of what is plausible and be at another. None: by any amount."""
    parts = corners(cast("OptionalNumber", pool.metric.mechanism), pool.largest)
    return _ratio_move(
        estimate,
        [
            (float(b.excess - a.excess + a.absent * (b.count - a.count)), float(b.count - a.count))
            for a in parts
            for b in parts
        ],
    )


def corners(mechanism: OptionalNumber, reports: int) -> list[RatioParts]:
    """The sums at the ends of what `reports` reports can give, decoded: both decode in a straight line."""
    cells = [_furthest(mechanism.inner, reports, sign) for sign in (-1, 1)]
    return [mechanism.parts([cell, bits], reports) for cell in cells for bits in (0, reports)]


def _ratio_move(estimate: Estimate, steps: Sequence[tuple[float, float]]) -> float | None:
    """How far mean = sum / count lies from the same without one of `steps` (of sum, of count), at most."""
    mean, count = estimate.values
    if mean is None or count is None or any(count - step <= 0 for _, step in steps):
        return None
    return max(abs(mean - (mean * count - change) / (count - step)) for change, step in steps)


# --- quantiles --------------------------------------------------------------------------------------


def _quantiles_influence(pool: Pool, estimate: Estimate) -> float | None:
    return quantiles_influence(pool, estimate, 1)


def quantiles_influence(pool: Pool, estimate: Estimate, reports: int) -> float | None:
    """As far as a quantile moves when the share of readings below any value does, by what so many reports can do to it.

    Of the counts that the share is a sum of, one report supports at most all, or as many as it has ones.
    """
    inner = cast("Quantiles", pool.metric.mechanism).inner
    law = law_of(inner)
    if law is None or not isinstance(inner, CategoricalMechanism):
        return None
    (p, q), k = law, inner.k
    ones = inner.ones if inner.ones is not None and inner.length == k else k
    count = max(ones * (1 - q), (k - ones) * q if ones < k else k * q) / (p - q)
    readings = 1.0 if not pool.metric.optional else count
    return _shift(estimate, reports * count, reports * readings)


def _quantiles_reach(pool: Pool, estimate: Estimate) -> float | None:
    """The same for all reports of the round: each label supported by none .. all of them."""
    inner = cast("Quantiles", pool.metric.mechanism).inner
    law = law_of(inner)
    if law is None or not isinstance(inner, CategoricalMechanism):
        return None
    count = inner.k * pool.largest / (law[0] - law[1])
    return _shift(estimate, count, float(pool.largest) if not pool.metric.optional else count)


def _shift(estimate: Estimate, below: float, readings: float) -> float | None:
    """How far quantiles move when the count below a value moves by `below`, and that of all readings by `readings`.

    a/b moves by at most (below + readings) / (b - readings) when these go. At most the range: no quantile leaves it.
    """
    if not isinstance(estimate, QuantileEstimate) or estimate.distribution is None or not estimate.distribution.cdf:
        return None
    distribution = estimate.distribution
    width = distribution.edges[-1] - distribution.edges[0]
    left = distribution.weight - readings
    if left <= 0 or (share := (below + readings) / left) >= 1:
        return width
    asked = estimate.quantiles
    moved = [min(max(q + sign * share, _NEAR_END), 1 - _NEAR_END) for sign in (-1, 0, 1) for q in asked]
    values = quantiles_of(distribution, [Decimal(q) for q in moved]).values
    down, here, up = (values[part * len(asked) : (part + 1) * len(asked)] for part in range(3))
    steps = [abs((end or 0.0) - (at or 0.0)) for ends in (down, up) for end, at in zip(ends, here, strict=True)]
    return min(max(steps), width)


_NEAR_END = 1e-9

_Figure = Callable[["Pool", Estimate], float | None]
_INFLUENCE: Final[Mapping[Answer, _Figure]] = {
    "counts": _counts_influence,
    "mean": _mean_influence,
    "optional_mean": _ratio_influence,
    "slices": slices_influence,
    "quantiles": _quantiles_influence,
    "vector": _vector_influence,
}
_REACH: Final[Mapping[Answer, _Figure]] = {
    "counts": _counts_reach,
    "mean": _mean_reach,
    "optional_mean": _ratio_reach,
    "slices": slices_reach,
    "quantiles": _quantiles_reach,
    "vector": _vector_reach,
}
