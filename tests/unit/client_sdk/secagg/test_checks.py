"""What a participant refuses after the roster: shares, status, unmasking. One test a line of what may be tried.

Each lie is made to fit as far as it can: roots over what they commit to, signatures by their members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import AbortReason, RemoteProtocolError
from client_sdk.secagg import keys, shamir
from client_sdk.secagg.keys import SharePair
from client_sdk.secagg.merkle import NODE_BYTES
from client_sdk.secagg.messages import (
    CollectorMessage,
    Confirm,
    DeliveredShares,
    ParticipantMessage,
    Roster,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.transcript import ShareKind, confirm_message, share_hash, share_hashes_message
from tests.fleet import Fleet, SeededEntropy, rules
from tests.unit.client_sdk.secagg.one_member import (
    RULES,
    SPARSE_RULES,
    SPARSE_SIZE,
    VECTORS,
    fleet_at,
    neighbours_of_0,
    refused,
    sparse_at,
    told_status,
)

MALFORMED = AbortReason.MALFORMED

# --- shares -----------------------------------------------------------------------------------------

SharesChange = Callable[[DeliveredShares], DeliveredShares]
FEW_SHARERS = AbortReason.TOO_FEW_SHARERS
SHARES_LIES: dict[str, tuple[AbortReason, SharesChange]] = {
    "I am no sharer": (MALFORMED, lambda d: replace(d, sharers=(1, 2, 3, 4))),
    "sharers out of order": (MALFORMED, lambda d: replace(d, sharers=(1, 0, 2, 3, 4))),
    "sharer twice": (MALFORMED, lambda d: replace(d, sharers=(0, 1, 1, 2, 3))),
    "unknown sharer": (MALFORMED, lambda d: replace(d, sharers=(0, 1, 2, 3, 5))),
    "negative sharer": (MALFORMED, lambda d: replace(d, sharers=(-1, 0, 1, 2, 3))),
    "owner that is no sharer": (MALFORMED, lambda d: replace(d, sharers=(0, 1, 2, 3))),
    "owner twice": (MALFORMED, lambda d: replace(d, owners=(1, 1, 2, 3))),
    "owner is me": (MALFORMED, lambda d: replace(d, owners=(0, 1, 2, 3))),
    "owner unknown": (MALFORMED, lambda d: replace(d, owners=(1, 2, 3, 9))),
    "pairs missing": (MALFORMED, lambda d: replace(d, sealed=d.sealed[:-1])),
    "hashes missing": (MALFORMED, lambda d: replace(d, share_hashes=d.share_hashes[:-64])),
    "hashes cut": (MALFORMED, lambda d: replace(d, share_hashes=d.share_hashes[:-1])),
    "hashes of one more": (MALFORMED, lambda d: replace(d, share_hashes=d.share_hashes + bytes(64))),
    "too few sharers": (FEW_SHARERS, lambda d: DeliveredShares((0, 1), (1,), d.sealed[:1], d.share_hashes[:64])),
    "no sharers": (MALFORMED, lambda d: DeliveredShares((), (), (), b"")),
    "pairs withheld": (
        AbortReason.TOO_FEW_SHARES,
        lambda d: replace(d, owners=(1,), sealed=d.sealed[:1], share_hashes=d.share_hashes[:64]),
    ),
    "hashes of zeros": (AbortReason.TOO_FEW_SHARES, lambda d: replace(d, share_hashes=bytes(256))),
    "hashes swapped": (
        AbortReason.TOO_FEW_SHARES,
        lambda d: replace(d, share_hashes=d.share_hashes[64:] + d.share_hashes[:64]),
    ),
    "pairs swapped": (
        AbortReason.TOO_FEW_SHARES,
        lambda d: replace(d, sealed=(d.sealed[1], d.sealed[2], d.sealed[0], d.sealed[3])),
    ),
    "pairs of zeros": (AbortReason.TOO_FEW_SHARES, lambda d: replace(d, sealed=(bytes(82),) * 4)),
}


@pytest.mark.parametrize("lie", SHARES_LIES)
def test_delivered_shares_are_refused(lie: str) -> None:
    fleet, delivered = fleet_at(DeliveredShares)
    assert isinstance(delivered, DeliveredShares)
    reason, change = SHARES_LIES[lie]
    refused(fleet, change(delivered), reason)


def test_sharers_below_the_devices_own_floor_are_refused() -> None:
    fleet, delivered = fleet_at(DeliveredShares, {4: "shares"}, min_cohorts={0: 5})
    refused(fleet, delivered, FEW_SHARERS)


def test_a_resent_sharer_counts_not_towards_the_floor_of_a_fresh_device() -> None:
    fleet, delivered = fleet_at(DeliveredShares, {3: "shares"}, resent={4}, min_cohorts={0: 4})
    refused(fleet, delivered, FEW_SHARERS)
    fleet, delivered = fleet_at(DeliveredShares, {3: "shares"}, resent={0, 4}, min_cohorts={0: 4})
    assert fleet.participants[0].receive(delivered, fleet.now), "a resent device is content with any four"


def test_too_few_fresh_sharers_are_refused() -> None:
    fleet, delivered = fleet_at(DeliveredShares, {4: "shares"}, resent={2, 3})
    refused(fleet, delivered, FEW_SHARERS)


def test_threshold_usable_pairs_are_enough_and_masks_are_not_dropped() -> None:
    """Two of four pairs withheld from member 0: with its own it has 3 = t, and its masks still cancel."""
    fleet = Fleet(VECTORS, RULES)
    touched = []

    def withhold(index: int, message: CollectorMessage) -> CollectorMessage:
        if index == 0 and isinstance(message, DeliveredShares):
            touched.append(index)
            hashes = message.share_hashes[:128]
            return replace(message, owners=message.owners[:2], sealed=message.sealed[:2], share_hashes=hashes)
        return message

    fleet.down = withhold
    result = fleet.run({4: "masked_input"})
    assert touched == [0]
    assert result.total == [10, 100]
    unmask = [m for i, m in fleet.sent if i == 0 and isinstance(m, UnmaskShares)]
    assert unmask[0].owners == (0, 1, 2)


NO_SHARE = b"\xff" * 33
SHARE = bytes(33)
BAD_PAIRS = {
    "a self-mask share that is none": SharePair(SHARE, NO_SHARE),
    "a mask-key share that is none": SharePair(NO_SHARE, SHARE),
}


def sealed_by_3(fleet: Fleet, message: SealedShares, pair: SharePair, hashes: bytes) -> SealedShares:
    """Member 3's message with another pair for member 0, and these hashes signed for it."""
    entropy = SeededEntropy(b"member 3")
    entropy(32)
    channel = keys.load_private(keys.RoundSecrets.draw(entropy).channel_seed)
    digest = fleet.round.digest
    peer = keys.load_public(fleet.round.roster_for(3).adverts[0].channel_key)
    sending, _ = keys.channel_keys(channel, peer, digest, 3, 0)
    hashes += message.share_hashes[64:]
    signature = fleet.identities[3].sign(share_hashes_message(digest, 3, hashes))
    return SealedShares(
        message.recipients, (keys.seal_pair(sending, pair, digest), *message.sealed[1:]), hashes, signature
    )


