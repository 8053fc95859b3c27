"""Canonical byte strings: what is signed, what is hashed, what every derived key is bound to.

Rules of this file: every string begins with protocol, version and its own usage; byte fields go behind their
length, integers as eight bytes, lists behind their count, so no two different inputs give the same bytes; nothing
here is secret. What it does not do: it verifies no signature and judges no content.

Layout: `field(b)` = length of b as 4 bytes big endian, then b; `integer(i)` = 8 bytes big endian, two's
complement; `list` = integer(count), then the items. A string is field(label) and then its items in the order given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from client_sdk.secagg.messages import Advert
from client_sdk.secagg.parameters import RoundRules

PROTOCOL: Final = b"ldp-telemetry/secagg/v1/"


def label(usage: str) -> bytes:
    """Protocol, version and usage: the beginning of every signed, hashed or key-deriving string."""
    return PROTOCOL + usage.encode("ascii")


def advert_message(advert: Advert) -> bytes:
    """What an advert's signature covers: every field but the signature. The nonce makes it good for one join."""
    return b"".join(
        (
            _field(label("advert")),
            _field(advert.identity_key),
            _field(advert.certificate),
            _field(advert.plan_hash),
            _integer(advert.period_start),
            _field(advert.report_id),
            _field(advert.nonce),
            _field(advert.mask_key),
            _field(advert.channel_key),
            _field(advert.self_mask_commitment),
            _integer(int(advert.resent)),
            _integer(advert.min_cohort),
        )
    )


def advert_digest(advert: Advert) -> bytes:
    """SHA-256 over the label, the signed message and the signature."""
    return _sha256(_field(label("advert-digest")), _field(advert_message(advert)), _field(advert.signature))


def roster_digest(
    round_id: str, rules: RoundRules, threshold: int, bits: int, formed_at: int, adverts: Sequence[Advert]
) -> bytes:
    """SHA-256 over the round's parameters and every member's advert, in roster order."""
    return _sha256(
        _field(label("roster")),
        _field(round_id.encode()),
        _integer(len(adverts)),
        _integer(threshold),
        _integer(bits),
        _integer(rules.length),
        _integer(rules.bound),
        _integer(rules.min_size),
        _fraction(rules.corrupt_fraction),
        _fraction(rules.dropout_fraction),
        _integer(rules.max_wait_s),
        _integer(formed_at),
        *(_field(advert_digest(advert)) for advert in adverts),
    )


def status_root(roster_digest: bytes, sharers: Sequence[int], survivors: Sequence[int], resent_survivors: int) -> bytes:
    """SHA-256 over the roster, who shared, who survived (both ascending) and how many survivors are resent.

    Enough for the complete graph, where everybody knows every member. A sparse graph needs a tree with proofs.
    """
    return _sha256(
        _field(label("status")),
        _field(roster_digest),
        _indices(sharers),
        _indices(survivors),
        _integer(resent_survivors),
    )


def key_info(usage: str, roster_digest: bytes, first: int, second: int) -> bytes:
    """HKDF `info`: label, roster digest (32 bytes), two roster indices as 4 bytes big endian each.

    All but the label have fixed lengths at the end of the string, so it needs no length prefixes.
    """
    return label(usage) + roster_digest + first.to_bytes(4, "big") + second.to_bytes(4, "big")


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _integer(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _fraction(value: Fraction) -> bytes:
    return _integer(value.numerator) + _integer(value.denominator)


def _indices(indices: Iterable[int]) -> bytes:
    packed = [_integer(index) for index in indices]
    return _integer(len(packed)) + b"".join(packed)


def _sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()
