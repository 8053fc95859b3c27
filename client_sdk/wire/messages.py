"""Messages of the two small services, as frozen values; those of a round stand in `secagg/messages.py`.

A message is data: lengths are checked where it meets the wire, meaning where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EnrolRequest:
    """A single-use token for a place on the list of identities.

    `signature` is made with the identity over `identity.enrolment_message(token)`.
    """

    token: str = field(repr=False)
    identity_key: bytes  # Ed25519 public key, 32 bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class EnrolResponse:
    """Enrolled. Both fields are reserved."""

    certificate: bytes = b""
    expires_at: int = 0  # seconds since the epoch, UTC


@dataclass(frozen=True, slots=True)
class GetPlanRequest:
    """Which plan; the empty name asks for the collector's only one."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class GetPlanResponse:
    """The plan's text as the operator wrote it; the reader recomputes the hash from it."""

    toml: str
    plan_hash: bytes  # 32 bytes