def run_with_3_spoiling(pair: SharePair | None, hashes: Callable[[bytes], bytes] | None) -> Fleet:
    """A whole round in which member 3 deals member 0 something else; None: what it should be."""
    fleet = Fleet(VECTORS, RULES)

    def spoil(index: int, message: ParticipantMessage) -> ParticipantMessage:
        if index != 3 or not isinstance(message, SealedShares):
            return message
        mask_shares, self_shares = (shamir.split(seed, 3, 5, entropy) for seed, entropy in seeds_of_3())
        told = pair or SharePair(mask_shares[0], self_shares[0])
        true = b"".join(
            share_hash(fleet.round.digest, 3, 0, kind, share)
            for kind, share in ((ShareKind.MASK_KEY, told.mask_share), (ShareKind.SELF_MASK, told.self_share))
        )
        return sealed_by_3(fleet, message, told, true if hashes is None else hashes(true))

    fleet.up = spoil
    assert fleet.run().total == [15, 150]
    return fleet


def seeds_of_3() -> Iterator[tuple[bytes, SeededEntropy]]:
    entropy = SeededEntropy(b"member 3")
    entropy(32)
    secrets = keys.RoundSecrets.draw(entropy)
    yield secrets.mask_seed, entropy
    yield secrets.self_mask_seed, entropy


