"""PostgreSQL under the store: replicas beside each other, a server that goes and comes, and what is said of it."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text

from client_sdk.errors import ConfigurationError, MissingExtraError, PlanError
from collector.service import storage_postgres, storage_writes
from collector.service.postgres_faults import describe
from collector.service.postgres_url import _VALUES, address_of
from collector.service.registrar.store import RegistrarStore
from collector.service.retention import ClockError
from collector.service.storage import CollectorStore, DuplicateContributionError, RoundRecord, StoreError, StoreProblem
from tests import postgres
from tests.commands import Run
from tests.tcp_proxy import TcpProxy
from tests.unit.collector.service.stores import (
    DAY_S,
    NOW,
    PERIOD,
    counts,
    device,
    differences,
    execute,
    make_plan,
    make_release,
    query,
)

SECRET = "SENTINEL-pa55"


@pytest.fixture(scope="module")
def server() -> postgres.Server:
    return postgres.server()


@pytest.fixture(scope="module")
def own_server() -> Iterator[postgres.Server]:
    """One that may be stopped and killed, and loses nothing."""
    with postgres.durable_server() as own:
        yield own


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.used_database() as found:
        yield found


@pytest.fixture
def store(url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(url)
    opened.put_plan(make_plan(), NOW)
    yield opened
    opened.close()


def problem_of(url: str, kind: type[CollectorStore | RegistrarStore] = CollectorStore, **options: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        kind.open(url, **options).close()
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
    return caught.value


def at(url: str, **parts: str) -> str:
    """The same URL with another user, password, host or database."""
    whole = {"user": "postgres", "password": "", "place": url.rpartition("@")[2].partition("/")[0], "name": ""}
    whole |= {"name": url.rpartition("/")[2]} | parts
    secret = f":{whole['password']}" if whole["password"] else ""
    return f"postgresql+psycopg://{whole['user']}{secret}@{whole['place']}/{whole['name']}"


# --- the URL ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "where"),
    [
        (f"postgresql+psycopg://ldp:{SECRET}@db.example:6543/telemetry", "postgresql://db.example:6543/telemetry"),
        (
            f"postgresql://ldp:{SECRET}@db.example/telemetry?sslmode=verify-full",
            "postgresql://db.example:5432/telemetry",
        ),
        (f"postgres://ldp:{SECRET}@[::1]/t", "postgresql://[::1]:5432/t"),
        ("postgresql:///t?host=/run/postgresql", "postgresql://%2Frun%2Fpostgresql:5432/t"),
        ("postgresql:///t", "postgresql://localhost:5432/t"),
    ],
)
def test_a_place_is_named_without_its_password(url: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGPORT", raising=False)
    address = address_of(url)
    assert address.where == where
    assert SECRET not in repr(address)
    assert (address.password == SECRET) is (SECRET in url)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg2://u:{SECRET}@h/d", f"postgresql+asyncpg://u:{SECRET}@h/d", f"postgresql://u:{SECRET}@h",
        f"postgresql://u:{SECRET}@h:{SECRET}/d", f"postgresql://u@h/d?password={SECRET}",
        f"postgresql://u:{SECRET}@h/d?options=-csynchronous_commit%3Doff", f"postgresql://u:x@h/d?{SECRET}=1",
        f"postgresql://u:{SECRET}@h/d?sslmode=a&sslmode=b",
    ],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CollectorStore.open(url)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sslmode", "bogus"), ("gssencmode", "maybe"), ("channel_binding", "on"),
        ("target_session_attrs", "leader"), ("ssl_min_protocol_version", "1.2"), ("connect_timeout", "soon"),
    ],
)  # fmt: skip
def test_a_value_that_libpq_does_not_take_is_wrong_input_by_its_name(run: Run, name: str, value: str) -> None:
    status, out, err = run("report", "--db", f"postgresql://u:{SECRET}@127.0.0.1:1/d?{name}={value}")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{name} must be" in err
    assert SECRET not in err


def test_the_values_that_libpq_takes_are_taken() -> None:
    for name, values in _VALUES.items():
        for value in values:
            assert address_of(f"postgresql://h/d?{name}={value}").parameters[name] == value
            with pytest.raises(psycopg.OperationalError) as caught:  # nobody is there
                psycopg.connect(host="127.0.0.1", port=1, dbname="d", **{name: value})
            assert "invalid" not in str(caught.value)


def test_without_its_driver_the_extra_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "collector.service.storage_postgres")
    with pytest.raises(MissingExtraError, match=r"ldp-telemetry\[postgres\]") as caught:
        CollectorStore.open(url)
    assert "\n" not in str(caught.value)


# --- opening ----------------------------------------------------------------------------------------


def test_nobody_is_there(server: postgres.Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = problem_of(at(server.url("x"), place=f"127.0.0.1:{port}", password=SECRET))
    assert error.problem is StoreProblem.UNREACHABLE
    assert str(error).startswith(f"postgresql://127.0.0.1:{port}/x: ")


def test_no_such_database_and_no_such_user(server: postgres.Server) -> None:
    assert problem_of(server.url("no_such")).problem is StoreProblem.MISSING
    stranger = at(server.url("postgres"), user="nobody_here", password=SECRET)
    assert problem_of(stranger).problem is StoreProblem.NOT_ALLOWED


def test_reading_makes_nothing_of_an_empty_database(empty_database: str) -> None:
    assert problem_of(empty_database, read_only=True).problem is StoreProblem.NOT_A_STORE
    with pytest.raises(StoreError) as caught:
        CollectorStore.open_existing(empty_database)
    assert caught.value.problem is StoreProblem.NOT_A_STORE
    assert counts(empty_database) == {}


def test_an_empty_database_becomes_a_store_as_sqlites(empty_database: str) -> None:
    CollectorStore.open(empty_database).close()
    CollectorStore.open_existing(empty_database).close()
    CollectorStore.open(empty_database, read_only=True).close()
    with create_engine(empty_database).connect() as conn:
        assert differences(conn) == []


def test_a_registrar_has_a_database_of_its_own(empty_database: str, url: str) -> None:
    RegistrarStore.open(empty_database).close()
    assert problem_of(empty_database).problem is StoreProblem.NOT_A_STORE
    before = counts(url)
    assert problem_of(url, RegistrarStore).problem is StoreProblem.NOT_A_STORE
    assert counts(url) == before


def test_another_programs_database(empty_database: str) -> None:
    execute(empty_database, "CREATE TABLE songs (title TEXT)")
    for read_only in (True, False):
        assert problem_of(empty_database, read_only=read_only).problem is StoreProblem.NOT_A_STORE
    assert counts(empty_database) == {"songs": 0}


def test_newer_and_older(postgres_url: str) -> None:
    execute(postgres_url, "UPDATE alembic_version SET version_num = '9999_from_the_future'")
    for read_only in (True, False):
        assert problem_of(postgres_url, read_only=read_only).problem is StoreProblem.NEWER
    execute(postgres_url, "UPDATE alembic_version SET version_num = '0001'")
    assert problem_of(postgres_url, read_only=True).problem is StoreProblem.OLDER


def test_an_old_server_and_another_encoding(url: str, server: postgres.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    error = problem_of(server.url("latin"))
    server.drop(server.url("latin"))
    assert (error.problem, "UTF8" in str(error)) == (StoreProblem.CANNOT_OPEN, True)
    monkeypatch.setattr(storage_postgres, "OLDEST", 990000)
    error = problem_of(url)
    assert (error.problem, "99 or newer" in str(error)) == (StoreProblem.CANNOT_OPEN, True)


def _open_and_put(url: str, barrier: Any, version_2: str) -> None:
    barrier.wait()
    store = CollectorStore.open(url)
    store.put_plan(make_plan(), NOW)
    with suppress(PlanError):
        store.put_plan(make_plan(2, epsilon=version_2), NOW)
    store.close()


def test_replicas_that_start_at_once_make_one_store(empty_database: str) -> None:
    """Also where they disagree about a version: one of them has it."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    processes = [context.Process(target=_open_and_put, args=(empty_database, barrier, f"{n + 1}.0")) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert query(empty_database, "SELECT name, version FROM plans ORDER BY version") == [
        ("app-health", 1), ("app-health", 2),
    ]  # fmt: skip
    assert counts(empty_database)["alembic_version"] == 1


