"""Ctrl-C while `ldp-collector` still imports: no traceback, status 130, and nobody else's handler is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from collector.service import cli

ROOT = Path(__file__).resolve().parents[4]

HOOK = """
import signal, sys, weakref
signal.signal(signal.SIGINT, signal.{handler})
class Key: pass
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            if {forgotten}:  # in a callback an exception is printed and forgotten
                key = Key()
                held = weakref.ref(key, lambda _: signal.raise_signal(signal.SIGINT))
                del key
            else:
                signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
from collector.service.cli import main
sys.exit(main(sys.argv[1:]))
"""


def interrupted_at(module: str, *, forgotten: bool = False, handler: str = "default_int_handler") -> tuple[int, str]:
    code = HOOK.format(module=module, forgotten=forgotten, handler=handler)
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", "check", "/nowhere/plan.toml"],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize(
    "module", ["collector.service.cli_common", "collector.reports.text", "collector.service.cli_plan"]
)
def test_an_interrupt_among_imports_is_quiet(module: str, forgotten: bool) -> None:
    assert interrupted_at(module, forgotten=forgotten) == (130, "")


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    """As of a job that a shell began in the background: it goes on, to the plan that is not there."""
    status, said = interrupted_at("collector.reports.text", handler="SIG_IGN")
    assert status == 2
    assert "/nowhere/plan.toml" in said


def test_the_callers_handler_is_there_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def own(*_: object) -> None:
        seen.append(1)

    for handler in (signal.default_int_handler, own):
        before = signal.signal(signal.SIGINT, handler)
        try:
            assert cli.main(["plan", "check", "/nowhere/plan.toml"]) == 2
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=lambda: seen.append(cli.main(["plan", "check", "/nowhere/plan.toml"])))
    thread.start()
    thread.join(30)
    assert seen == [2], "outside the main thread no handler can be set, and none is needed"
    capsys.readouterr()
