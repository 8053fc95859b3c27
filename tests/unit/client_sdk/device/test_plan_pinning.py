"""Which plan a device goes over to: pins, later versions, and every refusal by its name."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk import ConfigurationError, TelemetryClient
from client_sdk.device import plan_choice
from client_sdk.device.pinning import Held, PlanPin, check_fetched, in_force
from client_sdk.device.storage import DeviceStore
from client_sdk.errors import PlanRefusedError, RefusalReason
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.plan.signature import sign_plan
from tests import registrar
from tests.unit.client_sdk.device.helpers import DAY_S, NOW, Clock, make_client, make_plan, soon
from tests.unit.client_sdk.device.small_collector import SmallCollector

OPERATOR = IdentityKey(bytes(range(32)))
KEY = OPERATOR.public_key
FIRST = make_plan()


def signed(plan: Plan) -> bytes:
    return sign_plan(OPERATOR, plan).signature


def fetching(folder: Path, collector: SmallCollector, **changes: Any) -> TelemetryClient:
    """A client that ships no plan, and is content with the small cohorts of these tests."""
    settings: dict[str, Any] = {"consent": True, "insecure": True, "background": False, "clock": Clock()}
    settings |= {"min_cohort": 3}
    settings |= {"registrar": collector.endpoint, "registrar_key": registrar.KEY, "enrolment_token": "any"}
    return TelemetryClient(collector.endpoint, data_dir=folder, **(settings | changes))


def upload(client: TelemetryClient) -> None:
    asyncio.run(client.upload())


def held_by(client: TelemetryClient) -> str | None:
    plan = client._engine.recorder.plan
    return None if plan is None else plan.hash.hex()


def refused(client: TelemetryClient, reason: RefusalReason) -> int:
    return client.counters().get(reason.value, 0)


# --- pins -------------------------------------------------------------------------------------------


def test_without_a_pin_the_collectors_plan_is_believed(tmp_path: Path) -> None:
    with SmallCollector(FIRST, 3) as collector:
        client = fetching(tmp_path / "d", collector)
        assert held_by(client) is None
        upload(client)
        assert held_by(client) == FIRST.hash.hex()
        client.close()


Case = tuple[dict[str, Any], bytes, RefusalReason | None]

PINS: list[Case] = [
    ({"plan_hash": FIRST.hash}, b"", None),
    ({"plan_hash": FIRST.hash.hex().upper()}, b"", None),
    ({"plan_hash": bytes(32)}, b"", RefusalReason.PLAN_NOT_PINNED),
    ({"plan_key": KEY}, signed(FIRST), None),
    ({"plan_key": KEY.hex(), "plan_hash": FIRST.hash}, signed(FIRST), None),
    ({"plan_key": KEY}, b"", RefusalReason.PLAN_SIGNATURE),
    ({"plan_key": KEY}, bytes(64), RefusalReason.PLAN_SIGNATURE),
    ({"plan_key": KEY}, signed(make_plan(version=2)), RefusalReason.PLAN_SIGNATURE),
    ({"plan_key": IdentityKey(bytes(32)).public_key}, signed(FIRST), RefusalReason.PLAN_SIGNATURE),
    ({"plan_key": KEY, "plan_hash": bytes(32)}, signed(FIRST), RefusalReason.PLAN_NOT_PINNED),
]


def test_flush_waits_for_the_plan_and_says_when_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_choice, "FIRST_RETRY_S", 0.2)
    with SmallCollector(FIRST, 3) as collector:
        port = collector.port
    settings: dict[str, Any] = {"background": True, "clock": time.time}
    late = SmallCollector(FIRST, 3, port=port)
    with fetching(tmp_path / "d", collector, **settings) as client:
        client.record("cold_start_ms", 1)
        started = time.monotonic()
        assert not client.flush(seal=True, timeout_s=1), "true would say that nothing is left to do"
        assert time.monotonic() - started < 5
        starting = threading.Timer(0.5, late.__enter__)
        starting.start()
        assert client.flush(seal=True, timeout_s=60), "the collector was just starting"
        starting.join()
        assert held_by(client) == FIRST.hash.hex()
        client.record("cold_start_ms", 1)
        counters = client.counters()
        assert counters["no_plan"] == 1
        assert "sealed" not in counters
        assert "period_sealed" not in counters, "the period that the plan began goes on"
        assert client.flush(timeout_s=60)
    with fetching(tmp_path / "e", late, plan_hash=bytes(32), **settings) as client:
        assert soon(lambda: refused(client, RefusalReason.PLAN_NOT_PINNED) == 1), "the thread has asked by itself"
        started = time.monotonic()
        assert not client.flush(timeout_s=60)
        assert time.monotonic() - started < 30, "a collector that has answered is not asked again for an hour"
        assert refused(client, RefusalReason.PLAN_NOT_PINNED) == 2, "flush() has asked once more, at once"
    late.__exit__()


@pytest.mark.parametrize(("pin", "signature", "reason"), PINS)
def test_a_fetched_plan_is_held_to_its_pin(
    tmp_path: Path,
    pin: dict[str, Any],
    signature: bytes,
    reason: RefusalReason | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SmallCollector(FIRST, 3, plan_signature=signature) as collector:
        client = fetching(tmp_path / "d", collector, **pin)
        with caplog.at_level(logging.WARNING, "ldp_telemetry"):
            upload(client)
            client.record("cold_start_ms", 1)
        if reason is None:
            assert held_by(client) == FIRST.hash.hex()
            assert caplog.records == []
        else:
            assert held_by(client) is None
            assert refused(client, reason) == 1
            assert client.counters()["no_plan"] == 1
            assert [reason.value in record.getMessage() for record in caplog.records] == [True], "one warning"
        client.close()


def test_a_pin_of_the_apps_next_release_counts_for_what_was_fetched_before(tmp_path: Path) -> None:
    with SmallCollector(FIRST, 3) as collector:
        before = fetching(tmp_path / "d", collector)
        upload(before)
        before.close()
        other = fetching(tmp_path / "d", collector, plan_hash=make_plan(version=2).hash)
        assert held_by(other) is None
        assert refused(other, RefusalReason.PLAN_NOT_PINNED) == 1
        other.close()
        same = fetching(tmp_path / "d", collector, plan_hash=FIRST.hash)
        assert held_by(same) == FIRST.hash.hex(), "no call is needed"
        same.close()
        keyed = fetching(tmp_path / "d", collector, plan_key=KEY)
        assert held_by(keyed) is None, "it came without a signature"
        collector.plan_signature = signed(FIRST)
        upload(keyed)
        assert held_by(keyed) == FIRST.hash.hex()
        keyed.close()


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"plan_hash": "ab"}, "plan_hash"),
        ({"plan_hash": 64 * "g"}, "plan_hash"),
        ({"plan_hash": bytes(31)}, "plan_hash"),
        ({"plan_key": bytes(31)}, "plan_key"),
        ({"plan_key": bytes(32)}, "plan_key"),
    ],
)
def test_a_pin_that_cannot_be_is_refused_at_once(tmp_path: Path, setting: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{text}: "):
        TelemetryClient("127.0.0.1:9", data_dir=tmp_path / "d", consent=True, **registrar.NOWHERE, **setting)
    assert not (tmp_path / "d").exists()


# --- later versions ---------------------------------------------------------------------------------


def without_network(version: int, *removed: str) -> Plan:
    text = make_plan(version=version).text
    start = text.index("[metrics.network]")
    listed = f"removed_metrics = {list(removed)}\n" if removed else ""
    return parse_plan(text[:start].replace("[plan]\n", "[plan]\n" + listed))


OFFERS: dict[str, tuple[Callable[[], Plan], RefusalReason | None]] = {
    "the next one": (lambda: make_plan(version=3, epsilon="0.5"), None),
    "lower limits": (lambda: make_plan(version=3, lifetime="10", rolling_24h="4"), None),
    "the same": (lambda: make_plan(version=2), None),
    "another name": (lambda: make_plan(version=3, name="other"), RefusalReason.PLAN_NAME_CHANGED),
    "the same number": (lambda: make_plan(version=2, upper=6000), RefusalReason.PLAN_CHANGED_WITHOUT_VERSION),
    "an earlier one": (lambda: make_plan(version=1), RefusalReason.PLAN_VERSION_BACK),
    "another period": (lambda: make_plan(version=3, period="12h"), RefusalReason.PLAN_PERIOD_CHANGED),
    "a higher lifetime": (lambda: make_plan(version=3, lifetime="366"), RefusalReason.PLAN_LIMITS_RAISED),
    "a higher window": (lambda: make_plan(version=3, rolling_24h="101"), RefusalReason.PLAN_LIMITS_RAISED),
    "a stronger cohort": (lambda: make_plan(version=3, min_size=5, corrupt="0.15", dropout="0.1"), None),
    "a smaller cohort": (lambda: make_plan(version=3, min_size=2), RefusalReason.PLAN_WEAKER),
    "fewer liars": (lambda: make_plan(version=3, corrupt="0.09"), RefusalReason.PLAN_WEAKER),
    "more dropouts": (lambda: make_plan(version=3, dropout="0.25"), RefusalReason.PLAN_WEAKER),
    "a metric is gone": (lambda: without_network(3), RefusalReason.PLAN_NAMES),
    "a metric is listed as gone": (lambda: without_network(3, "network"), None),
}


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("pinned", [False, True], ids=["unsigned", "signed"])
def test_a_later_version_is_held_to_the_one_before(tmp_path: Path, offer: str, pinned: bool) -> None:
    """A good signature does not help a version that breaks its name's history."""
    held, (make, reason) = make_plan(version=2), OFFERS[offer]
    with SmallCollector(held, 3, plan_signature=signed(held)) as collector:
        clock = Clock()
        client = fetching(tmp_path / "d", collector, clock=clock, **({"plan_key": KEY} if pinned else {}))
        upload(client)
        assert held_by(client) == held.hash.hex()
        collector.plan = offered = make()
        collector.plan_signature = signed(offered)
        engine = client._engine
        asyncio.run(engine._fetch_plan(engine.connections.delivery(), engine.access.store()))
        assert held_by(client) == held.hash.hex(), "a version begins with a period"
        clock.now += DAY_S
        client.record("cold_start_ms", 1)
        assert held_by(client) == (offered if reason is None else held).hash.hex()
        refusals = {one: refused(client, one) for one in RefusalReason if one.value.startswith("plan_")}
        assert refusals == {one: int(one is reason) for one in refusals}
        client.close()
        assert DeviceStore(str(tmp_path / "d")).history() == []


