"""A device's certificate: enrolled for, renewed in time, never waited for while it holds, the right one kept."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from client_sdk import TelemetryClient
from client_sdk import certificate as certificates
from client_sdk.certificate import Role
from client_sdk.device.interfaces import CallFailedError
from client_sdk.device.storage import DeviceStore
from client_sdk.identity import IdentityKey
from client_sdk.secagg.messages import ComeBack
from client_sdk.testing import FakeClock, InMemoryCollector
from client_sdk.wire.messages import EnrolResponse, RenewResponse
from tests.fleet import certified
from tests.registrar import DAY_S, KEY, certificate_of, running
from tests.unit.client_sdk.device.helpers import DEAD, certify, make_client, make_plan, undo_migrations
from tests.unit.client_sdk.device.small_collector import SmallCollector
from tests.unit.client_sdk.device.test_rounds import Fleet

PLAN = make_plan()


def identity_of(client: TelemetryClient) -> IdentityKey:
    return IdentityKey(client._engine.access.store().identity())


def kept(client: TelemetryClient) -> certificates.Certificate:
    found = client._engine.access.store().certificate()
    assert found is not None
    return certificates.check(found, KEY, identity_of(client).public_key, Role.DEVICE, 0)


def counted(client: TelemetryClient, *names: str) -> dict[str, int]:
    """What it counted about its identity."""
    counters = client.counters()
    words = ("enrol", "not_enrolled", "renew", "certificate", "registrar_")
    return {name: count for name, count in counters.items() if name.startswith(words)}


async def upload(client: TelemetryClient) -> dict[str, int]:
    client.flush(seal=True)
    return (await client.upload()).failed


# --- enrolling ----------------------------------------------------------------------------------------


async def test_a_token_is_used_once_and_the_certificate_kept(tmp_path: Path) -> None:
    clock = FakeClock()
    with running(tmp_path / "registrar", clock) as registrar:
        token = registrar.token()
        client = make_client(tmp_path / "d", clock=clock, enrolment_token=token, **registrar.settings)
        assert await upload(client) == {"rpc_unavailable": 1}, "then there is no collector"
        assert kept(client).expires_at == clock() + 30 * DAY_S
        assert client._engine.connections.delivery().enrolment.token is None
        client.close()
        again = make_client(tmp_path / "d", clock=clock, enrolment_token=None, **registrar.settings)
        await again.upload()
        assert registrar.counts["enrolled"] == 1
        assert counted(again) == {"enrolled": 1}
        for path in (tmp_path / "d").iterdir():
            assert token.encode() not in path.read_bytes()


async def test_a_refused_token_is_forgotten_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    with running(tmp_path / "registrar", clock) as registrar, caplog.at_level(logging.WARNING):
        client = make_client(tmp_path / "d", clock=clock, enrolment_token="made-up", **registrar.settings)
        assert await upload(client) == {"enrolment_refused": 1}
        for _ in range(3):
            assert (await client.upload()).failed == {"not_enrolled": 1}
        assert counted(client) == {"enrolment_refused": 1, "not_enrolled": 3}
        assert registrar.counts["rejections.bad_token"] == 1, "no repeat can help"
        said = [record.getMessage() for record in caplog.records if record.name == "ldp_telemetry"]
        assert len(said) == 1
        assert "refused the enrolment token" in said[0]
        assert "made-up" not in caplog.text
        assert client._engine.access.store().waiting() == 1, "the report waits"


class Away:
    """The way to a registrar that is not there."""

    def connect(self) -> Any:
        raise CallFailedError("unavailable")


async def test_a_refused_token_is_said_also_where_something_else_was_wrong_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    with running(tmp_path / "registrar", clock) as registrar, caplog.at_level(logging.WARNING):
        client = make_client(tmp_path / "d", clock=clock, enrolment_token="made-up", **registrar.settings)
        enrolment = client._engine.connections.delivery().enrolment
        there, enrolment.registrar = enrolment.registrar, Away()
        assert await upload(client) == {"registrar_unavailable": 1}
        enrolment.registrar = there
        for reason in ("enrolment_refused", "not_enrolled", "not_enrolled"):
            assert (await client.upload()).failed == {reason: 1}
        said = [record.getMessage() for record in caplog.records if record.name == "ldp_telemetry"]
        assert ["refused the enrolment token" in line for line in said] == [False, True], said
        assert "made-up" not in caplog.text


async def test_a_registrar_out_of_reach_is_asked_again(tmp_path: Path) -> None:
    clock = FakeClock()
    client = make_client(tmp_path / "d", clock=clock, registrar=DEAD)
    assert await upload(client) == {"registrar_unavailable": 1}
    assert client._engine.connections.delivery().enrolment.token is not None
    client.close()
    with running(tmp_path / "registrar", clock) as registrar:
        client = make_client(tmp_path / "d", clock=clock, enrolment_token=registrar.token(), **registrar.settings)
        assert (await client.upload()).failed == {"rpc_unavailable": 1}
        assert counted(client) == {"registrar_unavailable": 1, "enrolled": 1}


class LyingRegistrar(InMemoryCollector):
    """Gives out what it is told to."""

    answer: Any = None

    def certify(self, identity_key: bytes) -> bytes:
        return self.answer(self, identity_key)


@pytest.mark.parametrize(
    "answer",
    [
        lambda self, key: certified(key, issued_at=0, expires_at=2**33),
        lambda self, key: InMemoryCollector.certify(self, IdentityKey(bytes(32)).public_key),
        lambda self, key: certified(key, role=Role.OPERATOR, issued_at=0, expires_at=2**33, registrar=self._registrar),
    ],
    ids=["another registrar's", "another device's", "another role"],
)
def test_only_the_pinned_registrars_word_for_this_device_is_kept(tmp_path: Path, answer: Any) -> None:
    collector = LyingRegistrar(PLAN)
    collector.answer = answer
    client = collector.client(tmp_path / "d")
    assert collector.deliver(client).failed == {"registrar_bad_answer": 1}
    assert client._engine.access.store().certificate() is None
    assert collector.reports == []


def test_an_expiry_that_the_certificate_does_not_say_is_refused(tmp_path: Path) -> None:
    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("client_sdk.testing.EnrolResponse", lambda certificate, at: EnrolResponse(certificate, at + 1))
        assert collector.deliver(client).failed == {"registrar_bad_answer": 1}
    assert client._engine.access.store().certificate() is None


# --- renewing -----------------------------------------------------------------------------------------


def fleet_of(tmp_path: Path, collector: SmallCollector, *, days: float, age_days: float, **settings: Any) -> Fleet:
    """Five devices whose certificates hold for `days` and are `age_days` old."""
    fleet = Fleet(tmp_path, collector, 5)
    for client in fleet.clients:
        for name, value in settings.items():
            setattr(client._engine.settings, name, value)
        store, now = client._engine.access.store(), client._engine.clock()
        shown = certificate_of(identity_of(client), now - age_days * DAY_S, days=days)
        store.keep_certificate(shown, "test", now)
    return fleet


@pytest.mark.parametrize(("age_days", "renewed"), [(19.9, 0), (20.1, 5)])
async def test_renewed_in_the_last_third_after_the_reports_have_left(
    tmp_path: Path, age_days: float, renewed: int
) -> None:
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = fleet_of(tmp_path, collector, days=30, age_days=age_days)
        summaries = await fleet.upload()
        assert [s.counted for s in summaries if not isinstance(s, BaseException)] == [1] * 5
        assert len(collector.renewed) == renewed
        for client in fleet.clients:
            fresh = kept(client).issued_at > time.time() - DAY_S
            assert (fresh, client.counters().get("renewed", 0)) == (renewed > 0, int(renewed > 0))


async def test_while_a_certificate_holds_nobody_waits_for_the_registrar(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = fleet_of(tmp_path, collector, days=30, age_days=25, registrar=DEAD)
        summaries = await fleet.upload()
        assert [s.as_dict() for s in summaries if not isinstance(s, BaseException)] == [
            {"counted": 1, "already_counted": 0, "waiting": 0}
        ] * 5
        assert all(counted(client) == {"registrar_unavailable": 1} for client in fleet.clients)
        for client in fleet.clients:
            assert kept(client).expires_at > time.time(), "what it had it still has"


async def test_a_registrar_that_did_not_answer_is_not_asked_with_every_upload(tmp_path: Path) -> None:
    clock = FakeClock()
    client = make_client(tmp_path / "d", clock=clock, registrar=DEAD)
    certify(client, days=30)
    clock.advance(21 * DAY_S)
    await upload(client)
    assert counted(client)["registrar_unavailable"] == 1
    await client.upload()
    assert counted(client)["registrar_unavailable"] == 1
    clock.advance(3601)
    await client.upload()
    assert counted(client)["registrar_unavailable"] == 2


async def test_an_expired_certificate_is_renewed_first(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = fleet_of(tmp_path, collector, days=30, age_days=60)
        summaries = await fleet.upload()
        assert [s.counted for s in summaries if not isinstance(s, BaseException)] == [1] * 5
        assert len(collector.renewed) == 5


async def test_expired_and_the_registrar_out_of_reach_or_unwilling(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SmallCollector(PLAN, cohort_size=5) as collector:
        collector.renews = False
        away = fleet_of(tmp_path / "a", collector, days=30, age_days=60, registrar=DEAD).clients[0]
        out = fleet_of(tmp_path / "o", collector, days=30, age_days=60, enrolment_token=None).clients[0]
        for client, word in ((away, "tried again later"), (out, "a new enrolment_token is needed")):
            caplog.clear()
            assert (await client.upload()).failed == {"certificate_expired": 1}
            assert word in caplog.text
            assert client._engine.access.store().waiting() == 1
        assert collector.adverts == [], "nobody is shown an expired one"
        again = fleet_of(tmp_path / "t", collector, days=30, age_days=60).clients[0]
        collector.come_back = ComeBack(int(time.time()) + 60, 1)  # nobody else is there
        await again.upload()
        assert counted(again)["enrolled"] == 1, "a token at hand makes a new start with the same identity"


async def test_a_collector_that_does_not_accept_it_makes_the_device_ask_for_another(tmp_path: Path) -> None:
    """This device's clock is behind: it thinks that its certificate still holds."""
    with SmallCollector(PLAN, cohort_size=5) as collector:
        fleet = fleet_of(tmp_path, collector, days=30, age_days=1)
        collector.clock = lambda: time.time() + 5 * DAY_S
        for client in fleet.clients:  # ends in four days
            store = client._engine.access.store()
            store.keep_certificate(certificate_of(identity_of(client), time.time(), days=4), "test", 0)
        summaries = await fleet.upload()
        assert [s.failed for s in summaries if not isinstance(s, BaseException)] == [{"rpc_unauthenticated": 1}] * 5
        assert len(collector.renewed) == 5, "long before its last third"
        summaries = await fleet.upload()
        assert [s.counted for s in summaries if not isinstance(s, BaseException)] == [1] * 5
        assert len(collector.renewed) == 5