def owners_answered_for(fleet: Fleet) -> list[tuple[int, ...]]:
    return [m.owners for i, m in fleet.sent if isinstance(m, UnmaskShares)]


ALL = (0, 1, 2, 3, 4)


@pytest.mark.parametrize("kind", BAD_PAIRS)
def test_a_pair_that_opens_but_is_no_pair_of_shares_is_unusable(kind: str) -> None:
    """Numbers above the field's prime, with hashes that fit them: member 0 leaves them out when it answers."""
    fleet = run_with_3_spoiling(BAD_PAIRS[kind], None)
    assert owners_answered_for(fleet) == [(0, 1, 2, 4), *[ALL] * 4]


HASH_LIES: dict[str, Callable[[bytes], bytes]] = {
    "both": lambda true: bytes(64),
    "the mask-key share's": lambda true: bytes(32) + true[32:],
    "the self-mask share's": lambda true: true[:32] + bytes(32),
    "swapped": lambda true: true[32:] + true[:32],
}


@pytest.mark.parametrize("lie", HASH_LIES)
def test_a_pair_that_its_owners_hashes_do_not_fit_is_unusable(lie: str) -> None:
    """Both must fit: a holder that took one of them would be blamed for the other."""
    fleet = run_with_3_spoiling(None, HASH_LIES[lie])
    assert owners_answered_for(fleet) == [(0, 1, 2, 4), *[ALL] * 4]


def test_what_the_two_tests_above_change_is_all_that_is_wrong() -> None:
    assert owners_answered_for(run_with_3_spoiling(None, None)) == [ALL] * 5


def test_in_a_sparse_graph_sharers_are_those_of_the_neighbourhood() -> None:
    fleet, delivered = sparse_at(DeliveredShares)
    assert isinstance(delivered, DeliveredShares)
    neighbours = neighbours_of_0(fleet)
    assert delivered.sharers == (0, *neighbours)
    stranger = next(index for index in range(1, SPARSE_SIZE) if index not in neighbours)
    refused(fleet, replace(delivered, sharers=tuple(sorted((*delivered.sharers, stranger)))), MALFORMED)


@pytest.mark.parametrize(("left", "fits"), [(7, True), (6, False)])
def test_in_a_sparse_graph_threshold_sharers_of_my_holders_are_needed(left: int, fits: bool) -> None:
    """Threshold 7 of twelve holders; I am a sharer too, and none of my holders."""
    fleet, delivered = sparse_at(DeliveredShares)
    assert isinstance(delivered, DeliveredShares)
    owners = delivered.owners[:left]
    fewer = DeliveredShares((0, *owners), owners, delivered.sealed[:left], delivered.share_hashes[: 64 * left])
    if fits:
        assert fleet.participants[0].receive(fewer, fleet.now)
    else:
        refused(fleet, fewer, FEW_SHARERS)


def test_in_a_sparse_graph_threshold_usable_pairs_are_needed() -> None:
    """Eight sharers, six usable pairs: none of my own comes on top."""
    fleet, delivered = sparse_at(DeliveredShares)
    assert isinstance(delivered, DeliveredShares)
    fewer = replace(
        delivered, owners=delivered.owners[:6], sealed=delivered.sealed[:6], share_hashes=delivered.share_hashes[:384]
    )
    refused(fleet, fewer, AbortReason.TOO_FEW_SHARES)


# --- status -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survivors", "reason"),
    [
        ((1, 2, 3), AbortReason.NOT_A_SURVIVOR),
        ((0, 1, 2, 4), AbortReason.STATUS_MISMATCH),
        ((0, 2, 1), MALFORMED),
        ((0, 1, 1, 2), MALFORMED),
        ((0, 1, 2, 5), MALFORMED),
        ((-1, 0, 1, 2), MALFORMED),
        ((0, 1), AbortReason.TOO_FEW_SURVIVORS),
        ((0,), AbortReason.TOO_FEW_SURVIVORS),
        ((), AbortReason.NOT_A_SURVIVOR),
    ],
)
def test_status_is_refused(survivors: tuple[int, ...], reason: AbortReason) -> None:
    """Member 4 never shared, so it cannot have survived either."""
    fleet, _ = fleet_at(SurvivorStatus, {4: "shares"})
    refused(fleet, told_status(fleet, survivors), reason)