def test_a_version_begins_with_the_next_period_after_a_restart_too(tmp_path: Path) -> None:
    clock = Clock()
    with SmallCollector(FIRST, 3) as collector:
        client = fetching(tmp_path / "d", collector, clock=clock)
        upload(client)
        clock.now += 60
        collector.plan = second = make_plan(version=2)
        engine = client._engine
        asyncio.run(engine._fetch_plan(engine.connections.delivery(), engine.access.store()))
        client.close()
        clock.now += DAY_S - 12 * 3600 - 61  # the period's last second
        again = fetching(tmp_path / "d", collector, clock=clock)
        assert held_by(again) == FIRST.hash.hex()
        again.close()
        clock.now += 1
        again = fetching(tmp_path / "d", collector, clock=clock)
        assert held_by(again) == second.hash.hex()
        again.close()


def test_what_is_in_force() -> None:
    one, two = make_plan(), make_plan(version=2)
    start = FIRST.period_start(NOW)
    assert in_force([], NOW) is None
    assert in_force([Held(one, NOW)], NOW) is one, "the first is used at once"
    assert in_force([Held(two, NOW), Held(one, NOW - DAY_S)], NOW) is one
    assert in_force([Held(two, NOW), Held(one, NOW - DAY_S)], start + DAY_S) is two
    assert PlanPin().refusal(one, b"") is None


