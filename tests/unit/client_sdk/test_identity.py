"""A device's identity: derivations against fixed answers, and a verifier that no input upsets."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from client_sdk.identity import (
    IdentityKey,
    device_id_of,
    enrolment_message,
    is_valid_public_key,
    length_prefixed,
    verify,
)

P = 2**255 - 19

# RFC 8032, section 7.1, test 2
RFC_SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
RFC_PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
RFC_SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def edwards_multiple(y: int, times: int) -> tuple[int, int]:
    """`times` x the point with this y, in plain affine arithmetic."""
    d = -121665 * pow(121666, -1, P) % P
    square = (y * y - 1) * pow(d * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square
    total = (0, 1)
    for _ in range(times):
        (x1, y1), t = total, d * total[0] * x * total[1] * y % P
        total = (
            (x1 * y + x * y1) * pow(1 + t, -1, P) % P,
            (y1 * y + x1 * x) * pow(1 - t, -1, P) % P,
        )
    return total


def test_known_key_and_signature() -> None:
    key = IdentityKey(RFC_SEED)
    assert key.public_key == RFC_PUBLIC
    assert key.sign(b"\x72") == RFC_SIGNATURE
    assert verify(RFC_PUBLIC, RFC_SIGNATURE, b"\x72")
    assert not verify(RFC_PUBLIC, RFC_SIGNATURE, b"\x73")


def test_device_id_is_the_start_of_the_public_keys_hash() -> None:
    assert IdentityKey(RFC_SEED).device_id == hashlib.sha256(RFC_PUBLIC).hexdigest()[:32]
    assert device_id_of(RFC_PUBLIC) == IdentityKey(RFC_SEED).device_id


def test_report_id_is_hkdf_expand_and_hmac() -> None:
    # What protos/README.md says, written with other tools.
    key = HKDFExpand(SHA256(), 32, b"ldp-telemetry/report-id/v1").derive(RFC_SEED)
    message = len(b"app-health").to_bytes(4, "big") + b"app-health" + (1_700_006_400).to_bytes(8, "big")
    expected = hmac.new(key, message, hashlib.sha256).digest()[:16]
    assert IdentityKey(RFC_SEED).report_id("app-health", 1_700_006_400) == expected


def test_report_ids_differ_by_identity_plan_and_period_only() -> None:
    one, other = IdentityKey(RFC_SEED), IdentityKey(bytes(32))
    ids = {key.report_id(name, start) for key in (one, other) for name in ("a", "ab") for start in (0, 86_400)}
    assert len(ids) == 8
    assert one.report_id("a", 0) == IdentityKey(RFC_SEED).report_id("a", 0)


def test_the_seed_shows_nowhere() -> None:
    key = IdentityKey(RFC_SEED)
    key.sign(b"x")
    shown = repr(key) + str(key) + f"{key!r:>10}" + repr([key])
    for form in (RFC_SEED.hex(), repr(RFC_SEED), str(list(RFC_SEED)), repr(RFC_SEED)[2:20]):
        assert form not in shown
    assert repr(key) == f"IdentityKey(device_id={key.device_id!r})"


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33), bytearray(32), "x" * 32, None])
def test_a_seed_of_another_shape_is_refused_without_being_shown(seed: object) -> None:
    with pytest.raises(ValueError, match="32 bytes") as caught:
        IdentityKey(seed)  # type: ignore[arg-type]
    assert "xxxx" not in str(caught.value)


def test_the_key_object_is_built_once_and_only_when_needed() -> None:
    key = IdentityKey(RFC_SEED)
    assert "_private_key" not in vars(key)
    key.sign(b"x")
    first = vars(key)["_private_key"]
    key.sign(b"y")
    assert vars(key)["_private_key"] is first


MALFORMED = [
    (b"", RFC_SIGNATURE, b"\x72"),
    (RFC_PUBLIC[:-1], RFC_SIGNATURE, b"\x72"),
    (RFC_PUBLIC + b"\0", RFC_SIGNATURE, b"\x72"),
    (RFC_PUBLIC, b"", b"\x72"),
    (RFC_PUBLIC, RFC_SIGNATURE[:-1], b"\x72"),
    (RFC_PUBLIC, RFC_SIGNATURE + b"\0", b"\x72"),
    (RFC_PUBLIC, bytes(64), b"\x72"),
    (RFC_PUBLIC, b"\xff" * 64, b"\x72"),
    (b"\xff" * 32, RFC_SIGNATURE, b"\x72"),
    ((2).to_bytes(32, "little"), RFC_SIGNATURE, b"\x72"),  # y = 2 is on no point of the curve
    (None, RFC_SIGNATURE, b"\x72"),
    (RFC_PUBLIC, None, b"\x72"),
    (RFC_PUBLIC, RFC_SIGNATURE, None),
    (RFC_PUBLIC, RFC_SIGNATURE, "r"),
    (RFC_PUBLIC.hex(), RFC_SIGNATURE, b"\x72"),
]


@pytest.mark.parametrize(("public_key", "signature", "message"), MALFORMED)
def test_verify_answers_false_to_whatever_comes(public_key: object, signature: object, message: object) -> None:
    assert verify(public_key, signature, message) is False  # type: ignore[arg-type]


def test_an_identity_that_is_everybodys_is_refused() -> None:
    # Under the neutral point as key, R = neutral point and S = 0 is a signature of every message.
    neutral = (1).to_bytes(32, "little")
    signature = neutral + bytes(32)
    Ed25519PublicKey.from_public_bytes(neutral).verify(signature, b"whatever")  # the library takes it
    assert not verify(neutral, signature, b"whatever")


def test_all_keys_of_small_order_and_all_odd_encodings_are_refused() -> None:
    order_8 = int.from_bytes(
        bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"
    )
    assert edwards_multiple(order_8, 8) == (0, 1)
    assert edwards_multiple(order_8, 4) == (0, P - 1)
    small = [0, 1, P - 1, order_8, P - order_8]
    odd = [P, P + 1, 2**255 - 1]
    for y in small + odd:
        for sign in (0, 1 << 255):
            assert not is_valid_public_key((y | sign).to_bytes(32, "little"))
    assert is_valid_public_key(RFC_PUBLIC)


def test_enrolment_message_is_labelled_and_length_prefixed() -> None:
    label = b"ldp-telemetry/enrolment/v1"
    assert enrolment_message("tok") == b"\0\0\0\x1a" + label + b"\0\0\0\x03tok"
    assert length_prefixed(b"ab", b"c") != length_prefixed(b"a", b"bc")
