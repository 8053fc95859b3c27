"""What the SDK and the collector make of the vectors: the good ones hold, the bad ones are refused for their reason."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from client_sdk.certificate import CertificateError, Role, check
from client_sdk.errors import AbortReason, PlanError, RejectionError, RemoteProtocolError, RoundAbortedError, WireError
from client_sdk.identity import IdentityKey, is_valid_public_key, verify
from client_sdk.plan import canonical_form, parse_plan
from client_sdk.secagg import dealing, keys, merkle, shamir
from client_sdk.secagg import messages as m
from client_sdk.secagg.parameters import RoundRules
from client_sdk.secagg.participant import Participant
from client_sdk.secagg.transcript import advert_message
from client_sdk.wire import convert
from client_sdk.wire import messages as w
from collector.direct import Incoming, check_direct_hello, check_offer, read_report
from collector.secagg.blame import Blame, Fault
from collector.secagg.opening import open_sum
from collector.secagg.round import Round
from tests.vectors.layout import as_json, edited, load, raw
from tests.vectors.messages import READERS, samples
from tests.vectors.trees import leaf


def ids(entry: dict[str, Any]) -> str:
    return str(entry["why"])[:50]


def unhex(entry: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(entry[name])


@pytest.mark.parametrize("one", load("keys")["bad_x25519_keys"], ids=ids)
def test_bad_x25519_keys(one: dict[str, Any]) -> None:
    assert one["refused"] == "bad_key"
    assert not keys.is_valid_public(unhex(one, "key"))


@pytest.mark.parametrize("one", load("keys")["bad_identity_keys"], ids=ids)
def test_bad_identity_keys(one: dict[str, Any]) -> None:
    assert not is_valid_public_key(unhex(one, "identity_key"))
    assert not verify(*raw(one, "identity_key", "signature", "message"))


@pytest.mark.parametrize("one", load("keys")["bad_signatures"], ids=ids)
def test_bad_signatures(one: dict[str, Any]) -> None:
    assert one["refused"] == "bad_signature"
    assert not verify(*raw(one, "identity_key", "signature", "message"))


@pytest.mark.parametrize("one", load("certificates")["bad"], ids=ids)
def test_bad_certificates(one: dict[str, Any]) -> None:
    given = raw(one, "certificate", "registrar_key", "identity_key")
    with pytest.raises(CertificateError) as caught:
        check(*given, Role(one["role"]), one["at"])
    assert caught.value.reason == one["refused"]


def test_good_certificates() -> None:
    for one in load("certificates")["good"]:
        given = raw(one, "certificate", "registrar_key", "identity_key")
        assert check(*given, Role(one["role"]), one["at"]).expires_at == one["expires_at"]


@pytest.mark.parametrize("one", load("shamir")["bad_combinations"], ids=ids)
def test_bad_shares(one: dict[str, Any]) -> None:
    text = {"malformed": "malformed shares|points must be", "wrong_shares": "do not meet"}[one["refused"]]
    with pytest.raises(ValueError, match=text):
        shamir.combine(one["xs"], [bytes.fromhex(share) for share in one["shares"]])


@pytest.mark.parametrize("one", load("sealed_shares")["unusable"], ids=ids)
def test_unusable_pairs(one: dict[str, Any]) -> None:
    digest, seed, peer, sealed, hashes = raw(
        one, "roster_digest", "holder_channel_seed", "owner_channel_key", "sealed", "share_hashes"
    )
    owner, holder = one["owner"], one["holder"]
    _, key = keys.channel_keys(keys.load_private(seed), keys.load_public(peer), digest, holder, owner)
    pair = keys.open_pair(key, sealed, digest)
    assert pair is None or not dealing.is_usable(digest, owner, holder, pair, hashes)


def test_unusable_pairs_of_both_kinds_are_there() -> None:
    opened = Counter[bool]()
    for one in load("sealed_shares")["unusable"]:
        digest, seed, peer = raw(one, "roster_digest", "holder_channel_seed", "owner_channel_key")
        private = keys.load_private(seed)
        _, key = keys.channel_keys(private, keys.load_public(peer), digest, one["holder"], one["owner"])
        opened[keys.open_pair(key, unhex(one, "sealed"), digest) is not None] += 1
    assert min(opened[True], opened[False]) >= 5


@pytest.mark.parametrize("one", load("adverts")["bad_adverts"], ids=ids)
def test_bad_adverts(one: dict[str, Any]) -> None:
    fields = {f.name: one[f.name] for f in dataclasses.fields(m.Advert)}
    advert = m.Advert(**{n: bytes.fromhex(v) if isinstance(v, str) else v for n, v in fields.items()})
    assert not verify(advert.identity_key, advert.signature, advert_message(advert))


PROOF_FAULTS = {
    "too_short": "too short",
    "too_long": "too long",
    "overcounts": "more than there are leaves",
    "wrong_length": "wrong length",
}


@pytest.mark.parametrize("one", load("trees")["bad_proofs"], ids=ids)
def test_bad_proofs(one: dict[str, Any]) -> None:
    known, proof = {index: leaf(index) for index in one["known"]}, [bytes.fromhex(node) for node in one["proof"]]
    if one["refused"] == "another_root":
        assert merkle.root_from(one["size"], known, proof).to_bytes().hex() != one["root"]
        return
    with pytest.raises(ValueError, match=PROOF_FAULTS[one["refused"]]):
        merkle.root_from(one["size"], known, proof)


@pytest.mark.parametrize("one", load("messages")["malformed"], ids=ids)
def test_malformed_messages(one: dict[str, Any]) -> None:
    assert one["refused"] == "malformed"
    with pytest.raises(WireError):
        READERS[one["message"]](unhex(one, "wire"))


def test_messages() -> None:
    entries = load("messages")["messages"]
    for one, sample in zip(entries, samples(), strict=True):
        message = READERS[one["message"]](unhex(one, "wire"))
        assert message == sample
        assert as_json(dataclasses.asdict(message)) == one["fields"]
    assert {one["message"] for one in entries} == set(READERS)


# --- the round, and what must be refused in it -------------------------------------------------------

ROUND = load("round")


def rules() -> RoundRules:
    fields = dict(ROUND["rules"])
    for name in ("corrupt_fraction", "dropout_fraction"):
        fields[name] = Fraction(*fields[name])
    return RoundRules(**fields)


def entropy_of(entry: dict[str, Any]) -> Any:
    """As Participant asks for it: three seeds, then both polynomials from the highest power down."""
    script = [unhex(entry, name) for name in ("mask_seed", "channel_seed", "self_mask_seed")]
    script += [bytes.fromhex("".join(entry[f"{name}_coefficients"][::-1])) for name in ("mask", "self_mask")]
    return lambda size: script.pop(0)


def participant(index: int) -> Participant:
    entry = ROUND["members"][index]
    identity = IdentityKey(unhex(entry, "identity_seed"))
    return Participant(
        identity, unhex(entry, "certificate"), unhex(ROUND, "registrar_key"), unhex(ROUND, "plan_hash"),
        ROUND["period_start"], identity.report_id(ROUND["plan_name"], ROUND["period_start"]), entry["report"], rules(),
        entry["resent"], entry["min_cohort"], entropy_of(entry),
    )  # fmt: skip


def told(index: int) -> Iterator[tuple[str, bytes]]:
    return ((one["kind"], unhex(one, "wire")) for one in ROUND["messages"] if one.get("to") == index)


def test_participants_answer_as_the_round_says() -> None:
    members = {index: participant(index) for index in range(5)}
    owed = {index: [member.hello()] for index, member in members.items()}
    for one in ROUND["messages"]:
        data = unhex(one, "wire")
        if "from" in one:
            assert convert.participant_message_from_wire(data) == owed[one["from"]].pop(0)
        else:
            owed[one["to"]] = members[one["to"]].receive(convert.collector_message_from_wire(data), 0.0)
    assert not any(owed.values())
    assert [index for index, member in members.items() if isinstance(member.outcome, m.Receipt)] == ROUND["survivors"]


REFUSALS = load("refusals")


@pytest.mark.parametrize("one", REFUSALS["participant"], ids=ids)
def test_a_participant_refuses(one: dict[str, Any]) -> None:
    member = participant(0)
    member.hello()
    for kind, data in told(0):
        if kind != one["instead_of"]:
            member.receive(convert.collector_message_from_wire(data), 0.0)
            continue
        bad = convert.collector_message_from_wire(edited(data, one["edits"]))
        with pytest.raises(RemoteProtocolError) as caught:
            member.receive(bad, 0.0)
        assert caught.value.reason.value == one["refused"]
        # And then it is over: also the right message comes too late.
        with pytest.raises(RemoteProtocolError) as caught:
            member.receive(convert.collector_message_from_wire(data), 0.0)
        assert caught.value.reason is AbortReason.OUT_OF_ORDER
        assert member.outcome is None
        return
    raise AssertionError("no such message")


def test_every_reason_of_a_participant_is_there() -> None:
    for_the_collector = {"too_few_responses", "wrong_shares", "implausible_sum", "not_stored", "shutting_down"}
    assert {one["refused"] for one in REFUSALS["participant"]} == {a.value for a in AbortReason} - for_the_collector


def replayed(instead_of: str, index: int) -> tuple[Round, bytes, list[tuple[int, m.ParticipantMessage]]]:
    """The round up to `index`'s message of this kind, that message, and what the others send in its step."""
    sent = [one for one in ROUND["messages"] if "from" in one]
    read = {id(one): convert.participant_message_from_wire(unhex(one, "wire")) for one in sent}
    adverts = [message for message in read.values() if isinstance(message, m.Advert)]
    machine = Round(ROUND["round_id"], rules(), adverts, ROUND["formed_at"])
    for kind in ("SealedShares", "MaskedInputPiece", "Confirm", "UnmaskShares"):
        step = [(one["from"], read[id(one)]) for one in sent if one["kind"] == kind]
        if kind == instead_of:
            others = [(sender, message) for sender, message in step if sender != index]
            data = next(unhex(one, "wire") for one in sent if (one["from"], one["kind"]) == (index, kind))
            return machine, data, others
        for sender, message in step:
            machine.receive(sender, message)
        for member in machine.pending():
            machine.leave(member)
        machine.close()
    raise AssertionError("no such message")


