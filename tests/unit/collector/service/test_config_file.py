"""`serve --config`: the file's values, the options over them, and one line for what is wrong."""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from collector.service import cli, cli_serve
from collector.service.cli_common import OneLineParser
from collector.service.config_file import KEYS, read_config
from collector.service.settings import ServeSettings

WHOLE = """
plan = ["a.toml", "b.toml"]
db = "sqlite:///c.db"
registrar_key = "r.pub"
listen = "127.0.0.1:9"
insecure = true
step_timeout = "2m"
grace = 1.5
expected_devices = 300
max_waiting = 7
max_streams = 8
opening_workers = 2
metrics = "127.0.0.1:9464"
metrics_public = false
log_format = "json"
log_level = "warning"
drain = "5s"
reflection = true
keep_spends = "400d"
keep_contributions = "90d"
keep_rounds = "forever"
"""


NEEDED = "plan = 'a.toml'\ndb = 'c.db'\nregistrar_key = 'r.pub'\ninsecure = true\n"


def parsed(*options: str) -> argparse.Namespace:
    """What argparse makes of `serve` and its options."""
    parser = OneLineParser(prog="ldp-collector")
    cli_serve.add_parser(parser.add_subparsers(dest="command", parser_class=OneLineParser))
    return parser.parse_args(["serve", *options])


def settings(tmp_path: Path, text: str, *options: str) -> ServeSettings:
    path = tmp_path / "collector.toml"
    path.write_text(text, encoding="utf-8")
    return cli_serve.settings_of(parsed("--config", str(path), *options))


def test_every_setting_has_a_key_and_every_key_an_option() -> None:
    assert {setting for setting, _ in KEYS.values()} == {field.name for field in dataclasses.fields(ServeSettings)}
    assert set(KEYS) <= set(vars(parsed()))


def test_the_files_values(tmp_path: Path) -> None:
    assert settings(tmp_path, WHOLE) == ServeSettings(
        plan_paths=(Path("a.toml"), Path("b.toml")),
        db_url="sqlite:///c.db",
        registrar_key="r.pub",
        listen="127.0.0.1:9",
        insecure=True,
        step_timeout_s=120.0,
        grace_s=1.5,
        expected_devices=300,
        max_waiting=7,
        max_streams=8,
        opening_workers=2,
        metrics="127.0.0.1:9464",
        log_format="json",
        log_level="warning",
        drain_s=5.0,
        reflection=True,
        keep_spends_s=400 * 86_400.0,
        keep_contributions_s=90 * 86_400.0,
    )


def test_an_option_wins_over_the_file(tmp_path: Path) -> None:
    options = [
        "--plan",
        "x.toml",
        "--db",
        "d.db",
        "--registrar-key",
        "00",
        "--listen",
        "[::1]:8",
        "--no-insecure",
        "--tls-cert",
        "c.pem",
    ]
    options += [
        "--registrar-key",
        "00",
        "--tls-key",
        "k.pem",
        "--step-timeout",
        "500ms",
        "--grace",
        "0",
        "--expected-devices",
        "1",
    ]
    options += ["--max-waiting", "2", "--max-streams", "3", "--opening-workers", "4"]
    options += ["--metrics", "0.0.0.0:1", "--metrics-public", "--log-format", "console", "--log-level", "debug"]
    options += ["--drain", "0", "--no-reflection", "--keep-spends", "forever", "--keep-contributions", "forever"]
    options += ["--keep-rounds", "30d"]
    assert settings(tmp_path, WHOLE, *options) == ServeSettings(
        plan_paths=(Path("x.toml"),),
        db_url="d.db",
        registrar_key="00",
        listen="[::1]:8",
        tls_cert=Path("c.pem"),
        tls_key=Path("k.pem"),
        insecure=False,
        step_timeout_s=0.5,
        grace_s=0.0,
        expected_devices=1,
        max_waiting=2,
        max_streams=3,
        opening_workers=4,
        metrics="0.0.0.0:1",
        metrics_public=True,
        log_level="debug",
        keep_spends_s=math.inf,
        keep_contributions_s=math.inf,
        keep_rounds_s=30 * 86_400.0,
    )


