"""When do waiting participants become a cohort? A pure rule over who waits and what time it is.

Rules of this file: a roster is formed only of members that would all go through with it if no more than the
expected fraction dropped out; nobody is kept waiting for what cannot come; who is sent away is told the same
instant as everybody else of this plan and period.
What it does not do: it keeps nothing between calls and starts no timer. Ask again after every join, at
`Wait.until`, and at once after a `Form` or `SendAway` for those who are left.

**Who takes part.** Only fresh reports hide one another: a resent one may already stand in another sum. So fresh
members join only where at least `floor` of them do, floor = ceil(min_size / (1 - dropout_fraction)); resent ones
join any roster of that size. A member whose own `min_cohort` is more than the roster can promise (more of fresh ones,
where it is fresh itself) is left out of it, so that it cannot break the others' round. `takers` is the largest set in
which everyone is content: while fewer than `floor` fresh members wait, that may be the resent ones alone.

**How large.** Up to twice `target_size`, and MAX_ROSTER: for so many a plan that can be read has a graph. Who asks for
more than that finds no roster.

**When.** At `target_size` at once, longest waiting first; else with all takers when `max_wait` has passed since
the oldest of them joined. Members that no roster can be made of are sent away `max_wait` after the oldest joined.

**Apart after an impossible sum.** One of a round's members spoiled such a sum, and nobody can say which. Those who were
in it are `suspicion` > 0: how many such rounds they were in. A roster that would have some of them is parted: into two
halves where each would be large enough, else up to a tenth are left for the next roster; the most suspicious are left,
equals in another order for each count. Whoever was left is no suspect until the next such sum (the caller sees to it),
so nobody is left more often than rounds ended so; and nobody is left where the rest would make no roster.

**Where to meet again.** The upload window begins at the period's end and is cut into twelfths; the same grid goes
on before and after it. All are sent to the next instant of the grid, so that devices whose random offsets lie
anywhere within a twelfth arrive together. A sending-away that falls into such a meeting is put off to its end,
by at most PUT_OFF_S: else one early comer's clock would send off half of those who are just arriving.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from operator import attrgetter
from typing import Final

from client_sdk.plan import Plan
from client_sdk.secagg.parameters import MAX_ROSTER, ROSTER_GRACE_S, min_roster

MEETINGS_PER_WINDOW: Final = 12

PUT_OFF_S: Final = ROSTER_GRACE_S // 2
"""A participant takes no roster later than max_wait + ROSTER_GRACE_S after it joined; half of that is for the way."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One participant whose advert was accepted, waiting for a roster."""

    device_id: str
    joined_at: float  # seconds since the epoch
    resent: bool
    min_cohort: int  # its own floor for contributors; 0: the plan's is enough
    suspicion: int = 0  # rounds it was in that ended in an impossible sum; 0 also after it was left for the next roster


