"""Identities, signatures, derived keys and masks. Made with the SDK's own code."""

from __future__ import annotations

import hashlib
from typing import Any

from client_sdk.assertion import make_assertion
from client_sdk.identity import (
    IdentityKey,
    deletion_message,
    enrolment_message,
    length_prefixed,
    renewal_message,
)
from client_sdk.plan.signature import plan_message
from client_sdk.secagg import keys, masking, transcript
from tests.vectors.certificates import issued
from tests.vectors.layout import DIGEST, PERIOD_START, Entry, drawn, flipped

P = 2**255 - 19
ED25519_L = 2**252 + 27742317777372353535851937790883648493


def little(value: int) -> bytes:
    return value.to_bytes(32, "little")


# --- keys.json ---------------------------------------------------------------------------------------


def keys_document() -> dict[str, Any]:
    return {
        "about": "Section 3, 7 and 8 of protos/README.md: identities, what they sign, round keys, derived keys.",
        "identities": [_identity(f"identity {i}", name) for i, name in enumerate(("app-health", "a"))],
        "signatures": _signatures(),
        "round_keys": [
            {"seed": seed, "public_key": keys.public_bytes(keys.load_private(seed))}
            for seed in (drawn("round key"), bytes(32), b"\xff" * 32)
        ],
        "self_mask_commitments": [
            {"self_mask_seed": seed, "commitment": keys.self_mask_commitment(seed)} for seed in (drawn("s"), bytes(32))
        ],
        "derived_keys": list(_derived_keys()),
        "bad_x25519_keys": _bad_x25519_keys(),
        "bad_identity_keys": _bad_identity_keys(),
        "bad_signatures": _bad_signatures(),
    }


def _identity(label: str, plan_name: str) -> Entry:
    identity = IdentityKey(drawn(label))
    return {
        "seed": identity.seed,
        "identity_key": identity.public_key,
        "device_id": identity.device_id,
        "plan_name": plan_name,
        "period_start": PERIOD_START,
        "report_id": identity.report_id(plan_name, PERIOD_START),
    }


def _signatures() -> list[Entry]:
    identity, operator = IdentityKey(drawn("identity 0")), IdentityKey(drawn("operator"))
    certificate = issued(identity.public_key)
    plan_hash, method, name, at = drawn("plan hash"), "/ldp.telemetry.v1.ReportingService/GetPrivacy", "c:443", 1
    assertion = make_assertion(identity, certificate, method, name, at)
    asserted = length_prefixed(
        b"ldp-telemetry/assertion/v1", method.encode(), name.encode(), certificate, at.to_bytes(8, "big")
    )
    return [
        signed_entry("enrolment", identity, enrolment_message("a-token"), token="a-token"),
        signed_entry("renewal", identity, renewal_message(certificate), certificate=certificate),
        signed_entry(
            "deletion", identity, deletion_message(identity.public_key, PERIOD_START), requested_at=PERIOD_START
        ),
        signed_entry("plan", operator, plan_message(plan_hash), plan_hash=plan_hash),
        signed_entry(
            "assertion",
            identity,
            asserted,
            method=method,
            name=name,
            certificate=certificate,
            time=at,
            assertion=assertion,
        ),
    ]


def signed_entry(what: str, identity: IdentityKey, message: bytes, **given: Any) -> Entry:
    return {"what": what, "seed": identity.seed, **given, "message": message, "signature": identity.sign(message)}


def _derived_keys() -> list[Entry]:
    seed = drawn("self-mask seed")
    found: list[Entry] = [
        {
            "usage": "self-mask",
            "secret": seed,
            "first": 3,
            "second": 3,
            "info": transcript.key_info("self-mask", DIGEST, 3, 3),
            "key": keys.self_mask(seed, DIGEST, 3),
        }
    ]
    seeds = {3: drawn("mask key of 3"), 260: drawn("mask key of 260")}
    for me, other in ((3, 260), (260, 3)):
        private, peer = keys.load_private(seeds[me]), keys.public_bytes(keys.load_private(seeds[other]))
        key, sign = keys.pairwise_mask(private, keys.load_public(peer), DIGEST, me, other)
        sending, receiving = keys.channel_keys(private, keys.load_public(peer), DIGEST, me, other)
        ends: Entry = {"me": me, "other": other, "own_seed": seeds[me], "peer_key": peer}
        found += [
            _agreed("pairwise-mask", ends, (3, 260), key) | {"sign": sign},
            _agreed("share", ends, (me, other), sending),
            _agreed("share", ends, (other, me), receiving),
        ]
    return [{"usage": entry.pop("usage"), "roster_digest": DIGEST, **entry} for entry in found]


def _agreed(usage: str, ends: Entry, order: tuple[int, int], key: bytes) -> Entry:
    info = transcript.key_info(usage, DIGEST, *order)
    return {"usage": usage, **ends, "first": order[0], "second": order[1], "info": info, "key": key}


