"""The participant's refusals: one test a line of what a dishonest collector may try, and no state used twice.

Each test lets a real round run up to one message, replaces that one for member 0, and looks at what member 0 does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import AbortReason, LocalProtocolError, RemoteProtocolError
from client_sdk.secagg import keys
from client_sdk.secagg.keys import SharePair
from client_sdk.secagg.messages import (
    Advert,
    AlreadyCounted,
    Challenge,
    CollectorMessage,
    ComeBack,
    Confirm,
    DeliveredShares,
    Hello,
    Joined,
    MaskedInputPiece,
    ParticipantMessage,
    Receipt,
    Roster,
    RoundAborted,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.parameters import MAX_ROSTER, RoundRules
from client_sdk.secagg.participant import Participant
from client_sdk.secagg.shamir import split
from client_sdk.secagg.transcript import advert_message, roster_digest, status_root
from tests.fleet import PERIOD_START, PLAN_HASH, Fleet, SeededEntropy, rules

RULES = rules(min_size=3, corrupt="0.1")
VECTORS = [[i, 10 * i] for i in range(1, 6)]
STEP_TYPES = (Roster, DeliveredShares, SurvivorStatus, UnmaskRequest, Receipt)
OUTCOMES = (AlreadyCounted("r", 5), ComeBack(9, 1), RoundAborted("shutting_down", 0, 0))


def fleet_at(kind: type, drops: dict[int, str] | None = None, **options: Any) -> tuple[Fleet, CollectorMessage]:
    """A fleet of five in which member 0 waits for its first message of type `kind`, and that message."""
    fleet = Fleet(options.pop("vectors", VECTORS), options.pop("rules", RULES), **options)
    messages = fleet.join()
    for step in ("shares", "masked_input", "confirm", "unmask"):
        if isinstance(messages[0], kind):
            return fleet, messages[0]
        fleet.step(messages, [i for i, name in (drops or {}).items() if name == step])
        messages = fleet.round.close()
    return fleet, Receipt(fleet.round_id, len(fleet.round.survivors), fleet.round.size)


def refused(fleet: Fleet, message: CollectorMessage, reason: AbortReason) -> None:
    """Member 0 refuses, for this reason, gives nothing away, and is done for."""
    participant = fleet.participants[0]
    with pytest.raises(RemoteProtocolError) as caught:
        participant.receive(message, fleet.now)
    assert caught.value.reason is reason
    for again in (message, *OUTCOMES):
        with pytest.raises(RemoteProtocolError) as caught:
            participant.receive(again, fleet.now)
        assert caught.value.reason is AbortReason.OUT_OF_ORDER
    assert participant.outcome is None


def resigned(fleet: Fleet, index: int, advert: Advert) -> Advert:
    """The advert with a signature of its member that holds: a dishonest member, not a clumsy collector."""
    return replace(advert, signature=fleet.identities[index].sign(advert_message(advert)))


def with_neighbour(fleet: Fleet, roster: Roster, place: int, advert: Advert, round_rules: RoundRules = RULES) -> Roster:
    """The roster with another advert at `place` of the neighbours, and the digest that fits it."""
    adverts = (*roster.adverts[:place], advert, *roster.adverts[place + 1 :])
    return redigested(fleet, replace(roster, adverts=adverts), round_rules)


def redigested(fleet: Fleet, roster: Roster, round_rules: RoundRules = RULES) -> Roster:
    own = next(m for i, m in fleet.sent if i == 0 and isinstance(m, Advert))
    adverts = [*roster.adverts[: roster.index], own, *roster.adverts[roster.index :]]
    given = (roster.round_id, round_rules, roster.threshold, roster.bits, roster.formed_at, adverts)
    return replace(roster, digest=roster_digest(*given))


def test_whole_round_from_the_inside() -> None:
    """What is said when, by one participant of an undisturbed round."""
    fleet, receipt = fleet_at(Receipt)
    participant = fleet.participants[0]
    assert participant.outcome is None
    assert participant.receive(receipt, 0.0) == []
    assert participant.outcome == receipt == Receipt("round-1", 5, 5)
    assert participant.joined == Joined(0, 0)
    assert participant.roster_size == 5
    said = [type(message) for index, message in fleet.sent if index == 0]
    assert said == [Hello, Advert, SealedShares, MaskedInputPiece, Confirm, UnmaskShares]


# --- construction -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"vector": [1]}, "elements"),
        ({"vector": [1, 2, 3]}, "elements"),
        ({"vector": [1, 1001]}, "bound"),
        ({"vector": [-1001, 1]}, "bound"),
        ({"vector": [1, 2**63]}, "64-bit integers"),
        ({"vector": [1, 2.0]}, "64-bit integers"),
        ({"vector": ["1", 2]}, "64-bit integers"),
        ({"plan_hash": b"short"}, "cannot be"),
        ({"report_id": b""}, "cannot be"),
        ({"min_cohort": -1}, "cannot be"),
    ],
)
def test_construction_refuses(changes: dict[str, Any], what: str) -> None:
    fleet = Fleet(VECTORS, RULES)
    given: dict[str, Any] = {
        "identity": fleet.identities[0],
        "plan_hash": PLAN_HASH,
        "period_start": PERIOD_START,
        "report_id": bytes(16),
        "vector": [-1000, 1000],
        "rules": RULES,
        "resent": False,
        "min_cohort": 0,
        "entropy": SeededEntropy(b"e"),
    }
    Participant(**given)
    with pytest.raises(LocalProtocolError, match=what) as caught:
        Participant(**{**given, **changes})
    assert "1001" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_nothing_secret_in_any_repr() -> None:
    """Every state of member 0 on its way through a round, looked at for its vector, its seeds and its shares."""
    secret_numbers = [123_457, -765_433]
    vectors = [secret_numbers, *VECTORS[1:]]
    looked_at = set()
    fleet = Fleet(vectors, rules(min_size=3, bound=1_000_000))
    original = fleet.participants[0].receive

    def look(message: CollectorMessage, now: float) -> Any:
        replies = original(message, now)
        text = repr(fleet.participants[0]._state) + repr(replies)
        assert not [number for number in secret_numbers if str(number) in text]
        for seed in (SeededEntropy(b"member 0")(32 * 8)[i : i + 32] for i in range(0, 32 * 8, 32)):
            assert repr(seed)[2:-1] not in text
        looked_at.add(type(fleet.participants[0]._state).__name__)
        return replies

    fleet.participants[0].receive = look  # type: ignore[method-assign]
    fleet.run()
    assert looked_at >= {
        "AwaitingJoined",
        "AwaitingRoster",
        "AwaitingShares",
        "AwaitingStatus",
        "AwaitingUnmask",
        "Ended",
    }


# --- order ------------------------------------------------------------------------------------------


def test_hello_is_said_once() -> None:
    participant = Fleet(VECTORS, RULES).participants[0]
    with pytest.raises(RemoteProtocolError):
        Fleet(VECTORS, RULES).participants[0].receive(Challenge(bytes(32)), 0.0)
    participant.hello()
    with pytest.raises(LocalProtocolError):
        participant.hello()
    with pytest.raises(RemoteProtocolError) as caught:
        participant.receive(Challenge(bytes(32)), 0.0)
    assert caught.value.reason is AbortReason.OUT_OF_ORDER


@pytest.mark.parametrize("length", [0, 31, 33])
def test_nonce_of_the_wrong_length(length: int) -> None:
    fleet = Fleet(VECTORS, RULES)
    fleet.participants[0].hello()
    refused(fleet, Challenge(bytes(length)), AbortReason.MALFORMED)


MESSAGES: dict[str, CollectorMessage] = {
    "challenge": Challenge(bytes(32)),
    "joined": Joined(0, 0),
    "already": OUTCOMES[0],
    "come_back": OUTCOMES[1],
    "aborted": OUTCOMES[2],
    "roster": Roster("r", 0, 5, 3, 16, 2, 0, (1, 2, 3, 4), (), bytes(32)),
    "shares": DeliveredShares((0, 1, 2), (1, 2), (b"", b"")),
    "status": SurvivorStatus((0, 1, 2), 0, bytes(32)),
    "unmask": UnmaskRequest(()),
    "receipt": Receipt("round-1", 5, 5),
}
WELCOME = {
    Challenge: {"challenge"},
    Joined: {"joined"},
    Roster: {"roster", "already", "come_back", "aborted"},
    DeliveredShares: {"shares", "aborted"},
    SurvivorStatus: {"status", "aborted"},
    UnmaskRequest: {"unmask", "receipt", "aborted"},
    Receipt: {"receipt", "aborted"},
}


def fleet_waiting_for(kind: type) -> Fleet:
    if kind in STEP_TYPES:
        return fleet_at(kind)[0]
    fleet = Fleet(VECTORS, RULES)
    fleet.participants[0].hello()
    if kind is Joined:
        fleet.participants[0].receive(Challenge(bytes(32)), fleet.now)
    return fleet


@pytest.mark.parametrize("kind", WELCOME, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", MESSAGES)
def test_only_the_table_is_welcome(kind: type, name: str) -> None:
    """Every message in every state: out of order, or not refused for its order."""
    fleet = fleet_waiting_for(kind)
    if name not in WELCOME[kind]:
        refused(fleet, MESSAGES[name], AbortReason.OUT_OF_ORDER)
        return
    participant = fleet.participants[0]
    reason = None
    try:
        participant.receive(MESSAGES[name], fleet.now)
    except RemoteProtocolError as error:
        reason = error.reason
    assert reason is not AbortReason.OUT_OF_ORDER
    if name in ("already", "come_back", "aborted"):
        assert participant.outcome == MESSAGES[name]
        with pytest.raises(RemoteProtocolError):
            participant.receive(MESSAGES[name], fleet.now)


@pytest.mark.parametrize("kind", STEP_TYPES, ids=lambda kind: kind.__name__)
def test_the_same_message_twice_is_refused(kind: type) -> None:
    """An accepted message, byte for byte again: no state is used twice, and nothing is said twice."""
    fleet, message = fleet_at(kind, {4: "masked_input"})
    fleet.participants[0].receive(message, fleet.now)
    with pytest.raises(RemoteProtocolError) as caught:
        fleet.participants[0].receive(message, fleet.now)
    assert caught.value.reason is AbortReason.OUT_OF_ORDER


def test_two_unmask_requests_never_reveal_both_seeds() -> None:
    """The attack behind `spent`: asked with member 4 alive, then with member 4 dead."""
    fleet, request = fleet_at(UnmaskRequest)
    assert isinstance(request, UnmaskRequest)
    (first,) = fleet.participants[0].receive(request, fleet.now)
    assert isinstance(first, UnmaskShares)
    with pytest.raises(RemoteProtocolError):
        fleet.participants[0].receive(UnmaskRequest((4,)), fleet.now)
    fleet, request = fleet_at(UnmaskRequest)
    refused(fleet, UnmaskRequest((4,)), AbortReason.UNMASK_MISMATCH)


def test_state_is_spent_while_it_is_used() -> None:
    """Entropy that calls back in the middle of a step finds nothing to ask."""
    fleet, roster = fleet_at(Roster)
    participant = fleet.participants[0]
    met: list[AbortReason] = []

    def nosy(size: int) -> bytes:
        with pytest.raises(RemoteProtocolError) as caught:
            participant.receive(roster, fleet.now)
        met.append(caught.value.reason)
        return bytes(size)

    state = participant._state
    participant._state = replace(state, report=replace(state.report, entropy=nosy))  # type: ignore[union-attr, type-var]
    participant.receive(roster, fleet.now)
    assert met == [AbortReason.OUT_OF_ORDER] * 2


# --- roster -----------------------------------------------------------------------------------------

RosterChange = Callable[[Roster], Roster]
WEAK, MALFORMED = AbortReason.WEAK_PARAMETERS, AbortReason.MALFORMED
ROSTER_LIES: dict[str, tuple[AbortReason, RosterChange]] = {
    "lower threshold": (WEAK, lambda r: replace(r, threshold=r.threshold - 1)),
    "higher threshold": (WEAK, lambda r: replace(r, threshold=r.threshold + 1)),
    "narrower ring": (WEAK, lambda r: replace(r, bits=8)),
    "wider ring": (WEAK, lambda r: replace(r, bits=64)),
    "other length": (WEAK, lambda r: replace(r, length=3)),
    "size above the members": (MALFORMED, lambda r: replace(r, size=6)),
    "size below the members": (MALFORMED, lambda r: replace(r, size=4)),
    "advert missing": (MALFORMED, lambda r: replace(r, adverts=r.adverts[:-1])),
    "neighbour twice": (MALFORMED, lambda r: replace(r, neighbours=(1, 2, 3, 3))),
    "neighbours out of order": (MALFORMED, lambda r: replace(r, neighbours=(2, 1, 3, 4))),
    "no round id": (MALFORMED, lambda r: replace(r, round_id="")),
    "me among my neighbours": (AbortReason.OWN_ADVERT_MISSING, lambda r: replace(r, neighbours=(0, 1, 2, 3))),
    "my index outside": (AbortReason.OWN_ADVERT_MISSING, lambda r: replace(r, index=5)),
    "my index negative": (AbortReason.OWN_ADVERT_MISSING, lambda r: replace(r, index=-1)),
    "my place is another's": (
        AbortReason.ROSTER_DIGEST,
        lambda r: replace(r, index=1, neighbours=(0, 2, 3, 4)),
    ),
    "other digest": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, digest=bytes(32))),
    "digest cut": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, digest=r.digest[:31])),
    "formed at another time": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, formed_at=r.formed_at + 1)),
    "another round's id": (AbortReason.ROSTER_DIGEST, lambda r: replace(r, round_id="round-2")),
    "members swapped": (
        AbortReason.ROSTER_DIGEST,
        lambda r: replace(r, adverts=(r.adverts[1], r.adverts[0], *r.adverts[2:])),
    ),
}


@pytest.mark.parametrize("lie", ROSTER_LIES)
def test_roster_is_refused(lie: str) -> None:
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    reason, change = ROSTER_LIES[lie]
    refused(fleet, change(roster), reason)


@pytest.mark.parametrize("lie", ["lower threshold", "narrower ring", "other length"])
def test_weak_parameters_are_refused_with_a_fitting_digest_too(lie: str) -> None:
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    refused(fleet, redigested(fleet, ROSTER_LIES[lie][1](roster)), AbortReason.WEAK_PARAMETERS)


@pytest.mark.parametrize("change", [{"min_size": 2}, {"corrupt_fraction": 0}, {"bound": 900}, {"max_wait_s": 31}])
def test_rules_of_another_plan_are_noticed(change: dict[str, Any]) -> None:
    """The digest binds the rules: a collector that works by others is found out, even if the numbers agree."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    refused(fleet, redigested(fleet, roster, replace(RULES, **change)), AbortReason.ROSTER_DIGEST)