def test_what_neither_says_is_the_default(tmp_path: Path) -> None:
    one = 'plan = "a.toml"\ndb = "c.db"\nregistrar_key = "r.pub"\n'
    assert settings(tmp_path, one, "--insecure") == ServeSettings((Path("a.toml"),), "c.db", "r.pub", insecure=True)
    without_file = cli_serve.settings_of(
        parsed("--plan", "a.toml", "--db", "c.db", "--registrar-key", "r.pub", "--insecure")
    )
    assert without_file == settings(tmp_path, one, "--insecure")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = 1\nplan = 'x'\n[log]\nlevel = 1", ("'colour', 'log'", "known: plan, db")),
        ("plan = 7", ("plan", "quotes")),
        ("plan = ['a', 7]", ("plan", "quotes")),
        ("db = true", ("db", "quotes")),
        ("insecure = 'yes'", ("insecure", "true or false")),
        ("max_waiting = '7'", ("max_waiting", "whole number")),
        ("max_waiting = true", ("max_waiting", "whole number")),
        ("max_streams = 1.5", ("max_streams", "whole number")),
        ("grace = 'soon'", ("grace", "duration")),
        ("step_timeout = true", ("step_timeout", "quotes")),
        (
            "step_timeout = nan\nplan = 'x'\ndb = 'c.db'\nregistrar_key = 'r'\ninsecure = true",
            ("--step-timeout", "nan"),
        ),
        ("metrics_public = 'yes'", ("metrics_public", "true or false")),
        ("keep_rounds = 'never'", ("keep_rounds", "not a duration")),
        (f"{NEEDED}metrics = '0.0.0.0:9464'", ("--metrics:", "--metrics-public")),
        (f"{NEEDED}metrics = '9464'", ("--metrics:", "HOST:PORT")),
        (f"{NEEDED}metrics_public = true", ("--metrics-public", "goes with --metrics")),
        (f"{NEEDED}log_format = 'xml'", ("--log-format", "console, json")),
        (f"{NEEDED}log_level = 'loud'", ("--log-level", "debug, info")),
        (f"{NEEDED}drain = -1", ("--drain", "not -1;")),
        (f"{NEEDED}keep_spends = '30d'", ("--keep-spends", "365d")),
        (f"{NEEDED}keep_contributions = '1h'", ("--keep-contributions", "1d")),
        ("plan = [\n", ("TOML",)),
        ("plan = 'a'\nplan = 'b'", ("TOML",)),
        ("plan = 'a'", ("of --config: --db, --registrar-key\n",)),
        ("plan = 'a'\ndb = 'c.db'", ("of --config: --registrar-key\n",)),
        ("db = 'c.db'\nregistrar_key = 'r'", ("of --config: --plan\n",)),
        ("plan = []\ndb = 'c.db'\nregistrar_key = 'r'", ("--plan",)),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "collector.toml"
    path.write_text(text, encoding="utf-8")
    assert cli.main(["serve", "--config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert all(word in err for word in words), err


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml: No such file"):
        read_config(tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not a TOML file"):
        read_config(binary)


# --- a password, and where it may stand -------------------------------------------------------------------------------

URL = "postgresql+psycopg://ldp:SENTINEL@db.example/ldp"


def test_the_environment_names_the_store_where_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDP_COLLECTOR_DB", URL)
    without = NEEDED.replace("db = 'c.db'\n", "")
    assert settings(tmp_path, without).db_url == URL
    assert settings(tmp_path, NEEDED).db_url == "c.db", "the file wins"
    assert settings(tmp_path, NEEDED, "--db", "d.db").db_url == "d.db", "and an option over both"
    monkeypatch.setenv("LDP_COLLECTOR_DB", "")
    with pytest.raises(ConfigurationError, match="--db"):
        settings(tmp_path, without)


def test_a_password_is_not_in_the_settings_texts(tmp_path: Path) -> None:
    assert "SENTINEL" not in repr(settings(tmp_path, NEEDED, "--db", URL))


@pytest.mark.parametrize(
    ("mode", "options", "warned"),
    [
        (0o600, [], ""),
        (0o640, [], "others than its owner can read the password"),
        (0o604, [], "others than its owner can read the password"),
        (0o600, ["--db", URL], "whoever lists this machine's processes can read the password"),
    ],
)
def test_a_password_that_others_can_read_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, options: list[str], warned: str
) -> None:
    path = tmp_path / "collector.toml"
    path.write_text(NEEDED.replace("c.db", URL), encoding="utf-8")
    path.chmod(mode)
    cli_serve._warn_of_passwords(parsed("--config", str(path), *options))
    assert (warned in caplog.text, bool(caplog.text)) == (True, bool(warned))
    assert "SENTINEL" not in caplog.text


def test_a_file_without_a_password_may_be_read_by_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "collector.toml"
    path.write_text(NEEDED, encoding="utf-8")
    path.chmod(0o644)
    cli_serve._warn_of_passwords(parsed("--config", str(path), "--db", "postgresql://ldp@db.example/ldp"))
    assert not caplog.text


BOUNDS = (
    ("max_streams", 1_000_000),
    ("max_streams_per_address", 1_000_000),
    ("max_joins", 1_000_000),
    ("max_waiting", 1_000_000_000),
    ("expected_devices", 1_000_000_000),
    ("opening_workers", 256),
    ("max_round_memory", 10**15),
)


@pytest.mark.parametrize(("key", "most"), BOUNDS)
def test_every_number_has_its_bounds_and_is_named_by_its_own_option(tmp_path: Path, key: str, most: int) -> None:
    option = f"--{key.replace('_', '-')}"
    for good in (1, most):
        settings(tmp_path, f"{NEEDED}{key} = {good}\n")
    for bad in (0, most + 1, 10**20):
        message = rf"^{option}: must be a whole number, 1 to {most}\b.*, not {bad}$"
        with pytest.raises(ConfigurationError, match=message):
            settings(tmp_path, f"{NEEDED}{key} = {bad}\n")
        with pytest.raises((ConfigurationError, SystemExit)):  # a size has twelve digits at most
            settings(tmp_path, NEEDED, option, str(bad))
    with pytest.raises(ConfigurationError, match=rf"^{option}: .* more than 24 digits$"):
        settings(tmp_path, f"{NEEDED}{key} = {10**400}\n")


@pytest.mark.parametrize("key", ["grace", "step_timeout", "drain"])
@pytest.mark.parametrize("bad", ["99999999999d", "86401s", "9" * 400])
def test_every_wait_ends_within_a_day(tmp_path: Path, key: str, bad: str) -> None:
    option = f"--{key.replace('_', '-')}"
    settings(tmp_path, NEEDED, option, "1d")
    for given in ((f'{NEEDED}{key} = "{bad}"\n',), (NEEDED, option, bad)):
        with pytest.raises(ConfigurationError, match=rf"^{option}: .* at most 86400 seconds \(1d\), not [0-9.e+inf]+;"):
            settings(tmp_path, *given)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_time_or_a_number_beyond_all_measure_is_one_line(tmp_path: Path, digits: int) -> None:
    with pytest.raises(ConfigurationError, match=r"^--config .*(too large|not a TOML file)"):
        settings(tmp_path, f"{NEEDED}grace = {'9' * digits}\n")


def test_what_is_kept_for_more_than_a_millennium_is_kept_forever(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^--keep-rounds: must be at most 366000d, or `forever`"):
        settings(tmp_path, NEEDED, "--keep-rounds", "99999999999d")
