"""Reading plans, their signatures and public keys from disk: the only file reader outside `device/`.

Rules of this file: whatever is wrong with the file ends in one line that begins with its path; the text itself
is judged by `parse_plan` alone. A public key is 64 hex digits wherever it is written, so that it can be read out,
compared and pasted.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from client_sdk.errors import ConfigurationError, PlanError
from client_sdk.identity import PUBLIC_KEY_BYTES, is_valid_public_key
from client_sdk.plan import MAX_PLAN_BYTES, Plan, parse_plan
from client_sdk.plan.signature import PlanSignature

_HEX_KEY: Final = re.compile(rf"[0-9a-fA-F]{{{2 * PUBLIC_KEY_BYTES}}}", re.ASCII)
_MAX_KEY_FILE_BYTES: Final = 1024


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


def load_plan_signature(plan_path: str | os.PathLike[str]) -> PlanSignature | None:
    """The operator's signature beside a plan, or None where there is no file of that name.

    Raises ConfigurationError where the file cannot be read or holds no signature.
    """
    path = signature_path(plan_path)
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_KEY_FILE_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from None
    signature = PlanSignature.from_text(text)
    if signature is None:
        raise ConfigurationError(f"{path}: holds no signature; make it with `ldp-collector plan sign {plan_path}`")
    return signature


def signature_path(plan_path: str | os.PathLike[str]) -> Path:
    """Where the signature of a plan's file rests: beside it."""
    return Path(f"{os.fspath(plan_path)}.sig")


def load_public_key(value: object, name: str) -> bytes:
    """An Ed25519 public key, 32 bytes, from those bytes, from 64 hex digits, or from a file that holds them.

    name: the setting, which the text of a ConfigurationError begins with.
    """
    if isinstance(value, bytes):
        key = value
    elif isinstance(value, (str, os.PathLike)):
        key = _hex_key(value, name)
    else:
        key = b""
    if not is_valid_public_key(key):
        raise ConfigurationError(
            f"{name}: must be an Ed25519 public key: {PUBLIC_KEY_BYTES} bytes, {2 * PUBLIC_KEY_BYTES} hex digits, "
            "or the path of a file that holds them"
        )
    return key


def _hex_key(value: str | os.PathLike[Any], name: str) -> bytes:
    """Empty where there are no 64 hex digits; what stands there instead is not repeated."""
    text = os.fsdecode(value).strip()
    if not _HEX_KEY.fullmatch(text):
        try:
            with open(value, "rb") as stream:
                text = stream.read(_MAX_KEY_FILE_BYTES).decode("ascii", "replace").strip()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
            raise ConfigurationError(
                f"{name}: neither {2 * PUBLIC_KEY_BYTES} hex digits nor a file that can be read ({reason})"
            ) from None
    if "PRIVATE KEY-----" in text:
        raise ConfigurationError(
            f"{name}: {os.fsdecode(value)} is the private half of a key, for its owner only; give the public one"
        )
    return bytes.fromhex(text) if _HEX_KEY.fullmatch(text) else b""
