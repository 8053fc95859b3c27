"""Participants between their advert and their round: seats, and the pools that cohorts are formed from.

Rules this file keeps:
- a seat is one identity in one plan name and period; the first stream holds it until it is given back, a
  second stream is refused, so that no sum can hold the same report twice;
- only members with the same plan hash and the same period ever meet in a pool;
- what a pool does (form, wait, send away) is decided by `collector.cohorts`; here are only its timers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial

from client_sdk.errors import RejectionError, RejectionReason, TelemetryError
from client_sdk.secagg.messages import ComeBack
from collector.cohorts import Form, FormingRules, SendAway, Wait, Waiting, decide
from collector.secagg.round import Round
from collector.service.mailbox import Member, PoolKey, SeatKey
from collector.service.rounds import RoundDriver, RoundTools
from collector.service.statuses import Refusal
from collector.service.suspects import Suspects

log = logging.getLogger(__name__)

ROUND_ID_BYTES = 16

MIN_TIMER_S = 0.005
"""A timer may fire a hair before the clock that the decision reads has moved on."""

SAFETY_TIMER_S = 5.0

SEATS_PER_DEVICE = 8
"""A device sends its periods one after another; a few seats may still be held by rounds that it has left."""


class Lobby:
    """All pools and all running rounds of one collector. Used on the event loop only."""

    def __init__(self, tools: RoundTools, *, expected_devices: int | None, max_waiting: int) -> None:
        self._tools = tools
        self._expected_devices = expected_devices
        self._max_waiting = max_waiting
        self._seats: set[SeatKey] = set()
        self._seats_of: Counter[str] = Counter()
        self._pools: dict[PoolKey, _Pool] = {}
        self._came: defaultdict[PoolKey, set[str]] = defaultdict(set)
        self._rounds: dict[asyncio.Task[None], RoundDriver] = {}
        self.suspects = Suspects()
        self._stopping = False

    @property
    def waiting(self) -> int:
        """Members that wait for a cohort."""
        return sum(len(pool.members) for pool in self._pools.values())

    @property
    def running(self) -> int:
        """Rounds between their roster and their end."""
        return len(self._rounds)

    # --- seats ---

    def take_seat(self, key: SeatKey, most: int = SEATS_PER_DEVICE) -> None:
        """Hold one identity, plan name and period for a stream, if it has fewer than `most`. Raises RejectionError."""
        if self._stopping:
            raise RejectionError(RejectionReason.SHUTTING_DOWN)
        if key in self._seats:
            raise RejectionError(RejectionReason.DUPLICATE_IDENTITY)
        if self._seats_of[key[0]] >= most:
            raise RejectionError(RejectionReason.BUSY)  # one identity must not fill the waiting room
        self._seats.add(key)
        self._seats_of[key[0]] += 1

    def give_back_seat(self, key: SeatKey) -> None:
        """The identity may open another stream for that period."""
        if key not in self._seats:
            return
        self._seats.discard(key)
        self._seats_of[key[0]] -= 1
        if not self._seats_of[key[0]]:
            del self._seats_of[key[0]]

    # --- members ---

    def wait(self, member: Member) -> None:
        """Let a seated member wait for its cohort. Raises RejectionError, StoreError."""
        if self._stopping:
            raise RejectionError(RejectionReason.SHUTTING_DOWN)
        self._tools.store.require_working()
        if self.waiting >= self._max_waiting:
            raise RejectionError(RejectionReason.BUSY)
        key = member.pool_key
        pool = self._pools.get(key)
        if pool is None:
            rules = FormingRules.of(member.plan, member.advert.period_start)
            pool = self._pools[key] = _Pool(self, key, rules)
        pool.add(member)

    def came(self, member: Member) -> None:
        """An identity has come for this plan and period; it may only hear that it is counted already."""
        if self._expected_devices is None:
            return
        self._came[member.pool_key].add(member.device_id)
        if pool := self._pools.get(member.pool_key):
            pool.decide()

    def leave(self, member: Member) -> None:
        """The member's stream has ended, wherever it was."""
        member.connected = False
        member.mailbox.clear()
        if member.driver is not None:
            member.driver.leave(member.index)
            return
        self.give_back_seat(member.seat_key)
        pool = self._pools.get(member.pool_key)
        if pool is not None:
            pool.remove(member)

    # --- the end ---

    def send_home(self, reason: Refusal) -> None:
        """Nobody waits any longer: a round now could end in no sum, and would only wear the reports out."""
        for pool in tuple(self._pools.values()):
            pool.send_home(reason)

    async def stop(self, grace_s: float) -> None:
        """No more joins and no new rounds; running rounds may finish within `grace_s`, then they are ended."""
        self._stopping = True
        self.send_home(RejectionReason.SHUTTING_DOWN)
        loop = asyncio.get_running_loop()
        for driver in self._rounds.values():
            driver.hurry(loop.time() + grace_s)
        if self._rounds:
            await asyncio.wait(tuple(self._rounds), timeout=grace_s)
        for driver in tuple(self._rounds.values()):
            driver.stop()
        if self._rounds:
            await asyncio.wait(tuple(self._rounds), timeout=1.0)

    # --- what a pool calls ---

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the epoch."""
        return self._tools.clock

    def expected_remaining(self, key: PoolKey) -> int | None:
        """Identities that are still to come for this plan and period; None where nobody knows."""
        if self._expected_devices is None:
            return None
        return max(self._expected_devices - len(self._came[key]), 0)

    def drop_pool(self, key: PoolKey) -> None:
        """Nobody waits there any more."""
        self._pools.pop(key, None)

    def count(self, name: str, by: int) -> None:
        """Count an event of the lobby."""
        self._tools.monitor.count(name, by)

    def start_round(self, members: list[Member]) -> None:
        """Put these members into a new round. Where that fails, by a slip of ours, they are told to come back."""
        task = None
        try:
            task = self._form(members)
        except TelemetryError:
            log.exception("a round of %d could not be formed; its reports stay with their devices", len(members))
        finally:
            if task is None:
                for member in members:
                    member.driver = None
                    member.mailbox.end(reason=RejectionReason.BUSY)

    def _form(self, members: list[Member]) -> asyncio.Task[None]:
        round_id = secrets.token_urlsafe(ROUND_ID_BYTES)
        adverts = [member.advert for member in members]
        round_ = Round(round_id, members[0].plan.round_rules(), adverts, formed_at=int(self.clock()))
        driver = RoundDriver(round_, members, self._tools, lambda member: self.give_back_seat(member.seat_key))
        task = driver.start()
        self._rounds[task] = driver
        task.add_done_callback(self._round_ended)
        return task

    def _round_ended(self, task: asyncio.Task[None]) -> None:
        driver = self._rounds.pop(task, None)
        if driver is not None and driver.suspects:
            self.suspects.spoiled(driver.suspects[0].pool_key, (member.device_id for member in driver.suspects))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a round ended in an internal error; its reports stay with their devices", exc_info=error)


class _Pool:
    """Who waits for one plan hash and period, and one timer."""

    def __init__(self, lobby: Lobby, key: PoolKey, rules: FormingRules) -> None:
        self.members: dict[str, Member] = {}
        self._keys: set[bytes] = set()
        self._lobby = lobby
        self._key = key
        self._rules = rules
        self._timer: asyncio.TimerHandle | None = None

    def add(self, member: Member) -> None:
        """Wait, and see whether that makes a cohort. Raises RejectionError for a key that somebody here has."""
        if self._keys & _keys_of(member):
            # In one roster every honest member would leave because of it.
            raise RejectionError(RejectionReason.DUPLICATE_KEY)
        self.members[member.device_id] = member
        self._keys |= _keys_of(member)
        self._lobby.came(member)
        if not self._only_waits():
            self.decide()

    def _only_waits(self) -> bool:
        """After a join: fewer than a full cohort wait, and nobody's time is up. Then the timer that runs is right."""
        if self._timer is None:
            return False
        oldest = next(iter(self.members.values()))
        due = oldest.joined_at + self._rules.max_wait_s
        return len(self.members) < self._rules.target_size and self._lobby.clock() < due

    def remove(self, member: Member) -> None:
        """The member's stream has ended."""
        if self.members.get(member.device_id) is member:
            self._take(member.device_id)
            self.decide()

    def send_home(self, reason: Refusal) -> None:
        """Whoever waits may come back, to this collector or another one."""
        for device_id in tuple(self.members):
            self._take(device_id).mailbox.end(reason=reason)
        self._close()

    def decide(self) -> None:
        """Carry out decisions until the pool has to wait, or is empty."""
        self._look_again_in(SAFETY_TIMER_S)  # whatever goes wrong below, nobody is forgotten
        while self.members:
            now = self._lobby.clock()
            decision = decide(self._waiting(), self._rules, now, self._lobby.expected_remaining(self._key))
            if isinstance(decision, Wait):
                self._look_again_in(max(decision.until - now, MIN_TIMER_S))
                return
            self._carry_out(decision)
        self._close()

    def _carry_out(self, decision: Form | SendAway) -> None:
        members = [self._take(waiting.device_id) for waiting in decision.members]
        if isinstance(decision, Form):
            self._lobby.suspects.left(self._key, (waiting.device_id for waiting in decision.left))
            self._lobby.start_round(members)
            return
        self._lobby.count("come_back", len(members))
        for member in members:
            member.mailbox.end(ComeBack(decision.come_back_at, decision.jitter_s))

    def _waiting(self) -> list[Waiting]:
        suspicion = partial(self._lobby.suspects.suspicion, self._key)
        return [
            Waiting(id_, member.joined_at, member.advert.resent, member.advert.min_cohort, suspicion(id_))
            for id_, member in self.members.items()
        ]

    def _take(self, device_id: str) -> Member:
        member = self.members.pop(device_id)
        self._keys -= _keys_of(member)
        return member

    def _close(self) -> None:
        self._cancel_timer()
        self._lobby.drop_pool(self._key)

    def _look_again_in(self, delay_s: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.decide)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _keys_of(member: Member) -> set[bytes]:
    return {member.advert.mask_key, member.advert.channel_key}