@pytest.mark.parametrize(
    "change",
    [
        {"root": bytes(32)},
        {"root": b""},
        {"resent_survivors": 1},
        {"survivors": (0, 1, 2, 3)},
        {"contributors": 4},
        {"contributors": 6},
        {"proof": (bytes(NODE_BYTES),)},
    ],
    ids=str,
)
def test_status_and_root_must_fit(change: dict[str, Any]) -> None:
    fleet, status = fleet_at(SurvivorStatus)
    assert isinstance(status, SurvivorStatus)
    refused(fleet, replace(status, **change), AbortReason.STATUS_MISMATCH)


def test_resent_survivors_are_counted_from_the_adverts() -> None:
    fleet, status = fleet_at(SurvivorStatus, resent={1})
    assert isinstance(status, SurvivorStatus)
    assert status.resent_survivors == 1
    refused(fleet, told_status(fleet, status.survivors, resent=()), AbortReason.STATUS_MISMATCH)


def test_the_resent_count_is_the_trees_also_where_it_could_be_another() -> None:
    """One of four survivors is resent, another fresh member dropped: a count of none would be possible."""
    fleet, status = fleet_at(SurvivorStatus, {4: "masked_input"}, resent={1})
    assert isinstance(status, SurvivorStatus)
    assert (status.contributors, status.resent_survivors) == (4, 1)
    refused(fleet, replace(status, resent_survivors=0), AbortReason.STATUS_MISMATCH)


@pytest.mark.parametrize("me_resent", [False, True])
def test_fresh_survivors_below_min_size_are_refused_by_all(me_resent: bool) -> None:
    """Four survivors, two of them fresh, min_size 3: also a resent member must not help to open them."""
    resent = {0, 1} if me_resent else {1, 2}
    fleet, _ = fleet_at(SurvivorStatus, resent=resent)
    survivors = (0, 1, 2, 3)
    refused(fleet, told_status(fleet, survivors, resent=resent), AbortReason.TOO_FEW_SURVIVORS)


def test_survivors_that_are_all_resent_are_confirmed() -> None:
    fleet, status = fleet_at(SurvivorStatus, resent={0, 1, 2, 3, 4})
    assert isinstance(status, SurvivorStatus)
    (confirm,) = fleet.participants[0].receive(status, fleet.now)
    assert isinstance(confirm, Confirm)
    assert confirm.status_root == status.root


def test_survivors_below_the_devices_own_floor_are_refused() -> None:
    fleet, status = fleet_at(SurvivorStatus, {4: "masked_input"}, min_cohorts={0: 5})
    refused(fleet, status, AbortReason.TOO_FEW_SURVIVORS)


def test_a_resent_survivor_counts_not_towards_the_floor_of_a_fresh_device() -> None:
    fleet, status = fleet_at(SurvivorStatus, {3: "masked_input"}, resent={4}, min_cohorts={0: 4})
    refused(fleet, status, AbortReason.TOO_FEW_SURVIVORS)
    fleet, status = fleet_at(SurvivorStatus, {3: "masked_input"}, resent={0}, min_cohorts={0: 4})
    assert fleet.participants[0].receive(status, fleet.now)


def test_survivors_below_threshold_are_refused_whatever_min_size_says() -> None:
    fleet, _ = fleet_at(SurvivorStatus, rules=rules(min_size=2))
    refused(fleet, told_status(fleet, (0, 1)), AbortReason.TOO_FEW_SURVIVORS)


def test_the_tree_covers_who_never_shared_too() -> None:
    """Told that member 4 shared nothing, I do not confirm a root in which it dropped: its mask key would be opened."""
    fleet, _ = fleet_at(SurvivorStatus, {4: "shares"})
    refused(fleet, told_status(fleet, (0, 1, 2, 3), sharers=ALL), AbortReason.STATUS_MISMATCH)


