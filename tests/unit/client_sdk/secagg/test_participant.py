"""The participant: what it takes and says when, what it signs, what it gives away, and no state used twice.

Each test lets a real round run up to one message, and looks at what member 0 does with that or another one. What it
refuses in a roster stands in test_cohort.py, in the later messages in test_checks.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import AbortReason, LocalProtocolError, RemoteProtocolError
from client_sdk.identity import verify
from client_sdk.secagg import keys
from client_sdk.secagg.graph import graph_of
from client_sdk.secagg.messages import (
    Advert,
    Challenge,
    CollectorMessage,
    Confirm,
    DeliveredShares,
    Hello,
    Joined,
    MaskedInputPiece,
    Receipt,
    Roster,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.participant import Participant
from client_sdk.secagg.shamir import split
from client_sdk.secagg.transcript import (
    ShareKind,
    advert_message,
    confirm_message,
    share_hash,
    share_hashes_message,
)
from tests.fleet import PERIOD_START, PLAN_HASH, REGISTRAR, Fleet, SeededEntropy, certified, column_sums, rules
from tests.unit.client_sdk.secagg.one_member import (
    OUTCOMES,
    RULES,
    SPARSE_RULES,
    SPARSE_SIZE,
    VECTORS,
    fleet_at,
    neighbours_of_0,
    refused,
    sparse_at,
    told_status,
)

STEP_TYPES = (Roster, DeliveredShares, SurvivorStatus, UnmaskRequest, Receipt)


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


@pytest.mark.parametrize(
    "step", ["shares", "masked_input", *(pytest.param(step, marks=pytest.mark.slow) for step in ("confirm", "unmask"))]
)
def test_a_sparse_round_gives_the_exact_sum_with_dropouts_at_each_step(step: str) -> None:
    """257 members with twelve neighbours each; eight leave at the step, one more at each of the others."""
    vectors = [[index, -index] for index in range(SPARSE_SIZE)]
    steps = ["shares", "masked_input", "confirm", "unmask"]
    drops = {3 + 31 * place: step for place in range(8)} | {10 + 61 * place: name for place, name in enumerate(steps)}
    result = Fleet(vectors, SPARSE_RULES, resent={5, 6}).run(drops)
    lost = {index for index, name in drops.items() if name in ("shares", "masked_input")}
    assert result.aborted is None
    assert result.total == column_sums(vectors, set(range(SPARSE_SIZE)) - lost)
    assert result.contributors == SPARSE_SIZE - len(lost)
    assert result.dropouts == {name: 1 + 8 * (name == step) for name in steps}
    assert result.refusals == {}


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
        ({"certificate": b""}, "certificate"),
        ({"certificate": bytes(114)}, "certificate"),
        ({"certificate": certified(bytes(31) + b"\x01")}, "certificate"),
        ({"registrar_key": bytes(31)}, "certificate"),
    ],
)
def test_construction_refuses(changes: dict[str, Any], what: str) -> None:
    fleet = Fleet(VECTORS, RULES)
    given: dict[str, Any] = {
        "identity": fleet.identities[0],
        "certificate": certified(fleet.identities[0].public_key),
        "registrar_key": REGISTRAR.public_key,
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
    "roster": Roster("r", 0, 5, 3, 16, 2, 0, (1, 2, 3, 4), (), bytes(32), 0, ()),
    "shares": DeliveredShares((0, 1, 2), (1, 2), (b"", b""), bytes(128)),
    "status": SurvivorStatus((0, 1, 2), 3, 0, bytes(32), ()),
    "unmask": UnmaskRequest((), (), ()),
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
    dead = replace(request, dropped=(4,))
    with pytest.raises(RemoteProtocolError):
        fleet.participants[0].receive(dead, fleet.now)
    fleet, request = fleet_at(UnmaskRequest)
    refused(fleet, dead, AbortReason.UNMASK_MISMATCH)


def test_two_statuses_are_never_both_signed() -> None:
    """Nor is a second one after the first: split views need a signature of each."""
    fleet, status = fleet_at(SurvivorStatus)
    (first,) = fleet.participants[0].receive(status, fleet.now)
    assert isinstance(first, Confirm)
    with pytest.raises(RemoteProtocolError) as caught:
        fleet.participants[0].receive(told_status(fleet, (0, 1, 2, 3)), fleet.now)
    assert caught.value.reason is AbortReason.OUT_OF_ORDER


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


# --- what it signs and gives away --------------------------------------------------------------------


def dealt_again(owner: int, threshold: int, holders: int) -> tuple[list[bytes], list[bytes]]:
    """All shares of a member's two seeds, from its entropy."""
    entropy = SeededEntropy(b"member %d" % owner)
    entropy(32)
    secrets = keys.RoundSecrets.draw(entropy)
    return (
        split(secrets.mask_seed, threshold, holders, entropy),
        split(secrets.self_mask_seed, threshold, holders, entropy),
    )


