"""The registrar's store: tokens, identities, revocations, and whose it is.

Rules of this file: every method is one transaction, on disk before it returns, or nothing at all; a token is stored
as its SHA-256 only and used once; who is revoked gets nothing more, neither by a certificate nor by a token.
Each writer is alone: of two registrars on one database, too, a token serves one.
What it does not do: it signs nothing and checks no signature, and deletes nothing by itself.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, func, insert, select, update

from client_sdk.identity import device_id_of
from collector.service.registrar import migrations
from collector.service.registrar import tables as t
from collector.service.storage_backend import Writer
from collector.service.storage_base import Store
from collector.service.storage_schema import Schema

SCHEMA: Final = Schema(
    migrations.REVISIONS,
    Path(migrations.__file__).parent,
    t.metadata,
    "registrar_version",
    where="restore its backup, or make one with `ldp-collector registrar init`",
    make="start `ldp-collector registrar serve` on it once",
)

TOKEN_TTL_S: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Overview:
    """How many there are of each. certified: identities whose last certificate has not ended."""

    identities: int
    certified: int
    revoked: int
    tokens_open: int
    tokens_used: int
    tokens_expired: int

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)


class RegistrarStore(Store):
    """Synchronous and thread-safe; one connection per transaction from a small pool."""

    schema = SCHEMA

    def issue_tokens(self, count: int, now: float, ttl_s: int = TOKEN_TTL_S) -> list[str]:
        """`count` single-use tokens of 32 random bytes, valid for `ttl_s` seconds; only hashes are stored."""
        tokens = [_new_token() for _ in range(count)]
        rows = [
            {"token_hash": _token_hash(token), "issued_at": int(now), "expires_at": int(now) + ttl_s}
            for token in tokens
        ]
        if rows:
            with self._writing(Writer.ALONE) as conn:
                conn.execute(insert(t.tokens), rows)
        return tokens

    def enrol(self, token: str, identity_key: bytes, now: float, *, until: int, repeat_for_s: int) -> bool:
        """Use up `token` for this identity, to be certified until `until`.

        True again for the same pair, for `repeat_for_s` seconds from the first time. False for any other token that
        is used, expired or unknown, and for a revoked identity, whose token stays as it was.
        """
        return self._write_alone(_enrol, _token_hash(token), identity_key, now, until, repeat_for_s)

    def renew(self, identity_key: bytes, now: float, *, until: int) -> bool:
        """This identity, whose certificate of ours is proven, is to be certified until `until`. False: it is revoked.

        One that is not on the list (the store was restored from a backup) comes back onto it.
        """
        return self._write_alone(_renew, identity_key, now, until)

    def revoke(self, device: str, now: float, *, unseen: bool = True) -> tuple[bool, int | None]:
        """No certificate for `device` from now on. (is it news?, when its last certificate ends or None: not seen).

        unseen: also one that has never been seen here; else nothing happens to such a one, which is (True, None).
        """
        with self._writing(Writer.ALONE) as conn:
            news = not _is_revoked(conn, device)
            query = select(t.identities.c.certified_until).where(t.identities.c.device == device)
            until = conn.execute(query).scalar()
            if news and (unseen or until is not None):
                conn.execute(insert(t.revocations).values(device=device, revoked_at=int(now)))
            return news, until

    def belongs_to(self, public_key: bytes) -> bool:
        """Is this the store of the registrar with this key? One that says nothing of it is from here on."""
        with self._writing(Writer.ALONE) as conn:
            owner = conn.execute(select(t.owner.c.public_key)).scalar()
            if owner is None:
                conn.execute(insert(t.owner).values(public_key=public_key))
            return owner is None or owner == public_key

    def overview(self, now: float) -> Overview:
        """Counts for the operator."""
        c, at = t.tokens.c, int(now)
        with self._reading() as conn:
            return Overview(
                _count(conn, t.identities),
                _count(conn, t.identities, t.identities.c.certified_until > at),
                _count(conn, t.revocations),
                _count(conn, t.tokens, c.used_at.is_(None), c.expires_at > at),
                _count(conn, t.tokens, c.used_at.is_not(None)),
                _count(conn, t.tokens, c.used_at.is_(None), c.expires_at <= at),
            )


def _enrol(conn: Connection, token_hash: bytes, identity_key: bytes, now: float, until: int, repeat_for_s: int) -> bool:
    device = device_id_of(identity_key)
    row = conn.execute(select(t.tokens).where(t.tokens.c.token_hash == token_hash)).first()
    if row is None or not _serves(row, device, now, repeat_for_s) or _is_revoked(conn, device):
        return False
    if row.used_at is None:
        used = {"used_at": int(now), "device": device}
        conn.execute(update(t.tokens).where(t.tokens.c.token_hash == token_hash).values(used))
    _note_certified(conn, device, identity_key, now, until)
    return True


def _renew(conn: Connection, identity_key: bytes, now: float, until: int) -> bool:
    device = device_id_of(identity_key)
    if _is_revoked(conn, device):
        return False
    _note_certified(conn, device, identity_key, now, until)
    return True


def _serves(token: Row[Any], device: str, now: float, repeat_for_s: int) -> bool:
    if token.used_at is None:
        return bool(now < token.expires_at)
    return bool(token.device == device and now < token.used_at + repeat_for_s)


def _is_revoked(conn: Connection, device: str) -> bool:
    return conn.execute(select(t.revocations.c.device).where(t.revocations.c.device == device)).first() is not None


def _note_certified(conn: Connection, device: str, identity_key: bytes, now: float, until: int) -> None:
    changed = conn.execute(update(t.identities).where(t.identities.c.device == device).values(certified_until=until))
    if not changed.rowcount:
        row = {"device": device, "identity_key": identity_key, "enrolled_at": int(now), "certified_until": until}
        conn.execute(insert(t.identities).values(row))


def _count(conn: Connection, table: Table, *conditions: Any) -> int:
    return int(conn.execute(select(func.count()).select_from(table).where(*conditions)).scalar_one())


def _new_token() -> str:
    while True:
        token = secrets.token_urlsafe(32)
        if not token.startswith("-"):  # a command line would take it for an option
            return token


def _token_hash(token: str) -> bytes:
    # A token has 256 random bits: a plain hash is as good as a slow one.
    return hashlib.sha256(token.encode()).digest()
