"""What one dishonest device tries against a round, the check that stops it, and what it does where that is off."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from client_sdk.errors import AbortReason, RejectionReason
from client_sdk.secagg import keys
from client_sdk.secagg.dealing import all_hashes
from client_sdk.secagg.messages import (
    Confirm,
    MaskedInputPiece,
    ParticipantMessage,
    SealedShares,
    UnmaskShares,
)
from client_sdk.secagg.transcript import share_hashes_message
from collector.secagg.blame import Fault
from tests.adversarial.dishonest_device import DeviceAttack, Devices, Outcome, devices
from tests.adversarial.weakening import Line
from tests.fleet import rules

# --- shares that are released ----------------------------------------------------------------------


def releases(change: Callable[[Devices, UnmaskShares], UnmaskShares]) -> Callable[[], Outcome]:
    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> ParticipantMessage:
        return change(fleet, message) if isinstance(message, UnmaskShares) else message

    return lambda: devices(hand).play({6: "masked_input"})


def junk(fleet: Devices, message: UnmaskShares) -> UnmaskShares:
    return replace(message, shares=tuple(bytes([0]) + bytes(range(32)) for _ in message.shares))


def zeros(fleet: Devices, message: UnmaskShares) -> UnmaskShares:
    return replace(message, shares=(bytes(33),) * len(message.shares))


def somebody_elses(fleet: Devices, message: UnmaskShares) -> UnmaskShares:
    return replace(message, shares=(*message.shares[1:], message.shares[0]))


def two_owners_changed(fleet: Devices, message: UnmaskShares) -> UnmaskShares:
    first, second, *rest = message.shares
    return replace(message, shares=(second, first, *rest))


def of_a_stranger(fleet: Devices, message: UnmaskShares) -> UnmaskShares:
    """For a member that dealt nothing, so that nobody holds anything of it."""
    return replace(message, owners=(*message.owners, 6), shares=(*message.shares, message.shares[0]))


def strangers_share() -> Outcome:
    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> ParticipantMessage:
        return of_a_stranger(fleet, message) if isinstance(message, UnmaskShares) else message

    return devices(hand).play({6: "shares"})


def covers_for_another() -> Outcome:
    """Member 3 deals rubbish to four of nine, of whom one may lie; member 2 gives a share of it twice, to have it
    pass for opened."""

    rubbish = (bytes(82),) * 4

    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> ParticipantMessage:
        if index == 3 and isinstance(message, SealedShares):
            return replace(message, sealed=(*rubbish[:2], message.sealed[2], *rubbish[2:], *message.sealed[5:]))
        if index == 2 and isinstance(message, UnmaskShares):
            place = message.owners.index(3)
            owners = (*message.owners[:place], 3, *message.owners[place:])
            return replace(message, owners=owners, shares=(*message.shares[: place + 1], *message.shares[place:]))
        return message

    vectors = [[i, 10 * i] for i in range(9)]
    return devices(hand, (2, 3), rules(min_size=3, corrupt="1/9"), vectors=vectors).play()


# --- shares that are dealt -------------------------------------------------------------------------


def resigned(fleet: Devices, index: int, message: SealedShares, hashes: bytes) -> SealedShares:
    signature = fleet.identities[index].sign(share_hashes_message(fleet.round.digest, index, hashes))
    return replace(message, share_hashes=hashes, signature=signature)


def wrong_hashes() -> Outcome:
    """Four holders get shares that fit no hash that was signed; they are the true shares all the same."""

    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> ParticipantMessage:
        if not isinstance(message, SealedShares):
            return message
        return resigned(fleet, index, message, bytes(5 * 64) + message.share_hashes[5 * 64 :])

    return devices(hand).play()


def junk_shares_with_fitting_hashes() -> Outcome:
    """Pairs that lie on no polynomial, each with its hash: only what they meet in gives it away."""

    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> ParticipantMessage:
        return reseal(fleet, index, message) if isinstance(message, SealedShares) else message

    return devices(hand).play()


def reseal(fleet: Devices, index: int, message: SealedShares) -> SealedShares:
    """Random shares instead of the real ones, sealed and hashed and signed as they should be."""
    waiting = fleet.participants[index]._state
    digest, size = fleet.round.digest, fleet.round.size
    pairs = {h: keys.SharePair(bytes([0]) + bytes([h]) * 32, bytes([0]) + bytes([h + 100]) * 32) for h in range(size)}
    secrets = fleet.secrets_of(index)
    sealed = []
    for other in message.recipients:
        private = keys.load_private(secrets.channel_seed)
        peer = keys.load_public(fleet.round.roster.adverts[other].channel_key)
        sending, _ = keys.channel_keys(private, peer, digest, index, other)
        sealed.append(keys.seal_pair(sending, pairs[other], digest))
    object.__setattr__(waiting, "own_pair", pairs[index])
    return resigned(fleet, index, replace(message, sealed=tuple(sealed)), all_hashes(digest, index, pairs))


# --- masked inputs and confirmations ----------------------------------------------------------------


def masked_input_twice() -> Outcome:
    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> object:
        return [message, message] if isinstance(message, MaskedInputPiece) else message

    return devices(hand).play()


def late_masked_input() -> Outcome:
    """Held back until everybody has confirmed, when its mask key is about to be opened."""
    held: list[ParticipantMessage] = []

    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> object:
        if index == 2 and isinstance(message, MaskedInputPiece):
            held.append(message)
            return []
        if index == 3 and isinstance(message, Confirm):
            fleet.give(2, held[0])
        return message

    return devices(hand, (2, 3)).play()


def of_another_round() -> Outcome:
    """What it sent in an earlier round, after what it sends in this one."""
    before = devices(lambda fleet, index, message: message, round_id="round-0")
    before.play()
    (old,) = [m for i, m in before.sent if i == 2 and isinstance(m, MaskedInputPiece)]

    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> object:
        return [message, old] if isinstance(message, MaskedInputPiece) else message

    return devices(hand, round_id="round-1").play()


def confirms_with_a_bad_signature() -> Outcome:
    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> ParticipantMessage:
        return replace(message, signature=bytes(64)) if isinstance(message, Confirm) else message

    return devices(hand, (0,)).play()


def vector_with_more_than_belongs() -> Outcome:
    """Two elements too many."""

    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> ParticipantMessage:
        return replace(message, data=message.data * 2) if isinstance(message, MaskedInputPiece) else message

    return devices(hand).play()


NOT_SIGNED = Line(
    "shares.DealtShares.are_signed",
    "return list(map(eq, found, signed))",
    "return [True] * len(found)",
)
ANY_SELF_MASK = Line(
    "opening._checked_seeds",
    "if seed is None or keys.self_mask_commitment(seed) != owner.advertised:",
    "if seed is None:",
)
ANY_MASK_KEY = Line(
    "opening._checked_seeds",
    "if private is None or keys.public_bytes(private) != owner.advertised:",
    "if private is None:",
)
ANY_STEP = (
    Line("round.Round.receive", "if step is not None and _ORDER[step] < _ORDER[self.phase]:", "if False:"),
    Line("round.Round.receive", "if step is not self.phase or index not in self._pending:", "if False:"),
    Line("round.Round.receive", "if fingerprint in self._seen:", "if False:"),
)


def blames_the_honest(outcome: Outcome, liar: int = 2) -> bool:
    return any(blame.index != liar for blame in outcome.blamed)


def is_wrong(outcome: Outcome) -> bool:
    return outcome.total is not None and outcome.total != outcome.truth


def ends_the_round(outcome: Outcome) -> bool:
    return outcome.total is None


def lost_and_blamed(outcome: Outcome) -> bool:
    return ends_the_round(outcome) and blames_the_honest(outcome)


shares_attack = functools.partial(DeviceAttack, off=(NOT_SIGNED,), harm=lost_and_blamed, fault=Fault.WRONG_SHARE)

DEVICE_ATTACKS = {
    "junk shares released": shares_attack(releases(junk)),
    "zeros released": shares_attack(releases(zeros)),
    "somebody else's shares released": shares_attack(releases(somebody_elses)),
    "two owners' shares changed": shares_attack(releases(two_owners_changed)),
    "junk shares released, for a wrong sum": DeviceAttack(
        releases(junk), (NOT_SIGNED, ANY_SELF_MASK, ANY_MASK_KEY), is_wrong, fault=Fault.WRONG_SHARE
    ),
    "a share of a stranger": DeviceAttack(
        strangers_share,
        (Line("shares.ReleasedShares.take", "held.issuperset(owners) and ", ""),),
        lambda outcome: isinstance(outcome.crash, KeyError),
        reason=RejectionReason.MALFORMED,
    ),
    "a share given twice, to cover for another": DeviceAttack(
        covers_for_another,
        (Line("shares.ReleasedShares.take", "if not (ascending and ", "if not ("),),
        lambda outcome: ends_the_round(outcome) and not outcome.blamed,
        reason=RejectionReason.MALFORMED,
        aborted=AbortReason.TOO_FEW_RESPONSES,
    ),
    "wrong hashes": DeviceAttack(
        wrong_hashes,
        (Line("dealing.is_usable", "pair_hashes(roster_digest, owner, holder, pair) == hashes", "True"),),
        blames_the_honest,
        fault=Fault.UNUSABLE_SHARES,
        aborted=AbortReason.TOO_FEW_RESPONSES,
    ),
    "junk shares with fitting hashes": DeviceAttack(
        junk_shares_with_fitting_hashes,
        (ANY_SELF_MASK,),
        is_wrong,
        fault=Fault.WRONG_SEED,
        aborted=AbortReason.WRONG_SHARES,
    ),
    "a masked input twice": DeviceAttack(
        masked_input_twice, ANY_STEP, is_wrong, reason=RejectionReason.ALREADY_RECEIVED
    ),
    "a late masked input": DeviceAttack(late_masked_input, ANY_STEP, is_wrong, reason=RejectionReason.LATE),
    "a masked input of another round": DeviceAttack(
        of_another_round, ANY_STEP, is_wrong, reason=RejectionReason.OUT_OF_ORDER
    ),
    "a confirmation with a bad signature": DeviceAttack(
        confirms_with_a_bad_signature,
        (
            Line(
                "status.CommittedStatus.confirm",
                "if not verify(self._roster.adverts[index].identity_key, message.signature, self._confirmed):",
                "if False:",
            ),
        ),
        lambda outcome: ends_the_round(outcome) and AbortReason.BAD_CONFIRMATION in outcome.refusals.values(),
        liar=0,
        reason=RejectionReason.BAD_SIGNATURE,
    ),
    "a vector with more than belongs": DeviceAttack(
        vector_with_more_than_belongs,
        (
            Line(
                "masking.PieceBuffer.add",
                "if len(self._data) + size > self._whole_bytes:",
                "if False:",
            ),
        ),
        lambda outcome: 2 not in outcome.rejected,
        reason=RejectionReason.MALFORMED,
    ),
}
