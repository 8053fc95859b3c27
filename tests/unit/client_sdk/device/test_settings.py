"""Wrong configuration raises when the client is made, with one line that names the setting."""

from __future__ import annotations

import errno
import logging
import os
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk import ConfigurationError, PlanError, StorageError, TelemetryClient, load_plan
from client_sdk.accounting.budget import Limits
from client_sdk.device.files import StoreUnavailableError, storage_error
from client_sdk.device.settings import is_loopback
from client_sdk.identity import IdentityKey
from client_sdk.plan import parse_plan
from client_sdk.testing import InMemoryCollector
from tests.fleet import seeded
from tests.registrar import KEY, NOWHERE
from tests.unit.client_sdk.device.helpers import DEAD, make_client, make_plan, plan_text


def refused(folder: Path, **changes: Any) -> str:
    with pytest.raises(ConfigurationError) as found:
        make_client(folder, **changes)
    assert not folder.exists(), "nothing was written"
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        None,
        "collector",
        "collector:",
        "collector:0",
        "collector:65536",
        ":443",
        "http://x:443",
        "a b:1",
        "::1:443",
        "x:4٣",
    ],
)
def test_an_endpoint_is_host_and_port(tmp_path: Path, endpoint: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LDP_TELEMETRY_ENDPOINT", raising=False)
    assert "endpoint" in refused(tmp_path / "d", endpoint=endpoint, insecure=False)


@pytest.mark.parametrize(
    "host", ["collector.example", "10.0.0.1", "0.0.0.1", "128.0.0.1", "[::]", "[fe80::1]", "localhost.example"]
)
def test_plain_text_goes_to_this_machine_only(tmp_path: Path, host: str) -> None:
    assert not is_loopback(host)
    assert "insecure" in refused(tmp_path / "d", endpoint=f"{host}:443")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.255.0.3", "[::1]", "LOCALHOST"])
def test_loopback_is_loopback(tmp_path: Path, host: str) -> None:
    assert is_loopback(host)
    make_client(tmp_path / "d", endpoint=f"{host}:443").close()


@pytest.mark.parametrize(
    "amount", ["nan", "inf", "-inf", "-1", "1e400", "", "1_000", "0x1", "1e-320", float("nan"), float("inf"), -1, True]
)
@pytest.mark.parametrize("name", ["max_epsilon_report", "max_epsilon_24h", "max_epsilon_lifetime"])
def test_a_meaningless_limit_is_refused(tmp_path: Path, name: str, amount: Any) -> None:
    # case C05
    assert refused(tmp_path / "d", **{name: amount}).startswith(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consent", None),
        ("consent", 1),
        ("consent", "yes"),
        ("min_cohort", -1),
        ("min_cohort", 1.5),
        ("seal_key", b"short"),
        ("seal_key", "x" * 32),
        ("enrolment_token", ""),
        ("enrolment_token", b"bytes"),
        ("root_certificates", b"not a certificate"),
        ("root_certificates", "/does/not/exist.pem"),
        ("can_upload", True),
        ("insecure", 1),
        ("background", None),
        ("clock", 5),
        ("clock", None),
    ],
)
def test_every_setting_is_checked_and_named(tmp_path: Path, name: str, value: Any) -> None:
    assert name in refused(tmp_path / "d", **{name: value})


@pytest.mark.parametrize("timeout", ["x", None, True, float("nan")])
def test_a_meaningless_timeout_is_refused_and_nothing_happens(tmp_path: Path, timeout: Any) -> None:
    client = make_client(tmp_path / "d")
    client.record("cold_start_ms", 1)
    for call in (lambda: client.flush(seal=True, timeout_s=timeout), lambda: client.close(timeout_s=timeout)):
        with pytest.raises(ConfigurationError, match=r"^timeout_s: must be a number of seconds$"):
            call()
    assert client.counters() == {}
    assert not client.flush(seal=True, timeout_s=10**400), "a report waits; no lock waits as long"
    client.close(timeout_s=-(10**400))


def test_data_dir_is_a_folder_that_may_be_written_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "f").write_text("")
    for file in (tmp_path / "f", tmp_path / "f" / "below"):
        with pytest.raises(StorageError, match=r"^data_dir .*is a file; give a folder$"):
            make_client(file)
    advice = "give a data_dir that this app's user may write to"
    for number, kind in (
        (errno.EACCES, StorageError),
        (errno.EPERM, StorageError),
        (errno.EROFS, StoreUnavailableError),
    ):
        refusal = storage_error(OSError(number, "no"), "/somewhere")
        assert type(refusal) is kind
        assert str(refusal).endswith(advice)
    (tmp_path / "read-only").mkdir(mode=0o500)
    if os.access(tmp_path / "read-only", os.W_OK):
        return  # this user may write anywhere
    with pytest.raises(StorageError, match=advice):
        make_client(tmp_path / "read-only" / "d")


