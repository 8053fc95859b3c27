"""The doctor: a whole store is whole, and each damage that a test does by hand is named, on both engines."""
# ruff: noqa: S608 - the statements are the tests' own

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.accounting.budget import format_micro
from client_sdk.plan import parse_plan
from collector.service import cli
from collector.service.doctor import CHECKS, MOST_EXAMPLES, Examination, examine
from collector.service.storage import CollectorStore, RoundRecord
from collector.service.storage_rows import DIRECT, Blamed
from tests import postgres
from tests.unit.collector.service.stores import (
    DAY_S,
    NOW,
    PERIOD,
    connection,
    device,
    execute,
    make_plan,
    make_release,
    plan_text,
)

LATER = NOW + 3600
PLAN = make_plan()
WIDE = parse_plan(plan_text(name="wide", categories=[f"c{i}" for i in range(4100)]))


def filled(url: str) -> None:
    """Two versions, three released rounds, a resent report, a direct sum, an aborted round with blame, an opt-out."""
    store = CollectorStore.open(url)
    newer = make_plan(2)
    for plan in (PLAN, newer, WIDE):
        store.put_plan(plan, NOW - 10 * DAY_S)
    store.store_release(make_release(PLAN, "round-1", range(4), resent=[2], period_start=PERIOD - DAY_S))
    store.store_release(make_release(newer, "round-2", range(3)))
    store.store_release(make_release(WIDE, "round-3", range(1, 4)))
    direct = make_release(PLAN, "sum-4", [7])
    store.store_release(type(direct)(**{**{f: getattr(direct, f) for f in direct.__slots__}, "delivery": DIRECT}))
    blamed = [Blamed(device(9), "wrong_share")]
    none = {"shares": 5, "masked_input": 0, "confirm": 0, "unmask": 0}
    store.record_aborted(
        RoundRecord("round-5", PLAN.hash, PERIOD, 5, 0, none, "aborted", "too_few_sharers", 2.0, NOW, blamed)
    )
    store.forget(device(3), NOW, certified=True)
    store.close()


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "collector.db"
    filled(str(path))
    return path


