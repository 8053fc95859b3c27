"""A fleet of real SDK clients whose noisy reports are known, so that the collector's books can be checked to the unit.

fleet = RealFleet(tmp_path, endpoint, plan, 5)
await fleet.upload_until_counted()
fleet.check_books(db_url)
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

from client_sdk import TelemetryClient
from client_sdk.device.files import DATABASE_NAME
from client_sdk.device.views import UploadSummary
from client_sdk.plan import Plan
from client_sdk.report import unpack_vector
from tests.integration.callers import device_client

Report = tuple[str, int]
"""Whose, and of which period."""

FAR = ("counted", "already_counted")

Make = Callable[[Path, str, Plan], TelemetryClient]
"""Folder, endpoint and plan -> a device without a background thread."""


def certified_device(folder: Path, endpoint: str, plan: Plan) -> TelemetryClient:
    """One that needs no registrar, over plain text."""
    return device_client(folder, endpoint, plan, insecure=True)


@dataclass(frozen=True)
class Books:
    """What a collector's store says, read past our own code."""

    rounds: dict[Report, list[str]]
    sums: dict[str, list[int]]
    totals: dict[str, tuple[int, int]]
    spent: dict[str, int]


def read_books(db_url: str) -> Books:
    engine = create_engine(db_url)
    try:
        with engine.connect() as conn:
            rounds: dict[Report, list[str]] = defaultdict(list)
            for device, period, round_id in conn.execute(text("SELECT device, period_start, round FROM contributions")):
                rounds[device, period].append(round_id)
            sums: dict[str, list[int]] = defaultdict(list)
            for round_id, total in conn.execute(
                text("SELECT round, total FROM released_sums ORDER BY round, metric, cell")
            ):
                sums[round_id].append(int(total))
            totals = {
                device: (int(reports), int(micro))
                for device, reports, micro in conn.execute(
                    text("SELECT device, reports, micro_epsilon FROM device_totals")
                )
            }
            spent = {
                device: int(micro)
                for device, micro in conn.execute(text("SELECT device, sum(micro_epsilon) FROM spends GROUP BY device"))
            }
        return Books(dict(rounds), dict(sums), totals, spent)
    finally:
        engine.dispose()


class RealFleet:
    """Devices with one sealed report each; each with its own value, so that a sum tells who is in it."""

    def __init__(
        self, folder: Path, endpoint: str, plan: Plan, count: int, *, make: Make = certified_device, first: int = 0
    ) -> None:
        self.plan = plan
        self._make = make
        self.endpoint = endpoint
        self._folder = folder
        self.clients: list[TelemetryClient] = []
        self.vectors: dict[Report, list[int]] = {}
        self.spooled: dict[Report, bytes] = {}
        self.failures: Counter[str] = Counter()
        self.add(count, first=first)

    def add(self, count: int, *, first: int | None = None) -> None:
        """More devices, which join in."""
        start = len(self.clients) if first is None else first
        for number in range(start, start + count):
            folder = self._folder / f"device{number}"
            client = self._make(folder, self.endpoint, self.plan)
            client.record("cold_start_ms", 10.0 * number)
            client.flush(seal=True)
            self.clients.append(client)
            for period, report in self._waiting(client):
                self.spooled[str(client.device_id), period] = report
                self.vectors[str(client.device_id), period] = list(unpack_vector(report))

    def _waiting(self, client: TelemetryClient) -> list[tuple[int, bytes]]:
        path = Path(client._engine.access.store().folder) / DATABASE_NAME
        with closing(sqlite3.connect(path)) as conn:
            return [(int(p), bytes(r)) for p, r in conn.execute("SELECT period_start, report FROM spool")]

    async def upload(self, clients: Sequence[TelemetryClient] | None = None) -> list[UploadSummary]:
        """One attempt of each, all at once."""
        ended = await asyncio.gather(*(client.upload() for client in (self.clients if clients is None else clients)))
        for summary in ended:
            self.failures.update(summary.failed)
        return list(ended)

    def waiting(self) -> list[TelemetryClient]:
        """Those that still hold a report."""
        return [client for client in self.clients if self._waiting(client)]

    async def upload_until_counted(self, *, timeout_s: float = 60.0, company: int = 0) -> int:
        """Attempt after attempt, as long as somebody waits: how many it took.

        company: fresh devices that join from the third attempt on, so that a last fresh report finds a cohort in which
        enough others are fresh.
        """
        deadline, attempts = time.monotonic() + timeout_s, 0
        while left := self.waiting():
            assert time.monotonic() < deadline, f"{len(left)} still wait: {dict(self.failures)}"
            attempts += 1
            if company and attempts > 2:
                self.add(company)
                left = self.waiting()
            await self.upload(left)
        return attempts

    def check_devices(self) -> None:
        """Each device paid once, and still holds its report to the byte or knows that it is counted."""
        for client in self.clients:
            device = str(client.device_id)
            assert client.spent().lifetime_micro == self.plan.report_micro_epsilon
            outcomes = [entry.outcome for entry in client.history() if entry.outcome in FAR]
            waiting = {(device, period): report for period, report in self._waiting(client)}
            assert len(outcomes) + len(waiting) == 1
            assert waiting.items() <= self.spooled.items(), "the same bytes"

    def check_books(self, db_url: str, *, everybody: bool = True) -> Books:
        """Each report once, each sum its contributors', each device charged once; and nobody else in the store."""
        self.check_devices()
        books = read_books(db_url)
        assert all(len(rounds) == 1 for rounds in books.rounds.values())
        assert set(books.rounds) <= set(self.vectors)
        if everybody:
            assert set(books.rounds) == set(self.vectors), "all of them"
        expected: dict[str, list[int]] = {}
        for report, (round_id,) in books.rounds.items():
            vector = self.vectors[report]
            before = expected.setdefault(round_id, [0] * len(vector))
            expected[round_id] = [a + b for a, b in zip(before, vector, strict=True)]
        assert books.sums == expected
        cost = self.plan.report_micro_epsilon
        assert books.totals == {device: (1, cost) for device, _ in books.rounds}
        assert books.spent == {device: cost for device, _ in books.rounds}
        return books

    def close(self) -> None:
        for client in self.clients:
            client.close()
