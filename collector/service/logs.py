"""What a service of ours writes on stderr: one line per event, for people (console) or for programs (JSON).

Rules of this file:
- one event is one line: control characters in a text are escaped, so nothing that came from outside can begin a line of
  its own. (In the console format a traceback, which only a slip of ours writes, has its own lines below.)
- a password in a URL never gets through, whoever logs it;
- other libraries speak from `warning` on, whatever the level: at `debug` a database driver would print what it binds.
Modules log through `logging` as everywhere in Python; `fields` gives a line its name and values for the JSON format.
What it does not do: it writes no file and rotates nothing; the supervisor takes stderr.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import IO, Any, Final

from collector.reports.text import printable

OURS: Final = ("collector", "client_sdk", "ldp_telemetry")
PASSWORD: Final = re.compile(r"(?P<before>\w://[^\s/:@]*:)\S+(?=@)")
NAME: Final = "event_name"

Event = MutableMapping[str, Any]


def fields(name: str, /, **values: object) -> dict[str, object]:
    """`extra` of a log call: the event's name, of a fixed vocabulary, and its values. Never an identity or a secret."""
    return {NAME: name, **values}


def configure(log_format: str, log_level: str, stream: IO[str] | None = None) -> None:
    """Once per process, before anything is logged. Raises ModuleNotFoundError where structlog is missing."""
    import structlog

    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    ends = [_as_json, structlog.processors.JSONRenderer(ensure_ascii=False)] if log_format == "json" else [_as_text]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _without_passwords,
                *ends,
            ],
        )
    )
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    for name in OURS:
        logging.getLogger(name).setLevel(log_level.upper())
    logging.captureWarnings(capture=True)


def _without_passwords(_logger: object, _method: str, event: Event) -> Event:
    return {key: PASSWORD.sub(r"\g<before>***", text) if isinstance(text, str) else text for key, text in event.items()}


def _as_json(_logger: object, _method: str, event: Event) -> Event:
    """Time, level, logger and text first, then the event's name and values."""
    message, name = event.pop("event"), event.pop(NAME, None)
    head = {key: event.pop(key) for key in ("time", "level", "logger")}
    named = {} if name is None else {"event": name}
    return {**head, **named, "message": message, **event}


def _as_text(_logger: object, _method: str, event: Event) -> str:
    line = f"{event['time']} {event['level'].upper()} {printable(str(event['event']))}"
    traceback = event.get("exception")
    return line if traceback is None else f"{line}\n{traceback}"
