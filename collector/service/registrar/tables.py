"""The registrar's tables (SQLAlchemy Core). Never stored: a token (only its SHA-256), a certificate, a report.

Times are integer seconds since the epoch, UTC. A change of this file needs a new revision in `migrations/versions`
and its name in `migrations.REVISIONS`; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, String, Table, UniqueConstraint

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),
    Column("issued_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("used_at", BigInteger),
    Column("device", String(32)),
)

# The registrar whose store it is, one row at most: none in a store of an older version that it has not started on yet.
owner = Table("owner", metadata, Column("public_key", LargeBinary(32), primary_key=True))

# Who has ever been certified; `certified_until` is the end of the last certificate.
identities = Table(
    "identities",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("identity_key", LargeBinary(32), nullable=False),
    Column("enrolled_at", BigInteger, nullable=False),
    Column("certified_until", BigInteger, nullable=False),
    UniqueConstraint("identity_key"),
)

# Who gets no certificate any more. Does not refer to `identities`: one may be revoked before it is seen here.
revocations = Table(
    "revocations",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("revoked_at", BigInteger, nullable=False),
)