# --- durable, whatever the role says ----------------------------------------------------------------


def test_no_role_can_take_durability_away(store: CollectorStore, url: str, server: postgres.Server) -> None:
    name = url.rpartition("/")[2]
    settings = {"synchronous_commit": "off", "default_transaction_isolation": "serializable", "statement_timeout": "0"}
    for setting, value in settings.items():
        server.execute(f"ALTER ROLE postgres IN DATABASE {name} SET {setting} = '{value}'")
    try:
        with closing(CollectorStore.open(url)) as late:
            for old_or_new in (store, late):
                with old_or_new._writing() as conn:
                    shown = {name: conn.execute(text(f"SHOW {name}")).scalar() for name in (
                        "synchronous_commit", "transaction_isolation", "statement_timeout", "lock_timeout",
                        "idle_in_transaction_session_timeout",
                    )}  # fmt: skip
                assert shown == {
                    "synchronous_commit": "on", "transaction_isolation": "read committed", "statement_timeout": "10s",
                    "lock_timeout": "5s", "idle_in_transaction_session_timeout": "20s",
                }  # fmt: skip
                with old_or_new._reading() as conn:
                    assert conn.execute(text("SHOW transaction_isolation")).scalar() == "repeatable read"
                    assert conn.execute(text("SHOW transaction_read_only")).scalar() == "on"
    finally:
        server.execute(f"ALTER ROLE postgres IN DATABASE {name} RESET ALL")


