"""`serve --config`: the file's values, the options over them, and one line for what is wrong."""

from __future__ import annotations

import argparse
import dataclasses
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
"""


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
