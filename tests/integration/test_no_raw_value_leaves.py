"""Case H02 from outside: real devices, registrar and collector, taps on the wire, everything at its lowest log level.

One scenario, and then every place that somebody can look into is searched: files, logs, stderr, exception texts,
reprs, the command line's answers and the bytes on the wire. The searching has controls of its own: what is meant
to be on the wire (the token of an enrolment, a fetched plan) is found there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import pickle
import sqlite3
import struct
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pytest

import client_sdk
from client_sdk import TelemetryClient, parse_plan
from client_sdk.report import PeriodState, clipped_values
from client_sdk.wire.messages import EnrolRequest
from collector.service import cli
from tests.integration.participants import Running, collector
from tests.registrar import KEY
from tests.registrar import running as running_registrar

NUMBER = 13579.2468
CATEGORY = "SENTINEL-CATEGORY"
TOKEN = "SENTINEL-TOKEN"
OTHER = "SENTINEL-OTHER"
SEAL_KEY = b"SENTINEL-SEAL-KEY-32-BYTES-LONG!"

LISTED = f'categories = ["wifi", "{CATEGORY}"]'
PLAN = parse_plan(f"""
[plan]
name = "sentinels"
version = 1
period = "1d"
[cohort]
min_size = 2
target_size = 3
max_wait = "10s"
corrupt_fraction = 0
dropout_fraction = 0
[budget]
lifetime = 100
[metrics.number]
kind = "numeric"
lower = 0
upper = 100000
epsilon = 0.01
[metrics.strict]
kind = "categorical"
{LISTED}
epsilon = 0.01
[metrics.wide]
kind = "categorical"
{LISTED}
other = "other"
epsilon = 0.01
""")

NUMERATOR = NUMBER.as_integer_ratio()[0]
DOUBLE, FLOAT = struct.pack("<d", NUMBER), struct.pack("<f", NUMBER)
NUMBER_FORMS: dict[str, bytes] = {
    "decimal text": b"13579.2",
    "decimal text, no point": b"1357924",
    "exponent": b"1.35792",
    "decimal comma": b"13579,2",
    "grouped": b"13,579.2",
    "hexadecimal float": NUMBER.hex()[4:14].encode(),
    "as a fraction": str(NUMERATOR).encode(),
    "double": DOUBLE,
    "double, big endian": DOUBLE[::-1],
    "float": FLOAT,
    "float, big endian": FLOAT[::-1],
    "double in hex": DOUBLE.hex().encode(),
    "double in hex, big endian": DOUBLE[::-1].hex().encode(),
}


def found_in(place: bytes, *texts: str) -> list[str]:
    """Which of these texts, and in which forms the number, stand in `place`."""
    forms = {name: form for name, form in NUMBER_FORMS.items() if form in place}
    return [*forms, *(text for text in texts if text.encode() in place)]


def only_in_the_list(place: bytes) -> bool:
    return place.count(CATEGORY.encode()) == place.count(LISTED.encode())


# --- the tap -----------------------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA_FRAME, PADDED = 0, 8


@dataclass
class Tap:
    """A TCP proxy that keeps what passes; `down` hangs up on everybody."""

    target: str = ""
    down: bool = False
    address: str = ""
    connections: list[tuple[bytearray, bytearray]] = field(default_factory=list)

    async def __aenter__(self) -> Tap:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down:
            writer.close()
            return
        host, _, port = self.target.rpartition(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        sent, answered = bytearray(), bytearray()
        self.connections.append((sent, answered))
        await asyncio.gather(_pump(reader, up_writer, sent), _pump(up_reader, writer, answered))

    def raw(self) -> Iterator[bytes]:
        """Each connection's bytes, direction by direction."""
        for pair in self.connections:
            yield from map(bytes, pair)

    def messages(self, direction: int) -> list[bytes]:
        """The gRPC messages that went to the collector (0) or came from it (1), put together from their frames."""
        return [message for pair in self.connections for message in _messages(bytes(pair[direction]))]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    try:
        while data := await reader.read(65_536):
            kept += data
            writer.write(data)
            await writer.drain()
    except OSError:
        return
    finally:
        writer.close()


