"""Compose, Kubernetes, Prometheus and Grafana files: each is parsed, and what it names exists: options of our commands,
metrics and their labels, sections of the runbook, ports, services, secrets and mounted files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.service import metrics
from collector.service.cli_serve import settings_of
from collector.service.metrics_http import MetricsServer
from collector.service.postgres_url import address_of
from collector.service.settings import ServeSettings, split_address
from tests.unit.deploy.test_deploy import DEPLOY, STOP_SLACK_S, collector_arguments, dockerfile, runbook, unit

METRICS_PORT = 9464
GRPC_PORT = 7443


@cache
def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def document(name: str) -> Any:
    (found,) = documents(name)
    return found


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def serve_settings(monkeypatch: pytest.MonkeyPatch, words: list[str], db: str) -> ServeSettings:
    """The command as the collector reads it, with its store in the environment."""
    monkeypatch.setenv("LDP_COLLECTOR_DB", db)
    return settings_of(collector_arguments(["ldp-collector", *words]))


def check_stop(settings: ServeSettings, stop_s: int) -> None:
    assert settings.drain_s > 0, "there is a load balancer"
    assert stop_s > settings.drain_s + settings.grace_s + STOP_SLACK_S


def test_every_file_is_parsed_here_or_next_door() -> None:
    ours = {".yaml", ".json", ".cfg", ".example", ".timer"}
    theirs = {".toml", ".service", ".md"}
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.name != "Dockerfile"]
    assert {path.suffix for path in files} == ours | theirs
    for path in files:
        if path.suffix == ".yaml":
            assert all(documents(str(path.relative_to(DEPLOY))))


# --- compose ----------------------------------------------------------------------------------------


@cache
def services() -> dict[str, Any]:
    return dict(document("compose.yaml")["services"])


def test_composes_commands_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in services() if name.startswith("collector-")]
    assert len(names) >= 2
    for name in names:
        service = services()[name]
        db = service["environment"]["LDP_COLLECTOR_DB"].replace("${POSTGRES_PASSWORD:?choose one in .env}", "x")
        settings = serve_settings(monkeypatch, service["command"], db)
        assert settings.db_url == db, "not on the command line"
        assert split_address(settings.listen)[1] == GRPC_PORT
        assert settings.max_streams_per_address == settings.max_streams, "all come from the proxy's address"
        check_stop(settings, seconds(service["stop_grace_period"]))
        address = address_of(db)
        assert address.parameters["host"] in services()
        assert address.parameters["user"] == services()["database"]["environment"]["POSTGRES_USER"]
        assert address.parameters["dbname"] == services()["database"]["environment"]["POSTGRES_DB"]
    asked = collector_arguments(["ldp-collector", *services()["registrar"]["command"]])
    assert str(asked.dir) in {volume.split(":")[1] for volume in services()["registrar"]["volumes"]}
    folders = next(arguments for name, arguments in dockerfile() if name == "RUN" and "install -d" in arguments)
    assert str(asked.dir) in folders, "a new volume belongs to the user of the image's folder"


def test_composes_images_mounts_and_secrets() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    given = set(re.findall(r"^(\w+)=$", (DEPLOY / "compose.env.example").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", text)) == given, "chosen by the operator, never shipped"
    assert len(re.findall(r"\$\{\w+:\?", text)) == len(re.findall(r"\$\{", text)), "nothing starts without them"
    volumes = set(document("compose.yaml")["volumes"])
    for name, service in services().items():
        assert re.search(r":v?\d+\.\d+", service["image"]) or service["image"] == "ldp-collector", "pinned"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./") and source != "./etc":
                assert (DEPLOY / source).is_file(), name
                assert volume.endswith(":ro")
            elif ":" in volume and source != "./etc":
                assert source in volumes
        assert set(service.get("depends_on", [])) <= set(services())


def test_compose_builds_its_image_whichever_service_is_started_first() -> None:
    ours = [service for service in services().values() if service["image"] == "ldp-collector"]
    assert len(ours) == 3
    for service in ours:
        assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    told = re.findall(r"^#   (docker compose [\w ]+?)(?: -|  |$)", text, re.MULTILINE)
    assert told[0] == "docker compose build"
    assert "up" in told[3]


def test_only_devices_and_this_machine_get_in() -> None:
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert published == {"proxy": ["7443:7443"], "registrar": ["7444:7444"], "grafana": ["127.0.0.1:3000:3000"]}
    assert services()["database"]["networks"] == ["store"]
    assert document("compose.yaml")["networks"]["store"] == {"internal": True}
    assert {name for name, service in services().items() if "store" in service["networks"]} == {
        "database",
        *(name for name in services() if name.startswith("collector-")),
    }
    for name, service in services().items():
        if name != "database":  # which changes its user by itself
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]


# --- the load balancer ------------------------------------------------------------------------------


def haproxy() -> dict[str, list[str]]:
    """Lines by section."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            section = found.setdefault(line, [])
        elif line.strip() and not line.strip().startswith("#"):
            section.append(line.strip())
    return found


