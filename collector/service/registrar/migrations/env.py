"""Alembic's entry point for the registrar's store."""

from __future__ import annotations

from collector.service.storage_migration import run

run()
