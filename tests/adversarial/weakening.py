"""Switching off one named check of the real code, so that an attack is seen to bite where nobody looks.

    switch_off(monkeypatch, Line("checks.check_status", "if cohort.index not in survivors:", "if False:"))

A `Line` compiles the real function anew with one line changed; everything else stays the real code. The line must
stand there exactly once: a check that was renamed or moved is noticed, not passed over. An `Other` puts another
function in its place, for a rule that is no line (a state that is spent before it is used).
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

ROOMS = ("client_sdk.secagg", "client_sdk", "collector.secagg", "collector", "collector.service")


@dataclass(frozen=True)
class Line:
    """`function` ("module.name", or "module.Class.name") with `line` changed to `instead`."""

    function: str
    line: str
    instead: str

    def __str__(self) -> str:
        return f"{self.function}: {self.line.strip()}"


@dataclass(frozen=True)
class Other:
    """`function` replaced; `what` says what that switches off."""

    function: str
    what: str
    instead: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.function}: {self.what}"


Switch = Line | Other


def switch_off(monkeypatch: pytest.MonkeyPatch, *switches: Switch) -> None:
    """All of these checks, until the test ends."""
    for switch in switches:
        owner, name = _find(switch.function)
        original = getattr(owner, name)
        weak = switch.instead if isinstance(switch, Other) else _compiled(original, switch)
        monkeypatch.setattr(owner, name, weak)
        if inspect.ismodule(owner):
            _everywhere(monkeypatch, name, original, weak)


def _find(path: str) -> tuple[Any, str]:
    """The module or class, and the name in it."""
    module_name, *inner = path.split(".")
    for room in ROOMS:
        try:
            owner: Any = importlib.import_module(f"{room}.{module_name}")
        except ModuleNotFoundError:
            continue
        try:
            for name in inner[:-1]:
                owner = getattr(owner, name)
        except AttributeError:
            continue
        if hasattr(owner, inner[-1]):
            return owner, inner[-1]
    raise LookupError(path)


def _compiled(original: Any, switch: Line) -> Any:
    source = getattr(original, "weak_source", None) or textwrap.dedent(inspect.getsource(original))
    assert source.count(switch.line) == 1, f"{switch.function} holds {switch.line!r} {source.count(switch.line)} times"
    flags = importlib.import_module("__future__").annotations.compiler_flag
    source = source.replace(switch.line, switch.instead)
    code = compile(source, f"<{switch}>", "exec", flags, dont_inherit=True)
    found: dict[str, Any] = {}
    module = sys.modules[original.__module__]
    exec(code, module.__dict__, found)  # noqa: S102 - the project's own source, one line of it changed
    weak = found[original.__name__]
    weak.weak_source = source  # where two lines of one function are changed
    return weak


def _everywhere(monkeypatch: pytest.MonkeyPatch, name: str, original: Any, weak: Any) -> None:
    """Also where it was imported by name."""
    for module in [m for n, m in sys.modules.items() if n.startswith(("client_sdk.", "collector."))]:
        if module.__dict__.get(name) is original:
            monkeypatch.setattr(module, name, weak)
