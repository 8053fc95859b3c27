"""Handed cases as a user meets them: the command line, a client, a collector on loopback, with the cases' own inputs.

What a case expects of one room alone stands in that room's tests; here is what only shows when the rooms meet.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import grpc
import pytest
from grpc import aio

from client_sdk import ConfigurationError, PlanError, StorageError, TelemetryClient, parse_plan
from client_sdk.device.storage import DeviceStore
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.plan import Plan
from client_sdk.report import unpack_vector
from client_sdk.secagg.messages import Receipt, RoundAborted
from client_sdk.wire import plan_pb2
from client_sdk.wire.convert import get_plan_response_from_wire
from client_sdk.wire.methods import GET_PLAN_METHOD
from collector.service.storage import CollectorStore
from tests.commands import Run
from tests.entropy import seeded
from tests.integration.participants import Device, collector, two_number_plan
from tests.integration.processes import PLAIN
from tests.registrar import KEY_HEX, NOWHERE
from tests.unit.client_sdk.device.helpers import Clock, make_client
from tests.unit.client_sdk.device.small_collector import SmallCollector
from tests.unit.collector.service.stores import make_release

HEAD = """
[plan]
name = "test"
version = {version}
period = "1d"
[cohort]
min_size = {min_size}
target_size = {target_size}
max_wait = "1s"
corrupt_fraction = 0
dropout_fraction = 0
[budget]
lifetime = {lifetime}
"""


def plan_text(
    *metrics: str, version: int = 1, min_size: int = 3, target_size: int = 5, lifetime: str = "100", more: str = ""
) -> str:
    head = HEAD.format(version=version, min_size=min_size, target_size=target_size, lifetime=lifetime)
    return "\n".join([head + more, *metrics])


def numeric(name: str = "n", lower: object = 0, upper: object = 10, epsilon: str = "1", more: str = "") -> str:
    return f'[metrics.{name}]\nkind = "numeric"\nlower = {lower}\nupper = {upper}\nepsilon = {epsilon}\n{more}\n'


def categorical(*categories: str, name: str = "c", epsilon: str = "1") -> str:
    return f'[metrics.{name}]\nkind = "categorical"\ncategories = {json.dumps(categories)}\nepsilon = {epsilon}\n'


# --- what is refused when it is configured -----------------------------------------------------------------------

LABELS = [f"{number:x}" for number in range(1_000_000)]


def long_plan(elements: int) -> str:
    """One report of this plan has `elements` elements: categorical metrics of 100,000 cells and a rest."""
    parts = [LABELS[start : min(start + 100_000, elements)] for start in range(0, elements, 100_000)]
    return plan_text(*(categorical(*part, name=f"m{i}") for i, part in enumerate(parts)), target_size=3)


REFUSED: list[tuple[str, str, tuple[str, ...]]] = [
    ("A01", plan_text(categorical("a", "b", "c", "d", epsilon="800")), ("epsilon",)),
    ("A03", plan_text(categorical("only")), ("categories",)),
    ("A03", plan_text(numeric(lower=5, upper=5)), ("bound", "lower", "upper")),
    *(
        ("A04", plan_text(numeric(lower=lower, upper=upper)), ("lower", "upper"))
        for lower, upper in ((-1.7e308, 1.7e308), ("nan", 1), (0, "inf"), (10, 0))
    ),
    *(
        ("C05", plan_text(numeric(), lifetime=amount), ("lifetime",))
        for amount in ("nan", "inf", "-1", "1e400", '"nan"', '"1e400"')
    ),
    *(
        ("C05", plan_text(numeric(), more=f"rolling_24h = {amount}"), ("rolling_24h",))
        for amount in ("nan", "inf", "-1", "1e400")
    ),
    *(
        ("D08", plan_text(numeric(lower=lower, upper=upper)), ("lower", "upper"))
        for lower, upper in ((0, 0), (3, -3), (-1, -1), ("nan", 1))
    ),
    *(
        ("D10", long_plan(elements), ("8000000", "limit", "bytes"))
        for elements in (524_286, 524_287, 524_288, 524_289, 1_000_000)
    ),
]


# cases A01, A03, A04, C05, D08, D10
@pytest.mark.parametrize(("case", "text", "words"), REFUSED, ids=[case for case, _, _ in REFUSED])
def test_a_plan_that_cannot_work_is_refused_by_every_door(
    tmp_path: Path, run: Run, case: str, text: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    for command in (
        ("plan", "check", path),
        ("serve", "--plan", path, "--db", tmp_path / "c.db", "--registrar-key", KEY_HEX, *PLAIN),
        ("demo", "--plan", path, "--out", tmp_path / "out"),
    ):
        status, out, err = run(*command)
        assert (status, out) == (2, "")
        assert any(word in err for word in words), err
        assert "Traceback" not in err
        assert all(len(line) < 300 for line in err.splitlines())
    for plan in (path, str(path)):
        with pytest.raises(PlanError) as caught:
            make_client(tmp_path / "device", plan)  # type: ignore[arg-type]
        assert any(word in str(caught.value) for word in words)
    assert [found.name for found in tmp_path.iterdir()] == ["plan.toml"], "nothing stored, so nothing charged"


# case C05: the last door is the wire
@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "0", "1e-320", "1e400", "", '"1_000"', "0x1"])
async def test_a_plan_from_the_collector_is_judged_alike(tmp_path: Path, amount: str) -> None:
    good = parse_plan(plan_text(numeric(epsilon="7")))
    bad = replace(good, text=good.text.replace("epsilon = 7", f"epsilon = {amount}"))
    with SmallCollector(bad, cohort_size=3) as small:
        client = TelemetryClient(
            small.endpoint,
            consent=True,
            data_dir=tmp_path / "d",
            insecure=True,
            background=False,
            clock=Clock(),
            **NOWHERE,
        )
        await client.upload()
        client.record("n", 1)
        client.flush(seal=True)
        assert client.counters() == {"plan_plan_error": 1, "no_plan": 1}
        assert client.spent().all_lifetime_micro == 0
        assert client._engine.access.store().waiting() == 0
        client.close()


# --- readings ------------------------------------------------------------------------------------------------------


# case A04
def test_readings_that_are_no_number_cost_nothing(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", parse_plan(plan_text(numeric())))
    for number, reading in enumerate((math.nan, math.inf, -math.inf), 1):
        client.record("n", reading)
        assert client.counters() == {"not_finite": number}
    assert (client.spent().all_lifetime_micro, client.history()) == (0, [])
    assert client._engine.access.store().waiting() == 0
    # the period's report, which is made whatever was read, is that of a device without a reading
    client.flush(seal=True)
    assert client.counters() == {"not_finite": 3, "sealed": 1}
    assert client._engine.recorder._period is None


SIXTY_FOUR = """
import random, sys
random.seed(0)
import numpy as np
np.random.seed(0)
from pathlib import Path
from client_sdk import TelemetryClient, load_plan
from client_sdk.device.storage import DeviceStore
from client_sdk.report import unpack_vector
folder = Path(sys.argv[1])
client = TelemetryClient("127.0.0.1:9", consent=True, plan=folder / "plan.toml", data_dir=folder / sys.argv[2],
                         insecure=True, background=False, registrar="127.0.0.1:9", registrar_key=sys.argv[3])
