"""The two machines of a round under messages of chance: whatever comes, they end with the errors that they name.

Every message passes the wire first, so it is one that could arrive: real ones of two recorded rounds (the vectors'),
of other moments, of other members, with one field changed. A participant answers each question once at most; a round
gives the exact sum of what it took, or none.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import (
    AbortReason,
    RejectionError,
    RejectionReason,
    RemoteProtocolError,
    RoundAbortedError,
    WireError,
)
from client_sdk.identity import IdentityKey
from client_sdk.secagg import messages as m
from client_sdk.secagg.parameters import RoundRules
from client_sdk.secagg.participant import Participant
from client_sdk.wire import convert
from collector import intake
from collector.secagg.blame import SeedsRefusedError
from collector.secagg.opening import open_sum
from collector.secagg.round import Phase, Round
from tests.vectors.layout import load

DOCUMENTS = {name: load(name) for name in ("round", "sparse_round")}


def unhex(entry: Any, name: str) -> bytes:
    return bytes.fromhex(entry[name])


def rules_of(document: Any) -> RoundRules:
    told = dict(document["rules"])
    for name in ("corrupt_fraction", "dropout_fraction"):
        told[name] = Fraction(*told[name])
    return RoundRules(**told)


def participant_of(name: str) -> Participant:
    """Member 0 of a recorded round, with its secrets, before its hello."""
    document = DOCUMENTS[name]
    entry = document["members"][0]
    script = [unhex(entry, seed) for seed in ("mask_seed", "channel_seed", "self_mask_seed")]
    script += [bytes.fromhex("".join(entry[f"{kind}_coefficients"][::-1])) for kind in ("mask", "self_mask")]
    identity = IdentityKey(unhex(entry, "identity_seed"))
    return Participant(
        identity, unhex(entry, "certificate"), unhex(document, "registrar_key"), unhex(document, "plan_hash"),
        document["period_start"], identity.report_id(document["plan_name"], document["period_start"]),
        entry["report"], rules_of(document), entry["resent"], entry["min_cohort"], lambda size: script.pop(0),
    )  # fmt: skip


@lru_cache
def told_to(name: str, index: int = 0) -> tuple[m.CollectorMessage, ...]:
    log = DOCUMENTS[name]["messages"]
    return tuple(convert.collector_message_from_wire(unhex(one, "wire")) for one in log if one.get("to") == index)


@lru_cache
def sent_in_round() -> tuple[tuple[int, m.ParticipantMessage], ...]:
    log = DOCUMENTS["round"]["messages"]
    read = convert.participant_message_from_wire
    return tuple((one["from"], read(unhex(one, "wire"))) for one in log if "from" in one)


# --- one change to a message -------------------------------------------------------------------------


def changed(value: Any, rng: random.Random) -> Any:
    """Another value of the same type, near the one there is."""
    if isinstance(value, m.Advert):
        return with_change(value, rng)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, max(0, value - 1), 0, 1, 2, 16, 64, 16_384, 2**32 - 1])
    if isinstance(value, str):
        return rng.choice([value + "x", "other", value])
    if isinstance(value, bytes):
        return changed_bytes(value, rng)
    return changed_list(value, rng)


def changed_bytes(value: bytes, rng: random.Random) -> bytes:
    if not value:
        return rng.randbytes(rng.choice([40, 64, 114]))
    at = rng.randrange(len(value))
    flipped = value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
    size = len(value)
    same_size = [flipped, flipped, rng.randbytes(size), bytes(size), b"\xff" * size]
    return rng.choice([*same_size, value[: size // 2], value * 2])


def changed_list(value: tuple[Any, ...], rng: random.Random) -> tuple[Any, ...]:
    if not value:
        return (rng.randrange(6),) if rng.random() < 0.5 else (rng.randbytes(40),)
    place = rng.randrange(len(value))
    match rng.randrange(6):
        case 0:
            return value[:place] + value[place + 1 :]
        case 1:
            return (*value[: place + 1], *value[place:])
        case 2:
            return value[::-1]
        case 3:
            other = rng.randrange(len(value))
            swapped = list(value)
            swapped[place], swapped[other] = swapped[other], swapped[place]
            return tuple(swapped)
        case _:
            return (*value[:place], changed(value[place], rng), *value[place + 1 :])


PARALLEL = {"recipients": "sealed", "owners": "sealed", "neighbours": "adverts", "confirmed_by": "confirmations"}


def with_change(message: Any, rng: random.Random) -> Any:
    """One field changed; where a list runs beside it, sometimes the same entry of both dropped."""
    name = rng.choice([field.name for field in fields(message)] or [""])
    if not name:
        return message
    beside = PARALLEL.get(name) or ""
    values = getattr(message, name)
    if values and hasattr(message, beside) and rng.random() < 0.5:
        place = rng.randrange(len(values))
        shorter = {n: getattr(message, n)[:place] + getattr(message, n)[place + 1 :] for n in (name, beside)}
        if hasattr(message, "share_hashes") and name == "owners":
            hashes = message.share_hashes
            shorter["share_hashes"] = hashes[: 64 * place] + hashes[64 * place + 64 :]
        return replace(message, **shorter)
    return replace(message, **{name: changed(values, rng)})


def arrived(message: Any, side: str) -> Any:
    """As it comes out of the wire; None where it does not."""
    try:
        return getattr(convert, f"{side}_message_from_wire")(getattr(convert, f"{side}_message_to_wire")(message))
    except WireError:
        return None


# --- the participant ---------------------------------------------------------------------------------


def test_a_participant_ends_with_the_errors_that_it_names() -> None:
    reasons, answered, ends, malformed = Counter[AbortReason](), Counter[str](), Counter[str](), Counter[str]()
    extra = (m.AlreadyCounted("round_5-A", 4), m.ComeBack(9, 1), m.RoundAborted("shutting_down", 0, 5))

    @settings(max_examples=500, deadline=None)
    @given(st.sampled_from(["round", "round", "sparse_round"]), st.integers(0, 7), st.integers(0, 2**32))
    def play(name: str, honest: int, chance: int) -> None:
        rng, member, script = random.Random(chance), participant_of(name), told_to(name)
        others = (*told_to("round", 1), *told_to("round", 4), *told_to("sparse_round"), *extra)
        left: Counter[str] = Counter()
        member.hello()
        queue = [*script[:honest]]
        for place in range(honest, honest + 3):
            kind = rng.random()
            message = script[min(place, len(script) - 1)] if kind < 0.7 else rng.choice((*script, *others))
            for _ in range(rng.choice([0, 1, 1, 1, 2])):
                message = with_change(message, rng)
            queue.append(message)
        if chance % 8 == 0:  # an answer that ends it at once is rare by chance
            queue = [*script[: rng.choice([2, 2, 3])], rng.choice(extra)]
        refused = False
        for message in queue:
            checked = arrived(message, "collector")
            if checked is None:
                malformed[type(message).__name__] += 1
                continue
            try:
                replies = member.receive(checked, rng.choice([0.0, 0.0, 0.0, 1e6]))
            except RemoteProtocolError as error:
                reasons[error.reason] += 1
                ends["another reason after the first"] += refused and error.reason is not AbortReason.OUT_OF_ORDER
                refused = True
                continue
            assert not refused, "it goes on after a refusal"
            left.update(type(reply).__name__ for reply in replies)
            assert all(arrived(reply, "participant") == reply for reply in replies)
        answered.update(left)
        ends[type(member.outcome).__name__] += 1
        # Each question is answered once, whatever was asked.
        assert max(left.values(), default=0) <= 1

    play()
    assert ends.pop("another reason after the first") == 0
    # Rare reasons stand in the vectors; here the interesting depth is reached by chance.
    assert len(reasons) >= 9, reasons
    assert {"Advert", "SealedShares", "MaskedInputPiece", "Confirm", "UnmaskShares"} <= set(answered), answered
    assert min(answered.values()) >= 20, answered
    assert ends["NoneType"] >= 100, ends
    assert {"AlreadyCounted", "ComeBack", "RoundAborted"} <= set(ends), ends
    assert sum(malformed.values()) < 800, malformed


# --- the collector -----------------------------------------------------------------------------------


def test_a_round_gives_the_exact_sum_or_none() -> None:
    document = DOCUMENTS["round"]
    reports = [member["report"] for member in document["members"]]
    adverts = [message for _, message in sent_in_round() if isinstance(message, m.Advert)]
    rest = [(i, x) for i, x in sent_in_round() if not isinstance(x, m.Hello | m.Advert)]
    reasons, ends, taken = Counter[RejectionReason](), Counter[str](), Counter[str]()

    @settings(max_examples=400, deadline=None)
    @given(st.integers(0, 2**32))
    def play(chance: int) -> None:
        rng = random.Random(chance)
        machine = Round(document["round_id"], rules_of(document), adverts, document["formed_at"])
        honest_inputs = True
        try:
            for kind in (m.SealedShares, m.MaskedInputPiece, m.Confirm, m.UnmaskShares):
                step = [(index, message) for index, message in rest if isinstance(message, kind)]
                for index, message in disturbed(step, rest, rng):
                    checked = arrived(message, "participant")
                    if checked is None:
                        continue
                    try:
                        machine.receive(index, checked)
                    except RejectionError as error:
                        reasons[error.reason] += 1
                        continue
                    taken[kind.__name__] += 1
                    if isinstance(checked, m.MaskedInputPiece) and (index, checked) not in rest:
                        honest_inputs = False
                for index in machine.pending():
                    machine.leave(index)
                machine.close()
            assert machine.phase is Phase.OPENING
            total = open_sum(machine.opening())
        except RoundAbortedError as error:
            ends[error.reason.value] += 1
            ends["blamed for a seed"] += isinstance(error, SeedsRefusedError)
            return
        ends["sum" if honest_inputs else "a liar's own input"] += 1
        if honest_inputs:
            assert total == [sum(reports[i][cell] for i in machine.survivors) for cell in range(len(total))]

    play()
    assert ends["sum"] >= 40, ends
    assert ends["blamed for a seed"] == 0, "nobody signed wrong hashes here"
    assert ends["too_few_sharers"] + ends["too_few_survivors"] >= 10, ends
    wanted = {"BAD_SIGNATURE", "MALFORMED", "OUT_OF_ORDER", "LATE", "ALREADY_RECEIVED"}
    assert {reason.name for reason in reasons} >= wanted, reasons
    assert set(taken) == {"SealedShares", "MaskedInputPiece", "Confirm", "UnmaskShares"}


def disturbed(step: list[tuple[int, Any]], rest: list[tuple[int, Any]], rng: random.Random) -> list[tuple[int, Any]]:
    """A step's messages with changed, repeated and foreign ones among them; sometimes one is missing."""
    queue = list(step)
    rng.shuffle(queue)
    if rng.random() < 0.1:
        queue.pop()
    for _ in range(rng.randrange(4)):
        index, message = rng.choice(step)
        match rng.randrange(4):
            case 0:
                one = index, with_change(message, rng)
            case 1:
                one = rng.randrange(5), message  # in another's name
            case 2:
                one = rng.choice(rest)  # of another moment, or once more
            case _:
                one = index, with_change(with_change(message, rng), rng)
        queue.insert(rng.randrange(len(queue) + 1), one)
    return queue