@pytest.mark.parametrize("one", [o for o in REFUSALS["collector"] if o["refused"] != "wrong_share"], ids=ids)
def test_a_collector_refuses(one: dict[str, Any]) -> None:
    machine, data, others = replayed(one["instead_of"], one["from"])
    bad = convert.participant_message_from_wire(edited(data, one["edits"]))
    with pytest.raises(RejectionError) as caught:
        machine.receive(one["from"], bad)
    assert caught.value.reason.value == one["refused"]
    # Only this message was refused: the right one is taken, and the step ends well.
    for sender, message in [*others, (one["from"], convert.participant_message_from_wire(data))]:
        machine.receive(sender, message)
    machine.close()


def test_the_collector_opens_the_round() -> None:
    machine, data, others = replayed("UnmaskShares", 1)
    for sender, message in [*others, (1, convert.participant_message_from_wire(data))]:
        machine.receive(sender, message)
    machine.close()
    assert open_sum(machine.opening()) == ROUND["total"]
    assert machine.blamed == ()


def test_a_wrong_share_is_an_erasure_and_held_against_its_sender() -> None:
    (one,) = [o for o in REFUSALS["collector"] if o["refused"] == "wrong_share"]
    machine, data, others = replayed(one["instead_of"], one["from"])
    for sender, message in others:
        machine.receive(sender, message)
    machine.receive(one["from"], convert.participant_message_from_wire(edited(data, one["edits"])))
    with pytest.raises(RoundAbortedError) as caught:  # only just enough had answered
        machine.close()
    assert (caught.value.reason, caught.value.have) == (AbortReason.TOO_FEW_RESPONSES, 3)
    assert machine.blamed == (Blame(1, Fault.WRONG_SHARE),)