def test_more_members_than_one_works_for_are_refused() -> None:
    """In the right shape and with the right threshold, so that nothing else can be the reason."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    size = MAX_ROSTER + 1
    adverts = (roster.adverts * size)[: size - 1]
    t, bits = RULES.threshold(size), RULES.bits(size)
    huge = replace(roster, size=size, threshold=t, bits=bits, neighbours=tuple(range(1, size)), adverts=adverts)
    refused(fleet, redigested(fleet, huge), MALFORMED)


def test_own_advert_is_bound() -> None:
    """A roster that commits to another advert in my name (say, without `resent`) is none of mine."""
    fleet, roster = fleet_at(Roster, resent={0})
    assert isinstance(roster, Roster)
    own = next(m for i, m in fleet.sent if i == 0 and isinstance(m, Advert))
    adverts = [resigned(fleet, 0, replace(own, resent=False)), *roster.adverts]
    digest = roster_digest(roster.round_id, RULES, roster.threshold, roster.bits, roster.formed_at, adverts)
    refused(fleet, replace(roster, digest=digest), AbortReason.ROSTER_DIGEST)


def test_roster_below_the_smallest_is_refused() -> None:
    """min_size 5 and a tenth expected to drop: six have to begin."""
    _, roster = fleet_at(Roster)
    strict = Fleet(VECTORS, replace(RULES, min_size=5, dropout_fraction=RULES.corrupt_fraction))
    strict.advert_of(0)
    refused(strict, roster, AbortReason.COHORT_TOO_SMALL)


def test_roster_below_the_devices_own_floor_is_refused() -> None:
    fleet, roster = fleet_at(Roster, min_cohorts={0: 6})
    refused(fleet, roster, AbortReason.COHORT_TOO_SMALL)
    fleet, roster = fleet_at(Roster, min_cohorts={0: 5})
    assert fleet.participants[0].receive(roster, fleet.now)


def test_too_few_fresh_members_are_refused_by_a_fresh_one_only() -> None:
    fleet, roster = fleet_at(Roster, resent={1, 2, 3})
    refused(fleet, roster, AbortReason.COHORT_TOO_SMALL)
    fleet, roster = fleet_at(Roster, resent={0, 1, 2})
    assert fleet.participants[0].receive(roster, fleet.now)


@pytest.mark.parametrize(("waited_s", "fits"), [(0, True), (90, True), (91, False), (10_000, False)])
def test_a_roster_that_came_late_is_refused(waited_s: int, fits: bool) -> None:
    """max_wait 30 s and 60 s of grace, by the participant's own clock since its advert, whatever `formed_at` says."""
    fleet, roster = fleet_at(Roster)
    fleet.now += waited_s
    if fits:
        assert fleet.participants[0].receive(roster, fleet.now)
    else:
        refused(fleet, redigested(fleet, replace(roster, formed_at=int(fleet.now))), AbortReason.WEAK_PARAMETERS)