def test_stronger_durability_stays(store: CollectorStore, url: str, server: postgres.Server) -> None:
    name = url.rpartition("/")[2]
    server.execute(f"ALTER ROLE postgres IN DATABASE {name} SET synchronous_commit = 'remote_apply'")
    try:
        with closing(CollectorStore.open(url)) as late, late._writing() as conn:
            assert conn.execute(text("SHOW synchronous_commit")).scalar() == "remote_apply"
    finally:
        server.execute(f"ALTER ROLE postgres IN DATABASE {name} RESET ALL")


# --- replicas beside each other ---------------------------------------------------------------------


# case C01 C03
def test_of_replicas_that_race_for_one_device_one_wins(store: CollectorStore, url: str) -> None:
    """Whole groups of them, in either order, over and over."""
    replicas = [CollectorStore.open(url) for _ in range(3)]
    stored: list[tuple[int, int]] = []

    def write(n: int) -> None:
        for period in range(6):
            shared = range(20) if n % 2 else range(19, -1, -1)
            releases = [
                make_release(
                    make_plan(), f"{n}-{period}-{part}", [*part_of, 100 + n], period_start=PERIOD + at_ * DAY_S
                )
                for part, part_of in enumerate((list(shared)[:10], list(shared)[10:]))
                for at_ in [period * 2 + part]
            ]
            for part, refused in enumerate(replicas[n].store_releases(releases)):
                if refused is None:
                    stored.append((period, part))
                else:
                    assert set(refused.devices) & {device(m) for m in range(20)}

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for replica in replicas:
        replica.close()
    contributions = store.contributions()
    assert len({(c.device_id, c.period_start) for c in contributions}) == len(contributions) == len(stored) * 11
    for n in range(20):
        counted = len([c for c in contributions if c.device_id == device(n)])
        assert store.device_totals(device(n)) == (counted, counted * 2_000_000)
    assert len(stored) >= 12, "each period and half was stored by somebody"
    differing = (
        "SELECT 1 FROM device_totals d WHERE micro_epsilon <> (SELECT sum(micro_epsilon) FROM spends s"
        " WHERE s.device = d.device)"
    )
    assert query(url, differing) == []


