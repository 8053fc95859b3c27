"""Bearer tokens in the collector's store, each statement over a connection whose transaction the caller owns.

Rules of this file: a token is 32 random bytes, handed out once; what is kept is its SHA-256 (256 random bits need no
slow hash), its role, a name for people, and when it ends. Rows stay when they have ended: who could read when.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, insert, select, update

from client_sdk.certificate import Role
from collector.service import tables as t

ID_DIGITS: Final = 12
"""Hex digits of the hash that name a token to people; of no use for calling."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """What the store knows of one token. Times in seconds since the epoch."""

    token_hash: bytes = field(repr=False)
    role: Role
    name: str
    issued_at: int
    expires_at: int
    revoked_at: int | None

    @property
    def token_id(self) -> str:
        """What `access list` shows and `access revoke` takes."""
        return self.token_hash.hex()[:ID_DIGITS]

    def is_live(self, now: float) -> bool:
        """May it still be used?"""
        return self.revoked_at is None and now < self.expires_at


def hash_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def issue(conn: Connection, role: Role, name: str, now: int, ttl_s: int) -> str:
    """A new token, in the one moment in which it is known."""
    token = _new_token()
    conn.execute(
        insert(t.access_tokens).values(
            token_hash=hash_of(token), role=role.name.lower(), name=name, issued_at=now, expires_at=now + ttl_s
        )
    )
    return token


def all_tokens(conn: Connection) -> list[AccessToken]:
    """Oldest first, the ended ones too."""
    c = t.access_tokens.c
    rows = conn.execute(
        select(c.token_hash, c.role, c.name, c.issued_at, c.expires_at, c.revoked_at).order_by(
            c.issued_at, c.token_hash
        )
    )
    return [
        AccessToken(row.token_hash, Role[row.role.upper()], row.name, row.issued_at, row.expires_at, row.revoked_at)
        for row in rows
    ]


def revoke(conn: Connection, which: Sequence[bytes], now: int) -> None:
    """End these, by hash; one that was revoked before keeps its time."""
    c = t.access_tokens.c
    conn.execute(update(t.access_tokens).where(c.token_hash.in_(which), c.revoked_at.is_(None)).values(revoked_at=now))


def _new_token() -> str:
    while True:
        token = secrets.token_urlsafe(32)
        if not token.startswith("-"):  # a command line would take it for an option
            return token