AdvertChange = Callable[[Advert, Advert], Advert]
P = 2**255 - 19
ADVERT_LIES: dict[str, tuple[AbortReason, AdvertChange]] = {
    "another plan": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, plan_hash=bytes(32))),
    "another period": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, period_start=a.period_start + 86_400)),
    "report id too short": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, report_id=bytes(15))),
    "nonce too long": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, nonce=bytes(33))),
    "no commitment": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, self_mask_commitment=b"")),
    "mask key too short": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, mask_key=bytes(31))),
    "mask key zero": (AbortReason.BAD_ADVERT, lambda a, _: replace(a, mask_key=bytes(32))),
    "channel key of order 8": (
        AbortReason.BAD_ADVERT,
        lambda a, _: replace(a, channel_key=keys._ORDER_8_U[0].to_bytes(32, "little")),
    ),
    "mask key not reduced": (
        AbortReason.BAD_ADVERT,
        lambda a, _: replace(a, mask_key=(P + 9).to_bytes(32, "little")),
    ),
    "channel key with the high bit": (
        AbortReason.BAD_ADVERT,
        lambda a, _: replace(a, channel_key=a.channel_key[:31] + bytes([a.channel_key[31] | 128])),
    ),
    "identity twice": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, identity_key=o.identity_key)),
    "mask key twice": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, mask_key=o.mask_key)),
    "channel key twice": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, channel_key=o.channel_key)),
    "mask key is another's channel key": (AbortReason.DUPLICATE_KEY, lambda a, o: replace(a, mask_key=o.channel_key)),
    "mask key is its own channel key": (AbortReason.DUPLICATE_KEY, lambda a, _: replace(a, mask_key=a.channel_key)),
}


