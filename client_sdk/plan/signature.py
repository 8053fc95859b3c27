"""An operator's signature under a plan: what a device that fetches its plan may ask for before it believes it.

Rules of this file: signed is the plan's hash, which covers everything of the plan but comments and spelling; both
halves, and the text that rests beside the plan's file, stand here. What it does not do: it keeps no key, reads no
file, and a signature says nothing of *when*: an older version that was signed once stays signed, so a device that has
seen a later one refuses to go back (`successor.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_sdk.identity import length_prefixed, verify

if TYPE_CHECKING:
    from client_sdk.identity import IdentityKey
    from client_sdk.plan.model import Plan

SIGNATURE_BYTES: Final = 64
_LABEL: Final = b"ldp-telemetry/plan/v1"
_TEXT: Final = re.compile(r"([0-9a-f]{64}) ([0-9a-f]{128})\n?", re.ASCII)


def plan_message(plan_hash: bytes) -> bytes:
    """What is signed."""
    return length_prefixed(_LABEL, plan_hash)


@dataclass(frozen=True, slots=True)
class PlanSignature:
    """`signature` (64 bytes) of the operator's Ed25519 public key `key` (32 bytes)."""

    key: bytes
    signature: bytes

    def holds(self, plan: Plan) -> bool:
        """Is it one under this plan?"""
        return is_signed(plan, self.signature, self.key)

    def as_text(self) -> str:
        """One line: key and signature in hex."""
        return f"{self.key.hex()} {self.signature.hex()}\n"

    @classmethod
    def from_text(cls, text: str) -> PlanSignature | None:
        """What `as_text` wrote, or None."""
        match = _TEXT.fullmatch(text)
        return None if match is None else cls(bytes.fromhex(match[1]), bytes.fromhex(match[2]))


def sign_plan(operator: IdentityKey, plan: Plan) -> PlanSignature:
    """The operator's word that devices may hold this plan."""
    return PlanSignature(operator.public_key, operator.sign(plan_message(plan.hash)))


def is_signed(plan: Plan, signature: bytes, key: bytes) -> bool:
    """Does `signature` under this plan hold under the operator's `key`? False for anything malformed."""
    return verify(key, signature, plan_message(plan.hash))
