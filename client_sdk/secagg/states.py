"""The states of a participant: each holds exactly what its moment may know, and is used once.

Rules of this file: frozen, without methods, secrets never in a repr. What is missing from a state is meant: once
the shares are dealt the channel's sending keys are gone, after masking the vector and the mask keys are, after
confirming one of every owner's two shares is, and the identity: it signs one status a round. What may come in which
state stands in `participant.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_sdk.secagg.checks import Confirmed
from client_sdk.secagg.cohort import Cohort
from client_sdk.secagg.keys import RoundSecrets, SharePair
from client_sdk.secagg.messages import Advert, AlreadyCounted, ComeBack, Hello, Receipt, RoundAborted
from client_sdk.secagg.parameters import RoundRules

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from client_sdk.identity import IdentityKey

Entropy = Callable[[int], bytes]
Outcome = Receipt | AlreadyCounted | ComeBack | RoundAborted


@dataclass(frozen=True, slots=True)
class Report:
    """What is to be carried, who vouches for it, and the means to hide it."""

    identity: IdentityKey
    registrar_key: bytes
    rules: RoundRules
    vector: array[int] = field(repr=False)
    entropy: Entropy = field(repr=False)


@dataclass(frozen=True, slots=True)
class AwaitingChallenge:
    hello: Hello
    resent: bool
    min_cohort: int
    report: Report


@dataclass(frozen=True, slots=True)
class Start:
    next: AwaitingChallenge


@dataclass(frozen=True, slots=True)
class AwaitingJoined:
    report: Report
    advert: Advert
    sent_at: float
    secrets: RoundSecrets = field(repr=False)


@dataclass(frozen=True, slots=True)
class AwaitingRoster:
    report: Report
    advert: Advert
    sent_at: float
    secrets: RoundSecrets = field(repr=False)


@dataclass(frozen=True, slots=True)
class AwaitingShares:
    identity: IdentityKey
    cohort: Cohort
    vector: array[int] = field(repr=False)
    mask_private: X25519PrivateKey = field(repr=False)
    self_mask_seed: bytes = field(repr=False)
    own_pair: SharePair | None = field(repr=False)  # where I am among my holders
    receiving_keys: Mapping[int, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class AwaitingStatus:
    identity: IdentityKey
    cohort: Cohort
    sharers: tuple[int, ...]
    pairs: Mapping[int, SharePair] = field(repr=False)


@dataclass(frozen=True, slots=True)
class AwaitingUnmask:
    dropped: tuple[int, ...]
    confirmed: Confirmed
    receipt: Receipt  # the only one that fits it
    releasable: Mapping[int, bytes] = field(repr=False)  # one share an owner; the other kind is gone


@dataclass(frozen=True, slots=True)
class AwaitingReceipt:
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Ended:
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Spent:
    """While a message is being worked on, and for ever after a refusal."""


State = (
    Start
    | AwaitingChallenge
    | AwaitingJoined
    | AwaitingRoster
    | AwaitingShares
    | AwaitingStatus
    | AwaitingUnmask
    | AwaitingReceipt
    | Ended
    | Spent
)

InRound = AwaitingRoster | AwaitingShares | AwaitingStatus | AwaitingUnmask | AwaitingReceipt
"""The collector may end the round in these."""
