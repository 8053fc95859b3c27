"""One round at the collector, as a state machine: members' messages in, the next step's messages out.

Rules of this file:
- When a step ends is the driver's business (`close`); what may still come afterwards is decided here, in one place:
  nothing. A late masked input is never added, because its owner's mask key may be revealed by then.
- The first message of a member counts. A byte-identical repeat is ALREADY_RECEIVED, a later message of an earlier
  step LATE, another one OUT_OF_ORDER, one of the wrong form MALFORMED (the member may still send a right one).
- A masked input is added when its last piece is in, so a round holds one vector and the unfinished ones; a member
  that left in between is a dropout, and nothing of it stays.
- Below its minimum a round ends with RoundAbortedError: reason and counts, never a sum.
What it does not do: it checks no signature (adverts are checked before), keeps no time, opens no sum (`opening.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from client_sdk.errors import (
    AbortReason,
    LocalProtocolError,
    RejectionError,
    RejectionReason,
    RoundAbortedError,
)
from client_sdk.secagg import masking, shamir
from client_sdk.secagg.checks import are_distinct, dropped_sharers, is_thin
from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.messages import (
    Advert,
    CollectorMessage,
    Confirm,
    DeliveredShares,
    MaskedInputPiece,
    ParticipantMessage,
    Roster,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.parameters import MAX_ROSTER
from client_sdk.secagg.transcript import roster_digest, status_root
from collector.secagg.opening import Opening, OwnerShares

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

    Raises LocalProtocolError for a cohort that no participant would accept (wrong size, mixed, a key twice), PlanError
    for one whose sum could wrap.
    """

    def __init__(self, round_id: str, rules: RoundRules, adverts: Sequence[Advert], formed_at: int) -> None:
        _check_cohort(rules, adverts)
        self.size = len(adverts)
        self.threshold = rules.threshold(self.size)
        self.bits = rules.bits(self.size)
        self.phase = Phase.SHARES
        self.digest = roster_digest(round_id, rules, self.threshold, self.bits, formed_at, adverts)
        self.sharers: tuple[int, ...] = ()
        self.survivors: tuple[int, ...] = ()
        self.dropouts: dict[str, int] = {step.value: 0 for step in STEPS}
        self.round_id, self._formed_at = round_id, formed_at
        self._rules, self._adverts = rules, tuple(adverts)
        self._expected = frozenset(range(self.size))
        self._answered: set[int] = set()
        self._absent: set[int] = set()
        # Python's own hash tells a repeat from another message; being fooled would change the reason, nothing else.
        self._seen: set[tuple[int, int]] = set()
        self._remembered = [0] * self.size
        self._sealed: dict[int, tuple[bytes, ...]] = {}
        self._buffers: dict[int, masking.PieceBuffer] = {}
        self._total = masking.zero_ring(rules.length, self.bits)
        self._root = b""
        self._released: dict[int, dict[int, bytes]] = {}

    def roster_for(self, index: int) -> Roster:
        """The roster as member `index` gets it: all other members are its neighbours."""
        others = tuple(other for other in range(self.size) if other != index)
        return Roster(
            round_id=self.round_id,
            index=index,
            size=self.size,
            threshold=self.threshold,
            bits=self.bits,
            length=self._rules.length,
            formed_at=self._formed_at,
            neighbours=others,
            adverts=self._adverts[:index] + self._adverts[index + 1 :],
            digest=self.digest,
        )

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
        if step is not self.phase or index not in self._expected - self._absent - self._answered:
            raise RejectionError(RejectionReason.OUT_OF_ORDER, f"{type(message).__name__} cannot come now")
        if self._take(index, message):
            self._answered.add(index)
        if self._remembered[index] < MAX_REMEMBERED:
            self._remembered[index] += 1
            self._seen.add(fingerprint)

    def _take(self, index: int, message: ParticipantMessage) -> bool:
        """Is the member's answer to this step complete with this message?"""
        match message:
            case SealedShares():
                return self._take_shares(index, message)
            case MaskedInputPiece():
                return self._take_piece(index, message)
            case Confirm():
                return self._take_confirm(message)
            case UnmaskShares():
                return self._take_unmask(index, message)
        raise RejectionError(RejectionReason.OUT_OF_ORDER)

    def leave(self, index: int) -> None:
        """Member `index` is gone for good. What it has completed stays; an unfinished masked input does not."""
        self._require_member(index)
        self._absent.add(index)
        self._buffers.pop(index, None)

    def pending(self) -> frozenset[int]:
        """Present members whose message of this step is missing or unfinished."""
        return self._expected - self._answered - self._absent

    @property
    def can_succeed(self) -> bool:
        """Could this step still reach its minimum if everybody who is present answers? If not, close it now."""
        return self.phase in STEPS and len(self._answered) + len(self.pending()) >= self._minimum()

    # --- closing a step ------------------------------------------------------------------------------

    def close(self) -> dict[int, CollectorMessage]:
        """End this step: the messages that open the next one, for each member that takes part in it and is present.

        After `unmask` the answer is empty and `opening()` is ready. Raises RoundAbortedError below the step's
        minimum: max(min_size, threshold) sharers and survivors, threshold confirmations and responses.
        """
        if self.phase not in STEPS:
            raise LocalProtocolError(f"the round is in phase {self.phase.value!r}; there is no step to close")
        step, members = self.phase, tuple(sorted(self._answered))
        self.dropouts[step.value] = len(self._expected) - len(members)
        self._require_enough(_TOO_FEW[step], len(members), self._minimum())
        messages = self._advance(step, members)
        self._expected, self._answered = frozenset(members), set()
        self.phase = list(Phase)[_ORDER[step] + 1]
        return {index: messages[index] for index in messages if index not in self._absent}

    def _minimum(self) -> int:
        if self.phase in (Phase.SHARES, Phase.MASKED_INPUT):
            return self._rules.floor(self.size)
        return self.threshold

    def _advance(self, step: Phase, members: tuple[int, ...]) -> Mapping[int, CollectorMessage]:
        if step is Phase.SHARES:
            return self._deliver(members)
        if step is Phase.MASKED_INPUT:
            return dict.fromkeys(members, self._status(members))
        if step is Phase.CONFIRM:
            return dict.fromkeys(members, UnmaskRequest(dropped_sharers(self.sharers, self.survivors)))
        fewest = min(len(self._released.get(owner, ())) for owner in self.sharers)
        self._require_enough(AbortReason.TOO_FEW_RESPONSES, fewest, self.threshold)
        return {}

    def _require_enough(self, reason: AbortReason, have: int, need: int) -> None:
        if have < need:
            self.phase = Phase.ABORTED
            self._sealed.clear()
            self._buffers.clear()
            self._released.clear()
            raise RoundAbortedError(reason, have=have, need=need)

    # --- the steps -----------------------------------------------------------------------------------

    def _take_shares(self, index: int, message: SealedShares) -> bool:
        others = (*range(index), *range(index + 1, self.size))
        if message.recipients != others or [len(s) for s in message.sealed] != [SEALED_BYTES] * len(others):
            raise RejectionError(RejectionReason.MALFORMED, "not one sealed pair for every neighbour")
        self._sealed[index] = message.sealed
        return True

    def _deliver(self, sharers: tuple[int, ...]) -> dict[int, CollectorMessage]:
        self.sharers = sharers
        sealed, self._sealed = self._sealed, {}
        messages: dict[int, CollectorMessage] = {}
        for me in sharers:
            owners = tuple(owner for owner in sharers if owner != me)
            # An owner's pairs stand in the order of its neighbours, which leaves the owner itself out.
            mine = tuple(sealed[owner][me - (me > owner)] for owner in owners)
            messages[me] = DeliveredShares(sharers=sharers, owners=owners, sealed=mine)
        return messages

    def _take_piece(self, index: int, piece: MaskedInputPiece) -> bool:
        buffer = self._buffers.setdefault(index, masking.PieceBuffer(self._rules.length, self.bits))
        try:
            buffer.add(piece)
        except ValueError as error:
            raise RejectionError(RejectionReason.MALFORMED, str(error)) from None
        if buffer.is_whole:
            self._total += self._buffers.pop(index).take()
        return index not in self._buffers

    def _status(self, survivors: tuple[int, ...]) -> SurvivorStatus:
        self._buffers.clear()
        self.survivors = survivors
        fresh = len(survivors) - self.resent_survivors
        if is_thin(fresh, self._rules.min_size):
            self._require_enough(AbortReason.TOO_FEW_SURVIVORS, fresh, self._rules.min_size)
        self._root = status_root(self.digest, self.sharers, survivors, self.resent_survivors)
        return SurvivorStatus(survivors, self.resent_survivors, self._root)

    @property
    def resent_survivors(self) -> int:
        """Survivors whose report may have left its device before."""
        return sum(self._adverts[index].resent for index in self.survivors)

    def _take_confirm(self, message: Confirm) -> bool:
        if message.status_root != self._root:
            raise RejectionError(RejectionReason.MALFORMED, "the confirmation is for another status")
        return True

    def _take_unmask(self, index: int, message: UnmaskShares) -> bool:
        """One share an owner. Every sharer dealt to every other, so the owners are sharers, the holder included.

        A missing owner is an erasure and no fault of the holder's: the pair it was sent did not open.
        """
        owners = message.owners
        ascending = all(a < b for a, b in pairwise(owners))
        if not (ascending and set(owners) <= set(self.sharers) and len(owners) == len(message.shares)):
            raise RejectionError(RejectionReason.MALFORMED, "not one share for each of some sharers, ascending")
        if not all(map(shamir.is_share, message.shares)):
            raise RejectionError(RejectionReason.MALFORMED, "a share is no element of the field")
        for owner, share in zip(owners, message.shares, strict=True):
            self._released.setdefault(owner, {})[index] = share
        return True

    def opening(self) -> Opening:
        """Everything `open_sum` needs, once `unmask` is closed."""
        if self.phase is not Phase.OPENING:
            raise LocalProtocolError(f"the round is in phase {self.phase.value!r}; there is nothing to open")
        return Opening(
            bits=self.bits,
            threshold=self.threshold,
            roster_digest=self.digest,
            masked_total=masking.ring_bytes(self._total),
            survivors=tuple(map(self._survivors_shares, self.survivors)),
            dropped=tuple(map(self._dropouts_shares, dropped_sharers(self.sharers, self.survivors))),
        )

    def _survivors_shares(self, owner: int) -> OwnerShares:
        return self._owner_shares(owner, self._adverts[owner].self_mask_commitment)

    def _dropouts_shares(self, owner: int) -> OwnerShares:
        return self._owner_shares(owner, self._adverts[owner].mask_key)

    def _owner_shares(self, owner: int, advertised: bytes) -> OwnerShares:
        held = sorted(self._released[owner].items())
        holders, shares = tuple(holder for holder, _ in held), tuple(share for _, share in held)
        return OwnerShares(owner, advertised, self._adverts[owner].mask_key, holders, shares)

    def _require_member(self, index: int) -> None:
        if not 0 <= index < self.size:
            raise LocalProtocolError(f"the roster has no member {index}")


def _check_cohort(rules: RoundRules, adverts: Sequence[Advert]) -> None:
    if not rules.min_roster <= len(adverts) <= MAX_ROSTER:
        sizes = f"{rules.min_roster} to {MAX_ROSTER}"
        raise LocalProtocolError(f"a cohort of {len(adverts)} cannot be; the plan and the protocol allow {sizes}")
    if len({(advert.plan_hash, advert.period_start) for advert in adverts}) != 1:
        raise LocalProtocolError("a cohort holds one plan and one period")
    if not are_distinct(adverts):
        raise LocalProtocolError("a cohort holds no identity and no key twice")
