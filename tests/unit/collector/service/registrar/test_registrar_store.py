"""Tokens, identities, revocations: single use, expiring, never stored in the clear, and out means out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from client_sdk.errors import ConfigurationError
from client_sdk.identity import IdentityKey
from collector.service import storage_schema, storage_sqlite
from collector.service.registrar import migrations, tables
from collector.service.registrar import store as registrar_store
from collector.service.registrar.folder import RegistrarFolder
from collector.service.registrar.store import Overview, RegistrarStore
from collector.service.storage import CollectorStore
from collector.service.storage_errors import StoreError, StoreProblem
from tests import postgres
from tests.conftest import ENGINES
from tests.unit.collector.service.stores import DAY_S, NOW

A, B = IdentityKey(b"a" * 32), IdentityKey(b"b" * 32)
REPEAT_S = 120 * DAY_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registrar.db"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """On PostgreSQL: made once, emptied for each test."""
    with postgres.database(empty=True) as url:
        RegistrarStore.open(url).close()
        yield url


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[RegistrarStore]:
    url = str(path) if request.param == "sqlite" else request.getfixturevalue("database")
    opened = RegistrarStore.open(url)
    yield opened
    opened.close()
    if request.param != "sqlite":
        postgres.empty(url)


@pytest.fixture
def file_store(path: Path) -> Iterator[RegistrarStore]:
    opened = RegistrarStore.open(str(path))
    yield opened
    opened.close()


def enrol(store: RegistrarStore, token: str, identity: IdentityKey, at: float = NOW) -> bool:
    return store.enrol(token, identity.public_key, at, until=int(at) + 30 * DAY_S, repeat_for_s=REPEAT_S)


def token_of(store: RegistrarStore, ttl_s: int = 60) -> str:
    return store.issue_tokens(1, NOW, ttl_s)[0]


def test_a_token_enrols_one_identity_and_answers_it_again(store: RegistrarStore) -> None:
    token = token_of(store)
    assert enrol(store, token, A)
    assert enrol(store, token, A, NOW + REPEAT_S - 1), "the answer was lost, the device asks again"
    assert not enrol(store, token, A, NOW + REPEAT_S), "but not for ever what a certificate no longer can"
    assert not enrol(store, token, B)
    assert store.overview(NOW) == Overview(1, 1, 0, 0, 1, 0)


def test_a_second_token_for_the_same_identity_is_used_up_too(store: RegistrarStore) -> None:
    first, second = store.issue_tokens(2, NOW)
    assert enrol(store, first, A)
    assert enrol(store, second, A)
    assert not enrol(store, second, B)


@pytest.mark.parametrize(("at", "accepted"), [(NOW + 59, True), (NOW + 60, False), (NOW - DAY_S, True)])
def test_a_token_expires(store: RegistrarStore, at: int, *, accepted: bool) -> None:
    assert enrol(store, token_of(store, 60), A, at) is accepted


@pytest.mark.parametrize("token", ["", "x" * 43, "' OR 1=1 --", "\udcff".encode("utf-8", "replace").decode()])
def test_unknown_tokens(store: RegistrarStore, token: str) -> None:
    assert not enrol(store, token, A)
    assert store.overview(NOW).identities == 0


def test_tokens_are_long_distinct_and_no_option(store: RegistrarStore) -> None:
    tokens = store.issue_tokens(1_000, NOW)
    assert len(set(tokens)) == 1_000
    assert all(len(token) == 43 and not token.startswith("-") for token in tokens)
    assert store.issue_tokens(0, NOW) == []


# case H02
def test_no_token_reaches_the_disk_or_an_exception(file_store: RegistrarStore, path: Path) -> None:
    token = token_of(file_store)
    enrol(file_store, token, A)
    files = [file.read_bytes() for file in path.parent.iterdir()]
    assert sum(map(len, files)) > 10_000, "the write-ahead log is among them"
    assert all(token.encode() not in content for content in files)
    assert token not in repr(file_store)


def test_who_is_revoked_gets_nothing_more(store: RegistrarStore) -> None:
    first, second = store.issue_tokens(2, NOW)
    assert enrol(store, first, A)
    assert store.renew(A.public_key, NOW, until=NOW + 40 * DAY_S)
    assert store.revoke(A.device_id, NOW) == (True, NOW + 40 * DAY_S), "when its last certificate runs out"
    assert store.revoke(A.device_id, NOW) == (False, NOW + 40 * DAY_S)
    assert not store.renew(A.public_key, NOW, until=NOW + 50 * DAY_S)
    assert not enrol(store, first, A), "nor by the token that it used"
    assert not enrol(store, second, A), "nor by a new one"
    assert enrol(store, second, B), "which is not used up by that"
    assert store.revoke("f" * 32, NOW) == (True, None)


def test_a_renewal_brings_back_who_fell_off_the_list(store: RegistrarStore) -> None:
    """The store was restored from a backup; a certificate of the key is proof enough."""
    assert store.renew(A.public_key, NOW, until=NOW + DAY_S)
    assert store.overview(NOW) == Overview(1, 1, 0, 0, 0, 0)
    assert store.overview(NOW + DAY_S) == Overview(1, 0, 0, 0, 0, 0)


def test_a_collectors_store_is_another_programs(tmp_path: Path) -> None:
    CollectorStore.open(str(tmp_path / "collector.db")).close()
    RegistrarStore.open(str(tmp_path / "registrar.db")).close()
    for kind, name in ((RegistrarStore, "collector.db"), (CollectorStore, "registrar.db")):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(StoreError) as refused:
            kind.open(str(tmp_path / name))
        assert refused.value.problem is StoreProblem.NOT_A_STORE
        assert (tmp_path / name).read_bytes() == before


def test_migrations_make_the_tables(path: Path) -> None:
    RegistrarStore.open(str(path)).close()
    with create_engine(f"sqlite:///{path}").connect() as conn:
        options = {"compare_type": True, "version_table": RegistrarStore.schema.version_table}
        assert compare_metadata(MigrationContext.configure(conn, opts=options), tables.metadata) == []


def test_the_list_of_revisions_is_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    scripts = list(ScriptDirectory.from_config(config).walk_revisions())
    assert tuple(script.revision for script in reversed(scripts)) == migrations.REVISIONS


def test_the_first_registrar_that_asks_owns_the_store(store: RegistrarStore) -> None:
    assert store.belongs_to(A.public_key)
    assert store.belongs_to(A.public_key)
    assert not store.belongs_to(B.public_key)


def test_who_was_never_seen_is_revoked_only_when_meant(store: RegistrarStore) -> None:
    assert store.revoke(A.device_id, NOW, unseen=False) == (True, None)
    assert store.overview(NOW).revoked == 0
    assert store.revoke(A.device_id, NOW) == (True, None)
    assert store.revoke(A.device_id, NOW, unseen=False) == (False, None)


def test_a_store_of_the_first_version_comes_along(path: Path) -> None:
    path.touch()
    engine = storage_sqlite.make_engine(path, "rw", 5.0)
    with engine.begin() as conn:
        storage_schema.upgrade(conn, RegistrarStore.schema, "0001")
        conn.execute(tables.revocations.insert().values(device=A.device_id, revoked_at=1))
    engine.dispose()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="older version; start `ldp-collector registrar serve` on it once"):
        RegistrarStore.open_existing(str(path))
    assert path.read_bytes() == before
    store = RegistrarStore.open_existing(str(path), migrate=True)
    assert store.overview(NOW).revoked == 1
    assert store.belongs_to(B.public_key), "whoever starts on it first"
    assert not store.belongs_to(A.public_key)
    store.close()


# case C03
def test_of_registrars_that_race_for_one_token_one_wins(store: RegistrarStore, monkeypatch: pytest.MonkeyPatch) -> None:
    identities = [IdentityKey(bytes([n]) * 32) for n in range(1, 5)]
    real = registrar_store._serves

    def slowly(*arguments: Any) -> bool:
        time.sleep(0.1)  # whoever may look meanwhile sees an unused token too
        return real(*arguments)

    monkeypatch.setattr(registrar_store, "_serves", slowly)
    token, won = token_of(store), list[bool]()
    threads = [threading.Thread(target=lambda one=one: won.append(enrol(store, token, one))) for one in identities]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(won) == [False] * 3 + [True]
    assert store.overview(NOW).identities == 1


def test_a_registrars_store_on_a_server_is_its_keys(tmp_path: Path, empty_database: str, postgres_url: str) -> None:
    folder = RegistrarFolder(tmp_path / "r", empty_database)
    key = folder.create()
    assert not folder.db_path.exists()
    folder.open_own_store(key).close()
    with pytest.raises(ConfigurationError, match="another registrar's store"):
        RegistrarFolder(tmp_path / "other", empty_database).create()
    with pytest.raises(ConfigurationError, match="belongs to another key"):
        RegistrarFolder(tmp_path / "other", empty_database).open_own_store(B)
    with pytest.raises(StoreError) as caught:
        RegistrarFolder(tmp_path / "third", postgres_url).create()
    assert caught.value.problem is StoreProblem.NOT_A_STORE