@pytest.mark.parametrize("one", load("plans")["plans"], ids=ids)
def test_plans(one: dict[str, Any]) -> None:
    for text in one["texts"]:
        plan = parse_plan(text)
        assert (canonical_form(plan), plan.hash.hex()) == (one["canonical"], one["hash"])
        assert plan.length == one["elements"]


@pytest.mark.parametrize("one", load("plans")["refused"], ids=ids)
def test_texts_that_are_no_plan(one: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(one["text"])
    assert [line.split(":")[0] for line in caught.value.problems] == one["fields"]
    assert one["fields"]


# --- a call of direct delivery -----------------------------------------------------------------------

DIRECT = load("direct")
CALL: list[Any] = [
    (convert.deliver_request_from_wire if "from" in one else convert.deliver_response_from_wire)(unhex(one, "wire"))
    for one in DIRECT["messages"]
]
HELLO, NONCE, OFFER, SEAL = CALL[0], CALL[1].nonce, CALL[2], CALL[-2]
PIECES = [message for message in CALL if isinstance(message, w.DirectPiece)]


def incoming() -> Incoming:
    sizes = {piece.place: len(piece.data) for piece in PIECES}
    return Incoming.of(HELLO, NONCE, OFFER, sizes)


def direct_refusal(work: Any) -> str:
    with pytest.raises(RejectionError) as caught:
        work()
    return caught.value.reason.value


def test_a_collector_takes_a_direct_call() -> None:
    check_direct_hello(HELLO, unhex(DIRECT, "registrar_key"), DIRECT["reports"][0]["period_start"])
    offered = check_offer(HELLO, NONCE, OFFER)
    assert [(one.period_start, one.report_id.hex(), one.resent) for one in offered] == [
        (one["period_start"], one["report_id"], one["resent"]) for one in DIRECT["reports"]
    ]
    taken = incoming()
    for piece in PIECES:
        taken.add(piece)
    plan = parse_plan(DIRECT["plan"])
    for place, data in taken.seal(SEAL).items():
        assert read_report(plan, data) == DIRECT["reports"][place]["elements"]
        assert data.hex() == DIRECT["reports"][place]["packed"]


@pytest.mark.parametrize("one", DIRECT["bad_hellos"], ids=ids)
def test_bad_direct_hellos(one: dict[str, Any]) -> None:
    said, key = convert.deliver_request_from_wire(unhex(one, "wire")), unhex(DIRECT, "registrar_key")
    assert isinstance(said, w.DirectHello)
    assert direct_refusal(lambda: check_direct_hello(said, key, one["at"])) == one["refused"]


@pytest.mark.parametrize("one", DIRECT["bad_offers"], ids=ids)
def test_bad_direct_offers(one: dict[str, Any]) -> None:
    said = dataclasses.replace(OFFER, signature=unhex(one, "signature"))
    assert direct_refusal(lambda: check_offer(HELLO, NONCE, said)) == one["refused"] == "bad_signature"


@pytest.mark.parametrize("one", DIRECT["bad_seals"], ids=ids)
def test_bad_direct_seals(one: dict[str, Any]) -> None:
    said, taken = w.DirectSeal(unhex(one, "signature")), incoming()
    for piece in PIECES:
        taken.add(piece)
    assert direct_refusal(lambda: taken.seal(said)) == one["refused"] == "bad_signature"


@pytest.mark.parametrize("one", DIRECT["bad_pieces"], ids=ids)
def test_bad_direct_pieces(one: dict[str, Any]) -> None:
    def take() -> None:
        taken = incoming()
        for wire in one["wires"]:
            piece = convert.deliver_request_from_wire(bytes.fromhex(wire))
            assert isinstance(piece, w.DirectPiece)
            taken.add(piece)
        taken.seal(SEAL)

    assert direct_refusal(take) == one["refused"]


@pytest.mark.parametrize("one", DIRECT["bad_reports"], ids=ids)
def test_bad_direct_reports(one: dict[str, Any]) -> None:
    plan = parse_plan(DIRECT["plan"])
    assert direct_refusal(lambda: read_report(plan, unhex(one, "packed"))) == one["refused"]
