"""What housekeeping keeps and drops, at the second, on both engines; and the command that does it by hand."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.plan import parse_plan
from collector.service import cli, retention, storage_folding
from collector.service.housekeeping import Housekeeping
from collector.service.monitoring import Monitor
from collector.service.retention import (
    FOREVER,
    MARGIN_S,
    MOST_ROUNDS,
    SLICES,
    ClockError,
    Retention,
    Tidied,
    agreed_time,
)
from collector.service.settings import ServeSettings
from collector.service.storage import CollectorStore, DuplicateContributionError, RoundRecord
from collector.service.storage_errors import StoreError, StoreProblem
from collector.service.storage_rows import Blamed
from collector.service.store_access import StoreAccess
from tests.unit.collector.service.stores import (
    DAY_S,
    NOW,
    PERIOD,
    counts,
    device,
    make_plan,
    make_release,
    plan_text,
    query,
)  # fmt: skip

PLAN = make_plan()
TAKEN_S = 2 * DAY_S
"""A day, and a day of `max_delay`."""

SHORT = Retention(contributions_s=DAY_S, rounds_s=DAY_S)


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    opened.put_plan(PLAN, NOW)
    yield opened
    opened.close()


def aborted(
    round_id: str, period_start: int = PERIOD, finished_at: int = NOW, blamed: int | None = None
) -> RoundRecord:
    none = {"shares": 5, "masked_input": 0, "confirm": 0, "unmask": 0}
    who = [] if blamed is None else [Blamed(device(blamed), "wrong_share")]
    return RoundRecord(
        round_id, PLAN.hash, period_start, 5, 0, none, "aborted", "too_few_sharers", 2.0, finished_at, who
    )


def hex_device(first: str) -> str:
    return first + "7" * 31


def test_contributions_stay_while_their_reports_could_come_and_a_week_beyond(store: CollectorStore) -> None:
    """However short a time is asked for: the key that keeps a report from counting twice is not to be dropped."""
    store.store_release(make_release(PLAN))
    last = PERIOD + TAKEN_S + MARGIN_S - 1
    assert store.keep_house(last, SHORT) == Tidied()
    with pytest.raises(DuplicateContributionError):
        store.store_release(make_release(PLAN, "again"))
    assert store.keep_house(last + 1, SHORT) == Tidied(contributions=3)
    assert store.contributions() == []


def test_of_all_versions_the_one_that_waits_longest_decides(store: CollectorStore) -> None:
    store.store_release(make_release(PLAN))
    patient = plan_text(2).replace('period = "1d"', 'period = "1d"\nmax_delay = "300d"')
    store.put_plan(parse_plan(patient), NOW)
    other = make_plan(name="other")
    store.put_plan(other, NOW)
    store.store_release(make_release(other, "round-2"))
    assert store.keep_house(PERIOD + 100 * DAY_S, SHORT) == Tidied(contributions=3), "those of the other plan"
    last = PERIOD + 301 * DAY_S + MARGIN_S - 1
    assert store.keep_house(last, SHORT).contributions == 0
    assert store.keep_house(last + 1, SHORT).contributions == 3


@pytest.mark.parametrize("keep_days", [50, 400])
def test_and_longer_where_it_is_asked_for(store: CollectorStore, keep_days: int) -> None:
    store.store_release(make_release(PLAN))
    keep = Retention(contributions_s=keep_days * DAY_S)
    assert store.keep_house(PERIOD + keep_days * DAY_S - 1, keep).contributions == 0
    assert store.keep_house(PERIOD + keep_days * DAY_S, keep).contributions == 3


def test_the_default_is_what_is_stated() -> None:
    settings = ServeSettings((Path("p"),), "d.db", "00", insecure=True)
    kept = Retention(settings.keep_spends_s, settings.keep_contributions_s, settings.keep_rounds_s)
    assert kept == Retention() == Retention(365 * DAY_S, 400 * DAY_S, FOREVER)


def test_for_good_is_for_good(store: CollectorStore) -> None:
    store.store_release(make_release(PLAN))
    store.record_aborted(aborted("gone", blamed=1))
    kept = Retention(spends_s=FOREVER, contributions_s=FOREVER, rounds_s=FOREVER)
    before = store.contributions(), store.rounds(), store.spending(NOW + 5000 * DAY_S)
    assert store.keep_house(NOW + 5000 * DAY_S, kept) == Tidied()
    assert (store.contributions(), store.rounds(), store.spending(NOW + 5000 * DAY_S)) == before


def test_every_device_is_in_one_slice(store: CollectorStore) -> None:
    """Each first digit, and the ids at the slices' very ends."""
    devices = ["0" * 32, "f" * 32, *(hex_device(digit) for digit in "0123456789abcdef")]
    one = make_release(PLAN)
    contributor = one.contributors[0]
    many = [type(contributor)(name, contributor.report_id, False) for name in devices]
    values = {name: getattr(one, name) for name in one.__slots__} | {"contributors": many, "roster_size": 18}
    values["totals"] = [0] * PLAN.length
    values["totals"][PLAN.slices["network"].start] = 18
    store.store_release(type(one)(**values))
    assert len(store.contributions()) == 18
    tidied = [piece.contributions for piece in store.house_pieces(NOW + 500 * DAY_S)]
    assert sum(tidied) == 18
    assert sorted(filter(None, tidied)) == [*[1] * 14, 2, 2]
    assert len(SLICES) == 16


