"""Identities are certified by a registrar: the collector keeps neither tokens nor a list of devices any more.

Revision ID: 0002

What devices have contributed and spent does not refer to these tables, so nothing of it changes.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Drop both; tokens first, they refer to devices."""
    op.drop_table("tokens")
    op.drop_table("devices")
