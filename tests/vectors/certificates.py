"""Certificates: good ones, and one of each kind of bad one. Made with the SDK's own code."""

from __future__ import annotations

from typing import Any

from client_sdk.certificate import MAX_TIME_S, Certificate, Role, issue
from client_sdk.identity import IdentityKey, length_prefixed
from tests.vectors.layout import PERIOD_START, Entry, drawn, flipped

# --- certificates.json -------------------------------------------------------------------------------

REGISTRAR = IdentityKey(drawn("registrar"))
ISSUED_AT, EXPIRES_AT = PERIOD_START - 86_400, PERIOD_START + 30 * 86_400


def issued(identity_key: bytes, **changes: Any) -> bytes:
    facts = {"role": Role.DEVICE, "issued_at": ISSUED_AT, "expires_at": EXPIRES_AT} | changes
    registrar = facts.pop("registrar", REGISTRAR)
    return issue(registrar, Certificate(identity_key=identity_key, **facts))


def certificates_document() -> dict[str, Any]:
    key = IdentityKey(drawn("identity 0")).public_key
    asked = {"registrar_key": REGISTRAR.public_key, "identity_key": key, "role": 1, "at": PERIOD_START}
    good = [
        {"role": 1, "issued_at": ISSUED_AT, "expires_at": EXPIRES_AT, "at": PERIOD_START},
        {"role": 1, "issued_at": ISSUED_AT, "expires_at": EXPIRES_AT, "at": EXPIRES_AT - 1},
        {"role": 2, "issued_at": 0, "expires_at": 1, "at": 0},
        {"role": 4, "issued_at": 0, "expires_at": MAX_TIME_S, "at": 0},
    ]
    entries = []
    for facts in good:
        terms = {name: facts[name] for name in ("issued_at", "expires_at")}
        data = issued(key, role=Role(facts["role"]), **terms)
        entries.append(
            {"registrar_seed": REGISTRAR.seed, "registrar_key": REGISTRAR.public_key, "identity_key": key}
            | facts
            | {"certificate": data}
        )
    return {
        "about": "Section 3: certificates, and at which time `at` they are asked for which identity and role.",
        "good": entries,
        "bad": [{"certificate": c, "why": w, "refused": r} | asked | changes for w, r, c, changes in _bad(key)],
    }


def _resigned(body: bytes) -> bytes:
    return body + REGISTRAR.sign(length_prefixed(b"ldp-telemetry/certificate/v1", body))


def _bad(key: bytes) -> list[tuple[str, str, bytes, Entry]]:
    good = issued(key)
    body = good[:50]
    other = IdentityKey(drawn("identity 1")).public_key
    times = ISSUED_AT.to_bytes(8, "big") * 2
    endless = body[:42] + (MAX_TIME_S + 1).to_bytes(8, "big")
    foreign = issued(key, registrar=IdentityKey(drawn("another registrar")))
    later = good[:42] + (EXPIRES_AT + 1).to_bytes(8, "big") + good[50:]
    return [
        ("none", "malformed", b"", {}),
        ("113 bytes", "malformed", good[:113], {}),
        ("115 bytes", "malformed", good + b"\0", {}),
        ("version 0", "malformed", _resigned(b"\0" + body[1:]), {}),
        ("version 2", "malformed", _resigned(b"\2" + body[1:]), {}),
        ("role 0", "malformed", _resigned(body[:1] + b"\0" + body[2:]), {}),
        ("role 5", "malformed", _resigned(body[:1] + b"\5" + body[2:]), {}),
        ("it ends when it begins", "malformed", _resigned(body[:34] + times), {}),
        ("it ends after the year 9999", "malformed", _resigned(endless), {}),
        ("another identity's", "wrong_identity", issued(other), {}),
        ("an analyst's", "wrong_role", issued(key, role=Role.ANALYST), {}),
        ("expired a second ago", "expired", good, {"at": EXPIRES_AT + 1}),
        ("expires now", "expired", good, {"at": EXPIRES_AT}),
        ("another registrar's", "bad_signature", foreign, {}),
        ("made to last longer", "bad_signature", later, {}),
        ("a bit of the signature", "bad_signature", flipped(good, -1), {}),
        ("signed without label", "bad_signature", body + REGISTRAR.sign(body), {}),
        ("signed by the identity itself", "bad_signature", body + _own_signature(body), {}),
    ]


def _own_signature(body: bytes) -> bytes:
    return IdentityKey(drawn("identity 0")).sign(length_prefixed(b"ldp-telemetry/certificate/v1", body))
