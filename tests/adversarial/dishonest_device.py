"""Devices that lie, in memory: real participants behind a hand that may change what they send, and a real round.

The round is driven as the service drives it: whoever is refused for anything but a repeat is out, whoever refuses
leaves. What comes of it is an `Outcome`; `served` are the honest members that stayed to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from client_sdk.errors import (
    AbortReason,
    RejectionError,
    RejectionReason,
    RemoteProtocolError,
    RoundAbortedError,
)
from client_sdk.secagg.keys import RoundSecrets
from client_sdk.secagg.messages import CollectorMessage, ParticipantMessage, Receipt
from client_sdk.secagg.parameters import RoundRules
from collector.secagg.blame import Blame, Fault, SeedsRefusedError
from collector.secagg.opening import open_sum
from collector.secagg.round import STEPS
from tests.adversarial.weakening import Switch
from tests.fleet import Fleet, column_sums, rules

VECTORS = [[i, 10 * i] for i in range(1, 8)]
RULES = rules(min_size=3, corrupt="1/7")
"""Seven members, threshold 5, one of them may lie."""

Hand = Callable[["Fleet", int, ParticipantMessage], Any]
"""(fleet, member, what it would send) -> what is sent: one message or a list."""


@dataclass
class Outcome:
    total: list[int] | None
    truth: list[int]
    aborted: AbortReason | None
    blamed: tuple[Blame, ...]
    rejected: dict[int, list[RejectionReason]]
    refusals: Mapping[int, AbortReason]
    served: frozenset[int]
    crash: Exception | None = None

    @property
    def is_exact(self) -> bool:
        return self.total is not None and self.total == self.truth


@dataclass
class Devices(Fleet):
    """`liars` are the members that `hand` is laid on."""

    hand: Hand = field(default=lambda fleet, index, message: message)
    liars: Collection[int] = (2,)

    def step(self, messages: Mapping[int, CollectorMessage], leavers: Collection[int] = ()) -> None:
        for index, message in messages.items():
            if index in leavers:
                self.leave(index)
                continue
            try:
                replies = self.tell(index, message)
            except RemoteProtocolError:
                self.leave(index)
                continue
            self._send(index, replies)

    def _send(self, index: int, replies: Sequence[ParticipantMessage]) -> None:
        for reply in replies:
            sent = self.hand(self, index, reply) if index in self.liars else reply
            for one in sent if isinstance(sent, list) else [sent]:
                self.give(index, one)

    def give(self, index: int, message: ParticipantMessage) -> None:
        """To the round, as the service would: who is refused, but for a repeat, is out."""
        if index in self.gone:
            return
        try:
            self.round.receive(index, message)
        except RejectionError as error:
            self.rejected.setdefault(index, []).append(error.reason)
            if error.reason is not RejectionReason.ALREADY_RECEIVED:
                self.leave(index)

    def secrets_of(self, index: int) -> RoundSecrets:
        """A liar's own: drawn anew from its entropy, as its participant has drawn them."""
        entropy = self.entropy_for(index)
        entropy(32)
        return RoundSecrets.draw(entropy)

    def play(self, drops: Mapping[int, str] | None = None) -> Outcome:
        """The whole round, whatever comes of it."""
        self.rejected: dict[int, list[RejectionReason]] = {}
        total, aborted, crash = None, None, None
        messages = self.join()
        try:
            for step in STEPS:
                self.step(messages, [i for i, name in (drops or {}).items() if name == step.value])
                messages = self.round.close()
            total = open_sum(self.round.opening())
        except SeedsRefusedError as error:
            aborted = error.reason
            self.round.blame(error.blamed)
        except RoundAbortedError as error:
            aborted = error.reason
        except (KeyError, IndexError, TypeError, ValueError) as error:  # what must never leave a round
            crash = error
        served = set(self.everybody) - self.gone - set(self.liars)
        if total is not None:
            receipt = Receipt(self.round_id, len(self.round.survivors), self.round.size)
            for index in served & set(self.round.survivors):
                self.tell(index, receipt)
        truth = column_sums(self.vectors, self.round.survivors) if self.round.survivors else []
        return Outcome(total, truth, aborted, self.round.blamed, self.rejected, self.refusals, frozenset(served), crash)


def devices(hand: Hand, liars: Collection[int] = (2,), round_rules: RoundRules = RULES, **options: Any) -> Devices:
    return Devices(options.pop("vectors", VECTORS), round_rules, hand=hand, liars=liars, **options)


@dataclass(frozen=True)
class DeviceAttack:
    """play: against whatever code is there. off: without these checks `harm` is done; with them `reason` or `fault`
    is on record for the liar, honest members are not blamed, and the sum is exact or there is none (`aborted`).
    """

    play: Callable[[], Outcome]
    off: tuple[Switch, ...]
    harm: Callable[[Outcome], bool]
    liar: int = 2
    reason: RejectionReason | None = None
    fault: Fault | None = None
    aborted: AbortReason | None = None