def test_what_a_participant_signs_holds_under_its_identity() -> None:
    """Advert, hashes of all dealt shares, confirmation: what the others will check."""
    fleet, _ = fleet_at(Receipt)
    said = {type(message): message for index, message in fleet.sent if index == 0}
    key, digest = fleet.identities[0].public_key, fleet.round.digest
    advert, shares, confirm = said[Advert], said[SealedShares], said[Confirm]
    assert isinstance(advert, Advert)
    assert isinstance(shares, SealedShares)
    assert isinstance(confirm, Confirm)
    assert verify(key, advert.signature, advert_message(advert))
    assert verify(key, shares.signature, share_hashes_message(digest, 0, shares.share_hashes))
    assert verify(key, confirm.signature, confirm_message(digest, confirm.status_root))
    assert advert.certificate == said[Hello].certificate == certified(key)  # type: ignore[union-attr]
    mask_shares, self_shares = dealt_again(0, 3, 5)
    hashes = [
        share_hash(digest, 0, holder, kind, share)
        for holder in range(5)
        for kind, share in ((ShareKind.MASK_KEY, mask_shares[holder]), (ShareKind.SELF_MASK, self_shares[holder]))
    ]
    assert shares.share_hashes == b"".join(hashes)


def test_one_share_an_owner_of_the_right_kind() -> None:
    """Of a survivor (me too) the self-mask's share, of the dropout the mask key's: compared with dealing again."""
    fleet, request = fleet_at(UnmaskRequest, {4: "masked_input"})
    (answer,) = fleet.participants[0].receive(request, fleet.now)
    assert isinstance(answer, UnmaskShares)
    assert answer.owners == (0, 1, 2, 3, 4)
    for owner, share in zip(answer.owners, answer.shares, strict=True):
        mask_shares, self_shares = dealt_again(owner, 3, 5)
        assert share == (mask_shares if owner == 4 else self_shares)[0]


def test_in_a_sparse_graph_too_and_none_of_my_own() -> None:
    """Of neighbours only: nobody holds its own shares there, and each is dealt to its place among the holders."""
    fleet, _ = sparse_at(Roster)
    first, second = neighbours_of_0(fleet)[:2]
    fleet, request = sparse_at(UnmaskRequest, {first: "masked_input", second: "shares"})
    assert isinstance(request, UnmaskRequest)
    assert request.dropped == (first,)
    (answer,) = fleet.participants[0].receive(request, fleet.now)
    assert isinstance(answer, UnmaskShares)
    assert answer.owners == tuple(i for i in neighbours_of_0(fleet) if i != second)
    graph = graph_of(SPARSE_SIZE, 12, fleet.round.digest)
    for owner, share in zip(answer.owners, answer.shares, strict=True):
        mask_shares, self_shares = dealt_again(owner, 7, 12)
        place = graph.holders(owner).index(0)
        assert share == (mask_shares if owner == first else self_shares)[place]


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
