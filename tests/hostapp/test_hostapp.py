"""Seen from outside: host apps that fork, crash and restart against a collector that is killed and restarted.

Real processes, real TLS on loopback, the README's embedding example. What is checked is only what the two kinds of
stores say afterwards: each device's and the collector's.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from client_sdk.device.storage import DeviceStore
from client_sdk.identity import IdentityKey
from client_sdk.plan import parse_plan
from collector.service.storage import CollectorStore
from tests.registrar import KEY_HEX, folder_with_key
from tests.registrar import Running as Registrar
from tests.unit.client_sdk.device.certificates import certificate

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PERIOD_S = 3600
SPEED = 900  # a period takes 4 real seconds, and its uploads begin within the next 0.7
DEVICES = 6
PLAN = parse_plan("""
[plan]
name = "host-app"
version = 1
period = "1h"
max_delay = "7d"
upload_window = "10m"
[cohort]
min_size = 3
target_size = 6
max_wait = "3s"
corrupt_fraction = 0.1
dropout_fraction = 0.2
[budget]
lifetime = 100000
rolling_24h = 100000
[metrics.cold_start_ms]
kind = "numeric"
lower = 0
upper = 5000
epsilon = 1.0
[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular", "offline"]
other = "other"
epsilon = 1.0
""")


@dataclass
class Night:
    """One registrar, one collector, some apps, and the folder that outlives all their processes."""

    folder: Path
    plan_text: str = PLAN.text
    step_timeout: str = "20s"
    apps: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    port: int = 0
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        private, public = certificate("localhost")
        (self.folder / "key.pem").write_bytes(private)
        (self.folder / "cert.pem").write_bytes(public)
        self.url = f"sqlite:///{self.folder / 'collector.db'}"
        tls = {"tls_cert": self.folder / "cert.pem", "tls_key": self.folder / "key.pem"}
        self.registrar = Registrar(
            folder_with_key(self.folder / "registrar"), time.time, {"listen": "localhost:0", "insecure": False} | tls
        )
        self.registrar.start()
        self.tokens = self.registrar.tokens(DEVICES)
        table = f'[registrar]\naddress = "{self.registrar.address}"\nkey = "{KEY_HEX}"\n'
        (self.folder / "plan.toml").write_text(self.plan_text + table)
        self.at = time.time()
        self.now = self.at - 5 * 86_400  # their days run fast, and end before today
        self.start_collector()

    # --- the collector ----------------------------------------------------------------------------------

    def start_collector(self) -> None:
        command = [sys.executable, "-m", "collector.service", "serve", "--plan", self.folder / "plan.toml"]
        command += [
            "--db",
            self.url,
            "--registrar-key",
            KEY_HEX,
            "--listen",
            f"localhost:{self.port}",
            "--step-timeout",
            self.step_timeout,
        ]
        command += ["--tls-cert", self.folder / "cert.pem", "--tls-key", self.folder / "key.pem"]
        with (self.folder / "collector.log").open("a") as log:
            self.collector = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
        assert self.collector.stdout is not None
        line = self.collector.stdout.readline()
        assert line.startswith("listening on "), (self.folder / "collector.log").read_text()
        self.port = int(line.rpartition(":")[2])

    def kill_collector(self) -> None:
        self.collector.kill()
        self.collector.communicate()
        self.happened["collector killed"] += 1

    # --- the apps ---------------------------------------------------------------------------------------

    def data_dir(self, number: int) -> Path:
        return self.folder / f"device-{number}"

    def start_app(self, number: int, *options: str) -> None:
        clock = (f"--now={self.now}", f"--at={self.at}", f"--speed={SPEED}")
        places = (f"localhost:{self.port}", self.folder / "plan.toml", self.data_dir(number), self.tokens[number])
        with (self.folder / f"app-{number}.log").open("a") as log:
            self.apps[number] = subprocess.Popen(
                [sys.executable, "-m", "tests.hostapp.app", *places, *clock, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ | {"LDP_TELEMETRY_CA_FILE": str(self.folder / "cert.pem")},
            )
        stdout = self.apps[number].stdout
        assert stdout is not None
        assert stdout.readline() == "ready\n", self.log(number)

    def log(self, number: int) -> str:
        return (self.folder / f"app-{number}.log").read_text()

    def crash_app(self, number: int) -> None:
        self.apps[number].kill()
        self.apps[number].communicate()
        self.happened["app crashed"] += 1

    def end_apps(self) -> None:
        for app in self.apps.values():
            app.terminate()
        for number, app in self.apps.items():
            app.communicate(timeout=60)
            assert app.returncode == 0, self.log(number)

    def end(self) -> None:
        for process in (*self.apps.values(), self.collector):
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.registrar.stop()


def play(night: Night, rng: random.Random, seconds: float) -> None:
    """Crash and restart one or the other until the time is over, and enough has happened on a busy machine too."""
    for number in range(DEVICES):
        night.start_app(number)
    over, next_kill = time.monotonic() + seconds, time.monotonic() + seconds / 4
    while (
        time.monotonic() < over or night.happened["app crashed"] < seconds / 4 or night.happened["collector killed"] < 2
    ):
        time.sleep(rng.uniform(0.1, 1.2))
        number = rng.randrange(DEVICES)
        night.crash_app(number)
        night.start_app(number)
        if time.monotonic() >= next_kill:
            next_kill += seconds / 4
            night.kill_collector()
            time.sleep(rng.uniform(0, 0.5))
            night.start_collector()
    night.end_apps()


def drain(night: Night, seconds: float) -> None:
    """Everybody sends what waits; what no cohort comes together for stays."""
    for number in range(DEVICES):
        night.start_app(number, f"--drain={seconds}")
    for app in night.apps.values():
        assert app.stdin is not None
        app.stdin.write("go\n")
        app.stdin.flush()
    for number, app in night.apps.items():
        app.communicate(timeout=seconds + 60)
        assert app.returncode == 0, night.log(number)


def rows(folder: Path, statement: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(folder / "device.db")
    try:
        return db.execute(statement).fetchall()
    finally:
        db.close()


def check_device(night: Night, number: int, store: CollectorStore) -> Counter[str]:
    """One device's store against what the collector says of it."""
    folder = night.data_dir(number)
    device = DeviceStore(str(folder))
    device_id = IdentityKey(device.identity()).device_id
    assert device.damage() is None, "neither crash nor kill is damage"
    charged = {period for (period,) in rows(folder, "SELECT period_start FROM ledger")}
    waiting = [period for (period,) in rows(folder, "SELECT period_start FROM spool")]
    done = [period for (period,) in rows(folder, "SELECT period_start FROM log")]
    outcomes = Counter(str(outcome) for (outcome,) in rows(folder, "SELECT outcome FROM log"))
    counted = [contribution.period_start for contribution in store.contributions(device_id)]
    assert len(set(counted)) == len(counted), "each report at most once at the collector"
    assert set(waiting) | set(done) == charged, "nothing charged is lost"
    assert not set(waiting) & set(done)
    assert set(outcomes) <= {"counted", "already_counted"}, "and nothing given up"
    assert set(done) <= set(counted), "acknowledged means stored"
    assert set(counted) <= charged, "nothing left the device uncharged"
    assert set(counted) - set(done) <= set(waiting), "a lost receipt leaves the report here, to be told again"
    ledger_micro = len(charged) * PLAN.report_micro_epsilon
    (held,) = rows(folder, "SELECT sum(micro_epsilon) FROM ledger")
    assert held == (ledger_micro,), "charged once each"
    reports, collector_micro = store.device_totals(device_id)
    assert (reports, collector_micro) == (len(counted), len(counted) * PLAN.report_micro_epsilon)
    assert collector_micro <= ledger_micro
    return outcomes + Counter(charged=len(charged), waiting=len(waiting), at_collector=len(counted))


def check_sums(store: CollectorStore) -> int:
    """Each report is one-hot in `network`: a sum that holds a report twice, or half, would not add up. Rounds seen."""
    sums = store.released_sums(metric="network")
    assert all(sum(released.totals) == released.contributors for released in sums)
    assert all(released.contributors >= PLAN.cohort.min_size for released in sums)
    return len(sums)


def check_all(night: Night) -> tuple[Counter[str], int]:
    """All devices together, and the number of rounds."""
    store = CollectorStore.open(night.url)
    try:
        found = sum((check_device(night, number, store) for number in range(DEVICES)), Counter[str]())
        return found, check_sums(store)
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [12, 90])
def test_a_bad_night(tmp_path: Path, seconds: int) -> None:
    # case E04, case E05, case F04: from outside
    night, rng = Night(tmp_path), random.Random(seconds)
    try:
        play(night, rng, seconds)
        for _ in range(8):  # on a busy machine some never meet in time
            drain(night, 8)
            found, rounds = check_all(night)
            if rounds >= 3 and found["counted"] > found["charged"] / 3:
                break
    finally:
        night.end()
    assert rounds >= 3, found
    assert found["counted"] > found["charged"] / 3, "a good part of it came through"
    assert check_all(night) == (found, rounds), "and is there when all has ended"
    for number in range(DEVICES):
        text = night.log(number)
        assert "Traceback" not in text, text
        assert "worker" not in text, text
    print(dict(found), dict(night.happened), "rounds:", rounds)


