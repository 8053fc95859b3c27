"""What a participant must show before it may wait: every refusal, at its exact boundary."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from client_sdk.certificate import Certificate, CertificateError, Role, issue
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import IdentityKey
from client_sdk.plan import parse_plan
from client_sdk.secagg.keys import load_private, public_bytes, self_mask_commitment
from client_sdk.secagg.messages import Advert, Hello
from client_sdk.secagg.transcript import advert_message
from collector.intake import CLOCK_SKEW_S, check_advert, check_certificate, check_hello, expires_at

PLAN_TEXT = """
[plan]
name = "app-health"
version = 1
period = "1d"
max_delay = "2d"

[cohort]
min_size = 50
target_size = 200

[budget]
lifetime = 365

[metrics.network]
kind = "categorical"
categories = ["x", "y", "z"]
epsilon = 1.0
"""
PLAN = parse_plan(PLAN_TEXT)
DAY = 86_400
START = 20_000 * DAY
NOON = START + DAY // 2

IDENTITY = IdentityKey(b"i" * 32)
NONCE = b"n" * 32
HELLO = Hello(IDENTITY.public_key, b"", PLAN.hash, START, IDENTITY.report_id(PLAN.name, START))


def signed(identity: IdentityKey = IDENTITY, **changes: Any) -> Advert:
    """A right advert for HELLO and NONCE with some fields replaced, signed by `identity` as it then is."""
    advert = Advert(
        identity_key=HELLO.identity_key,
        certificate=HELLO.certificate,
        plan_hash=HELLO.plan_hash,
        period_start=HELLO.period_start,
        report_id=HELLO.report_id,
        nonce=NONCE,
        mask_key=public_bytes(load_private(b"m" * 32)),
        channel_key=public_bytes(load_private(b"c" * 32)),
        self_mask_commitment=self_mask_commitment(b"s" * 32),
        resent=False,
        min_cohort=0,
    )
    advert = dataclasses.replace(advert, **changes)
    return dataclasses.replace(advert, signature=identity.sign(advert_message(advert)))


def refusal(check: Any, *arguments: Any) -> RejectionError:
    with pytest.raises(RejectionError) as caught:
        check(*arguments)
    return caught.value


def test_a_right_hello_and_advert_pass() -> None:
    check_hello(HELLO, PLAN, NOON)
    check_advert(HELLO, NONCE, signed())
    check_advert(HELLO, NONCE, signed(resent=True, min_cohort=2**32 - 1))


def test_a_certificate_of_the_registrar_for_this_identity_until_it_ends() -> None:
    registrar, other = IdentityKey(b"r" * 32), IdentityKey(b"o" * 32)

    def shown(by: IdentityKey = registrar, whose: IdentityKey = IDENTITY, role: Role = Role.DEVICE) -> Hello:
        said = Certificate(role, whose.public_key, START, START + DAY)
        return dataclasses.replace(HELLO, certificate=issue(by, said))

    assert check_certificate(shown(), registrar.public_key, NOON).expires_at == START + DAY
    for hello, now, reason in (
        (shown(), START + DAY, "expired"),
        # holds still, but no longer when the period starts, which is when the other members judge it
        (dataclasses.replace(shown(), period_start=START + DAY), START + DAY - CLOCK_SKEW_S, "expired"),
        (shown(by=other), NOON, "bad_signature"),
        (shown(whose=other), NOON, "wrong_identity"),
        (shown(role=Role.OPERATOR), NOON, "wrong_role"),
        (HELLO, NOON, "malformed"),
    ):
        error = refusal(check_certificate, hello, registrar.public_key, now)
        assert error.reason is RejectionReason.BAD_CERTIFICATE
        assert isinstance(error.__cause__, CertificateError)
        assert error.__cause__.reason == reason
        assert reason not in str(error)


# case D11: another list of categories, or another order of the same list, is another plan
@pytest.mark.parametrize("categories", ['["x", "y", "z", "w"]', '["x", "z", "y"]'])
def test_another_plan_is_unknown(categories: str) -> None:
    other = parse_plan(PLAN_TEXT.replace('["x", "y", "z"]', categories))
    assert other.hash != PLAN.hash
    theirs = dataclasses.replace(HELLO, plan_hash=other.hash)
    assert refusal(check_hello, theirs, None, NOON).reason is RejectionReason.UNKNOWN_PLAN
    assert refusal(check_hello, theirs, PLAN, NOON).reason is RejectionReason.UNKNOWN_PLAN
    check_hello(theirs, other, NOON)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (START - CLOCK_SKEW_S - 0.001, RejectionReason.PERIOD_NOT_STARTED),
        (START - CLOCK_SKEW_S, None),
        (START, None),  # sealed before its end
        (START + DAY, None),
        (START + 3 * DAY - 0.001, None),
        (START + 3 * DAY, RejectionReason.PERIOD_TOO_OLD),
        (START + 400 * DAY, RejectionReason.PERIOD_TOO_OLD),
    ],
)
def test_a_period_is_taken_from_its_start_to_its_end_and_max_delay(now: float, reason: RejectionReason | None) -> None:
    assert expires_at(PLAN, START) == START + 3 * DAY
    if reason is None:
        check_hello(HELLO, PLAN, now)
    else:
        assert refusal(check_hello, HELLO, PLAN, now).reason is reason


@pytest.mark.parametrize("start", [START + 1, START - 1, START + DAY // 2])
def test_only_whole_periods_are_named(start: int) -> None:
    error = refusal(check_hello, dataclasses.replace(HELLO, period_start=start), PLAN, NOON)
    assert error.reason is RejectionReason.MALFORMED
    assert "period_start" in str(error)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("plan_hash", b""),
        ("plan_hash", PLAN.hash + b"\0"),
        ("identity_key", b""),
        ("identity_key", b"\xff" * 32),
        ("identity_key", (1).to_bytes(32, "little")),  # the key that everybody can sign with
        ("report_id", b"r" * 32),
    ],
)
def test_a_hello_of_another_shape_is_malformed(field: str, value: bytes) -> None:
    error = refusal(check_hello, dataclasses.replace(HELLO, **{field: value}), PLAN, NOON)
    assert error.reason is RejectionReason.MALFORMED
    assert str(error) == f"rejected (malformed): {field}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("identity_key", IdentityKey(b"o" * 32).public_key),
        ("certificate", b"c"),
        ("plan_hash", b"p" * 32),
        ("period_start", START + DAY),
        ("report_id", b"r" * 16),
    ],
)
def test_an_advert_says_what_the_hello_said(field: str, value: object) -> None:
    # Rightly signed all the same: the hello decided which sum, which counting and which cohort.
    identity = IdentityKey(b"o" * 32) if field == "identity_key" else IDENTITY
    error = refusal(check_advert, HELLO, NONCE, signed(identity, **{field: value}))
    assert error.reason is RejectionReason.MALFORMED
    assert str(error) == f"rejected (malformed): {field}"


P = 2**255 - 19
ORDER_8_U = 325606250916557431795983626356110631294008115727848805560023387167927233504
BAD_AGREEMENT_KEYS = [
    b"",
    b"k" * 31,
    b"k" * 33,
    bytes(32),
    (1).to_bytes(32, "little"),
    (P - 1).to_bytes(32, "little"),
    ORDER_8_U.to_bytes(32, "little"),
    P.to_bytes(32, "little"),
    (P + 9).to_bytes(32, "little"),
    (9 + 2**255).to_bytes(32, "little"),
]


@pytest.mark.parametrize("field", ["mask_key", "channel_key"])
@pytest.mark.parametrize("key", BAD_AGREEMENT_KEYS)
def test_a_key_that_would_break_the_others_round_is_malformed(field: str, key: bytes) -> None:
    error = refusal(check_advert, HELLO, NONCE, signed(**{field: key}))
    assert error.reason is RejectionReason.MALFORMED
    assert field in str(error)


def test_a_mask_key_whose_seed_may_be_revealed_is_no_channel_key() -> None:
    same = public_bytes(load_private(b"m" * 32))
    assert refusal(check_advert, HELLO, NONCE, signed(channel_key=same)).reason is RejectionReason.DUPLICATE_KEY


@pytest.mark.parametrize("changes", [{"self_mask_commitment": b"s"}, {"min_cohort": -1}, {"min_cohort": 2**32}])
def test_other_fields_of_an_advert_have_their_shape(changes: dict[str, Any]) -> None:
    assert refusal(check_advert, HELLO, NONCE, signed(**changes)).reason is RejectionReason.MALFORMED


# case D05: what was said in one stream is worth nothing in another
def test_an_advert_is_good_for_its_own_nonce_only() -> None:
    replayed = signed()
    error = refusal(check_advert, HELLO, b"m" * 32, replayed)
    assert (error.reason, str(error)) == (RejectionReason.BAD_SIGNATURE, "rejected (bad_signature): nonce")
    moved = dataclasses.replace(replayed, nonce=b"m" * 32)
    assert refusal(check_advert, HELLO, b"m" * 32, moved).reason is RejectionReason.BAD_SIGNATURE


def test_a_short_nonce_of_our_own_is_never_enough() -> None:
    assert refusal(check_advert, HELLO, b"", signed(nonce=b"")).reason is RejectionReason.BAD_SIGNATURE


@pytest.mark.parametrize(
    "changes",
    [
        {"resent": True},
        {"min_cohort": 1},
        {"mask_key": public_bytes(load_private(b"x" * 32))},
        {"channel_key": public_bytes(load_private(b"x" * 32))},
        {"self_mask_commitment": self_mask_commitment(b"x" * 32)},
        {"signature": bytes(64)},
        {"signature": b""},
        {"signature": signed().signature[:-1]},
    ],
)
def test_the_signature_covers_every_field(changes: dict[str, Any]) -> None:
    forged = dataclasses.replace(signed(), **changes)
    assert refusal(check_advert, HELLO, NONCE, forged).reason is RejectionReason.BAD_SIGNATURE


def test_another_identitys_signature_does_not_hold() -> None:
    forged = signed(IdentityKey(b"o" * 32))
    assert refusal(check_advert, HELLO, NONCE, forged).reason is RejectionReason.BAD_SIGNATURE


def test_refusals_never_show_what_was_in_a_field() -> None:
    for error in (
        refusal(check_hello, dataclasses.replace(HELLO, identity_key=b"secret"), PLAN, NOON),
        refusal(check_advert, HELLO, NONCE, signed(mask_key=b"secret")),
    ):
        assert "secret" not in str(error)
        assert "736563726574" not in str(error)
