"""A fleet in memory: N real participants and a real collector round, driven by a written drop schedule.

    result = run_round([[1, 10], [2, 20], [3, 30]], rules(), drops={2: "masked_input"})
    result.total, result.contributors, result.dropouts

Everything random comes from `entropy_for(index)`, so a fleet can be repeated byte for byte. `down` and `up` see
every message on its way and may replace it: that is how a dishonest collector or member is played.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from client_sdk.certificate import Certificate, Role, issue
from client_sdk.errors import AbortReason, RemoteProtocolError, RoundAbortedError
from client_sdk.identity import IdentityKey, verify
from client_sdk.secagg.messages import (
    Advert,
    Challenge,
    CollectorMessage,
    Joined,
    ParticipantMessage,
    Receipt,
    RoundAborted,
)
from client_sdk.secagg.parameters import RoundRules
from client_sdk.secagg.participant import Participant
from client_sdk.secagg.transcript import advert_message
from collector.secagg.opening import open_sum
from collector.secagg.round import STEPS, Round

Entropy = Callable[[int], bytes]
Down = Callable[[int, CollectorMessage], CollectorMessage]
Up = Callable[[int, ParticipantMessage], ParticipantMessage]

PLAN_HASH = hashlib.sha256(b"a plan").digest()
PERIOD_START = 1_767_225_600
FORMED_AT = PERIOD_START + 90_000
PLAN_NAME = "app-health"
REGISTRAR = IdentityKey(hashlib.sha256(b"the registrar").digest())


class SeededEntropy:
    """Bytes that only look random: SHA-256 in counter mode. Never for a real device."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._counter = 0

    def __call__(self, size: int) -> bytes:
        blocks = []
        for _ in range(0, size, 32):
            blocks.append(hashlib.sha256(self._seed + self._counter.to_bytes(8, "big")).digest())
            self._counter += 1
        return b"".join(blocks)[:size]


def seeded(index: int) -> SeededEntropy:
    """The default entropy of member `index`."""
    return SeededEntropy(b"member %d" % index)


def rules(
    length: int = 2,
    *,
    min_size: int = 2,
    bound: int = 1000,
    corrupt: str = "0",
    dropout: str = "0",
    max_wait_s: int = 30,
) -> RoundRules:
    """Small rules: thresholds just above half of the roster, no reserve for dropouts."""
    return RoundRules(min_size, Fraction(corrupt), Fraction(dropout), max_wait_s, length, bound)


def certified(
    identity_key: bytes,
    *,
    role: Role = Role.DEVICE,
    issued_at: int = PERIOD_START - 86_400,
    expires_at: int = PERIOD_START + 30 * 86_400,
    registrar: IdentityKey = REGISTRAR,
) -> bytes:
    """The registrar's word for a device, good long before and after the fleet's period."""
    return issue(registrar, Certificate(role, identity_key, issued_at, expires_at))


@dataclass
class Result:
    """How a round went. `total` is None exactly where `aborted` is not."""

    total: list[int] | None
    contributors: int
    aborted: RoundAbortedError | None
    dropouts: Mapping[str, int]
    refusals: Mapping[int, AbortReason]
    recovered: int
    """Sharers that dropped and whose masks were taken out of a total."""


def _pass_down(index: int, message: CollectorMessage) -> CollectorMessage:
    return message


def _pass_up(index: int, message: ParticipantMessage) -> ParticipantMessage:
    return message


