"""How far a run is: a bar where somebody looks at it, log lines where nobody does."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from collector.service import logs
from collector.service.logs import fields

log = logging.getLogger("collector.service.job")


class Progress(Protocol):
    """Told of each window."""

    def begin(self, windows: int) -> None:
        """So many are due."""

    def done(self, window: str, what: str) -> None:
        """One of them is written."""


class Lines:
    """In the log."""

    def begin(self, windows: int) -> None:
        log.info("%d windows are due", windows, extra=fields("job_due", windows=windows))

    def done(self, window: str, what: str) -> None:
        log.info("%s: %s", window, what, extra=fields("job_window", window=window, what=what))


class _Bar:
    def __init__(self, bar: object) -> None:
        from rich.progress import Progress as Bar

        self._bar: Bar = bar  # type: ignore[assignment]
        self._task = self._bar.add_task("windows", total=None)

    def begin(self, windows: int) -> None:
        self._bar.update(self._task, total=windows)

    def done(self, window: str, what: str) -> None:  # noqa: ARG002 - there is no room
        self._bar.update(self._task, advance=1, description=window)


@contextmanager
def shown(log_format: str, log_level: str) -> Iterator[Progress]:
    """On stderr, which is set up for log lines, too: of a terminal, warnings and worse."""
    if not sys.stderr.isatty():
        logs.configure(log_format, log_level)
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True, markup=False, emoji=False), transient=True) as bar:
        logs.configure(log_format, "error" if log_level == "error" else "warning")  # above the bar, not through it
        yield _Bar(bar)
