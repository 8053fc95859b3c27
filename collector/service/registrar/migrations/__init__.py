"""Revisions of the registrar's tables, oldest first. A revision once released is never edited."""

from __future__ import annotations

from typing import Final

REVISIONS: Final = ("0001", "0002")
