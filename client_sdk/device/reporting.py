"""What the device says on its log: one WARNING an outage, then DEBUG, and one INFO when it is over.

Rules of this file: nothing is logged from inside `record()`; no reading, key, token or address ever; the
logger `ldp_telemetry` stays silent unless the host configures logging.
"""

from __future__ import annotations

import logging

LOGGER_NAME = "ldp_telemetry"


def logger() -> logging.Logger:
    """The package's logger, with a handler that does nothing."""
    found = logging.getLogger(LOGGER_NAME)
    if not any(isinstance(handler, logging.NullHandler) for handler in found.handlers):
        found.addHandler(logging.NullHandler())
    return found


class Outages:
    """Remembers what is out of order, so that only the change is worth a warning."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}

    def begin(self, what: str, why: str, *, anew: bool = False) -> None:
        """`what` does not work, because of `why` (one line). anew: that is news, also in an outage that goes on."""
        level = logging.DEBUG if what in self._current and not anew else logging.WARNING
        self._current[what] = why
        logger().log(level, "%s: %s", what, why)

    def end(self, what: str) -> None:
        """`what` works (again)."""
        if self._current.pop(what, None) is not None:
            logger().info("%s: works again", what)
