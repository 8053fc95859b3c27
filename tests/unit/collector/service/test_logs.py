"""What a service writes: one line per event, nothing that a stranger or a password could put there."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from collector.service import logs
from collector.service.logs import OURS, fields


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, levels = logging.root, {name: logging.getLogger(name).level for name in (*OURS, "")}
    handlers = list(root.handlers)
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture(params=["json", "console"])
def written(request: pytest.FixtureRequest) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(request.param, "info", stream)
    return stream


def as_json(level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure("json", level, stream)
    return stream


def one(stream: io.StringIO) -> dict[str, Any]:
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    found: dict[str, Any] = json.loads(lines[0])
    return found


log = logging.getLogger("collector.service.some")


def test_a_line_of_json() -> None:
    stream = as_json()
    log.warning("round %s: gone", "ab", extra=fields("round_aborted", round="ab", dropouts={"shares": 2}, seconds=1.5))
    line = one(stream)
    assert list(line)[:5] == ["time", "level", "logger", "event", "message"]
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"]) == ("warning", "collector.service.some")
    assert (line["event"], line["message"]) == ("round_aborted", "round ab: gone")
    assert (line["round"], line["dropouts"], line["seconds"]) == ("ab", {"shares": 2}, 1.5)


def test_a_line_for_people() -> None:
    stream = io.StringIO()
    logs.configure("console", "info", stream)
    log.info("round %s released", "ab", extra=fields("round_released", round="ab"))
    time, level, text = stream.getvalue().split(" ", 2)
    assert (time[-1], level, text) == ("Z", "INFO", "round ab released\n")


def test_a_text_from_outside_begins_no_line_of_its_own(written: io.StringIO) -> None:
    log.error("could not read %s", "x\n2026-01-01T00:00:00Z INFO all is well\x1b[31m\r\u2028y")
    assert written.getvalue().count("\n") == 1
    assert not {"\x1b", "\r"} & set(written.getvalue())


def test_a_password_in_a_url_never_gets_through(written: io.StringIO) -> None:
    url = "postgresql://ldp:pa:ss@w0rd@db.example/ldp"
    log.error("cannot reach %s", "postgresql+psycopg://ldp:pa:ss@w0rd@db.example:5432/ldp")
    logging.getLogger("sqlalchemy.pool").warning("lost %s", url)
    try:
        raise OSError(f"connecting to {url}")
    except OSError:
        log.exception("a slip")
    for part in ("pa:ss", "w0rd"):
        assert part not in written.getvalue()
    assert written.getvalue().count("://ldp:***@db.example") == 3


def test_others_speak_from_warning_on_whatever_the_level() -> None:
    stream = as_json("debug")
    log.debug("ours")
    logging.getLogger("sqlalchemy.engine").info("[parameters] %s", "SENTINEL")
    logging.getLogger("alembic.runtime").info("SENTINEL")
    logging.getLogger("asyncio").debug("SENTINEL")
    assert one(stream)["message"] == "ours"


@pytest.mark.parametrize(("level", "expected"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels(level: str, expected: int) -> None:
    stream = as_json(level)
    for call in (log.debug, log.info, log.warning, log.error):
        call("x")
    assert len(stream.getvalue().splitlines()) == expected


def test_a_traceback_is_one_line_of_json() -> None:
    stream = as_json()
    try:
        raise ValueError("what")
    except ValueError as error:
        log.error("a slip", exc_info=error)
    line = one(stream)
    assert line["message"] == "a slip"
    assert "ValueError: what" in line["exception"]


def test_a_warning_of_python_is_a_line_too() -> None:
    stream = as_json()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.logging.captureWarnings(capture=True)
        warnings.warn("old thing", stacklevel=1)
    assert one(stream)["logger"] == "py.warnings"


def test_values_that_are_no_json_do_not_break_a_line() -> None:
    stream = as_json()
    log.info("x", extra=fields("some", what=logs, when={1, 2}))
    assert one(stream)["event"] == "some"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "structlog", None)
    with pytest.raises(ModuleNotFoundError, match="structlog"):
        logs.configure("json", "info", io.StringIO())
