"""What an operator copies of the nightly report job: configuration, unit, timer and CronJob, as their readers do."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from collector.service.job.config import KEYS, JobConfig, read_job
from tests.unit.deploy.test_deploy import DEPLOY, collector_arguments, unit
from tests.unit.deploy.test_manifests import document, documents

SAMPLE = DEPLOY / "job.toml"


def commented() -> str:
    return "\n".join(re.findall(r"^# (\w+ = .*)$", SAMPLE.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_sample_configuration_works() -> None:
    config = read_job(SAMPLE)
    assert config.db == f"sqlite:////var/lib/{unit()['Service']['StateDirectory']}/collector.db"
    assert config.grace_s == 2 * 86_400
    assert "otlp" not in config.outputs, "needs a receiver"


def test_every_key_is_in_the_sample() -> None:
    assert set(tomllib.loads(SAMPLE.read_text(encoding="utf-8"))) | set(tomllib.loads(commented())) == set(KEYS)


def test_what_is_commented_out_is_the_default(tmp_path: Path) -> None:
    examples = {"parquet", "engine", "master", "since", "otlp_endpoint"}  # have no default to show
    lines = [line for line in commented().splitlines() if line.split(" = ")[0] not in examples]
    path = tmp_path / "job.toml"
    path.write_text("\n".join(['db = "c.db"', 'out = "o"', *lines]), encoding="utf-8")
    assert len(lines) >= 5
    assert read_job(path) == JobConfig(Path("o"), "c.db")


def test_the_unit_runs_it_and_may_write_where_it_writes() -> None:
    service, config = unit("ldp-job")["Service"], read_job(SAMPLE)
    asked = collector_arguments(shlex.split(service["ExecStart"]))
    assert (asked.command, asked.config, asked.wait) == ("job", Path("/etc/ldp-telemetry/job.toml"), 600.0)
    assert config.out.is_relative_to(f"/var/lib/{service['StateDirectory']}")
    assert config.latest.is_relative_to(service["ReadWritePaths"].removeprefix("-"))
    assert config.latest.suffix == ".prom", "the node exporter reads no others"
    collectors = unit()["Service"]
    same = {"User", "Group", "NoNewPrivileges", "ProtectSystem", "CapabilityBoundingSet", "SystemCallFilter"}
    same |= {"StateDirectory", "StateDirectoryMode", "EnvironmentFile", "WorkingDirectory"}
    assert {key: service[key] for key in same} == {key: collectors[key] for key in same}


def test_the_timer_makes_up_for_what_was_missed() -> None:
    timer = (DEPLOY / "ldp-job.timer").read_text(encoding="utf-8")
    assert "OnCalendar=*-*-* 03:30:00 UTC" in timer
    assert "Persistent=yes" in timer


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own reader")
def test_systemd_reads_them(tmp_path: Path) -> None:
    for name in ("ldp-job.service", "ldp-job.timer"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = ["systemd-analyze", "verify", str(tmp_path / "ldp-job.service"), str(tmp_path / "ldp-job.timer")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "ldp-job" in line] == []


def test_the_cron_job_writes_into_a_volume_that_stays() -> None:
    claim, job = documents("kubernetes/job.yaml")
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    asked = collector_arguments(["ldp-collector", *container["args"]])
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["reports"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert mounted["reports"] == str(read_job(SAMPLE).out)
    assert str(asked.config) == f"{mounted['job']}/job.toml"
    maps = {one["name"]: one["files"] for one in document("kubernetes/kustomization.yaml")["configMapGenerator"]}
    assert maps[volumes["job"]["configMap"]["name"]] == ["job.toml"]
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
