"""What every store's `env.py` does for Alembic: always on a connection, and in the transaction, of the caller.

A store that is opened passes its connection, so that a migration that dies half way leaves nothing behind.
"""

from __future__ import annotations

from alembic import context


def run() -> None:
    """Run the migrations that `storage_schema.upgrade` asks for."""
    connection, schema = (context.config.attributes.get(name) for name in ("connection", "schema"))
    if connection is None or schema is None:
        raise RuntimeError("migrations run when a store is opened, which owns the transaction")
    context.configure(
        connection=connection, target_metadata=schema.metadata, version_table=schema.version_table, render_as_batch=True
    )
    context.run_migrations()
