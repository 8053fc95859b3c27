"""The collector's round: drops, thresholds, what is taken and what is rejected, and never a sum below the minimum."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import (
    AbortReason,
    LocalProtocolError,
    PlanError,
    RejectionError,
    RejectionReason,
    RoundAbortedError,
)
from client_sdk.secagg.messages import (
    Advert,
    CollectorMessage,
    Confirm,
    Hello,
    MaskedInputPiece,
    ParticipantMessage,
    Receipt,
    RoundAborted,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.parameters import PIECE_BYTES
from client_sdk.secagg.shamir import PRIME
from collector.secagg.opening import open_sum
from collector.secagg.round import MAX_REMEMBERED, STEPS, Phase, Round
from tests.fleet import FORMED_AT, PLAN_HASH, Fleet, SeededEntropy, rules, run_round

RULES = rules(min_size=3, corrupt="0.1")
VECTORS = [[i, 10 * i] for i in range(1, 6)]
STEP_NAMES = [step.value for step in STEPS]


def fleet_before(step: str, **options: Any) -> tuple[Fleet, dict[int, CollectorMessage]]:
    """A fleet of five whose round waits for `step`, and the messages its members have to answer."""
    fleet = Fleet(options.pop("vectors", VECTORS), options.pop("rules", RULES), **options)
    messages = fleet.join()
    for earlier in STEP_NAMES[: STEP_NAMES.index(step)]:
        assert fleet.round.phase.value == earlier
        fleet.step(messages)
        messages = dict(fleet.round.close())
    return fleet, messages


def rejected(round_: Round, index: int, message: ParticipantMessage, reason: RejectionReason) -> None:
    """The message is not taken, and the round is as it was."""
    before = (round_.phase, round_.pending(), round_._total.tobytes())
    with pytest.raises(RejectionError) as caught:
        round_.receive(index, message)
    assert caught.value.reason is reason
    assert before == (round_.phase, round_.pending(), round_._total.tobytes())


# --- dropouts ---------------------------------------------------------------------------------------

# case D01: client i of 5 contributes [i, 10 i], threshold 3; one or two are lost at each step
LOST: list[tuple[dict[int, str], list[int], int]] = [
    ({}, [15, 150], 5),
    ({4: "shares"}, [10, 100], 4),
    ({4: "masked_input"}, [10, 100], 4),
    ({4: "unmask"}, [15, 150], 5),
    ({4: "confirm"}, [15, 150], 5),
    ({3: "masked_input", 4: "masked_input"}, [6, 60], 3),
    ({3: "unmask", 4: "unmask"}, [15, 150], 5),
    ({3: "confirm", 4: "confirm"}, [15, 150], 5),
    ({3: "confirm", 4: "unmask"}, [15, 150], 5),
    ({3: "masked_input", 4: "shares"}, [6, 60], 3),
    ({0: "masked_input", 1: "masked_input"}, [12, 120], 3),
    ({0: "masked_input", 4: "masked_input"}, [9, 90], 3),
]


@pytest.mark.parametrize(("drops", "total", "contributors"), LOST, ids=str)
def test_d01_dropouts_down_to_the_threshold(drops: dict[int, str], total: list[int], contributors: int) -> None:
    fleet = Fleet(VECTORS, RULES)
    result = fleet.run(drops)
    assert fleet.round.threshold == 3
    assert (result.total, result.contributors, result.aborted) == (total, contributors, None)
    assert result.dropouts == {name: list(drops.values()).count(name) for name in STEP_NAMES}
    assert result.refusals == {}
    for index, participant in enumerate(fleet.participants):
        assert isinstance(participant.outcome, Receipt) is (index not in drops)


def test_d01_lost_before_the_roster() -> None:
    result = run_round(VECTORS[:4], RULES)
    assert (result.total, result.contributors) == ([10, 100], 4)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("shares", AbortReason.TOO_FEW_SHARERS),
        ("masked_input", AbortReason.TOO_FEW_SURVIVORS),
        ("confirm", AbortReason.TOO_FEW_CONFIRMATIONS),
        ("unmask", AbortReason.TOO_FEW_RESPONSES),
    ],
)
def test_d02_below_the_threshold(step: str, reason: AbortReason) -> None:
    # case D02: three of five are lost, threshold 3
    fleet = Fleet(VECTORS, RULES)
    result = fleet.run({2: step, 3: step, 4: step})
    assert result.total is None
    assert result.aborted is not None
    assert (result.aborted.reason, result.aborted.have, result.aborted.need) == (reason, 2, 3)
    assert "2 of at least 3" in str(result.aborted)
    assert fleet.round.phase is Phase.ABORTED
    for index in (0, 1):
        assert fleet.participants[index].outcome == RoundAborted(reason.value, 2, 3)
    with pytest.raises(LocalProtocolError):
        fleet.round.opening()
    with pytest.raises(LocalProtocolError):
        fleet.round.close()


@pytest.mark.parametrize("step", STEP_NAMES)
def test_hopeless_steps_are_seen_before_their_deadline(step: str) -> None:
    """With the third of five gone the rest cannot reach 3, however long one waits."""
    fleet, messages = fleet_before(step)
    for index in (4, 3):
        fleet.leave(index)
        assert fleet.round.can_succeed
    fleet.step({0: messages[0]})
    assert fleet.round.pending() == {1, 2}
    fleet.leave(0)
    assert fleet.round.can_succeed, "what member 0 has sent counts"
    fleet.leave(2)
    assert not fleet.round.can_succeed


@pytest.mark.parametrize(("min_size", "need"), [(2, 3), (4, 4), (5, 5)])
def test_minimum_is_the_larger_of_min_size_and_threshold(min_size: int, need: int) -> None:
    for step in ("shares", "masked_input"):
        leavers = range(need - 1, 5)
        result = run_round(VECTORS, rules(min_size=min_size), dict.fromkeys(leavers, step))
        assert result.aborted is not None
        assert (result.aborted.have, result.aborted.need) == (need - 1, need)
        assert run_round(VECTORS, rules(min_size=min_size), dict.fromkeys(range(need, 5), step)).contributors == need


def test_what_a_leaver_completed_stays() -> None:
    """Member 4 sends its masked input and goes: a contributor, missed at the next step, and its sum is right."""
    fleet, messages = fleet_before("masked_input")
    fleet.step(messages)
    fleet.leave(4)
    assert fleet.round.pending() == frozenset()
    messages = dict(fleet.round.close())
    assert sorted(messages) == [0, 1, 2, 3]
    assert fleet.round.survivors == (0, 1, 2, 3, 4)
    for _ in range(2):
        fleet.step(messages)
        messages = dict(fleet.round.close())
    assert messages == {}
    assert open_sum(fleet.round.opening()) == [15, 150]
    assert fleet.round.dropouts == {"shares": 0, "masked_input": 0, "confirm": 1, "unmask": 0}


def test_who_leaves_after_sharing_is_a_sharer() -> None:
    fleet, messages = fleet_before("shares")
    fleet.step(messages)
    fleet.leave(1)
    messages = dict(fleet.round.close())
    assert sorted(messages) == [0, 2, 3, 4]
    assert fleet.round.sharers == (0, 1, 2, 3, 4)
    assert fleet.round.pending() == {0, 2, 3, 4}


@pytest.mark.parametrize("resent", [{0, 1, 2, 3, 4}, {1, 2}, {4}], ids=str)
def test_resent_survivors_are_counted(resent: set[int]) -> None:
    fleet = Fleet(VECTORS, RULES, resent=resent)
    assert fleet.run().total == [15, 150]
    assert fleet.round.resent_survivors == len(resent)


def test_a_sum_with_too_few_fresh_reports_is_not_opened() -> None:
    """Of 4 survivors only 2 are fresh, min_size 3: the third fresh one dropped after everybody had masked."""
    fleet = Fleet(VECTORS, RULES, resent={0, 1})
    result = fleet.run({4: "masked_input"})
    assert result.total is None
    assert result.aborted is not None
    assert (result.aborted.reason, result.aborted.have, result.aborted.need) == (AbortReason.TOO_FEW_SURVIVORS, 2, 3)


def test_too_few_fresh_members_leave_by_themselves_and_resent_ones_finish() -> None:
    result = run_round(VECTORS, rules(min_size=3), resent={0, 1, 2})
    assert result.total == [6, 60]
    assert result.refusals == {3: AbortReason.COHORT_TOO_SMALL, 4: AbortReason.COHORT_TOO_SMALL}


# --- what is taken and what is not ------------------------------------------------------------------


@pytest.mark.parametrize("step", STEP_NAMES)
def test_first_message_wins(step: str) -> None:
    """A byte-identical repeat and another message of the same step: both are told apart, none is taken."""
    fleet, messages = fleet_before(step)
    fleet.step(messages)
    mine = [m for i, m in fleet.sent if i == 2][-1]
    rejected(fleet.round, 2, mine, RejectionReason.ALREADY_RECEIVED)
    others: dict[str, ParticipantMessage] = {
        "shares": SealedShares((0, 1, 3, 4), (bytes(82),) * 4, bytes(320), bytes(64)),
        "masked_input": MaskedInputPiece(0, bytes(4)),
        "confirm": Confirm(bytes(32), bytes(64)),
        "unmask": UnmaskShares((0,), (bytes(33),)),
    }
    rejected(fleet.round, 2, others[step], RejectionReason.OUT_OF_ORDER)


@pytest.mark.parametrize("step", STEP_NAMES)
def test_messages_of_other_steps(step: str) -> None:
    """An earlier step's is late, a later step's out of order, and hello or advert have no place here."""
    fleet, _ = fleet_before(step)
    own: list[ParticipantMessage] = [
        SealedShares((1, 2, 3, 4), (b"x" * 82,) * 4, b"x" * 320, b"x" * 64),
        MaskedInputPiece(0, b"xxxx"),
        Confirm(b"x" * 32, b"x" * 64),
        UnmaskShares((0,), (b"\x00" * 33,)),
    ]
    place = STEP_NAMES.index(step)
    for message in own[:place]:
        rejected(fleet.round, 0, message, RejectionReason.LATE)
    for message in own[place + 1 :]:
        rejected(fleet.round, 0, message, RejectionReason.OUT_OF_ORDER)
    rejected(fleet.round, 0, Hello(b"", b"", b"", 0, b""), RejectionReason.OUT_OF_ORDER)


@pytest.mark.parametrize("step", STEP_NAMES)
def test_absent_members_are_not_heard(step: str) -> None:
    fleet, messages = fleet_before(step)
    replies = fleet.tell(1, messages[1])
    fleet.leave(1)
    rejected(fleet.round, 1, replies[0], RejectionReason.OUT_OF_ORDER)


def test_late_masked_input_is_never_added() -> None:
    """Pitfall: its owner's mask key is about to be revealed, so adding it now would open it."""
    fleet, messages = fleet_before("masked_input")
    late = fleet.tell(4, messages.pop(4))
    fleet.step(messages)
    messages = dict(fleet.round.close())
    for piece in late:
        rejected(fleet.round, 4, piece, RejectionReason.LATE)
    for _ in range(2):
        messages.pop(4, None)
        fleet.step(messages)
        messages = dict(fleet.round.close())
    assert open_sum(fleet.round.opening()) == [10, 100]
    rejected(fleet.round, 4, late[0], RejectionReason.LATE)


