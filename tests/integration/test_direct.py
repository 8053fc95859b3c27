"""Direct delivery end to end: real devices, real gRPC, a real store; its estimates, and what it costs, at both ends."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from client_sdk import TelemetryClient
from client_sdk.accounting.ledger import Ledger
from client_sdk.accounting.ledger_reader import read_ledger
from client_sdk.device.interfaces import CallFailedError
from client_sdk.device.views import UploadSummary
from client_sdk.plan import Plan, parse_plan
from client_sdk.secagg.messages import AlreadyCounted, Receipt
from client_sdk.wire.messages import DirectSeal
from collector.accounting.figures import figures
from collector.service import cli
from collector.service.app import CollectorService
from collector.service.documents import device_document, report_document
from collector.service.settings import ServeSettings
from tests.integration.callers import device_client
from tests.integration.direct_devices import Puppet, direct_plan, today
from tests.integration.participants import Device, collector, until
from tests.registrar import KEY_HEX
from tests.stopping import stopped
from tests.unit.client_sdk.device.helpers import DAY_S, certify, plan_text

DELTA = 1e-6


def fleet_plan(delivery: str, version: int = 1) -> Plan:
    """Two metrics; a cohort of six, which is formed at once, or not at all."""
    text = plan_text(version=version, min_size=3, target_size=6, epsilon="2.0", max_delay="2d", upper=100)
    return parse_plan(text.replace('resend = "same_bytes"', delivery).replace('max_wait = "5s"', 'max_wait = "1s"'))


@asynccontextmanager
async def served(store_url: str, folder: Path, *plans: Plan, clock: Any = time.time) -> AsyncIterator[CollectorService]:
    paths = []
    for plan in plans:
        paths.append(folder / f"{plan.name}-{plan.version}.toml")
        paths[-1].write_text(plan.text, encoding="utf-8")
    settings = ServeSettings(
        plan_paths=tuple(paths), db_url=store_url, registrar_key=KEY_HEX, listen="127.0.0.1:0", insecure=True,
        step_timeout_s=5.0,
    )  # fmt: skip
    service = await CollectorService.start(settings, clock)
    try:
        yield service
    finally:
        assert await stopped(service)


class Clock:
    """Real time, moved."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def client(folder: Path, service: CollectorService, plan: Plan, **more: Any) -> TelemetryClient:
    made = device_client(folder, service.address, plan, insecure=True, **({"allow_direct": True} | more))
    certify(made)
    return made


def sealed(made: TelemetryClient, milliseconds: float = 50, network: str = "wifi") -> TelemetryClient:
    made.record("cold_start_ms", milliseconds)
    made.record("network", network)
    made.flush(seal=True)
    return made


async def upload_all(clients: list[TelemetryClient]) -> list[UploadSummary]:
    return list(await asyncio.wait_for(asyncio.gather(*(one.upload() for one in clients)), 60))


def device_side(made: TelemetryClient) -> Ledger:
    return read_ledger(json.loads(json.dumps(made.export_ledger())))


def central(ledger: Ledger, *plans: Plan) -> tuple[float, float, Any]:
    found = figures(ledger, {plan.hash.hex(): plan for plan in plans}, delta=DELTA, corrupt=None, window="lifetime")
    return found.eps_central, found.eps_local, dict(found.fallbacks)


def collector_side(service: CollectorService, made: TelemetryClient) -> Ledger:
    assert made.device_id is not None
    ledger = service.store.ledger(time.time() + DAY_S, made.device_id)
    assert ledger is not None
    return ledger


# --- all of a plan's reports ------------------------------------------------------------------------


