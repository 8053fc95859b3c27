"""Canonical strings: every field counts, no two inputs share a string."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest

from client_sdk.secagg.merkle import Node
from client_sdk.secagg.messages import Advert
from client_sdk.secagg.transcript import (
    ShareKind,
    Status,
    advert_digest,
    advert_message,
    confirm_message,
    roster_digest,
    roster_leaf,
    share_hash,
    share_hashes_message,
    status_leaf,
    status_root,
)
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
ROOT = Node(b"d" * 32, 2, 1)
ROSTER = ("round", RULES, 2, 1, 3, 16, 1000, ROOT)


def test_every_part_of_a_roster_is_bound() -> None:
    variants: list[Any] = [ROSTER]
    for place in (0, 2, 3, 4, 5, 6):
        variants.append((*ROSTER[:place], changed(ROSTER[place]), *ROSTER[place + 1 :]))
    for f in fields(RULES):
        variants.append((ROSTER[0], replace(RULES, **{f.name: changed(getattr(RULES, f.name))}), *ROSTER[2:]))
    for name in Node._fields:
        variants.append((*ROSTER[:-1], ROOT._replace(**{name: changed(getattr(ROOT, name))})))
    digests = [roster_digest(*variant) for variant in variants]
    assert len(set(digests)) == len(variants) == 1 + 6 + 6 + 3


def test_a_roster_leaf_binds_place_and_advert_and_counts_one_member() -> None:
    leaf = roster_leaf(3, ADVERT)
    assert (leaf.first, leaf.second) == (1, 0)
    resent = roster_leaf(3, replace(ADVERT, resent=True))
    assert (resent.first, resent.second) == (1, 1)
    others = [roster_leaf(4, ADVERT), resent, roster_leaf(3, replace(ADVERT, signature=bytes(64)))]
    assert len({leaf.digest, *(other.digest for other in others)}) == 4


def test_a_status_leaf_binds_roster_place_and_status_and_counts_survivors() -> None:
    leaves = {
        (digest, index, status, resent): status_leaf(digest, index, status, resent=resent)
        for digest in (bytes(32), b"\x01" + bytes(31))
        for index in (0, 1, 256)
        for status in Status
        for resent in (False, True)
    }
    for (_, _, status, resent), leaf in leaves.items():
        survived = int(status is Status.SURVIVED)
        assert (leaf.first, leaf.second) == (survived, survived * resent)
    assert len({leaf.digest for leaf in leaves.values()}) == 2 * 3 * 3


def test_every_part_of_a_status_and_a_confirmation_is_bound() -> None:
    digests = [bytes(32), b"\x01" + bytes(31)]
    nodes = [ROOT, *(ROOT._replace(**{name: changed(getattr(ROOT, name))}) for name in Node._fields)]
    assert len({status_root(digest, node) for digest in digests for node in nodes}) == 8
    assert len({confirm_message(digest, root) for digest in digests for root in digests}) == 4


def test_a_share_hash_binds_share_kind_and_both_ends() -> None:
    share = bytes(33)
    hashes = [
        share_hash(digest, owner, holder, kind, data)
        for digest in (bytes(32), b"\x01" + bytes(31))
        for owner, holder in ((0, 1), (1, 0), (1, 1))
        for kind in ShareKind
        for data in (share, b"\x01" + share[1:])
    ]
    assert len(set(hashes)) == 24
    info = b"ldp-telemetry/secagg/v1/share-hash" + bytes(32) + bytes.fromhex("0000000000000001")
    assert hashes[0] == hashlib.sha256(info + b"\x00" + share).digest()


def test_the_signed_hashes_bind_roster_and_owner() -> None:
    hashes = bytes(64)
    messages = [
        share_hashes_message(digest, owner, data)
        for digest in (bytes(32), b"\x01" + bytes(31))
        for owner in (0, 1)
        for data in (hashes, hashes[:-1] + b"\x01", hashes * 2)
    ]
    assert len(set(messages)) == 12


def test_no_signature_can_be_taken_for_another_kind() -> None:
    """What a member signs begins with its usage: neither string is ever the beginning of another kind."""
    signed = [
        advert_message(ADVERT),
        share_hashes_message(bytes(32), 0, bytes(64)),
        confirm_message(bytes(32), bytes(32)),
    ]
    usages = [b"advert", b"share-hashes", b"confirm"]
    for message, usage in zip(signed, usages, strict=True):
        label = b"ldp-telemetry/secagg/v1/" + usage
        assert message.startswith(len(label).to_bytes(4, "big") + label)