@dataclass(frozen=True)
class FormingRules:
    """What a plan and a period say about forming. Sizes in participants, times in seconds, instants since the epoch.

    Every participant of one plan version and period has the same rules, whatever replica it talks to.
    """

    min_size: int
    target_size: int
    max_wait_s: int
    dropout_fraction: Fraction
    period_end: int
    upload_window_s: int

    @classmethod
    def of(cls, plan: Plan, period_start: int) -> FormingRules:
        """The rules of one period's cohorts."""
        return cls(
            min_size=plan.cohort.min_size,
            target_size=plan.cohort.target_size,
            max_wait_s=plan.cohort.max_wait_s,
            dropout_fraction=plan.cohort.dropout_fraction,
            period_end=period_start + plan.period_s,
            upload_window_s=plan.upload_window_s,
        )

    @cached_property
    def floor(self) -> int:
        """Fewest members of a roster, and fewest fresh ones of a roster with any."""
        return min_roster(self.min_size, self.dropout_fraction)

    @property
    def largest(self) -> int:
        """Most members of a roster: a remainder too small for a cohort of its own has room in the last one."""
        return min(2 * self.target_size - 1, MAX_ROSTER)

    def wanted(self, member: Waiting) -> int:
        """The smallest roster that promises this member what it asks for."""
        if member.min_cohort <= self.min_size:
            return self.floor
        return min_roster(member.min_cohort, self.dropout_fraction)

    def meeting(self, number: int) -> int:
        """Instant `number` of the grid, a whole second; number 0 is the period's end."""
        return self.period_end + number * self.upload_window_s // MEETINGS_PER_WINDOW

    def meetings_around(self, now: float) -> tuple[int, int]:
        """The last meeting not after `now`, and the first one after it."""
        number = int((now - self.period_end) * MEETINGS_PER_WINDOW // self.upload_window_s) - 1
        while self.meeting(number + 1) <= now:
            number += 1
        following = number + 1
        return self.meeting(number), self.meeting(following)


@dataclass(frozen=True, slots=True)
class Form:
    """Make these a round now, in this order. `left`: who would be in it if it were not for their suspicion."""

    members: tuple[Waiting, ...]
    left: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before a join or this instant (seconds since the epoch)."""

    until: float


@dataclass(frozen=True, slots=True)
class SendAway:
    """Tell these members to come back at `come_back_at` plus a uniform extra time up to `jitter_s`."""

    members: tuple[Waiting, ...]
    come_back_at: int
    jitter_s: int


def decide(
    waiting: Sequence[Waiting], rules: FormingRules, now: float, expected_remaining: int | None = None
) -> Form | Wait | SendAway:
    """What to do at `now` with those who wait for one (plan hash, period).

    expected_remaining: how many more participants will join, where that is known (a fixed fleet): then a
    remainder too small for a cohort of its own joins the last one. Raises ValueError where nobody waits.
    """
    if not waiting:
        raise ValueError("nobody waits")
    by_age = sorted(waiting, key=attrgetter("joined_at"))
    complete = _complete(by_age, rules, expected_remaining)
    if complete:
        return _parted(complete, rules)
    first_due = by_age[0].joined_at + rules.max_wait_s
    if now < first_due:
        return Wait(first_due)
    possible = [member for member in by_age if rules.wanted(member) <= rules.largest]
    willing = takers(possible[: rules.largest], rules)
    form_at = willing[0].joined_at + rules.max_wait_s if willing else None
    if form_at is not None and now >= form_at:
        return _parted(willing, rules)
    taken = {*willing, *possible[rules.largest :]}  # the latter's turn comes with the next roster
    rest = tuple(member for member in by_age if member not in taken)
    leave_at = _leave_at(rest[0], rules) if rest else None
    if leave_at is not None and now >= leave_at:
        return SendAway(rest, rules.meetings_around(now)[1], rules.max_wait_s // 2)
    return Wait(min(at for at in (form_at, leave_at) if at is not None))


def takers(members: Iterable[Waiting], rules: FormingRules) -> tuple[Waiting, ...]:
    """The largest set of these members in which everyone is content, in the order given; maybe nobody."""
    content = tuple(members)
    while True:
        fresh = sum(not member.resent for member in content)
        fewer = tuple(
            member for member in content if rules.wanted(member) <= (len(content) if member.resent else fresh)
        )
        if len(fewer) == len(content):
            return content
        content = fewer


def _complete(by_age: Sequence[Waiting], rules: FormingRules, expected_remaining: int | None) -> tuple[Waiting, ...]:
    """The members of a cohort that need not wait any longer, or nobody."""
    target = rules.target_size
    if expected_remaining is not None and len(by_age) + expected_remaining <= rules.largest:
        return takers(by_age, rules) if expected_remaining <= 0 else ()
    content = takers((member for member in by_age if rules.wanted(member) <= target), rules)
    if len(content) < target:
        return ()
    oldest = content[:target]
    if len(takers(oldest, rules)) == target:
        return oldest
    # Too few fresh ones among the oldest. With the fresh ones first there are enough, or there are none at all.
    return tuple(sorted(content, key=attrgetter("resent"))[:target])


def _parted(members: tuple[Waiting, ...], rules: FormingRules) -> Form:
    """A roster of these without the most suspicious of them, as far as the rest is content without them."""
    suspects = sorted((member for member in members if member.suspicion), key=_most_suspicious_first)
    # With one more than the floor in each half, the half that has the culprit can be parted again.
    spare = len(members) // 2 if len(members) >= 2 * (rules.floor + 1) else max(len(members) // 10, 1)
    spare = min(spare, len(suspects))
    while spare:
        left = set(suspects[:spare])
        kept = tuple(member for member in members if member not in left)
        if len(takers(kept, rules)) == len(kept) > 0:
            return Form(kept, tuple(suspects[:spare]))
        spare //= 2
    return Form(members)


def _most_suspicious_first(member: Waiting) -> tuple[int, bytes]:
    return -member.suspicion, sha256(f"{member.suspicion}|{member.device_id}".encode()).digest()


def _leave_at(oldest: Waiting, rules: FormingRules) -> float:
    """When `oldest`, and who else finds no roster with it, is sent away."""
    due = oldest.joined_at + rules.max_wait_s
    meeting, following = rules.meetings_around(due)
    # A window so short that its meetings run into one another has no ends to wait for.
    if oldest.joined_at < meeting and following - meeting >= rules.max_wait_s:
        return min(meeting + rules.max_wait_s, due + PUT_OFF_S)
    return due
