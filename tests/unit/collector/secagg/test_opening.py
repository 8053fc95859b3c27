"""Opening: the exact sum from any threshold of shares, and never a sum from wrong ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from client_sdk.errors import AbortReason, RoundAbortedError
from client_sdk.secagg import shamir
from client_sdk.secagg.messages import UnmaskShares
from collector.secagg.blame import Blame, Fault, SeedsRefusedError
from collector.secagg.opening import Opening, OwnerShares, open_sum
from tests.fleet import Fleet, rules

VECTORS = [[i, -10 * i] for i in range(1, 6)]


def opening_with(drops: dict[int, str]) -> Opening:
    return fleet_and_opening(drops)[1]


def fleet_and_opening(drops: dict[int, str]) -> tuple[Fleet, Opening]:
    fleet = Fleet(VECTORS, rules(min_size=3))
    fleet.run(drops)
    return fleet, fleet.round.opening()


def held_by(fleet: Fleet, owner: OwnerShares, holders: tuple[int, ...]) -> OwnerShares:
    """The shares that these holders released."""
    released = {i: m for i, m in fleet.sent if isinstance(m, UnmaskShares)}
    shares = [dict(zip(released[h].owners, released[h].shares, strict=True))[owner.owner] for h in holders]
    return replace(owner, xs=tuple(h + 1 for h in holders), shares=tuple(shares))


def test_signed_totals() -> None:
    assert open_sum(opening_with({})) == [15, -150]
    assert open_sum(opening_with({0: "masked_input"})) == [14, -140]


def test_any_threshold_of_holders_opens() -> None:
    """Also different holders for every owner."""
    fleet, opening = fleet_and_opening({4: "masked_input"})
    for holders in combinations(range(4), 3):
        thinned = replace(
            opening,
            survivors=tuple(held_by(fleet, owner, holders) for owner in opening.survivors),
            dropped=tuple(held_by(fleet, owner, (1, 2, 3)) for owner in opening.dropped),
        )
        assert open_sum(thinned) == [10, -100]


def spoiled(owner: OwnerShares, place: int) -> OwnerShares:
    share = (int.from_bytes(owner.shares[place], "big") ^ 1).to_bytes(shamir.SHARE_BYTES, "big")
    return replace(owner, shares=(*owner.shares[:place], share, *owner.shares[place + 1 :]))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", ["survivors", "dropped"])
def test_a_wrong_share_ends_the_round(kind: str, place: int) -> None:
    opening = opening_with({4: "masked_input"})
    owners = getattr(opening, kind)
    wrong = replace(opening, **{kind: (*owners[:-1], spoiled(owners[-1], place))})
    with pytest.raises(SeedsRefusedError) as caught:
        open_sum(wrong)
    assert caught.value.reason is AbortReason.WRONG_SHARES
    assert (caught.value.have, caught.value.need) == (4, 5)
    assert caught.value.blamed == (Blame(owners[-1].owner, Fault.WRONG_SEED),)


def test_every_wrong_owner_is_found_at_once() -> None:
    opening = opening_with({4: "masked_input"})
    wrong = replace(
        opening,
        survivors=(spoiled(opening.survivors[0], 0), *opening.survivors[1:3], spoiled(opening.survivors[3], 2)),
        dropped=(spoiled(opening.dropped[0], 1),),
    )
    with pytest.raises(SeedsRefusedError) as caught:
        open_sum(wrong)
    assert (caught.value.have, caught.value.need) == (2, 5)
    assert [blame.index for blame in caught.value.blamed] == [0, 3, 4]


def test_shares_that_meet_in_no_seed_end_the_round() -> None:
    """Shares of a constant polynomial with a value above 32 bytes."""
    opening = opening_with({})
    too_large = (1 << 256).to_bytes(shamir.SHARE_BYTES, "big")
    wrong = replace(opening.survivors[0], shares=(too_large,) * 3)
    with pytest.raises(RoundAbortedError) as caught:
        open_sum(replace(opening, survivors=(wrong, *opening.survivors[1:])))
    assert caught.value.reason is AbortReason.WRONG_SHARES


def test_the_right_seed_of_the_wrong_owner_ends_the_round() -> None:
    opening = opening_with({})
    first, second = opening.survivors[:2]
    swapped = (replace(first, shares=second.shares), *opening.survivors[1:])
    with pytest.raises(RoundAbortedError) as caught:
        open_sum(replace(opening, survivors=swapped))
    assert caught.value.reason is AbortReason.WRONG_SHARES


def test_too_few_shares_of_one_owner_end_the_round() -> None:
    fleet, opening = fleet_and_opening({})
    thin = held_by(fleet, opening.survivors[2], (0, 4))
    with pytest.raises(RoundAbortedError) as caught:
        open_sum(replace(opening, survivors=(*opening.survivors[:2], thin, *opening.survivors[3:])))
    assert (caught.value.reason, caught.value.have, caught.value.need) == (AbortReason.TOO_FEW_RESPONSES, 2, 3)


def test_no_share_in_a_repr() -> None:
    opening = opening_with({})
    assert opening.survivors[0].shares[0].hex() not in repr(opening)
    assert repr(opening.survivors[0].shares[0])[2:-1] not in repr(opening)
    assert repr(opening.masked_total)[2:-1] not in repr(opening)
