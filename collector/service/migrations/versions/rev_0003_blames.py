"""Who broke a round's rules: one row for each device and fault of a finished round.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """One new table; no older row changes."""
    op.create_table(
        "blames",
        sa.Column("round", sa.String(64), nullable=False),
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("what", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("round", "device", "what", name="pk_blames"),
        sa.ForeignKeyConstraint(["round"], ["rounds.round"], name="fk_blames_round"),
    )
    op.create_index("ix_blames_device", "blames", ["device"])
