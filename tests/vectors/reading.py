"""The protocol by the words of protos/README.md: what a client in another language would be, written to judge vectors.

Only hashlib, hmac, `cryptography` and plain integers; nothing of the SDK. Section numbers are that page's.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

LABEL = b"ldp-telemetry/secagg/v1/"
P = 2**255 - 19
PRIME = 2**256 + 297
YEAR_9999 = 253_402_300_799
ORDER_8_U = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)

# --- 1 Conventions -----------------------------------------------------------------------------------


def field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def integer(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


# --- 3 Identity --------------------------------------------------------------------------------------


def identity_key(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def sign(seed: bytes, message: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).sign(message)


def report_id(seed: bytes, plan_name: str, period_start: int) -> bytes:
    key = hmac.digest(seed, b"ldp-telemetry/report-id/v1\x01", "sha256")
    return hmac.digest(key, field(plan_name.encode()) + integer(period_start), "sha256")[:16]


def is_identity(key: bytes) -> bool:
    """Canonical and not of small order: of order 8 are the y with (y^2 - 1) = 2 x^2 ... , computed, not copied."""
    if len(key) != 32:
        return False
    y = int.from_bytes(key, "little") & (2**255 - 1)
    return y < P and not _has_small_order(y)


def _has_small_order(y: int) -> bool:
    """Does 8 times the point (x, y) give the neutral one? Doubling needs only y^2: on the curve x^2 follows from it."""
    d = -121665 * pow(121666, -1, P) % P
    for _ in range(3):
        y2 = y * y % P
        x2 = (y2 - 1) * pow(d * y2 + 1, -1, P) % P
        # -x^2 + y^2 = 1 + d x^2 y^2: the double's y is (y^2 + x^2) / (1 - d x^2 y^2).
        y = (y2 + x2) * pow(1 - d * x2 * y2, -1, P) % P
    return y == 1


def holds(key: bytes, signature: bytes, message: bytes) -> bool:
    if not is_identity(key):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def certificate(registrar_seed: bytes, role: int, key: bytes, issued_at: int, expires_at: int) -> bytes:
    body = bytes([1, role]) + key + integer(issued_at) + integer(expires_at)
    return body + sign(registrar_seed, field(b"ldp-telemetry/certificate/v1") + field(body))


def certificate_fault(data: bytes, registrar_key: bytes, key: bytes, role: int, at: int) -> str | None:
    """What is wrong with it, the cheap faults first; None where it holds."""
    if len(data) != 114 or data[0] != 1 or data[1] not in (1, 2, 3, 4):
        return "malformed"
    issued_at, expires_at = int.from_bytes(data[34:42], "big"), int.from_bytes(data[42:50], "big")
    if not issued_at < expires_at <= YEAR_9999:
        return "malformed"
    if data[2:34] != key:
        return "wrong_identity"
    if data[1] != role:
        return "wrong_role"
    if at >= expires_at:
        return "expired"
    message = field(b"ldp-telemetry/certificate/v1") + field(data[:50])
    return None if holds(registrar_key, data[50:], message) else "bad_signature"


# --- 6 Numbers and the graph -------------------------------------------------------------------------


def complete_threshold(size: int, corrupt: Fraction) -> int:
    return (size + floor(corrupt * size)) // 2 + 1


def min_roster(min_size: int, dropout: Fraction) -> int:
    return -floor(-min_size / (1 - dropout))


def ring_bits(size: int, bound: int) -> int | None:
    return next((bits for bits in (16, 32, 64) if size * bound < 2 ** (bits - 1)), None)


def ring_order(digest: bytes, size: int) -> list[int]:
    stream = keystream(sha256(LABEL + b"graph", digest), 8 * size)
    return sorted(range(size), key=lambda i: (int.from_bytes(stream[8 * i : 8 * i + 8], "little"), i))


def neighbours(digest: bytes, size: int, degree: int, member: int) -> list[int]:
    if degree == size - 1:
        return [other for other in range(size) if other != member]
    order = ring_order(digest, size)
    place, half = order.index(member), degree // 2
    return sorted(order[(place + step) % size] for step in range(-half, half + 1) if step)


def holders(digest: bytes, size: int, degree: int, owner: int) -> list[int]:
    return list(range(size)) if degree == size - 1 else neighbours(digest, size, degree, owner)


# --- 7 Byte strings ----------------------------------------------------------------------------------

ADVERT_FIELDS = ("identity_key", "certificate", "plan_hash", "period_start", "report_id", "nonce", "mask_key",
                 "channel_key", "self_mask_commitment", "resent", "min_cohort")  # fmt: skip


def advert_message(advert: Mapping[str, object]) -> bytes:
    parts = [field(LABEL + b"advert")]
    for name in ADVERT_FIELDS:
        value = advert[name]
        parts.append(field(value) if isinstance(value, bytes) else integer(int(value)))  # type: ignore[call-overload]
    return b"".join(parts)


def advert_digest(advert: Mapping[str, object], signature: bytes) -> bytes:
    return sha256(field(LABEL + b"advert-digest"), field(advert_message(advert)), field(signature))


Node = tuple[bytes, int, int]


class ProofError(Exception):
    """A proof that a reader refuses."""


def node(data: bytes) -> Node:
    if len(data) != 40:
        raise ProofError("wrong_length")
    return data[:32], int.from_bytes(data[32:36], "big"), int.from_bytes(data[36:], "big")


def node_bytes(one: Node) -> bytes:
    return one[0] + one[1].to_bytes(4, "big") + one[2].to_bytes(4, "big")


def node_field(one: Node) -> bytes:
    return field(one[0]) + integer(one[1]) + integer(one[2])


def fold(size: int, known: Mapping[int, Node], proof: Iterable[bytes]) -> Node:
    """The root from the leaves that a reader knows and a proof."""
    rest = iter(proof)

    def over(start: int, end: int) -> Node:
        if not any(start <= index < end for index in known):
            given = next(rest, None)
            if given is None:
                raise ProofError("too_short")
            found = node(given)
            if not found[2] <= found[1] <= end - start:
                raise ProofError("overcounts")
            return found
        if end - start == 1:
            return known[start]
        middle = start + max(2**k for k in range(15) if 2**k < end - start)
        return parent(over(start, middle), over(middle, end))

    root = over(0, size)
    if next(rest, None) is not None:
        raise ProofError("too_long")
    return root


def parent(left: Node, right: Node) -> Node:
    digest = sha256(LABEL + b"tree-node", node_bytes(left), node_bytes(right))
    return digest, left[1] + right[1], left[2] + right[2]


def roster_leaf(index: int, digest: bytes, resent: bool) -> Node:
    return sha256(field(LABEL + b"roster-leaf"), integer(index), field(digest)), 1, int(resent)


def roster_digest(round_id: str, numbers: Sequence[int], root: Node) -> bytes:
    """numbers: n, degree, threshold, bits, length, bound, min_size, four of fractions, max_wait, formed_at."""
    parts = [field(LABEL + b"roster"), field(round_id.encode()), *map(integer, numbers), node_field(root)]
    return sha256(*parts)


def status_leaf(digest: bytes, index: int, status: int, resent: bool) -> Node:
    hashed = sha256(field(LABEL + b"status-leaf"), field(digest), integer(index), integer(status))
    return hashed, int(status == 2), int(status == 2 and resent)


def status_root(digest: bytes, root: Node) -> bytes:
    return sha256(field(LABEL + b"status"), field(digest), node_field(root))


def confirm_message(digest: bytes, root: bytes) -> bytes:
    return field(LABEL + b"confirm") + field(digest) + field(root)


def share_hash(digest: bytes, owner: int, holder: int, kind: int, share: bytes) -> bytes:
    ends = owner.to_bytes(4, "big") + holder.to_bytes(4, "big")
    return sha256(LABEL + b"share-hash", digest, ends, bytes([kind]), share)


def hashes_message(digest: bytes, owner: int, hashes: bytes) -> bytes:
    return field(LABEL + b"share-hashes") + field(digest) + integer(owner) + field(hashes)


def commitment(self_mask_seed: bytes) -> bytes:
    return sha256(LABEL + b"self-mask-commitment", self_mask_seed)


def info(usage: str, digest: bytes, first: int, second: int) -> bytes:
    return LABEL + usage.encode() + digest + first.to_bytes(4, "big") + second.to_bytes(4, "big")


def derive(secret: bytes, usage: str, digest: bytes, first: int, second: int) -> bytes:
    return HKDF(SHA256(), 32, None, info(usage, digest, first, second)).derive(secret)


# --- 8 Cryptography ----------------------------------------------------------------------------------


def round_key(seed: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def agree(seed: bytes, peer: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(seed).exchange(X25519PublicKey.from_public_bytes(peer))


def is_round_key(key: bytes) -> bool:
    u = int.from_bytes(key, "little")
    return len(key) == 32 and u < P and u not in (0, 1, P - 1, *ORDER_8_U)


def share_of(secret: bytes, coefficients: Sequence[bytes], x: int) -> bytes:
    value = int.from_bytes(secret, "big")
    for power, coefficient in enumerate(coefficients, 1):
        value += int.from_bytes(coefficient, "big") * pow(x, power, PRIME)
    return (value % PRIME).to_bytes(33, "big")


class SharesError(Exception):
    """Shares that give no seed."""


def is_share(share: bytes) -> bool:
    return len(share) == 33 and int.from_bytes(share, "big") < PRIME


def seed_of(xs: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Lagrange at zero, by the book."""
    distinct = len(set(xs)) == len(xs) == len(shares) and 0 not in xs
    if not distinct or not all(map(is_share, shares)):
        raise SharesError("malformed")
    total = 0
    for x, share in zip(xs, shares, strict=True):
        weight = 1
        for y in xs:
            if y != x:
                weight = weight * y * pow(y - x, -1, PRIME) % PRIME
        total += weight * int.from_bytes(share, "big")
    if total % PRIME >= 2**256:
        raise SharesError("wrong_shares")
    return (total % PRIME).to_bytes(32, "big")


