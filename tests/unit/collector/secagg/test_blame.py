"""Wrong shares: erasures while enough are left, an abort where not, never a wrong sum; and who is blamed for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import AbortReason, LocalProtocolError
from client_sdk.secagg import shamir
from client_sdk.secagg.keys import RoundSecrets
from client_sdk.secagg.messages import ParticipantMessage, SealedShares, UnmaskShares
from client_sdk.secagg.parameters import RoundRules
from collector.secagg.blame import Blame, Fault, SeedsRefusedError
from tests.fleet import Fleet, column_sums, rules, seeded

STEPS = ("shares", "masked_input", "confirm", "unmask")
VECTORS = [[i, 10 * i] for i in range(1, 8)]
RULES = rules(min_size=3, corrupt="1/7")
"""Seven members, threshold 5, one of them may lie."""


def fleet_whose(up: Callable[[int, ParticipantMessage], ParticipantMessage], round_rules: RoundRules = RULES) -> Fleet:
    fleet = Fleet(VECTORS, round_rules)
    fleet.up = up
    return fleet


def wrong(share: bytes) -> bytes:
    return share[:-1] + bytes([share[-1] ^ 1])


def releases_wrong(holders: dict[int, set[int]]) -> Callable[[int, ParticipantMessage], ParticipantMessage]:
    """`holders[h]`: the owners whose shares holder h changes before it releases them."""

    def up(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if isinstance(message, UnmaskShares) and index in holders:
            pairs = zip(message.owners, message.shares, strict=True)
            changed = tuple(wrong(s) if owner in holders[index] else s for owner, s in pairs)
            return replace(message, shares=changed)
        return message

    return up


def deals_rubbish(owner: int, holders: set[int]) -> Callable[[int, ParticipantMessage], ParticipantMessage]:
    """`owner` seals what `holders` cannot open."""

    def up(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if isinstance(message, SealedShares) and index == owner:
            pairs = zip(message.recipients, message.sealed, strict=True)
            return replace(message, sealed=tuple(bytes(82) if to in holders else s for to, s in pairs))
        return message

    return up


# --- holders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("owners", [{0}, {3}, {6}, set(range(7))], ids=str)
def test_a_wrong_share_is_an_erasure_and_its_holder_is_blamed(owners: set[int]) -> None:
    fleet = fleet_whose(releases_wrong({2: owners}))
    assert fleet.run({6: "masked_input"}).total == [21, 210]
    assert fleet.round.blamed == (Blame(2, Fault.WRONG_SHARE),)
    for owner in (*fleet.round.opening().survivors, *fleet.round.opening().dropped):
        assert (3 in owner.xs) == (owner.owner not in owners)


def test_the_other_share_of_an_owner_is_a_wrong_one() -> None:
    """A holder that answers with the mask-key share of a survivor gives nothing away to the sum, and is blamed."""
    fleet = Fleet(VECTORS, RULES)
    pairs: dict[int, Any] = {}

    def up(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if index == 1 and not pairs and hasattr(fleet.participants[1]._state, "pairs"):
            pairs.update(fleet.participants[1]._state.pairs)
        if isinstance(message, UnmaskShares) and index == 1:
            return replace(message, shares=(pairs[0].mask_share, *message.shares[1:]))
        return message

    fleet.up = up
    assert fleet.run().total == [28, 280]
    assert pairs
    assert fleet.round.blamed == (Blame(1, Fault.WRONG_SHARE),)


def test_too_few_good_shares_of_one_owner_end_the_round() -> None:
    """Three of seven lie about member 4's share: four good ones are left, five are needed."""
    fleet = fleet_whose(releases_wrong({0: {4}, 1: {4}, 5: {4}}))
    result = fleet.run()
    assert result.total is None
    assert result.aborted is not None
    aborted = result.aborted
    assert (aborted.reason, aborted.have, aborted.need) == (AbortReason.TOO_FEW_RESPONSES, 4, 5)
    assert fleet.round.blamed == tuple(Blame(holder, Fault.WRONG_SHARE) for holder in (0, 1, 5)), "not member 4"


# --- owners -----------------------------------------------------------------------------------------


def test_as_many_as_may_lie_cannot_have_an_owner_blamed() -> None:
    """One of seven says that it had nothing of member 3's, or really had nothing: nobody can tell."""
    fleet = fleet_whose(deals_rubbish(3, {0}))
    assert fleet.run().total == [28, 280]
    assert fleet.round.blamed == ()


def test_where_the_seed_opens_all_the_same_no_owner_is_blamed() -> None:
    """Two of seven say that they had nothing of member 3's: five are enough, and who is right cannot be proven."""
    fleet = fleet_whose(deals_rubbish(3, {0, 1}))
    assert fleet.run().total == [28, 280]
    assert fleet.round.blamed == ()


