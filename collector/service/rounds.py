"""Drives one round: the clock and the streams around the pure `collector.secagg.Round`.

Rules this file keeps:
- the future of a step is registered before any message of that step goes out, so that no answer, nor a
  stream that closes, can overtake it;
- a step ends when nobody present owes a message, when too many have left, or at its deadline; who is silent
  then leaves the round, and the round itself checks what is left against its threshold;
- the sum, its contributors and their spends are stored in one transaction, and only then do receipts go
  out; whatever goes wrong before leaves the reports with their devices;
- a member's seat is kept while its report may still end up in this round's sum, also when its stream is
  gone: the same report must not enter a second round meanwhile.
What it does not do: it checks no message (the round does), and it knows no status codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from client_sdk.errors import AbortReason, RejectionError, RejectionReason, RoundAbortedError, StorageError
from client_sdk.secagg.messages import CollectorMessage, ParticipantMessage, Receipt, RoundAborted
from collector.release import check_plausible
from collector.secagg.blame import SeedsRefusedError
from collector.secagg.round import Phase, Round
from collector.service.mailbox import Member
from collector.service.message_bytes import encoded
from collector.service.monitoring import OPENING_SECONDS, STEP_SECONDS, Monitor
from collector.service.roster_bytes import RosterBytes
from collector.service.round_records import aborted_fields, aborted_record, release_of, released_fields
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_rows import DuplicateContributionError
from collector.service.store_access import StoreAccess
from collector.service.workers import OpeningWorkers

log = logging.getLogger(__name__)

STEPS_AFTER = {Phase.SHARES: 3, Phase.MASKED_INPUT: 2, Phase.CONFIRM: 1, Phase.UNMASK: 0}
"""Steps that follow each step; what a stopping collector divides its grace by."""

MAX_REPEATS = 16
"""A stream that repeats itself to the byte so often is ended: a repeat is harmless, but it is not free."""


@dataclass(frozen=True, slots=True)
class RoundTools:
    """What every round of one collector shares."""

    store: StoreAccess[CollectorStore]
    workers: OpeningWorkers
    monitor: Monitor
    clock: Callable[[], float]
    step_timeout_s: float


class RoundDriver:
    """One round from its roster to its receipts. `run` is its task; the streams call `receive` and `leave`.

    members: in roster order. `on_free(member)` is called once for each, as soon as its seat may be given
    to another stream.
    """

    def __init__(
        self, round_: Round, members: Sequence[Member], tools: RoundTools, on_free: Callable[[Member], None]
    ) -> None:
        self._round = round_
        self._members = tuple(members)
        self._tools = tools
        self._on_free = on_free
        self._loop = asyncio.get_running_loop()
        self._started = self._step_began = self._loop.time()
        self._held = set(range(len(self._members)))
        self._repeats = [0] * len(self._members)
        self._step: asyncio.Future[None] = self._loop.create_future()
        self._deadline: asyncio.TimerHandle | None = None
        self._hurry_until: float | None = None
        self._opening: asyncio.Task[list[int]] | None = None
        self._stopped = False
        self.suspects: tuple[Member, ...] = ()  # whose reports are in a sum that cannot be; one of them spoiled it
        for index, member in enumerate(self._members):
            member.driver, member.index = self, index

    def start(self) -> asyncio.Task[None]:
        """Register the first step and send the rosters; returns the round's task."""
        self._arm()
        rosters = RosterBytes(self._round.roster)
        for index, member in enumerate(self._members):
            member.mailbox.send(partial(rosters.for_member, index))  # encoded when its stream is ready for it
            if not member.connected:
                self.leave(index)
        return self._loop.create_task(self._run(), name=f"round {self._round.round_id}")

    # --- what the streams call ---

    def receive(self, index: int, message: ParticipantMessage) -> None:
        """One message of one member. Raises RejectionError where it has to go; a few repeats are only counted."""
        try:
            self._round.receive(index, message)
        except RejectionError as error:
            if error.reason is RejectionReason.ALREADY_RECEIVED and self._repeats[index] < MAX_REPEATS:
                self._repeats[index] += 1
                self._tools.monitor.rejected(error.reason)
                return
            self.leave(index)
            raise
        self._check_step()

    def leave(self, index: int) -> None:
        """The member's stream has ended. Its report stays in the round where its masked input is already in."""
        self._members[index].connected = False
        self._round.leave(index)
        if self._round.phase is Phase.SHARES:
            self._free(index)
        self._check_step()

    # --- what a stopping collector calls ---

    def hurry(self, until: float) -> None:
        """Finish by loop time `until`: the steps left share the time left, so that who is quick is still counted."""
        self._hurry_until = until
        if self._deadline is not None:
            self._arm_deadline()

    def stop(self) -> None:
        """End now: everybody present is told so, the round is on record. A sum that is being stored stays stored."""
        self._stopped = True
        if not self._step.done():
            self._step.set_exception(self._aborted(AbortReason.SHUTTING_DOWN))
        elif self._opening is not None:
            self._opening.cancel()

    # --- the round's task ---

    async def _run(self) -> None:
        try:
            aborted, refusal = await self._until_released()
            if aborted is not None:
                await self._abort(aborted, refusal)
        finally:
            self._disarm()
            self._tell_aborted(self._aborted(AbortReason.NOT_STORED))  # nobody is left waiting, whatever happened
            for index in tuple(self._held):
                self._free(index)

    async def _until_released(self) -> tuple[RoundAbortedError | None, StoreProblem | None]:
        """(None, None) once receipts are out, else why there is no sum and what is wrong with the store, if it is."""
        try:
            await self._collect()
            await self._store(await self._open())
        except RoundAbortedError as error:
            return error, None
        except DuplicateContributionError as error:
            log.warning("round %s: %s", self._round.round_id, error)
        except StoreError as error:
            return self._aborted(AbortReason.NOT_STORED), error.problem
        except StorageError as error:
            log.error("round %s: %s", self._round.round_id, error)
        else:
            return None, None
        return self._aborted(AbortReason.NOT_STORED), None

    async def _collect(self) -> None:
        """All four steps. Raises RoundAbortedError, StoreError."""
        while True:
            await self._step
            self._tools.monitor.observe(STEP_SECONDS, self._loop.time() - self._step_began, self._round.phase.value)
            if self._round.phase is Phase.SHARES:
                # a masked input that cannot be counted makes its report a resent one
                self._tools.store.require_working()
            self._drop_silent()
            answers = self._round.close()
            self._free_dropouts()
            if self._round.phase is Phase.OPENING:
                self._disarm()
                return
            self._arm()
            for index in answers:  # made and encoded when its stream is ready for it
                self._members[index].mailbox.send(partial(_encoded, answers, index))
            del answers  # with the last of them go the sealed pairs
            self._check_step()

    async def _open(self) -> list[int]:
        """The totals. Raises RoundAbortedError, also where the collector stops before they are open."""
        self._opening = self._loop.create_task(self._tools.workers.open(self._round.opening()))
        try:
            with self._tools.monitor.timed(OPENING_SECONDS):
                totals = await self._opening
        except SeedsRefusedError as error:
            self._round.blame(error.blamed)
            raise
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            raise self._aborted(AbortReason.SHUTTING_DOWN) from None
        self.suspects = tuple(self._members[index] for index in self._round.survivors)  # until it is plausible
        check_plausible(self._members[0].plan, totals, len(self._round.survivors))
        self.suspects = ()
        return totals

    async def _store(self, totals: list[int]) -> None:
        release = release_of(self._round, self._members, totals, self._seconds, self._tools.clock())
        await self._tools.store.call_gathered(CollectorStore.store_releases, release)
        self._tools.monitor.round_released(len(release.contributors), release.dropouts, release.seconds)
        self._tools.monitor.blamed(blamed.what for blamed in release.blamed)
        log.info(
            "round %s released: %d joined, %d contributors, dropouts %s, %.1f s",
            release.round_id, release.roster_size, len(release.contributors), release.dropouts, release.seconds,
            extra=released_fields(release),
        )  # fmt: skip
        receipt = Receipt(release.round_id, len(release.contributors), release.roster_size)
        for member in self._members:
            member.mailbox.end(receipt)

    async def _abort(self, error: RoundAbortedError, refusal: StoreProblem | None) -> None:
        self._tell_aborted(error, refusal)
        record = aborted_record(self._round, self._members, error.reason, self._seconds, self._tools.clock())
        self._tools.monitor.round_aborted(error.reason, record.dropouts, record.seconds)
        self._tools.monitor.blamed(blamed.what for blamed in record.blamed)
        # an outage of the store has its own line, and only one
        level = logging.WARNING if refusal is None else logging.INFO
        said = aborted_fields(record)
        log.log(level, "round %s: %s; dropouts %s", record.round_id, error, record.dropouts, extra=said)
        with contextlib.suppress(StoreError):
            await self._tools.store.call(CollectorStore.record_aborted, record)

    # --- steps ---

    def _arm(self) -> None:
        self._step = self._loop.create_future()
        self._step_began = self._loop.time()
        self._arm_deadline()

    def _arm_deadline(self) -> None:
        now = self._loop.time()
        wait_s = self._tools.step_timeout_s
        if self._hurry_until is not None:
            left_s = max(self._hurry_until - now, 0.0)
            # one part is left for opening and storing
            wait_s = min(wait_s, left_s / (STEPS_AFTER.get(self._round.phase, 0) + 2))
        self._disarm()
        self._deadline = self._loop.call_later(wait_s, self._end_step)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _check_step(self) -> None:
        """End the step as soon as nobody present owes a message, or too many have left for it to succeed."""
        if not self._step.done() and not self._round.is_waiting:
            self._end_step()

    def _end_step(self) -> None:
        if not self._step.done():
            self._step.set_result(None)

    def _drop_silent(self) -> None:
        """At the deadline. Where others ended the round before it, nobody is late: all are told the same."""
        if not self._round.can_succeed:
            return
        reason = RejectionReason.LATE if self._hurry_until is None else RejectionReason.SHUTTING_DOWN
        for index in self._round.pending():
            self._members[index].connected = False
            self._members[index].mailbox.end(reason=reason)
            self._round.leave(index)

    # --- seats ---

    def _free_dropouts(self) -> None:
        """Seats of members that cannot be in the sum any more: gone, and without a whole masked input."""
        if self._round.phase is Phase.MASKED_INPUT:
            kept = {index for index in self._held if self._members[index].connected}
        elif self._round.phase is Phase.CONFIRM:
            kept = set(self._round.survivors)
        else:
            return
        for index in self._held - kept:
            self._free(index)

    def _free(self, index: int) -> None:
        if index in self._held:
            self._held.discard(index)
            self._on_free(self._members[index])

    # --- values ---

    def _aborted(self, reason: AbortReason) -> RoundAbortedError:
        present = sum(member.connected for member in self._members)
        return RoundAbortedError(reason, have=present, need=self._members[0].plan.cohort.min_size)

    def _tell_aborted(self, error: RoundAbortedError, refusal: StoreProblem | None = None) -> None:
        message = RoundAborted(error.reason.value, error.have, error.need)
        for member in self._members:
            member.mailbox.end(message, reason=refusal)

    @property
    def _seconds(self) -> float:
        return self._loop.time() - self._started


def _encoded(messages: Mapping[int, CollectorMessage], index: int) -> bytes:
    return encoded(messages[index])