def seal(key: bytes, mask_share: bytes, self_share: bytes, digest: bytes) -> bytes:
    return ChaCha20Poly1305(key).encrypt(bytes(12), mask_share + self_share, digest)


def usable_pair(key: bytes, sealed: bytes, digest: bytes, ends: tuple[int, int], hashes: bytes) -> list[bytes] | None:
    """Both shares where the pair opened and fits its owner's hashes. ends: owner, holder."""
    if len(sealed) != 82:
        return None
    try:
        plain = ChaCha20Poly1305(key).decrypt(bytes(12), sealed, digest)
    except InvalidTag:
        return None
    pair = [plain[:33], plain[33:]]
    hashed = b"".join(share_hash(digest, *ends, kind, share) for kind, share in enumerate(pair))
    return pair if all(map(is_share, pair)) and hashed == hashes else None


def keystream(key: bytes, size: int) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def elements(data: bytes, bits: int) -> list[int]:
    step = bits // 8
    return [int.from_bytes(data[at : at + step], "little") for at in range(0, len(data), step)]


def masked(report: Sequence[int], masks: Iterable[tuple[bytes, int]], bits: int) -> bytes:
    vector, step = list(report), bits // 8
    for key, signed in masks:
        stream = elements(keystream(key, step * len(vector)), bits)
        vector = [value + signed * mask for value, mask in zip(vector, stream, strict=True)]
    return b"".join((value % 2**bits).to_bytes(step, "little") for value in vector)


