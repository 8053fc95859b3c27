"""Every drop pattern of up to seven members: each leaves at one of four steps or not at all, 5^n patterns.

Participants' states are frozen, so a fleet is forked by copying the objects around them: the patterns form a tree
whose inner steps are worked once, and every leaf is opened on its own.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from client_sdk import identity
from client_sdk.errors import AbortReason, RoundAbortedError
from client_sdk.secagg import checks
from client_sdk.secagg.messages import CollectorMessage, ParticipantMessage
from client_sdk.secagg.participant import Participant
from collector.secagg import status
from collector.secagg.opening import open_sum
from collector.secagg.round import STEPS, Phase, Round
from collector.secagg.shares import DealtShares, ReleasedShares
from collector.secagg.status import CommittedStatus
from tests.fleet import Fleet, column_sums, rules

TOO_FEW = {
    Phase.SHARES: AbortReason.TOO_FEW_SHARERS,
    Phase.MASKED_INPUT: AbortReason.TOO_FEW_SURVIVORS,
    Phase.CONFIRM: AbortReason.TOO_FEW_CONFIRMATIONS,
    Phase.UNMASK: AbortReason.TOO_FEW_RESPONSES,
}
MIN_SIZE = 2


@dataclass(frozen=True)
class Node:
    """A round at the beginning of a step: `present` are its members, `left` how many went at each step before."""

    round: Round
    participants: Mapping[int, Participant]
    messages: Mapping[int, CollectorMessage]
    left: tuple[int, ...] = ()


def fork(round_: Round) -> Round:
    """The round with what it still changes copied; what it has settled is shared."""
    twin: Round = forked(round_)
    return twin


def forked(value: Any) -> Any:
    if isinstance(value, Counter):
        return value.copy()
    if isinstance(value, dict):
        return {key: list(held) if isinstance(held, list) else held for key, held in value.items()}
    if isinstance(value, (list, set, np.ndarray)):
        return value.copy()
    if isinstance(value, (Round, DealtShares, CommittedStatus, ReleasedShares)):
        twin = copy.copy(value)
        for name, inner in vars(value).items():
            setattr(twin, name, forked(inner))
        return twin
    return value


def answers(node: Node) -> tuple[dict[int, Participant], dict[int, list[ParticipantMessage]]]:
    """What every present member says to its message. Whoever then leaves has not said it."""
    after = {index: copy.copy(node.participants[index]) for index in node.messages}
    return after, {index: after[index].receive(message, 0.0) for index, message in node.messages.items()}


def subsets(members: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(members) + 1):
        yield from combinations(members, size)


def walk(node: Node, vectors: list[list[int]], seen: Counter[str]) -> int:
    """Try every set of leavers at this step and, below, at the later ones. Returns the number of patterns."""
    step = node.round.phase
    after, replies = answers(node)
    patterns = 0
    for stayers in subsets(tuple(node.messages)):
        round_ = fork(node.round)
        for index in node.messages:
            if index not in stayers:
                round_.leave(index)
            else:
                for reply in replies[index]:
                    round_.receive(index, reply)
        left = (*node.left, len(node.messages) - len(stayers))
        try:
            messages = round_.close()
        except RoundAbortedError as error:
            check_abort(round_, step, error, len(stayers), left)
            seen[error.reason.value] += 1
            # Whoever stayed could still have left at each later step, or not: all these patterns end here.
            patterns += (len(STEPS) - STEPS.index(step)) ** len(stayers)
            continue
        if step is Phase.UNMASK:
            check_sum(round_, vectors, left)
            seen["recovered" if len(round_.survivors) < len(round_.sharers) else "released"] += 1
            patterns += 1
        else:
            patterns += walk(Node(round_, after, messages, left), vectors, seen)
    return patterns


def check_abort(round_: Round, step: Phase, error: RoundAbortedError, stayers: int, left: tuple[int, ...]) -> None:
    need = max(MIN_SIZE, round_.threshold) if step in (Phase.SHARES, Phase.MASKED_INPUT) else round_.threshold
    assert (error.reason, error.have, error.need) == (TOO_FEW[step], stayers, need)
    assert stayers < need
    assert tuple(round_.dropouts.values()) == (*left, 0, 0, 0)[:4]
    assert round_.phase is Phase.ABORTED


def check_sum(round_: Round, vectors: list[list[int]], left: tuple[int, ...]) -> None:
    assert open_sum(round_.opening()) == column_sums(vectors, round_.survivors)
    assert len(round_.survivors) >= max(MIN_SIZE, round_.threshold)
    assert tuple(round_.dropouts.values()) == left
    assert len(round_.survivors) == round_.size - left[0] - left[1]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, pytest.param(7, marks=pytest.mark.slow)])
def test_every_drop_pattern(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact integer sum, or a clean abort with the right reason and counts: nothing else, 5^size times."""
    # The same few thousand signatures are seen over and over in the patterns.
    verify_once = lru_cache(maxsize=None)(identity.verify)
    for module in (checks, status):
        monkeypatch.setattr(module, "verify", verify_once)
    vectors = [[(-1) ** i * 10**i] for i in range(size)]
    fleet = Fleet(vectors, rules(1, min_size=MIN_SIZE, bound=10**size))
    messages = fleet.join()
    seen: Counter[str] = Counter()
    root = Node(fleet.round, dict(enumerate(fleet.participants)), messages)
    assert walk(root, vectors, seen) == 5**size
    assert set(seen) >= {"released", *(reason.value for reason in TOO_FEW.values())}
    if size > 2:
        assert seen["recovered"] > 0
    assert fleet.round.phase is Phase.SHARES, "forks never touched the root"
