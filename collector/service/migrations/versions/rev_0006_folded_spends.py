"""What garbage collection keeps of old spends: under which plan, and among how many.

Revision ID: 0006

What was folded before stays in `device_totals` alone: nothing here says for what it was spent, so it counts by the
plain sum.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Two new tables; no older row changes."""
    op.create_table(
        "folded_cohorts",
        sa.Column("cohort", sa.LargeBinary(32), nullable=False),
        sa.Column("plan_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("delivery", sa.String(16), nullable=False),
        sa.Column("contributors", sa.Integer, nullable=False),
        sa.Column("least_contributors", sa.Integer, nullable=False),
        sa.Column("roster", sa.Integer, nullable=False),
        sa.Column("metric_contributors", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("cohort", name="pk_folded_cohorts"),
        sa.ForeignKeyConstraint(["plan_hash"], ["plans.hash"], name="fk_folded_cohorts_plan_hash"),
    )
    op.create_table(
        "folded_spends",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("cohort", sa.LargeBinary(32), nullable=False),
        sa.Column("central_falls_back", sa.Boolean, nullable=False),
        sa.Column("reports", sa.BigInteger, nullable=False),
        sa.Column("micro_epsilon", sa.BigInteger, nullable=False),
        sa.Column("first_charged_at", sa.BigInteger, nullable=False),
        sa.Column("last_charged_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("device", "cohort", "central_falls_back", name="pk_folded_spends"),
        sa.ForeignKeyConstraint(["cohort"], ["folded_cohorts.cohort"], name="fk_folded_spends_cohort"),
    )
