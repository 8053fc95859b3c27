"""Whose store it is: the public key of the registrar.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """One new table, empty until a registrar starts on the store; no older row changes."""
    op.create_table(
        "owner",
        sa.Column("public_key", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("public_key", name="pk_owner"),
    )
