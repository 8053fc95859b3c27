"""Random graphs, drops and lies: nobody's two seeds can both be had, no sum is small, and no sum is wrong.

The collector of the first half tells every member what it likes, out of stories that are whole in themselves; corrupt
members hand it every share that they hold and sign every status. What it can reconstruct is counted over all that
honest members have released. The second half is an honest collector among devices that lie.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from client_sdk.errors import AbortReason
from client_sdk.secagg.messages import (
    Confirm,
    MaskedInputPiece,
    ParticipantMessage,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.transcript import ShareKind
from collector.secagg.status import CommittedStatus
from tests.adversarial.attacks import sparse
from tests.adversarial.dishonest_collector import Liar
from tests.adversarial.dishonest_device import Devices
from tests.fleet import rules

# --- a collector that tells stories -----------------------------------------------------------------


class Storyteller:
    """One round of lies. `chance` decides everything."""

    def __init__(self, liar: Liar, chance: random.Random) -> None:
        self.liar, self.chance = liar, chance
        liar.begin()
        self.size = liar.roster.size
        self.victim = chance.choice(list(liar.honest))

    def play(self) -> None:
        liar, chance = self.liar, self.chance
        absent = set(chance.sample(list(liar.honest), chance.choice([0, 0, 1])))
        for index in set(liar.honest) - absent:
            liar.deliver(index, self._sharers(index))
        stories = self._stories(set(range(self.size)) - absent)
        told = {index: chance.choice(stories) for index in liar.honest}
        for index, story in told.items():
            liar.confirm(index, self._bent(story, story.for_member(index)))
        for index, story in told.items():
            if index in liar.told_sharers:
                liar.unmask(index, self._bent_request(index, story))
        for index in chance.sample(list(liar.honest), 3):  # and once more, with another story
            story = chance.choice(stories)
            liar.confirm(index, story.for_member(index))
            if index in liar.told_sharers:
                liar.unmask(index, liar.request(index, story.for_member(index)))

    def _sharers(self, index: int) -> set[int]:
        if self.chance.random() < 0.9:
            return set(range(self.size))
        return set(range(self.size)) - {self.chance.choice([i for i in range(self.size) if i != index])}

    def _stories(self, alive: set[int]) -> list[CommittedStatus]:
        """One and the same but for the victim, one with others gone, and one that kills as many as it may."""
        liar, chance = self.liar, self.chance
        spare = len(alive) - liar.rules.floor(self.size)
        gone = [set(chance.sample(sorted(alive), min(k, max(spare, 0)))) for k in (0, 1, spare)]
        sets = [alive, alive - {self.victim}, *(alive - some for some in gone)]
        stories = [liar.status(some, set(range(self.size))) for some in sets]
        return chance.choices(stories, [4, 3, 1, 1, 1], k=chance.choice([1, 2, 2, 3]))

    def _bent(self, story: CommittedStatus, status: SurvivorStatus) -> SurvivorStatus:
        if self.chance.random() < 0.9:
            return status
        survivors = set(status.survivors) ^ {self.victim}
        return replace(status, survivors=tuple(sorted(survivors)))

    def _bent_request(self, index: int, story: CommittedStatus) -> UnmaskRequest:
        request = self.liar.request(index, story.for_member(index))
        if self.chance.random() < 0.9:
            return request
        return replace(request, dropped=tuple(sorted({*request.dropped} ^ {self.victim})))


def kinds_open(liar: Liar, owner: int) -> set[ShareKind]:
    """What the collector can reconstruct of an honest member, and that it is no illusion: the seed fits."""
    found = {kind for kind in ShareKind if len(liar.released(owner, kind)) >= liar.roster.threshold}
    assert all(liar.seed(owner, kind) is not None for kind in found)
    return found


def groups(liar: Liar) -> Iterable[set[int]]:
    """Honest members whose masked inputs can only be opened together: what masks one hides the other."""
    hidden = {i for i in liar.pieces if liar.seed(i, ShareKind.MASK_KEY) is None}
    left = set(liar.pieces)
    while left:
        group, new = set(), {left.pop()}
        while new:
            group |= new
            near = {w for u in new & hidden for w in hidden if w in liar.told_sharers[u] or u in liar.told_sharers[w]}
            new = near - group
        left -= group
        yield group


LONGER = [pytest.param(graph, 1000, marks=pytest.mark.slow) for graph in ("complete", "sparse")]


@pytest.mark.parametrize(("graph", "runs"), [("complete", 30), ("sparse", 10), *LONGER])
def test_no_member_can_be_opened_by_a_collector_with_its_corrupt_members(graph: str, runs: int) -> None:
    seen: Counter[str] = Counter()
    for run in range(runs):
        chance = random.Random(f"{graph} {run}")
        with contextlib.ExitStack() as stack:
            if graph == "sparse":
                stack.enter_context(sparse(6, 5))
            liar = drawn(graph, chance)
            Storyteller(liar, chance).play()
            look(liar, graph, seen)
    assert seen["opened of one kind"] > runs
    assert seen["opened of the other"] > runs // 20
    assert seen["views accepted, two at least"] > runs // 10
    assert seen["refused"] > runs
    if graph == "complete":
        assert seen["sums opened"] > runs // 10


def drawn(graph: str, chance: random.Random) -> Liar:
    """A cohort with as many corrupt members as the rules allow for; in the sparse one, as (b) of parameters.py says."""
    if graph == "complete":
        size = chance.randint(5, 9)
        corrupt = chance.randint(0, max(0, (size - 2) // 3))
        round_rules = rules(min_size=3, corrupt=f"{corrupt}/{size}")
        vectors = [[chance.randint(-1000, 1000), 1] for _ in range(size - corrupt)]
        return Liar(round_rules, vectors, corrupt, name=f"round {chance.random()}")
    vectors = [[chance.randint(-1000, 1000), 1] for _ in range(13)]
    return Liar(rules(min_size=5), vectors, 3, name=f"round {chance.random()}")


def look(liar: Liar, graph: str, seen: Counter[str]) -> None:
    """2t > k + t1 with k = 6, t = 5: no more than three of a member's neighbours are corrupt, for there are three."""
    seen["refused"] += len(liar.refusals)
    seen["views accepted, two at least"] += len({root for root, _ in liar.signatures}) > 1
    for owner in liar.honest:
        kinds = kinds_open(liar, owner)
        assert len(kinds) < 2, "both seeds of one member"
        seen["opened of one kind"] += ShareKind.SELF_MASK in kinds
        seen["opened of the other"] += ShareKind.MASK_KEY in kinds
    for group in groups(liar):
        if liar.open(group) == liar.truth(group):
            seen["sums opened"] += 1
            if graph == "complete":
                assert len(group) + len(liar.played) >= liar.rules.floor(liar.roster.size), "a sum over too few"
    assert not any(liar.open({index}) == liar.truth({index}) for index in liar.honest)