def test_d05_replay_into_another_round() -> None:
    # case D05: the masked input of client 2 from round 1, again in round 1 and in round 2
    first = Fleet(VECTORS, RULES)
    assert first.run().total == [15, 150]
    replayed = next(m for i, m in first.sent if i == 1 and isinstance(m, MaskedInputPiece))
    rejected(first.round, 1, replayed, RejectionReason.ALREADY_RECEIVED)

    second = Fleet(VECTORS, RULES, round_id="round-2", entropy_for=lambda i: SeededEntropy(b"elsewhere %d" % i))
    messages = second.join()
    rejected(second.round, 1, replayed, RejectionReason.OUT_OF_ORDER)
    for step in STEPS:
        second.step(messages)
        with pytest.raises(RejectionError):
            second.round.receive(1, replayed)
        assert second.round.phase is step
        messages = dict(second.round.close())
    assert open_sum(second.round.opening()) == [15, 150]


@pytest.mark.parametrize(
    "change",
    [
        {"recipients": (1, 2, 3)},
        {"recipients": (1, 2, 3, 5)},
        {"recipients": (0, 1, 2, 3)},
        {"recipients": (2, 1, 3, 4)},
        {"recipients": ()},
        {"sealed": (bytes(82),) * 3},
        {"sealed": (bytes(82),) * 5},
        {"sealed": (bytes(82), bytes(82), bytes(82), bytes(81))},
        {"sealed": ()},
        {"share_hashes": b""},
        {"share_hashes": bytes(5 * 64 - 1)},
        {"share_hashes": bytes(4 * 64)},
    ],
    ids=str,
)
def test_malformed_shares(change: dict[str, Any]) -> None:
    fleet, messages = fleet_before("shares")
    (good,) = fleet.tell(0, messages.pop(0))
    assert isinstance(good, SealedShares)
    rejected(fleet.round, 0, replace(good, **change), RejectionReason.MALFORMED)
    fleet.round.receive(0, good)
    fleet.step(messages)
    assert fleet.round.pending() == frozenset()


