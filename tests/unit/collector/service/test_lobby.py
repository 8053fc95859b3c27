"""The lobby's own decisions about when to decide, on a clock of the test's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.errors import RejectionError
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.secagg.messages import Advert, Challenge
from client_sdk.secagg.participant import Participant
from collector.service.lobby import SEATS_PER_DEVICE, Lobby
from collector.service.mailbox import Member
from collector.service.monitoring import Monitor
from collector.service.rounds import RoundTools
from collector.service.storage import CollectorStore
from collector.service.store_access import StoreAccess
from collector.service.workers import OpeningWorkers
from tests.registrar import KEY, certificate_of
from tests.unit.collector.service.stores import NOW, PERIOD

# Meetings of those who were sent away: every ten minutes of the two hours behind the period's end.
PLAN = parse_plan(
    """
[plan]
name = "test"
version = 1
period = "1d"
upload_window = "2h"
[cohort]
min_size = 2
target_size = 10
max_wait = "60s"
dropout_fraction = 0
corrupt_fraction = 0
[budget]
lifetime = 100
[metrics.a]
kind = "numeric"
lower = 0
upper = 10
epsilon = 1.0
"""
)
MEETING = PERIOD + PLAN.period_s + 600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(str(tmp_path / "collector.db"))
    opened.put_plan(PLAN, NOW)
    yield opened
    opened.close()


def member(plan: Plan, now: float) -> Member:
    identity = IdentityKey(os.urandom(32))
    report_id = identity.report_id(plan.name, PERIOD)
    certificate, rules = certificate_of(identity, now), plan.round_rules()
    participant = Participant(
        identity, certificate, KEY, plan.hash, PERIOD, report_id, [1], rules, False, 0, os.urandom
    )
    participant.hello()
    (advert,) = participant.receive(Challenge(bytes(32)), 0.0)
    assert isinstance(advert, Advert)
    return Member(identity.device_id, plan, advert, joined_at=now)


async def test_who_waits_past_its_time_is_looked_at_again_with_each_join(store: CollectorStore) -> None:
    """A came just before a meeting, so it is kept longer than `max_wait`: B is the company that it was kept for."""
    now = [MEETING - 1.0]
    monitor = Monitor()
    tools = RoundTools(StoreAccess(store, monitor), OpeningWorkers(1), monitor, lambda: now[0], 5.0)
    lobby = Lobby(tools, expected_devices=None, max_waiting=100)
    first = member(PLAN, now[0])
    lobby.wait(first)
    now[0] += PLAN.cohort.max_wait_s - 10.0
    second = member(PLAN, now[0])
    lobby.wait(second)
    assert first.driver is None, "before its time is up nobody is in a hurry"
    lobby.leave(second)
    now[0] += 15.0
    third = member(PLAN, now[0])
    lobby.wait(third)
    assert first.driver is not None
    assert first.driver is third.driver
    await lobby.stop(0.0)
    await tools.store.close(1.0)


async def test_one_identity_cannot_fill_the_waiting_room(store: CollectorStore) -> None:
    monitor = Monitor()
    tools = RoundTools(StoreAccess(store, monitor), OpeningWorkers(1), monitor, lambda: MEETING, 5.0)
    lobby = Lobby(tools, expected_devices=None, max_waiting=100)
    seats = [("greedy", "test", PERIOD - day * 86_400) for day in range(SEATS_PER_DEVICE)]
    for seat in seats:
        lobby.take_seat(seat)
    with pytest.raises(RejectionError, match="busy"):
        lobby.take_seat(("greedy", "other", PERIOD))
    lobby.take_seat(("another", "test", PERIOD))
    lobby.give_back_seat(seats[0])
    lobby.give_back_seat(seats[0])
    lobby.take_seat(seats[0])
    with pytest.raises(RejectionError, match="busy"):
        lobby.take_seat(("greedy", "other", PERIOD))
    await lobby.stop(0.0)
    await tools.store.close(1.0)