async def test_a_direct_plan_from_reading_to_report_and_ledgers(store_url: str, tmp_path: Path) -> None:
    plan = fleet_plan('delivery = "direct"')
    async with served(store_url, tmp_path, plan) as service:
        clients = [
            sealed(client(tmp_path / str(n), service, plan), 100 * (n % 2), "wifi" if n % 3 else "offline")
            for n in range(12)
        ]
        reports = [made.preview().waiting[0].elements for made in clients]
        summaries = await upload_all(clients)
        assert {summary.counted for summary in summaries} == {1}

        # what is stored are sums, and they are those of what left the devices
        rows = service.store.released_sums()
        assert {row.delivery for row in rows} == {"direct"}
        totals = {name: [0] * plan.metrics[name].mechanism.length for name in plan.metrics}
        for row in rows:
            totals[row.metric] = [a + b for a, b in zip(totals[row.metric], row.totals, strict=True)]
        for name, place in plan.slices.items():
            assert totals[name] == [sum(cell) for cell in zip(*(report[place] for report in reports), strict=True)]

        # decoded like any other sum
        report = report_document(service.store, None, None, None)
        for metric in report["metrics"]:
            assert (metric["contributors"], metric["direct"]) == (12, 12)
            assert metric["n_h"] == 1
            # not amplified: that of a single report at this delta, a hair below the pure one
            assert metric["epsilon_central"] == pytest.approx(metric["epsilon_local"], rel=1e-5)
            assert metric["central_method"] == "as local (no sum hides a report)"
        mean = next(m for m in report["metrics"] if m["name"] == "cold_start_ms")["estimates"][0]
        assert abs(mean["estimate"] - 50) < 5 * mean["standard_error"]

        # both ledgers book it at its local epsilon, never amplified
        for made in clients[:3]:
            mine, theirs = device_side(made), collector_side(service, made)
            assert [entry.falls_back for entry in (*mine.entries, *theirs.entries)] == ["direct", "direct"]
            assert central(mine, plan) == central(theirs, plan)
            eps_central, eps_local, why = central(mine, plan)
            assert (eps_central, why) == (eps_local, {"direct": 1})
            assert mine.spent_micro_epsilon() == theirs.spent_micro_epsilon() == plan.report_micro_epsilon
            document = device_document(service.store, str(made.device_id), time.time())
            assert document["reports"] == 1
        assert (await clients[0].collector_view())["ledger"]["entries"][0]["delivery"] == "direct"
        for made in clients:
            made.close()


async def test_an_exported_direct_ledger_is_recomputed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = fleet_plan('delivery = "direct"')
    async with served(f"sqlite:///{tmp_path / 'c.db'}", tmp_path, plan) as service:
        made = sealed(client(tmp_path / "d", service, plan))
        assert (await made.upload()).counted == 1
        (tmp_path / "ledger.json").write_text(json.dumps(made.export_ledger()))
        made.close()
    capsys.readouterr()
    shown = ["recompute", "--ledger", str(tmp_path / "ledger.json"), "--plans", str(tmp_path), "--format", "json"]
    assert cli.main(shown) == 0
    document = json.loads(capsys.readouterr().out)
    (lifetime,) = [row for row in document["windows"] if row["window"] == "lifetime"]
    assert lifetime["eps_central"] == lifetime["eps_local"]
    assert lifetime["fallbacks"] == {"direct": 1}


# --- beside rounds ----------------------------------------------------------------------------------


async def test_masked_and_direct_sums_are_decoded_together(store_url: str, tmp_path: Path) -> None:
    """Six devices meet in a round; two find nobody, and the one that may goes direct when its time has come."""
    plan, clock = fleet_plan('fallback = "direct"\nfallback_after = "6h"'), Clock()
    async with served(store_url, tmp_path, plan, clock=clock) as service:
        together = [sealed(client(tmp_path / str(n), service, plan, clock=clock)) for n in range(6)]
        reports = [made.preview().waiting[0].elements for made in together]
        assert {one.counted for one in await upload_all(together)} == {1}
        alone = [
            sealed(client(tmp_path / f"alone{n}", service, plan, clock=clock, allow_direct=not n)) for n in range(2)
        ]
        reports.append(alone[0].preview().waiting[0].elements)
        assert [one.failed for one in await upload_all(alone)] == [{"come_back": 1}] * 2
        clock.ahead = plan.period_start(time.time()) + DAY_S + 6 * 3600 + 1 - time.time()
        for made, counted in zip(alone, (1, 0), strict=True):
            made.consent(True)
            assert (await made.upload()).counted == counted
        rows = service.store.released_sums("cold_start_ms")
        assert sorted((row.contributors, row.delivery) for row in rows) == [(1, "direct"), (6, "interactive")]
        place = plan.slices["cold_start_ms"]
        assert sum(row.totals[0] for row in rows) == sum(report[place][0] for report in reports)
        report = report_document(service.store, "cold_start_ms", None, None)["metrics"][0]
        assert (report["contributors"], report["direct"], report["n_h"]) == (7, 1, 1)
        whole = plan.metrics["cold_start_ms"].mechanism.estimate([sum(row.totals[0] for row in rows)], 7)
        assert report["estimates"][0]["estimate"] == whole.values[0]

        # a direct report costs its device the local epsilon; and the others no more than without it: it is in no n_h
        hidden, bare = (collector_side(service, made) for made in (together[0], alone[0]))
        assert central(device_side(together[0]), plan) == central(hidden, plan)
        assert central(hidden, plan)[0] < central(bare, plan)[0] == central(bare, plan)[1]
        assert hidden.entries[0].cohort is not None
        assert hidden.entries[0].cohort.contributors == 6
        sizes = service.store.fleet_histories(time.time() + 3 * DAY_S, "lifetime", {plan.hash: Fraction(1, 10)})
        assert sorted((history.devices, history.reports[0][1]) for history in sizes) == [(1, 1), (6, 5)]
        for made in (*together, *alone):
            made.close()


