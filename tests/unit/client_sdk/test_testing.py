"""The fakes for host apps: real noise, ledger and rounds behind an endpoint in memory; nothing of it for a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from client_sdk import ConfigurationError, TelemetryClient
from client_sdk.plan import parse_plan
from client_sdk.report import unpack_vector
from client_sdk.testing import FakeClock, InMemoryCollector, SeededEntropy, collector_of, find, recorded
from tests.registrar import NOWHERE
from tests.unit.client_sdk.device.helpers import DAY_S, DEAD, make_plan, plan_text
from tests.unit.client_sdk.device.test_process import forked

PLAN = make_plan()
ROOT = Path(__file__).resolve().parents[3]


def test_a_report_goes_through_a_real_round_and_comes_out_as_it_was_sealed(tmp_path: Path) -> None:
    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d")
    client.record("cold_start_ms", 812)
    client.flush(seal=True)
    (waiting,) = client.preview().waiting
    assert collector.deliver(client).as_dict() == {"counted": 1, "already_counted": 0, "waiting": 0}
    (report,) = collector.reports
    assert (report.device_id, report.plan_name, report.resent) == (client.device_id, PLAN.name, False)
    assert [e for cells in report.elements.values() for e in cells] == unpack_vector(waiting.report)
    assert {name: len(cells) for name, cells in report.elements.items()} == {"cold_start_ms": 1, "network": 4}
    (entry,) = client.history()
    assert (entry.outcome, entry.digest) == ("counted", waiting.digest)
    assert entry.contributors is not None
    assert entry.contributors >= PLAN.cohort.min_size
    assert client.spent().lifetime == Decimal(2)


def test_totals_and_estimates_add_up_over_clients_and_periods(tmp_path: Path) -> None:
    clock = FakeClock()
    plan = parse_plan(PLAN.text.replace("epsilon = 1.0", "epsilon = 40"))
    collector = InMemoryCollector(plan, clock=clock, seed="a")
    assert collector.totals() == {"cold_start_ms": (0,), "network": (0, 0, 0, 0)}
    assert collector.estimates()["network"].values == (None,) * 4
    clients = [collector.client(tmp_path / str(number)) for number in range(3)]
    for _ in range(2):
        for number, client in enumerate(clients):
            client.record("cold_start_ms", 2000 + 500 * number)
            client.record("network", "cellular")
            collector.deliver(client)
        clock.advance(DAY_S)
    assert len(collector.reports) == 6
    assert collector.totals()["cold_start_ms"] == (sum(r.elements["cold_start_ms"][0] for r in collector.reports),)
    estimates = collector.estimates()
    mean, error = estimates["cold_start_ms"].values[0], estimates["cold_start_ms"].standard_errors[0]
    assert mean is not None
    assert error is not None
    assert abs(mean - 2500) < 6 * error
    assert [round(count or 0) for count in estimates["network"].values] == [0, 6, 0, 0]


def test_noise_repeats_with_its_seed_and_only_then(tmp_path: Path) -> None:
    # case B02: two clients and two metrics of one seed are unrelated
    def sums(seed: int | None, folder: Path) -> list[tuple[int, ...]]:
        collector = InMemoryCollector(PLAN, seed=seed)
        for number in range(2):
            collector.deliver(collector.client(folder / str(number)))
        return [tuple(e for cells in r.elements.values() for e in cells) for r in collector.reports]

    first = sums(1, tmp_path / "a")
    assert first == sums(1, tmp_path / "b")
    assert first[0] != first[1], "each client has a stream of its own"
    others = [sums(seed, tmp_path / str(n)) for n, seed in enumerate((2, None, None))]
    assert len({tuple(found) for found in (first, *others)}) == 4


def test_seeded_bytes_are_one_stream_and_a_child_leaves_it() -> None:
    # case B01
    one, other = SeededEntropy(7), SeededEntropy(7)
    assert [one(n) for n in (5, 64, 1)] == [other(n) for n in (5, 64, 1)]
    assert len(one(33)) == 33
    assert one(0) == b""
    assert SeededEntropy(7, stream=1)(32) != SeededEntropy(7)(32)
    assert "7" not in repr(one)
    expected = other(32)

    def differs() -> None:
        assert one(32) != expected

    other = SeededEntropy(7)
    one = SeededEntropy(7)
    expected = other(32)
    assert forked(differs) == 0
    assert one(32) == expected


def test_a_real_client_cannot_have_seeded_noise(tmp_path: Path) -> None:
    # case B02
    for endpoint, parts in (
        (DEAD, {"_entropy": SeededEntropy(1)}),
        (DEAD, {"_transport": InMemoryCollector(PLAN)}),
        ("memory:nobody", {}),
        ("memory:nobody", {"_entropy": SeededEntropy(1)}),
    ):
        with pytest.raises(ConfigurationError):
            TelemetryClient(
                endpoint,
                consent=True,
                plan=PLAN,
                data_dir=tmp_path / "d",
                insecure=True,
                **parts,  # type: ignore[arg-type]
            )
    real = TelemetryClient(
        DEAD, consent=True, plan=PLAN, data_dir=tmp_path / "r", insecure=True, background=False, **NOWHERE
    )
    assert real._engine._entropy is os.urandom
    with pytest.raises(ConfigurationError, match="no in-memory collector"):
        collector_of(real)
    with pytest.raises(ConfigurationError, match="no in-memory collector"):
        recorded(real)


def test_without_the_test_module_an_endpoint_in_memory_is_refused(tmp_path: Path) -> None:
    code = f"""