def sparse_status(**options: Any) -> tuple[Fleet, SurvivorStatus]:
    fleet, status = sparse_at(SurvivorStatus, **options)
    assert isinstance(status, SurvivorStatus)
    return fleet, status


def test_in_a_sparse_graph_the_sums_are_proven() -> None:
    fleet, status = sparse_status(resent={1, 200})
    assert (status.contributors, status.resent_survivors) == (SPARSE_SIZE, 2)
    assert told_status(fleet, range(SPARSE_SIZE), resent={1, 200}) == status
    assert fleet.participants[0].receive(status, fleet.now)


def test_in_a_sparse_graph_a_shrunken_sum_is_seen_by_its_number_alone() -> None:
    """My whole neighbourhood survived and nobody else but one: above the threshold, below the plan's min_size."""
    plan = replace(SPARSE_RULES, min_size=15)
    fleet, _ = sparse_status(rules=plan)
    seen = (0, *neighbours_of_0(fleet))
    others = [index for index in range(SPARSE_SIZE) if index not in seen]
    small, enough = sorted((*seen, others[0])), sorted((*seen, *others[:2]))
    assert (len(small), len(enough)) == (14, 15)
    status = told_status(fleet, small)
    refused(fleet, status, AbortReason.TOO_FEW_SURVIVORS)
    fleet, _ = sparse_status(rules=plan)
    lie = replace(status, contributors=15)
    refused(fleet, lie, AbortReason.STATUS_MISMATCH)
    fleet, _ = sparse_status(rules=plan)
    assert fleet.participants[0].receive(told_status(fleet, enough), fleet.now)


def test_in_a_sparse_graph_too_few_fresh_survivors_are_refused() -> None:
    """All 257 survive, two of them said to be fresh; the same for one who is resent itself."""
    fleet, _ = sparse_status()
    fresh = (0, neighbours_of_0(fleet)[0])
    resent = set(range(SPARSE_SIZE)) - set(fresh)
    refused(fleet, told_status(fleet, range(SPARSE_SIZE), resent=resent), AbortReason.TOO_FEW_SURVIVORS)


def test_in_a_sparse_graph_no_more_of_a_kind_survive_than_there_are() -> None:
    """Members that I do not see, called fresh in the status and resent in the roster, and the other way round."""
    fleet, _ = sparse_at(Roster)
    strangers = [index for index in range(1, SPARSE_SIZE) if index not in neighbours_of_0(fleet)]
    resent = set(strangers[:20])
    for lie in (set(), set(strangers[:21])):
        # Other flags, another digest, other neighbours: whom I see stays as it is by looking again.
        fleet, _ = sparse_status(resent=resent)
        seen = {0, *neighbours_of_0(fleet)}
        told = (lie - seen) | (resent & seen)
        assert told != resent
        refused(fleet, told_status(fleet, range(SPARSE_SIZE), resent=told), AbortReason.STATUS_MISMATCH)


@pytest.mark.parametrize("what", ["dropped in the tree", "survived in the tree", "resent in the tree", "I dropped"])
def test_in_a_sparse_graph_a_neighbours_status_must_be_the_one_i_was_told(what: str) -> None:
    fleet, status = sparse_status()
    neighbour, everybody = neighbours_of_0(fleet)[3], range(SPARSE_SIZE)
    without = [index for index in everybody if index != neighbour]
    lies = {
        "dropped in the tree": replace(told_status(fleet, without), survivors=status.survivors),
        "survived in the tree": replace(status, survivors=tuple(i for i in status.survivors if i != neighbour)),
        "resent in the tree": told_status(fleet, everybody, resent={neighbour}),
        "I dropped": replace(told_status(fleet, everybody[1:]), survivors=status.survivors),
    }
    refused(fleet, lies[what], AbortReason.STATUS_MISMATCH)


@pytest.mark.parametrize("spoil", [lambda p: p[:-1], lambda p: (*p, p[0]), lambda p: (), lambda p: p[::-1]])
def test_in_a_sparse_graph_the_proof_must_fit(spoil: Callable[[Any], Any]) -> None:
    fleet, status = sparse_status()
    refused(fleet, replace(status, proof=spoil(status.proof)), AbortReason.STATUS_MISMATCH)


