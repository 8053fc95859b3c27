"""Sizes of a round, computed alike by both ends: neighbours, threshold, ring width, smallest roster.

Rules of this file: a participant computes every number here from its own plan and the roster's size and never takes
one from the collector; the collector is assumed to tell different members different things, to choose who drops after
it has seen the graph, and to control floor(corrupt_fraction x size) members. What it does not do: it knows no
messages and no keys, and it draws no graph (`graph.py`).

**Complete graph** (up to COMPLETE_UP_TO members, exact). Each of n members holds one share of every seed, its own
included. With C corrupt holders an equivocating collector can get C shares of *both* kinds and must split the n - C
honest ones; it fails when 2t > n + C (Bonawitz et al. 2017, section 6).

**Sparse graph** (above). Member i's k neighbours, and only they, hold its shares; the graph is a Harary graph on a
random order. With C = floor(corrupt_fraction n), D = floor(dropout_fraction n) the smallest even k is taken for which
a threshold t keeps all of these (Bell et al. 2020; computed as in the graph parameter finder of Google's
federated-compute, but over the n - 1 others of a member):

(a) the members that are neither corrupt nor dropped are connected but for a probability of 2^-(SIGMA + 1): to cut the
    ring takes two separate runs of k/2 places of the C + D, and there are n (n - k - 1) / 2 pairs of runs;
(b) but for 2^-(SIGMA + 1), no member has more than t1 corrupt neighbours: n Pr[HG(n - 1, C, k) > t1], t >= t1 + 1;
(c) but for 2^-ETA, every member keeps t surviving neighbours: n Pr[HG(n - 1, n - D - 1, k) < t]. What is lost
    otherwise is a round, not a secret;
(d) no member's two seeds can both be opened by a collector that splits its neighbours: 2t > k + t1, given (b).

SIGMA is 80, not the usual 40, since the collector moves last: it knows every advert before it fixes the roster, and
can try rosters by the billion until the order suits it. (So participants also refuse a roster that took longer than
max_wait + ROSTER_GRACE_S.)

(a) is for drops that do not depend on the order. Drops, absences and split views that the collector chooses are held
by (b) and (d): whoever gives a share has seen t signatures of its own holders for the status it acts on, and with
2t > k + t1 its mask key cannot be opened under another status. So the last member before a cut has only corrupt
givers beyond it, and needs t - k/2 > t1/2 of them within k/2 places; the same holds at the second cut. More than t1
corrupt members on such k places happen, over all pairs of cuts, with at most (n - k - 1) / 2 times (b)'s bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lgamma, log
from typing import Final

from client_sdk.errors import PlanError

PIECE_BYTES: Final = 256 * 1024
"""Most bytes of masked input in one message: far below gRPC's default limit of 4 MiB."""

RING_BITS: Final = (16, 32, 64)
COMPLETE_UP_TO: Final = 256
"""Rosters up to this size share with everybody: as cheap as the sparse graph there, and exact."""

MAX_ROSTER: Final = 1 << 14
"""Largest roster that a participant accepts: a bound on its work, not on security."""

MAX_NEIGHBOURS: Final = 1023
"""Most neighbours that a participant accepts: a bound on its work, not on security."""

SIGMA: Final = 80
"""Bits of (a) and (b): no secret is lost but for 2^-SIGMA, over the order of one roster."""

ETA: Final = 30
"""Bits of (c): no more drops than expected end the round but for 2^-ETA."""

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

    def degree(self, size: int) -> int:
        """Neighbours of each member of a roster of `size`: size - 1 in the complete graph. Raises PlanError."""
        return round_parameters(size, self.corrupt_fraction, self.dropout_fraction)[0]

    def threshold(self, size: int) -> int:
        """Shares that reconstruct a seed, in a roster of `size`. Raises PlanError."""
        return round_parameters(size, self.corrupt_fraction, self.dropout_fraction)[1]

    def bits(self, size: int) -> int:
        """Width of the ring that a sum over `size` members cannot wrap."""
        return ring_bits(size, self.bound)

    def floor(self, size: int) -> int:
        """Fewest sharers, and fewest survivors, of a roster of `size`. Raises PlanError."""
        return max(self.min_size, self.threshold(size))