@pytest.fixture
def file(filled_file: Path, tmp_path: Path) -> Path:
    """A copy, which may be damaged."""
    return Path(shutil.copy(filled_file, tmp_path / "collector.db"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A filled store; its tables are to stay as they are."""
    if request.param == "sqlite":
        yield str(request.getfixturevalue("file"))
        return
    with postgres.used_database() as found:
        filled(found)
        yield found


def examined(url: str, now: float = LATER, log_rounds: list[str] | None = None) -> Examination:
    store = CollectorStore.open(url, read_only=True)
    try:
        return examine(store, now, log_rounds or [])
    finally:
        store.close()


def findings(url: str, now: float = LATER) -> dict[str, list[str]]:
    """But for durability: the tests' own server has none."""
    found = {result.check.name: list(result.examples) for result in examined(url, now).results if result.found}
    if url.startswith("postgres"):
        del found["durability"]
    return found


def damage(url: str, *statements: str) -> None:
    """With the engine told to look away from references, as broken software or a careless hand would."""
    postgres = url.startswith("postgres")
    with connection(url) as conn:
        conn.execute("SET session_replication_role = replica" if postgres else "PRAGMA foreign_keys = OFF")
        for statement in statements:
            conn.execute(statement)


def test_a_whole_store_is_whole(url: str) -> None:
    assert findings(url) == {}
    assert examined(url).facts == {
        "released_rounds": 4, "aborted_rounds": 1, "plans": 3, "devices": 4, "contributions": 11, "opted_out": 1,
        "first_release_at": NOW, "last_release_at": NOW,
    }  # fmt: skip


def test_and_so_it_is_after_housekeeping_years_later(url: str) -> None:
    store = CollectorStore.open(url)
    for days in (1, 366, 5000):
        store.keep_house(NOW + days * DAY_S)
        assert findings(url, NOW + days * DAY_S) == {}
    store.close()


def test_references_that_no_engine_may_have_checked_are_looked_at(url: str) -> None:
    """In PostgreSQL nobody refuses the statement: it checks neither of them row by row."""
    with connection(url) as conn:
        conn.execute("UPDATE spends SET round = 'nowhere' WHERE round = 'round-2'")
        conn.execute("UPDATE contributions SET round = 'nowhere' WHERE round = 'round-2'")
        conn.execute(
            "UPDATE spends SET plan_hash = report_id FROM contributions c "
            "WHERE spends.round = 'sum-4' AND c.round = 'sum-4'"
        )
    found = findings(url)["references"]
    assert "3 rows of contributions name rounds.round 'nowhere', which is not there" in found
    assert "6 rows of spends name rounds.round 'nowhere', which is not there" in found
    assert any("2 rows of spends name plans.hash" in line for line in found)


def test_an_empty_store_is_whole(own_store_url: str) -> None:
    CollectorStore.open(own_store_url).close()
    assert findings(own_store_url) == {}
    assert examined(own_store_url).facts["last_release_at"] is None


ONE = device(1)
TWO = device(2)
DAMAGES: dict[str, tuple[list[str], dict[str, str]]] = {
    # what is done -> the checks that must name it, and a word of what they say
    "a lifetime is smaller": (
        [f"UPDATE device_totals SET micro_epsilon = micro_epsilon - 1 WHERE device = '{ONE}'"],
        {"lifetime totals": ONE},
    ),
    "a lifetime counts another number of reports": (
        [f"UPDATE device_totals SET reports = reports + 1 WHERE device = '{ONE}'"],
        {"lifetime totals": ONE},
    ),
    "a lifetime is gone": ([f"DELETE FROM device_totals WHERE device = '{TWO}'"], {"lifetime totals": "no lifetime"}),
    "a spend is gone": (
        [f"DELETE FROM spends WHERE device = '{ONE}' AND round = 'round-2' AND metric = 'network'"],
        {"lifetime totals": ONE, "spends of each contribution": "another amount"},
    ),
    "a spend is cheaper, and its lifetime with it": (
        [
            f"UPDATE spends SET micro_epsilon = 1 WHERE device = '{ONE}' AND round = 'round-2' AND metric = 'network'",
            f"UPDATE device_totals SET micro_epsilon = micro_epsilon - 999999 WHERE device = '{ONE}'",
        ],
        {"spends of each contribution": "another amount"},
    ),
    "all spends of a report are gone, and its lifetime with it": (
        [
            f"DELETE FROM spends WHERE device = '{ONE}' AND round = 'round-2'",
            "UPDATE device_totals SET micro_epsilon = micro_epsilon - 2000000, reports = reports - 1 "
            f"WHERE device = '{ONE}'",
        ],
        {"spends of each contribution": "not booked"},
    ),
    "a resent report is booked as fresh": (
        [f"UPDATE spends SET central_falls_back = false WHERE device = '{TWO}' AND round = 'round-1'"],
        {"spends of each contribution": "falls back"},
    ),
    "a direct report is booked as if it had hidden": (
        [f"UPDATE spends SET central_falls_back = false WHERE device = '{device(7)}'"],
        {"spends of each contribution": "falls back"},
    ),
    "a spend stands under another round": (
        [f"UPDATE spends SET round = 'round-1' WHERE device = '{ONE}' AND round = 'round-2'"],
        {"spends of each contribution": "another round", "contribution of each spend": ONE},
    ),
    "a contribution is gone": (
        [f"DELETE FROM contributions WHERE device = '{ONE}' AND round = 'round-2'"],
        {"contributors": "3 contributors, and 2 rows", "contribution of each spend": ONE},
    ),
    "a contribution too many": (
        [f"INSERT INTO contributions VALUES ('{device(8)}', 'app-health', {PERIOD}, 'x', 'round-2', false)"],
        {"contributors": "3 contributors, and 4 rows", "spends of each contribution": "not booked"},
    ),
    "a contribution to another period": (
        [f"UPDATE contributions SET period_start = {PERIOD + DAY_S} WHERE device = '{ONE}' AND round = 'round-2'"],
        {
            "contributions agree with their rounds": "round-2",
            "contribution of each spend": ONE,
            "spends of each contribution": "not booked",
        },
    ),
    "a cell is gone": (
        ["DELETE FROM released_sums WHERE round = 'round-2' AND metric = 'network' AND cell = 1"],
        {"sums complete": "cell 1 of 'network' is missing"},
    ),
    "the last cell is gone": (
        ["DELETE FROM released_sums WHERE round = 'round-2' AND metric = 'network' AND cell = 3"],
        {"sums complete": "3 cells of 'network', its plan has 4"},
    ),
    "a metric is gone": (
        ["DELETE FROM released_sums WHERE round = 'round-2' AND metric = 'network'"],
        {"sums complete": "0 cells of 'network', its plan has 4"},
    ),
    "a metric too many": (
        [
            "INSERT INTO released_sums (round, metric, plan_hash, period_start, contributors, roster, resent, "
            "delivery, cell, total) "
            "SELECT round, 'extra', plan_hash, period_start, contributors, roster, resent, delivery, 0, 1 "
            "FROM released_sums WHERE round = 'round-2' AND metric = 'cold_start_ms'"
        ],
        {"sums complete": "1 cells of 'extra', its plan has 0"},
    ),
    "a vector is cut": (
        ["UPDATE released_vectors SET totals = substr(totals, 1, 80) WHERE round = 'round-3'"],
        {"sums complete": "80 bytes for 4101 elements"},
    ),
    "a vector is gone": (
        ["DELETE FROM released_vectors WHERE round = 'round-3'"],
        {"sums complete": "0 cells of 'network', its plan has 4101"},
    ),
    "a whole sum is gone": (
        ["DELETE FROM released_sums WHERE round = 'round-1'"],
        {"sums complete": "round-1"},
    ),
    "a total is beyond belief": (
        ["UPDATE released_sums SET total = 4000000000 WHERE round = 'round-2' AND metric = 'cold_start_ms'"],
        {"sums plausible": "'cold_start_ms'"},
    ),
    "a sum says fewer contributors": (
        ["UPDATE released_sums SET contributors = 2 WHERE round = 'round-2' AND metric = 'network'"],
        {"sums agree with their rounds": "metric 'network': contributors"},
    ),
    "a sum says another roster": (
        ["UPDATE released_sums SET roster = 99 WHERE round = 'round-2' AND metric = 'network'"],
        {"sums agree with their rounds": "roster"},
    ),
    "a sum says another period": (
        [f"UPDATE released_sums SET period_start = {PERIOD - DAY_S} WHERE round = 'round-2' AND metric = 'network'"],
        {"sums agree with their rounds": "period"},
    ),
    "a sum of two versions": (
        ["UPDATE released_sums SET plan_hash = (SELECT hash FROM plans WHERE version = 1 AND name = 'app-health') "
         "WHERE round = 'round-2' AND metric = 'network'"],
        {"sums agree with their rounds": "plan"},
    ),
    "a direct sum is called a masked one": (
        ["UPDATE released_sums SET delivery = 'interactive' WHERE round = 'sum-4'"],
        {
            "no sum under min_size": "a sum over 1 contributors, min_size is 2",
            "spends of each contribution": "falls back",
        },
    ),
    "an aborted round has a contribution": (
        [f"INSERT INTO contributions VALUES ('{device(8)}', 'app-health', {PERIOD}, 'x', 'round-5', false)"],
        {"aborted rounds": "1 rows in contributions", "spends of each contribution": "not booked"},
    ),
    "a round of no outcome": (
        ["UPDATE rounds SET reason = NULL WHERE round = 'round-5'"],
        {"aborted rounds": "round-5"},
    ),
    "a round is gone": (
        ["DELETE FROM rounds WHERE round = 'round-2'"],
        {"references": "3 rows of contributions name rounds.round 'round-2', which is not there"},
    ),
    "a plan is gone": (
        ["DELETE FROM plans WHERE version = 2"],
        {"references": "of rounds name plans.hash"},
    ),
    "a plan's text is another one's": (
        ["UPDATE plans SET text = (SELECT text FROM plans WHERE version = 2) "
         "WHERE version = 1 AND name = 'app-health'"],
        {"plans": "its text is another plan's"},
    ),
    "a plan's text is none": (
        ["UPDATE plans SET text = 'what' WHERE version = 1 AND name = 'app-health'"],
        {"plans": "cannot read it"},
    ),
    "a spend of the future": (
        [f"UPDATE spends SET charged_at = {LATER + 2 * DAY_S} WHERE round = 'round-2'"],
        {"clock": "spends have a charged_at"},
    ),
    "who opted out is booked": (
        [f"INSERT INTO device_totals VALUES ('{device(3)}', 0, 0, 0, 0, 0)"],
        {"who opted out": "device_totals"},
    ),
    "who opted out is blamed": (
        [f"INSERT INTO blames VALUES ('round-5', '{device(3)}', 'wrong_share')"],
        {"who opted out": "blames"},
    ),
    "more is folded than there was": (
        [
            "INSERT INTO folded_cohorts SELECT hash, hash, 'interactive', 3, 3, 3, '{}' FROM plans WHERE version = 2",
            f"INSERT INTO folded_spends SELECT '{ONE}', hash, false, 1, 1000000, 1, 2 FROM plans WHERE version = 2",
        ],
        {"folded spends": "more is folded with its history than in all"},
    ),
}  # fmt: skip


def _first_of_each_check() -> list[str]:
    """A damage for each check: enough to see that PostgreSQL understands the question."""
    met: set[str] = set()
    found = []
    for what, (_, expected) in DAMAGES.items():
        if not expected.keys() <= met:
            found.append(what)
        met |= expected.keys()
    return found


@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_is_named(file: Path, what: str) -> None:
    assert_named(str(file), what)


@pytest.mark.parametrize("what", _first_of_each_check())
def test_damages_are_named_in_postgresql_too(what: str) -> None:
    with postgres.used_database() as url:
        filled(url)
        assert_named(url, what)


def assert_named(url: str, what: str) -> None:
    statements, expected = DAMAGES[what]
    damage(url, *statements)
    found = findings(url)
    for name, word in expected.items():
        assert any(word in line for line in found.get(name, [])), (name, word, found)
    unexpected = found.keys() - expected.keys()
    assert not unexpected or what in {"a round is gone", "a plan is gone"}, found


def test_every_check_has_met_its_damage() -> None:
    met = {name for _, expected in DAMAGES.values() for name in expected}
    assert {check.name for check in CHECKS} - met == {"integrity", "durability", "schema"}, "those have their own tests"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TABLE folded_spends", "table folded_spends is missing"),
        ("ALTER TABLE opt_outs ADD COLUMN note TEXT", "table opt_outs has other columns: note"),
    ],
)
def test_tables_of_another_version(own_store_url: str, statement: str, said: str) -> None:
    """What cannot be asked then is said too, and does not end the examination."""
    filled(own_store_url)
    damage(own_store_url, statement)
    found = findings(own_store_url)
    assert found.pop("schema") == [said]
    assert all("cannot be read" in line for lines in found.values() for line in lines)


