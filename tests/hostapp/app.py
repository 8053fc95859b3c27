"""A small host app. Its core is the README's embedding example, to the letter but for the places it names.

    python -m tests.hostapp.app ENDPOINT PLAN DATA_DIR TOKEN --now EPOCH --at EPOCH --speed N [--drain S]

It measures all the time, forks workers that use the same client, and may be killed at any moment; SIGTERM ends it in
order. With --drain it only sends what waits, from the first line on its standard input. Its days are short: `--speed`
seconds pass for it in each real one.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import time

from client_sdk import TelemetryClient
from client_sdk.device import uploader

WORKER_EVERY_S = 0.7
WORKER_MAY_TAKE_S = 60.0
EXIT_WORKER_FAILED = 3


def main() -> int:
    arguments = parse()
    faulthandler.enable()
    told: list[int] = []  # no Event: its lock may be taken when the handler wants it
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    endpoint, plan, data_dir, token = arguments.endpoint, arguments.plan, arguments.data_dir, arguments.token

    uploader.LONGEST_SLEEP_S = 0.1  # it sleeps by the real clock: with days this short it must look more often

    def clock() -> float:
        return float(arguments.now + (time.time() - arguments.at) * arguments.speed)

    client = TelemetryClient(endpoint, plan=plan, data_dir=data_dir, enrolment_token=token, consent=True, clock=clock)
    print("ready", flush=True)
    if arguments.drain:
        sys.stdin.readline()  # until everybody is there: a cohort must meet
        drain(client, arguments.drain)
    else:
        work(client, told)
    client.close(timeout_s=2)
    return 0


def work(client: TelemetryClient, told: list[int]) -> None:
    next_worker = time.monotonic() + WORKER_EVERY_S
    while not told:
        time.sleep(0.02)
        client.record("cold_start_ms", 812)
        client.record("network", "wifi")
        if time.monotonic() >= next_worker:
            next_worker = time.monotonic() + WORKER_EVERY_S
            fork_worker(client)


def fork_worker(client: TelemetryClient) -> None:
    """A forked child that uses the client after its parent has, and closes it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            client.record("network", "cellular")
            client.close(timeout_s=2)
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + WORKER_MAY_TAKE_S
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGABRT)  # so that it says where it stands
            os.waitpid(pid, 0)
            print("a forked worker hung", file=sys.stderr, flush=True)
            sys.exit(EXIT_WORKER_FAILED)
        time.sleep(0.01)
    if ended[1] != 0:
        print("a forked worker failed", file=sys.stderr, flush=True)
        sys.exit(EXIT_WORKER_FAILED)


def drain(client: TelemetryClient, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not client.flush(timeout_s=4):
        time.sleep(0.1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("endpoint", "plan", "data_dir", "token"):
        parser.add_argument(name)
    for name in ("now", "at", "speed"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--drain", type=float)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
