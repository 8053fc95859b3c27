"""What an operator copies: every file is parsed as its reader would, and every command in it exists."""

from __future__ import annotations

import argparse
import configparser
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from client_sdk.files import load_plan
from client_sdk.plan import check_plan, parse_plan
from collector.service import cli
from collector.service.cli_common import OneLineParser
from collector.service.cli_serve import settings_of
from collector.service.config_file import KEYS, read_config
from collector.service.registrar.folder import RegistrarFolder
from collector.service.registrar.service import RegistrarSettings
from collector.service.settings import ServeSettings
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import NOW, counts, make_plan, make_release

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
STOP_SLACK_S = 2
"""What the collector may take beyond its grace."""


def collector_arguments(words: list[str]) -> argparse.Namespace:
    """`ldp-collector ...` as its own parsers read it; wrong ones exit."""
    assert Path(words[0]).name == "ldp-collector"
    parser = OneLineParser(prog="ldp-collector")
    module = import_module(f"collector.service.cli_{words[1]}")
    module.add_parser(parser.add_subparsers(dest="command", parser_class=OneLineParser))
    return parser.parse_args(words[1:])


def test_sample_plans() -> None:
    for name in ("plan.toml", "greenhub.toml"):
        assert check_plan(load_plan(DEPLOY / name)).as_dict()


# --- collector.toml ---------------------------------------------------------------------------------


def sample() -> tuple[str, str]:
    """collector.toml as it is, and the keys in it that are commented out."""
    text = (DEPLOY / "collector.toml").read_text(encoding="utf-8")
    return text, "\n".join(re.findall(r"^# (\w+ = .*)$", text, re.MULTILINE))


def test_the_sample_configuration_works() -> None:
    settings = settings_of(collector_arguments(["ldp-collector", "serve", "--config", str(DEPLOY / "collector.toml")]))
    assert settings.listen == "0.0.0.0:7443"
    assert settings.tls_cert is not None
    assert not settings.insecure


def test_every_key_is_in_the_sample_with_a_comment() -> None:
    text, commented = sample()
    assert set(tomllib.loads(text)) | set(tomllib.loads(commented)) == set(KEYS)
    for key in KEYS:
        above = re.search(rf"^(.*)\n(?:# )?{key} = ", text, re.MULTILINE)
        assert above is not None
        assert above[1].startswith("# ") or key == "tls_key", f"{key} says nothing about itself"


def test_what_is_commented_out_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "collector.toml"
    path.write_text(sample()[1], encoding="utf-8")
    shown = read_config(path)
    assert shown.pop("expected_devices") > 0  # has no default to show, nor has this
    assert shown.pop("client_ca").suffix == ".pem"
    assert shown.pop("metrics").startswith("127.0.0.1:")
    default = ServeSettings((Path("plan.toml"),), "c.db", "registrar.pub", insecure=True)
    assert shown == {"insecure": False} | {name: getattr(default, name) for name in shown if name != "insecure"}


# --- Dockerfile -------------------------------------------------------------------------------------

INSTRUCTIONS = re.compile(
    "ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|RUN|STOPSIGNAL|USER|VOLUME|WORKDIR"
)


def dockerfile() -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined, comments left out."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.split("\n") if line.strip()]


def test_dockerfile() -> None:
    steps = dockerfile()
    assert all(INSTRUCTIONS.fullmatch(name) for name, _ in steps)
    bases = [arguments.split(" ")[0] for name, arguments in steps if name == "FROM"]
    assert steps[0][0] == "FROM"
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base) for base in bases), "pinned by version"
    assert len(set(bases)) == 1
    stages = {arguments.split(" ")[2] for name, arguments in steps if name == "FROM" and " AS " in arguments}
    for arguments in (arguments for name, arguments in steps if name == "COPY"):
        *sources, _target = arguments.split(" ")
        if sources[0].startswith("--from="):
            assert sources[0].removeprefix("--from=") in stages
        else:
            assert all((ROOT / source).exists() for source in sources)
    assert ("ARG", "EXTRAS=collector,postgres") in steps
    assert any('".[${EXTRAS}]"' in arguments for name, arguments in steps if name == "RUN")


def test_the_container_runs_the_collector_as_nobody_special() -> None:
    steps = dict(dockerfile())  # the last of each kind
    user, _, group = steps["USER"].partition(":")
    assert int(user) >= 1000
    assert int(group) >= 1000
    assert steps["STOPSIGNAL"] == "SIGTERM"
    words = [*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])]
    assert collector_arguments(words).config == Path("/etc/ldp-telemetry/collector.toml")
    configuration = read_config(DEPLOY / "collector.toml")
    assert configuration["listen"].endswith(f":{steps['EXPOSE']}")
    assert configuration["db_url"].startswith(f"sqlite:///{steps['VOLUME']}/")
    asked = collector_arguments(json.loads(steps["HEALTHCHECK"].partition(" CMD ")[2]))
    assert asked.server.endswith(f":{steps['EXPOSE']}")
    timeout = re.search(r"--stop-timeout (\d+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert timeout is not None
    assert int(timeout[1]) > ServeSettings.__dataclass_fields__["grace_s"].default + STOP_SLACK_S


# --- ldp-collector.service --------------------------------------------------------------------------


def unit(name: str = "ldp-collector") -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None, comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    assert parser.read(DEPLOY / f"{name}.service")
    return parser


def test_systemd_unit() -> None:
    parser = unit()
    assert parser.sections() == ["Unit", "Service", "Install"]
    service = parser["Service"]
    assert service["User"] not in {"", "root", "0"}
    assert collector_arguments(shlex.split(service["ExecStart"])).config == Path("/etc/ldp-telemetry/collector.toml")
    assert service["KillSignal"] == "SIGTERM"
    assert service["KillMode"] == "mixed"
    grace_s = read_config(DEPLOY / "collector.toml").get(
        "grace_s", ServeSettings.__dataclass_fields__["grace_s"].default
    )
    assert int(service["TimeoutStopSec"]) > grace_s + STOP_SLACK_S
    assert service["RestartPreventExitStatus"] == "2"
    state = Path("/var/lib") / service["StateDirectory"]
    assert read_config(DEPLOY / "collector.toml")["db_url"].startswith(f"sqlite:///{state}/")
    hardened = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "CapabilityBoundingSet": ""}
    assert {key: service[key] for key in hardened} == hardened
    assert "AF_UNIX" in service["RestrictAddressFamilies"].split(), "workers talk over it"


