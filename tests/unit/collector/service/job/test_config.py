"""`job --config`: what it says, and all that is wrong with it at once."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from collector.service import cli
from collector.service.job.config import KEYS, JobConfig, JobConfigError, read_job
from collector.service.report_windows import zone_of


def problems(tmp_path: Path, text: str, default_db: str | None = None) -> list[str]:
    path = tmp_path / "job.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JobConfigError) as caught:
        read_job(path, default_db)
    return [one.removeprefix(f"--config {path}: ") for one in caught.value.problems]


def test_every_key(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        """
        parquet = "exported"
        engine = "spark"
        master = "spark://head:7077"
        out = "reports"
        by = "week"
        zone = "Europe/Zurich"
        since = "2026-03-29"
        grace = "36h"
        outputs = ["otlp", "prometheus", "json"]
        prometheus_file = "a.prom"
        otlp_endpoint = "https://here:4317"
        false_devices = "2%"
        log_format = "json"
        log_level = "warning"
        """,
        encoding="utf-8",
    )
    assert set(KEYS) - {"db"} == {line.split(" = ")[0].strip() for line in path.read_text().strip().splitlines()}
    assert read_job(path, "ignored.db") == JobConfig(
        Path("reports"), None, Path("exported"), "spark", "spark://head:7077", "week", zone_of("Europe/Zurich"),
        1_774_738_800, 36 * 3600, ("json", "prometheus", "otlp"), Path("a.prom"), "https://here:4317",
        Fraction(2, 100), "json", "warning",
    )  # fmt: skip


def test_the_store_may_stand_in_the_environment_and_in_no_repr(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('out = "o"\n')
    config = read_job(path, "postgresql+psycopg://u:hunter2@h/d")
    assert config.db == "postgresql+psycopg://u:hunter2@h/d"
    assert "hunter2" not in repr(config)
    assert config.latest == Path("o/latest.prom")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        'db = "c.db"\nparquet = 7\nengine = "sql"\nby = "version"\nzone = "Mars/Olympus"\ngrace = "soon"\nwhen = 1\n'
        'outputs = ["pdf"]\nsince = "yesterday"\nfalse_devices = "many"\nlog_level = "loud"\notlp_endpoint = "h:1"\n',
    )
    assert [one.partition(":")[0] for one in found] == [
        "unknown 'when'; known", "parquet", "engine", "by", "zone", "grace", "outputs", "otlp_endpoint",
        "false_devices", "log_level", "since", "out", "db and parquet",
    ]  # fmt: skip
    assert all("\n" not in one for one in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('out = "o"', "db: name the store"),
        ('db = "c"\nout = "o"\nmaster = "spark://h:1"', "master: goes with engine = 'spark'"),
        ('parquet = "p"\nout = "o"\nengine = "python"', "engine: python goes with db"),
        ('db = "c"\nout = "o"\noutputs = ["otlp"]', "otlp_endpoint: name the receiver"),
        ('db = "c"\nout = "o"\noutputs = ["csv"]\notlp_endpoint = "http://h:1"', "otlp_endpoint: goes with otlp"),
        ('db = "c"\nout = "o"\noutputs = ["csv"]\nprometheus_file = "p"', "prometheus_file: goes with prometheus"),
        ('db = "c"\nout = "o"\noutputs = []', "outputs: give a list"),
        ('db = ""\nout = "o"', "db: give a text"),
        ('db = "c"\nout = "o"\ngrace = "4000000d"', "grace: give whole seconds"),
        ('db = "c"\nout = "o"\ngrace = 2', "grace: give a text"),
        ('db = "c"\nout = "o"\nby = ["day"]', "by: \"['day']\" is none of day, week, month"),
        ("db = ", "not a TOML file"),
        ("db = " + "[" * 5_000, "not a TOML file"),
        ('db = "c"\nout = "a\\u0000b"', "out: no text with a zero character"),
        *(
            (f'db = "c"\nout = "o"\noutputs = ["otlp"]\notlp_endpoint = "{bad}"', "otlp_endpoint: give http://HOST")
            for bad in ("http://[::1", "http://:4317", "https://h:99999", "http://h:port", "ftp://h:1", "http://h\\n:1")
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith(said)


def test_the_command_says_each_in_a_line_and_leaves_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.toml").write_text('dbb = "c"\nby = "hour"\n')
    assert cli.main(["job", "--config", str(tmp_path / "job.toml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"ldp-collector job: --config {tmp_path}/job.toml: ") for line in lines)
    assert cli.main(["job", "--config", str(tmp_path / "none.toml")]) == 2