def test_the_load_balancer_knows_the_collectors() -> None:
    sections = haproxy()
    assert "mode tcp" in sections["defaults"], "TLS ends at the collectors"
    servers = [line.split()[2] for line in sections["backend collectors"] if line.startswith("server ")]
    collectors = sorted(name for name in services() if name.startswith("collector-"))
    assert servers == [f"{name}:{GRPC_PORT}" for name in collectors]
    assert f"bind :{GRPC_PORT}" in sections["frontend devices"]
    checked = next(line for line in sections["backend collectors"] if line.startswith("default-server"))
    check = dict(zip(checked.split()[2::2], checked.split()[3::2], strict=False))
    assert check["port"] == str(METRICS_PORT)
    drain_s = seconds(services()[collectors[0]]["command"][-2].removeprefix("--drain="))
    assert drain_s > seconds(check["inter"]) * (int(check["fall"]) + 1), "seen before the gate closes"


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy's own reader")
def test_haproxy_reads_its_file(tmp_path: Path) -> None:
    text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    copy = tmp_path / "haproxy.cfg"
    copy.write_text(re.sub(r"collector-\d:7443", "127.0.0.1:7443", text), encoding="utf-8")
    done = subprocess.run(["haproxy", "-c", "-f", copy], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- Prometheus -------------------------------------------------------------------------------------

METRIC = re.compile(r"\b(?:ldp|process|python)_[a-z0-9_]+\b|\bup\b")
SELECTOR = re.compile(r"([a-z_0-9]+)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
FOREIGN = {
    "up",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
}
JOBS = {"ldp-collector", "ldp-registrar"}


def labels_of(metric: metrics.Metric) -> dict[str, set[str]]:
    if isinstance(metric, metrics.Counter):
        columns = zip(*metric.series, strict=True)
        return {label: set(values) for label, values in zip(metric.labels, columns, strict=False)}
    if isinstance(metric, metrics.Histogram):
        return {label: set(metric.values) for label in metric.labels}
    return {}


def known_labels() -> dict[str, dict[str, set[str]]]:
    """Sample name -> label -> the values that it can have."""
    found: dict[str, dict[str, set[str]]] = {name: {} for name in metrics.SAMPLES | FOREIGN}
    for metric in (*metrics.COLLECTOR, *metrics.REGISTRAR):
        for suffix in ("", "_bucket", "_sum", "_count"):
            for label, values in labels_of(metric).items():
                found.setdefault(metric.name + suffix, {}).setdefault(label, set()).update(values)
    return found


def check_expression(expression: str) -> set[str]:
    """Its metrics: all of ours, asked for by labels and values that there are."""
    names = set(METRIC.findall(expression))
    assert names, expression
    assert names <= metrics.SAMPLES | FOREIGN, expression
    known = known_labels()
    for name, matchers in SELECTOR.findall(expression):
        for label, operator, value in MATCHER.findall(matchers):
            values = JOBS if label == "job" else known[name][label]
            pattern = value if operator.endswith("~") else re.escape(value)
            for part in pattern.split("|"):
                assert any(re.fullmatch(part, there) for there in values), f"{name}: no {label} is ever {part}"
    for label in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
        for one in filter(None, (part.strip() for part in label.split(","))):
            assert one in {"le", "instance", "job"} or any(one in known[name] for name in names), expression
    return names


def alerts() -> list[dict[str, Any]]:
    return [rule for group in document("alerts.yaml")["groups"] for rule in group["rules"]]


def anchor(title: str) -> str:
    """As a title is linked to in rendered Markdown."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_every_alert_asks_for_what_there_is_and_says_what_to_do() -> None:
    sections = {anchor(title): text for title, text in runbook().items()}
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) >= 20
    for rule in alerts():
        check_expression(rule["expr"])
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"].keys() == {"summary", "runbook_url"}
        file, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert file == "runbook.md"
        assert sections[section].lstrip().startswith("First step:"), rule["alert"]


def test_alerts_at_a_limits_share_follow_its_default() -> None:
    rules = {rule["alert"]: rule["expr"] for rule in alerts()}
    default = ServeSettings((Path("p"),), "c.db", "registrar.pub", insecure=True)
    assert rules["LdpStreamsNearTheLimit"] == f"ldp_streams_open > {default.max_streams * 4 // 5}"
    assert rules["LdpWaitingRoomNearlyFull"] == f"ldp_waiting_devices > {default.max_waiting * 4 // 5}"


def test_prometheus_scrapes_what_compose_starts() -> None:
    config = document("prometheus.yaml")
    assert config["rule_files"] == ["alerts.yaml"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert targets.keys() == JOBS
    for job, addresses in targets.items():
        wanted = sorted(name for name in services() if name.startswith(job.removeprefix("ldp-")))
        assert addresses == [f"{name}:{METRICS_PORT}" for name in wanted]
        for name in wanted:
            asked = collector_arguments(["ldp-collector", *services()[name]["command"]])
            assert asked.metrics == f"0.0.0.0:{METRICS_PORT}"
            assert asked.metrics_public
    mounted = {volume.split(":")[1] for volume in services()["prometheus"]["volumes"]}
    assert {"/etc/prometheus/prometheus.yaml", "/etc/prometheus/alerts.yaml"} <= mounted


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus' own reader")
def test_promtool_reads_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", DEPLOY / "prometheus.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- Grafana ----------------------------------------------------------------------------------------


def dashboard() -> dict[str, Any]:
    return dict(json.loads((DEPLOY / "grafana" / "ldp-telemetry.json").read_text(encoding="utf-8")))


def test_the_dashboard_shows_what_there_is() -> None:
    shown: set[str] = set()
    source = document("grafana/datasource.yaml")["datasources"][0]["uid"]
    for panel in dashboard()["panels"]:
        assert panel["title"]
        assert panel["type"] == "row" or panel["targets"]
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == source
            shown |= check_expression(target["expr"].replace("$__rate_interval", "5m"))
    asked = shown | {name for rule in alerts() for name in METRIC.findall(rule["expr"])}
    unseen = {"ldp_build_info", "ldp_housekeeping_last_success_timestamp_seconds", "ldp_documents_total"}
    unseen |= {"ldp_streams_total"}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} >= metrics.NAMES - unseen


def test_the_dashboards_panels_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, two in combinations(places, 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        below = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or below


def test_the_dashboard_is_provisioned() -> None:
    mounted = dict(volume.split(":")[:2] for volume in services()["grafana"]["volumes"])
    folder = document("grafana/dashboards.yaml")["providers"][0]["options"]["path"]
    assert mounted["./grafana/ldp-telemetry.json"].startswith(folder + "/")
    assert mounted["./grafana/datasource.yaml"].startswith("/etc/grafana/provisioning/datasources/")
    assert mounted["./grafana/dashboards.yaml"].startswith("/etc/grafana/provisioning/dashboards/")
    assert document("grafana/datasource.yaml")["datasources"][0]["url"] == "http://prometheus:9090"


# --- Kubernetes -------------------------------------------------------------------------------------


@cache
def manifests() -> list[dict[str, Any]]:
    names = document("kubernetes/kustomization.yaml")["resources"]
    return [found for name in names for found in documents(f"kubernetes/{name}")]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in manifests() if manifest["kind"] == kind]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods that anything here makes, by what makes them."""
    for manifest in of_kind("Deployment"):
        yield manifest["metadata"]["name"], manifest["spec"]["template"]
    for manifest in of_kind("CronJob"):
        yield manifest["metadata"]["name"], manifest["spec"]["jobTemplate"]["spec"]["template"]


def test_every_manifest_is_named_and_in_the_namespace() -> None:
    files = {path.name for path in (DEPLOY / "kubernetes").iterdir()} - {"kustomization.yaml"}
    assert set(document("kubernetes/kustomization.yaml")["resources"]) == files
    seen = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests()}
    assert len(seen) == len(manifests())
    for manifest in manifests():
        assert manifest["apiVersion"] in {"v1", "apps/v1", "batch/v1", "policy/v1", "networking.k8s.io/v1"}
        assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "ldp-telemetry"


def test_the_pods_commands_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    (secret,) = (found for found in of_kind("Secret") if found["metadata"]["name"] == "ldp-collector")
    db = secret["stringData"]["LDP_COLLECTOR_DB"]
    assert address_of(db).parameters["sslmode"] == "verify-full"
    for name, pod in pods():
        (container,) = pod["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "ldp-collector"}}]
        if container["args"][0] != "serve":
            monkeypatch.setenv("LDP_COLLECTOR_DB", db)
            collector_arguments(["ldp-collector", *container["args"]])
            continue
        assert name == "ldp-collector"
        settings = serve_settings(monkeypatch, container["args"], db)
        check_stop(settings, pod["spec"]["terminationGracePeriodSeconds"])
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"grpc": GRPC_PORT, "metrics": METRICS_PORT}
        assert split_address(settings.listen)[1] == GRPC_PORT
        assert settings.metrics == f"0.0.0.0:{METRICS_PORT}"
    assert {next(iter(pod["spec"]["containers"]))["image"] for _, pod in pods()} == {
        "registry.example/ldp-collector:0.1.0"
    }


async def test_probes_ask_for_pages_that_there_are() -> None:
    async def ready() -> bool:
        return False

    ((_, pod),) = [found for found in pods() if found[0] == "ldp-collector"]
    (container,) = pod["spec"]["containers"]
    pages = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    page: Any = None  # nobody asks for it
    server = MetricsServer(page, ready)
    answers = {kind: (await server._found(path.encode()))[0] for kind, path in pages.items()}
    assert answers == {"startup": "200 OK", "readiness": "503 Service Unavailable", "liveness": "200 OK"}
    assert all(container[f"{kind}Probe"]["httpGet"]["port"] == "metrics" for kind in pages)


def test_selectors_find_their_pods() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods()}
    (deployment,) = of_kind("Deployment")
    wanted = deployment["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= labels["ldp-collector"].items()
    assert of_kind("Service")[0]["spec"]["selector"] == wanted
    assert of_kind("PodDisruptionBudget")[0]["spec"]["selector"]["matchLabels"] == wanted
    assert deployment["spec"]["replicas"] >= 2
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert of_kind("Service")[0]["spec"]["externalTrafficPolicy"] == "Local", "collectors see devices' addresses"
    policies = {found["metadata"]["name"]: found["spec"] for found in of_kind("NetworkPolicy")}
    assert policies["nothing-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["ldp-collector"]["podSelector"]["matchLabels"] == wanted
    (rule,) = policies["to-the-database"]["podSelector"]["matchExpressions"]
    assert set(rule["values"]) == {label["app.kubernetes.io/name"] for label in labels.values()}


def test_pods_may_do_nothing_that_they_need_not() -> None:
    uid = int(dict(dockerfile())["USER"].split(":")[0])
    secrets = {found["metadata"]["name"] for found in of_kind("Secret")}
    maps = {found["name"] for found in document("kubernetes/kustomization.yaml")["configMapGenerator"]}
    for name, pod in pods():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == uid
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys(), name
        for volume in volumes.values():
            assert volume.get("secret", {"secretName": "ldp-collector"})["secretName"] in secrets
            assert volume.get("configMap", {"name": "ldp-plan"})["name"] in maps


# --- the backup's unit and timer --------------------------------------------------------------------


def test_the_nightly_backup() -> None:
    service = unit("ldp-backup")["Service"]
    inner = re.fullmatch(r"/bin/sh -c 'exec (.*)'", service["ExecStart"])
    assert inner is not None
    asked = collector_arguments(inner[1].replace("%%", "%").replace('"', "").replace("$(date -u +%F)", "DAY").split())
    assert str(asked.out.parent) == service["ReadWritePaths"]
    collectors = unit()["Service"]
    assert asked.db == f"sqlite:////var/lib/{collectors['StateDirectory']}/collector.db"
    same = {"User", "Group", "NoNewPrivileges", "ProtectSystem", "CapabilityBoundingSet", "SystemCallFilter", "UMask"}
    assert {key: service[key] for key in same} == {key: collectors[key] for key in same}
    timer = (DEPLOY / "ldp-backup.timer").read_text(encoding="utf-8")
    assert "OnCalendar=*-*-* 02:30:00 UTC" in timer
    assert "Persistent=yes" in timer
