"""Whole rounds, message by message, and messages that must be refused in their midst. Made with the SDK's own code.

The machines are the real ones; the fleet of the tests drives them with entropy that the files name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from client_sdk.secagg import messages as m
from client_sdk.secagg.parameters import RoundRules
from client_sdk.wire import convert
from collector.secagg.opening import open_sum
from tests.fleet import PERIOD_START, PLAN_HASH, PLAN_NAME, REGISTRAR, Fleet, certified
from tests.vectors.layout import Entry, drawn
from tests.vectors.trees import rules_entry

RULES = RoundRules(3, Fraction(1, 5), Fraction(1, 5), 30, 6, 9000)
REPORTS = (
    (0, 1, -1, 9000, -9000, 17),
    (1, 0, 0, 9000, -9000, -4),
    (0, 0, 1, 9000, -9000, 250),
    (5, 5, 5, 5, 5, 5),
    (0, 1, 0, 9000, -9000, -250),
)
DROPPED, RESENT = 3, 4
STEPS = ("shares", "masked_input", "confirm", "unmask")
SEED_NAMES = ("identity_seed", "mask_seed", "channel_seed", "self_mask_seed")

SPARSE_SIZE = 257
SPARSE_RULES = RoundRules(3, Fraction(0), Fraction(1, 50), 30, 2, 1000)
"""Nobody corrupt: twelve neighbours and a threshold of seven."""


class Draws:
    """A member's entropy in the order in which it is asked for: its four seeds, then both polynomials."""

    def __init__(self, member: str, coefficients: int) -> None:
        self.seeds = {name: drawn(f"{member} {name}") for name in SEED_NAMES}
        self.mask = [drawn(f"{member} mask coefficient {i}") for i in range(coefficients)]
        self.own = [drawn(f"{member} self-mask coefficient {i}") for i in range(coefficients)]
        # Asked from the highest power down; the files name them from x^1 on.
        self._script = [*self.seeds.values(), b"".join(reversed(self.mask)), b"".join(reversed(self.own))]

    def __call__(self, size: int) -> bytes:
        piece = self._script.pop(0)
        assert len(piece) == size
        return piece

    def as_entry(self) -> Entry:
        return {**self.seeds, "mask_coefficients": self.mask, "self_mask_coefficients": self.own}


def draws(index: int) -> Draws:
    return Draws(f"member {index}", RULES.threshold(len(REPORTS)) - 1)


def new_fleet() -> Fleet:
    return Fleet(REPORTS, RULES, resent=(RESENT,), min_cohorts={1: 3}, entropy_for=draws, round_id="round_5-A")


# --- round.json --------------------------------------------------------------------------------------


class Recorder:
    """Every message of a fleet, in the order in which they travel."""

    def __init__(self, members: frozenset[int]) -> None:
        self.members = members
        self.log: list[Entry] = []

    def up(self, index: int, message: m.ParticipantMessage) -> m.ParticipantMessage:
        self._note({"from": index}, index, message, convert.participant_message_to_wire(message))
        return message

    def down(self, index: int, message: m.CollectorMessage) -> m.CollectorMessage:
        self._note({"to": index}, index, message, convert.collector_message_to_wire(message))
        return message

    def _note(self, end: Entry, index: int, message: Any, wire: bytes) -> None:
        if index in self.members:
            self.log.append(end | {"kind": type(message).__name__, "wire": wire})


@lru_cache
def recorded_round() -> tuple[list[Entry], list[int]]:
    recorder, fleet = Recorder(frozenset(range(len(REPORTS)))), new_fleet()
    fleet.up, fleet.down = recorder.up, recorder.down
    _note_hellos(fleet, recorder)
    result = fleet.run({DROPPED: "masked_input"})
    assert result.total == [sum(r[c] for i, r in enumerate(REPORTS) if i != DROPPED) for c in range(6)]
    return recorder.log, result.total


def _note_hellos(fleet: Fleet, recorder: Recorder) -> None:
    """Hellos are not answers, so they pass no `up`: noted where they are said."""
    for index, participant in enumerate(fleet.participants):
        say = participant.hello

        def hello(index: int = index, say: Any = say) -> m.Hello:
            message: m.Hello = recorder.up(index, say())  # type: ignore[assignment]
            return message

        participant.hello = hello  # type: ignore[method-assign]


