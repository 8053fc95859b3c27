"""A device's identity: one Ed25519 key pair, and everything that is derived from its seed.

Rules of this file: the seed never leaves the object in a repr, an exception or a signature input; the
public key's hash is the only name a device has; `verify` answers True or False to whatever bytes come in.
What it does not do: it draws no seed (the device's storage does, from the operating system) and keeps none;
it says nothing about whether an identity is enrolled.

Ed25519 is RFC 8032. `verify` also refuses keys of small order and non-canonical key encodings: under such a
key anybody's signature holds, so an identity made of it would belong to everybody.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SEED_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 32
DEVICE_ID_BYTES: Final = 16
REPORT_ID_BYTES: Final = 16

ENROLMENT_LABEL: Final = b"ldp-telemetry/enrolment/v1"
RENEWAL_LABEL: Final = b"ldp-telemetry/renewal/v1"
DELETION_LABEL: Final = b"ldp-telemetry/deletion/v1"
REPORT_ID_LABEL: Final = b"ldp-telemetry/report-id/v1"

_P: Final = 2**255 - 19
_ORDER_8_Y: Final = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_SMALL_ORDER_Y: Final = frozenset({0, 1, _P - 1, _ORDER_8_Y, _P - _ORDER_8_Y})


@dataclass(frozen=True, eq=False)
class IdentityKey:
    """The private half of an identity. `seed`: 32 bytes; raises ValueError for any other length.

    The key object is built on first use and kept: building costs more than a signature.
    """

    seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_BYTES:
            raise ValueError(f"an identity's seed is {SEED_BYTES} bytes")

    def __repr__(self) -> str:
        return f"IdentityKey(device_id={self.device_id!r})"

    @cached_property
    def _private_key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public_key(self) -> bytes:
        """The Ed25519 public key, 32 bytes: what travels as `identity_key`."""
        return self._private_key.public_key().public_bytes_raw()

    @cached_property
    def device_id(self) -> str:
        """The device's name: 32 hex digits, see `device_id_of`."""
        return device_id_of(self.public_key)

    @cached_property
    def _report_id_key(self) -> bytes:
        # HKDF-Expand (RFC 5869) to one block; the seed is uniform, so Extract has nothing to do.
        return hmac.digest(self.seed, REPORT_ID_LABEL + b"\x01", "sha256")

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature, 64 bytes.

        Messages begin with a length-prefixed label, so that none can be taken for another kind.
        """
        return self._private_key.sign(message)

    def report_id(self, plan_name: str, period_start: int) -> bytes:
        """The name of this device's report of one period, 16 bytes, over all attempts and plan versions.

        A PRF: without the seed it links neither to the identity nor to another period's report.
        """
        message = length_prefixed(plan_name.encode()) + period_start.to_bytes(8, "big", signed=True)
        return hmac.digest(self._report_id_key, message, "sha256")[:REPORT_ID_BYTES]


def device_id_of(public_key: bytes) -> str:
    """First 16 bytes of SHA-256 of the identity's public key, in hex."""
    return hashlib.sha256(public_key).digest()[:DEVICE_ID_BYTES].hex()


def length_prefixed(*parts: bytes) -> bytes:
    """Each part behind its length as four bytes, big endian: no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def enrolment_message(token: str) -> bytes:
    """What a device signs to enrol: it holds the private key, and it means this token."""
    return length_prefixed(ENROLMENT_LABEL, token.encode())


def renewal_message(certificate: bytes) -> bytes:
    """What a device signs to have `certificate` replaced by a later one."""
    return length_prefixed(RENEWAL_LABEL, certificate)


def deletion_message(public_key: bytes, requested_at: int) -> bytes:
    """What an identity signs when its user opts out, at `requested_at` (seconds since the epoch)."""
    return length_prefixed(DELETION_LABEL, public_key, requested_at.to_bytes(8, "big"))


def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Does `signature` over `message` hold under `public_key`? False for malformed input of any kind."""
    if not all(isinstance(part, bytes) for part in (public_key, signature, message)):
        return False
    from cryptography.exceptions import InvalidSignature

    try:
        if (key := _loaded(public_key)) is None:
            return False
        key.verify(signature, message)
    except (InvalidSignature, ValueError):  # ValueError: how some OpenSSL versions say "not a point"
        return False
    return True


@lru_cache(maxsize=1024)
def _loaded(public_key: bytes) -> Ed25519PublicKey | None:
    # A round verifies under each key a few times within seconds. None for what is no key at all.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(public_key) if is_valid_public_key(public_key) else None


def is_valid_public_key(public_key: bytes) -> bool:
    """Is it 32 bytes, canonically encoded, not of small order?

    Whether it is a point at all, only `verify` finds out.
    """
    if not isinstance(public_key, bytes) or len(public_key) != PUBLIC_KEY_BYTES:
        return False
    y = int.from_bytes(public_key, "little") & (2**255 - 1)
    return y < _P and y not in _SMALL_ORDER_Y
