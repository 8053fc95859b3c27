"""A demo as a user starts it, and ends it before its time: nothing of it may be left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WAIT_S = 60


def stop_at_work(command: str, number: int, temporary: Path) -> str:
    """Send that signal when the collector runs and devices are there; what the demo wrote to stderr.

    temporary: an empty folder, in which the demo makes its own. AssertionError where anything of it is left.
    """
    argv = [sys.executable, "-m", "collector.service", command]
    with subprocess.Popen(
        argv,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heeds_interrupts,  # noqa: PLW1509
    ) as process:
        try:
            deadline = time.monotonic() + WAIT_S
            while not list(temporary.glob("ldp-demo-*/devices/3")) and time.monotonic() < deadline:
                time.sleep(0.05)
            (folder,) = temporary.glob("ldp-demo-*")
            assert _collectors(folder), "the case was reached: its collector runs"
            process.send_signal(number)
            _, said = process.communicate(timeout=WAIT_S)
            assert process.returncode == 128 + number
        finally:
            process.terminate()
    assert not _collectors(folder)
    assert not folder.exists()
    return said


def _heeds_interrupts() -> None:
    """A test run that a shell began in the background ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _collectors(folder: Path) -> list[str]:
    listing = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if f"serve --plan {folder}" in line]