def test_a_deadlock_is_tried_again(store: CollectorStore, url: str) -> None:
    store.store_release(make_release(make_plan()))
    met = threading.Barrier(2)
    tries: list[int] = []

    def work(conn: Any, first: int, second: int) -> None:
        tries.append(first)
        for n in (first, second):
            mine = {"device": device(n)}
            conn.execute(text("UPDATE device_totals SET reports = reports + 1 WHERE device = :device"), mine)
            if n == first and tries.count(first) == 1:
                met.wait(60)

    other = CollectorStore.open(url)
    thread = threading.Thread(target=other._write, args=(work, 1, 0))
    thread.start()
    store._write(work, 0, 1)
    thread.join(30)
    other.close()
    assert len(tries) == 3, "one of the two gave way, and came again"
    assert [store.device_totals(device(n))[0] for n in (0, 1)] == [3, 3]


def test_who_opts_out_waits_for_rounds_that_are_being_stored_and_no_longer(store: CollectorStore, url: str) -> None:
    """The release does not see the opt-out, so the opt-out has to see the release."""
    replica = CollectorStore.open(url)
    done = threading.Event()

    def forget() -> None:
        replica.forget(device(1), NOW, certified=True)
        done.set()

    with store._writing() as conn:
        assert storage_writes.insert_releases(conn, [make_release(make_plan())]) == [None]
        thread = threading.Thread(target=forget)
        thread.start()
        assert not done.wait(0.3), "a release holds it up"
    assert done.wait(60)
    thread.join(10)
    assert store.device_totals(device(1)) == (0, 0)
    assert {row[0] for row in query(url, "SELECT device FROM spends")} == {device(0), device(2)}
    replica.store_release(make_release(make_plan(), "round-2", period_start=PERIOD + DAY_S))
    assert store.device_totals(device(1)) == (0, 0), "and later ones begin no new ledger"
    replica.close()


# case F03
def test_a_reader_sees_one_moment_and_holds_up_nobody(store: CollectorStore, url: str) -> None:
    reader = CollectorStore.open(url, read_only=True)
    with reader._reading() as conn:
        assert conn.execute(text("SELECT count(*) FROM rounds")).scalar() == 0
        store.store_release(make_release(make_plan()))
        store.forget(device(9), NOW, certified=True)  # also a writer that is alone
        assert conn.execute(text("SELECT count(*) FROM rounds")).scalar() == 0
    assert len(reader.rounds()) == 1
    reader.close()


# case F03
def test_a_long_lock_is_said_and_leaves_nothing(store: CollectorStore, url: str) -> None:
    impatient = CollectorStore.open(url, busy_timeout_s=0.2)
    with store._writing(storage_postgres.Writer.ALONE):
        began = time.monotonic()
        with pytest.raises(StoreError) as caught:
            impatient.store_release(make_release(make_plan()))
        assert time.monotonic() - began < 5
    assert caught.value.problem is StoreProblem.LOCKED
    impatient.store_release(make_release(make_plan()))
    impatient.close()
    assert counts(url)["rounds"] == 1


def test_what_is_too_long_is_refused_and_never_cut(store: CollectorStore, url: str) -> None:
    long = make_release(make_plan(), "r" * 65)
    with pytest.raises(StoreError) as caught:
        store.store_release(long)
    assert caught.value.problem is StoreProblem.REFUSED
    assert counts(url)["rounds"] == counts(url)["contributions"] == 0


