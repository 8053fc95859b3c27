"""Sizes of a round, computed alike by both ends: threshold, ring width, smallest roster.

Rules of this file: integers and fractions only; a participant computes every number here from its own plan and
the roster's size and never takes one from the collector. What it does not do: it knows no messages and no keys.

The threshold is for a collector that tells different members different things. Each of n members holds one share
of every seed (its own included). With C corrupt holders an equivocating collector can get C shares of *both*
kinds and must split the n - C honest ones; it fails when 2t > n + C (Bonawitz et al. 2017, section 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from client_sdk.errors import PlanError

PIECE_BYTES: Final = 256 * 1024
"""Most bytes of masked input in one message: far below gRPC's default limit of 4 MiB."""

RING_BITS: Final = (16, 32, 64)
MAX_ROSTER: Final = 1024
"""Largest roster of the complete graph that a participant accepts: a bound on its work, not on security."""

ROSTER_GRACE_S: Final = 60
"""A roster may reach a participant this long after `max_wait`; an older one gave time to search for keys."""


@dataclass(frozen=True, slots=True)
class RoundRules:
    """What the plan says about a round.

    min_size: fewest contributors of a sum. corrupt_fraction: colluding members tolerated, in [0, 1).
    dropout_fraction: expected losses between roster and unmasking, in [0, 1). max_wait_s: longest wait for a
    roster. length: elements of the vector. bound: largest absolute element of one report.
    """

    min_size: int
    corrupt_fraction: Fraction
    dropout_fraction: Fraction
    max_wait_s: int
    length: int
    bound: int

    @property
    def min_roster(self) -> int:
        """Fewest members of a roster."""
        return min_roster(self.min_size, self.dropout_fraction)

    def threshold(self, size: int) -> int:
        """Shares that reconstruct a seed, in a roster of `size`."""
        return threshold(size, self.corrupt_fraction)

    def bits(self, size: int) -> int:
        """Width of the ring that a sum over `size` members cannot wrap."""
        return ring_bits(size, self.bound)

    def floor(self, size: int) -> int:
        """Fewest sharers, and fewest survivors, of a roster of `size`."""
        return max(self.min_size, self.threshold(size))


def threshold(size: int, corrupt_fraction: Fraction) -> int:
    """Smallest t with 2t > size + floor(corrupt_fraction x size): at most `size` for any fraction below 1.

    Raises ValueError for a size below 1 or a fraction outside [0, 1).
    """
    if size < 1 or not 0 <= corrupt_fraction < 1:
        raise ValueError("threshold needs a size of at least 1 and a corrupt fraction in [0, 1)")
    corrupt = corrupt_fraction.numerator * size // corrupt_fraction.denominator
    return (size + corrupt) // 2 + 1


def ring_bits(max_contributors: int, bound: int) -> int:
    """The smallest of 16, 32, 64 bits whose signed range holds every sum of `max_contributors` reports.

    Raises PlanError where 64 bits are too few: the sum could wrap and would be wrong without a sign of it.
    """
    if max_contributors < 1 or bound < 1:
        raise PlanError("a round needs at least one contributor and a bound of at least 1")
    for bits in RING_BITS:
        if max_contributors * bound < 1 << (bits - 1):
            return bits
    raise PlanError(
        f"a sum of {max_contributors} reports with elements up to {bound} does not fit 64 bits;"
        " lower target_size or the metric's range"
    )


def min_roster(min_size: int, dropout_fraction: Fraction) -> int:
    """ceil(min_size / (1 - dropout_fraction)): so many must begin that `min_size` can be expected to finish."""
    if min_size < 1 or not 0 <= dropout_fraction < 1:
        raise ValueError("min_roster needs a min_size of at least 1 and a dropout fraction in [0, 1)")
    staying = 1 - dropout_fraction
    return -(-min_size * staying.denominator // staying.numerator)