@lru_cache(maxsize=1024)
def round_parameters(size: int, corrupt_fraction: Fraction, dropout_fraction: Fraction) -> tuple[int, int]:
    """Neighbours of each member and shares that reconstruct a seed, in a roster of `size`: (degree, threshold).

    A degree of size - 1 is the complete graph, whose threshold counts the member itself among its holders. Above
    COMPLETE_UP_TO it is what is left where no sparse graph holds. Up to there the dropout fraction changes nothing:
    a plan that loses too many for its threshold is refused when it is read.

    Raises PlanError where no graph of at most MAX_NEIGHBOURS holds, ValueError for a size below 1 or a fraction
    outside [0, 1).
    """
    complete = size - 1, threshold(size, corrupt_fraction)
    if not 0 <= dropout_fraction < 1:
        raise ValueError("a dropout fraction lies in [0, 1)")
    if size <= COMPLETE_UP_TO:
        return complete
    corrupt, dropped = _floor_of(corrupt_fraction, size), _floor_of(dropout_fraction, size)
    sparse = _sparse_parameters(size, corrupt, dropped)
    if sparse is not None:
        return sparse
    if size - 1 <= MAX_NEIGHBOURS and size - dropped >= complete[1]:
        return complete
    raise PlanError(
        f"a roster of {size} has no graph of at most {MAX_NEIGHBOURS} neighbours that holds with corrupt_fraction"
        f" {_shown(corrupt_fraction)} and dropout_fraction {_shown(dropout_fraction)}; lower one of them or the roster"
    )


def threshold(size: int, corrupt_fraction: Fraction) -> int:
    """The complete graph's: smallest t with 2t > size + floor(corrupt_fraction x size), at most `size`.

    Raises ValueError for a size below 1 or a fraction outside [0, 1).
    """
    if size < 1 or not 0 <= corrupt_fraction < 1:
        raise ValueError("threshold needs a size of at least 1 and a corrupt fraction in [0, 1)")
    return (size + _floor_of(corrupt_fraction, size)) // 2 + 1


def _sparse_parameters(size: int, corrupt: int, dropped: int) -> tuple[int, int] | None:
    """The smallest even degree below size - 1 with its threshold; None where there is none."""
    most_corrupt = 0
    for degree in range(2, min(MAX_NEIGHBOURS, size - 2) + 1, 2):
        # More draws never find fewer, so the search goes on where the smaller degree left it.
        while not _holds(_log_more_than(size - 1, corrupt, degree, most_corrupt), size, SIGMA + 1):
            most_corrupt += 1
        t = (degree + most_corrupt) // 2 + 1
        enough_survive = t <= degree and _holds(_log_more_than(size - 1, dropped, degree, degree - t), size, ETA)
        if enough_survive and _is_connected(size, corrupt + dropped, degree):
            return degree, t
    return None


def _is_connected(size: int, bad: int, degree: int) -> bool:
    """Condition (a)."""
    if degree > bad:
        return True
    log_one_pair = _log_falling(bad, degree) - _log_falling(size, degree)
    return _holds(log_one_pair + log(size - degree - 1) - log(2), size, SIGMA + 1)


def _holds(log_probability: float, times: int, bits: int) -> bool:
    """Is times x e^log_probability at most 2^-bits?"""
    return log_probability + log(times) <= -bits * log(2)


def _log_more_than(population: int, marked: int, draws: int, most: int) -> float:
    """ln Pr[HG(population, marked, draws) > most]: the first term by log-gamma, the others by their ratios.

    0 (an upper bound) where `most` + 1 is not above the mean: there the probability is no less than a half.
    """
    first = most + 1
    if first > min(marked, draws):
        return float("-inf")
    if first * population <= marked * draws:
        return 0.0
    unmarked = population - marked
    log_first = _log_choose(marked, first) + _log_choose(unmarked, draws - first) - _log_choose(population, draws)
    term = total = 1.0
    for found in range(first, min(marked, draws)):
        term *= (marked - found) * (draws - found) / ((found + 1) * (unmarked - draws + found + 1))
        total += term
        if term < total * 1e-18:
            break
    return log_first + log(total)


def _log_choose(items: int, taken: int) -> float:
    return _log_falling(items, taken) - lgamma(taken + 1)


def _log_falling(items: int, taken: int) -> float:
    """ln of items x (items - 1) x ... , `taken` factors."""
    return lgamma(items + 1) - lgamma(items - taken + 1)


def _floor_of(fraction: Fraction, size: int) -> int:
    return fraction.numerator * size // fraction.denominator


def _shown(fraction: Fraction) -> str:
    return f"{float(fraction):.6g}"


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