# --- what goes wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ("53100", StoreProblem.FULL), ("25006", StoreProblem.READ_ONLY), ("42501", StoreProblem.NOT_ALLOWED),
        ("57P01", StoreProblem.UNREACHABLE), ("53300", StoreProblem.UNREACHABLE), ("55P03", StoreProblem.LOCKED),
        ("57014", StoreProblem.LOCKED), ("XX001", StoreProblem.DAMAGED), ("58030", StoreProblem.INPUT_OUTPUT),
        ("23514", StoreProblem.REFUSED), ("22003", StoreProblem.REFUSED), ("40P01", StoreProblem.LOCKED),
        ("40001", StoreProblem.LOCKED),
    ],
)  # fmt: skip
def test_what_the_server_says_is_translated(store: CollectorStore, url: str, state: str, problem: StoreProblem) -> None:
    """As a server says it: raised by a trigger, in the middle of a release."""
    raise_it = f"BEGIN RAISE EXCEPTION '{SECRET}' USING ERRCODE = '{state}'; END"
    execute(url, f"CREATE OR REPLACE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $${raise_it}$$")
    execute(url, "CREATE TRIGGER cut BEFORE INSERT ON spends FOR EACH ROW EXECUTE FUNCTION cut()")
    try:
        with pytest.raises(StoreError) as caught:
            store.store_release(make_release(make_plan()))
    finally:
        execute(url, "DROP TRIGGER cut ON spends")
    assert caught.value.problem is problem
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert counts(url)["rounds"] == 0
    store.store_release(make_release(make_plan()))


def test_rights_that_are_missing_and_a_standby(store: CollectorStore, url: str, server: postgres.Server) -> None:
    name = url.rpartition("/")[2]
    server.execute("CREATE ROLE reader LOGIN")
    try:
        execute(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        with closing(CollectorStore.open(at(url, user="reader"))) as weak:
            assert weak.rounds() == []
            with pytest.raises(StoreError) as caught:
                weak.store_release(make_release(make_plan()))
            assert caught.value.problem is StoreProblem.NOT_ALLOWED
            with pytest.raises(StoreError) as caught:
                weak.probe()
            assert caught.value.problem is StoreProblem.NOT_ALLOWED
        server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with closing(CollectorStore.open(url)) as frozen:
            for write in (frozen.probe, lambda: frozen.store_release(make_release(make_plan()))):
                with pytest.raises(StoreError) as caught:
                    write()
                assert caught.value.problem is StoreProblem.READ_ONLY
    finally:
        server.execute(f"ALTER DATABASE {name} RESET ALL")
        execute(url, "DROP OWNED BY reader")
        server.execute("DROP ROLE reader")


def test_tables_that_are_gone_are_damage(postgres_url: str) -> None:
    with closing(CollectorStore.open(postgres_url)) as store:
        execute(postgres_url, "DROP TABLE contributions")
        with pytest.raises(StoreError) as caught:
            store.contributions()
        assert caught.value.problem is StoreProblem.DAMAGED


def test_a_wrong_password_is_said_and_not_shown(own_server: postgres.Server, caplog: pytest.LogCaptureFixture) -> None:
    url = own_server.new_database()
    rules = own_server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    own_server.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + before)
    own_server.execute("SELECT pg_reload_conf()")
    caplog.set_level(logging.DEBUG)
    deadline = time.monotonic() + 60
    while True:
        error = problem_of(at(url, user="guarded", password=SECRET), read_only=True)
        if error.problem is StoreProblem.NOT_ALLOWED or time.monotonic() > deadline:
            break
    assert error.problem is StoreProblem.NOT_ALLOWED
    chain: BaseException | None = error
    while chain is not None:
        assert SECRET not in repr(chain)
        chain = chain.__cause__ or chain.__context__
    assert SECRET not in caplog.text


