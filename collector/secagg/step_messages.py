"""Messages that open a step, each made when it is asked for: for a large round all at once would keep others waiting.

Rules of this file: what a message is made from does not change once the step before is closed, so when it is made
does not matter. What it does not do: it keeps no message; whoever asks twice has it made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

M_co = TypeVar("M_co", covariant=True)


class StepMessages(Mapping[int, M_co]):
    """By roster index, for the members that take part in the step. `make(index)` makes one."""

    def __init__(self, members: Iterable[int], make: Callable[[int], M_co]) -> None:
        self._members = dict.fromkeys(members)
        self._make = make

    def __getitem__(self, index: int) -> M_co:
        if index not in self._members:
            raise KeyError(index)
        return self._make(index)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
