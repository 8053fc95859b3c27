"""The device tests' own helpers."""

from __future__ import annotations

from tests.unit.client_sdk.device.helpers import soon


def test_what_came_true_once_is_not_asked_again() -> None:
    answers = iter([False, True, False])
    assert soon(lambda: next(answers))
    assert list(answers) == [False]


def test_what_never_comes_true_is_said_in_time() -> None:
    assert not soon(lambda: False, within_s=0.05)
    assert soon(lambda: True, within_s=0.0), "it is looked at once"
