"""Memoised metrics on a device: one permanent answer per value and identity, and a price that tells nothing."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import TelemetryClient
from client_sdk.device.files import DATABASE_NAME, StoreUnavailableError
from client_sdk.device.storage import DeviceStore
from client_sdk.device.views import UploadSummary
from client_sdk.errors import ConfigurationError
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState, make_report
from client_sdk.testing import FakeClock, InMemoryCollector
from tests.unit.client_sdk.device.helpers import DAY_S, Clock, make_client, plan_text

MICRO = 1_000_000
MEMO = "memoize = true\nepsilon_inf = 2.0\nmax_distinct = {}\n"


def memo_plan(
    max_distinct: int = 2, *, labels: int = 4, lifetime: str = "1000", more: str = "", **changes: Any
) -> Plan:
    """One metric of `labels` labels, nothing else, so that every cell of a report is its own."""
    text = plan_text(lifetime=lifetime, **changes)
    head = text[: text.index("[metrics.cold_start_ms]")]
    listed = ", ".join(f'"label-{i}"' for i in range(labels))
    metric = f'[metrics.answer]\nkind = "categorical"\ncategories = [{listed}]\nepsilon = 1.0\n{more}'
    return parse_plan(head + metric + MEMO.format(max_distinct))


class Life:
    """One device, day by day; what its instantaneous rounds were given is written down."""

    def __init__(self, folder: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.folder, self.plan, self.settings = folder, plan, settings
        self.clock = Clock()
        self.answers: list[int] = []
        self.begun = False
        mechanism: Any = type(plan.metrics["answer"].mechanism)
        drawn = mechanism.instantaneous

        def noted(self_: Any, answer: int, entropy: Any) -> list[int]:
            self.answers.append(answer)
            return list(drawn(self_, answer, entropy))

        monkeypatch.setattr(mechanism, "instantaneous", noted)
        self.client = self.opened()

    def opened(self) -> TelemetryClient:
        return make_client(self.folder, self.plan, clock=self.clock, **self.settings)

    def restart(self) -> None:
        self.client.close()
        self.client = self.opened()

    def day(self, *values: str) -> list[int]:
        """One day after the other, one value on each; the permanent answers that were reported."""
        before = len(self.answers)
        for value in values:
            self.clock.now += DAY_S * self.begun
            self.begun = True
            self.client.record("answer", value)
            self.client.flush(seal=True)
        return self.answers[before:]

    @property
    def charged(self) -> int:
        return self.client.spent().lifetime_micro

    @property
    def view(self) -> tuple[int, int]:
        (seen,) = self.client.memoised()
        return seen.reports, seen.distinct


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a folder: 400 days wait for the disk some thousand times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_400_days_of_one_value_have_one_permanent_answer_and_stay_within_the_budget(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # case C08: k = 2, epsilon 1, lifetime 4 (and what the smallest charges of 398 reports come to)
    life = Life(quick_path / "d", memo_plan(labels=2, lifetime="4.000398"), monkeypatch)
    answers = life.day(*["label-0"] * 400)
    assert len(answers) == 400
    assert len(set(answers)) == 1
    assert life.charged == 4 * MICRO + 398
    assert life.view == (400, 1)
    assert life.client.memoised()[0].exact_micro_epsilon == 2 * MICRO
    life.day("label-0")
    assert life.client.counters()["budget_lifetime"] == 1, "no 401st report"
    assert life.charged == 4 * MICRO + 398
    life.client.close()


def test_the_price_is_the_same_whatever_the_values_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    charges = []
    for name, values in (("same", [0, 0, 0, 0, 0]), ("changing", [0, 1, 2, 3, 0])):
        life = Life(tmp_path / name, memo_plan(3), monkeypatch)
        life.day(*(f"label-{value}" for value in values))
        charges.append([entry["micro_epsilon"] for entry in life.client.export_ledger()["entries"]])
        life.client.close()
    assert charges[0] == charges[1] == [MICRO, 3 * MICRO, 2 * MICRO, 1, 1]


def test_answers_survive_restarts_and_come_back_with_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "d", memo_plan(4, labels=64, more='mechanism = "optimized_unary"\n'), monkeypatch)
    a, b = life.day("label-0", "label-1")
    life.restart()
    assert life.day("label-1", "label-0", "label-1") == [b, a, b]
    assert a != b, "two rows of 64 bits"
    assert life.view == (5, 2)
    life.client.close()


def test_beyond_max_distinct_the_answer_of_the_last_value_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "d", memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n'), monkeypatch)
    a, b = life.day("label-0", "label-1")
    assert life.day("label-2", "label-3", "label-0", "label-9", "label-1", "label-2") == [b, b, a, a, b, b]
    assert life.view == (8, 2)
    assert life.client.counters()["memoised_answer_kept"] == 4
    assert life.charged == 4 * MICRO + 6, "nothing is stopped, and nothing costs more"
    life.client.close()


def test_no_value_and_no_answer_rests_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path / "d", memo_plan(2), monkeypatch, seal_key=bytes(32))
    life.day("label-3", "label-2")
    life.clock.now += DAY_S
    life.client.record("answer", "label-3")
    life.client.close()
    for file in (tmp_path / "d").rglob("*"):
        held = file.read_bytes() if file.is_file() else b""
        text = life.plan.text.encode()
        assert b"label-3" not in held.replace(text, b""), file.name
    store = life.opened()._engine.access.store()
    with store._transaction() as db:
        rows = [tuple(row) for row in db.execute("SELECT digest, place FROM memo_values ORDER BY place")]
    assert [place for _, place in rows] == [1, 2]
    assert {len(digest) for digest, _ in rows} == {16}


def test_digests_need_the_hosts_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the folder alone nobody can try the values, where the host gave a key; another key knows none of them."""
    plan = memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n')
    life = Life(tmp_path / "d", plan, monkeypatch, seal_key=b"k" * 32)
    a, b = life.day("label-0", "label-1")
    life.settings["seal_key"] = b"x" * 32
    life.restart()
    other = life.day("label-0", "label-1", "label-2")
    assert len(set(other)) == 1, "one answer, of no value"
    assert not {a, b} & set(other)
    life.settings["seal_key"] = b"k" * 32
    life.restart()
    assert life.day("label-0", "label-1") == [a, b]
    life.client.close()


