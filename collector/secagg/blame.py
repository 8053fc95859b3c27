"""Whom a round blames, and for what: only what nobody but the blamed member can have done.

Rules of this file: a fault is provable from messages that the member itself signed or sent on its own stream; a
member that is silent, slow or gone is never blamed. What it does not do: it decides no consequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from client_sdk.errors import AbortReason, RoundAbortedError


class Fault(Enum):
    """What a member did. The values are stored and counted by name."""

    WRONG_SHARE = "wrong_share"
    """It released a share that is not the one whose hash the share's owner signed. (A holder that keeps to the protocol
    compares each share with that hash when it arrives, and does not use another one.)"""

    UNUSABLE_SHARES = "unusable_shares"
    """It dealt shares that more holders could not use than may be lying about it."""

    WRONG_SEED = "wrong_seed"
    """It signed the hashes of shares of another seed than the one it advertised."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Member `index` of the roster did `fault`."""

    index: int
    fault: Fault


class SeedsRefusedError(RoundAbortedError):
    """Some reconstructed seeds are not the advertised ones; `blamed` are their owners, by roster index."""

    def __init__(self, blamed: Iterable[int], *, have: int, need: int) -> None:
        super().__init__(AbortReason.WRONG_SHARES, have=have, need=need)
        self.blamed = tuple(Blame(index, Fault.WRONG_SEED) for index in blamed)
