"""The first tables: plans, enrolment, rounds, released sums, contributions and what they cost.

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
    _plans_and_enrolment()
    _rounds_and_sums()
    _contributions_and_spends()


def _plans_and_enrolment() -> None:
    op.create_table(
        "plans",
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("period_s", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("added_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_plans"),
        sa.UniqueConstraint("name", "version", name="uq_plans_name_version"),
    )
    op.create_table(
        "devices",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("identity_key", sa.LargeBinary(32), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("device", name="pk_devices"),
        sa.UniqueConstraint("identity_key", name="uq_devices_identity_key"),
    )
    op.create_table(
        "tokens",
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("issued_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger),
        sa.Column("device", sa.String(32)),
        sa.PrimaryKeyConstraint("token_hash", name="pk_tokens"),
        sa.ForeignKeyConstraint(["device"], ["devices.device"], name="fk_tokens_device"),
    )


def _rounds_and_sums() -> None:
    op.create_table(
        "rounds",
        sa.Column("round", sa.String(64), nullable=False),
        sa.Column("plan_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("period_start", sa.BigInteger, nullable=False),
        sa.Column("joined", sa.Integer, nullable=False),
        sa.Column("contributors", sa.Integer, nullable=False),
        sa.Column("dropped_shares", sa.Integer, nullable=False),
        sa.Column("dropped_masked_input", sa.Integer, nullable=False),
        sa.Column("dropped_confirm", sa.Integer, nullable=False),
        sa.Column("dropped_unmask", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(64)),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("finished_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("round", name="pk_rounds"),
        sa.ForeignKeyConstraint(["plan_hash"], ["plans.hash"], name="fk_rounds_plan_hash"),
    )
    _released(
        "released_sums",
        ("round", "metric", "cell"),
        sa.Column("cell", sa.Integer, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
    )
    _released(
        "released_vectors",
        ("round", "metric"),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("totals", sa.LargeBinary, nullable=False),
    )


def _released(table: str, key: tuple[str, ...], *own: sa.Column[object]) -> None:
    op.create_table(
        table,
        sa.Column("round", sa.String(64), nullable=False),
        sa.Column("metric", sa.String(255), nullable=False),
        sa.Column("plan_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("period_start", sa.BigInteger, nullable=False),
        sa.Column("contributors", sa.Integer, nullable=False),
        sa.Column("roster", sa.Integer, nullable=False),
        sa.Column("resent", sa.Integer, nullable=False),
        sa.Column("delivery", sa.String(16), nullable=False),
        *own,
        sa.PrimaryKeyConstraint(*key, name=f"pk_{table}"),
        sa.ForeignKeyConstraint(["round"], ["rounds.round"], name=f"fk_{table}_round"),
        sa.ForeignKeyConstraint(["plan_hash"], ["plans.hash"], name=f"fk_{table}_plan_hash"),
    )
    op.create_index(f"ix_{table}_period_start", table, ["period_start"])


def _contributions_and_spends() -> None:
    op.create_table(
        "contributions",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("plan_name", sa.String(255), nullable=False),
        sa.Column("period_start", sa.BigInteger, nullable=False),
        sa.Column("report_id", sa.LargeBinary(16), nullable=False),
        sa.Column("round", sa.String(64), nullable=False),
        sa.Column("resent", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("device", "plan_name", "period_start", name="pk_contributions"),
        sa.ForeignKeyConstraint(["round"], ["rounds.round"], name="fk_contributions_round"),
    )
    op.create_table(
        "spends",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("plan_name", sa.String(255), nullable=False),
        sa.Column("plan_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("period_start", sa.BigInteger, nullable=False),
        sa.Column("metric", sa.String(255), nullable=False),
        sa.Column("micro_epsilon", sa.BigInteger, nullable=False),
        sa.Column("round", sa.String(64), nullable=False),
        sa.Column("charged_at", sa.BigInteger, nullable=False),
        sa.Column("central_falls_back", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("device", "plan_name", "plan_hash", "period_start", "metric", name="pk_spends"),
        sa.ForeignKeyConstraint(["plan_hash"], ["plans.hash"], name="fk_spends_plan_hash"),
        sa.ForeignKeyConstraint(["round"], ["rounds.round"], name="fk_spends_round"),
    )
    op.create_index("ix_spends_charged_at", "spends", ["charged_at"])
    op.create_table(
        "device_totals",
        sa.Column("device", sa.String(32), nullable=False),
        sa.Column("reports", sa.BigInteger, nullable=False),
        sa.Column("resent_reports", sa.BigInteger, nullable=False),
        sa.Column("micro_epsilon", sa.BigInteger, nullable=False),
        sa.Column("folded_reports", sa.BigInteger, nullable=False),
        sa.Column("folded_micro_epsilon", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("device", name="pk_device_totals"),
    )
