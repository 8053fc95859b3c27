"""How many reports of each memoised metric a device has made: what the next one costs follows from that.

Revision ID: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """One new table; no older row changes, for no plan before had such a metric."""
    op.create_table(
        "memo_reports",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("plan_name", sa.String(255), nullable=False),
        sa.Column("memo", sa.LargeBinary(32), nullable=False),
        sa.Column("reports", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("device", "plan_name", "memo", name="pk_memo_reports"),
    )
