"""What an attack is, and the small graphs that some of them need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from client_sdk.errors import AbortReason
from client_sdk.secagg import parameters
from tests.adversarial.weakening import Line, Switch


@dataclass(frozen=True)
class Spoils:
    """learnt: what the attacker got hold of, None for nothing; truth: what it wanted. victims: who must refuse."""

    learnt: Any
    truth: Any
    refusals: Mapping[int, AbortReason]
    victims: frozenset[int]


@dataclass(frozen=True)
class Attack:
    """run: plays it, against whatever code is there. off: without these checks it succeeds.

    reason: with them, why all victims leave.
    """

    run: Callable[[], Spoils]
    off: tuple[Switch, ...]
    reason: AbortReason


@contextmanager
def sparse(degree: int, threshold: int) -> Iterator[None]:
    """Rosters above eight members are on a graph of this degree. Far too few neighbours; the code is the real one."""
    parameters.round_parameters.cache_clear()
    with (
        mock.patch.object(parameters, "COMPLETE_UP_TO", 8),
        mock.patch.object(parameters, "_sparse_parameters", return_value=(degree, threshold)),
    ):
        yield
    parameters.round_parameters.cache_clear()


NOT_MET = Line("checks.check_met", "if not cohort.sees_all:", "if True:")
"""A survivor counts whether or not it has dealt to me in this round."""