def _messages(data: bytes) -> list[bytes]:
    streams: defaultdict[int, bytes] = defaultdict(bytes)
    rest = data.removeprefix(PREFACE)
    while len(rest) >= 9:
        length, kind, flags = int.from_bytes(rest[:3], "big"), rest[3], rest[4]
        if kind == DATA_FRAME:
            assert not flags & PADDED
            streams[int.from_bytes(rest[5:9], "big")] += rest[9 : 9 + length]
        rest = rest[9 + length :]
    found = []
    for stream in streams.values():
        while len(stream) >= 5:
            compressed, length = stream[0], int.from_bytes(stream[1:5], "big")
            assert compressed == 0, "a compressed message would hide what is looked for"
            found.append(stream[5 : 5 + length])
            stream = stream[5 + length :]  # noqa: PLW2901 - the rest of it
    return found


# --- everything that can be shown --------------------------------------------------------------------------------


def reachable(*roots: object) -> list[object]:
    """Every object of this product that hangs together with `roots`, through attributes, containers and closures."""
    stack, seen, found = list(roots), dict[int, object](), list[object]()
    while stack:
        thing = stack.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive: an id must not come back
        ours = type(thing).__module__.startswith(("client_sdk", "collector"))
        if ours:
            found.append(thing)
        stack += _parts(thing, ours=ours)
    return found


def _parts(thing: Any, *, ours: bool) -> Iterable[object]:
    if isinstance(thing, Mapping):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, (list, tuple, set, frozenset)):
        return list(thing)
    if isinstance(thing, MethodType):
        return [thing.__self__]
    if isinstance(thing, FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    if not ours:
        return []
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*vars(thing).values()] if hasattr(thing, "__dict__") else [getattr(thing, s, None) for s in slots]


def shown(*roots: object) -> str:
    """Each of them as a debugger, a log line or a format string would show it."""
    return "\n".join(f"{thing!r} {thing} {[thing]}" for thing in reachable(*roots))


def texts_of(calls: Iterable[Callable[[], object]]) -> Iterator[str]:
    """The exceptions that these calls raise, with everything that hangs on them."""
    for call in calls:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each has its own kind
            call()
        error: BaseException | None = caught.value
        yield "".join(traceback.format_exception(caught.value))
        while error is not None:
            yield f"{error!r} {error} {error.args!r} {vars(error)!r}"
            error = error.__cause__ or error.__context__


# --- the scenario ------------------------------------------------------------------------------------------------


def plant_tokens(folder: Path, *tokens: str) -> None:
    """The store keeps hashes only; so a token of our own choice is planted as one."""
    now = int(time.time())
    with sqlite3.connect(folder / "registrar" / "registrar.db") as db:
        rows = [(hashlib.sha256(token.encode()).digest(), now, now + 3600) for token in tokens]
        db.executemany("INSERT INTO tokens (token_hash, issued_at, expires_at) VALUES (?, ?, ?)", rows)
    db.close()


def record_everything(client: TelemetryClient) -> None:
    odd: Any = client
    client.record("wide", OTHER)
    client.record("strict", OTHER)
    for reading in (str(NUMBER), [NUMBER], {NUMBER: OTHER}, complex(NUMBER), DOUBLE, math.nan):
        odd.record("number", reading)
    odd.record(str(NUMBER), "number")  # swapped arguments
    odd.record(NUMBER, "number")
    client.record(OTHER, CATEGORY)
    client.record("number", Decimal(str(NUMBER)))  # type: ignore[arg-type]
    client.record("number", NUMBER)
    client.record("strict", CATEGORY)
    client.record("wide", CATEGORY)


REFUSALS = {"unknown_category": 1, "wrong_type": 5, "not_finite": 1, "unknown_metric": 3}


@dataclass
class Seen:
    """What the scenario leaves behind, place by place."""

    reprs: list[str] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    client_files: dict[str, bytes] = field(default_factory=dict)
    collector_files: dict[str, bytes] = field(default_factory=dict)