def test_no_exception_repeats_a_row(store: CollectorStore) -> None:
    """The server's own words do: `Key (device, ...)=(...) already exists.`"""
    store.store_release(make_release(make_plan(), devices=[0x5EC12E7, 2]))
    with pytest.raises(StoreError) as caught:
        store._write(lambda conn: conn.execute(text("INSERT INTO device_totals SELECT * FROM device_totals")))
    assert caught.value.problem is StoreProblem.REFUSED
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('connection failed: FATAL:  database "x" does not exist', StoreProblem.MISSING),
        ('connection failed: FATAL:  password authentication failed for user "x"', StoreProblem.NOT_ALLOWED),
        ("connection failed: fe_sendauth: no password supplied", StoreProblem.NOT_ALLOWED),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', StoreProblem.NOT_ALLOWED),
        ("FATAL:  sorry, too many clients already", StoreProblem.UNREACHABLE),
        ("FATAL:  the database system is starting up", StoreProblem.UNREACHABLE),
        ("connection timeout expired", StoreProblem.UNREACHABLE),
        ("could not translate host name", StoreProblem.UNREACHABLE),
        ("", StoreProblem.UNREACHABLE),
    ],
)
def test_connections_that_were_never_made(said: str, problem: StoreProblem) -> None:
    found, what = describe(psycopg.OperationalError(f"{said} {SECRET}".strip()), SECRET)
    assert found is problem
    assert SECRET not in what


# --- a server that goes and comes -------------------------------------------------------------------


# case F04
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_after_a_restart_the_next_call_works(own_server: postgres.Server, number: int) -> None:
    with closing(CollectorStore.open(own_server.new_database())) as store:
        store.put_plan(make_plan(), NOW)
        store.store_release(make_release(make_plan()))
        own_server.stop(number)
        for call in (store.probe, store.rounds, lambda: store.store_release(make_release(make_plan(), "r2"))):
            began = time.monotonic()
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.problem is StoreProblem.UNREACHABLE
            assert time.monotonic() - began < 5
        own_server.start()
        store.probe()
        assert [record.round_id for record in store.rounds()] == ["round-1"], "and what was acknowledged is there"
        own_server.restart(number)  # this time nobody asked while it was away
        store.store_release(make_release(make_plan(), "r2", period_start=PERIOD + DAY_S))


def test_sessions_that_are_ended_in_the_middle_of_a_release(own_server: postgres.Server) -> None:
    url = own_server.new_database()
    with closing(CollectorStore.open(url)) as store:
        store.put_plan(make_plan(), NOW)

        def work(conn: Any) -> None:
            execute(
                url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ldp-collector'"
            )
            conn.execute(text("SELECT 1"))

        with pytest.raises(StoreError) as caught:
            store._write(work)
        assert caught.value.problem is StoreProblem.UNREACHABLE
        store.store_release(make_release(make_plan()))


def test_too_many_clients_is_an_outage_that_passes(own_server: postgres.Server) -> None:
    url = own_server.new_database()
    name = url.rpartition("/")[2]
    CollectorStore.open(url).close()
    own_server.execute("CREATE ROLE plain LOGIN")
    execute(url, "GRANT ALL ON ALL TABLES IN SCHEMA public TO plain")
    own_server.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 1")
    with closing(psycopg.connect(url.replace("+psycopg", ""))):
        assert problem_of(at(url, user="plain")).problem is StoreProblem.UNREACHABLE
    deadline = time.monotonic() + 60
    while True:
        try:
            CollectorStore.open(at(url, user="plain")).close()
            break
        except StoreError:
            assert time.monotonic() < deadline


def test_a_server_that_no_longer_answers_costs_seconds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"CONNECT_S": 2.0, "QUICK_S": 1.0}.items():
        monkeypatch.setattr(storage_postgres, name, seconds)
    monkeypatch.setattr(storage_postgres, "_LIMITS", dict.fromkeys(storage_postgres.Writer, 1.0))
    host, port = url.rpartition("@")[2].partition("/")[0].split(":")
    with TcpProxy(host, int(port)) as proxy, closing(CollectorStore.open(at(url, place=proxy.address))) as store:
        store.put_plan(make_plan(), NOW)

        def goes_dark(conn: Any) -> None:
            conn.execute(text("SELECT 1"))
            proxy.swallow = True
            conn.execute(text("SELECT 1"))

        for number, call in enumerate((lambda: store._write(goes_dark), store.probe, store.rounds)):
            began = time.monotonic()
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.problem is StoreProblem.UNREACHABLE
            assert ("time limit of 1 s" in str(caught.value)) is (number == 0), "who cut it is said"
            assert time.monotonic() - began < 8
        proxy.swallow = False
        store.store_release(make_release(make_plan()))