NEVER = [
    ({"max_epsilon_report": "1.5"}, "no report will ever be sent: max_epsilon_report is 1.5, and one"),
    ({"max_epsilon_24h": 1}, "max_epsilon_24h is 1, and one"),
    ({"max_epsilon_lifetime": "0"}, "max_epsilon_lifetime is 0, and one of plan 'app-health' costs 2"),
    ({"max_epsilon_report": 1, "max_epsilon_24h": 1}, "max_epsilon_report is 1, max_epsilon_24h is 1, and one"),
    ({"min_cohort": 9}, "hardly any report will ever be sent: min_cohort is 9, which takes 12 devices at once"),
    ({"min_cohort": 16}, "no report will ever be sent: min_cohort is 16, which takes 20 devices at once"),
    ({"max_epsilon_report": 2, "max_epsilon_24h": 2, "max_epsilon_lifetime": 2, "min_cohort": 8}, None),
]


@pytest.mark.parametrize(("limits", "says"), NEVER)
def test_limits_that_let_nothing_leave_are_said_at_once(
    tmp_path: Path, limits: dict[str, Any], says: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ldp_telemetry"):
        make_client(tmp_path / "d", **limits).close()
    said = [record.getMessage() for record in caplog.records if record.name == "ldp_telemetry"]
    assert len(said) == (says is not None), "one warning"
    assert says is None or (said[0].startswith("limits: ") and says in said[0])


def test_data_dir_and_plan_are_needed_in_a_usable_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LDP_TELEMETRY_DATA_DIR", raising=False)
    for folder in (None, "", "a\0b", 3):
        with pytest.raises(ConfigurationError, match="data_dir"):
            TelemetryClient(DEAD, consent=True, data_dir=folder, plan=make_plan())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="plan"):
        TelemetryClient(DEAD, consent=True, data_dir=tmp_path / "d", plan=3)  # type: ignore[arg-type]
    (tmp_path / "bad.toml").write_text(plan_text(epsilon="nan"))
    with pytest.raises(PlanError):
        TelemetryClient(DEAD, consent=True, data_dir=tmp_path / "d", plan=tmp_path / "bad.toml")