async def test_a_report_is_counted_once_over_both_ways(store_url: str, tmp_path: Path) -> None:
    plan = direct_plan('fallback = "direct"')
    async with served(store_url, tmp_path, plan) as service:
        devices = [Device([n, 10 * n], plan) for n in range(1, 6)]
        in_round = await asyncio.gather(*(one.upload(service.address) for one in devices))
        assert all(isinstance(one.outcome, Receipt) for one in in_round)
        masked = next(row for row in service.store.rounds() if row.outcome == "released")
        again = await Puppet([(plan, today(plan), [1, 10])], devices[0].identity, resent=True).deliver(service.address)
        assert (again.words, again.sums) == (("already_counted",), ((masked.round_id, 5),))
        assert again.standing is not None
        assert again.standing.spent_micro_epsilon == plan.report_micro_epsilon

        bare = Puppet([(plan, today(plan), [7, 70])])
        assert (await bare.deliver(service.address)).words == ("counted",)
        later = await Device([7, 70], plan, identity=bare.identity).upload(service.address)
        assert isinstance(later.outcome, AlreadyCounted)
        assert later.outcome.contributors == 1
        assert len(service.store.contributions()) == 6
        assert service.store.device_totals(bare.identity.device_id) == (1, plan.report_micro_epsilon)


async def test_two_replicas_count_a_report_once(own_store_url: str, tmp_path: Path) -> None:
    """Both are asked at once, and neither knows of the other's seats."""
    plan = direct_plan()
    async with AsyncExitStack() as stack:
        replicas = []
        for number in range(2):
            (folder := tmp_path / str(number)).mkdir()
            replicas.append(await stack.enter_async_context(served(own_store_url, folder, plan)))
        identities = [Puppet([(plan, today(plan), [n, n])]) for n in range(8)]
        calls = [
            Puppet(one.reports, one.identity).deliver(replica.address) for one in identities for replica in replicas
        ]
        ended = await asyncio.gather(*calls)
        words = sorted(word for one in ended for word in one.words)
        assert words == ["already_counted"] * 8 + ["counted"] * 8
        store = replicas[0].store
        assert len(store.contributions()) == 8
        assert sum(row.totals[0] for row in store.released_sums("a")) == sum(range(8))
        assert {store.device_totals(one.identity.device_id)[0] for one in identities} == {1}


# --- what breaks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed_call", [True, False], ids=["after the seal", "before it"])
async def test_a_device_that_is_gone_after_the_hand_over(tmp_path: Path, sealed_call: bool) -> None:
    """With its seal, the collector counts what came; without, nothing holds. The device hears which when it is back."""
    plan = direct_plan()
    async with collector(tmp_path, plan) as running:
        gone = Puppet([(plan, today(plan), [1, 2])], leave_after=DirectSeal)
        if not sealed_call:
            gone.hook = lambda message: None if isinstance(message, DirectSeal) else message
        else:
            gone.linger = lambda: until(lambda: len(running.service.store.contributions()) == 1)
        await gone.deliver(running.address)
        await until(lambda: not running.service._lobby._seats)
        back = await Puppet(gone.reports, gone.identity, resent=True).deliver(running.address)
        assert back.words == ("already_counted" if sealed_call else "counted",)
        assert running.sums() == [([1, 2], 1)]


async def test_a_real_device_whose_receipt_is_lost_comes_back(tmp_path: Path) -> None:
    plan = fleet_plan('delivery = "direct"')
    async with served(f"sqlite:///{tmp_path / 'c.db'}", tmp_path, plan) as service:
        made = sealed(client(tmp_path / "d", service, plan))
        losing(made, "DirectReceipts")
        assert (await made.upload()).failed == {"rpc_unavailable": 1}
        await until(lambda: len(service.store.contributions()) == 1)
        found(made)
        await until(lambda: not service._lobby._seats)
        assert (await made.upload()).already_counted == 1
        assert len(service.store.contributions()) == 1
        mine, theirs = device_side(made), collector_side(service, made)
        assert central(mine, plan) == central(theirs, plan)
        made.close()


async def test_a_restored_backup_stops_before_its_report_leaves(tmp_path: Path) -> None:
    plan, clock = fleet_plan('delivery = "direct"'), Clock()
    async with served(f"sqlite:///{tmp_path / 'c.db'}", tmp_path, plan, clock=clock) as service:
        made = sealed(client(tmp_path / "d", service, plan, clock=clock))
        shutil.copytree(tmp_path / "d", tmp_path / "backup")
        assert (await made.upload()).counted == 1
        made.close()
        shutil.rmtree(tmp_path / "d")
        (tmp_path / "backup").rename(tmp_path / "d")
        restored = client(tmp_path / "d", service, plan, clock=clock)
        assert (await restored.upload()).failed == {"ledger_damaged": 1}
        assert restored.spent().damaged is not None
        assert len(service.store.contributions()) == 1
        # what came with the backup is counted already; and this life's own reports hold until the host says so
        restored.reset_ledger()
        summary = await restored.upload()
        assert (summary.already_counted, summary.counted) == (1, 0)
        restored.close()