def signed_elements(data: bytes, bits: int) -> list[int]:
    half = 2 ** (bits - 1)
    return [(value + half) % 2**bits - half for value in elements(data, bits)]


# --- 16 Direct delivery ------------------------------------------------------------------------------


def direct_offer_message(
    key: bytes, certificate: bytes, nonce: bytes, reports: Sequence[Mapping[str, object]]
) -> bytes:
    """reports: plan_hash, period_start, report_id, resent of each."""
    listed = b"".join(
        field(bytes(one["plan_hash"]))  # type: ignore[call-overload]
        + integer(int(one["period_start"]))  # type: ignore[call-overload]
        + field(bytes(one["report_id"]))  # type: ignore[call-overload]
        + integer(int(bool(one["resent"])))
        for one in reports
    )
    head = field(b"ldp-telemetry/direct/v1/offer") + field(key) + field(certificate) + field(nonce)
    return head + integer(len(reports)) + listed


def direct_seal_message(offered: bytes, sent: Mapping[int, bytes]) -> bytes:
    """sent: packed reports by place."""
    digests = b"".join(integer(place) + field(sha256(sent[place])) for place in sorted(sent))
    return field(b"ldp-telemetry/direct/v1/seal") + field(sha256(offered)) + integer(len(sent)) + digests


def packed_report(elements: Sequence[int], bound: int) -> bytes:
    width = next(w for w in (1, 2, 4, 8) if bound < 1 << (8 * w - 1))
    return bytes([width]) + b"".join(element.to_bytes(width, "little", signed=True) for element in elements)
