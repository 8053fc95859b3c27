"""A real Spark standalone cluster on this machine: a master and workers, each a process of its own, over loopback.

Only processes that were started in here are ended, by their id.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyspark

HOME = Path(pyspark.__file__).parent
START_S = 180.0


class Cluster:
    """`url` is what `--master` takes. Workers have a core each, and that much memory."""

    def __init__(self, folder: Path, workers: int, memory: str) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._page = _free_port()
        port = _free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._start("master", "master.Master", "--port", str(port), "--webui-port", str(self._page))
        self._wait(0)
        for number in range(workers):
            self._start(
                f"worker-{number}", "worker.Worker", "--cores", "1", "--memory", memory, "--webui-port", "0",
                "--work-dir", str(folder / f"work-{number}"), self.url,
            )  # fmt: skip
        self._wait(workers)

    def _start(self, name: str, what: str, *options: str) -> None:
        log: IO[bytes]
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1"]
            environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
            process = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._processes.append(process)

    def alive(self) -> int:
        """Workers that the master knows to be there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])

    def _wait(self, workers: int) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with suppress(OSError, ValueError):
                if self.alive() == workers:
                    return
            time.sleep(0.2)
        self.stop()
        logs = "".join(path.read_text()[-800:] for path in self._folder.glob("*.log"))
        raise RuntimeError(f"no cluster of {workers} workers in {START_S:g} s: {logs}")

    def groups(self) -> set[int]:
        """Process groups of all that is left of it; executors are in groups of their workers."""
        return {process.pid for process in self._processes}

    def kill_worker(self) -> None:
        """The last one, with its executors, as if its machine had lost power."""
        self._end(self._processes.pop(), signal.SIGKILL)

    def stop(self) -> None:
        """Everything."""
        while self._processes:
            self._end(self._processes.pop(), signal.SIGTERM)

    def _end(self, process: subprocess.Popen[bytes], number: int) -> None:
        """With what it started: its session is its own."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def cluster(folder: Path, workers: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """Gone afterwards."""
    made = Cluster(folder, workers, memory)
    try:
        yield made
    finally:
        made.stop()
