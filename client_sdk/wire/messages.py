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
    """Estimates; of one metric where it is named. Periods with since <= start < until, an `until` of 0 is no end.

    false_devices: contributors that may be false, a number or a share such as "1%"; empty: that.
    """

    metric: str = ""
    since: int = 0  # seconds since the epoch, UTC
    until: int = 0
    false_devices: str = ""


@dataclass(frozen=True, slots=True)
class GetPrivacyRequest:
    """A ledger: the named device's, without a name the caller's own or the fleet's; or one entry for `all` devices.

    window, delta, corrupt: for the fleet's and all devices' figures, as the command line writes them; empty: as it
    takes them without a word.
    """

    device: str = ""
    all: bool = False
    window: str = ""
    delta: str = ""
    corrupt: str = ""


@dataclass(frozen=True, slots=True)
class GetCountersRequest:
    """The collector's own counters."""


@dataclass(frozen=True, slots=True)
class DocumentPiece:
    """A part of an answer: joined, the pieces' `data` is one document of `media_type`."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class DirectHello:
    """Who wants to deliver reports unmasked."""

    identity_key: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True)
class DirectChallenge:
    """A fresh nonce, 32 bytes, that the offer is signed over."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class DirectOffer:
    """Which reports the device has, in parallel lists. `signature`: over `client_sdk.direct.offer_message`."""

    plan_hashes: tuple[bytes, ...]
    period_starts: tuple[int, ...]
    report_ids: tuple[bytes, ...]
    resent: tuple[bool, ...]
    signature: bytes = b""


@dataclass(frozen=True, slots=True)
class DirectStanding:
    """What is booked for the identity, and what is to become of each offered report (see `client_sdk.direct`).

    round_ids, contributors: of the sum that holds the report already; empty and 0 where none does.
    """

    reports: int
    spent_micro_epsilon: int
    answers: tuple[str, ...]
    round_ids: tuple[str, ...]
    contributors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DirectPiece:
    """A part of the packed report at `place` of the offer; `offset` in bytes."""

    place: int
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class DirectSeal:
    """All pieces are sent. `signature`: over `client_sdk.direct.seal_message`."""

    signature: bytes


@dataclass(frozen=True, slots=True)
class DirectReceipts:
    """What became of each offered report, as in DirectStanding."""

    answers: tuple[str, ...]
    round_ids: tuple[str, ...]
    contributors: tuple[int, ...]


DeliverRequest = DirectHello | DirectOffer | DirectPiece | DirectSeal
DeliverResponse = DirectChallenge | DirectStanding | DirectReceipts