def test_in_a_sparse_graph_a_survivor_i_do_not_see_is_none_of_mine() -> None:
    fleet, status = sparse_status()
    stranger = next(index for index in range(SPARSE_SIZE) if index not in status.survivors)
    lie = replace(status, survivors=tuple(sorted((*status.survivors, stranger))))
    refused(fleet, lie, AbortReason.STATUS_MISMATCH)


# --- unmask -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dropped",
    [(), (3,), (4,), (4, 3), (3, 3, 4), (0, 3, 4), (2, 3, 4), (3, 4, 5), (-1, 3, 4)],
    ids=str,
)
def test_unmask_request_is_refused(dropped: tuple[int, ...]) -> None:
    """Members 3 and 4 dropped: fewer, more, twice, out of order, me, one who never was."""
    fleet, request = fleet_at(UnmaskRequest, {3: "masked_input", 4: "masked_input"})
    assert isinstance(request, UnmaskRequest)
    assert request.dropped == (3, 4)
    refused(fleet, replace(request, dropped=dropped), AbortReason.UNMASK_MISMATCH)


def test_who_never_shared_is_not_called_dropped() -> None:
    fleet, request = fleet_at(UnmaskRequest, {3: "masked_input", 4: "shares"})
    assert isinstance(request, UnmaskRequest)
    assert request.dropped == (3,)
    refused(fleet, replace(request, dropped=(3, 4)), AbortReason.UNMASK_MISMATCH)


# --- confirmations ----------------------------------------------------------------------------------

FEW, BAD = AbortReason.TOO_FEW_CONFIRMATIONS, AbortReason.BAD_CONFIRMATION


def of(request: UnmaskRequest, *signers: int) -> UnmaskRequest:
    """The request with these signers' confirmations only."""
    signatures = dict(zip(request.confirmed_by, request.confirmations, strict=True))
    return replace(request, confirmed_by=signers, confirmations=tuple(signatures[i] for i in signers))


def signed(request: UnmaskRequest, signer: int, signature: bytes) -> UnmaskRequest:
    """The request with another signature of `signer`."""
    place = request.confirmed_by.index(signer)
    signatures = request.confirmations
    return replace(request, confirmations=(*signatures[:place], signature, *signatures[place + 1 :]))


def request_at(drops: dict[int, str] | None = None) -> tuple[Fleet, UnmaskRequest]:
    fleet, request = fleet_at(UnmaskRequest, drops)
    assert isinstance(request, UnmaskRequest)
    return fleet, request


@pytest.mark.parametrize("signers", [(1, 2), (0, 1, 2), (3, 4), (0, 3, 4), (1, 2, 3, 4), ALL], ids=str)
def test_threshold_confirmations_are_enough(signers: tuple[int, ...]) -> None:
    """Threshold 3 of five, my own counted whether it comes back to me or not."""
    fleet, request = request_at()
    assert request.confirmed_by == ALL
    assert fleet.participants[0].receive(of(request, *signers), fleet.now)


@pytest.mark.parametrize("signers", [(), (0,), (1,), (0, 1), (0, 4)], ids=str)
def test_too_few_confirmations_are_refused(signers: tuple[int, ...]) -> None:
    fleet, request = request_at()
    refused(fleet, of(request, *signers), FEW)


def test_a_confirmation_counts_once() -> None:
    fleet, request = request_at()
    refused(fleet, of(request, 1, 1), MALFORMED)
    fleet, request = request_at()
    refused(fleet, of(request, 2, 1), MALFORMED)
    fleet, request = request_at()
    refused(fleet, replace(request, confirmations=request.confirmations[:-1]), MALFORMED)


def confirmation(fleet: Fleet, signer: int, root: bytes | None = None, digest: bytes | None = None) -> bytes:
    status = next(m for i, m in fleet.received if i == 0 and isinstance(m, SurvivorStatus))
    message = confirm_message(digest or fleet.round.digest, root or status.root)
    return fleet.identities[signer].sign(message)


def test_the_confirmations_made_here_are_right_unless_said_otherwise() -> None:
    fleet, request = request_at()
    assert signed(request, 1, confirmation(fleet, 1)) == request


