"""Reading a plan from disk: the only file reader outside `device/`.

Rules of this file: whatever is wrong with the file ends in one line that begins with its path; the text itself
is judged by `parse_plan` alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from client_sdk.errors import ConfigurationError, PlanError
from client_sdk.plan import MAX_PLAN_BYTES, Plan, parse_plan


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read and parse the plan at `path`.

    Raises ConfigurationError (one line) where the file cannot be read, PlanError where it holds no valid plan.
    """
    text = _text(Path(path))
    try:
        return parse_plan(text)
    except PlanError as error:
        raise PlanError([f"{path}: {problem}" for problem in error.problems]) from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_PLAN_BYTES + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file; give the path of a plan (TOML)") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: is a directory; give the path of a plan (TOML)") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
        raise ConfigurationError(f"{str(path)!r}: cannot be read ({reason})") from None
    if len(data) > MAX_PLAN_BYTES:
        raise PlanError(f"{path}: larger than the limit of {MAX_PLAN_BYTES} bytes for a plan")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: not UTF-8 text (byte {error.start})") from None
