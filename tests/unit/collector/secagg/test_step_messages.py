"""Messages of a step are made when they are looked up, for its members alone."""

from __future__ import annotations

import pytest

from collector.secagg.step_messages import StepMessages


def test_made_when_looked_up() -> None:
    made: list[int] = []

    def make(index: int) -> str:
        made.append(index)
        return f"for {index}"

    messages = StepMessages([2, 5], make)
    assert (list(messages), len(messages), 5 in messages, made) == ([2, 5], 2, True, [5])
    assert messages[2] == "for 2"
    assert dict(messages) == {2: "for 2", 5: "for 5"}
    with pytest.raises(KeyError):
        messages[3]
    assert made[1:] == [2, 2, 5]
