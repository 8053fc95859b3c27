"""Fixtures of every test: a store's URL, once for each engine, and the command line."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.commands import Run, in_process

ENGINES = ("sqlite", "postgres")

# where it is set, each of the hundreds of processes that tests start would compile every module anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

gc.disable()  # nine thousand tests are collected first, and none of them is rubbish: half the time went into looking


def pytest_collection_finish() -> None:
    """From here on rubbish is looked for again, but not among the collected tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:
    """A command that a test runs in this process logs to that test's stderr, which is closed for the next one."""
    before, level = list(logging.root.handlers), logging.root.level
    yield
    left = [one for one in logging.root.handlers if type(one) is logging.StreamHandler and one not in before]
    for handler in left:
        logging.root.removeHandler(handler)
    if left:
        logging.root.setLevel(level)
        logging.captureWarnings(capture=False)


@pytest.fixture(params=ENGINES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store without a row: not there yet (a file), or migrated (a database; leave its tables alone)."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'collector.db'}"
        return
    with postgres.used_database() as url:
        yield url


@pytest.fixture(params=ENGINES)
def own_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store whose tables the test may change: not there yet (a file), or migrated (a database)."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'collector.db'}"
        return
    with postgres.database() as url:
        yield url


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of a database of the test's own, with a collector's tables."""
    with postgres.database() as url:
        yield url


@pytest.fixture
def empty_database() -> Iterator[str]:
    """The URL of a database with nothing in it."""
    with postgres.database(empty=True) as url:
        yield url


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`ldp-collector` in this process: (exit status, stdout, stderr)."""
    return in_process(capsys)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is long with a database and checked there by shorter tests too runs there with `-m slow`."""
    for item in items:
        if item.get_closest_marker("slow_on_postgres") and "postgres" in item.name:
            item.add_marker(pytest.mark.slow)
