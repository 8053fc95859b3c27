"""A pre-forking server in miniature: the master's clients deliver, it forks workers, and everybody delivers again.

    python -m tests.hostapp.prefork ENDPOINT PLAN FOLDER TOKEN TOKEN ...

One client a token, each with a folder of its own; each but the first goes to a worker. Prints what the second
deliveries returned.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from client_sdk import TelemetryClient

PERIOD_S = 3600
MAY_TAKE_S = 90.0


class Clock:
    """Stands still, but for the step into the next period."""

    def __init__(self) -> None:
        self.now = time.time() - PERIOD_S

    def __call__(self) -> float:
        return self.now


def deliver(client: TelemetryClient) -> bool:
    client.record("network", "cellular")
    return client.flush(seal=True, timeout_s=MAY_TAKE_S)


def work(client: TelemetryClient) -> None:
    """A worker, with its master's client."""
    sent = deliver(client)
    client.close()
    sys.exit(0 if sent else 1)


def main() -> int:
    endpoint, plan, folder, *tokens = sys.argv[1:]
    clock = Clock()
    clients = [
        TelemetryClient(
            endpoint, plan=plan, data_dir=f"{folder}/device-{number}", enrolment_token=token, consent=True, clock=clock
        )
        for number, token in enumerate(tokens)
    ]
    with ThreadPoolExecutor(len(clients)) as threads:
        assert all(threads.map(deliver, clients))
    clock.now += PERIOD_S
    workers = [multiprocessing.get_context("fork").Process(target=work, args=(client,)) for client in clients[1:]]
    for worker in workers:
        worker.start()
    sent = [deliver(clients[0])]
    for worker in workers:
        worker.join()
        sent.append(worker.exitcode == 0)
    for client in clients:
        client.close()
    print(sent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