def test_the_count_sees_what_a_threshold_too_low_gives_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the members as threshold, and the same lies, it finds members with both seeds open."""
    from client_sdk.secagg import parameters

    parameters.round_parameters.cache_clear()
    monkeypatch.setattr(parameters, "threshold", lambda size, corrupt: size // 3)
    found = 0
    for run in range(40):
        chance = random.Random(f"complete {run}")
        liar = drawn("complete", chance)
        Storyteller(liar, chance).play()
        found += any(len(kinds_open(liar, owner)) == 2 for owner in liar.honest)
    parameters.round_parameters.cache_clear()
    assert found > 5


# --- an honest one among devices that lie -------------------------------------------------------------


class Hand:
    """Each liar has its own habit, drawn once."""

    HABITS = ("junk shares", "some junk shares", "deals rubbish", "deals some rubbish", "bad signature", "other root",
              "twice", "crumbs", "silent", "unsigned hashes", "gives some")  # fmt: skip

    def __init__(self, chance: random.Random, liars: Iterable[int]) -> None:
        self.habits = {liar: chance.choice(self.HABITS) for liar in liars}

    def __call__(self, fleet: Devices, index: int, message: ParticipantMessage) -> object:
        habit = self.habits[index]
        match message:
            case SealedShares(sealed=sealed):
                rubbish = {"deals rubbish": 0, "deals some rubbish": len(sealed) - 1}.get(habit)
                if rubbish is not None:
                    return replace(message, sealed=(*sealed[:rubbish], *[bytes(82)] * (len(sealed) - rubbish)))
                return replace(message, signature=bytes(64)) if habit == "unsigned hashes" else message
            case MaskedInputPiece(data=data):
                return {"twice": [message] * 2, "crumbs": [replace(message, data=data[:2])], "silent": []}.get(
                    habit, message
                )
            case Confirm():
                changes = {"bad signature": {"signature": bytes(64)}, "other root": {"status_root": bytes(32)}}
                return replace(message, **changes.get(habit, {}))
            case UnmaskShares(owners=owners, shares=shares):
                junk = {"junk shares": len(shares), "some junk shares": 1}.get(habit, 0)
                if habit == "gives some":
                    return UnmaskShares(owners[:2], shares[:2])
                return replace(message, shares=(*[bytes(33)] * junk, *shares[junk:]))
        return message


SHORT = {
    AbortReason.TOO_FEW_SHARERS,
    AbortReason.TOO_FEW_SHARES,
    AbortReason.TOO_FEW_SURVIVORS,
    AbortReason.TOO_FEW_CONFIRMATIONS,
}
"""Why honest members may leave: around them too few are left."""


@pytest.mark.parametrize(("graph", "runs"), [("complete", 80), ("sparse", 80), *LONGER])
def test_the_sum_is_exact_or_there_is_none(graph: str, runs: int) -> None:
    seen: Counter[str] = Counter()
    for run in range(runs):
        chance = random.Random(f"devices {graph} {run}")
        size = chance.randint(8, 11) if graph == "complete" else 14
        liars = chance.sample(range(size), 2)
        drops = {
            i: chance.choice(["shares", "masked_input", "confirm", "unmask"])
            for i in chance.sample(sorted(set(range(size)) - set(liars)), chance.randint(0, 1 + (size > 8)))
        }
        vectors = [[chance.randint(-1000, 1000), 1] for _ in range(size)]
        hand = Hand(chance, liars)
        with sparse(8, 6) if graph == "sparse" else contextlib.nullcontext():  # for up to three around a member
            corrupt = f"2/{size}" if graph == "complete" else "0.15"
            outcome = Devices(vectors, rules(min_size=3, corrupt=corrupt), hand=hand, liars=liars).play(drops)
        assert outcome.crash is None
        assert outcome.is_exact != (outcome.aborted is not None), hand.habits
        assert {blame.index for blame in outcome.blamed} <= set(liars), "nobody honest"
        assert set(outcome.refusals.values()) <= SHORT
        seen["exact" if outcome.is_exact else "none"] += 1
        seen["recovered"] += outcome.is_exact and "masked_input" in drops.values()
        seen["blamed"] += bool(outcome.blamed)
        seen.update(hand.habits.values())
    assert min(seen["exact"], seen["blamed"]) >= 20, seen
    assert min(seen["none"], seen["recovered"]) >= 5, seen
    assert all(seen[habit] for habit in Hand.HABITS)
