"""One participant of one round, as a state machine: messages, time and entropy in, messages out.

Rules of this file:
- A state holds exactly what its moment may know, and is spent before it is used: a second message, a wrong one or
  an error in between is final. So nothing can be asked twice with other survivors, which would open a member.
- Round secrets live in these states only: a crash is a dropout, and no step can be replayed from disk.
- Every member of the committed sharer set is masked with, whether or not its pair arrived or opened: a withheld
  pair must not remove a mask. Below `threshold` usable pairs (its own included) the participant leaves.
- Of each owner's two shares one is forgotten when the status is confirmed, before anybody can ask for it.
- The vector is bound at construction and forgotten once it is masked.
What it does not do: no I/O, no clock, no waiting; what is refused, and why, stands in `checks.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from client_sdk.errors import AbortReason, LocalProtocolError, RemoteProtocolError
from client_sdk.secagg import checks, keys, masking, shamir, states
from client_sdk.secagg.messages import (
    DIGEST_BYTES,
    NONCE_BYTES,
    REPORT_ID_BYTES,
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
from client_sdk.secagg.transcript import advert_message

if TYPE_CHECKING:
    from client_sdk.identity import IdentityKey
    from client_sdk.secagg.parameters import RoundRules

_Step = tuple[states.State, list[ParticipantMessage]]


class Participant:
    """Carries one report through one round.

    vector: the report, `rules.length` integers within +-`rules.bound`. resent: a masked input of this report may
    already have left the device. min_cohort: the device's own floor for contributors. entropy: asked for
    `keys.RoundSecrets`, then for the coefficients of the mask-key seed's and of the self-mask seed's shares.
    Raises LocalProtocolError for arguments that cannot be.
    """

    def __init__(
        self,
        identity: IdentityKey,
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
        hello = Hello(identity.public_key, b"", plan_hash, period_start, report_id)
        report = states.Report(rules, _checked_vector(vector, rules), entropy)
        self._state: states.State = states.Start(states.AwaitingChallenge(identity, hello, resent, min_cohort, report))
        self.joined: Joined | None = None
        self.roster_size: int | None = None

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
        return replies

    @property
    def outcome(self) -> Outcome | None:
        """How the stream ended, once it may end; None while the round runs and after a refusal."""
        return self._state.outcome if isinstance(self._state, states.Ended) else None


def _checked_vector(vector: Sequence[int], rules: RoundRules) -> array[int]:
    # An array of C integers takes no float, stays small at 100,000 elements and has no values in its errors here.
    try:
        packed = array("q", vector)
    except (TypeError, OverflowError):
        raise LocalProtocolError("the report's elements are not 64-bit integers") from None
    if len(packed) != rules.length or rules.length < 1:
        raise LocalProtocolError(f"the report has {len(packed)} elements, the plan {rules.length}")
    if max(packed) > rules.bound or min(packed) < -rules.bound:
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
    advert = replace(unsigned, signature=state.identity.sign(advert_message(unsigned)))
    return states.AwaitingJoined(state.report, advert, now, secrets), [advert]


def _deal(state: states.AwaitingRoster, roster: Roster, now: float) -> _Step:
    report, secrets = state.report, state.secrets
    cohort = checks.check_roster(roster, state.advert, report.rules, now - state.sent_at)
    pairs = _split(secrets, cohort, report.entropy)
    private = keys.load_private(secrets.channel_seed)
    receiving_keys: dict[int, bytes] = {}
    sealed: list[bytes] = []
    for other in roster.neighbours:
        peer = keys.load_public(cohort.adverts[other].channel_key)
        sending, receiving_keys[other] = keys.channel_keys(private, peer, cohort.digest, cohort.index, other)
        sealed.append(keys.seal_pair(sending, pairs[other], cohort.digest))
    waiting = states.AwaitingShares(
        cohort=cohort,
        vector=report.vector,
        mask_private=keys.load_private(secrets.mask_seed),
        self_mask_seed=secrets.self_mask_seed,
        own_pair=pairs[cohort.index],
        receiving_keys=receiving_keys,
    )
    return waiting, [SealedShares(recipients=roster.neighbours, sealed=tuple(sealed))]


def _split(secrets: keys.RoundSecrets, cohort: checks.Cohort, entropy: Entropy) -> list[keys.SharePair]:
    size = len(cohort.adverts)
    mask_shares = shamir.split(secrets.mask_seed, cohort.threshold, size, entropy)
    self_shares = shamir.split(secrets.self_mask_seed, cohort.threshold, size, entropy)
    return [keys.SharePair(*pair) for pair in zip(mask_shares, self_shares, strict=True)]


def _mask(state: states.AwaitingShares, delivered: DeliveredShares) -> _Step:
    cohort = state.cohort
    checks.check_delivered(delivered, cohort)
    pairs = _open_pairs(state, delivered)
    if len(pairs) < cohort.threshold:
        detail = f"{len(pairs)} usable of at least {cohort.threshold}"
        raise RemoteProtocolError(AbortReason.TOO_FEW_SHARES, detail)
    vector = masking.to_ring(state.vector, cohort.bits)
    masking.add_masks(vector, _masks(state, delivered.sharers))
    return states.AwaitingStatus(cohort, delivered.sharers, pairs), list(masking.to_pieces(vector))


def _open_pairs(state: states.AwaitingShares, delivered: DeliveredShares) -> dict[int, keys.SharePair]:
    pairs = {state.cohort.index: state.own_pair}
    for owner, sealed in zip(delivered.owners, delivered.sealed, strict=True):
        pair = keys.open_pair(state.receiving_keys[owner], sealed, state.cohort.digest)
        if pair is not None and shamir.is_share(pair.mask_share) and shamir.is_share(pair.self_share):
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
    survivors = frozenset(status.survivors)
    releasable = {
        owner: pair.self_share if owner in survivors else pair.mask_share for owner, pair in sorted(state.pairs.items())
    }
    dropped = checks.dropped_sharers(state.sharers, survivors)
    receipt = Receipt(cohort.round_id, len(survivors), len(cohort.adverts))
    return states.AwaitingUnmask(dropped, receipt, releasable), [Confirm(status.root)]


def _unmask(state: states.AwaitingUnmask, request: UnmaskRequest) -> _Step:
    checks.check_unmask(request, state.dropped)
    shares = UnmaskShares(tuple(state.releasable), tuple(state.releasable.values()))
    return states.AwaitingReceipt(state.receipt), [shares]


def _finish(state: states.AwaitingUnmask | states.AwaitingReceipt, receipt: Receipt) -> _Step:
    # Also before an unmask request: a survivor that was slow to confirm is a contributor all the same.
    if receipt != state.receipt:
        raise RemoteProtocolError(AbortReason.STATUS_MISMATCH, "the receipt is for another sum")
    return states.Ended(receipt), []
