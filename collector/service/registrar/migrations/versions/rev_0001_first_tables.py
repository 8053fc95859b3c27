"""The first tables: tokens, identities, revocations.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Create every table. Downgrades do not exist: restore the backup that was taken before the upgrade."""
    op.create_table(
        "tokens",
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("issued_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger),
        sa.Column("device", sa.String(32)),
        sa.PrimaryKeyConstraint("token_hash", name="pk_tokens"),
    )
    op.create_table(
        "identities",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("identity_key", sa.LargeBinary(32), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger, nullable=False),
        sa.Column("certified_until", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("device", name="pk_identities"),
        sa.UniqueConstraint("identity_key", name="uq_identities_identity_key"),
    )
    op.create_table(
        "revocations",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("revoked_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("device", name="pk_revocations"),
    )
