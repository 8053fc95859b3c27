"""Certificates: a registrar's word that an identity is a device's (or another role's), and until when.

Rules of this file: a certificate is good only under the one registrar key that its reader has pinned; every field is
signed; expiry is judged against a time that the caller names; both halves, issuing and checking, stand here.
What it does not do: it decides nothing about who deserves one, and it knows no revocation: certificates are short
lived and renewed, and a registrar that wants somebody out no longer renews.

Layout, 114 bytes: version (1 byte, 1), role (1 byte), identity key (32), issued_at (8, big endian, seconds since the
epoch), expires_at (8), Ed25519 signature (64) of the registrar over the label and the 50 bytes before it. Compact,
because a participant reads one for each of its neighbours in every round (X.509 would take four times as much).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from client_sdk.errors import TelemetryError
from client_sdk.identity import length_prefixed, verify

if TYPE_CHECKING:
    from client_sdk.identity import IdentityKey

VERSION: Final = 1
CERTIFICATE_BYTES: Final = 1 + 1 + 32 + 8 + 8 + 64
MAX_TIME_S: Final = 253_402_300_799
_BODY_BYTES: Final = CERTIFICATE_BYTES - 64
_LABEL: Final = b"ldp-telemetry/certificate/v1"


class Role(IntEnum):
    """What a certificate's owner may be."""

    DEVICE = 1
    ANALYST = 2
    OPERATOR = 3
    HEALTH = 4


class CertificateError(TelemetryError):
    """A certificate does not hold. `reason`: malformed, wrong_identity, wrong_role, expired, bad_signature."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"certificate refused ({reason})")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says; times in seconds since the epoch, `expires_at` excluded."""

    role: Role
    identity_key: bytes
    issued_at: int
    expires_at: int


def issue(registrar: IdentityKey, certificate: Certificate) -> bytes:
    """The certificate's bytes, signed by the registrar's key."""
    body = bytes([VERSION, certificate.role]) + certificate.identity_key
    body += certificate.issued_at.to_bytes(8, "big") + certificate.expires_at.to_bytes(8, "big")
    return body + registrar.sign(_message(body))


def read(data: bytes) -> Certificate:
    """What it says, not whether it holds. Raises CertificateError(malformed)."""
    if len(data) != CERTIFICATE_BYTES or data[0] != VERSION:
        raise CertificateError("malformed")
    issued_at, expires_at = int.from_bytes(data[34:42], "big"), int.from_bytes(data[42:50], "big")
    try:
        role = Role(data[1])
    except ValueError:
        raise CertificateError("malformed") from None
    if not issued_at < expires_at <= MAX_TIME_S:
        raise CertificateError("malformed")
    return Certificate(role, data[2:34], issued_at, expires_at)


def check(data: bytes, registrar_key: bytes, identity_key: bytes, role: Role, at: float) -> Certificate:
    """Is it the registrar's word that `identity_key` has `role` at time `at`?

    Raises CertificateError, the cheap faults first, the signature last.
    """
    certificate = read(data)
    if certificate.identity_key != identity_key:
        raise CertificateError("wrong_identity")
    if certificate.role is not role:
        raise CertificateError("wrong_role")
    if at >= certificate.expires_at:
        raise CertificateError("expired")
    if not _is_signed(data, registrar_key):
        raise CertificateError("bad_signature")
    return certificate


@lru_cache(maxsize=16_384)
def _is_signed(data: bytes, registrar_key: bytes) -> bool:
    # A neighbour comes back every period with the same certificate: verified once a process. Pure, so a cache is sound.
    return verify(registrar_key, data[_BODY_BYTES:], _message(data[:_BODY_BYTES]))


def _message(body: bytes) -> bytes:
    return length_prefixed(_LABEL, body)
