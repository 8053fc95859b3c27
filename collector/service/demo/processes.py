"""What a demo needs of this machine: descriptors, and `ldp-collector` processes that are gone when it ends."""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from client_sdk.errors import ConfigurationError

PLAIN = ("--listen", "127.0.0.1:0", "--insecure")
START_DEADLINE_S = 30.0


def raise_file_limit() -> None:
    """A channel costs a descriptor at each end; a shell's usual soft limit of 1,024 is too low for big fleets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def service(name: str, arguments: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `ldp-collector`, and where it listens."""
    command, log_path = [sys.executable, "-m", "collector.service", *arguments], folder / f"{name}.log"
    with log_path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield process, _endpoint(name, process, log_path)
        finally:
            stop(process)


def _endpoint(name: str, process: subprocess.Popen[str], log_path: Path) -> str:
    stdout = process.stdout
    line = stdout.readline() if stdout is not None else ""
    if not line.startswith("listening on "):
        process.kill()
        reason = log_path.read_text(encoding="utf-8").strip().splitlines()
        raise ConfigurationError(f"the demo's {name} did not start: {reason[-1] if reason else 'no message'}")
    return line.removeprefix("listening on ").strip()


def stop(process: subprocess.Popen[str]) -> None:
    """SIGTERM, and SIGKILL for what does not end by it; idempotent."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=START_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