def _common(round_id: str, rules: RoundRules, formed_at: float) -> Entry:
    return {
        "plan_name": PLAN_NAME,
        "plan_hash": PLAN_HASH,
        "period_start": PERIOD_START,
        "registrar_seed": REGISTRAR.seed,
        "registrar_key": REGISTRAR.public_key,
        "round_id": round_id,
        "formed_at": int(formed_at),
        "rules": rules_entry(rules),
    }


def _member(fleet: Fleet, index: int, entropy: Draws) -> Entry:
    key = fleet.identities[index].public_key
    return {
        "index": index,
        "identity_key": key,
        **entropy.as_entry(),
        "certificate": certified(key),
        "nonce": fleet.nonces[index],
        "report": fleet.vectors[index],
        "resent": index in fleet.resent,
        "min_cohort": fleet.min_cohorts.get(index, 0),
    }


def round_document() -> dict[str, Any]:
    fleet = new_fleet()
    log, total = recorded_round()
    return {
        "about": (
            "Sections 5 to 10: a round of five, every message in order. Member 3 deals its shares and then is gone; "
            "member 4 is resent. Coefficients from that of x^1 on."
        ),
        **_common(fleet.round_id, RULES, fleet.now),
        "members": [_member(fleet, index, draws(index)) for index in fleet.everybody],
        "messages": log,
        "survivors": [0, 1, 2, 4],
        "total": total,
    }


# --- sparse_round.json -------------------------------------------------------------------------------


def sparse_fleet() -> Fleet:
    reports = [[index % 7, -index] for index in range(SPARSE_SIZE)]
    return Fleet(reports, SPARSE_RULES, resent=(5,), entropy_for=_sparse_draws, round_id="sparse")


def _sparse_draws(index: int) -> Draws:
    return Draws(f"sparse member {index}", SPARSE_RULES.threshold(SPARSE_SIZE) - 1)


def sparse_document() -> dict[str, Any]:
    fleet, recorder = sparse_fleet(), Recorder(frozenset({0}))
    fleet.up, fleet.down = recorder.up, recorder.down
    _note_hellos(fleet, recorder)
    messages = fleet.join()
    first, second, *_ = fleet.round.roster.graph.neighbours(0)
    drops = {"shares": [first, 256], "masked_input": [second, 100]}
    for step in STEPS:
        fleet.step(messages, drops.get(step, ()))
        messages = fleet.round.close()
    survivors, total = fleet.round.survivors, open_sum(fleet.round.opening())
    assert total == [sum(fleet.vectors[i][c] for i in survivors) for c in range(2)]
    assert fleet.tell(0, m.Receipt(fleet.round_id, len(survivors), fleet.round.size)) == []
    return {
        "about": (
            "Section 6: member 0 of a round of 257, where nobody sees everybody. Two of its neighbours go, one before "
            "and one after dealing shares. Only its own messages."
        ),
        **_common(fleet.round_id, SPARSE_RULES, fleet.now),
        "members": [_member(fleet, 0, _sparse_draws(0))],
        "absent": drops["shares"],
        "dropped": drops["masked_input"],
        "messages": recorder.log,
    }


# --- fleets stopped in the middle, for refusals.py ---------------------------------------------------


def stopped(kind: type, drops: dict[int, str] | None = None) -> tuple[Fleet, Any]:
    """A new fleet of round.json in which everybody waits for the first message of `kind`, and member 0's."""
    fleet = new_fleet()
    messages = fleet.join()
    for step in STEPS:
        if isinstance(messages[0], kind):
            return fleet, messages[0]
        fleet.step(messages, [index for index, when in (drops or {DROPPED: "masked_input"}).items() if when == step])
        messages = fleet.round.close()
    receipt = m.Receipt(fleet.round_id, len(fleet.round.survivors), fleet.round.size)
    fleet.step(messages)
    return fleet, receipt


def sent_by(fleet: Fleet, index: int, kind: type) -> Iterator[Any]:
    return (message for sender, message in fleet.sent if sender == index and isinstance(message, kind))


def replaced(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def with_advert(roster: m.Roster, place: int, **changes: Any) -> m.Roster:
    return replace(roster, adverts=replaced(roster.adverts, place, replace(roster.adverts[place], **changes)))
