"""Messages of the small services, as frozen values; those of a round stand in `secagg/messages.py`.

A message is data: lengths are checked where it meets the wire, meaning where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EnrolRequest:
    """A single-use token for a certificate.

    `signature` is made with the identity over `identity.enrolment_message(token)`.
    """

    token: str = field(repr=False)
    identity_key: bytes  # Ed25519 public key, 32 bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class EnrolResponse:
    """Enrolled: see `client_sdk.certificate`. `expires_at` is what the certificate says."""

    certificate: bytes
    expires_at: int  # seconds since the epoch, UTC


@dataclass(frozen=True, slots=True)
class RenewRequest:
    """The last certificate for a later one.

    `signature` is made with its identity over `identity.renewal_message(certificate)`.
    """

    certificate: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class RenewResponse:
    """Renewed, as in EnrolResponse."""

    certificate: bytes
    expires_at: int


@dataclass(frozen=True, slots=True)
class GetPlanRequest:
    """Which plan; the empty name asks for the collector's only one."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class GetPlanResponse:
    """The plan's text as the operator wrote it; the reader recomputes the hash from it."""

    toml: str
    plan_hash: bytes  # 32 bytes
    signature: bytes = b""  # the operator's, 64 bytes, see plan/signature.py; empty: none


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """Forget this identity. `signature`: by it, over `identity.deletion_message`, made when its user opted out."""

    identity_key: bytes
    certificate: bytes  # the last one it had, expired or not; empty: it never had one
    requested_at: int  # seconds since the epoch
    signature: bytes


@dataclass(frozen=True, slots=True)
class DeleteResponse:
    """Done, or nothing was held."""


@dataclass(frozen=True, slots=True)
class GetReportRequest:
    """Estimates; of one metric where it is named. Periods with since <= start < until, an `until` of 0 is no end."""

    metric: str = ""
    since: int = 0  # seconds since the epoch, UTC
    until: int = 0


@dataclass(frozen=True, slots=True)
class GetPrivacyRequest:
    """A ledger: the named device's, without a name the caller's own or the fleet's; or one entry for `all` devices."""

    device: str = ""
    all: bool = False


@dataclass(frozen=True, slots=True)
class GetCountersRequest:
    """The collector's own counters."""


@dataclass(frozen=True, slots=True)
class DocumentPiece:
    """A part of an answer: joined, the pieces' `data` is one document of `media_type`."""

    media_type: str
    data: bytes
