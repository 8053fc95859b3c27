"""One round at the collector, as a state machine: members' messages in, the next step's messages out.

Rules of this file:
- When a step ends is the driver's business (`close`); what may still come afterwards is decided here, in one place:
  nothing. A late masked input is never added, because its owner's mask key may be revealed by then.
- The first message of a member counts. A byte-identical repeat is ALREADY_RECEIVED, a later message of an earlier
  step LATE, another one OUT_OF_ORDER, one of the wrong form MALFORMED (the member may still send a right one), one
  whose signature does not hold BAD_SIGNATURE.
- A masked input is added when its last piece is in, so a round holds one vector and the unfinished ones; a member
  that left in between is a dropout, and nothing of it stays.
- Below its minimum a round ends with RoundAbortedError: reason and counts, never a sum. Beside it stands whom the
  round blames.
What it does not do: it checks no advert (that is done before), keeps no time, opens no sum (`opening.py`). What is
proven to members stands in `roster.py` and `status.py`, what becomes of shares in `shares.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from client_sdk.errors import (
    AbortReason,
    LocalProtocolError,
    RejectionError,
    RejectionReason,
    RoundAbortedError,
)
from client_sdk.secagg import masking
from client_sdk.secagg.checks import is_thin
from client_sdk.secagg.messages import (
    Advert,
    CollectorMessage,
    Confirm,
    MaskedInputPiece,
    ParticipantMessage,
    Roster,
    SealedShares,
    UnmaskShares,
)
from collector.secagg.blame import Blame
from collector.secagg.opening import Opening, OwnerShares
from collector.secagg.roster import CommittedRoster
from collector.secagg.shares import DealtShares, ReleasedShares
from collector.secagg.status import CommittedStatus
from collector.secagg.step_messages import StepMessages

if TYPE_CHECKING:
    from client_sdk.secagg.parameters import RoundRules


class Phase(Enum):
    """What the round waits for; the values of the steps are the names under which dropouts are counted."""

    SHARES = "shares"
    MASKED_INPUT = "masked_input"
    CONFIRM = "confirm"
    UNMASK = "unmask"
    OPENING = "opening"
    ABORTED = "aborted"


STEPS: Final = (Phase.SHARES, Phase.MASKED_INPUT, Phase.CONFIRM, Phase.UNMASK)
_STEP_OF: Final[Mapping[type, Phase]] = {
    SealedShares: Phase.SHARES,
    MaskedInputPiece: Phase.MASKED_INPUT,
    Confirm: Phase.CONFIRM,
    UnmaskShares: Phase.UNMASK,
}
_ORDER: Final = {phase: place for place, phase in enumerate(Phase)}
MAX_REMEMBERED: Final = 64
"""Messages of a member that a repeat is told from: twice what the longest vector takes in whole pieces. Who sends its
vector in crumbs is not remembered further: a repeated crumb is MALFORMED then, because of its offset."""

_TOO_FEW: Final = {
    Phase.SHARES: AbortReason.TOO_FEW_SHARERS,
    Phase.MASKED_INPUT: AbortReason.TOO_FEW_SURVIVORS,
    Phase.CONFIRM: AbortReason.TOO_FEW_CONFIRMATIONS,
    Phase.UNMASK: AbortReason.TOO_FEW_RESPONSES,
}


class Round:
    """Aggregates one cohort. `adverts` in roster order, signatures and plan already checked, fixed from here on.

    Raises LocalProtocolError and PlanError as `CommittedRoster` does.
    """

    def __init__(self, round_id: str, rules: RoundRules, adverts: Sequence[Advert], formed_at: int) -> None:
        self.roster = CommittedRoster(round_id, rules, adverts, formed_at)
        self.round_id, self.size = round_id, self.roster.size
        self.threshold, self.bits, self.digest = self.roster.threshold, self.roster.bits, self.roster.digest
        self.phase = Phase.SHARES
        self.sharers: tuple[int, ...] = ()
        self.survivors: tuple[int, ...] = ()
        self.dropouts: dict[str, int] = {step.value: 0 for step in STEPS}
        self.blamed: tuple[Blame, ...] = ()
        self._rules = rules
        self._absent: set[int] = set()
        self._answered: set[int] = set()
        self._pending = set(range(self.size))
        self._expected = self.size
        # Python's own hash tells a repeat from another message; being fooled would change the reason, nothing else.
        self._seen: set[tuple[int, int]] = set()
        self._remembered = [0] * self.size
        self._buffers: dict[int, masking.PieceBuffer] = {}
        self._total = masking.zero_ring(rules.length, self.bits)
        self._dealt = DealtShares(self.roster)
        self._status: CommittedStatus  # from the end of the step masked_input on
        self._released = ReleasedShares(self._dealt, self.roster, (), ())

    def roster_for(self, index: int) -> Roster:
        """The roster as member `index` gets it."""
        self._require_member(index)
        return self.roster.for_member(index)

    # --- one step: messages in, or members leaving ---------------------------------------------------

    def receive(self, index: int, message: ParticipantMessage) -> None:
        """Take one message of member `index`; RejectionError says why it was not taken."""
        self._require_member(index)
        step = _STEP_OF.get(type(message))
        fingerprint = (index, hash(message))
        if fingerprint in self._seen:
            raise RejectionError(RejectionReason.ALREADY_RECEIVED)
        if step is not None and _ORDER[step] < _ORDER[self.phase]:
            raise RejectionError(RejectionReason.LATE, f"the step {step.value!r} is closed")
        if step is not self.phase or index not in self._pending:
            raise RejectionError(RejectionReason.OUT_OF_ORDER, f"{type(message).__name__} cannot come now")
        if self._take(index, message):
            self._pending.discard(index)
            self._answered.add(index)
        if self._remembered[index] < MAX_REMEMBERED:
            self._remembered[index] += 1
            self._seen.add(fingerprint)

    def _take(self, index: int, message: ParticipantMessage) -> bool:
        """Is the member's answer to this step complete with this message?"""
        match message:
            case SealedShares():
                self._dealt.take(index, message)
            case MaskedInputPiece():
                return self._take_piece(index, message)
            case Confirm():
                self._take_confirm(index, message)
            case UnmaskShares():
                self._released.take(index, message)
            case _:
                raise RejectionError(RejectionReason.OUT_OF_ORDER)
        return True

    def leave(self, index: int) -> None:
        """Member `index` is gone for good. What it has completed stays; an unfinished masked input does not."""
        self._require_member(index)
        self._absent.add(index)
        self._pending.discard(index)
        self._buffers.pop(index, None)

    def pending(self) -> frozenset[int]:
        """Present members whose message of this step is missing or unfinished."""
        return frozenset(self._pending)

    @property
    def is_waiting(self) -> bool:
        """Does somebody present still owe this step's message, and can the step reach its minimum with those who do?"""
        return bool(self._pending) and self.can_succeed

    @property
    def can_succeed(self) -> bool:
        """Could this step still reach its minimum if everybody who is present answers? If not, close it now."""
        return self.phase in STEPS and len(self._answered) + len(self._pending) >= self._minimum()

    # --- closing a step ------------------------------------------------------------------------------

    def close(self) -> Mapping[int, CollectorMessage]:
        """End this step: the messages that open the next one, for each member that takes part in it and is present.
        Each is made when it is looked up.

        After `unmask` the answer is empty and `opening()` is ready. Raises RoundAbortedError below the step's
        minimum: max(min_size, threshold) sharers and survivors, threshold confirmations and responses, threshold good
        shares of every owner.
        """
        if self.phase not in STEPS:
            raise LocalProtocolError(f"the round is in phase {self.phase.value!r}; there is no step to close")
        step, members = self.phase, tuple(sorted(self._answered))
        self.dropouts[step.value] = self._expected - len(members)
        self._require_enough(_TOO_FEW[step], len(members), self._minimum())
        present = [index for index in members if index not in self._absent]
        messages = self._advance(step, members, present)
        self._expected, self._answered, self._pending = len(members), set(), set(present)
        self.phase = list(Phase)[_ORDER[step] + 1]
        return messages

    def _minimum(self) -> int:
        if self.phase in (Phase.SHARES, Phase.MASKED_INPUT):
            return self._rules.floor(self.size)
        return self.threshold

    def _advance(self, step: Phase, members: tuple[int, ...], present: Iterable[int]) -> Mapping[int, CollectorMessage]:
        match step:
            case Phase.SHARES:
                self.sharers = members
                return self._dealt.deliver(members, present)
            case Phase.MASKED_INPUT:
                self._commit_status(members)
                return StepMessages(present, self._status.for_member)
            case Phase.CONFIRM:
                return StepMessages(present, self._status.request_for)
        self.blame(self._released.blamed())
        self._require_enough(AbortReason.TOO_FEW_RESPONSES, self._released.fewest, self.threshold)
        return {}

    def _require_enough(self, reason: AbortReason, have: int, need: int) -> None:
        if have < need:
            self.phase = Phase.ABORTED
            self._dealt.clear()
            self._buffers.clear()
            self._released.clear()
            raise RoundAbortedError(reason, have=have, need=need)

    def blame(self, blamed: Iterable[Blame]) -> None:
        """Add to `blamed` what this step, or the opening, has found out."""
        self.blamed = (*self.blamed, *blamed)

    # --- the steps -----------------------------------------------------------------------------------

    def _take_piece(self, index: int, piece: MaskedInputPiece) -> bool:
        buffer = self._buffers.setdefault(index, masking.PieceBuffer(self._rules.length, self.bits))
        try:
            buffer.add(piece)
        except ValueError as error:
            raise RejectionError(RejectionReason.MALFORMED, str(error)) from None
        if buffer.is_whole:
            self._total += self._buffers.pop(index).take()
        return index not in self._buffers

    def _commit_status(self, survivors: tuple[int, ...]) -> None:
        self._buffers.clear()
        self.survivors = survivors
        fresh = len(survivors) - self.resent_survivors
        if is_thin(fresh, self._rules.min_size):
            self._require_enough(AbortReason.TOO_FEW_SURVIVORS, fresh, self._rules.min_size)
        self._status = CommittedStatus(self.roster, self.sharers, survivors)
        self._released = ReleasedShares(self._dealt, self.roster, self.sharers, survivors)

    @property
    def resent_survivors(self) -> int:
        """Survivors whose report may have left its device before."""
        return self.roster.resent_among(self.survivors)

    def _take_confirm(self, index: int, message: Confirm) -> None:
        if message.status_root != self._status.root:
            raise RejectionError(RejectionReason.MALFORMED, "the confirmation is for another status")
        if not self._status.confirm(index, message):
            raise RejectionError(RejectionReason.BAD_SIGNATURE, "confirmation")

    # --- the sum -------------------------------------------------------------------------------------

    def opening(self) -> Opening:
        """Everything `open_sum` needs, once `unmask` is closed."""
        if self.phase is not Phase.OPENING:
            raise LocalProtocolError(f"the round is in phase {self.phase.value!r}; there is nothing to open")
        dropped = tuple(map(self._dropouts_shares, self._status.dropped))
        peers = sorted({survivor for owner in dropped for survivor in owner.survivors})
        return Opening(
            bits=self.bits,
            threshold=self.threshold,
            roster_digest=self.digest,
            masked_total=masking.ring_bytes(self._total),
            survivors=tuple(map(self._survivors_shares, self.survivors)),
            dropped=dropped,
            mask_keys={peer: self.roster.adverts[peer].mask_key for peer in peers},
        )

    def _survivors_shares(self, owner: int) -> OwnerShares:
        return OwnerShares(owner, self.roster.adverts[owner].self_mask_commitment, *self._released.of(owner))

    def _dropouts_shares(self, owner: int) -> OwnerShares:
        survivors = self._status.survivors_among(self.roster.graph.neighbours(owner))
        return OwnerShares(owner, self.roster.adverts[owner].mask_key, *self._released.of(owner), survivors)

    def _require_member(self, index: int) -> None:
        if not 0 <= index < self.size:
            raise LocalProtocolError(f"the roster has no member {index}")
