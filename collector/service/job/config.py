"""`job --config FILE`: a TOML file, and all that is wrong with it at once.

Rules of this file: what is not a key is refused, as is a value of the wrong type or without a meaning; every fault is a
line of its own that names the key. Nothing is opened in here but that file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from client_sdk.errors import ConfigurationError
from collector.poisoning import SHARE
from collector.reports import parse_instant
from collector.service import quantities
from collector.service.engines.choice import DUCKDB, ENGINES, PYTHON, SPARK
from collector.service.on_disk import kept_there
from collector.service.report_windows import FINEST_FIRST, Zone, zone_of
from collector.service.settings import parse_duration

OUTPUTS: Final = ("json", "csv", "html", "parquet", "privacy", "prometheus", "otlp")
LOG_FORMATS: Final = ("console", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
MOST_GRACE_S: Final = 10 * 366 * 86_400


class JobConfigError(ConfigurationError):
    """One line for each fault."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.problems = tuple(f"--config {path}: {problem}" for problem in problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One of db and parquet is given. db may hold a password, so it is in no repr.

    engine: None: as `report` chooses. since: the first window is the one that this instant is in; None: that of the
    first sum. false_devices: as of `report`.
    """

    out: Path
    db: str | None = field(default=None, repr=False)
    parquet: Path | None = None
    engine: str | None = None
    master: str | None = None
    by: str = "day"
    zone: Zone = field(default_factory=Zone)
    since: int | None = None
    grace_s: int = 2 * 86_400
    outputs: tuple[str, ...] = ("json", "csv")
    prometheus_file: Path | None = None
    otlp_endpoint: str | None = None
    false_devices: Fraction | int = SHARE
    log_format: str = "console"
    log_level: str = "info"

    @property
    def latest(self) -> Path:
        """Where Prometheus' text goes."""
        return self.prometheus_file or self.out / "latest.prom"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError("give a text in quotes")
    if "\0" in value:
        raise ConfigurationError("no text with a zero character in it is a name")
    return value


def _path(value: object) -> Path:
    return Path(_text(value))


def _one_of(*known: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in known:
            raise ConfigurationError(f"{str(value)[:40]!r} is none of {', '.join(known)}")
        return str(value)

    return read


def _outputs(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ConfigurationError(f'give a list such as ["json", "html"], of {", ".join(OUTPUTS)}')
    if unknown := [one for one in value if one not in OUTPUTS]:
        raise ConfigurationError(f"{', '.join(repr(str(one)[:40]) for one in unknown)}: known: {', '.join(OUTPUTS)}")
    return tuple(name for name in OUTPUTS if name in value)


def _grace(value: object) -> int:
    seconds = parse_duration(_text(value))
    if not 0 <= seconds <= MOST_GRACE_S or seconds != int(seconds):
        raise ConfigurationError("give whole seconds, at most ten years, such as 2d")
    return int(seconds)


def _zone(value: object) -> Zone:
    try:
        return zone_of(_text(value))
    except ConfigurationError as error:
        raise ConfigurationError(str(error).removeprefix("--zone ")) from None


def _free(value: object) -> Path:
    path = _path(value)
    kept = kept_there(path)
    if kept is not None:
        raise ConfigurationError(f"{path} is {kept}, which no output replaces; name another file")
    return path


def _false_devices(value: object) -> Fraction | int:
    try:
        return quantities.false_devices(_text(value))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _endpoint(value: object) -> str:
    text = _text(value)
    if not _is_address(text):
        raise ConfigurationError("give http://HOST:PORT or https://HOST:PORT, of an OTLP receiver's gRPC port")
    return text


def _is_address(text: str) -> bool:
    """Of a host, its port if one is given."""
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:  # of brackets, and of a port that is none
        return False


KEYS: Final[Mapping[str, tuple[str, Callable[[Any], object]]]] = {
    "db": ("db", _text),
    "parquet": ("parquet", _path),
    "engine": ("engine", _one_of(*ENGINES)),
    "master": ("master", _text),
    "out": ("out", _path),
    "by": ("by", _one_of(*FINEST_FIRST)),
    "zone": ("zone", _zone),
    "since": ("since", _text),
    "grace": ("grace_s", _grace),
    "outputs": ("outputs", _outputs),
    "prometheus_file": ("prometheus_file", _free),
    "otlp_endpoint": ("otlp_endpoint", _endpoint),
    "false_devices": ("false_devices", _false_devices),
    "log_format": ("log_format", _one_of(*LOG_FORMATS)),
    "log_level": ("log_level", _one_of(*LOG_LEVELS)),
}
"""Key -> the field of JobConfig that it sets, and what reads it."""


def read_job(path: Path, default_db: str | None = None) -> JobConfig:
    """default_db: the store where the file names neither `db` nor `parquet`. Raises JobConfigError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JobConfigError(path, [error.strerror or "cannot be read"]) from None
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, a number with thousands of digits, and brackets
        raise JobConfigError(path, [f"not a TOML file ({error})"]) from None
    problems = [f"unknown {key!r}; known: {', '.join(KEYS)}" for key in sorted(set(document) - set(KEYS))]
    found: dict[str, Any] = {}
    for key in KEYS:
        if key in document:
            try:
                name, reader = KEYS[key]
                found[name] = reader(document[key])
            except ConfigurationError as error:
                problems.append(f"{key}: {error}")
    if "db" not in document and "parquet" not in document and default_db is not None:
        found["db"] = default_db
    problems += _since(found)
    problems += _together(found, document)
    if problems:
        raise JobConfigError(path, problems)
    return JobConfig(**found)


def _since(found: dict[str, Any]) -> Iterator[str]:
    if "since" in found:
        zone = found.get("zone", Zone())
        try:
            found["since"] = parse_instant(found["since"], zone.rules)
        except ConfigurationError as error:
            yield f"since: {error}"


def _together(found: Mapping[str, Any], document: Mapping[str, object]) -> Iterator[str]:
    """What does not go together, of the keys whose values have a meaning."""
    engine, outputs = found.get("engine"), found.get("outputs", ())
    if "out" not in document:
        yield "out: name the folder that the windows' folders are in"
    if "db" in document and "parquet" in document:
        yield "db and parquet: give one of them"
    if "db" not in document and "parquet" not in document and "db" not in found:
        yield "db: name the store, or `parquet`: the folder of an export (or the store in $LDP_COLLECTOR_DB)"
    if "parquet" in document and engine == PYTHON:
        yield f"engine: {PYTHON} goes with db; take {DUCKDB} or {SPARK}"
    if "master" in document and engine != SPARK:
        yield f"master: goes with engine = {SPARK!r}"
    if "otlp" in outputs and "otlp_endpoint" not in document:
        yield "otlp_endpoint: name the receiver that `otlp` of outputs goes to"
    if "otlp_endpoint" in document and "outputs" in found and "otlp" not in outputs:
        yield "otlp_endpoint: goes with otlp in outputs"
    if "prometheus_file" in document and "outputs" in found and "prometheus" not in outputs:
        yield "prometheus_file: goes with prometheus in outputs"
