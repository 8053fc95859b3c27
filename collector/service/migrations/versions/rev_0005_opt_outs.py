"""Devices that opted out and are never taken again.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """One new table; no older row changes."""
    op.create_table(
        "opt_outs",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("acknowledged_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("device", name="pk_opt_outs"),
    )