def test_a_key_that_is_gone_lets_reports_count_twice(own_store_url: str) -> None:
    filled(own_store_url)
    if own_store_url.startswith("postgres"):
        damage(own_store_url, "ALTER TABLE contributions DROP CONSTRAINT pk_contributions")
    else:
        columns = "device, plan_name, period_start, report_id, round, resent"
        damage(
            own_store_url,
            f"CREATE TABLE other AS SELECT {columns} FROM contributions",
            "DROP TABLE contributions",
            "ALTER TABLE other RENAME TO contributions",
        )
    assert findings(own_store_url) == {"schema": ["table contributions has another primary key, or none"]}


def test_many_findings_are_counted_and_some_are_shown(url: str) -> None:
    store = CollectorStore.open(url)
    store.store_release(make_release(PLAN, "round-9", range(20, 60), period_start=PERIOD - 2 * DAY_S))
    store.close()
    execute(url, "DELETE FROM spends WHERE round = 'round-9'")
    (result,) = (one for one in examined(url).results if one.check.name == "lifetime totals")
    assert (result.found, len(result.examples)) == (40, MOST_EXAMPLES)


def test_old_contributions_may_be_gone_and_young_ones_not(url: str) -> None:
    execute(url, f"DELETE FROM contributions WHERE device = '{ONE}' AND round = 'round-2'")
    assert set(findings(url)) == {"contributors", "contribution of each spend"}
    assert findings(url, NOW + 300 * DAY_S) == {}