@pytest.mark.parametrize(
    "piece",
    [
        MaskedInputPiece(1, bytes(4)),
        MaskedInputPiece(0, bytes(1)),
        MaskedInputPiece(0, b""),
        MaskedInputPiece(0, bytes(6)),
        MaskedInputPiece(0, bytes(PIECE_BYTES + 2)),
    ],
    ids=lambda piece: f"{piece.offset}+{len(piece.data)}",
)
def test_malformed_pieces(piece: MaskedInputPiece) -> None:
    fleet, messages = fleet_before("masked_input")
    good = fleet.tell(0, messages.pop(0))
    assert fleet.round.bits == 16
    rejected(fleet.round, 0, piece, RejectionReason.MALFORMED)
    fleet.round.receive(0, good[0])
    assert fleet.round.pending() == {1, 2, 3, 4}


def test_share_hashes_are_signed() -> None:
    """By their owner, over all of them, in this round."""
    fleet, messages = fleet_before("shares")
    good, other = (fleet.tell(index, messages.pop(index))[0] for index in (0, 1))
    assert isinstance(good, SealedShares)
    assert isinstance(other, SealedShares)
    changed = bytes([good.share_hashes[0] ^ 1]) + good.share_hashes[1:]
    for wrong in (
        replace(good, share_hashes=changed),
        replace(good, signature=bytes(64)),
        replace(good, share_hashes=other.share_hashes, signature=other.signature),
    ):
        rejected(fleet.round, 0, wrong, RejectionReason.BAD_SIGNATURE)
    fleet.round.receive(0, good)