def test_a_lost_database_keeps_its_answers_and_gives_no_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n')
    life = Life(tmp_path / "d", plan, monkeypatch)
    life.day("label-0")
    life.client.close()
    (tmp_path / "d" / DATABASE_NAME).unlink()
    life.client, life.begun = life.opened(), False  # nobody remembers that this day has its report
    life.client.reset_ledger()
    kept = life.day("label-0", "label-5", "label-6")
    assert len(set(kept)) == 1, "which values were answered for nobody knows: none is, until the user opts out and in"
    assert life.charged == MICRO + 4 * MICRO + 1, "what was lost stays charged, and it costs again"
    life.client.close()


def test_a_restored_backup_is_caught_also_when_reports_cost_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "d", memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n'), monkeypatch)
    a, *_ = life.day("label-0", "label-0", "label-0", "label-0")
    life.client.close()
    shutil.copytree(tmp_path / "d", tmp_path / "backup")
    life.client = life.opened()
    life.day("label-1")  # the second and last value that is answered for
    life.client.close()
    shutil.rmtree(tmp_path / "d")
    (tmp_path / "backup").rename(tmp_path / "d")
    life.client, life.begun = life.opened(), False  # of that day nothing is known any more
    store = life.client._engine.access.store()
    with store._transaction() as db:
        db.execute("UPDATE spool SET hand_overs = 1")
    assert life.charged == 4 * MICRO + 2
    assert store.note_collector_total(4 * MICRO + 2)
    assert not store.note_collector_total(4 * MICRO + 3), "five reports reached the collector"
    life.client.reset_ledger()
    assert len({a, *life.day("label-2", "label-0", "label-3")}) == 2, "no value at all, and one answer for that"
    life.client.close()


def test_a_restored_backup_is_caught_also_after_opting_out_and_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier identity's charges are no cover for the reports of this one that the backup has forgotten."""
    life = Life(tmp_path / "d", memo_plan(2, max_delay="30d"), monkeypatch)
    life.day("label-0", "label-0", "label-0", "label-0", "label-0")
    with life.client._engine.access.store()._transaction() as db:
        db.execute("UPDATE spool SET hand_overs = 1")
    life.client.opt_out()
    life.client.opt_in(enrolment_token="any")
    life.client.close()
    shutil.copytree(tmp_path / "d", tmp_path / "backup")
    before = life.charged
    life.client = life.opened()
    life.day("label-0", "label-0", "label-0")
    with life.client._engine.access.store()._transaction() as db:
        db.execute("UPDATE spool SET hand_overs = 1")
    life.client.close()
    booked = life.charged - before
    assert life.client._engine.access.store().note_collector_total(booked)
    for total in (1, MICRO, booked, 5 * MICRO):
        put_back(tmp_path / "d", tmp_path / "backup")
        store = DeviceStore(str(tmp_path / "d"))
        assert store.note_collector_total(0)
        assert not store.note_collector_total(total)