@dataclass
class Fleet:
    """Participants before `join`, a round after it. Drive it with `run`, or step by step."""

    vectors: Sequence[Sequence[int]]
    rules: RoundRules
    resent: Collection[int] = ()
    min_cohorts: Mapping[int, int] = field(default_factory=dict)
    plan_hashes: Mapping[int, bytes] = field(default_factory=dict)
    entropy_for: Callable[[int], Entropy] = seeded
    round_id: str = "round-1"
    down: Down = field(default=_pass_down)
    up: Up = field(default=_pass_up)
    now: float = float(FORMED_AT)

    def __post_init__(self) -> None:
        self.entropy = [self.entropy_for(index) for index in range(len(self.vectors))]
        self.identities = [IdentityKey(entropy(32)) for entropy in self.entropy]
        self.participants = [self._participant(index) for index in range(len(self.vectors))]
        self.nonces = [hashlib.sha256(b"nonce %d of " % i + self.round_id.encode()).digest() for i in self.everybody]
        self.sent: list[tuple[int, ParticipantMessage]] = []
        self.received: list[tuple[int, CollectorMessage]] = []
        self.refusals: dict[int, AbortReason] = {}
        self.gone: set[int] = set()
        self.round: Round

    @property
    def everybody(self) -> range:
        return range(len(self.vectors))

    def _participant(self, index: int) -> Participant:
        identity = self.identities[index]
        return Participant(
            identity=identity,
            certificate=certified(identity.public_key),
            registrar_key=REGISTRAR.public_key,
            plan_hash=self.plan_hashes.get(index, PLAN_HASH),
            period_start=PERIOD_START,
            report_id=identity.report_id(PLAN_NAME, PERIOD_START),
            vector=self.vectors[index],
            rules=self.rules,
            resent=index in self.resent,
            min_cohort=self.min_cohorts.get(index, 0),
            entropy=self.entropy[index],
        )

    def advert_of(self, index: int) -> Advert:
        """Member `index` says hello, signs the nonce and is told that it joined."""
        self.sent.append((index, self.participants[index].hello()))
        (advert,) = self.tell(index, Challenge(self.nonces[index]))
        assert isinstance(advert, Advert)
        assert verify(advert.identity_key, advert.signature, advert_message(advert))
        assert self.tell(index, Joined(0, 0)) == []
        return advert

    def join(self) -> dict[int, CollectorMessage]:
        """Everybody joins; the round begins. Returns the rosters."""
        adverts = [self.advert_of(index) for index in self.everybody]
        self.round = Round(self.round_id, self.rules, adverts, int(self.now))
        return {index: self.round.roster_for(index) for index in self.everybody}

    def tell(self, index: int, message: CollectorMessage) -> list[ParticipantMessage]:
        """Hand a message to a participant: its answers. A refusal is recorded and raised."""
        message = self.down(index, message)
        self.received.append((index, message))
        try:
            replies = [self.up(index, reply) for reply in self.participants[index].receive(message, self.now)]
        except RemoteProtocolError as error:
            self.refusals[index] = error.reason
            raise
        self.sent.extend((index, reply) for reply in replies)
        return replies

    def step(self, messages: Mapping[int, CollectorMessage], leavers: Collection[int] = ()) -> None:
        """One step of the round: `leavers` go without answering, whoever refuses goes too."""
        for index, message in messages.items():
            if index in leavers:
                self.leave(index)
                continue
            try:
                replies = self.tell(index, message)
            except RemoteProtocolError:
                self.leave(index)
                continue
            for reply in replies:
                self.round.receive(index, reply)

    def leave(self, index: int) -> None:
        self.gone.add(index)
        self.round.leave(index)

    def run(self, drops: Mapping[int, str] | None = None) -> Result:
        """The whole round. `drops[index]` is the step that member leaves without sending."""
        drops = drops or {}
        messages = self.join()
        try:
            for step in STEPS:
                self.step(messages, [i for i, name in drops.items() if name == step.value])
                messages = self.round.close()
            total = open_sum(self.round.opening())
        except RoundAbortedError as error:
            self._say_goodbye(RoundAborted(error.reason.value, error.have, error.need), self.everybody)
            return self._result(None, error)
        survivors = self.round.survivors
        self._say_goodbye(Receipt(self.round_id, len(survivors), self.round.size), survivors)
        return self._result(total, None)

    def _say_goodbye(self, message: CollectorMessage, members: Collection[int]) -> None:
        for index in members:
            if index not in self.gone:
                assert self.tell(index, message) == []

    def _result(self, total: list[int] | None, aborted: RoundAbortedError | None) -> Result:
        recovered = 0 if aborted else len(self.round.sharers) - len(self.round.survivors)
        contributors = 0 if aborted else len(self.round.survivors)
        return Result(total, contributors, aborted, self.round.dropouts, self.refusals, recovered)


def run_round(
    vectors: Sequence[Sequence[int]],
    round_rules: RoundRules,
    drops: Mapping[int, str] | None = None,
    *,
    resent: Collection[int] = (),
    entropy_for: Callable[[int], Entropy] = seeded,
) -> Result:
    """One round of a fresh fleet."""
    return Fleet(vectors, round_rules, resent=resent, entropy_for=entropy_for).run(drops)


def column_sums(vectors: Sequence[Sequence[int]], members: Collection[int]) -> list[int]:
    """What the total over `members` has to be."""
    return [sum(vectors[index][cell] for index in members) for cell in range(len(vectors[0]))]
