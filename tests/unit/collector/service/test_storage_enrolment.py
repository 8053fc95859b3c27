"""Enrolment tokens: single use, expiring, never stored nor printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.identity import IdentityKey
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import DAY_S, NOW

A, B = IdentityKey(b"a" * 32), IdentityKey(b"b" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "collector.db"


@pytest.fixture
def store(path: Path) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(str(path))
    yield opened
    opened.close()


def test_a_token_enrols_one_identity_as_often_as_it_asks(store: CollectorStore) -> None:
    token = store.issue_token(NOW)
    assert not store.is_enrolled(A.device_id)
    assert store.enrol(token, A.public_key, NOW)
    assert store.is_enrolled(A.device_id)
    assert store.enrol(token, A.public_key, NOW + 100 * DAY_S), "the answer was lost, the device asks again"
    assert not store.enrol(token, B.public_key, NOW)
    assert not store.is_enrolled(B.device_id)


def test_a_second_token_for_the_same_identity_is_used_up_too(store: CollectorStore) -> None:
    first, second = store.issue_tokens(2, NOW)
    assert store.enrol(first, A.public_key, NOW)
    assert store.enrol(second, A.public_key, NOW)
    assert not store.enrol(second, B.public_key, NOW)


@pytest.mark.parametrize(("at", "accepted"), [(NOW + 59, True), (NOW + 60, False), (NOW - DAY_S, True)])
def test_a_token_expires(store: CollectorStore, at: int, *, accepted: bool) -> None:
    assert store.enrol(store.issue_token(NOW, ttl_s=60), A.public_key, at) is accepted


@pytest.mark.parametrize("token", ["", "x" * 43, "' OR 1=1 --", "\udcff".encode("utf-8", "replace").decode()])
def test_unknown_tokens(store: CollectorStore, token: str) -> None:
    assert not store.enrol(token, A.public_key, NOW)


def test_a_key_of_another_length_is_no_identity(store: CollectorStore) -> None:
    token = store.issue_token(NOW)
    assert not store.enrol(token, A.public_key[:-1], NOW)
    assert store.enrol(token, A.public_key, NOW), "the token is not used up by a malformed request"


def test_tokens_are_long_distinct_and_no_option(store: CollectorStore) -> None:
    tokens = store.issue_tokens(1_000, NOW)
    assert len(set(tokens)) == 1_000
    assert all(len(token) == 43 and not token.startswith("-") for token in tokens)
    assert store.issue_tokens(0, NOW) == []


# case H02
def test_no_token_reaches_the_disk_or_an_exception(store: CollectorStore, path: Path) -> None:
    token = store.issue_token(NOW)
    store.enrol(token, A.public_key, NOW)
    files = [file.read_bytes() for file in path.parent.iterdir()]
    assert sum(map(len, files)) > 10_000, "the write-ahead log is among them"
    assert all(token.encode() not in content for content in files)
    assert token not in repr(store)