@pytest.mark.parametrize("other", ["neighbour", "me"])
@pytest.mark.parametrize("lie", ADVERT_LIES)
def test_neighbours_advert_is_refused(lie: str, other: str) -> None:
    """Signed by the neighbour itself and committed to in the digest: refused for what it says."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    reason, change = ADVERT_LIES[lie]
    own = next(m for i, m in fleet.sent if i == 0 and isinstance(m, Advert))
    advert = change(roster.adverts[2], own if other == "me" else roster.adverts[0])
    refused(fleet, with_neighbour(fleet, roster, 2, resigned(fleet, 3, advert)), reason)


SIGNED_FIELDS = {
    "mask_key": keys.public_bytes(keys.load_private(b"\x01" * 32)),
    "channel_key": keys.public_bytes(keys.load_private(b"\x02" * 32)),
    "self_mask_commitment": bytes(32),
    "nonce": bytes(32),
    "report_id": bytes(16),
    "resent": True,
    "min_cohort": 1,
    "certificate": b"c",
    "signature": bytes(64),
    "identity_key": bytes(31) + b"\x07",
}


@pytest.mark.parametrize("name", SIGNED_FIELDS)
def test_neighbours_signature_must_hold(name: str) -> None:
    """Any field changed on the way, keys above all, with a digest that fits the change."""
    fleet, roster = fleet_at(Roster)
    assert isinstance(roster, Roster)
    advert = replace(roster.adverts[3], **{name: SIGNED_FIELDS[name]})
    refused(fleet, with_neighbour(fleet, roster, 3, advert), AbortReason.BAD_ADVERT)


# --- shares -----------------------------------------------------------------------------------------

SharesChange = Callable[[DeliveredShares], DeliveredShares]
FEW_SHARERS = AbortReason.TOO_FEW_SHARERS
SHARES_LIES: dict[str, tuple[AbortReason, SharesChange]] = {
    "I am no sharer": (MALFORMED, lambda d: replace(d, sharers=(1, 2, 3, 4))),
    "sharers out of order": (MALFORMED, lambda d: replace(d, sharers=(1, 0, 2, 3, 4))),
    "sharer twice": (MALFORMED, lambda d: replace(d, sharers=(0, 1, 1, 2, 3))),
    "unknown sharer": (MALFORMED, lambda d: replace(d, sharers=(0, 1, 2, 3, 5))),
    "negative sharer": (MALFORMED, lambda d: replace(d, sharers=(-1, 0, 1, 2, 3))),
    "owner that is no sharer": (MALFORMED, lambda d: replace(d, sharers=(0, 1, 2, 3))),
    "owner twice": (MALFORMED, lambda d: replace(d, owners=(1, 1, 2, 3))),
    "owner is me": (MALFORMED, lambda d: replace(d, owners=(0, 1, 2, 3))),
    "owner unknown": (MALFORMED, lambda d: replace(d, owners=(1, 2, 3, 9))),
    "pairs missing": (MALFORMED, lambda d: replace(d, sealed=d.sealed[:-1])),
    "too few sharers": (FEW_SHARERS, lambda d: DeliveredShares((0, 1), (1,), d.sealed[:1])),
    "no sharers": (MALFORMED, lambda d: DeliveredShares((), (), ())),
    "pairs withheld": (AbortReason.TOO_FEW_SHARES, lambda d: replace(d, owners=(1,), sealed=d.sealed[:1])),
    "pairs swapped": (
        AbortReason.TOO_FEW_SHARES,
        lambda d: replace(d, sealed=(d.sealed[1], d.sealed[2], d.sealed[0], d.sealed[3])),
    ),
    "pairs of zeros": (AbortReason.TOO_FEW_SHARES, lambda d: replace(d, sealed=(bytes(82),) * 4)),
}


@pytest.mark.parametrize("lie", SHARES_LIES)
def test_delivered_shares_are_refused(lie: str) -> None:
    fleet, delivered = fleet_at(DeliveredShares)
    assert isinstance(delivered, DeliveredShares)
    reason, change = SHARES_LIES[lie]
    refused(fleet, change(delivered), reason)


def test_sharers_below_the_devices_own_floor_are_refused() -> None:
    fleet, delivered = fleet_at(DeliveredShares, {4: "shares"}, min_cohorts={0: 5})
    refused(fleet, delivered, FEW_SHARERS)


def test_too_few_fresh_sharers_are_refused() -> None:
    fleet, delivered = fleet_at(DeliveredShares, {4: "shares"}, resent={2, 3})
    refused(fleet, delivered, FEW_SHARERS)


def test_threshold_usable_pairs_are_enough_and_masks_are_not_dropped() -> None:
    """Two of four pairs withheld from member 0: with its own it has 3 = t, and its masks still cancel."""
    fleet = Fleet(VECTORS, RULES)
    touched = []

    def withhold(index: int, message: CollectorMessage) -> CollectorMessage:
        if index == 0 and isinstance(message, DeliveredShares):
            touched.append(index)
            return replace(message, owners=message.owners[:2], sealed=message.sealed[:2])
        return message

    fleet.down = withhold
    result = fleet.run({4: "masked_input"})
    assert touched == [0]
    assert result.total == [10, 100]
    unmask = [m for i, m in fleet.sent if i == 0 and isinstance(m, UnmaskShares)]
    assert unmask[0].owners == (0, 1, 2)


NO_SHARE = b"\xff" * 33


@pytest.mark.parametrize("bad", [SharePair(bytes(33), NO_SHARE), SharePair(NO_SHARE, bytes(33))], ids=["self", "mask"])
def test_a_pair_that_opens_but_is_no_pair_of_shares_is_unusable(bad: SharePair) -> None:
    """Member 3 seals numbers above the field's prime for member 0, which leaves it out when it answers."""
    fleet = Fleet(VECTORS, RULES)
    entropy = SeededEntropy(b"member 3")
    entropy(32)
    channel = keys.load_private(keys.RoundSecrets.draw(entropy).channel_seed)

    def spoil(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if index != 3 or not isinstance(message, SealedShares):
            return message
        peer = keys.load_public(fleet.round.roster_for(3).adverts[0].channel_key)
        sending, _ = keys.channel_keys(channel, peer, fleet.round.digest, 3, 0)
        return replace(message, sealed=(keys.seal_pair(sending, bad, fleet.round.digest), *message.sealed[1:]))

    fleet.up = spoil
    assert fleet.run().total == [15, 150]
    owners = [m.owners for i, m in fleet.sent if isinstance(m, UnmaskShares)]
    assert owners == [(0, 1, 2, 4), *[(0, 1, 2, 3, 4)] * 4]


# --- status -----------------------------------------------------------------------------------------


def lying_status(fleet: Fleet, survivors: tuple[int, ...], resent: int = 0) -> SurvivorStatus:
    """A status with the root that fits it."""
    return SurvivorStatus(survivors, resent, status_root(fleet.round.digest, fleet.round.sharers, survivors, resent))


@pytest.mark.parametrize(
    ("survivors", "reason"),
    [
        ((1, 2, 3), AbortReason.NOT_A_SURVIVOR),
        ((0, 1, 2, 4), AbortReason.STATUS_MISMATCH),
        ((0, 2, 1), MALFORMED),
        ((0, 1, 1, 2), MALFORMED),
        ((0, 1, 2, 5), MALFORMED),
        ((-1, 0, 1, 2), MALFORMED),
        ((0, 1), AbortReason.TOO_FEW_SURVIVORS),
        ((0,), AbortReason.TOO_FEW_SURVIVORS),
        ((), AbortReason.NOT_A_SURVIVOR),
    ],
)
def test_status_is_refused(survivors: tuple[int, ...], reason: AbortReason) -> None:
    """Member 4 never shared, so it cannot have survived either."""
    fleet, _ = fleet_at(SurvivorStatus, {4: "shares"})
    refused(fleet, lying_status(fleet, survivors), reason)


@pytest.mark.parametrize(
    "change",
    [{"root": bytes(32)}, {"root": b""}, {"resent_survivors": 1}, {"survivors": (0, 1, 2, 3)}],
    ids=str,
)
def test_status_and_root_must_fit(change: dict[str, Any]) -> None:
    fleet, status = fleet_at(SurvivorStatus)
    assert isinstance(status, SurvivorStatus)
    refused(fleet, replace(status, **change), AbortReason.STATUS_MISMATCH)


def test_resent_survivors_are_counted_from_the_adverts() -> None:
    fleet, status = fleet_at(SurvivorStatus, resent={1})
    assert isinstance(status, SurvivorStatus)
    assert status.resent_survivors == 1
    refused(fleet, lying_status(fleet, status.survivors, resent=0), AbortReason.STATUS_MISMATCH)


@pytest.mark.parametrize("me_resent", [False, True])
def test_fresh_survivors_below_min_size_are_refused_by_all(me_resent: bool) -> None:
    """Four survivors, two of them fresh, min_size 3: also a resent member must not help to open them."""
    resent = {0, 1} if me_resent else {1, 2}
    fleet, _ = fleet_at(SurvivorStatus, resent=resent)
    survivors = (0, 1, 2, 3)
    refused(fleet, lying_status(fleet, survivors, len(resent)), AbortReason.TOO_FEW_SURVIVORS)


def test_survivors_that_are_all_resent_are_confirmed() -> None:
    fleet, status = fleet_at(SurvivorStatus, resent={0, 1, 2, 3, 4})
    assert isinstance(status, SurvivorStatus)
    assert fleet.participants[0].receive(status, fleet.now) == [Confirm(status.root)]


def test_survivors_below_the_devices_own_floor_are_refused() -> None:
    fleet, status = fleet_at(SurvivorStatus, {4: "masked_input"}, min_cohorts={0: 5})
    refused(fleet, status, AbortReason.TOO_FEW_SURVIVORS)


def test_survivors_below_threshold_are_refused_whatever_min_size_says() -> None:
    fleet, _ = fleet_at(SurvivorStatus, rules=rules(min_size=2))
    refused(fleet, lying_status(fleet, (0, 1)), AbortReason.TOO_FEW_SURVIVORS)


# --- unmask -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dropped",
    [(), (3,), (4,), (4, 3), (3, 3, 4), (0, 3, 4), (2, 3, 4), (3, 4, 5), (-1, 3, 4)],
    ids=str,
)
def test_unmask_request_is_refused(dropped: tuple[int, ...]) -> None:
    """Members 3 and 4 dropped: fewer, more, twice, out of order, me, one who never was."""
    fleet, request = fleet_at(UnmaskRequest, {3: "masked_input", 4: "masked_input"})
    assert request == UnmaskRequest((3, 4))
    refused(fleet, UnmaskRequest(dropped), AbortReason.UNMASK_MISMATCH)


