"""Derived keys: both ends agree, everything else differs; encodings that are refused; sealing."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import fields

import pytest

from client_sdk.secagg import keys
from client_sdk.secagg.transcript import key_info
from tests.fleet import SeededEntropy

P = 2**255 - 19
DIGEST, OTHER_DIGEST = bytes(32), b"\x01" + bytes(31)
A, B, C = (keys.load_private(SeededEntropy(name)(32)) for name in (b"a", b"b", b"c"))
PAIR = keys.SharePair(bytes(33), b"\x00" + b"\x07" * 32)


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, one block, written out."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\x01", "sha256")


def test_derivation_as_specified() -> None:
    ends = bytes.fromhex("00000002" + "00000005")
    shared = A.exchange(B.public_key())
    mask, sign = keys.pairwise_mask(A, B.public_key(), DIGEST, 2, 5)
    assert (mask, sign) == (hkdf(shared, b"ldp-telemetry/secagg/v1/pairwise-mask" + DIGEST + ends), 1)
    send, receive = keys.channel_keys(A, B.public_key(), DIGEST, 2, 5)
    assert send == hkdf(shared, b"ldp-telemetry/secagg/v1/share" + DIGEST + ends)
    assert receive == hkdf(shared, b"ldp-telemetry/secagg/v1/share" + DIGEST + ends[4:] + ends[:4])
    own = hkdf(b"s" * 32, b"ldp-telemetry/secagg/v1/self-mask" + DIGEST + ends[:4] * 2)
    assert keys.self_mask(b"s" * 32, DIGEST, 2) == own
    commitment = hashlib.sha256(b"ldp-telemetry/secagg/v1/self-mask-commitment" + b"s" * 32)
    assert keys.self_mask_commitment(b"s" * 32) == commitment.digest()


def test_both_ends_get_the_same_mask_with_opposite_signs() -> None:
    low = keys.pairwise_mask(A, B.public_key(), DIGEST, 2, 5)
    high = keys.pairwise_mask(B, A.public_key(), DIGEST, 5, 2)
    assert low[0] == high[0]
    assert (low[1], high[1]) == (1, -1)


def test_every_input_of_a_derived_key_counts() -> None:
    """Roster, both ends, usage and direction: no two derived keys of these are equal."""
    send, receive = keys.channel_keys(A, B.public_key(), DIGEST, 2, 5)
    derived = [
        keys.pairwise_mask(A, B.public_key(), DIGEST, 2, 5)[0],
        keys.pairwise_mask(A, B.public_key(), OTHER_DIGEST, 2, 5)[0],
        keys.pairwise_mask(A, B.public_key(), DIGEST, 2, 6)[0],
        keys.pairwise_mask(A, B.public_key(), DIGEST, 1, 5)[0],
        keys.pairwise_mask(A, C.public_key(), DIGEST, 2, 5)[0],
        keys.self_mask(A.private_bytes_raw(), DIGEST, 2),
        keys.self_mask(A.private_bytes_raw(), DIGEST, 3),
        keys.self_mask(A.private_bytes_raw(), OTHER_DIGEST, 2),
        send,
        receive,
        keys.self_mask_commitment(A.private_bytes_raw()),
    ]
    assert len(set(derived)) == len(derived)
    assert {len(key) for key in derived} == {32}


def test_info_names_protocol_usage_roster_and_both_ends() -> None:
    assert key_info("share", DIGEST, 1, 258) == b"ldp-telemetry/secagg/v1/share" + DIGEST + bytes.fromhex(
        "0000000100000102"
    )


def test_sealed_pair_opens_for_its_reader_in_its_round_only() -> None:
    send, receive = keys.channel_keys(A, B.public_key(), DIGEST, 0, 1)
    theirs_send, theirs_receive = keys.channel_keys(B, A.public_key(), DIGEST, 1, 0)
    assert (send, receive) == (theirs_receive, theirs_send)
    sealed = keys.seal_pair(send, PAIR, DIGEST)
    assert len(sealed) == keys.SEALED_BYTES == 82
    assert keys.open_pair(theirs_receive, sealed, DIGEST) == PAIR
    assert keys.open_pair(theirs_send, sealed, DIGEST) is None
    assert keys.open_pair(theirs_receive, sealed, OTHER_DIGEST) is None
    for other in (
        sealed[:-1],
        sealed + b"\x00",
        b"",
        bytes([sealed[0] ^ 1]) + sealed[1:],
        sealed[:-1] + bytes([sealed[-1] ^ 1]),
    ):
        assert keys.open_pair(theirs_receive, other, DIGEST) is None


def u(value: int) -> bytes:
    return value.to_bytes(32, "little")


SMALL_ORDER = [0, 1, P - 1, *keys._ORDER_8_U]


@pytest.mark.parametrize("value", SMALL_ORDER, ids=["0", "1", "-1", "order 8", "order 8 too"])
def test_small_order_is_refused(value: int) -> None:
    """They are what they are called: every exchange with them gives zeros, which X25519 itself refuses."""
    assert not keys.is_valid_public(u(value))
    with pytest.raises(ValueError, match="shared key"):
        A.exchange(keys.load_public(u(value)))


@pytest.mark.parametrize("value", [P, P + 1, P + 9, 2**255 - 1, 2**255, 2**255 + 9, 2**256 - 1])
def test_non_canonical_encodings_are_refused(value: int) -> None:
    assert not keys.is_valid_public(u(value))


def test_a_non_canonical_encoding_is_the_same_key() -> None:
    """Why they are refused: 9 (the base point), 9 + p and 9 + 2^255 agree on the same secret."""
    secrets = {A.exchange(keys.load_public(u(value))) for value in (9, 9 + P, 9 + 2**255)}
    assert len(secrets) == 1
    assert keys.is_valid_public(u(9))


@pytest.mark.parametrize("key", [b"", bytes(31) + b"", b"\x09" + bytes(30), b"\x09" + bytes(32)])
def test_wrong_lengths_are_refused(key: bytes) -> None:
    assert not keys.is_valid_public(key)


def test_fresh_keys_are_accepted_and_secrets_stay_out_of_reprs() -> None:
    secrets = keys.RoundSecrets.draw(SeededEntropy(b"draw"))
    seeds = [getattr(secrets, f.name) for f in fields(secrets)]
    assert len(set(seeds)) == 3
    assert seeds[0] == SeededEntropy(b"draw")(96)[:32]
    assert repr(secrets) == "RoundSecrets()"
    assert repr(PAIR) == "SharePair()"
    for seed in seeds[:2]:
        assert keys.is_valid_public(keys.public_bytes(keys.load_private(seed)))