def test_confirmation_of_another_status() -> None:
    fleet, messages = fleet_before("confirm")
    (good,) = fleet.tell(0, messages[0])
    assert isinstance(good, Confirm)
    rejected(fleet.round, 0, replace(good, status_root=bytes(32)), RejectionReason.MALFORMED)
    fleet.round.receive(0, good)


def test_a_confirmation_is_its_own_members() -> None:
    fleet, messages = fleet_before("confirm")
    (good,), (other,) = fleet.tell(0, messages[0]), fleet.tell(1, messages[1])
    assert isinstance(good, Confirm)
    rejected(fleet.round, 0, replace(good, signature=bytes(64)), RejectionReason.BAD_SIGNATURE)
    rejected(fleet.round, 0, other, RejectionReason.BAD_SIGNATURE)
    fleet.round.receive(0, good)


def test_unmask_requests_carry_what_was_confirmed() -> None:
    """One and the same for all: who confirmed, in order, also where somebody else survived and did not."""
    fleet, messages = fleet_before("confirm")
    fleet.step({index: messages[index] for index in (0, 2, 3)})
    requests = fleet.round.close()
    signatures = {i: m.signature for i, m in fleet.sent if isinstance(m, Confirm)}
    expected = UnmaskRequest((), (0, 2, 3), tuple(signatures[i] for i in (0, 2, 3)))
    assert requests == {0: expected, 2: expected, 3: expected}
    assert requests[0] is requests[3]


