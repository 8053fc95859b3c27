"""A driven round with dishonest members: what is stored, counted and told; a stream that repeats itself is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.plan import parse_plan
from client_sdk.secagg import shamir
from client_sdk.secagg.keys import RoundSecrets
from client_sdk.secagg.messages import (
    MaskedInputPiece,
    ParticipantMessage,
    Receipt,
    RoundAborted,
    SealedShares,
    UnmaskShares,
)
from client_sdk.wire.convert import collector_message_from_wire
from collector.secagg.round import Round
from collector.service.mailbox import Ending, Member
from collector.service.monitoring import Monitor
from collector.service.rounds import MAX_REPEATS, RoundDriver, RoundTools
from collector.service.storage import CollectorStore
from collector.service.storage_rows import Blamed
from collector.service.store_access import StoreAccess
from collector.service.workers import OpeningWorkers
from tests.fleet import FORMED_AT, PERIOD_START, Fleet, seeded

PLAN = parse_plan(
    """
[plan]
name = "app-health"
version = 1
period = "1d"
[cohort]
min_size = 3
target_size = 10
corrupt_fraction = 0.2
dropout_fraction = 0
[budget]
lifetime = 100
[metrics.a]
kind = "numeric"
lower = 0
upper = 1000
epsilon = 1.0
"""
)
SIZE = 5  # threshold 4

Up = Callable[[int, ParticipantMessage], Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(str(tmp_path / "collector.db"))
    opened.put_plan(PLAN, FORMED_AT)
    yield opened
    opened.close()


class Driven:
    """Real participants around one driven round. `up(index, message)` gives what is sent: one message or several."""

    def __init__(self, store: CollectorStore, up: Up = lambda _, message: message) -> None:
        self.monitor = Monitor()
        self.workers = OpeningWorkers(1)
        self.access = StoreAccess(store, self.monitor)
        tools = RoundTools(self.access, self.workers, self.monitor, lambda: FORMED_AT, 5.0)
        members = range(SIZE)
        self.up = up
        self.fleet = Fleet([[i] for i in members], PLAN.round_rules(), plan_hashes=dict.fromkeys(members, PLAN.hash))
        adverts = [self.fleet.advert_of(index) for index in members]
        self.fleet.round = Round("round-1", PLAN.round_rules(), adverts, FORMED_AT)
        self.members = [
            Member(identity.device_id, PLAN, advert, joined_at=FORMED_AT)
            for identity, advert in zip(self.fleet.identities, adverts, strict=True)
        ]
        self.driver = RoundDriver(self.fleet.round, self.members, tools, lambda member: None)
        self.refused: dict[int, RejectionReason] = {}

    async def run(self) -> None:
        task = self.driver.start()
        await asyncio.gather(*map(self._stream, range(SIZE)))
        await task
        self.workers.close()

    async def _stream(self, index: int) -> None:
        mailbox = self.members[index].mailbox
        while not isinstance(item := await mailbox.take(), Ending):
            message = collector_message_from_wire(item()) if callable(item) else item
            for reply in self.fleet.tell(index, message):  # type: ignore[arg-type]
                sent = self.up(index, reply)
                for one in sent if isinstance(sent, list) else [sent]:
                    try:
                        self.driver.receive(index, one)
                    except RejectionError as error:
                        self.refused[index] = error.reason
                        return

    def device(self, index: int) -> str:
        return self.members[index].device_id

    def outcome(self, index: int) -> object:
        return self.fleet.participants[index].outcome

    async def blamed(self) -> list[bool]:
        asked = [(member.device_id, PLAN.name, PERIOD_START) for member in self.members]
        found = await self.access.call(CollectorStore.standings, asked)
        return [found[question].blamed for question in asked]


async def test_a_wrong_share_costs_the_sum_nothing_and_is_on_record(store: CollectorStore) -> None:
    def up(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if isinstance(message, UnmaskShares) and index == 2:
            return replace(message, shares=(bytes(33), *message.shares[1:]))
        return message

    driven = Driven(store, up)
    await driven.run()
    assert [driven.outcome(index) for index in range(SIZE)] == [Receipt("round-1", SIZE, SIZE)] * SIZE
    (record,) = store.rounds()
    assert (record.outcome, record.blamed) == ("released", (Blamed(driven.device(2), "wrong_share"),))
    assert store.released_sums()[0].totals == (10,)
    assert driven.monitor.snapshot()["blamed.wrong_share"] == 1
    assert await driven.blamed() == [False, False, True, False, False]


async def test_an_owner_of_another_seed_is_found_by_the_opening(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another process: what it finds comes back, is stored with the aborted round, and counted."""
    entropy = seeded(3)
    entropy(32)
    secret = RoundSecrets.draw(entropy).self_mask_seed
    split = shamir.split

    def lying(seed: bytes, *rest: Any) -> list[bytes]:
        return split(bytes(32) if seed == secret else seed, *rest)

    monkeypatch.setattr(shamir, "split", lying)
    driven = Driven(store)
    await driven.run()
    assert driven.outcome(0) == RoundAborted("wrong_shares", 4, 5)
    (record,) = store.rounds()
    assert (record.outcome, record.reason) == ("aborted", "wrong_shares")
    assert record.blamed == (Blamed(driven.device(3), "wrong_seed"),)
    assert store.released_sums() == []
    assert driven.monitor.snapshot()["blamed.wrong_seed"] == 1
    assert await driven.blamed() == [False, False, False, True, False]


async def test_an_owner_that_starves_the_others_is_on_record(store: CollectorStore) -> None:
    def up(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if isinstance(message, SealedShares) and index == 1:
            return replace(message, sealed=(*message.sealed[:2], bytes(82), bytes(82)))
        return message

    driven = Driven(store, up)
    await driven.run()
    assert driven.outcome(0) == RoundAborted("too_few_responses", 3, 4)
    (record,) = store.rounds()
    assert record.blamed == (Blamed(driven.device(1), "unusable_shares"),)
    assert driven.monitor.snapshot()["blamed.unusable_shares"] == 1


@pytest.mark.parametrize(("repeats", "ends"), [(MAX_REPEATS, False), (MAX_REPEATS + 1, True)])
async def test_a_stream_that_repeats_itself_is_ended(store: CollectorStore, repeats: int, *, ends: bool) -> None:
    """What it had sent stays in the sum; the others notice nothing."""

    def up(index: int, message: ParticipantMessage) -> object:
        if isinstance(message, MaskedInputPiece) and index == 4:
            return [message] * (1 + repeats)
        return message

    driven = Driven(store, up)
    await driven.run()
    assert driven.refused == ({4: RejectionReason.ALREADY_RECEIVED} if ends else {})
    assert driven.monitor.snapshot()["rejections.already_received"] == MAX_REPEATS
    assert driven.outcome(0) == Receipt("round-1", SIZE, SIZE)
    assert store.released_sums()[0].totals == (10,)