def test_intake_refuses_with_reasons() -> None:
    """Hellos and adverts of chance, against what the collector asks of them."""
    hellos = {index: message for index, message in sent_in_round() if isinstance(message, m.Hello)}
    adverts = {index: message for index, message in sent_in_round() if isinstance(message, m.Advert)}
    key = unhex(DOCUMENTS["round"], "registrar_key")
    now = DOCUMENTS["round"]["period_start"] + 1000
    reasons, good, asked = Counter[RejectionReason](), Counter[str](), Counter[str]()

    @settings(max_examples=250, deadline=None)
    @given(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2**32))
    def ask(index: int, changes: int, chance: int) -> None:
        rng = random.Random(chance)
        hello, advert = hellos[index], adverts[rng.choice([index, index, index, 0])]
        for _ in range(changes):
            hello, advert = rng.choice([(with_change(hello, rng), advert), (hello, with_change(advert, rng))])
        hello, advert = arrived(hello, "participant"), arrived(advert, "participant")
        if hello is None or advert is None:
            return
        asked["hellos"] += 1
        with pytest.raises(RejectionError):  # no plan is served here
            intake.check_hello(hello, None, now)
        try:
            intake.check_certificate(hello, key, now)
            intake.check_advert(hello, unhex(DOCUMENTS["round"]["members"][index], "nonce"), advert)
        except RejectionError as error:
            reasons[error.reason] += 1
        else:
            good[f"member {index}"] += 1
            assert advert == adverts[index]

    ask()
    assert sum(good.values()) >= 20, good
    assert asked["hellos"] >= 100
    assert set(reasons) >= {RejectionReason.BAD_CERTIFICATE, RejectionReason.BAD_SIGNATURE, RejectionReason.MALFORMED}
