"""Collectors for tests that run as an operator's do: `serve` in another process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from client_sdk.plan import Plan
from tests.registrar import KEY_HEX

ROOT = Path(__file__).resolve().parents[2]
SERVE = (sys.executable, "-m", "collector.service")
PLAIN = ("--listen", "127.0.0.1:0", "--insecure")


def command(folder: Path, plan: Plan, *options: str, program: Sequence[str] = SERVE, db: str = "") -> list[str]:
    """`serve` with its plan in `folder`, its store there or at `db`."""
    path = folder / "plan.toml"
    path.write_text(plan.text, encoding="utf-8")
    store = ("--db", db or f"sqlite:///{folder / 'collector.db'}", "--registrar-key", KEY_HEX)
    return [*program, "serve", "--plan", str(path), *store, *options]


class Process:
    """A running collector, its address and what it wrote."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        *options: str,
        program: Sequence[str] = SERVE,
        db: str = "",
        name: str = "stderr",
    ) -> None:
        self.log = folder / f"{name}.log"
        started = time.monotonic()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command(folder, plan, *options, program=program, db=db),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), self.log.read_text()
        self.address = line.removeprefix("listening on ").strip()
        self.started_in_s = time.monotonic() - started

    async def wait(self, timeout_s: float) -> int:
        return await asyncio.to_thread(self.process.wait, timeout_s)

    def end(self, *, killed: bool = False) -> None:
        """Whatever state it is in; afterwards it is gone, and has said nothing that it should not.

        killed: a worker that was just being started may say that its parent is gone.
        """
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        assert self.process.stdout.read() == "", "exactly one line on stdout"
        self.process.stdout.close()
        assert killed or "Traceback" not in self.log.read_text()


@asynccontextmanager
async def serving(folder: Path, plan: Plan, *options: str, program: Sequence[str] = SERVE) -> AsyncIterator[Process]:
    running = await asyncio.to_thread(lambda: Process(folder, plan, *options, program=program))
    try:
        yield running
    finally:
        running.end()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def child_pids(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