def test_keyword_wins_over_environment_and_environment_over_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDP_TELEMETRY_ENDPOINT", "environment.example:1")
    monkeypatch.setenv("LDP_TELEMETRY_DATA_DIR", str(tmp_path / "environment"))
    monkeypatch.setenv("LDP_TELEMETRY_REGISTRAR", "registrar.example:1")
    monkeypatch.setenv("LDP_TELEMETRY_REGISTRAR_KEY", KEY.hex())
    by_environment = TelemetryClient(consent=True, plan=make_plan(), background=False)
    assert "environment.example:1" in repr(by_environment)
    assert (tmp_path / "environment").is_dir()
    by_keyword = TelemetryClient(
        "keyword.example:1", consent=True, plan=make_plan(), data_dir=tmp_path / "k", background=False
    )
    assert "keyword.example:1" in repr(by_keyword)
    monkeypatch.setenv("LDP_TELEMETRY_CA_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ConfigurationError, match="root_certificates"):
        make_client(tmp_path / "x")


def test_the_registrar_comes_from_the_host_or_the_plan_it_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keyword, then environment, then the given plan's table; address and key each by itself."""
    keys = [IdentityKey(bytes([n]) * 32).public_key for n in range(3)]
    table = f'[registrar]\naddress = "plan.example:3"\nkey = "{keys[2].hex()}"\n'
    shipped = parse_plan(plan_text() + table)
    (tmp_path / "registrar.pub").write_text(keys[0].hex() + "\n")

    def found(name: str, **settings: Any) -> tuple[str, bytes]:
        parts = {"consent": False, "plan": shipped, "data_dir": tmp_path / name} | settings
        settings_ = TelemetryClient("collector.example:1", **parts)._engine.settings
        return settings_.registrar, settings_.registrar_key

    assert found("a") == ("plan.example:3", keys[2])
    monkeypatch.setenv("LDP_TELEMETRY_REGISTRAR_KEY", keys[1].hex().upper())
    assert found("b") == ("plan.example:3", keys[1])
    monkeypatch.setenv("LDP_TELEMETRY_REGISTRAR", "environment.example:2")
    assert found("c") == ("environment.example:2", keys[1])
    for given in (keys[0], keys[0].hex(), tmp_path / "registrar.pub", str(tmp_path / "registrar.pub")):
        assert found("d", registrar="keyword.example:1", registrar_key=given) == ("keyword.example:1", keys[0])
    assert found("e", plan=make_plan()) == ("environment.example:2", keys[1])


def test_without_a_registrar_there_is_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTRAR", "REGISTRAR_KEY"):
        monkeypatch.delenv(f"LDP_TELEMETRY_{name}", raising=False)
    for plan in (make_plan(), None):  # a fetched plan would be the collector's word
        assert refused(tmp_path / "d", plan=plan, registrar=None).startswith("registrar: give")
        assert refused(tmp_path / "d", plan=plan, registrar_key=None).startswith("registrar_key: give")
    assert refused(tmp_path / "d", registrar="example").startswith("registrar: 'example' is not HOST:PORT")
    assert "this machine only" in refused(tmp_path / "d", registrar="registrar.example:1")
    for key in (b"short", "ab" * 31, bytes(32), "no-such-file", 3, b"\x01" + bytes(31)):
        assert refused(tmp_path / "d", registrar_key=key).startswith("registrar_key: ")
    (tmp_path / "private.pem").write_text("-----BEGIN PRIVATE KEY-----\nsecret\n")
    assert "secret" not in refused(tmp_path / "d", registrar_key=tmp_path / "private.pem")
    assert not (tmp_path / "d").exists()


def test_a_collector_in_memory_has_its_own_registrar(tmp_path: Path) -> None:
    collector = InMemoryCollector(make_plan())
    client = collector.client(tmp_path / "d", registrar="registrar.example:1", registrar_key=KEY)
    assert client._engine.connections.delivery().enrolment.registrar_key == collector.registrar_key


def test_disabled_by_the_environment_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDP_TELEMETRY_DISABLED", "1")
    client = make_client(tmp_path / "d")
    client.record("cold_start_ms", 1)
    assert client.counters() == {"disabled": 1}
    assert client.flush(seal=True)
    client.close()
    assert not (tmp_path / "d").exists()
    monkeypatch.setenv("LDP_TELEMETRY_DISABLED", "perhaps")
    with pytest.raises(ConfigurationError, match="LDP_TELEMETRY_DISABLED"):
        make_client(tmp_path / "d")


def test_test_entropy_never_meets_a_real_endpoint(tmp_path: Path) -> None:
    # case B02
    entropy = seeded(1)
    assert "entropy" in refused(tmp_path / "d", _entropy=entropy)
    assert "in-memory" in refused(tmp_path / "d", _transport=object())
    assert "in-memory" in refused(tmp_path / "d", endpoint="memory:test", _entropy=entropy)
    make_client(tmp_path / "d", endpoint="memory:test", _entropy=entropy, _transport=object()).close()


def test_a_client_cannot_be_copied(tmp_path: Path) -> None:
    # case B01
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(make_client(tmp_path / "d"))


def test_two_clients_of_one_folder_must_agree_on_the_collector(tmp_path: Path) -> None:
    first = make_client(tmp_path / "d", background=True)
    first.record("cold_start_ms", 1)
    with pytest.raises(ConfigurationError, match="another client"):
        make_client(tmp_path / "d", background=True, endpoint="127.0.0.1:10")
    first.close()
    make_client(tmp_path / "d", background=True, endpoint="127.0.0.1:10").close()


def test_public_names(tmp_path: Path) -> None:
    import client_sdk

    for name in client_sdk.__all__:
        assert getattr(client_sdk, name) is not None
    assert set(client_sdk.__all__) <= set(dir(client_sdk))
    with pytest.raises(AttributeError):
        client_sdk.no_such_name  # noqa: B018 - the access is the test
    (tmp_path / "plan.toml").write_text(plan_text())
    assert load_plan(tmp_path / "plan.toml").metrics["cold_start_ms"].epsilon == Decimal("1.0")


def test_a_plan_that_the_collector_chose_is_bounded_by_the_device(tmp_path: Path) -> None:
    def bounds(name: str, **changes: Any) -> tuple[Limits, int]:
        parts = {"consent": True, "insecure": True, "background": False, "data_dir": tmp_path / name}
        parts |= NOWHERE | changes
        settings = TelemetryClient(DEAD, **parts)._engine.settings
        return settings.host_limits, settings.min_cohort

    assert bounds("a") == (Limits(report=4_000_000, rolling_24h=10_000_000, lifetime=3_650_000_000), 50)
    own = bounds("b", max_epsilon_report=5, max_epsilon_24h="20", max_epsilon_lifetime=5000, min_cohort=0)
    assert own == (Limits(report=5_000_000, rolling_24h=20_000_000, lifetime=5_000_000_000), 0)
    for number, pin in enumerate([{"plan_hash": bytes(32)}, {"plan_key": KEY}]):
        assert bounds(f"c{number}", **pin) == (Limits(rolling_24h=10_000_000, lifetime=3_650_000_000), 0)
    assert bounds("d", plan=make_plan()) == (Limits(), 0)