@pytest.mark.parametrize("fault", ["dies", "no descriptor", "no thread"])
def test_a_connection_that_cannot_be_had_is_an_outage(
    store: CollectorStore, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Also where it dies between its making and its first check, again and again."""
    real = psycopg.Connection.execute

    def dying(connection: Any, statement: Any, *arguments: Any, **options: Any) -> Any:
        if statement == "SELECT 1":
            raise psycopg.OperationalError("the connection is lost")
        return real(connection, statement, *arguments, **options)

    def no_descriptor(_: int) -> int:
        raise OSError(24, "Too many open files")

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        if fault == "dies":
            patch.setattr(psycopg.Connection, "execute", dying)
        elif fault == "no descriptor":
            patch.setattr(storage_postgres.os, "dup", no_descriptor)
        else:
            patch.setattr(threading.Timer, "start", no_thread)
        for call in (store.probe, store.rounds, lambda: store.store_release(make_release(make_plan()))):
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.problem is StoreProblem.UNREACHABLE
    store.store_release(make_release(make_plan()))


def test_the_servers_clock_is_asked(store: CollectorStore) -> None:
    now = time.time()
    assert store.agreed_time(now + 3600) == pytest.approx(now, abs=60)
    assert store.agreed_time(now - 3600) == now - 3600
    with pytest.raises(ClockError, match="differ"):
        store.agreed_time(now + 500 * DAY_S, by_hand=True)


# --- a commit whose answer is lost ------------------------------------------------------------------


@contextmanager
def mute_proxy(url: str) -> Iterator[tuple[str, threading.Event]]:
    """(URL through it, event: from then on the server is heard no more, but hears all)."""
    host, port = url.rpartition("@")[2].partition("/")[0].split(":")
    mute, listener, lines = threading.Event(), socket.create_server(("127.0.0.1", 0)), []

    def pump(source: socket.socket, sink: socket.socket, silent: Callable[[], bool]) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not silent():
                    sink.sendall(data)

    def take() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                lines.extend((near, far))
                threading.Thread(target=pump, args=(near, far, lambda: False), daemon=True).start()
                threading.Thread(target=pump, args=(far, near, mute.is_set), daemon=True).start()

    threading.Thread(target=take, daemon=True).start()
    try:
        yield at(url, place=f"127.0.0.1:{listener.getsockname()[1]}"), mute
    finally:
        listener.close()
        for line in lines:
            line.close()


# case E01
def test_a_commit_whose_answer_is_lost_is_an_outage_and_counts_once(
    url: str, store: CollectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_postgres, "_LIMITS", dict.fromkeys(storage_postgres.Writer, 1.0))
    release = make_release(make_plan())
    with mute_proxy(url) as (through, mute), closing(CollectorStore.open(through)) as replica:
        real = storage_postgres.psycopg.Connection.commit

        def commit(connection: Any) -> None:
            mute.set()
            real(connection)

        with monkeypatch.context() as patch:
            patch.setattr(storage_postgres.psycopg.Connection, "commit", commit)
            with pytest.raises(StoreError) as caught:
                replica.store_release(release)
        assert caught.value.problem is StoreProblem.UNREACHABLE, "never taken for an acknowledgement"
    assert store.standings([(device(0), "app-health", PERIOD)]).popitem()[1].counted == ("round-1", 3)
    record = RoundRecord("round-1", make_plan().hash, PERIOD, 5, 0, {}, "aborted", "not_stored", 1.0, NOW)
    store.record_aborted(record)
    assert [one.outcome for one in store.rounds()] == ["released"], "what was stored stays"
    with pytest.raises(DuplicateContributionError) as again:
        store.store_release(release)
    assert set(again.value.devices) == {device(n) for n in range(3)}
    assert store.device_totals(device(0)) == (1, 2_000_000)