def test_looking_changes_nothing(url: str) -> None:
    before = sorted(map(repr, everything(url)))
    examined(url)
    assert sorted(map(repr, everything(url))) == before


def everything(url: str) -> Iterator[Any]:
    with connection(url) as conn:
        for table in ("plans", "rounds", "released_sums", "contributions", "spends", "device_totals", "opt_outs"):
            yield from conn.execute(f"SELECT * FROM {table}").fetchall()


# --- SQLite's and PostgreSQL's own words ----------------------------------------------------------------------------


def pages_of(path: Path, table: str) -> tuple[int, int]:
    with connection(path) as conn:
        (root,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = conn.execute("PRAGMA page_size").fetchone()
    return (root - 1) * size, size


def test_a_torn_page_is_found_and_the_rest_is_looked_at_all_the_same(file: Path) -> None:
    start, size = pages_of(file, "spends")
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(b"\xff" * size)
    damage(str(file), "UPDATE rounds SET reason = NULL WHERE round = 'round-5'")
    found = findings(str(file))
    assert found["integrity"]
    assert any("cannot be read" in line for line in found["lifetime totals"])
    assert found["aborted rounds"] == ["round round-5: neither released, nor aborted for a reason"] or any(
        "cannot be read" in line for line in found["aborted rounds"]
    )
    assert "sums complete" not in found, "sums are whole, and that is said"


def test_an_index_that_lost_rows_is_found(file: Path) -> None:
    with connection(file) as conn:
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute(
            "UPDATE sqlite_master SET sql = sql || ' WHERE charged_at = 0' WHERE name = 'ix_spends_charged_at'"
        )
    assert any("ix_spends_charged_at" in line for line in findings(str(file))["integrity"])


def test_a_server_that_does_not_sync_is_said(postgres_url: str) -> None:
    """The tests' own server is one."""
    filled(postgres_url)
    (found,) = (result for result in examined(postgres_url).results if result.check.name == "durability")
    assert [line.partition(":")[0] for line in found.examples] == ["fsync is off", "full_page_writes is off"]


def test_an_index_that_is_not_valid_is_found(postgres_url: str) -> None:
    filled(postgres_url)
    damage(postgres_url, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_spends_charged_at'::regclass")
    assert findings(postgres_url)["integrity"] == ["index ix_spends_charged_at is not valid"]


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(list(arguments))
        return status, *capsys.readouterr()

    return call


def test_the_command_in_text(file: Path, run: Any) -> None:
    status, out, err = run("doctor", "--db", str(file))
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == str(file)
    assert out.splitlines()[1].startswith("4 released rounds, 1 aborted, 3 plan versions, 4 devices, 11 contributions")
    assert "what was released later is not in here" in out
    assert out.count("\nok       ") == len(CHECKS)
    assert out.endswith("\nwhole\n")
    execute(file, f"UPDATE device_totals SET micro_epsilon = 5 WHERE device = '{ONE}'")
    status, out, _ = run("doctor", "--db", str(file))
    assert status == 1
    assert "PROBLEM  lifetime totals: 1\n" in out
    assert f"device {ONE}: {format_micro(5)} in 3 reports" in out
    assert "this means: devices are shown" in out
    assert out.endswith("\nnot whole\n")


def test_the_command_as_json(file: Path, run: Any) -> None:
    execute(file, f"UPDATE device_totals SET reports = 5 WHERE device = '{ONE}'")
    status, out, _ = run("doctor", "--db", str(file), "--json")
    document = json.loads(out)
    assert (status, document["whole"], document["released_rounds"]) == (1, False, 4)
    assert {check["name"]: check["found"] for check in document["checks"] if check["found"]} == {"lifetime totals": 1}
    assert run("doctor", "--db", str(file), "--format", "json")[1] == out


def test_what_a_log_knows_and_the_store_does_not(file: Path, tmp_path: Path, run: Any) -> None:
    log = tmp_path / "collector.log"
    lines = [{"event": "round_released", "round": name} for name in ("round-1", "later-1", "later-2", "later-1")]
    lines += [{"event": "round_aborted", "round": "round-77"}, {"event": "round_released"}]
    log.write_text("not json\n[1]\n" + "".join(json.dumps(line) + "\n" for line in lines))
    status, out, _ = run("doctor", "--db", str(file), "--log", str(log))
    assert status == 1
    assert "does not have: 2\n         round later-1\n         round later-2\n" in out
    assert json.loads(run("doctor", "--db", str(file), "--log", str(log), "--json")[1])["missing_rounds"] == [
        "later-1",
        "later-2",
    ]
    log.write_text("2026-01-01T00:00:00Z INFO round x released\n")
    status, _, err = run("doctor", "--db", str(file), "--log", str(log))
    assert (status, "--log-format json" in err, err.count("\n")) == (2, True, 1)


def test_what_cannot_be_asked(tmp_path: Path, run: Any) -> None:
    assert run("doctor", "--db", str(tmp_path / "none.db"))[0] == 2
    assert run("doctor", "--db", "postgresql://ldp:SENTINEL@127.0.0.1:9/ldp")[0] == 3
    (tmp_path / "other.db").write_bytes(b"what" * 1000)
    status, _, err = run("doctor", "--db", str(tmp_path / "other.db"))
    assert (status, err.count("\n"), "SENTINEL" in err) == (2, 1, False)


def test_the_environment_names_the_store(file: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDP_COLLECTOR_DB", str(file))
    assert run("doctor")[0] == 0
    monkeypatch.delenv("LDP_COLLECTOR_DB")
    with pytest.raises(SystemExit):
        run("doctor")


def test_it_is_quick_beside_what_it_looks_at(file: Path) -> None:
    store = CollectorStore.open(str(file))
    for number in range(15):
        store.store_release(
            make_release(PLAN, f"r-{number}", range(100, 200), period_start=PERIOD - (3 + number) * DAY_S)
        )
    store.close()
    started = time.process_time()
    assert findings(str(file)) == {}
    assert time.process_time() - started < 5
