"""Entropy for tests: seeded sources, scripted ones, and one that counts. No real client accepts any of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


def seeded(label: str) -> Callable[[int], bytes]:
    """A source that always returns the same stream for the same label: SHA-256 over the label and a counter."""
    state = {"counter": 0, "rest": b""}

    def entropy(size: int) -> bytes:
        pieces, have = [state["rest"]], len(state["rest"])
        while have < size:
            pieces.append(hashlib.sha256(f"{label}/{state['counter']}".encode()).digest())
            state["counter"] += 1
            have += 32
        data = b"".join(pieces)
        state["rest"] = data[size:]
        return data[:size]

    return entropy


class Scripted:
    """Returns the given pieces one after another; the sizes asked for must fit, and running dry is an error."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.asked: list[int] = []

    def __call__(self, size: int) -> bytes:
        self.asked.append(size)
        if not self._pieces:
            raise OutOfScript
        piece = self._pieces.pop(0)
        assert len(piece) == size, f"the script holds {len(piece)} bytes where {size} were asked for"
        return piece

    @property
    def left(self) -> int:
        return len(self._pieces)


class OutOfScript(Exception):  # noqa: N818 - a signal of the tests, no error
    """A scripted source was asked for more than it holds."""


class Untouched:
    """A source that must not be asked."""

    def __call__(self, size: int) -> bytes:
        raise AssertionError(f"{size} bytes of entropy were drawn where none may be")