CONFIRMATION_LIES: dict[str, Callable[[Fleet, UnmaskRequest], UnmaskRequest]] = {
    "zeros": lambda f, r: signed(r, 1, bytes(64)),
    "empty": lambda f, r: signed(r, 1, b""),
    "another's": lambda f, r: signed(r, 1, r.confirmations[2]),
    "mine": lambda f, r: signed(r, 1, r.confirmations[0]),
    "over another status": lambda f, r: signed(r, 1, confirmation(f, 1, root=bytes(32))),
    "over another roster": lambda f, r: signed(r, 1, confirmation(f, 1, digest=bytes(32))),
    "its advert's": lambda f, r: signed(r, 1, f.round.roster.adverts[1].signature),
    "the last that is needed": lambda f, r: signed(of(r, 3, 4), 4, bytes(64)),
}


@pytest.mark.parametrize("lie", CONFIRMATION_LIES)
def test_a_confirmation_that_does_not_hold_is_refused(lie: str) -> None:
    """Whatever else came with it: who shows me a false signature gets nothing."""
    fleet, request = request_at()
    refused(fleet, CONFIRMATION_LIES[lie](fleet, request), BAD)


@pytest.mark.parametrize(
    "signer", [3, 4, 5, -1], ids=["dropped", "never shared", "no member", "no member, counted backwards"]
)
def test_only_survivors_confirmations_count(signer: int) -> None:
    """Signed by that member itself over the right bytes, and it is no proven survivor."""
    fleet, request = request_at({3: "masked_input", 4: "shares"})
    signature = confirmation(fleet, signer % 5)
    signers = sorted([(1, request.confirmations[1]), (2, request.confirmations[2]), (signer, signature)])
    lie = replace(request, confirmed_by=tuple(i for i, _ in signers), confirmations=tuple(s for _, s in signers))
    refused(fleet, lie, BAD)


def test_split_views_do_not_add_up() -> None:
    """Members 1 and 2 were told that I survived, 3 and 4 that I dropped: neither status has three signatures."""
    fleet, _ = fleet_at(SurvivorStatus)
    alive, dead = told_status(fleet, ALL), told_status(fleet, (1, 2, 3, 4))
    confirms = {}
    for index in ALL:
        (confirm,) = fleet.participants[index].receive(dead if index in (3, 4) else alive, fleet.now)
        assert isinstance(confirm, Confirm)
        confirms[index] = confirm.signature
    everything = UnmaskRequest((), ALL, tuple(confirms.values()))
    with pytest.raises(RemoteProtocolError) as caught:
        fleet.participants[1].receive(of(everything, 0, 1, 3), fleet.now)
    assert caught.value.reason is BAD
    with pytest.raises(RemoteProtocolError) as caught:
        fleet.participants[3].receive(UnmaskRequest((0,), (3, 4), (confirms[3], confirms[4])), fleet.now)
    assert caught.value.reason is FEW


@pytest.mark.parametrize(("count", "fits"), [(12, True), (7, True), (6, False)])
def test_in_a_sparse_graph_threshold_holders_of_mine_must_have_confirmed(count: int, fits: bool) -> None:
    fleet, request = sparse_at(UnmaskRequest)
    assert isinstance(request, UnmaskRequest)
    assert request.confirmed_by == neighbours_of_0(fleet)
    fewer = of(request, *request.confirmed_by[:count])
    if fits:
        assert fleet.participants[0].receive(fewer, fleet.now)
    else:
        refused(fleet, fewer, FEW)


@pytest.mark.parametrize("who", ["me", "stranger"])
def test_in_a_sparse_graph_neither_i_nor_who_is_no_holder_of_mine_counts(who: str) -> None:
    fleet, request = sparse_at(UnmaskRequest)
    assert isinstance(request, UnmaskRequest)
    stranger = next(index for index in range(1, SPARSE_SIZE) if index not in request.confirmed_by)
    signer = 0 if who == "me" else stranger
    signatures = dict(zip(request.confirmed_by[:6], request.confirmations, strict=False))
    signatures[signer] = confirmation(fleet, signer)
    signers = tuple(sorted(signatures))
    lie = UnmaskRequest((), signers, tuple(signatures[i] for i in signers))
    refused(fleet, lie, BAD)
