"""What the device's tests share: a plan, a clock that stands still, clients on loopback."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from client_sdk import TelemetryClient
from client_sdk.device import database
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan

NOW = 1_767_268_800.0  # 2026-01-01T12:00Z
DAY_S = 86_400
DEAD = "127.0.0.1:9"  # nobody listens on the discard port here


def plan_text(
    *,
    name: str = "app-health",
    version: int = 1,
    period: str = "1d",
    min_size: int = 3,
    target_size: int = 10,
    corrupt: str = "0.1",
    dropout: str = "0.2",
    lifetime: str = "365",
    rolling_24h: str = "100",
    epsilon: str = "1.0",
    resend: str = "same_bytes",
    max_delay: str = "7d",
    upper: int = 5000,
    categories: tuple[str, ...] = ("wifi", "cellular", "offline"),
    other: bool = True,
) -> str:
    listed = ", ".join(f'"{category}"' for category in categories)
    other_line = 'other = "other"' if other else ""
    return f"""
[plan]
name = "{name}"
version = {version}
period = "{period}"
max_delay = "{max_delay}"
upload_window = "6h"
[cohort]
min_size = {min_size}
target_size = {target_size}
max_wait = "5s"
corrupt_fraction = {corrupt}
dropout_fraction = {dropout}
[budget]
lifetime = {lifetime}
rolling_24h = {rolling_24h}
[delivery]
resend = "{resend}"
[metrics.cold_start_ms]
kind = "numeric"
lower = 0
upper = {upper}
epsilon = {epsilon}
[metrics.network]
kind = "categorical"
categories = [{listed}]
{other_line}
epsilon = {epsilon}
"""


def make_plan(**changes: Any) -> Plan:
    return parse_plan(plan_text(**changes))


class Clock:
    """Time that only a test moves."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def make_client(folder: Path, plan: Plan | None = None, **changes: Any) -> TelemetryClient:
    """A client of `folder` that talks plain text to loopback, to a port where nobody listens.

    It looks for its registrar where its collector is, which is where a SmallCollector has both.
    """
    from tests.registrar import KEY  # with half of the collector: who needs a plan's text only does without

    settings: dict[str, Any] = {"endpoint": DEAD, "consent": True, "insecure": True, "background": False}
    settings |= {"plan": plan or make_plan(), "data_dir": folder, "clock": Clock()} | changes
    settings = {"registrar": settings["endpoint"], "registrar_key": KEY, "enrolment_token": "any"} | settings
    return TelemetryClient(**settings)


def certify(client: TelemetryClient, days: float = 30) -> None:
    """What enrolling would have kept, without a registrar."""
    from tests.registrar import certificate_of

    store, now = client._engine.access.store(), client._engine.clock()
    store.keep_certificate(certificate_of(IdentityKey(store.identity()), now, days=days), "enrolled", now)


def soon(holds: Callable[[], bool], within_s: float = 60) -> bool:
    """Does it come true? The machine may be busy: a long wait costs nothing where it does.

    Once is enough: what was true for a moment, asked again, may be so no more.
    """
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def undo_migrations(db: sqlite3.Connection, version: int) -> None:
    """Make the tables of a store of today those of an older version."""
    for older in range(database.SCHEMA_VERSION - 1, version - 1, -1):
        for statement in reversed(database.MIGRATIONS[older]):
            words = statement.split()
            column = f"DROP COLUMN {words[5]}"
            db.execute(f"ALTER TABLE {words[2]} {column}" if words[0] == "ALTER" else f"DROP TABLE {words[2]}")
    db.execute(f"PRAGMA user_version = {version}")