def keep_files(into: dict[str, bytes], folder: Path, moment: str) -> None:
    into |= {f"{path} {moment}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def play(tmp_path: Path, running: Running, tap: Tap, registrar: Tap, seen: Seen) -> None:
    """Record, fail to upload, upload, close: a device with a thread, one that fetches its plan, one with a seal key."""
    (tmp_path / "plan.toml").write_text(PLAN.text)
    devices = tmp_path / "devices"

    def client(name: str, token: str, *, plan: Path | None = tmp_path / "plan.toml", **more: Any) -> TelemetryClient:
        settings: dict[str, Any] = {"background": False, "insecure": True, "consent": True}
        settings |= {"registrar": registrar.address, "registrar_key": KEY} | more
        return TelemetryClient(tap.address, plan=plan, data_dir=devices / name, enrolment_token=token, **settings)

    threaded = client("threaded", TOKEN, background=True)
    fetching = client("fetching", f"{TOKEN}-2", plan=None, plan_hash=PLAN.hash)
    keyed = client("keyed", f"{TOKEN}-3", seal_key=SEAL_KEY)
    stranger = client("stranger", f"{TOKEN}-WRONG")
    everybody = (threaded, fetching, keyed, stranger)
    plant_tokens(tmp_path, TOKEN, f"{TOKEN}-2", f"{TOKEN}-3")
    assert (await fetching.upload()).failed == {}
    for one in everybody:
        record_everything(one)
        assert one._engine.recorder.plan is not None
    # the readings are in memory now, and nowhere else
    assert any(isinstance(thing, PeriodState) for thing in reachable(everybody))
    seen.reprs.append(shown(everybody, running.service))
    keep_files(seen.client_files, devices, "before the seal")

    tap.down = True
    for one in everybody[1:]:
        one.flush(seal=True)
        assert (await one.upload()).failed == {"enrolment_refused" if one is stranger else "rpc_unavailable": 1}
    assert not await asyncio.to_thread(threaded.flush, seal=True, timeout_s=0.3)
    keep_files(seen.client_files, devices, "failed")
    seen.reprs.append(shown(everybody, running.service))

    tap.down = False
    assert (await stranger.upload()).failed == {"not_enrolled": 1}
    sent, *summaries = await asyncio.gather(
        asyncio.to_thread(threaded.flush, timeout_s=20), fetching.upload(), keyed.upload()
    )
    assert sent
    assert [summary.counted for summary in summaries] == [1, 1]
    assert [contributors for _, contributors in running.sums()] == [3]
    seen.reprs.append(shown(everybody, running.service, summaries, [(c.spent(), c.history()) for c in everybody]))

    kept = client("kept", TOKEN, seal_key=SEAL_KEY)
    record_everything(kept)
    kept.close()
    for one in everybody:
        assert REFUSALS.items() <= one.counters().items()
        one.close()
    with sqlite3.connect(devices / "kept" / "device.db") as db:
        assert db.execute("SELECT count(*) FROM open_periods").fetchone() == (1,), "an open period rests there, sealed"
    db.close()
    seen.exceptions += texts_of(_mistakes(threaded, client))
    seen.reprs.append(shown(everybody, kept, [getattr(client_sdk, name) for name in client_sdk.__all__]))
    seen.reprs.append(repr(EnrolRequest(TOKEN, b"", b"")))
    keep_files(seen.client_files, devices, "closed")


def _mistakes(closed: TelemetryClient, client: Callable[..., TelemetryClient]) -> list[Callable[[], object]]:
    """What a host can do wrong with a reading or a secret in its hands."""
    state: Any = PeriodState(PLAN)
    number: Any = PLAN.metrics["number"].mechanism
    category: Any = PLAN.metrics["strict"].mechanism
    return [
        lambda: client("x", TOKEN * 100),
        lambda: client("x", TOKEN.encode()),
        lambda: client("x", TOKEN, seal_key=SEAL_KEY[:-1]),
        lambda: client("x", TOKEN, seal_key=SEAL_KEY.decode()),
        lambda: client("x", TOKEN, can_upload=NUMBER),
        lambda: client("x", TOKEN, consent=NUMBER),
        lambda: pickle.dumps(closed),
        lambda: closed.upload().send(None),
        lambda: state.add("number", str(NUMBER), os.urandom),
        lambda: state.add("strict", OTHER, os.urandom),
        lambda: state.add(NUMBER, "number", os.urandom),
        lambda: state.add(OTHER, NUMBER, os.urandom),
        lambda: clipped_values(PLAN, {"number": str(NUMBER), "strict": OTHER, "wide": OTHER}),
        lambda: number.perturb(str(NUMBER), os.urandom),
        lambda: number.perturb_many([NUMBER, math.nan], os.urandom),
        lambda: number.perturb_many(np.array([NUMBER, math.inf]), os.urandom),
        lambda: number.perturb_many([NUMBER, str(NUMBER)], os.urandom),
        lambda: category.perturb(OTHER, os.urandom),
        lambda: category.perturb_many([CATEGORY, OTHER], os.urandom),
        lambda: category.perturb_many(np.array([NUMBER]), os.urandom),
        lambda: category.perturb_codes(np.array([NUMBER]), os.urandom),
    ]


def command_line(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> bytes:
    """All that the operator can have printed."""
    db = ("--db", str(tmp_path / "collector.db"))
    for command in (("report",), ("privacy",), ("privacy", "--all")):
        for form in ("table", "json", "csv"):
            assert cli.main([*command, *db, "--format", form]) == 0
    assert cli.main(["plan", "check", str(tmp_path / "plan.toml")]) == 0
    return capfdbinary.readouterr().out


def as_logged(records: Iterable[logging.LogRecord]) -> str:
    lines = [f"{r.name} {r.levelname} {r.getMessage()} {r.args!r} {r.exc_text} {r.exc_info!r}" for r in records]
    return "\n".join(lines)


# case H02
async def test_no_reading_token_or_key_leaves(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")  # the devices' own loops name every callback and its arguments
    caplog.set_level(1)
    asyncio.get_running_loop().set_debug(True)
    asyncio.get_running_loop().slow_callback_duration = 0.0
    seen = Seen()
    async with Tap() as tap, Tap() as registrar_tap:
        with running_registrar(tmp_path / "registrar") as registrar:
            registrar_tap.target = registrar.address
            async with collector(tmp_path, PLAN) as running:
                tap.target = running.address
                await play(tmp_path, running, tap, registrar_tap, seen)
                seeds = [(tmp_path / "devices" / name / "identity.json") for name in ("threaded", "fetching", "keyed")]
                secrets = [path.read_text().partition('"seed": "')[2][:64] for path in seeds]
                seen.reprs.append(shown(registrar.service))
                keep_files(seen.collector_files, tmp_path, "open")
        keep_files(seen.collector_files, tmp_path, "stopped")
        tap.connections += registrar_tap.connections
    asyncio.get_running_loop().set_debug(False)
    for path in (*seen.collector_files,):
        if path.startswith((str(tmp_path / "devices"), str(tmp_path / "plan.toml"))):
            del seen.collector_files[path]
    err = capfdbinary.readouterr().err
    printed = command_line(tmp_path, capfdbinary)
    log = as_logged(caplog.records)
    search(seen, tap, log, err, printed, secrets)


def search(seen: Seen, tap: Tap, log: str, err: bytes, printed: bytes, secrets: list[str]) -> None:
    """The places of case H02, and what must not stand in each."""
    hidden = (TOKEN, OTHER, "SENTINEL-SEAL", *secrets)
    assert all(len(secret) == 64 for secret in secrets)
    shown_places = {"log": log.encode(), "stderr": err, "stdout": printed}
    shown_places |= {f"repr {i}": text.encode() for i, text in enumerate(seen.reprs)}
    shown_places |= {f"exception {i}": text.encode() for i, text in enumerate(seen.exceptions)}
    for place, data in shown_places.items():
        assert found_in(data, *hidden) == [], place
    for place, data in seen.client_files.items():
        own_seed = secrets if "identity.json" in place else []
        assert found_in(data, *(set(hidden) - set(own_seed))) == [], place
        assert only_in_the_list(data), place
    for place, data in seen.collector_files.items():
        assert found_in(data, *hidden) == [], place
        assert only_in_the_list(data), place
    for data in (*tap.raw(), *tap.messages(0), *tap.messages(1)):
        assert found_in(data, OTHER, "SENTINEL-SEAL", *secrets) == [], "wire"
        assert only_in_the_list(data), "wire"
    assert CATEGORY.encode() not in log.encode() + err
    search_is_not_blind(seen, tap, log)


def search_is_not_blind(seen: Seen, tap: Tap, log: str) -> None:
    """What has to be there is found: the tap, the captures and the needles work."""
    sent, answered = tap.messages(0), tap.messages(1)
    assert sum(TOKEN.encode() in message for message in sent) == 4, "each enrolment"
    assert sum(LISTED.encode() in message for message in answered) == 1, "the fetched plan"
    assert len(sent) > 20
    names = {Path(place.partition(" ")[0]).name for place in (*seen.client_files, *seen.collector_files)}
    assert {"device.db", "identity.json", "collector.db", "collector.db-wal", "registrar.db"} <= names
    assert "rpc_unavailable" in log
    assert "released" in log
    assert "Executing" in log
    for word in ("TelemetryClient(", "PeriodState(", "CollectorService", "LogEntry(", "BudgetView("):
        assert any(word in text for text in seen.reprs), word
    for form in (str(NUMBER), repr([NUMBER]), f"{NUMBER:,}", f"{NUMBER:e}", NUMBER.hex(), str(int(NUMBER * 10_000))):
        assert found_in(form.encode()), form
    for code in "<d", ">d", "<f", ">f":
        assert found_in(b"\1" + struct.pack(code, NUMBER))