async def test_a_stopping_collector_stores_what_it_has_taken(tmp_path: Path) -> None:
    plan = direct_plan()
    async with served(f"sqlite:///{tmp_path / 'c.db'}", tmp_path, plan) as service:
        device = Puppet([(plan, today(plan), [1, 2])])
        call = asyncio.create_task(device.deliver(service.address))
        assert service._direct is not None
        direct = service._direct
        await until(lambda: bool(direct.sums._open))
        await service.stop(0.0)
        ended = await call
        assert ended.words == ("counted",)


async def test_an_operator_sees_how_many_came_unmasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = fleet_plan('delivery = "direct"')
    url = f"sqlite:///{tmp_path / 'c.db'}"
    async with served(url, tmp_path, plan) as service:
        clients = [sealed(client(tmp_path / str(n), service, plan)) for n in range(3)]
        await upload_all(clients)
        device_id = clients[0].device_id
        for made in clients:
            made.close()
    capsys.readouterr()
    assert cli.main(["report", "--db", url]) == 0
    assert "3 contributors, 3 of them unmasked" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["privacy", "--db", url, "--device", str(device_id), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["eps_central"] == row["eps_local"] for row in document["windows"]} == {True}
    assert document["windows"][-1]["fallbacks"] == {"direct": 1}


# --- issue: a receipt of a round that was lost ------------------------------------------------------


async def test_both_ledgers_agree_where_a_rounds_receipt_was_lost(store_url: str, tmp_path: Path) -> None:
    # case C01
    plan = fleet_plan('resend = "same_bytes"')
    async with served(store_url, tmp_path, plan) as service:
        clients = [sealed(client(tmp_path / str(n), service, plan)) for n in range(6)]
        losing(clients[0], "Receipt")
        summaries = await upload_all(clients)
        assert [one.counted for one in summaries] == [0, 1, 1, 1, 1, 1]
        found(clients[0])
        assert (await clients[0].upload()).already_counted == 1
        for made in clients:
            mine, theirs = device_side(made), collector_side(service, made)
            assert mine.entries[0].cohort == theirs.entries[0].cohort is not None
            assert (mine.entries[0].round, mine.entries[0].resent) == (theirs.entries[0].round, False)
            assert central(mine, plan) == central(theirs, plan), "to the last digit"
        assert central(device_side(clients[0]), plan)[0] < central(device_side(clients[0]), plan)[1]
        assert device_side(clients[0]).entries[0].outcome == "already_counted"
        for made in clients:
            made.close()


async def test_what_was_confirmed_of_another_round_says_nothing_of_this_one(tmp_path: Path) -> None:
    """The first round was confirmed and aborted; the second one's receipt was lost before it was confirmed here."""
    plan = fleet_plan('resend = "same_bytes"')
    async with served(f"sqlite:///{tmp_path / 'c.db'}", tmp_path, plan) as service:
        clients = [sealed(client(tmp_path / str(n), service, plan)) for n in range(6)]
        for made in clients:
            losing(made, "UnmaskRequest")
        assert [one.counted for one in await upload_all(clients)] == [0] * 6
        await until(lambda: not service._lobby._seats)
        for made in clients:
            found(made)
        losing(clients[0], "SurvivorStatus")
        assert [one.counted for one in await upload_all(clients)] == [0, 1, 1, 1, 1, 1]
        found(clients[0])
        assert (await clients[0].upload()).already_counted == 1
        entry = device_side(clients[0]).entries[0]
        assert (entry.cohort, entry.falls_back) == (None, "resent")
        for made in clients:
            made.close()


def losing(made: TelemetryClient, kind: str) -> None:
    """From now on the connection is lost when such a message arrives."""
    delivery = made._engine.connections.delivery()
    delivery.transport = Losing(delivery.transport, kind)


def found(made: TelemetryClient) -> None:
    """The network is well again."""
    delivery: Any = made._engine.connections.delivery()
    delivery.transport = delivery.transport.inner


class Losing:
    def __init__(self, inner: Any, kind: str) -> None:
        self.inner, self.kind = inner, kind

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        async with self.inner.connect() as connection:
            opened = {name: getattr(connection, name) for name in ("participate", "deliver")}
            for name, open_stream in opened.items():
                setattr(connection, name, lambda open_stream=open_stream: self.stream(open_stream()))
            yield connection

    def stream(self, stream: Any) -> Any:
        receive = stream.receive

        async def lossy() -> Any:
            message = await receive()
            if type(message).__name__ == self.kind:
                raise CallFailedError("unavailable")
            return message

        stream.receive = lossy
        return stream