def test_who_never_shared_is_not_called_dropped() -> None:
    fleet, request = fleet_at(UnmaskRequest, {3: "masked_input", 4: "shares"})
    assert request == UnmaskRequest((3,))
    refused(fleet, UnmaskRequest((3, 4)), AbortReason.UNMASK_MISMATCH)


def test_one_share_an_owner_of_the_right_kind() -> None:
    """Of a survivor (me too) the self-mask's share, of the dropout the mask key's: compared with dealing again."""
    fleet, request = fleet_at(UnmaskRequest, {4: "masked_input"})
    (answer,) = fleet.participants[0].receive(request, fleet.now)
    assert isinstance(answer, UnmaskShares)
    assert answer.owners == (0, 1, 2, 3, 4)
    for owner, share in zip(answer.owners, answer.shares, strict=True):
        entropy = SeededEntropy(b"member %d" % owner)
        entropy(32)
        secrets = keys.RoundSecrets.draw(entropy)
        mask_shares = split(secrets.mask_seed, 3, 5, entropy)
        self_shares = split(secrets.self_mask_seed, 3, 5, entropy)
        assert share == (mask_shares if owner == 4 else self_shares)[0]


# --- receipt ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [UnmaskRequest, Receipt], ids=["slow to confirm", "after unmask"])
@pytest.mark.parametrize("change", [{"round_id": "other"}, {"contributors": 4}, {"roster_size": 4}, {}], ids=str)
def test_receipt_must_fit_what_was_confirmed(kind: type, change: dict[str, Any]) -> None:
    fleet, _ = fleet_at(kind)
    receipt = Receipt("round-1", 5, 5)
    if change:
        refused(fleet, replace(receipt, **change), AbortReason.STATUS_MISMATCH)
    else:
        assert fleet.participants[0].receive(receipt, fleet.now) == []
        assert fleet.participants[0].outcome == receipt