def test_the_registrars_unit_shares_nothing_with_the_collectors() -> None:
    service, collectors = unit("ldp-registrar")["Service"], unit()["Service"]
    asked = collector_arguments(shlex.split(service["ExecStart"]))
    settings = RegistrarSettings(asked.dir, asked.listen, asked.tls_cert, asked.tls_key, insecure=asked.insecure)
    assert settings.folder == Path("/var/lib") / service["StateDirectory"]
    assert int(service["TimeoutStopSec"]) > settings.grace_s + STOP_SLACK_S
    for key in ("User", "Group", "StateDirectory", "ConfigurationDirectory", "WorkingDirectory"):
        assert service[key] != collectors[key]
    same = set(collectors) - {"User", "Group", "StateDirectory", "ConfigurationDirectory", "WorkingDirectory"}
    same -= {"ExecStart", "KillMode", "TimeoutStopSec", "EnvironmentFile"}
    assert {key: service[key] for key in same} == {key: collectors[key] for key in same}, "hardened alike"
    assert service["StateDirectoryMode"] == "0700"


def test_the_sample_plans_registrar_is_what_init_prints(tmp_path: Path) -> None:
    text = (DEPLOY / "plan.toml").read_text(encoding="utf-8")
    table = "\n".join(re.findall(r"^# (\[registrar\]|address = .*|key = .*)$", text, re.MULTILINE))
    key = RegistrarFolder(tmp_path / "r").create().public_key.hex()
    plan = parse_plan(text + "\n" + table.replace("0" * 64, key))
    assert plan.registrar is not None
    assert (plan.registrar.address, plan.registrar.key.hex()) == ("registrar.example:7444", key)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own reader")
@pytest.mark.parametrize("name", ["ldp-collector", "ldp-registrar"])
def test_systemd_reads_the_unit(tmp_path: Path, name: str) -> None:
    text = (DEPLOY / f"{name}.service").read_text(encoding="utf-8")
    copy = tmp_path / f"{name}.service"
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if name in line] == []


# --- runbook.md -------------------------------------------------------------------------------------


def runbook() -> dict[str, str]:
    """Its sections by title."""
    parts = re.split(r"^## (.*)\n", (DEPLOY / "runbook.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", "".join(runbook().values()), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_each_part_of_the_runbook_begins_with_its_first_step() -> None:
    wanted = {
        "Start",
        "The registrar",
        "Stop",
        "Upgrade",
        "Back up",
        "A collector is down",
        "The database is away",
        "Rounds abort or never form",
        "More replicas",
        "Housekeeping",
        "Disk full",
        "Store locked",
        "Store damaged",
        "Port in use",
        "Clock skew",
    }
    sections = runbook()
    assert wanted <= set(sections)
    assert all(sections[title].lstrip().startswith("First step:") for title in wanted)


def test_the_runbooks_commands_exist() -> None:
    ours = [command for command in commands() if command.startswith("ldp-collector")]
    assert len(ours) >= 5
    for command in ours:
        collector_arguments(shlex.split(command))
    database = {"pg_dump", "createdb", "pg_restore"}
    assert {shlex.split(command)[0] for command in commands()} == {"ldp-collector", *database}


def test_the_runbooks_backup_of_a_store_in_use(tmp_path: Path) -> None:
    path = tmp_path / "collector.db"
    store = CollectorStore.open(str(path))
    store.put_plan(make_plan(), NOW)
    store.store_release(make_release(make_plan()))  # still in the write-ahead log only
    (tmp_path / "copy").mkdir()
    for command in (command for command in commands() if "backups/collector.db" in command):
        moved = command.replace("/var/lib/ldp-telemetry", str(tmp_path)).replace("/var/backups", str(tmp_path / "copy"))
        assert cli.main(shlex.split(moved)[1:]) == 0, "copied, and found whole"
    copied = counts(tmp_path / "copy" / "collector.db")
    store.close()
    assert copied == counts(path)
    assert copied["contributions"] == 3
    reader = CollectorStore.open(str(tmp_path / "copy" / "collector.db"), read_only=True)
    assert len(reader.rounds()) == 1
    reader.close()
    with sqlite3.connect(path) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
