"""One participant of one round, as a state machine: messages, time and entropy in, messages out.

Rules of this file:
- A state holds exactly what its moment may know, and is spent before it is used: a second message, a wrong one or
  an error in between is final. So nothing can be asked twice with other survivors, which would open a member.
- Round secrets live in these states only: a crash is a dropout, and no step can be replayed from disk.
- Every member of the committed sharer set is masked with, whether or not its pair arrived or opened: a withheld
  pair must not remove a mask. Below `threshold` usable pairs (its own included where it holds one) the participant
  leaves. A share that is not what its owner's hash says is no share.
- One status is signed a round. Of each owner's two shares one is forgotten at that moment, before anybody can ask for
  it, and the other is given away only once enough holders of my shares have signed the same status.
- The vector is bound at construction and forgotten once it is masked.
What it does not do: no I/O, no clock, no waiting; what is refused, and why, stands in `checks.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from client_sdk import certificate as certificates
from client_sdk.errors import AbortReason, LocalProtocolError, RemoteProtocolError
from client_sdk.secagg import checks, dealing, keys, masking, states
from client_sdk.secagg.cohort import Cohort, check_roster
from client_sdk.secagg.messages import (
    DIGEST_BYTES,
    KEY_BYTES,
    NONCE_BYTES,
    REPORT_ID_BYTES,
    SHARE_HASH_PAIR_BYTES,
    Advert,
    AlreadyCounted,
    Challenge,
    CollectorMessage,
    ComeBack,
    Confirm,
    DeliveredShares,
    Hello,
    Joined,
    ParticipantMessage,
    Receipt,
    Roster,
    RoundAborted,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.states import Entropy, Outcome
from client_sdk.secagg.transcript import advert_message, confirm_message, share_hashes_message

if TYPE_CHECKING:
    from client_sdk.identity import IdentityKey
    from client_sdk.secagg.parameters import RoundRules

_Step = tuple[states.State, list[ParticipantMessage]]


class Participant:
    """Carries one report through one round.

    certificate: the registrar's word for `identity`. registrar_key: 32 bytes, pinned: the only one whose word counts
    for the neighbours'. period_start: seconds since the epoch, the instant at which their certificates must be good.
    vector: the report, `rules.length` integers within +-`rules.bound`. resent: a masked input of this report may
    already have left the device. min_cohort: the device's own floor for contributors. entropy: asked for
    `keys.RoundSecrets`, then for the coefficients of the mask-key seed's and of the self-mask seed's shares.
    Raises LocalProtocolError for arguments that cannot be.
    """

    def __init__(
        self,
        identity: IdentityKey,
        certificate: bytes,
        registrar_key: bytes,
        plan_hash: bytes,
        period_start: int,
        report_id: bytes,
        vector: Sequence[int],
        rules: RoundRules,
        resent: bool,
        min_cohort: int,
        entropy: Entropy,
    ) -> None:
        if len(plan_hash) != DIGEST_BYTES or len(report_id) != REPORT_ID_BYTES or min_cohort < 0:
            raise LocalProtocolError("the plan hash, the report id or min_cohort cannot be")
        _check_certificate(certificate, registrar_key, identity)
        hello = Hello(identity.public_key, certificate, plan_hash, period_start, report_id)
        report = states.Report(identity, registrar_key, rules, _checked_vector(vector, rules), entropy)
        self._state: states.State = states.Start(states.AwaitingChallenge(hello, resent, min_cohort, report))
        self.joined: Joined | None = None
        self.roster_size: int | None = None
        self.resent_contributors: int | None = None  # as proven by the status that was confirmed
        self.confirmed: Receipt | None = None  # of the sum that this status is about

    def hello(self) -> Hello:
        """The first message of the stream; once, or LocalProtocolError."""
        state, self._state = self._state, states.Spent()
        if not isinstance(state, states.Start):
            raise LocalProtocolError("hello was said already")
        self._state = state.next
        return state.next.hello

    def receive(self, message: CollectorMessage, now: float) -> list[ParticipantMessage]:
        """The answers to one message of the collector, in the order to send them.

        now: seconds, on any clock that only runs forward; differences count, nothing else. Raises
        RemoteProtocolError for what is refused; from then on, and after an outcome, everything is refused.
        """
        state, self._state = self._state, states.Spent()
        self._state, replies = _step(state, message, now)
        if isinstance(message, Joined):
            self.joined = message
        elif isinstance(message, Roster):
            self.roster_size = message.size
        elif isinstance(message, SurvivorStatus):
            self.resent_contributors = message.resent_survivors
            self.confirmed = self._state.receipt if isinstance(self._state, states.AwaitingUnmask) else None
        return replies

    @property
    def outcome(self) -> Outcome | None:
        """How the stream ended, once it may end; None while the round runs and after a refusal."""
        return self._state.outcome if isinstance(self._state, states.Ended) else None


def _check_certificate(certificate: bytes, registrar_key: bytes, identity: IdentityKey) -> None:
    # Whether it holds, and until when, others judge; here only that the right thing was passed.
    try:
        fits = certificates.read(certificate).identity_key == identity.public_key
    except certificates.CertificateError:
        fits = False
    if not fits or len(registrar_key) != KEY_BYTES:
        raise LocalProtocolError("the certificate or the registrar's key cannot be")


def _checked_vector(vector: Sequence[int], rules: RoundRules) -> array[int]:
    # An array of C integers takes no float, stays small at 100,000 elements and has no values in its errors here.
    try:
        packed = vector[:] if isinstance(vector, array) and vector.typecode == "q" else array("q", vector)
    except (TypeError, OverflowError):
        raise LocalProtocolError("the report's elements are not 64-bit integers") from None
    if len(packed) != rules.length or rules.length < 1:
        raise LocalProtocolError(f"the report has {len(packed)} elements, the plan {rules.length}")
    if masking.largest(packed) > rules.bound:
        raise LocalProtocolError("an element of the report lies outside the plan's bound")
    return packed


def _step(state: states.State, message: CollectorMessage, now: float) -> _Step:
    """The table of what may come when; everything else is out of order."""
    match state, message:
        case states.AwaitingChallenge() as waiting, Challenge() as challenge:
            return _advertise(waiting, challenge, now)
        case states.AwaitingJoined() as waiting, Joined():
            return states.AwaitingRoster(waiting.report, waiting.advert, waiting.sent_at, waiting.secrets), []
        case states.AwaitingRoster() as waiting, Roster() as roster:
            return _deal(waiting, roster, now)
        case states.AwaitingRoster(), (AlreadyCounted() | ComeBack()) as outcome:
            return states.Ended(outcome), []
        case states.AwaitingShares() as waiting, DeliveredShares() as delivered:
            return _mask(waiting, delivered)
        case states.AwaitingStatus() as waiting, SurvivorStatus() as status:
            return _confirm(waiting, status)
        case states.AwaitingUnmask() as waiting, UnmaskRequest() as request:
            return _unmask(waiting, request)
        case (states.AwaitingUnmask() | states.AwaitingReceipt()) as waiting, Receipt() as receipt:
            return _finish(waiting, receipt)
        case _, RoundAborted() as aborted if isinstance(state, states.InRound):
            return states.Ended(aborted), []
    raise RemoteProtocolError(AbortReason.OUT_OF_ORDER, f"{type(message).__name__} cannot come now")


# --- steps -----------------------------------------------------------------------------------------


def _advertise(state: states.AwaitingChallenge, challenge: Challenge, now: float) -> _Step:
    if len(challenge.nonce) != NONCE_BYTES:
        raise RemoteProtocolError(AbortReason.MALFORMED, f"the nonce is not {NONCE_BYTES} bytes")
    secrets = keys.RoundSecrets.draw(state.report.entropy)
    unsigned = Advert(
        identity_key=state.hello.identity_key,
        certificate=state.hello.certificate,
        plan_hash=state.hello.plan_hash,
        period_start=state.hello.period_start,
        report_id=state.hello.report_id,
        nonce=challenge.nonce,
        mask_key=keys.public_bytes(keys.load_private(secrets.mask_seed)),
        channel_key=keys.public_bytes(keys.load_private(secrets.channel_seed)),
        self_mask_commitment=keys.self_mask_commitment(secrets.self_mask_seed),
        resent=state.resent,
        min_cohort=state.min_cohort,
    )
    advert = replace(unsigned, signature=state.report.identity.sign(advert_message(unsigned)))
    return states.AwaitingJoined(state.report, advert, now, secrets), [advert]


def _deal(state: states.AwaitingRoster, roster: Roster, now: float) -> _Step:
    report, secrets = state.report, state.secrets
    cohort = check_roster(roster, state.advert, report.rules, report.registrar_key, now - state.sent_at)
    pairs = dealing.split_pairs(secrets, cohort.holders, cohort.threshold, report.entropy)
    private = keys.load_private(secrets.channel_seed)
    receiving_keys: dict[int, bytes] = {}
    sealed: list[bytes] = []
    for other in roster.neighbours:
        peer = keys.load_public(cohort.adverts[other].channel_key)
        sending, receiving_keys[other] = keys.channel_keys(private, peer, cohort.digest, cohort.index, other)
        sealed.append(keys.seal_pair(sending, pairs[other], cohort.digest))
    waiting = states.AwaitingShares(
        identity=report.identity,
        cohort=cohort,
        vector=report.vector,
        mask_private=keys.load_private(secrets.mask_seed),
        self_mask_seed=secrets.self_mask_seed,
        own_pair=pairs.get(cohort.index),
        receiving_keys=receiving_keys,
    )
    hashes = dealing.all_hashes(cohort.digest, cohort.index, pairs)
    signature = report.identity.sign(share_hashes_message(cohort.digest, cohort.index, hashes))
    return waiting, [SealedShares(roster.neighbours, tuple(sealed), hashes, signature)]


def _mask(state: states.AwaitingShares, delivered: DeliveredShares) -> _Step:
    cohort = state.cohort
    checks.check_delivered(delivered, cohort)
    pairs = _open_pairs(state, delivered)
    checks.check_count(len(pairs), cohort.threshold, AbortReason.TOO_FEW_SHARES)
    vector = masking.to_ring(state.vector, cohort.bits)
    masking.add_masks(vector, _masks(state, delivered.sharers))
    return states.AwaitingStatus(state.identity, cohort, delivered.sharers, pairs), list(masking.to_pieces(vector))


def _open_pairs(state: states.AwaitingShares, delivered: DeliveredShares) -> dict[int, keys.SharePair]:
    """The usable pairs by owner. A wrong one is left out as if it had not come: the owner's hashes tell."""
    digest, me = state.cohort.digest, state.cohort.index
    pairs = {} if state.own_pair is None else {me: state.own_pair}
    for place, (owner, sealed) in enumerate(zip(delivered.owners, delivered.sealed, strict=True)):
        pair = keys.open_pair(state.receiving_keys[owner], sealed, digest)
        start = place * SHARE_HASH_PAIR_BYTES
        hashes = delivered.share_hashes[start : start + SHARE_HASH_PAIR_BYTES]
        if pair is not None and dealing.is_usable(digest, owner, me, pair, hashes):
            pairs[owner] = pair
    return pairs