async def test_no_collector_can_make_a_device_ask_all_the_time(tmp_path: Path) -> None:
    with SmallCollector(PLAN, cohort_size=1) as collector:
        client = fleet_of(tmp_path, collector, days=30, age_days=1).clients[0]
        with pytest.MonkeyPatch.context() as patch:  # whatever it is shown, it finds fault with
            patch.setattr("tests.unit.client_sdk.device.small_collector.KEY", bytes(32))
            for _ in range(5):
                assert (await client.upload()).failed == {"rpc_unauthenticated": 1}
        assert len(collector.renewed) == 1


def test_renewal_answers_are_checked_too(tmp_path: Path) -> None:
    clock = FakeClock()
    collector = InMemoryCollector(PLAN, clock=clock)
    client = collector.client(tmp_path / "d")
    assert collector.deliver(client).counted == 1
    before = client._engine.access.store().certificate()
    clock.advance(25 * DAY_S)
    client.record("cold_start_ms", 1)
    with pytest.MonkeyPatch.context() as patch:
        stranger = certified(identity_of(client).public_key, issued_at=int(clock()), expires_at=2**33)
        patch.setattr("client_sdk.testing.RenewResponse", lambda *_: RenewResponse(stranger, 2**33))
        collector.deliver(client)
    assert client._engine.access.store().certificate() == before
    assert client.counters()["registrar_bad_answer"] == 1


def test_a_year_of_renewals(tmp_path: Path) -> None:
    clock = FakeClock()
    collector = InMemoryCollector(make_plan(rolling_24h="1000", lifetime="100000"), clock=clock)
    client = collector.client(tmp_path / "d")
    for _ in range(60):
        assert collector.deliver(client).failed == {}
        clock.advance(6 * DAY_S)
    assert client.counters()["enrolled"] == 1
    assert 12 <= client.counters()["renewed"] <= 18
    clock.advance(80 * DAY_S)  # expired, in a drawer
    client.record("cold_start_ms", 1)
    assert collector.deliver(client).failed == {}


# --- the store ----------------------------------------------------------------------------------------


def test_a_store_of_the_first_version_comes_along(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    store = DeviceStore(str(folder))
    seed = store.identity()
    with sqlite3.connect(store.path, isolation_level=None) as db:
        undo_migrations(db, 1)
    db.close()
    again = DeviceStore(str(folder))
    assert (again.identity(), again.certificate(), again.damage()) == (seed, None, None)
    again.keep_certificate(b"c" * 114, "enrolled", 1.0)
    assert again.certificate() == b"c" * 114
    assert again.counters() == {"enrolled": 1}
