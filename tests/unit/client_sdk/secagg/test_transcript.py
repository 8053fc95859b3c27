"""Canonical strings: every field counts, no two inputs share a string."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from fractions import Fraction

import pytest

from client_sdk.secagg.messages import Advert
from client_sdk.secagg.transcript import advert_digest, advert_message, roster_digest, status_root
from tests.fleet import rules

ADVERT = Advert(
    identity_key=b"i" * 32,
    certificate=b"",
    plan_hash=b"p" * 32,
    period_start=1_767_225_600,
    report_id=b"r" * 16,
    nonce=b"n" * 32,
    mask_key=b"m" * 32,
    channel_key=b"c" * 32,
    self_mask_commitment=b"s" * 32,
    resent=False,
    min_cohort=7,
    signature=b"S" * 64,
)


def changed(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, Fraction):
        return value + Fraction(1, 1000)
    if isinstance(value, bytes):
        return value + b"\x00"
    return f"{value}x"


@pytest.mark.parametrize("name", [f.name for f in fields(Advert)])
def test_every_field_of_an_advert_is_bound(name: str) -> None:
    other = replace(ADVERT, **{name: changed(getattr(ADVERT, name))})
    assert advert_digest(other) != advert_digest(ADVERT)
    assert (advert_message(other) != advert_message(ADVERT)) is (name != "signature")


def test_bytes_cannot_move_between_fields() -> None:
    left = replace(ADVERT, mask_key=b"ab", channel_key=b"c")
    right = replace(ADVERT, mask_key=b"a", channel_key=b"bc")
    assert advert_message(left) != advert_message(right)


def test_advert_message_as_specified() -> None:
    def part(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    expected = (
        part(b"ldp-telemetry/secagg/v1/advert")
        + part(b"i" * 32)
        + part(b"")
        + part(b"p" * 32)
        + (1_767_225_600).to_bytes(8, "big")
        + part(b"r" * 16)
        + part(b"n" * 32)
        + part(b"m" * 32)
        + part(b"c" * 32)
        + part(b"s" * 32)
        + (0).to_bytes(8, "big")
        + (7).to_bytes(8, "big")
    )
    assert advert_message(ADVERT) == expected
    digest = hashlib.sha256(part(b"ldp-telemetry/secagg/v1/advert-digest") + part(expected) + part(b"S" * 64))
    assert advert_digest(ADVERT) == digest.digest()


RULES = rules()
ROSTER = ("round", RULES, 3, 16, 1000, [ADVERT, replace(ADVERT, nonce=b"N" * 32)])


def test_every_part_of_a_roster_is_bound() -> None:
    variants = [ROSTER]
    for place in (0, 2, 3, 4):
        variants.append((*ROSTER[:place], changed(ROSTER[place]), *ROSTER[place + 1 :]))
    for f in fields(RULES):
        variants.append((ROSTER[0], replace(RULES, **{f.name: changed(getattr(RULES, f.name))}), *ROSTER[2:]))
    adverts = ROSTER[5]
    variants += [(*ROSTER[:5], adverts[::-1]), (*ROSTER[:5], adverts[:1]), (*ROSTER[:5], [*adverts, ADVERT])]
    digests = [roster_digest(*variant) for variant in variants]
    assert len(set(digests)) == len(variants) == 14


def test_every_part_of_a_status_is_bound() -> None:
    statuses = [
        (bytes(32), (0, 1, 2), (0, 1), 0),
        (b"\x01" + bytes(31), (0, 1, 2), (0, 1), 0),
        (bytes(32), (0, 1, 3), (0, 1), 0),
        (bytes(32), (0, 1, 2), (0, 2), 0),
        (bytes(32), (0, 1, 2), (0, 1), 1),
        (bytes(32), (0, 1), (2, 0, 1), 0),
        (bytes(32), (0, 1, 2, 0, 1), (), 0),
    ]
    assert len({status_root(*status) for status in statuses}) == len(statuses)