def test_one_liar_in_a_cohort_whose_corrupt_fraction_comes_to_none_frames_nobody() -> None:
    """Of nine at a tenth none may be corrupt. One releases nothing, and only as many others answer as are needed."""
    fleet = Fleet([[i, 10 * i] for i in range(9)], rules(min_size=3, corrupt="0.1"))
    fleet.up = lambda i, m: UnmaskShares((), ()) if i == 4 and isinstance(m, UnmaskShares) else m
    result = fleet.run(dict.fromkeys((5, 6, 7, 8), "unmask"))
    assert result.aborted is not None
    assert (result.aborted.reason, result.aborted.have, result.aborted.need) == (AbortReason.TOO_FEW_RESPONSES, 4, 5)
    assert fleet.round.blamed == ()


def test_holders_that_left_are_not_counted_against_an_owner() -> None:
    fleet = fleet_whose(deals_rubbish(3, {0}))
    assert fleet.run({1: "unmask"}).total == [28, 280]
    assert fleet.round.blamed == ()


def test_an_owner_whose_seed_cannot_be_opened_is_blamed() -> None:
    fleet = fleet_whose(deals_rubbish(3, {0, 1, 2}))
    result = fleet.run()
    assert result.aborted is not None
    aborted = result.aborted
    assert (aborted.reason, aborted.have, aborted.need) == (AbortReason.TOO_FEW_RESPONSES, 4, 5)
    assert fleet.round.blamed == (Blame(3, Fault.UNUSABLE_SHARES),)


@pytest.mark.parametrize("drops", [{}, {3: "masked_input"}], ids=["self-mask seed", "mask-key seed"])
def test_an_owner_that_signed_the_shares_of_another_seed_is_blamed(
    drops: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every share fits its signed hash and they meet in one seed; it is not the advertised one."""
    entropy = seeded(3)
    entropy(32)
    secrets = RoundSecrets.draw(entropy)
    split = shamir.split

    def lying(secret: bytes, *rest: Any) -> list[bytes]:
        return split(wrong(secret) if secret in (secrets.mask_seed, secrets.self_mask_seed) else secret, *rest)

    monkeypatch.setattr(shamir, "split", lying)
    fleet = Fleet(VECTORS, RULES)
    result = fleet.run(drops)
    assert isinstance(result.aborted, SeedsRefusedError)
    aborted = result.aborted
    assert (aborted.reason, aborted.have, aborted.need) == (AbortReason.WRONG_SHARES, 6, 7)
    assert aborted.blamed == (Blame(3, Fault.WRONG_SEED),)
    assert fleet.round.blamed == (), "what the opening finds is handed to the round by its driver"
    fleet.round.blame(aborted.blamed)
    assert fleet.round.blamed == aborted.blamed


def test_shares_that_lie_on_no_polynomial_end_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Member 3 deals one share that is off and signs its hash: whoever holds it is not to blame."""
    entropy = seeded(3)
    entropy(32)
    secrets = RoundSecrets.draw(entropy)
    split = shamir.split

    def lying(secret: bytes, *rest: Any) -> list[bytes]:
        shares = split(secret, *rest)
        return [wrong(shares[0]), *shares[1:]] if secret == secrets.self_mask_seed else shares

    monkeypatch.setattr(shamir, "split", lying)
    fleet = Fleet(VECTORS, RULES)
    result = fleet.run()
    assert isinstance(result.aborted, SeedsRefusedError)
    assert result.aborted.blamed == (Blame(3, Fault.WRONG_SEED),)
    assert fleet.round.blamed == ()


# --- always -----------------------------------------------------------------------------------------


def test_the_sum_is_exact_or_the_round_aborts() -> None:
    """And only liars are blamed, whoever else comes or goes."""
    reached: Counter[str] = Counter()

    @settings(max_examples=80, deadline=None)
    @given(
        drops=st.dictionaries(st.integers(0, 6), st.sampled_from(STEPS), max_size=2),
        liars=st.dictionaries(st.integers(0, 6), st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=3),
    )
    def run(drops: dict[int, str], liars: dict[int, set[int]]) -> None:
        fleet = fleet_whose(releases_wrong(liars))
        result = fleet.run(drops)
        lost = {index for index, step in drops.items() if step in ("shares", "masked_input")}
        blamed = {blame.index for blame in fleet.round.blamed}
        assert (result.total is None) == (result.aborted is not None)
        if result.total is not None:
            assert result.total == column_sums(VECTORS, set(range(7)) - lost)
        assert blamed <= liars.keys() - drops.keys()
        assert {blame.fault for blame in fleet.round.blamed} <= {Fault.WRONG_SHARE}
        reached["sums" if result.total else "aborts"] += bool(blamed)

    run()
    assert min(reached["sums"], reached["aborts"]) >= 5


def test_an_aborted_round_keeps_no_share() -> None:
    fleet = fleet_whose(releases_wrong({0: {4}, 1: {4}, 5: {4}}))
    assert fleet.run().aborted is not None
    with pytest.raises(LocalProtocolError):
        fleet.round.opening()
    assert fleet.round._released._shares == {}
