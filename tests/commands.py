"""`ldp-collector` in the process of the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collector.service import cli

Ran = tuple[int, str, str]
"""(exit status, stdout, stderr)"""

Run = Callable[..., Ran]


def in_process(capsys: pytest.CaptureFixture[str]) -> Run:
    """What runs the command with these arguments."""

    def run(*arguments: object) -> Ran:
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse's way out
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return run
