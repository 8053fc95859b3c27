"""Alembic's entry point: always on a connection, and in the transaction, of the caller.

`CollectorStore.open` passes its connection, so that a migration that dies half way leaves nothing behind.
"""

from __future__ import annotations

from alembic import context

from collector.service.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("migrations run through CollectorStore.open(url), which owns the transaction")
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
