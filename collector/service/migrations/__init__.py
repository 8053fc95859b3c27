"""Revisions of the collector's tables, oldest first. Alembic runs them; they ship inside the package.

A revision once released is never edited. The list lets a store be judged (current, older, newer) without
importing Alembic, which costs most of a second.
"""

from __future__ import annotations

from typing import Final

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
HEAD: Final = REVISIONS[-1]
