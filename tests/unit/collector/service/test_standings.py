"""What a device that joins is told: its totals, and the sum that holds its report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from client_sdk.identity import IdentityKey
from collector.service import standings
from collector.service.monitoring import Monitor
from collector.service.standings import Standings
from collector.service.storage import CollectorStore, Contributor, Question, Release, Standing
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.store_access import StoreAccess
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, make_plan

NAME = "app-health"
KNOWN = [IdentityKey(bytes([n]) * 32) for n in range(1, 4)]
STRANGER = IdentityKey(bytes(32))


def ask(identity: IdentityKey, name: str = NAME, period_start: int = PERIOD) -> Question:
    return (identity.device_id, name, period_start)


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    """The first two of three are counted today, the first yesterday as well, under an older version."""
    opened = CollectorStore.open(store_url)
    older, newer = make_plan(), make_plan(2)
    for plan in (older, newer):
        opened.put_plan(plan, NOW)
    for name, plan, period_start, members in (
        ("yesterday", older, PERIOD - DAY_S, (KNOWN[0], STRANGER)),
        ("today", newer, PERIOD, (KNOWN[0], KNOWN[1], STRANGER)),
    ):
        contributors = [Contributor(identity.device_id, bytes(16), resent=False) for identity in members]
        totals = [0] * plan.length
        opened.store_release(Release(name, plan, period_start, totals, contributors, 5, 0, {}, 1.0, NOW))
    yield opened
    opened.close()


def test_questions_of_several_kinds_at_once(store: CollectorStore) -> None:
    """Over all versions of a name, by name and period; a device that never came has a standing of nothing."""
    cost = make_plan().report_micro_epsilon
    expected = {
        ask(KNOWN[0]): Standing(2, 2 * cost, ("today", 3)),
        ask(KNOWN[0], period_start=PERIOD - DAY_S): Standing(2, 2 * cost, ("yesterday", 2)),
        ask(KNOWN[0], "another"): Standing(2, 2 * cost, None),
        ask(KNOWN[1]): Standing(1, cost, ("today", 3)),
        ask(KNOWN[1], period_start=PERIOD - DAY_S): Standing(1, cost, None),
        ask(KNOWN[2]): Standing(0, 0, None),
    }
    never = IdentityKey(bytes([9]) * 32)
    expected |= {ask(never): Standing(0, 0, None), ask(never, "another"): Standing(0, 0, None)}
    assert store.standings(list(expected)) == expected
    assert store.standings([]) == {}


def test_more_devices_than_one_statement_takes(store: CollectorStore) -> None:
    crowd = [(f"{n:032x}", NAME, PERIOD) for n in range(1200)]
    found = store.standings([*crowd, ask(KNOWN[1])])
    assert found.pop(ask(KNOWN[1])).reports == 1
    assert found == dict.fromkeys(crowd, Standing(0, 0, None))


class Counting(CollectorStore):
    """Counts how often it is asked, and may fail."""

    times = 0
    problem: StoreProblem | None = None

    def standings(self, questions: Sequence[Question]) -> dict[Question, Standing]:
        type(self).times += 1
        if self.problem is not None:
            raise StoreError(self.where, self.problem)
        return super().standings(questions)


@pytest.fixture
def counting(store: CollectorStore, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    monkeypatch.setattr(standings, "CollectorStore", Counting)
    opened = Counting.open(store_url)
    Counting.times, Counting.problem = 0, None
    yield opened
    opened.close()


async def test_the_questions_of_one_moment_are_one_look_up(counting: Counting) -> None:
    desk = Standings(StoreAccess(counting, Monitor()))
    questions = [ask(identity) for identity in (*KNOWN, STRANGER)]
    answers = await asyncio.gather(*map(desk.ask, questions))
    assert answers == [counting.standings([question])[question] for question in questions]
    assert Counting.times == 1 + len(questions)
    assert await desk.ask(ask(KNOWN[2])) == Standing(0, 0, None), "and the next moment's are another one"


async def test_nothing_is_remembered(counting: Counting) -> None:
    desk = Standings(StoreAccess(counting, Monitor()))
    plan, question = make_plan(), ask(KNOWN[2], period_start=PERIOD - DAY_S)
    assert (await desk.ask(question)).reports == 0
    contributors = [Contributor(identity.device_id, bytes(16), resent=False) for identity in KNOWN[1:]]
    totals = [0] * plan.length
    counting.store_release(Release("later", plan, PERIOD - DAY_S, totals, contributors, 5, 0, {}, 1.0, NOW))
    assert (await desk.ask(question)).counted == ("later", 2)


async def test_a_failing_store_is_said_to_all_who_ask(counting: Counting) -> None:
    access = StoreAccess(counting, Monitor())
    desk = Standings(access)
    Counting.problem = StoreProblem.LOCKED
    answers = await asyncio.gather(*(desk.ask(ask(identity)) for identity in KNOWN), return_exceptions=True)
    assert [getattr(answer, "problem", None) for answer in answers] == [StoreProblem.LOCKED] * 3
    assert len({id(answer) for answer in answers}) == 3, "each has an exception of its own"
    await access.close(1.0)


async def test_who_left_before_the_answer_troubles_nobody(counting: Counting) -> None:
    desk = Standings(StoreAccess(counting, Monitor()))
    gone, stays = (asyncio.create_task(desk.ask(ask(identity))) for identity in KNOWN[:2])
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays) is not None
    assert gone.cancelled()
