"""Wrong configuration raises when the client is made, with one line that names the setting."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk import ConfigurationError, PlanError, TelemetryClient, load_plan
from client_sdk.accounting.budget import Limits
from client_sdk.device.settings import is_loopback
from tests.fleet import seeded
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
    ],
)
def test_every_setting_is_checked_and_named(tmp_path: Path, name: str, value: Any) -> None:
    assert name in refused(tmp_path / "d", **{name: value})


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
    def limits(name: str, **changes: Any) -> Limits:
        parts = {"consent": True, "insecure": True, "background": False, "data_dir": tmp_path / name} | changes
        return TelemetryClient(DEAD, **parts)._engine.settings.host_limits

    assert limits("a") == Limits(rolling_24h=10_000_000, lifetime=3_650_000_000)
    own = limits("b", max_epsilon_24h="20", max_epsilon_lifetime=5000)
    assert own == Limits(rolling_24h=20_000_000, lifetime=5_000_000_000)
    assert limits("c", plan=make_plan()) == Limits()
