"""`serve --config FILE`: a TOML file whose keys are the options of `serve`.

Rules of this file: a key is an option's name with `_` for `-`; what is not one is refused, as is a value of the
wrong type, in one line that names file and key. Nothing here decides what values can work: `ServeSettings`
does, wherever they come from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from client_sdk.errors import ConfigurationError
from collector.service.settings import parse_duration, parse_keep, parse_size


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError("give a text in quotes")
    return value


def _path(value: object) -> Path:
    return Path(_text(value))


def _paths(value: object) -> tuple[Path, ...]:
    return tuple(map(_path, value)) if isinstance(value, list) else (_path(value),)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else (_text(value),)


def _size(value: object) -> int:
    """Text with a unit, or a number of bytes."""
    return _whole(value) if isinstance(value, int) else parse_size(_text(value))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError("give true or false")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError("give a whole number")
    return value


def _duration(value: object) -> float:
    """Text with a unit, or a number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigurationError("is too large for a time; use e.g. 30s, 500ms or 2m") from None
    return parse_duration(_text(value))


def _keep(value: object) -> float:
    """A duration, or `forever`."""
    return parse_keep(value) if isinstance(value, str) else _duration(value)


KEYS: Final[Mapping[str, tuple[str, Callable[[object], object]]]] = {
    "plan": ("plan_paths", _paths),
    "db": ("db_url", _text),
    "registrar_key": ("registrar_key", _text),
    "listen": ("listen", _text),
    "tls_cert": ("tls_cert", _path),
    "tls_key": ("tls_key", _path),
    "insecure": ("insecure", _flag),
    "step_timeout": ("step_timeout_s", _duration),
    "grace": ("grace_s", _duration),
    "expected_devices": ("expected_devices", _whole),
    "max_waiting": ("max_waiting", _whole),
    "max_streams": ("max_streams", _whole),
    "opening_workers": ("opening_workers", _whole),
    "client_ca": ("client_ca", _path),
    "name": ("names", _texts),
    "max_streams_per_address": ("max_streams_per_address", _whole),
    "max_joins": ("max_joins", _whole),
    "max_round_memory": ("max_round_bytes", _size),
    "metrics": ("metrics", _text),
    "metrics_public": ("metrics_public", _flag),
    "log_format": ("log_format", _text),
    "log_level": ("log_level", _text),
    "drain": ("drain_s", _duration),
    "reflection": ("reflection", _flag),
    "keep_spends": ("keep_spends_s", _keep),
    "keep_contributions": ("keep_contributions_s", _keep),
    "keep_rounds": ("keep_rounds_s", _keep),
}
"""Key -> the field of ServeSettings that it sets, and what reads it."""


def read_config(path: Path) -> dict[str, Any]:
    """The file's values by ServeSettings field. Raises ConfigurationError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--config {path}: {error.strerror}") from None
    except ValueError as error:  # of TOML, of UTF-8, and a number with thousands of digits
        raise ConfigurationError(f"--config {path}: not a TOML file ({error})") from None
    unknown = sorted(set(document) - set(KEYS))
    if unknown:
        raise ConfigurationError(f"--config {path}: unknown {', '.join(map(repr, unknown))}; known: {', '.join(KEYS)}")
    return dict(_read(path, key, value) for key, value in document.items())


def _read(path: Path, key: str, value: object) -> tuple[str, object]:
    setting, reader = KEYS[key]
    try:
        return setting, reader(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"--config {path}: {key}: {error}") from None
