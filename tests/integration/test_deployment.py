"""What compose starts, started: its commands as processes over a real PostgreSQL, a load balancer, and devices that
enrol, meet in rounds and deliver over TLS, while a collector is killed, one drains and the database restarts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from client_sdk import TelemetryClient
from client_sdk.plan import Plan, parse_plan
from collector.service.cli import main
from tests.integration.participants import until
from tests.integration.processes import ROOT, SERVE
from tests.integration.real_fleet import RealFleet
from tests.integration.test_limits import small_plan
from tests.integration.test_operations import http_get, scrape
from tests.postgres import durable_server
from tests.tcp_proxy import TcpProxy
from tests.unit.client_sdk.device.certificates import certificate
from tests.unit.deploy.test_manifests import METRICS_PORT, services

COHORT = 4
DRAIN_S = 1.5


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Container:
    """One of compose's services that runs our program: its command, with this machine's paths and ports."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.metrics = f"127.0.0.1:{free_port()}"
        self.port = free_port()
        self._environment = environment
        self._command = [self._here(word, folder) for word in services()[name]["command"]]
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[str] | None = None

    def _here(self, word: str, folder: Path) -> str:
        option, _, value = word.partition("=")
        if option == "--listen":
            return f"--listen=127.0.0.1:{self.port}"
        if option == "--metrics":
            assert value.endswith(f":{METRICS_PORT}")
            return f"--metrics={self.metrics}"
        if option == "--drain":
            return f"--drain={DRAIN_S}s"
        for there, here in (("/etc/ldp-telemetry", "etc"), ("/var/lib/ldp-registrar", "registrar")):
            word = word.replace(there, str(folder / here))
        return word

    def start(self) -> None:
        """Returns when it says that it listens."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*SERVE, *self._command],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ | self._environment,
            )
        assert _line(self.process.stdout) == f"listening on 127.0.0.1:{self.port}\n", self.log.read_text()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def is_ready(self) -> bool:
        return (await http_get(self.metrics, "/readyz"))[0] == 200

    def stop(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        assert self.process is not None
        status = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def deployed_plan() -> Plan:
    return parse_plan(small_plan(COHORT).text)


class Deployment:
    """PostgreSQL, registrar and collectors as compose has them, and the load balancer before them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.plan = deployed_plan()
        self.database = stack.enter_context(durable_server())
        self.database.execute("CREATE DATABASE ldp")
        self.url = self.database.url("ldp")
        self._write_etc()
        self.registrar = Container("registrar", folder, {})
        names = sorted(name for name in services() if name.startswith("collector-"))
        self.collectors = [Container(name, folder, {"LDP_COLLECTOR_DB": self.url}) for name in names]
        self.balancer = stack.enter_context(
            TcpProxy(targets=[("127.0.0.1", collector.port) for collector in self.collectors])
        )
        for container in (self.registrar, *self.collectors):
            container.start()
            stack.callback(self._kill, container)

    @staticmethod
    def _kill(container: Container) -> None:
        if container.process is not None and container.process.poll() is None:
            container.stop(signal.SIGKILL)

    def _write_etc(self) -> None:
        etc = self.folder / "etc"
        etc.mkdir()
        (etc / "plan.toml").write_text(self.plan.text, encoding="utf-8")
        private, self.public = certificate("localhost")
        (etc / "key.pem").write_bytes(private)
        (etc / "cert.pem").write_bytes(self.public)
        assert main(["registrar", "init", "--dir", str(self.folder / "registrar")]) == 0
        (etc / "registrar.pub").write_bytes((self.folder / "registrar" / "registrar.pub").read_bytes())

    def tokens(self, count: int) -> list[str]:
        command = [sys.executable, "-m", "collector.service", "registrar", "issue-token", "--dir"]
        command += [str(self.folder / "registrar"), "--count", str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return done.stdout.split()

    def fleet(self, count: int) -> RealFleet:
        """Devices that enrol with their tokens, over TLS to both services."""
        tokens = iter(self.tokens(count + 80))

        def make(folder: Path, endpoint: str, plan: Plan) -> TelemetryClient:
            return TelemetryClient(
                endpoint,
                plan=plan,
                data_dir=folder,
                consent=True,
                background=False,
                enrolment_token=next(tokens),
                registrar=f"localhost:{self.registrar.port}",
                registrar_key=bytes.fromhex((self.folder / "etc" / "registrar.pub").read_text().strip()),
                root_certificates=self.public,
            )

        endpoint = f"localhost:{self.balancer.port}"
        return RealFleet(self.folder, endpoint, self.plan, count, make=make)

    async def counted(self) -> list[float]:
        """Reports that each collector says it has counted."""
        pages = [await scrape(collector.metrics) for collector in self.collectors]
        return [page["ldp_contributions_total", "interactive"] for page in pages]


@contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    with ExitStack() as stack:
        yield Deployment(folder, stack)


@pytest.mark.timeout(180)
async def test_what_compose_starts_works_and_survives(tmp_path: Path) -> None:
    # cases E04, E07, F04 on PostgreSQL with two collectors
    with deployment(tmp_path) as deployed:
        first, second = deployed.collectors
        assert [await collector.is_ready() for collector in deployed.collectors] == [True, True]
        fleet = deployed.fleet(10)
        await fleet.upload_until_counted(company=3)
        counted = await deployed.counted()
        assert sum(counted) == len(fleet.clients)
        assert min(counted) > 0, "both took part"
        page = await scrape(deployed.registrar.metrics)
        assert page["ldp_certificates_issued_total", "enrolled"] == len(fleet.clients)

        await the_database_restarts(deployed)
        await a_collector_is_killed(deployed, fleet)
        await a_collector_drains(deployed, fleet)

        fleet.check_books(deployed.url)
        assert second.stop(signal.SIGTERM) == 0
        assert deployed.registrar.stop(signal.SIGTERM) == 0
        for container in (deployed.registrar, first, second):
            assert "Traceback" not in container.log.read_text()
        fleet.close()
        assert await asyncio.to_thread(main, ["doctor", "--db", deployed.url]) == 0


async def the_database_restarts(deployed: Deployment) -> None:
    """Both say that they cannot serve, and serve again by themselves."""
    await asyncio.to_thread(deployed.database.stop)
    for collector in deployed.collectors:
        await ready(collector, False)
        assert (await scrape(collector.metrics))["ldp_database_up", ""] == 0
        assert (await http_get(collector.metrics, "/healthz"))[0] == 200, "nobody is to restart it"
    await asyncio.to_thread(deployed.database.start)
    for collector in deployed.collectors:
        await ready(collector, True)


async def ready(collector: Container, wanted: bool) -> None:
    deadline = time.monotonic() + 20
    while await collector.is_ready() is not wanted:
        assert time.monotonic() < deadline, f"{collector.name} did not become {'' if wanted else 'un'}ready"
        await asyncio.sleep(0.1)


async def has_streams(collector: Container) -> None:
    deadline = time.monotonic() + 20
    while not (await scrape(collector.metrics))["ldp_streams_open", ""]:
        assert time.monotonic() < deadline, f"nobody came to {collector.name}"
        await asyncio.sleep(0.02)


async def a_collector_is_killed(deployed: Deployment, fleet: RealFleet) -> None:
    """In the middle of uploads; the load balancer sends everybody to the other one."""
    first = deployed.collectors[0]
    fleet.add(6)
    uploads = asyncio.ensure_future(fleet.upload(fleet.waiting()))
    await has_streams(first)
    failed = fleet.failures.total()
    assert await asyncio.to_thread(first.stop, signal.SIGKILL) == -signal.SIGKILL
    assert not uploads.done()
    await uploads
    assert fleet.failures.total() > failed, "somebody was in the middle of it"
    fleet.check_books(deployed.url, everybody=False)
    await fleet.upload_until_counted(company=2)
    await asyncio.to_thread(first.start)
    await ready(first, True)


async def a_collector_drains(deployed: Deployment, fleet: RealFleet) -> None:
    """NOT_SERVING first, still at work for who comes; then the end, with nothing lost."""
    first = deployed.collectors[0]
    fleet.add(4)
    deployed.balancer.use(first.address)
    assert first.process is not None
    first.process.send_signal(signal.SIGTERM)
    await ready(first, False)
    assert first.process.poll() is None
    waiting = fleet.waiting()
    uploads = asyncio.ensure_future(fleet.upload(waiting))
    await until(lambda: deployed.balancer.open_connections >= len(waiting))
    deployed.balancer.use(*(collector.address for collector in deployed.collectors))
    await uploads
    assert await asyncio.to_thread(first.ended) == 0
    lines = first.log.read_text().splitlines()  # the one that was killed left a word of Python's in there
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    while_draining = events[events.index("draining") : events.index("stopped")]
    assert "round_released" in while_draining, "it was at work meanwhile"
    await fleet.upload_until_counted(company=2)