from client_sdk import ConfigurationError, TelemetryClient
import sys
try:
    TelemetryClient("memory:1", consent=True, data_dir={str(tmp_path / "d")!r})
except ConfigurationError as error:
    print(error, "client_sdk.testing" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "for tests" in done.stdout
    assert done.stdout.strip().endswith("False")
    assert not (tmp_path / "d").exists()


def test_an_app_of_ones_own_needs_only_the_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = InMemoryCollector(PLAN)
    monkeypatch.setenv("LDP_TELEMETRY_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("LDP_TELEMETRY_DATA_DIR", str(tmp_path / "d"))
    with TelemetryClient(consent=True, plan=PLAN, enrolment_token="one") as client:  # with its background thread
        client.record("network", "wifi")
        assert recorded(client) == {"cold_start_ms": 2500.0, "network": "wifi"}, "the middle, without a reading"
        assert client.flush(seal=True, timeout_s=60)
        with pytest.raises(ConfigurationError, match="period_sealed"):
            recorded(client)
        assert collector_of(client) is collector
    assert len(collector.reports) == 1
    assert client.counters() == {"enrolled": 1, "sealed": 1, "counted": 1}


async def test_it_works_inside_a_running_loop_and_fetches_a_plan(tmp_path: Path) -> None:
    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d", plan=None, min_cohort=3)
    await client.upload()
    client.record("network", "wifi")
    assert collector.deliver(client).counted == 1
    assert client.spent().report == Decimal(2)


def test_an_outage_can_be_played(tmp_path: Path) -> None:
    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d")
    collector.reachable = False
    assert collector.deliver(client).failed == {"rpc_unavailable": 1}
    collector.reachable = True
    assert collector.deliver(client).counted == 1
    assert len(collector.reports) == 1


SAMPLED = """
[plan]
name = "sampled"
version = 1
period = "1d"
sample_metrics = 1
[cohort]
min_size = 3
target_size = 10
[budget]
lifetime = 1000
[metrics.load]
kind = "numeric"
optional = true
lower = 0
upper = 100
epsilon = 40
[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular"]
epsilon = 40
mechanism = "optimized_unary"
"""


def test_a_sampled_plan_counts_each_metric_by_itself(tmp_path: Path) -> None:
    clock = FakeClock()
    plan = parse_plan(SAMPLED)
    collector = InMemoryCollector(plan, clock=clock, seed="sampled")
    client = collector.client(tmp_path / "d")
    assert recorded(client) == {"load": None, "network": "wifi"}
    shown = client.preview().unsealed[0]
    assert (shown.sample_metrics, shown.length, shown.epsilon) == (1, 6, Decimal(40))
    assert [metric.elements for metric in shown.metrics] == [3, 3]
    assert len(shown.example) == plan.length
    assert sorted(metric.example[-1] for metric in shown.metrics) == [0, 1], "the one that the example holds"
    assert "holds 1 of 2 metrics" in client.preview().as_text()
    for _ in range(16):
        client.record("load", 60)
        client.record("network", "cellular")
        assert collector.deliver(client).counted == 1
        clock.advance(DAY_S)
    held = [list(report.elements) for report in collector.reports]
    assert {tuple(names) for names in held} == {("load",), ("network",)}
    assert client.spent().lifetime == Decimal(16 * 40), "what one costs, whichever was drawn"
    of_load, of_network = (held.count([name]) for name in ("load", "network"))
    estimates = collector.estimates()
    assert (estimates["load"].contributors, estimates["network"].contributors) == (of_load, of_network)
    assert estimates["load"].values[1] == pytest.approx(of_load, abs=0.1)
    mean, error = estimates["load"].values[0], estimates["load"].standard_errors[0]
    assert mean is not None
    assert error is not None
    assert abs(mean - 60) < 6 * error
    assert collector.totals()["load"][1] == of_load, "each held a reading"


def test_what_a_collector_refuses_is_refused_here(tmp_path: Path) -> None:
    clock = FakeClock()
    collector = InMemoryCollector(PLAN, clock=clock)
    client = collector.client(tmp_path / "d", clock=FakeClock(clock.now + DAY_S))
    assert client.flush(seal=True) is False
    (reason,) = collector.deliver(client).failed
    assert reason == "rpc_failed_precondition"
    assert collector.reports == []
    clock.advance(DAY_S)
    assert collector.deliver(client).counted == 1


def test_a_report_that_is_counted_already_is_said_to_be(tmp_path: Path) -> None:
    import sqlite3

    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d")
    client.flush(seal=True)
    db = sqlite3.connect(tmp_path / "d" / "device.db")
    db.execute("CREATE TEMP TABLE kept AS SELECT * FROM spool")
    db.commit()
    assert collector.deliver(client).counted == 1
    db.execute("UPDATE kept SET hand_overs = 1")
    db.execute("INSERT INTO spool SELECT * FROM kept")  # as if the receipt had been lost
    db.commit()
    db.close()
    assert collector.deliver(client).already_counted == 1
    assert len(collector.reports) == 1


def test_a_devices_floor_for_the_cohort_is_met(tmp_path: Path) -> None:
    collector = InMemoryCollector(PLAN)
    client = collector.client(tmp_path / "d", min_cohort=12)
    assert collector.deliver(client).counted == 1
    assert (client.history()[0].contributors or 0) >= 12


def test_a_collector_that_nobody_holds_is_gone() -> None:
    import gc

    collector = InMemoryCollector(PLAN)
    endpoint = collector.endpoint
    assert find(endpoint) is collector
    del collector
    gc.collect()
    assert find(endpoint) is None


def test_a_fake_clock_ends_periods(tmp_path: Path) -> None:
    clock = FakeClock()
    collector = InMemoryCollector(PLAN, clock=clock)
    client = collector.client(tmp_path / "d")
    client.record("cold_start_ms", 1)
    clock.advance(DAY_S)
    assert collector.deliver(client, seal=False).counted == 1
    assert clock() > 0
    assert time.time() != clock()


def test_the_fixture_in_a_hosts_own_tests(tmp_path: Path) -> None:
    """The docstring's example, run as its reader would."""
    (tmp_path / "plan.toml").write_text(plan_text())
    (tmp_path / "conftest.py").write_text(
        """
import pytest
from client_sdk.testing import telemetry_client  # noqa: F401 - a fixture

@pytest.fixture
def telemetry_plan():
    return "plan.toml"
"""
    )
    (tmp_path / "test_app.py").write_text(
        """
from client_sdk.testing import collector_of, recorded

def start(client):
    client.record("cold_start_ms", 812)
    client.record("network", "wifi")

def test_the_start_is_measured(telemetry_client):
    start(telemetry_client)
    assert recorded(telemetry_client) == {"cold_start_ms": 812.0, "network": "wifi"}
    collector = collector_of(telemetry_client)
    assert collector.deliver(telemetry_client).counted == 1
    assert collector.reports[0].elements.keys() == {"cold_start_ms", "network"}

def test_each_test_has_its_own(telemetry_client):
    assert collector_of(telemetry_client).reports == []
    assert telemetry_client.counters() == {}
"""
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_pytest_is_not_needed_without_the_fixture() -> None:
    code = "import sys, client_sdk.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"
