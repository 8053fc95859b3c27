"""A ledger exported after real rounds: what the round has proven to the device, and nothing that was reported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from client_sdk import TelemetryClient
from client_sdk.accounting.ledger import Cohort, Ledger
from client_sdk.accounting.ledger_reader import parse_ledger
from client_sdk.device.views import UploadSummary
from client_sdk.report import pack_vector
from tests.integration.participants import Running, collector, two_number_plan
from tests.registrar import running

PLAN = two_number_plan(min_size=3, target_size=5)
READING = 123.0625  # its text can be no part of a number that is a whole one


class LeftError(Exception):
    """The host's network is gone."""


def leave(step: str) -> None:
    if step == "masked_input":
        raise LeftError


async def upload(clients: list[TelemetryClient], leaving: int = 0) -> list[Any]:
    """All in one round; the last `leaving` of them go right before their reports would leave."""
    stay = len(clients) - leaving
    jobs = [client.upload(before_send=None if place < stay else leave) for place, client in enumerate(clients)]
    return list(await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 60))


def ledger_of(client: TelemetryClient) -> Ledger:
    first, again = (json.dumps(client.export_ledger()) for _ in range(2))
    read, reread = parse_ledger(first), parse_ledger(again)
    assert (read.plans, read.entries, read.stated) == (reread.plans, reread.entries, reread.stated)
    assert read.stated == read.counted()
    return read


def texts_of_reports(clients: list[TelemetryClient]) -> list[str]:
    """Each waiting report: its integers, its bytes and its digest as they would stand in a text."""
    found = []
    for client in clients:
        (waiting,) = client.preview().waiting
        found += [str(list(waiting.elements)), waiting.digest.hex()]
        found.append(pack_vector(waiting.elements, PLAN.bound).hex())
    return found


async def sealed_fleet(at: Running, registrar: Any, folder: Path) -> list[TelemetryClient]:
    clients = []
    for number in range(5):
        client = TelemetryClient(
            at.address, plan=PLAN, data_dir=folder / str(number), consent=True, insecure=True, background=False,
            enrolment_token=registrar.token(), **registrar.settings,
        )  # fmt: skip
        client.record("a", READING)
        client.flush(seal=True)
        clients.append(client)
    return clients


async def test_a_ledger_over_an_aborted_and_a_counted_round(tmp_path: Path) -> None:
    with running(tmp_path / "registrar") as registrar:
        async with collector(tmp_path, PLAN) as at:
            clients = await sealed_fleet(at, registrar, tmp_path)
            reports = texts_of_reports(clients)
            assert [entry.outcome for client in clients for entry in ledger_of(client).entries] == ["waiting"] * 5
            assert not any(ledger_of(client).entries[0].left_device for client in clients)

            # two reports leave, three do not: no sum
            ended = await upload(clients, leaving=3)
            assert [type(one) for one in ended] == [UploadSummary] * 2 + [LeftError] * 3
            spent = [ledger_of(client) for client in clients]
            assert [ledger.entries[0].falls_back for ledger in spent] == ["failed_but_spent"] * 2 + [None] * 3
            assert [ledger.stated.failed_but_spent for ledger in spent] == [1, 1, 0, 0, 0]
            assert [ledger.entries[0].cohort for ledger in spent] == [None] * 5

            # all five again: two of them are resent, and the round has proven that to everybody
            assert all(one.counted == 1 for one in await upload(clients))
            ledgers = [ledger_of(client) for client in clients]
            (record,) = [record for record in at.service.store.rounds() if record.outcome == "released"]
            booked = [at.service.store.device_totals(ledger.device) for ledger in ledgers]
        for ledger, before in zip(ledgers, spent, strict=True):
            (entry,) = ledger.entries
            assert (entry.outcome, entry.round, entry.cohort) == ("counted", record.round_id, Cohort(5, 5, 2))
            assert (entry.plan, entry.micro_epsilon) == (PLAN.hash.hex(), PLAN.report_micro_epsilon)
            assert ledger.stated.lifetime_micro_epsilon == before.stated.lifetime_micro_epsilon, "charged once"
        assert [ledger.entries[0].falls_back for ledger in ledgers] == ["resent"] * 2 + [None] * 3
        assert [(1, ledger.stated.lifetime_micro_epsilon) for ledger in ledgers] == booked, "both ledgers agree"
        text = json.dumps([client.export_ledger() for client in clients])
        assert not any(report in text for report in reports)
        assert str(READING) not in text
        assert len({ledger.device for ledger in ledgers}) == 5
        for client in clients:
            client.close()


async def test_a_lost_receipt_leaves_the_device_without_a_size_it_could_trust(tmp_path: Path) -> None:
    # case C01
    with running(tmp_path / "registrar") as registrar:
        async with collector(tmp_path, PLAN) as at:
            clients = await sealed_fleet(at, registrar, tmp_path)

            def lose(step: str) -> None:
                if step == "confirm":
                    raise LeftError

            others = [client.upload() for client in clients[1:]]
            ended = await asyncio.gather(clients[0].upload(before_send=lose), *others, return_exceptions=True)
            assert [type(one) for one in ended] == [LeftError] + [UploadSummary] * 4
            assert (await clients[0].upload()).already_counted == 1
            (entry,) = ledger_of(clients[0]).entries
            assert (entry.outcome, entry.resent, entry.cohort) == ("already_counted", False, None)
            assert entry.falls_back == "unknown_cohort"
            assert [ledger_of(client).entries[0].cohort for client in clients[1:]] == [Cohort(5, 5, 0)] * 4
        for client in clients:
            client.close()