for number in range(64):
    client.record(f"n{number}", 5.0)
client.close()
with DeviceStore(str(folder / sys.argv[2]))._transaction() as db:
    print(unpack_vector(db.execute("SELECT report FROM spool").fetchone()[0]))
"""


# case B02, first step
def test_a_host_that_seeds_its_generators_changes_no_noise(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_text(*(numeric(f"n{i}") for i in range(64)), lifetime="1000"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
    runs = [
        subprocess.run(
            [sys.executable, "-c", SIXTY_FOUR, str(tmp_path), name, KEY_HEX],
            capture_output=True, text=True, check=True, env=environment,
        ).stdout
        for name in ("one", "other")
    ]  # fmt: skip
    assert [len(json.loads(text)) for text in runs] == [64, 64]
    assert runs[0] != runs[1]


# case B02, second step
def test_two_metrics_of_a_client_with_one_test_seed(tmp_path: Path) -> None:
    plan = parse_plan(plan_text(numeric("a"), numeric("b"), lifetime="1000", more="rolling_24h = 1000"))
    clock = Clock()
    client = make_client(
        tmp_path / "d", plan, clock=clock, endpoint="memory:test", _entropy=seeded("B02"), _transport=object()
    )
    for _ in range(32):
        client.record("a", 3.0)
        client.record("b", 5.0)
        client.flush(seal=True)
        clock.now += plan.period_s
    with DeviceStore(str(tmp_path / "d"))._transaction() as db:
        reports = [unpack_vector(row[0]) for row in db.execute("SELECT report FROM spool")]
    assert len(reports) == 32
    assert len({b - a for a, b in reports}) > 20
    with pytest.raises(Exception, match="never with an endpoint"):
        make_client(tmp_path / "x", plan, _entropy=seeded("B02"))


# --- amounts and estimates as they are printed ----------------------------------------------------------------


def stored(path: Path, plan: Plan, totals: list[int], contributors: int) -> Path:
    """A store with one released sum."""
    store = CollectorStore.open(str(path))
    now = time.time()
    store.put_plan(plan, now)
    start = plan.period_start(now)
    store.store_release(make_release(plan, devices=range(contributors), period_start=start, totals=totals, now=now))
    store.close()
    return path


# case C04
@pytest.mark.parametrize(
    ("epsilon", "lifetime"), [("0.1", "0.3"), ("0.1", "1.0"), ("0.333333", "1.0"), ("0.000001", "0.000003")]
)
def test_no_amount_is_printed_with_an_exponent_or_invented_digits(
    tmp_path: Path, run: Run, epsilon: str, lifetime: str
) -> None:
    plan = parse_plan(plan_text(numeric(epsilon=epsilon), lifetime=lifetime))
    (tmp_path / "plan.toml").write_text(plan.text)
    db = ("--db", stored(tmp_path / "c.db", plan, [2500], 5))
    one = ("--device", f"{0:032x}")
    for command in (
        ("plan", "check", tmp_path / "plan.toml", "--format", "json"),
        *(("privacy", *db, *which, "--format", f) for which in ((), one, ("--all",)) for f in ("table", "json", "csv")),
        *(("report", *db, "--format", f) for f in ("json", "csv")),
    ):
        status, out, _ = run(*command)
        assert status == 0
        assert epsilon in out
        assert not re.search(r"(?<![0-9a-f])[0-9.]+[eE][+-]?[0-9]", out), command
    status, out, _ = run("privacy", *db, *one, "--format", "json")
    assert {window["epsilon_local"] for window in json.loads(out)["windows"]} == {float(epsilon)}
    status, out, _ = run("plan", "check", tmp_path / "plan.toml", "--format", "json")
    longest = Decimal(epsilon) * (Decimal(lifetime) // Decimal(epsilon))
    assert Decimal(json.loads(out)["epsilon_year"]) == longest


# case A09
def test_estimates_are_printed_raw_with_their_interval(tmp_path: Path, run: Run) -> None:
    plan = parse_plan(plan_text(categorical("yes", "no")))
    rows = {}
    for name, contributors, observed in (("low", 1000, [200, 800]), ("even", 10_000, [5000, 5000])):
        db = stored(tmp_path / f"{name}.db", plan, observed, contributors)
        status, out, _ = run("report", "--db", db, "--format", "json")
        assert status == 0
        rows[name] = json.loads(out)["metrics"][0]["estimates"]
    assert rows["low"][0]["estimate"] == pytest.approx(-149.186, abs=0.01)
    assert sum(row["estimate"] for row in rows["low"]) == pytest.approx(1000, abs=1e-6)
    assert rows["even"][0]["estimate"] == pytest.approx(5000, abs=1e-6)
    low, high = rows["even"][0]["ci95"]
    assert 187 <= (high - low) / 2 <= 213
    _, out, _ = run("report", "--db", tmp_path / "low.db", "--format", "csv")
    assert ",-149.186" in out
    _, out, _ = run("report", "--db", tmp_path / "low.db")
    assert "-149" in out
    assert "Nothing is cut" in out


# --- rounds ----------------------------------------------------------------------------------------------------

FIVE = two_number_plan(min_size=3, target_size=5)  # threshold 3


def fleet(plan: Plan = FIVE) -> list[Device]:
    """Client i of five contributes [i, 10 i]."""
    return [Device([i, 10 * i], plan) for i in range(1, 6)]


# case D01
@pytest.mark.parametrize(
    ("lost_before", "lost", "total", "contributors"),
    [
        ("join", [5], [10, 100], 4),
        ("shares", [5], [10, 100], 4),
        ("masked_input", [5], [10, 100], 4),
        ("masked_input", [4, 5], [6, 60], 3),
        ("unmask", [5], [15, 150], 5),
        ("unmask", [4, 5], [15, 150], 5),
    ],
)
async def test_dropouts_at_each_stage_down_to_the_threshold(
    tmp_path: Path, lost_before: str, lost: list[int], total: list[int], contributors: int
) -> None:
    async with collector(tmp_path, FIVE) as running:
        devices = fleet()
        ended = await asyncio.gather(
            *(
                device.upload(running.address, leave_before=lost_before if i in lost else None)
                for i, device in enumerate(devices, 1)
            )
        )
        assert running.sums() == [(total, contributors)]
        roster = 4 if lost_before == "join" else 5
        (record,) = running.service.store.rounds()
        for i, one in enumerate(ended, 1):
            assert one.outcome == (None if i in lost else Receipt(record.round_id, contributors, roster))


# case D02
async def test_below_the_threshold_no_sum_is_seen_anywhere(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with collector(tmp_path, FIVE, step_timeout_s=1.0) as running:
        devices = fleet()
        with caplog.at_level(logging.DEBUG):
            started = time.monotonic()
            ended = await asyncio.gather(
                *(device.upload(running.address) for device in devices[:2]),
                *(device.upload(running.address, silent_before="masked_input") for device in devices[2:]),
            )
            assert time.monotonic() - started < 6, "its deadline of 1 s, and 5 s"
        assert [one.outcome for one in ended[:2]] == [RoundAborted("too_few_survivors", 2, 3)] * 2
        assert {one.code for one in ended[2:]} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    log = [line for line in caplog.messages if line.startswith("round ")]
    assert len(log) == 1
    assert "2 of at least 3" in log[0]
    assert "sum" not in " ".join(caplog.messages)
    store = CollectorStore.open(str(tmp_path / "collector.db"), read_only=True)
    (record,) = store.rounds()
    assert (record.outcome, record.reason, record.contributors) == ("aborted", "too_few_survivors", 0)
    assert (store.released_sums(), store.contributions(), store.lifetimes_micro_epsilon()) == ([], [], [])
    store.close()
    status, out, _ = run("report", "--db", tmp_path / "collector.db", "--format", "json")
    metrics = json.loads(out)["metrics"]
    assert status == 0
    assert [metric["contributors"] for metric in metrics] == [0, 0]
    assert [row["estimate"] for metric in metrics for row in metric["estimates"]] == [None, None]
    assert all(
        row["sum"] is None for metric in json.loads(out)["metrics"] for row in metric["estimates"] if "sum" in row
    )


# case D07
async def test_a_sum_beyond_32_bits_does_not_wrap(tmp_path: Path) -> None:
    plan = parse_plan(plan_text(numeric(epsilon="0.05", more="levels = 1048576"), target_size=10))
    assert plan.bound >= 536_870_912
    async with collector(tmp_path, plan) as running:
        devices = [Device([536_870_912], plan) for _ in range(10)]
        ended = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert running.sums() == [([5_368_709_120], 10)], "1073741824 would be the wrapped one"


# case D08
async def test_negative_numbers_come_back_as_they_were(tmp_path: Path, run: Run) -> None:
    plan = parse_plan(plan_text(numeric(lower=-3, upper=3, more="levels = 65536"), target_size=3))
    mechanism = plan.metrics["n"].mechanism
    assert isinstance(mechanism, Laplace)
    async with collector(tmp_path, plan) as running:
        # the lattice without noise: what the encoding alone does to three values
        devices = [Device([mechanism.encode(value, os.urandom)], plan) for value in (-2.5, -1.5, -0.5)]
        ended = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
    status, out, _ = run("report", "--db", tmp_path / "collector.db", "--format", "json")
    (row,) = json.loads(out)["metrics"][0]["estimates"]
    assert status == 0
    assert row["estimate"] * 3 == pytest.approx(-4.5, abs=0.00014)
    assert row["estimate"] == pytest.approx(-1.5, abs=5e-5)


def of_categories(*categories: str, version: int = 1) -> Plan:
    return parse_plan(plan_text(categorical(*categories), version=version, min_size=2, target_size=3))


def one_hot(plan: Plan, category: str) -> list[int]:
    return [int(label == category) for label in plan.metrics["c"].categories]


# case D11
async def test_two_lists_of_categories_are_two_rounds(tmp_path: Path) -> None:
    short, long = of_categories("x", "y", "z"), of_categories("x", "y", "z", "w", version=2)
    async with collector(tmp_path, short, long) as running:
        devices = [Device(one_hot(plan, "x"), plan) for plan in (short, short, short, long, long)]
        ended = await running.upload(*devices)
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        assert sorted(running.sums()) == [([2, 0, 0, 0], 2), ([3, 0, 0], 3)]
        assert {record.plan_hash: record.contributors for record in running.service.store.rounds()} == {
            short.hash: 3,
            long.hash: 2,
        }


# case D11, second part
async def test_the_same_list_in_another_order_joins_no_round(tmp_path: Path) -> None:
    plan, turned = of_categories("x", "y", "z"), of_categories("z", "y", "x")
    assert (plan.length, plan.version) == (turned.length, turned.version)
    async with collector(tmp_path, plan) as running:
        devices = [Device(one_hot(plan, "x"), plan) for _ in range(4)] + [Device(one_hot(turned, "x"), turned)]
        ended = await asyncio.gather(*(device.upload(running.address) for device in devices))
        assert ended[4].code is grpc.StatusCode.FAILED_PRECONDITION
        assert ended[4].joined is None
        assert [total for total, _ in running.sums()] == [[3, 0, 0]], (
            "three of four make the cohort, the fifth is in none"
        )


def test_the_collector_keeps_one_list_per_version(tmp_path: Path) -> None:
    store = CollectorStore.open(str(tmp_path / "c.db"))
    store.put_plan(of_categories("x", "y", "z"), 0)
    with pytest.raises(PlanError, match="version"):
        store.put_plan(of_categories("z", "y", "x"), 0)
    store.close()


# --- names -----------------------------------------------------------------------------------------------------

NAMES = [
    "../escape", "..\\escape", "a/b", "a\0b", "a\\u0000b", ".", "..", "-rf", "CON", "x" * 300, "%2e%2e%2fescape",
]  # fmt: skip


def everything_in(folder: Path) -> dict[str, bytes]:
    """All there is, but what a reader of a store keeps beside it."""
    found = (path for path in folder.rglob("*") if not path.name.endswith(("-shm", "-wal")))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}


# case H03: metric, report, user id
@pytest.mark.parametrize("name", NAMES)
def test_names_on_the_command_line_open_nothing(
    tmp_path: Path, run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "escape").write_text("precious")
    stored(folder / "c.db", parse_plan(plan_text(numeric())), [2500], 5)
    before = everything_in(tmp_path)
    for command in (
        ("report", "--db", "c.db", "--metric", name),
        ("report", "--db", "c.db", f"--metric={name}"),
        ("report", "--db", "c.db", f"--since={name}"),
        ("privacy", "--db", "c.db", "--device", name),
        ("privacy", "--db", "c.db", f"--device={name}"),
        ("privacy", "--db", "c.db", f"--format={name}"),
        (name,),
    ):
        status, out, err = run(*command)
        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        assert "precious" not in err
    assert everything_in(tmp_path) == before


# case H03: what a device or a category of the data is called
def test_names_in_the_data_name_no_file(tmp_path: Path) -> None:
    plan, data, out = tmp_path / "plan.toml", tmp_path / "facts.csv", tmp_path / "out"
    plan.write_text(plan_text(categorical("a", "b") + 'other = "other"\n', min_size=2, target_size=20))
    names = [name for name in NAMES if "\0" not in name]
    data.write_text("/../user,c\n" + "".join(f'"{name}","{name}"\n' for name in names))
    command = [sys.executable, "-m", "collector.service", "demo", "--plan", str(plan), "--data", str(data)]
    command += ["--device-column", "/../user", "--devices", str(len(names)), "--dropout", "0", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"plan.toml", "facts.csv", "out"}
    # the end of a store's -wal and -shm is the collector's own
    files = {
        str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and "collector.db" not in path.name
    }
    own = {f"devices/{n}/{file}" for n in range(len(names)) for file in ("device.db", "identity.json")}
    own |= {f"registrar/registrar.{file}" for file in ("key", "pub", "db")}
    assert files == own | {"collector.log", "registrar.log", "plan.toml", "result.json"}


# case H03: an existing link inside the output folder
def test_the_output_folder_must_be_empty_so_no_link_in_it_is_followed(tmp_path: Path, run: Run) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.write_text("precious")
    out.mkdir()
    (tmp_path / "plan.toml").write_text(plan_text(numeric()))
    for name in ("result.json", "collector.db", "plan.toml", "devices"):
        (out / name).symlink_to(outside)
        status, _, err = run("demo", "--plan", tmp_path / "plan.toml", "--devices", "5", "--out", out)
        assert (status, "not empty" in err) == (2, True)
        (out / name).unlink()
    assert outside.read_text() == "precious"


# case H03: the device's folder is the host's own choice, what is in it is not
@pytest.mark.parametrize("name", NAMES)
def test_a_data_dir_of_any_name_holds_our_files_only(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "in" / "it"
    inside.mkdir(parents=True)
    plan = parse_plan(plan_text(numeric()))
    if "\0" in name or len(name) > 255:
        with pytest.raises((ConfigurationError, StorageError), match=r"data_dir|too long"):
            make_client(inside / name, plan)
        assert everything_in(inside) == {}
        return
    client = make_client(inside / name, plan)
    client.record(name, 1)
    client.record("n", 1)
    client.close()
    assert client.counters()["unknown_metric"] == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["device.db", "identity.json"]
    assert {path.parent for path in files} == {(inside / name).resolve()}


# case H03: a plan's name on the wire
async def test_a_plan_name_on_the_wire_opens_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "escape").write_text(FIVE.text)
    async with collector(folder, FIVE) as running, aio.insecure_channel(running.address) as channel:
        fetch = channel.unary_unary(GET_PLAN_METHOD.path)
        before = set(everything_in(tmp_path))
        for name in NAMES:
            with pytest.raises(aio.AioRpcError) as caught:
                await fetch(plan_pb2.GetPlanRequest(name=name).SerializeToString())
            assert caught.value.code() in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT}
            assert len(name) < 3 or name not in (caught.value.details() or "")
        good = await fetch(plan_pb2.GetPlanRequest(name=FIVE.name).SerializeToString())
        assert get_plan_response_from_wire(good).plan_hash == FIVE.hash
        assert set(everything_in(tmp_path)) == before