@pytest.mark.parametrize(
    "change",
    [
        {"owners": (1, 0, 2, 3, 4)},
        {"owners": (0, 0, 1, 2, 3)},
        {"owners": (0, 1, 2, 3)},
        {"owners": (0, 1, 2, 3, 5)},
        {"owners": (-1, 0, 1, 2, 3)},
        {"shares": (bytes(33),) * 4 + (bytes(32),)},
        {"shares": (bytes(33),) * 4 + (PRIME.to_bytes(33, "big"),)},
        {"shares": (bytes(33),) * 6},
    ],
    ids=str,
)
def test_malformed_unmask_shares(change: dict[str, Any]) -> None:
    fleet, messages = fleet_before("unmask")
    (good,) = fleet.tell(0, messages.pop(0))
    assert isinstance(good, UnmaskShares)
    rejected(fleet.round, 0, replace(good, **change), RejectionReason.MALFORMED)
    fleet.round.receive(0, good)
    fleet.step(messages)
    fleet.round.close()
    assert open_sum(fleet.round.opening()) == [15, 150]


def test_share_of_one_who_never_shared() -> None:
    fleet = Fleet(VECTORS, RULES)
    messages = fleet.join()
    fleet.step(messages, [4])
    for _ in range(2):
        messages = dict(fleet.round.close())
        fleet.step(messages)
    fleet.round.close()
    rejected(fleet.round, 0, UnmaskShares((0, 4), (bytes(33),) * 2), RejectionReason.MALFORMED)