def test_an_answer_drawn_before_damage_is_known_does_not_leave_after_the_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perturbed, and not stored for a disk that did not answer: of values, like those that damage gives up."""
    life = Life(tmp_path / "d", memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n'), monkeypatch)
    store = life.client._engine.access.store()
    seal = type(store).seal

    def fails(*_: Any) -> None:
        raise StoreUnavailableError("locked")

    monkeypatch.setattr(type(store), "seal", fails)
    life.day("label-0")
    monkeypatch.setattr(type(store), "seal", seal)
    assert not store.note_collector_total(10 * MICRO)
    life.client.reset_ledger()
    charged = life.charged
    life.client.flush()
    assert (store.waiting(), life.charged) == (0, charged), "neither kept nor charged"
    assert life.client.counters()["ledger_damaged"] == 1
    assert "ledger" not in life.client._engine.access.outages()._current, "it is sound: nobody need reset it again"
    (of_no_value,) = life.day("label-1")
    assert of_no_value not in life.answers[:1]
    assert store.waiting() == 1, "and it goes on"
    life.client.close()


def put_back(folder: Path, backup: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


@pytest.mark.parametrize("restores", [1, 4])
def test_a_restored_backup_then_a_new_value_gives_no_answer_beyond_max_distinct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restores: int
) -> None:
    """The value comes before the device hears that it was restored: its answer is drawn anew, and must not leave."""
    plan = memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n', max_delay="30d")
    life = Life(tmp_path / "d", plan, monkeypatch)
    life.day("label-0")
    life.client.close()
    shutil.copytree(tmp_path / "d", tmp_path / "backup")
    life.client = life.opened()
    life.day("label-1", "label-0", "label-0")  # two values, as many as are answered for; the collector has all four
    total, after = life.charged, set()
    life.client.close()
    for restore in range(restores):
        put_back(tmp_path / "d", tmp_path / "backup")
        life.client, life.begun = life.opened(), False
        life.day(f"label-{7 + restore}")
        charged = life.charged
        store = life.client._engine.access.store()
        with store._transaction() as db:  # the older one may have left, and is not known to have been counted
            db.execute("UPDATE spool SET hand_overs = 1 WHERE period_start = (SELECT min(period_start) FROM spool)")
        assert not store.note_collector_total(total)
        assert store.waiting() == 0, "of either it is not known whether its answer is out"
        assert life.client.counters()["ledger_damaged"] == 2
        assert {(entry.outcome, entry.left_device) for entry in life.client.history()} == {("ledger_damaged", True)}
        life.client.reset_ledger()
        assert store.waiting() == 0
        assert life.charged >= max(total, charged), "what was given up stays charged"
        assert store.note_collector_total(total), "and it goes on"
        after |= set(life.day("label-0", f"label-{7 + restore}", "label-30"))
        life.client.close()
    assert len(after) == 1, "the same answer, of no value, whatever the value and after whichever restore"


def test_a_restored_backup_then_a_new_value_over_direct_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n').text
    plan = parse_plan(text.replace("[delivery]", '[delivery]\ndelivery = "direct"'))
    mechanism: Any = type(plan.metrics["answer"].mechanism)
    # each report is its permanent answer, bit by bit
    monkeypatch.setattr(mechanism, "instantaneous", lambda _self, answer, _: [answer >> bit & 1 for bit in range(64)])
    clock = FakeClock()
    collector = InMemoryCollector(plan, clock=clock)

    def opened() -> TelemetryClient:
        return collector.client(tmp_path / "d", allow_direct=True)

    def day(client: TelemetryClient, value: str) -> UploadSummary:
        clock.advance(DAY_S)
        client.record("answer", value)
        client.flush(seal=True)
        clock.advance(DAY_S)
        return asyncio.run(client.upload())

    def sent() -> list[tuple[int, ...]]:
        return [tuple(report.elements["answer"]) for report in collector.reports]

    client = opened()
    day(client, "label-0")
    client.close()
    shutil.copytree(tmp_path / "d", tmp_path / "backup")
    client = opened()
    day(client, "label-1")
    day(client, "label-0")
    before = sent()
    assert len(set(before)) == 2
    for restore in range(3):
        client.close()
        put_back(tmp_path / "d", tmp_path / "backup")
        client = opened()
        assert day(client, f"label-{7 + restore}").failed == {"ledger_damaged": 1}
        client.reset_ledger()
        day(client, f"label-{17 + restore}")
    client.close()
    after = sent()[len(before) :]
    assert len(after) >= 3
    assert len(set(after)) == 1, "of no value"


def test_damage_gives_up_reports_of_memoised_metrics_only(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", parse_plan(plan_text()), clock=clock)
    client.record("cold_start_ms", 812)
    client.flush(seal=True)
    store = client._engine.access.store()
    assert not store.note_collector_total(10 * MICRO)
    assert store.waiting() == 1, "it answers for nothing anew, and waits for reset_ledger()"
    client.close()


def test_opting_out_and_in_draws_other_answers_at_a_new_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = memo_plan(2, labels=64, more='mechanism = "optimized_unary"\n')
    life = Life(tmp_path / "d", plan, monkeypatch)
    (a,) = set(life.day("label-0", "label-0"))
    assert life.charged == 4 * MICRO
    life.client.opt_out()
    life.client.opt_in(enrolment_token="any")
    assert life.view == (0, 0)
    (other,) = life.day("label-0")
    assert other != a
    assert life.charged == 5 * MICRO, "no refund and nothing for free: the new identity's first report"
    assert life.view == (1, 1)
    life.client.close()


def test_reports_that_never_left_are_no_cover_for_a_restored_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector books by number: the third report costs it what the first does, if it is the first to arrive."""
    life = Life(tmp_path / "d", memo_plan(2), monkeypatch)
    life.day("label-0", "label-0", "label-0", "label-0")
    store = life.client._engine.access.store()
    with store._transaction() as db:
        db.execute(
            "UPDATE spool SET hand_overs = 1 WHERE period_start IN "
            "(SELECT period_start FROM spool ORDER BY period_start DESC LIMIT 1)"
        )
    assert store.note_collector_total(MICRO), "the only one that left, the cheapest here, the first there"
    assert not store.note_collector_total(MICRO + 1)
    life.client.close()