def _masks(state: states.AwaitingShares, sharers: Sequence[int]) -> Iterator[masking.Mask]:
    me, digest = state.cohort.index, state.cohort.digest
    yield keys.self_mask(state.self_mask_seed, digest, me), 1
    for other in sharers:
        if other != me:
            peer = keys.load_public(state.cohort.adverts[other].mask_key)
            yield keys.pairwise_mask(state.mask_private, peer, digest, me, other)


def _confirm(state: states.AwaitingStatus, status: SurvivorStatus) -> _Step:
    cohort = state.cohort
    checks.check_status(status, cohort, state.sharers)
    checks.check_met(status.survivors, state.pairs, cohort)
    survivors = frozenset(status.survivors)
    confirmed = _confirmed(cohort, status)
    waiting = states.AwaitingUnmask(
        dropped=checks.dropped_sharers(state.sharers, survivors),
        confirmed=confirmed,
        receipt=Receipt(cohort.round_id, status.contributors, cohort.size),
        releasable={
            owner: pair.self_share if owner in survivors else pair.mask_share
            for owner, pair in sorted(state.pairs.items())
        },
    )
    return waiting, [Confirm(status.root, state.identity.sign(confirmed.message))]


def _confirmed(cohort: Cohort, status: SurvivorStatus) -> checks.Confirmed:
    holders = frozenset(cohort.holders)
    signers = [index for index in status.survivors if index in holders]
    return checks.Confirmed(
        message=confirm_message(cohort.digest, status.root),
        threshold=cohort.threshold,
        index=cohort.index,
        own=int(cohort.index in signers),
        keys={index: cohort.adverts[index].identity_key for index in signers if index != cohort.index},
    )


def _unmask(state: states.AwaitingUnmask, request: UnmaskRequest) -> _Step:
    checks.check_unmask(request, state.dropped, state.confirmed)
    shares = UnmaskShares(tuple(state.releasable), tuple(state.releasable.values()))
    return states.AwaitingReceipt(state.receipt), [shares]


def _finish(state: states.AwaitingUnmask | states.AwaitingReceipt, receipt: Receipt) -> _Step:
    # Also before an unmask request: a survivor that was slow to confirm is a contributor all the same.
    if receipt != state.receipt:
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "the receipt is for another sum")
    return states.Ended(receipt), []