def test_rounds_without_a_sum_go_and_those_with_one_stay(store: CollectorStore, store_url: str) -> None:
    store.store_release(make_release(PLAN))
    store.record_aborted(aborted("old", blamed=1))
    store.record_aborted(aborted("young", period_start=PERIOD + 300 * DAY_S, finished_at=NOW + 300 * DAY_S, blamed=2))
    keep = Retention(rounds_s=30 * DAY_S)
    assert store.keep_house(NOW + 30 * DAY_S, keep).rounds == 0
    assert store.keep_house(NOW + 300 * DAY_S, keep).rounds == 1
    assert {row.round_id for row in store.rounds()} == {"round-1", "young"}
    assert query(store_url, "SELECT device FROM blames") == [(device(2),)]
    store.keep_house(NOW + 5000 * DAY_S, keep)
    assert {row.round_id for row in store.rounds()} == {"round-1"}
    assert len(store.released_sums()) == 2, "what was released stays"


def test_whom_a_released_round_blames_goes_too(store: CollectorStore, store_url: str) -> None:
    one = make_release(PLAN)
    values = {name: getattr(one, name) for name in one.__slots__} | {"blamed": [Blamed(device(9), "wrong_share")]}
    store.store_release(type(one)(**values))
    store.keep_house(NOW + 100 * DAY_S, Retention(rounds_s=30 * DAY_S))
    assert query(store_url, "SELECT device FROM blames") == []
    assert len(store.rounds()) == 1


def test_a_blame_stays_as_long_as_it_keeps_a_report_out(store: CollectorStore) -> None:
    """A day is asked for; reports of the period are taken for nine (with the margin)."""
    store.record_aborted(aborted("one", blamed=1))
    question = (device(1), PLAN.name, PERIOD)
    last = PERIOD + TAKEN_S + MARGIN_S - 1
    store.keep_house(last, SHORT)
    assert store.standings([question])[question].blamed
    store.keep_house(last + 1, SHORT)
    assert not store.standings([question])[question].blamed


def test_many_old_rounds_go_in_pieces(store: CollectorStore) -> None:
    for number in range(MOST_ROUNDS + 5):
        store.record_aborted(aborted(f"r-{number}"))
    pieces = [
        piece.rounds for piece in store.house_pieces(NOW + 500 * DAY_S, Retention(rounds_s=DAY_S)) if piece.rounds
    ]
    assert pieces == [MOST_ROUNDS, 5]


def test_lifetimes_and_figures_stay(store: CollectorStore, store_url: str) -> None:
    for number in range(3):
        store.store_release(make_release(PLAN, f"round-{number}", period_start=PERIOD + number * DAY_S, resent=[1]))
    later = NOW + 800 * DAY_S
    before = store.lifetimes_micro_epsilon(), store.spending(later)[0].lifetime, store.smallest_sum(later, "lifetime")
    store.keep_house(later, Retention(contributions_s=DAY_S, rounds_s=DAY_S))
    assert counts(store_url)["spends"] == counts(store_url)["contributions"] == 0
    after = store.lifetimes_micro_epsilon(), store.spending(later)[0].lifetime, store.smallest_sum(later, "lifetime")
    assert after == before
    ledger = store.ledger(later, device(1))
    assert ledger is not None
    assert (ledger.carried_micro_epsilon, sum(row.reports for row in ledger.folded)) == (0, 3)


