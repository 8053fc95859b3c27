"""Canonical byte strings: what is signed, what is hashed, what every derived key is bound to.

Rules of this file: every string begins with protocol, version and its own usage; byte fields go behind their
length, integers as eight bytes, lists behind their count, so no two different inputs give the same bytes; nothing
here is secret. What it does not do: it verifies no signature and judges no content.

Layout: `field(b)` = length of b as 4 bytes big endian, then b; `integer(i)` = 8 bytes big endian, two's
complement; `list` = integer(count), then the items. A string is field(label) and then its items in the order given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from fractions import Fraction
from typing import Final

from client_sdk.secagg.merkle import Node
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


def roster_leaf(index: int, advert: Advert) -> Node:
    """Member `index` in the roster's tree: its advert, one member, and whether it is resent."""
    digest = _sha256(_field(label("roster-leaf")), _integer(index), _field(advert_digest(advert)))
    return Node(digest, 1, int(advert.resent))


def roster_digest(
    round_id: str, rules: RoundRules, size: int, degree: int, threshold: int, bits: int, formed_at: int, root: Node
) -> bytes:
    """SHA-256 over the round's parameters and the root over every member's advert. The graph is drawn from it."""
    return _sha256(
        _field(label("roster")),
        _field(round_id.encode()),
        _integer(size),
        _integer(degree),
        _integer(threshold),
        _integer(bits),
        _integer(rules.length),
        _integer(rules.bound),
        _integer(rules.min_size),
        _fraction(rules.corrupt_fraction),
        _fraction(rules.dropout_fraction),
        _integer(rules.max_wait_s),
        _integer(formed_at),
        _node(root),
    )


class Status(IntEnum):
    """What became of a member between roster and unmasking."""

    ABSENT = 0  # dealt no shares: nobody masks with it
    DROPPED = 1  # dealt shares, sent no whole masked input: its mask-key seed is opened
    SURVIVED = 2  # its masked input is in the sum: its self-mask seed is opened


def status_leaf(roster_digest: bytes, index: int, status: Status, *, resent: bool) -> Node:
    """Member `index` in the status tree. Sums: survivors, and resent ones among them."""
    digest = _sha256(_field(label("status-leaf")), _field(roster_digest), _integer(index), _integer(status))
    survived = int(status is Status.SURVIVED)
    return Node(digest, survived, survived * int(resent))


def status_root(roster_digest: bytes, root: Node) -> bytes:
    """SHA-256 over the roster and the root over every member's status, both sums included."""
    return _sha256(_field(label("status")), _field(roster_digest), _node(root))


def confirm_message(roster_digest: bytes, status_root: bytes) -> bytes:
    """What a confirmation's signature covers."""
    return _field(label("confirm")) + _field(roster_digest) + _field(status_root)


class ShareKind(IntEnum):
    """Which of a member's two seeds a share belongs to."""

    MASK_KEY = 0
    SELF_MASK = 1


def share_hash(roster_digest: bytes, owner: int, holder: int, kind: ShareKind, share: bytes) -> bytes:
    """SHA-256 over one share and its place. A share is as random as the seed it belongs to, so this hides it."""
    return hashlib.sha256(key_info("share-hash", roster_digest, owner, holder) + bytes([kind]) + share).digest()


def share_hashes_of_holder(
    roster_digest: bytes, holder: int, owners: Iterable[int], kinds: Iterable[ShareKind], shares: Iterable[bytes]
) -> list[bytes]:
    """`share_hash` of one share of each owner, all held by `holder`: what they have in common is written once."""
    head, after = label("share-hash") + roster_digest, holder.to_bytes(4, "big")
    behind = {kind: after + bytes([kind]) for kind in ShareKind}
    sha256 = hashlib.sha256
    return [
        sha256(head + owner.to_bytes(4, "big") + behind[kind] + share).digest()
        for owner, kind, share in zip(owners, kinds, shares, strict=True)
    ]


def share_hashes_message(roster_digest: bytes, owner: int, share_hashes: bytes) -> bytes:
    """What an owner's signature over the hashes of all the shares it dealt covers."""
    return _field(label("share-hashes")) + _field(roster_digest) + _integer(owner) + _field(share_hashes)


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


def _node(node: Node) -> bytes:
    return _field(node.digest) + _integer(node.first) + _integer(node.second)


def _sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()