def _bad_x25519_keys() -> list[Entry]:
    good = keys.public_bytes(keys.load_private(drawn("round key")))
    order_8 = (
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
    bad = [
        ("31 bytes", good[:31]),
        ("33 bytes", good + b"\0"),
        ("no bytes", b""),
        ("u = 0", little(0)),
        ("u = 1, of order 4", little(1)),
        ("u = p - 1, of order 2", little(P - 1)),
        ("of order 8", little(order_8[0])),
        ("of order 8, the other", little(order_8[1])),
        ("u = p, another encoding of 0", little(P)),
        ("u = p + 1, another encoding of 1", little(P + 1)),
        ("u = p + 9, another encoding of the base point", little(P + 9)),
        ("u = 2^255 - 1", little(2**255 - 1)),
        ("the high bit of a good key set: X25519 gives the same secret", flipped(good, 31, 7)),
        ("of order 8 with the high bit set", flipped(little(order_8[0]), 31, 7)),
    ]
    return [{"key": key, "why": why, "refused": "bad_key"} for why, key in bad]


def _bad_identity_keys() -> list[Entry]:
    order_8 = int.from_bytes(
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
    )
    # R the neutral point, S zero: under the neutral point as key this holds over every message.
    forged = little(1) + bytes(32)
    bad = [
        ("y = 1, the neutral point: the signature holds over everything", little(1)),
        ("the neutral point with the sign bit set", flipped(little(1), 31, 7)),
        ("y = p - 1, of order 2", little(P - 1)),
        ("y = 0, of order 4", little(0)),
        ("y = 0 with the sign bit set", flipped(little(0), 31, 7)),
        ("of order 8", little(order_8)),
        ("of order 8, the other", little(P - order_8)),
        ("of order 8 with the sign bit set", flipped(little(order_8), 31, 7)),
        ("y = p, another encoding of 0", little(P)),
        ("y = p + 1, another encoding of the neutral point", little(P + 1)),
        ("y = 2^255 - 1", little(2**255 - 1)),
        ("31 bytes", little(9)[:31]),
        ("33 bytes", little(9) + b"\0"),
    ]
    entry = {"message": b"anything", "signature": forged, "refused": "bad_signature"}
    return [{"identity_key": key, "why": why, **entry} for why, key in bad]


def _bad_signatures() -> list[Entry]:
    identity, message = IdentityKey(drawn("identity 0")), b"a message"
    good = identity.sign(message)
    scalar = int.from_bytes(good[32:], "little") + ED25519_L
    other = IdentityKey(drawn("identity 1"))
    bad = [
        ("a bit of R", message, flipped(good, 0)),
        ("a bit of S", message, flipped(good, 32)),
        ("S + L, the same scalar not reduced", message, good[:32] + little(scalar)),
        ("63 bytes", message, good[:63]),
        ("65 bytes", message, good + b"\0"),
        ("another message", b"another message", good),
        ("another identity's", message, other.sign(message)),
    ]
    return [
        {"identity_key": identity.public_key, "why": w, "message": m, "signature": s, "refused": "bad_signature"}
        for w, m, s in bad
    ]


# --- masks.json --------------------------------------------------------------------------------------


def masks_document() -> dict[str, Any]:
    return {
        "about": "Section 8: PRG and masked vectors modulo 2^bits; `masks` are pairs of key and sign.",
        "streams": [_stream(key) for key in (drawn("mask 0"), bytes(32))],
        "masked": [_masked(bits, report) for bits, report in _reports().items()],
        "long": _long(),
    }


def _stream(key: bytes) -> Entry:
    elements = {}
    for bits in (16, 32, 64):
        vector = masking.zero_ring(256 // bits, bits)
        masking.add_masks(vector, [(key, 1)])
        elements[f"elements_{bits}"] = [int(element) for element in vector]
        stream = masking.ring_bytes(vector)
    return {"key": key, "stream": stream, **elements}


def _reports() -> dict[int, list[int]]:
    return {
        16: [0, 1, -1, 2**15 - 1, -(2**15), 7, -7],
        32: [0, 1, -1, 2**31 - 1, -(2**31)],
        64: [0, 1, -1, 2**63 - 1, -(2**63)],
    }


def _masked(bits: int, report: list[int]) -> Entry:
    masks = [(drawn(f"mask {i}"), sign) for i, sign in enumerate((1, 1, -1))]
    vector = masking.to_ring(report, bits)
    masking.add_masks(vector, masks)
    return {"bits": bits, "report": report, "masks": masks, "masked": masking.ring_bytes(vector)}


def _long() -> Entry:
    key, length, bits = drawn("mask 0"), 70_000, 64
    vector = masking.zero_ring(length, bits)
    masking.add_masks(vector, [(key, 1)])
    pieces = [
        {"offset": piece.offset, "bytes": len(piece.data), "sha256": hashlib.sha256(piece.data).digest()}
        for piece in masking.to_pieces(vector)
    ]
    return {"bits": bits, "report": f"{length} zeros", "length": length, "masks": [(key, 1)], "pieces": pieces}