def test_contributions_go_in_short_pieces(store: CollectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_CONTRIBUTIONS", 4)
    for number in range(3):
        store.store_release(make_release(PLAN, f"r-{number}", range(7), period_start=PERIOD + number * DAY_S))
    pieces = [piece.contributions for piece in store.house_pieces(PERIOD + 400 * DAY_S)]
    assert sum(pieces) == 7, "the first period's"
    assert max(pieces) <= 2
    assert {one.period_start for one in store.contributions()} == {PERIOD + DAY_S, PERIOD + 2 * DAY_S}
    assert store.keep_house(PERIOD + 500 * DAY_S).contributions == 14


def test_spends_are_folded_in_short_pieces_and_nothing_is_lost(
    store: CollectorStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within a round."""
    for number in range(3):
        store.store_release(make_release(PLAN, f"r-{number}", range(7), period_start=PERIOD + number * DAY_S))
    later = NOW + 800 * DAY_S
    before = store.lifetimes_micro_epsilon(), store.spending(later), store.smallest_sum(later, "lifetime")
    for name, value in {"PIECE_S": 0.0, "MOST_REPORTS": 3, "MOST_ROWS": 5}.items():
        monkeypatch.setattr(storage_folding, name, value)
    pieces = [piece.spends for piece in store.house_pieces(later) if piece.spends]
    assert pieces == [6, 6, 2] * 3
    assert (store.lifetimes_micro_epsilon(), store.spending(later), store.smallest_sum(later, "lifetime")) == before
    assert query(store_url, "SELECT DISTINCT reports, micro_epsilon FROM folded_spends") == [(3, 6_000_000)]
    assert counts(store_url)["spends"] == 0


# --- by whose clock -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "database_now", "newest", "agreed"),
    [
        (NOW, None, None, NOW), (NOW, None, NOW - MARGIN_S, NOW), (NOW, None, NOW - MARGIN_S - 1, None),
        (NOW, NOW + MARGIN_S, 0, NOW), (NOW, NOW - MARGIN_S, 0, NOW - MARGIN_S), (NOW, NOW + MARGIN_S + 1, 0, None),
        (NOW, NOW - MARGIN_S - 1, NOW, None), (NOW, None, NOW + 1, NOW),
    ],
)  # fmt: skip
def test_the_earlier_clock_counts_and_one_that_is_far_off_stops_it(
    now: float, database_now: float | None, newest: float | None, agreed: float | None
) -> None:
    if agreed is None:
        with pytest.raises(ClockError, match="clock"):
            agreed_time(now, database_now, newest)
    else:
        assert agreed_time(now, database_now, newest) == agreed


async def test_a_collector_whose_clock_is_years_ahead_drops_nothing(
    store: CollectorStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the keys that keep reports from counting twice would be gone for every collector."""
    store.store_release(make_release(PLAN, now=time.time()))
    monitor = Monitor()
    access = StoreAccess(store, monitor)
    await Housekeeping(access, monitor, lambda: time.time() + 500 * DAY_S, Retention()).once()
    assert (monitor.counted("housekeeping.failures"), len(store.contributions())) == (1, 3)
    assert "clock" in caplog.text
    assert access.working, "no outage"
    right = Housekeeping(access, monitor, time.time, Retention())
    await right.once()
    assert right.last_success_at is not None
    assert await access.close(5)


def test_by_hand_an_idle_store_is_tidied_up(store: CollectorStore) -> None:
    store.store_release(make_release(PLAN, now=NOW - 100 * DAY_S))
    now = time.time()
    assert store.agreed_time(now, by_hand=True) == pytest.approx(now, abs=5)


# --- in a running collector -----------------------------------------------------------------------------------------


async def test_the_service_tidies_piece_by_piece_and_counts(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What devices ask comes in between, whatever there is to tidy up."""
    monkeypatch.setattr(CollectorStore, "agreed_time", lambda _store, now: now)
    order: list[str] = []
    begun, asked = asyncio.Event(), threading.Event()
    loop, pieces = asyncio.get_running_loop(), CollectorStore.house_pieces

    def watched(this: CollectorStore, now: float, keep: Retention) -> Iterator[Tidied]:
        for piece in pieces(this, now, keep):
            order.append("piece")
            loop.call_soon_threadsafe(begun.set)
            assert asked.wait(60)  # by then the question queues, behind this piece
            yield piece

    def question(this: CollectorStore) -> tuple[int, int]:
        order.append("answer")
        return this.device_totals(device(1))

    monkeypatch.setattr(CollectorStore, "house_pieces", watched)
    for number in range(3):
        store.store_release(make_release(PLAN, f"round-{number}", period_start=PERIOD + number * DAY_S))
    monitor = Monitor()
    access = StoreAccess(store, monitor)
    keeping = Housekeeping(access, monitor, lambda: NOW + 800 * DAY_S, Retention())
    work = asyncio.create_task(keeping.once())
    await asyncio.wait_for(begun.wait(), 10)
    answer = asyncio.create_task(access.call(question))
    await asyncio.sleep(0)
    asked.set()
    assert (await answer)[0] == 3
    await work
    assert order[:2] == ["piece", "answer"]
    assert order.count("piece") > len(SLICES)
    assert monitor.counted("housekeeping.spends") == 18
    assert monitor.counted("housekeeping.contributions") == 9
    assert keeping.last_success_at == NOW + 800 * DAY_S
    assert sum(monitor.histogram("database_seconds", "keep_house").counts) > len(SLICES)


async def test_what_fails_is_counted_and_waits(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_arguments: Any) -> Iterator[Tidied]:
        raise StoreError("here", StoreProblem.LOCKED)

    monkeypatch.setattr(CollectorStore, "house_pieces", fails)
    monitor = Monitor()
    access = StoreAccess(store, monitor)
    keeping = Housekeeping(access, monitor, time.time, Retention())
    await keeping.once()
    assert (monitor.counted("housekeeping.failures"), keeping.last_success_at) == (1, None)
    assert "tried again tomorrow" in caplog.text
    assert await access.close(5)


# --- the command and the settings -----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "collector.db"
    store = CollectorStore.open(str(path))
    store.put_plan(PLAN, 0)
    store.store_release(make_release(PLAN, period_start=100 * DAY_S, now=100 * DAY_S))
    store.record_aborted(aborted("old", period_start=100 * DAY_S, finished_at=100 * DAY_S))
    store.close()
    assert cli.main(["housekeeping", "--db", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"spends": 6, "contributions": 3, "rounds": 0}
    assert cli.main(["housekeeping", "--db", str(path), "--keep-rounds", "90d"]) == 0
    assert capsys.readouterr().out == (
        "0 old spends folded; dropped: 0 rows of who contributed to old periods, 1 old rounds without a sum\n"
    )
    assert cli.main(["housekeeping", "--db", str(tmp_path / "none.db")]) == 2


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--keep-spends", "364d"], "--keep-spends"),
        (["--keep-contributions", "5h"], "--keep-contributions"),
        (["--keep-rounds", "0"], "--keep-rounds"),
        (["--keep-rounds", "never"], "not a duration"),
    ],
)
def test_too_short_is_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], word: str
) -> None:
    try:
        status = cli.main(["housekeeping", "--db", str(tmp_path / "c.db"), *options])
    except SystemExit as ended:
        status = int(str(ended.code))
    err = capsys.readouterr().err
    assert (status, err.count("\n"), word in err) == (2, 1, True), err
    assert not (tmp_path / "c.db").exists()


@pytest.mark.parametrize("field", ["keep_spends_s", "keep_contributions_s", "keep_rounds_s"])
def test_settings_that_cannot_be(field: str) -> None:
    for value in (3600.0, float("nan"), -1.0):
        with pytest.raises(ConfigurationError, match="--keep-"):
            ServeSettings((Path("p"),), "d.db", "00", insecure=True, **{field: value})  # type: ignore[arg-type]