def test_forked_workers_deliver_after_their_master_has(tmp_path: Path) -> None:
    # case E05: from outside
    together = PLAN.text.replace("target_size = 6", "target_size = 4").replace('max_wait = "3s"', 'max_wait = "60s"')
    night = Night(tmp_path, together)
    try:
        places = (f"localhost:{night.port}", tmp_path / "plan.toml", tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "tests.hostapp.prefork", *places, *night.tokens[:4]],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"LDP_TELEMETRY_CA_FILE": str(tmp_path / "cert.pem")},
            timeout=250,
            check=False,
        )
    finally:
        night.end()
    assert (done.returncode, done.stdout, done.stderr) == (0, "[True, True, True, True]\n", "")
    store = CollectorStore.open(night.url)
    try:
        assert [check_device(night, number, store)["at_collector"] for number in range(4)] == [2] * 4
        assert check_sums(store) == 2, "the master's, and the workers'"
    finally:
        store.close()


def test_its_core_is_the_readmes_example() -> None:
    (block,) = re.findall(
        r"```python\n(from client_sdk import TelemetryClient\n.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    places = {
        '"collector.example:443"': "endpoint",
        '"plan.toml"': "plan",
        '"/var/lib/app/telemetry"': "data_dir",
        '"..."': "token",
        "consent=True\n": "consent=True, clock=clock\n",
    }
    for example, place in places.items():
        assert example in block
        block = block.replace(example, place)
    app = " ".join((HERE / "app.py").read_text().split())
    one_line_calls = re.sub(r"\n\)", ")", re.sub(r"\(\n\s+", "(", re.sub(r",\n\s+", ", ", block)))
    statements = [" ".join(line.split()) for line in one_line_calls.splitlines() if line.strip()]
    assert len(statements) >= 5
    for statement in statements:
        assert statement in app, f"the README says {statement!r}, the app does not"