# --- without a pin: the collector's own word ----------------------------------------------------------

WEAK: dict[str, Callable[[], Plan]] = {
    "two in a sum, nobody lies": lambda: make_plan(min_size=2, target_size=2, corrupt="0", dropout="0", epsilon="5"),
    "nobody lies": lambda: make_plan(target_size=100, corrupt="0"),
    "just below the floor": lambda: make_plan(target_size=100, corrupt="0.049"),
    "cohorts that the device would leave": lambda: make_plan(target_size=62),  # four fifths of it stay: 49.6
}


def choosing(folder: Path, collector: SmallCollector, **changes: Any) -> TelemetryClient:
    """As an app that says nothing about the plan."""
    return fetching(folder, collector, **({"min_cohort": None} | changes))


@pytest.mark.parametrize("lie", WEAK)
def test_a_collector_that_chooses_the_plan_cannot_choose_the_company(
    tmp_path: Path, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan, reason = WEAK[lie](), RefusalReason.PLAN_TOO_WEAK
    with SmallCollector(plan, 2, plan_signature=signed(plan)) as collector:
        client = choosing(tmp_path / "d", collector)
        with caplog.at_level(logging.WARNING, "ldp_telemetry"):
            upload(client)
            client.record("cold_start_ms", 1)
        assert held_by(client) is None
        assert (refused(client, reason), client.counters()["no_plan"]) == (1, 1)
        assert [reason.value in record.getMessage() for record in caplog.records] == [True], "one warning"
        client.close()
        for number, pin in enumerate([{"plan_hash": plan.hash}, {"plan_key": KEY}]):  # the host's word for it
            pinned = choosing(tmp_path / str(number), collector, **pin)
            upload(pinned)
            assert held_by(pinned) == plan.hash.hex()
            pinned.close()


def test_at_the_floor_it_is_taken(tmp_path: Path) -> None:
    plan = make_plan(target_size=63, corrupt="0.05")
    with SmallCollector(plan, 3) as collector:
        client = choosing(tmp_path / "d", collector)
        upload(client)
        assert held_by(client) == plan.hash.hex()
        client.close()


async def test_one_puppet_is_no_company(tmp_path: Path) -> None:
    """The plan allows for sums over two. The collector knows the puppet's report, so the sum would be the victim's."""
    plan = make_plan(min_size=2, target_size=100, dropout="0")
    with SmallCollector(plan, 2, clock=Clock()) as collector:
        victim = choosing(tmp_path / "victim", collector)
        puppet = make_client(tmp_path / "puppet", plan, endpoint=collector.endpoint)
        await victim.upload()
        assert held_by(victim) == plan.hash.hex()
        for client in (victim, puppet):
            client.flush(seal=True)
        summary, _ = await asyncio.gather(victim.upload(), puppet.upload())
        assert summary.failed == {"left_cohort_too_small": 1}
        assert collector.sums == []
        for client in (victim, puppet):
            client.close()


def test_what_was_fetched_under_a_pin_is_looked_at_again_without_it(tmp_path: Path) -> None:
    weak = make_plan(target_size=100, corrupt="0")
    with SmallCollector(weak, 3) as collector:
        pinned = choosing(tmp_path / "d", collector, plan_hash=weak.hash)
        upload(pinned)
        pinned.close()
        client = choosing(tmp_path / "d", collector)
        assert held_by(client) is None
        assert refused(client, RefusalReason.PLAN_TOO_WEAK) == 1
        client.close()


def test_the_strictest_cohort_that_is_held_counts(tmp_path: Path) -> None:
    """The host went over to a weaker version by its hash; without that pin the collector's next is held to both."""
    strict, weaker = make_plan(min_size=5), make_plan(version=2, min_size=3)
    between, reason = make_plan(version=3, min_size=4), RefusalReason.PLAN_WEAKER
    clock = Clock()
    with SmallCollector(strict, 3) as collector:
        for number, pin in enumerate([{}, {"plan_hash": weaker.hash}]):
            collector.plan = (strict, weaker)[number]
            client = fetching(tmp_path / "d", collector, clock=clock, **pin)
            upload(client)
            client.close()
            clock.now += DAY_S
        collector.plan = between
        client = fetching(tmp_path / "d", collector, clock=clock)
        assert held_by(client) == weaker.hash.hex()
        engine = client._engine
        asyncio.run(engine._fetch_plan(engine.connections.delivery(), engine.access.store()))
        assert refused(client, reason) == 1
        client.close()


def test_every_version_that_is_held_keeps_its_names() -> None:
    """A version between has forgotten what was gone; the newest alone would let the name come back."""
    first, forgot, back = without_network(1, "network"), without_network(2), make_plan(version=3)
    check_fetched(back, b"", PlanPin(), [Held(forgot, 1.0)])
    with pytest.raises(PlanRefusedError) as caught:
        check_fetched(back, b"", PlanPin(), [Held(forgot, 1.0), Held(first, 0.0)])
    assert caught.value.reason is RefusalReason.PLAN_NAMES
    other = parse_plan(first.text.replace("app-health", "another"))
    check_fetched(back, b"", PlanPin(), [Held(forgot, 1.0), Held(other, 0.0)])


# --- a plan that the app ships ----------------------------------------------------------------------


def test_a_release_that_changes_a_plan_without_its_number_records_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_client(tmp_path / "d", make_plan(version=3))
    first.record("cold_start_ms", 1)
    first.close()
    with caplog.at_level(logging.WARNING, "ldp_telemetry"):
        changed = make_client(tmp_path / "d", make_plan(version=3, upper=6000), clock=Clock(NOW + DAY_S))
    changed.record("cold_start_ms", 1)
    reason = RefusalReason.PLAN_CHANGED_WITHOUT_VERSION
    assert refused(changed, reason) == 2, "once for the plan, once for the reading"
    assert [reason.value in record.getMessage() for record in caplog.records] == [True]
    changed.flush(seal=True)
    assert changed.spent().lifetime == 2
    changed.close()
    new = make_client(tmp_path / "d", make_plan(version=4, upper=6000), clock=Clock(NOW + DAY_S))
    new.close()
    assert make_client(tmp_path / "d", make_plan(version=3)).spent().lifetime == 4


def test_two_processes_with_two_plans_of_one_number(tmp_path: Path) -> None:
    one = make_client(tmp_path / "d", make_plan(version=3))
    two = make_client(tmp_path / "d", make_plan(version=3, upper=6000))  # nothing is sealed yet: both begin
    one.flush(seal=True)
    two._engine.clock.now += DAY_S  # type: ignore[attr-defined]
    two.record("cold_start_ms", 1)
    two.flush(seal=True)
    assert refused(two, RefusalReason.PLAN_CHANGED_WITHOUT_VERSION) == 1
    assert two.spent().lifetime == 2


def test_a_hash_that_is_not_the_shipped_plans_is_the_hosts_mistake(tmp_path: Path) -> None:
    plan = make_plan()
    make_client(tmp_path / "d", plan, plan_hash=plan.hash).close()
    with pytest.raises(ConfigurationError, match=plan.hash.hex()):
        make_client(tmp_path / "e", plan, plan_hash=bytes(32))
    with pytest.raises(ConfigurationError, match=r"^plan_key: for a plan that is fetched"):
        make_client(tmp_path / "e", plan, plan_key=KEY)
