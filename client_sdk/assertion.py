"""Assertions: how a device says who it is where no round proves it, in one request's metadata.

Rules of this file: an assertion is for one method of one collector and for five minutes; it carries the device's
certificate, so that nothing has to be looked up to judge it; the collector's name in it is the one that the device
dialled, so that a collector that is asked cannot ask another one in the device's place; both halves stand here.
What it does not do: it is no secret to the collector that it is for. Within its time that collector could show it to
itself again, and would learn what it knows already: it opens nothing but the device's own ledger.

Layout: certificate (114 bytes), time (8, big endian, seconds since the epoch), Ed25519 signature (64) of the
certificate's identity over the label, method, name, certificate and time; then the name, UTF-8, 1 to 255 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_sdk import certificate as certificates
from client_sdk.certificate import CERTIFICATE_BYTES, CertificateError, Role
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import device_id_of, length_prefixed, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_sdk.identity import IdentityKey

METADATA_KEY: Final = "ldp-assertion-bin"
VALID_S: Final = 300
MAX_NAME_BYTES: Final = 255
_LABEL: Final = b"ldp-telemetry/assertion/v1"
_TIME_AT: Final = CERTIFICATE_BYTES
_SIGNATURE_AT: Final = _TIME_AT + 8
_NAME_AT: Final = _SIGNATURE_AT + 64


def make_assertion(identity: IdentityKey, certificate: bytes, method: str, name: str, at: int) -> bytes:
    """For `method` (its full path) of the collector that was dialled as `name`, at `at` seconds since the epoch."""
    signature = identity.sign(_message(method, name, certificate, at))
    return certificate + at.to_bytes(8, "big") + signature + name.encode()


def check_assertion(
    data: bytes, registrar_key: bytes, method: str, is_our_name: Callable[[str], bool], at: float
) -> str:
    """The device's id. Raises RejectionError: the cheap faults first, the two signatures last."""
    if not _NAME_AT < len(data) <= _NAME_AT + MAX_NAME_BYTES:
        raise RejectionError(RejectionReason.BAD_CREDENTIALS, "malformed assertion")
    certificate, said_at = data[:_TIME_AT], int.from_bytes(data[_TIME_AT:_SIGNATURE_AT], "big")
    if abs(at - said_at) > VALID_S:
        raise RejectionError(RejectionReason.BAD_CREDENTIALS, "assertion out of its time")
    try:
        name = data[_NAME_AT:].decode()
        identity_key = certificates.read(certificate).identity_key
        if not is_our_name(name):
            raise RejectionError(RejectionReason.BAD_CREDENTIALS, "assertion for another collector")
        certificates.check(certificate, registrar_key, identity_key, Role.DEVICE, at)
    except (UnicodeDecodeError, CertificateError):
        raise RejectionError(RejectionReason.BAD_CREDENTIALS, "assertion without a good certificate") from None
    if not verify(identity_key, data[_SIGNATURE_AT:_NAME_AT], _message(method, name, certificate, said_at)):
        raise RejectionError(RejectionReason.BAD_CREDENTIALS, "assertion not signed")
    return device_id_of(identity_key)


def said_at(data: bytes) -> int:
    """When a checked assertion was made by its device's clock, seconds since the epoch."""
    return int.from_bytes(data[_TIME_AT:_SIGNATURE_AT], "big")


def _message(method: str, name: str, certificate: bytes, at: int) -> bytes:
    return length_prefixed(_LABEL, method.encode(), name.encode(), certificate, at.to_bytes(8, "big"))