def test_pairs_that_did_not_open_are_erasures() -> None:
    """Member 3 deals rubbish to members 0 and 1: three shares of its seeds are left, and that is enough."""
    fleet, messages = fleet_before("shares")

    def spoil(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if index == 3 and isinstance(message, SealedShares):
            return replace(message, sealed=(bytes(82), bytes(82), *message.sealed[2:]))
        return message

    fleet.up = spoil
    for _ in STEPS:
        fleet.step(messages)
        messages = dict(fleet.round.close())
    opening = fleet.round.opening()
    assert [owner.xs for owner in opening.survivors] == [(1, 2, 3)] * 3 + [(3, 4, 5), (1, 2, 3)]
    assert open_sum(opening) == [15, 150]


def test_an_owner_with_too_few_shares_ends_the_round() -> None:
    """Member 3 deals rubbish to members 0, 1 and 2: only two shares of its self-mask exist outside them."""
    fleet, messages = fleet_before("shares")

    def spoil(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if index == 3 and isinstance(message, SealedShares):
            return replace(message, sealed=(*(bytes(82),) * 3, *message.sealed[3:]))
        return message

    fleet.up = spoil
    for _ in STEPS[:3]:
        fleet.step(messages)
        messages = dict(fleet.round.close())
    fleet.step(messages)
    with pytest.raises(RoundAbortedError) as caught:
        fleet.round.close()
    assert (caught.value.reason, caught.value.have, caught.value.need) == (AbortReason.TOO_FEW_RESPONSES, 2, 3)


# --- pieces -----------------------------------------------------------------------------------------


def fleet_of_three(length: int) -> Fleet:
    """Client i sends i everywhere, 64 bits wide."""
    return Fleet([[i] * length for i in (1, 2, 3)], rules(length, min_size=3, bound=2**40))


BOUNDARY = PIECE_BYTES // 8


@pytest.mark.parametrize(
    "length", [1, BOUNDARY - 1, BOUNDARY, BOUNDARY + 1, 2 * BOUNDARY, 100_000, 524_286, 524_287, 524_288, 524_289]
)
def test_d10_long_vectors_travel_in_pieces(length: int) -> None:
    # case D10: more than one message's worth, around the boundary of a piece and of gRPC's 4 MiB
    fleet = fleet_of_three(length)
    result = fleet.run()
    assert fleet.round.bits == 64
    assert result.total == [6] * length
    pieces = [m for i, m in fleet.sent if i == 0 and isinstance(m, MaskedInputPiece)]
    assert len(pieces) == -(-length // BOUNDARY)
    assert max(len(piece.data) for piece in pieces) <= PIECE_BYTES


def test_a_masked_input_in_crumbs_is_taken_and_costs_no_memory() -> None:
    length = 2_000
    fleet = Fleet([[i] * length for i in (1, 2, 3)], rules(length))
    messages = fleet.join()
    fleet.step(messages)
    messages = dict(fleet.round.close())
    (piece,) = fleet.tell(0, messages.pop(0))
    assert isinstance(piece, MaskedInputPiece)
    width = fleet.round.bits // 8
    crumbs = [MaskedInputPiece(at, piece.data[at * width : (at + 1) * width]) for at in range(length)]
    for crumb in crumbs[:-1]:
        fleet.round.receive(0, crumb)
    rejected(fleet.round, 0, crumbs[0], RejectionReason.ALREADY_RECEIVED)
    rejected(fleet.round, 0, crumbs[-2], RejectionReason.MALFORMED)
    fleet.round.receive(0, crumbs[-1])
    assert len(fleet.round._seen) <= 3 * MAX_REMEMBERED
    fleet.step(messages)
    messages = dict(fleet.round.close())
    for _ in range(2):
        fleet.step(messages)
        messages = dict(fleet.round.close())
    assert open_sum(fleet.round.opening()) == [6] * length


def test_a_masked_input_that_stops_halfway_is_a_dropout() -> None:
    """All but its last piece arrived, then the member left, or the step closed: nothing of it is in the sum."""
    for leaves in (True, False):
        length = 2 * BOUNDARY + 1
        fleet = Fleet([[i] * length for i in (1, 2, 3, 4)], rules(length, min_size=3, bound=2**40))
        messages = fleet.join()
        fleet.step(messages)
        messages = dict(fleet.round.close())
        pieces = fleet.tell(0, messages.pop(0))
        for piece in pieces[:2]:
            fleet.round.receive(0, piece)
        rejected(fleet.round, 0, pieces[0], RejectionReason.ALREADY_RECEIVED)
        fleet.step(messages)
        assert fleet.round.pending() == {0}
        if leaves:
            fleet.leave(0)
        messages = dict(fleet.round.close())
        rejected(fleet.round, 0, pieces[2], RejectionReason.LATE)
        assert isinstance(messages[1], SurvivorStatus)
        assert (messages[1].survivors, messages[1].contributors) == ((1, 2, 3), 3)
        for _ in range(2):
            fleet.step(messages)
            messages = dict(fleet.round.close())
        assert open_sum(fleet.round.opening()) == [9] * length


def test_memory_is_one_vector_and_the_unfinished_ones() -> None:
    """Pieces are let go with the vector they belong to; two unfinished ones are kept, nobody else's."""
    fleet = fleet_of_three(2 * BOUNDARY)
    messages = fleet.join()
    fleet.step(messages)
    messages = dict(fleet.round.close())
    pieces = {index: fleet.tell(index, message) for index, message in messages.items()}
    for index in (0, 1):
        fleet.round.receive(index, pieces[index][0])
    assert sorted(fleet.round._buffers) == [0, 1]
    fleet.round.receive(0, pieces[0][1])
    assert sorted(fleet.round._buffers) == [1]
    fleet.leave(1)
    assert fleet.round._buffers == {}


# --- the cohort -------------------------------------------------------------------------------------


def test_d11_other_plans_never_share_a_round() -> None:
    # case D11: clients 4 and 5 hold another plan (more categories, or the same in another order: another hash)
    other = bytes(32)
    fleet = Fleet(VECTORS, RULES, plan_hashes={3: other, 4: other})
    adverts = [fleet.advert_of(index) for index in fleet.everybody]
    with pytest.raises(LocalProtocolError, match="one plan"):
        Round("r", RULES, adverts, FORMED_AT)
    with pytest.raises(LocalProtocolError, match="cohort of 2"):
        Round("r", RULES, adverts[3:], FORMED_AT)
    assert {advert.plan_hash for advert in adverts[:3]} == {PLAN_HASH}
    assert Round("r", RULES, adverts[:3], FORMED_AT).size == 3


def test_d11_periods_never_mix_either() -> None:
    fleet = Fleet(VECTORS, RULES)
    adverts = [fleet.advert_of(index) for index in fleet.everybody]
    adverts[1] = replace(adverts[1], period_start=adverts[1].period_start + 86_400)
    with pytest.raises(LocalProtocolError, match="one plan and one period"):
        Round("r", RULES, adverts, FORMED_AT)


@pytest.mark.parametrize("name", ["identity_key", "mask_key", "channel_key"])
def test_a_cohort_has_no_key_twice(name: str) -> None:
    fleet = Fleet(VECTORS, RULES)
    adverts = [fleet.advert_of(index) for index in fleet.everybody]
    adverts[3] = replace(adverts[3], **{name: getattr(adverts[0], name)})
    with pytest.raises(LocalProtocolError, match="twice"):
        Round("r", RULES, adverts, FORMED_AT)


def test_sizes_of_a_cohort() -> None:
    fleet = Fleet(VECTORS, RULES)
    adverts = [fleet.advert_of(index) for index in fleet.everybody]
    for round_rules, size in ((RULES, 2), (replace(RULES, dropout_fraction=RULES.corrupt_fraction * 3), 4)):
        with pytest.raises(LocalProtocolError, match="cohort of"):
            Round("r", round_rules, adverts[:size], FORMED_AT)
    with pytest.raises(LocalProtocolError, match="3 to 16384"):
        Round("r", RULES, adverts * 3_277, FORMED_AT)


def test_d07_a_round_whose_sum_could_wrap_is_not_begun() -> None:
    # case D07: the ring is chosen for the roster, so the wrapped sum 1073741824 cannot come out
    wide = rules(1, min_size=2, bound=536_870_912)
    result = run_round([[536_870_912]] * 10, wide)
    assert result.total == [5_368_709_120]
    result = run_round([[-536_870_912]] * 10, wide)
    assert result.total == [-5_368_709_120]
    fleet = Fleet([[1]] * 2, rules(1, min_size=2, bound=2**62 - 1))
    adverts = [fleet.advert_of(index) for index in fleet.everybody]
    with pytest.raises(PlanError, match="64 bits"):
        Round("r", rules(1, min_size=2, bound=2**62), adverts, FORMED_AT)


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_extremes_of_each_ring(bits: int, sign: int) -> None:
    """Five members at +-bound with 5 x bound just below 2^(bits - 1), one dropping out."""
    bound = ((1 << (bits - 1)) - 1) // 5
    fleet = Fleet([[sign * bound, -sign * bound]] * 5, rules(min_size=3, bound=bound))
    assert fleet.run({2: "masked_input"}).total == [4 * sign * bound, -4 * sign * bound]
    assert fleet.round.bits == bits
    assert run_round([[sign * bound, 0]] * 5, rules(min_size=3, bound=bound)).total == [5 * sign * bound, 0]


def test_rosters_show_everybody_but_the_reader() -> None:
    fleet = Fleet(VECTORS, RULES)
    rosters = fleet.join()
    adverts = [m for _, m in fleet.sent if isinstance(m, Advert)]
    for index, roster in rosters.items():
        expected = fleet.round.roster_for(index)
        assert roster == expected
        assert expected.adverts == tuple(advert for i, advert in enumerate(adverts) if i != index)
        assert expected.neighbours == tuple(i for i in range(5) if i != index)
        assert (expected.threshold, expected.bits, expected.length, expected.size) == (3, 16, 2, 5)
    assert len({fleet.round.roster_for(index).digest for index in range(5)}) == 1


def test_dropped_only_are_named_in_the_unmask_request() -> None:
    fleet = Fleet(VECTORS, RULES)
    fleet.run({0: "shares", 3: "masked_input"})
    requests = {m for _, m in fleet.received if isinstance(m, UnmaskRequest)}
    assert {request.dropped for request in requests} == {(3,)}
    assert {request.confirmed_by for request in requests} == {(1, 2, 4)}


@pytest.mark.parametrize("index", [-1, 5, 100])
def test_members_that_do_not_exist(index: int) -> None:
    fleet, _ = fleet_before("shares")
    with pytest.raises(LocalProtocolError):
        fleet.round.leave(index)
    with pytest.raises(LocalProtocolError):
        fleet.round.receive(index, Confirm(bytes(32), bytes(64)))


def test_opening_is_plain_data() -> None:
    fleet = Fleet(VECTORS, RULES)
    fleet.run({1: "masked_input"})
    opening = fleet.round.opening()
    assert pickle.loads(pickle.dumps(opening)) == opening  # noqa: S301 - our own bytes


def test_fewer_rules_do_not_open_a_sum() -> None:
    """A collector that closes `unmask` early finds nothing to open."""
    fleet, _ = fleet_before("unmask")
    with pytest.raises(LocalProtocolError):
        fleet.round.opening()
    with pytest.raises(RoundAbortedError):
        fleet.round.close()
