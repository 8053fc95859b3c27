"""What a host's process pays at its two ends: the import, and leaving. Prints figures with targets, asserts no time.

    python tests/benchmarks/bench_process.py

The exit is the wall time from `close()` to the end of the process, of the median of some runs: it is waiting that
is measured there, not work. A silent collector (it accepts and says nothing) is being asked for an answer meanwhile,
and one complete report waits; whoever opens the folder next must find it. The import is CPU time over bare Python.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = 9
HEAVY = ("grpc", "numpy", "cryptography", "google.protobuf")
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
"""
HOST = """
import sys, threading, time
from client_sdk import TelemetryClient
folder, endpoint, how = sys.argv[1:]
client = TelemetryClient(endpoint, plan=folder + "/plan.toml", data_dir=folder + "/d", consent=True, insecure=True,
                         registrar=endpoint, registrar_key=b"\\x58" + 31 * b"\\x66", enrolment_token="t")
client.record("cold_start_ms", 812)
client.flush(seal=True, timeout_s=0.0)
while how != "at once" and not any("_poll_wrapper" in thread.name for thread in threading.enumerate()):
    time.sleep(0.01)  # until the upload is under way
if how == "in the call":
    time.sleep(0.3)  # connected, and the first message sent
print(time.monotonic(), flush=True)
client.close()
"""
IMPORT = """
import resource, sys
{statement}
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sorted(sys.modules))
"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    seen: str
    target: str


def python(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout


def import_rows() -> list[Row]:
    """The public import, least of some runs, alternating with bare Python; and what it has loaded."""
    costs: dict[str, list[float]] = {"pass": [], "from client_sdk import TelemetryClient": []}
    loaded: set[str] = set()
    for _ in range(12):
        for statement, seen in costs.items():
            cpu_s, *modules = python(IMPORT.format(statement=statement)).split()
            seen.append(float(cpu_s))
            loaded |= set(modules)
    bare, ours = (1e3 * min(seen) for seen in costs.values())
    heavy = [name for name in HEAVY if name in loaded]
    return [
        Row("from client_sdk import TelemetryClient, CPU over bare Python", f"{ours - bare:.1f} ms", "<= 30 ms"),
        Row("  as a multiple of bare Python", f"{ours / bare:.1f} x ({bare:.1f} ms)", ""),
        Row(f"  of {', '.join(HEAVY)}: loaded", ", ".join(heavy) or "none", "none"),
    ]


def exit_s(how: str) -> tuple[float, int]:
    """Seconds from close() to the end of the process, and how many reports the next process finds."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as silent:
        (Path(folder) / "plan.toml").write_text(PLAN)
        left_at = float(python(HOST, folder, f"127.0.0.1:{silent.getsockname()[1]}", how))
        ended_at = time.monotonic()
        found = python(
            "import sys; from client_sdk.device.storage import DeviceStore; print(DeviceStore(sys.argv[1]).waiting())",
            folder + "/d",
        )
    return ended_at - left_at, int(found)


def exit_rows() -> list[Row]:
    """Leaving while the upload begins, and in the middle of a call that nobody answers."""
    rows = []
    for how in ("at once", "in the call"):
        runs = [exit_s(how) for _ in range(RUNS)]
        times, found = [seconds for seconds, _ in runs], sum(reports for _, reports in runs)
        seen = f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"
        rows.append(Row(f"close() to process end, silent collector, {how}", seen, "<= 0.25 s"))
        rows.append(Row("  reports lost", f"{RUNS - found} of {RUNS}", "0"))
    return rows


@pytest.mark.bench
def test_print_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        show()


def show() -> None:
    """Print the table."""
    print(f"\n{'what':70} {'seen':26} target")
    for row in (*import_rows(), *exit_rows()):
        print(f"{row.what:70} {row.seen:26} {row.target}")


if __name__ == "__main__":
    show()
