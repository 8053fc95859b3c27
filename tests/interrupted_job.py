"""A process of its own that runs the nightly job again and again, each time killed at another step, and looks what came
of it: `python -m tests.interrupted_job DB WORK NOW BEFORE DB_BEFORE OUTPUTS`.

Each run is a fork of this process, which has imported everything. BEFORE: when an earlier one was, undisturbed and of
DB_BEFORE; 0: never.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet  # noqa: F401 - once, before the forks

import collector.service.report_page  # noqa: F401
from collector.service.job import files, running
from collector.service.job.config import JobConfig

STEPS = ("replace", "fsync", "mkdir", "open", "ftruncate")


def in_child(work: Callable[[], None]) -> int:
    """How it ended, as `waitpid` says."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - it is the end of this process
            sys.stderr.write(repr(error))
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def run(config: JobConfig, now: int) -> None:
    if failed := running.run_job(config, now).failed:
        raise RuntimeError(str(failed))


def dying(config: JobConfig, now: int, at: int) -> None:
    """Before the at-th of these calls, and so after the one before it."""
    seen = 0

    def patched(call: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return replaced

    for name in STEPS:
        setattr(os, name, patched(getattr(os, name)))
    run(config, now)


def tree(out: Path) -> dict[str, str]:
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.rglob("*")
        if path.is_file() and path.name != files.LOCK
    }


def main(db: str, work: Path, now: int, before: int, db_before: str, outputs: tuple[str, ...]) -> dict[str, int]:
    def config(name: str) -> JobConfig:
        return JobConfig(work / name, db, outputs=outputs)

    def prepared(name: str) -> JobConfig:
        shutil.rmtree(work / name, ignore_errors=True)
        if before:
            shutil.copytree(work / "before", work / name)
        return config(name)

    if before and in_child(lambda: run(replace(config("before"), db=db_before), before)):
        raise RuntimeError("the run before")
    whole = prepared("whole")
    if in_child(lambda: run(whole, now)):
        raise RuntimeError("the undisturbed run")
    wanted, steps, torn = tree(whole.out), 0, 0
    while True:
        again, step = prepared("torn"), steps + 1
        status = in_child(lambda: dying(again, now, step))  # noqa: B023 - it is done when the loop goes on
        if status == 0:
            return {"steps": steps, "torn": torn, "files": len(wanted)}
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError(f"step {step}: {status}")
        steps, torn = step, torn + (tree(again.out) != wanted)
        if in_child(lambda: run(again, now)):  # noqa: B023 - the same
            raise RuntimeError(f"step {step}: the run after it")
        if (found := tree(again.out)) != wanted:
            raise RuntimeError(f"step {step}: {sorted(set(found.items()) ^ set(wanted.items()))}")


if __name__ == "__main__":
    db, work, now, before, db_before, outputs = sys.argv[1:]
    print(json.dumps(main(db, Path(work), int(now), int(before), db_before, tuple(outputs.split(",")))))