def test_a_preview_answers_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path / "d", memo_plan(1, labels=64, more='mechanism = "optimized_unary"\n'), monkeypatch)
    life.client.record("answer", "label-7")
    life.client.preview()
    shown = life.answers[-1]
    assert [report.epsilon for report in life.client.preview().unsealed] == [1], "the first report's price"
    assert life.view == (0, 0)
    assert life.day("label-7") == [shown], "it shows the very answer that would be reported"
    life.client.close()


def test_a_store_that_does_not_answer_leaves_the_period_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "d", memo_plan(2), monkeypatch)
    store = life.client._engine.access.store()
    working = type(store).memo_answers

    def fails(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("locked")

    life.client.record("answer", "label-1")
    life.clock.now += DAY_S
    monkeypatch.setattr(type(store), "memo_answers", fails)
    life.client.flush(seal=True)
    assert life.charged == 0
    monkeypatch.setattr(type(store), "memo_answers", working)
    life.client.flush(seal=True)
    assert life.charged == 4 * MICRO, "that day's and this one's"
    life.client.close()


def test_reports_are_drawn_anew_from_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path / "d", memo_plan(1, max_delay="300d"), monkeypatch)
    (answer,) = set(life.day(*["label-0"] * 60))
    seen = Counter(waiting.elements.index(1) for waiting in life.client.preview().waiting)
    mechanism: Any = life.plan.metrics["answer"].mechanism
    assert sum(seen.values()) == 60
    assert abs(seen[answer] - 60 * mechanism.second / 2**64) < 5 * (60 * 0.25) ** 0.5
    assert set(seen) != {answer}, "the same each time by a chance below 10^-12"
    life.client.close()


def test_a_memoised_metric_is_never_reported_without_its_permanent_answer() -> None:
    plan = memo_plan(1)
    with pytest.raises(ConfigurationError, match="permanent answer"):
        make_report(plan, PeriodState(plan), bytes)
