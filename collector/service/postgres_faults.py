"""What a fault of PostgreSQL means: by SQLSTATE, or by the words of a connection that was never made.

Rules of this file: what is said repeats no bound value, no statement and no password.
"""

from __future__ import annotations

import re
from typing import Final

from collector.service.storage_errors import StoreProblem

_BY_SQLSTATE: Final = {
    "25006": StoreProblem.READ_ONLY,
    "25P03": StoreProblem.UNREACHABLE,  # the session was idle in its transaction for too long, and is gone
    "25P04": StoreProblem.UNREACHABLE,
    "3D000": StoreProblem.MISSING,
    "40001": StoreProblem.LOCKED,
    "40P01": StoreProblem.LOCKED,
    "42501": StoreProblem.NOT_ALLOWED,
    "42P01": StoreProblem.DAMAGED,  # a table
    "42703": StoreProblem.DAMAGED,  # or a column that was there when it was opened
    "53100": StoreProblem.FULL,
    "53300": StoreProblem.UNREACHABLE,
    "55P03": StoreProblem.LOCKED,
    "57014": StoreProblem.LOCKED,  # by its time limit
    "57P01": StoreProblem.UNREACHABLE,
    "57P02": StoreProblem.UNREACHABLE,
    "57P03": StoreProblem.UNREACHABLE,
    "57P04": StoreProblem.MISSING,
    "57P05": StoreProblem.UNREACHABLE,
    "XX001": StoreProblem.DAMAGED,
    "XX002": StoreProblem.DAMAGED,
}

_BY_CLASS: Final = {
    "08": StoreProblem.UNREACHABLE,
    "22": StoreProblem.REFUSED,
    "23": StoreProblem.REFUSED,
    "28": StoreProblem.NOT_ALLOWED,
}

_TEXTS: Final = {
    StoreProblem.MISSING: "no such database; create it (`createdb`, encoding UTF8), or name the right one",
    StoreProblem.LOCKED: "is held up by other work on it; nothing was written, try again or look for what holds it",
    StoreProblem.FULL: "the database server's disk is full, nothing of this write was kept; free some space",
    StoreProblem.READ_ONLY: "takes no writes (a standby, or set to be read-only); name the primary server",
    StoreProblem.DAMAGED: "is damaged, or tables of it are gone; run `ldp-collector doctor`, restore a backup",
}

_NEVER_CONNECTED: Final = (
    (re.compile(r"database .* does not exist"), StoreProblem.MISSING),
    (
        re.compile(r"authentication|no password supplied|password|role .* does not exist|pg_hba\.conf|not permitted"),
        StoreProblem.NOT_ALLOWED,
    ),
)
"""libpq gives no SQLSTATE for a connection that was refused; what none of these fits is taken for an outage."""

_LONGEST: Final = 200


def describe(error: BaseException | None, password: str | None) -> tuple[StoreProblem, str]:
    """(problem, what to say). An empty text: what is always said of such a problem."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return _without_state(error, password)
    problem = _BY_SQLSTATE.get(state) or _BY_CLASS.get(state[:2])
    if problem is None:
        return StoreProblem.INPUT_OUTPUT, f"PostgreSQL failed ({state}); nothing of this step was kept"
    return problem, _TEXTS.get(problem, "")


def _without_state(error: BaseException | None, password: str | None) -> tuple[StoreProblem, str]:
    if type(error).__name__ == "DataError":  # the driver itself: a value that the database has no form for
        return StoreProblem.REFUSED, ""
    said = _last_line(str(error), password)
    for pattern, problem in _NEVER_CONNECTED:
        if pattern.search(said):
            return problem, _TEXTS.get(problem, "")
    return StoreProblem.UNREACHABLE, f"cannot be reached ({said}); is the server running, and the way to it open?"


def _last_line(message: str, password: str | None) -> str:
    """libpq's own word, of the last address that it tried."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no answer"]
    line = next((line for line in reversed(lines) if "failed" in line or "FATAL" in line), lines[0])
    line = line.rpartition("FATAL:")[2].strip() or line
    if password:
        line = line.replace(password, "***")
    return line[:_LONGEST]
