"""What a host pays: the import, `record()`, making a client, sealing, and leaving. Prints figures, asserts none.

    python tests/benchmarks/bench_record.py

CPU time, because the machine may be shared; medians, and the floor (an empty method call) beside them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAN = """
[plan]
name = "bench"
version = 1
period = "1d"
[cohort]
min_size = 50
target_size = 200
[budget]
lifetime = 365
[metrics.cold_start_ms]
kind = "numeric"
lower = 0
upper = 5000
epsilon = 1.0
[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular", "offline"]
other = "other"
epsilon = 1.0
"""


def import_cpu_ms(statement: str, runs: int = 12) -> float:
    """Least user + system time of a fresh interpreter that runs `statement`."""
    code = f"import resource\n{statement}\nr = resource.getrusage(resource.RUSAGE_SELF)\nprint(r.ru_utime + r.ru_stime)"
    times = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
        times.append(float(done.stdout))
    return 1e3 * min(times)


def call_cpu_ns(call: Callable[[], object], calls: int = 20_000, runs: int = 25) -> float:
    """Median CPU nanoseconds of one call."""
    costs = []
    for _ in range(runs):
        started = time.process_time_ns()
        for _ in range(calls):
            call()
        costs.append((time.process_time_ns() - started) / calls)
    return statistics.median(costs)


class Floor:
    def record(self, name: str, value: float) -> None:
        """Nothing."""


def figures() -> dict[str, float]:
    """Everything this file measures, by name and unit."""
    sys.path.insert(0, str(ROOT))
    from client_sdk import TelemetryClient

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.toml").write_text(PLAN)
        started = time.process_time()
        client = TelemetryClient(
            "127.0.0.1:9",
            plan=folder / "plan.toml",
            data_dir=folder / "d",
            registrar="127.0.0.1:9",
            registrar_key=b"\x58" + 31 * b"\x66",  # the base point: a key like any other
            consent=True,
            insecure=True,
        )
        construct = time.process_time() - started
        client.record("cold_start_ms", 1.0)
        time.sleep(0.2)  # the thread's first look at the store
        floor = Floor()
        found = {
            "import over bare Python, ms": import_cpu_ms("from client_sdk import TelemetryClient")
            - import_cpu_ms("pass"),
            "making a client (plan and store), ms": 1e3 * construct,
            "an empty method, ns": call_cpu_ns(lambda: floor.record("cold_start_ms", 812.0)),
            "record() a float, ns": call_cpu_ns(lambda: client.record("cold_start_ms", 812.0)),
            "record() an int, ns": call_cpu_ns(lambda: client.record("cold_start_ms", 812)),
            "record() a category, ns": call_cpu_ns(lambda: client.record("network", "wifi")),
            "record() an unknown name, ns": call_cpu_ns(lambda: client.record("nobody", 1.0)),
        }
        started = time.process_time()
        client.flush(seal=True, timeout_s=0.0)
        found["sealing a report, ms"] = 1e3 * (time.process_time() - started)
        waited = time.monotonic()
        client.close()
        found["close() with a report waiting, ms (wall)"] = 1e3 * (time.monotonic() - waited)
    return found


@pytest.mark.bench
def test_print_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        show()


def show() -> None:
    """Print the table."""
    for name, value in figures().items():
        print(f"{name:45} {value:10.1f}")


if __name__ == "__main__":
    show()
