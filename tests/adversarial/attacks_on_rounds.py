"""Attacks on a cohort that everybody has accepted: who survived, who has confirmed it, and what is asked for then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from client_sdk.errors import AbortReason, RemoteProtocolError
from client_sdk.secagg import participant
from client_sdk.secagg.merkle import Node, Tree
from client_sdk.secagg.messages import (
    CollectorMessage,
    ParticipantMessage,
    Receipt,
    RoundAborted,
    SurvivorStatus,
    UnmaskRequest,
)
from client_sdk.secagg.parameters import RoundRules
from client_sdk.secagg.transcript import confirm_message, status_root
from collector.secagg.status import CommittedStatus
from tests.adversarial.attacks import NOT_MET, Attack, Spoils, sparse
from tests.adversarial.attacks_on_rosters import COUNTS, VECTORS, VICTIM, spoils
from tests.adversarial.dishonest_collector import Liar, drops_for, plus, told
from tests.adversarial.weakening import Line, Other
from tests.fleet import rules

FOUR_OF_SEVEN = rules(min_size=4)
"""Nobody corrupt: threshold 4."""
SEVEN = frozenset(range(7))


def masked(
    round_rules: RoundRules = FOUR_OF_SEVEN,
    vectors: Sequence[Sequence[int]] = VECTORS,
    puppets: int = 0,
    **options: Any,
) -> Liar:
    """All have sent their masked inputs."""
    liar = Liar(round_rules, vectors, puppets, **options)
    liar.begin()
    liar.deliver_all()
    return liar


# --- asked twice -----------------------------------------------------------------------------------


def both_shares_of_one_device() -> Spoils:
    """First it survived, and the others give its self-mask shares; then it dropped, and they give the others."""
    liar = masked()
    liar.finish(SEVEN)
    assert liar.open({0}) is None
    liar.finish(SEVEN - {0}, but={0})
    return spoils(liar, [0], SEVEN - {0})


def late_masked_input() -> Spoils:
    """First it dropped; its masked input comes when its mask key is open, so it is a survivor after all."""
    liar = Liar(FOUR_OF_SEVEN, VECTORS)
    liar.begin()
    liar.deliver_all(but={0})
    liar.finish(SEVEN - {0}, but={0})
    liar.deliver(0)
    assert liar.open({0}) is None
    liar.finish(SEVEN, but={0})
    return spoils(liar, [0], SEVEN - {0})


def a_round_run_again_with_the_same_inputs() -> Spoils:
    """Seven reports are opened, the round is called a failure and runs again from its masked inputs without one."""
    liar = masked()
    liar.finish(SEVEN)
    everybody = liar.open(SEVEN)
    for index in liar.honest:
        liar.say(index, RoundAborted("too_few_responses", 3, 4))
    liar.pieces.clear()
    liar.deliver_all(sharers=SEVEN - {0}, but={0})
    liar.confirm_all(status := liar.status(SEVEN - {0}, SEVEN - {0}), but={0})
    liar.unmask_all(status, but={0})
    rest = liar.open(SEVEN - {0})
    learnt = None if rest is None or everybody is None else plus(everybody, rest, -1)
    return Spoils(learnt, VECTORS[0], liar.refusals, SEVEN - {0})


def from_any_state(self: participant.Participant, message: CollectorMessage, now: float) -> list[ParticipantMessage]:
    """A participant that keeps all its states and answers from the newest one that can."""
    kept = self.__dict__.setdefault("kept", [self._state])
    for state in reversed(kept):
        try:
            self._state, replies = participant._step(state, message, now)
        except RemoteProtocolError as error:
            if error.reason is AbortReason.OUT_OF_ORDER:
                continue
            raise
        kept.append(self._state)
        return replies
    raise RemoteProtocolError(AbortReason.OUT_OF_ORDER)


UNSPENT = Other("participant.Participant.receive", "a state is spent before it is used", from_any_state)


# --- told other things -----------------------------------------------------------------------------


def private_lists(liar: Liar, killed: list[int], each: int) -> dict[int, set[int]]:
    """Whom each honest member is to think dropped, as far as its floors let it."""
    most = len(liar.roster.adverts) - liar.rules.floor(liar.roster.size)
    return drops_for(list(liar.honest), killed, each, dict.fromkeys(liar.honest, most))


def split_views_under_one_root() -> Spoils:
    """All sign the root of one status, but each is given a list of its own: sums of two, where four is the least."""
    liar = masked()
    true = liar.status(SEVEN)
    lists = private_lists(liar, [2, 3, 4, 5, 6], 4)
    views = {
        index: told(true.for_member(index), survivors=tuple(sorted(SEVEN - lists[index]))) for index in liar.honest
    }
    for index, view in views.items():
        liar.confirm(index, view)
    for index, view in views.items():
        liar.unmask(index, liar.request(index, view))
    return spoils(liar, [0, 1], SEVEN)


def views_of_their_own(liar: Liar, killed: list[int], each: int) -> dict[int, SurvivorStatus]:
    """For everybody a status that is whole in itself; whoever likes it signs it."""
    lists = private_lists(liar, killed, each)
    everybody = set(range(liar.roster.size))
    views = {index: liar.status(everybody - lists[index]).for_member(index) for index in liar.honest}
    for index, view in views.items():
        liar.confirm(index, view)
    return views


def split_views_under_many_roots() -> Spoils:
    """Each root fits its list; but each is signed by few."""
    liar = masked()
    views = views_of_their_own(liar, [2, 3, 4, 5, 6], 4)
    for index, view in views.items():
        liar.unmask(index, liar.request(index, view))
    return spoils(liar, [0, 1], SEVEN)


def forged_confirmations() -> Spoils:
    """The same, and the signatures that are missing are made up."""
    liar = masked()
    views = views_of_their_own(liar, [2, 3, 4, 5, 6], 4)
    for index, view in views.items():
        request = liar.request(index, view)
        liar.unmask(index, UnmaskRequest(request.dropped, view.survivors, (bytes(64),) * len(view.survivors)))
    return spoils(liar, [0, 1], SEVEN)


def confirmations_of_another_round() -> Spoils:
    """The missing ones are true signatures of these members, from a round before."""
    before = masked(name="before")
    before.confirm_all(status := before.status(SEVEN))
    old = before.signed(status.root, SEVEN)
    liar = masked()
    views = views_of_their_own(liar, [2, 3, 4, 5, 6], 4)
    for index, view in views.items():
        dropped = liar.request(index, view).dropped
        liar.unmask(index, UnmaskRequest(dropped, view.survivors, tuple(old[i] for i in view.survivors)))
    return spoils(liar, [0, 1], SEVEN)


def one_confirmation_many_times() -> Spoils:
    """One puppet signs whatever it is asked to, and its signature is sent as often as it takes: a sum of four."""
    liar = masked(rules(min_size=5, corrupt="1/7"), VECTORS[:6], 1)
    views = views_of_their_own(liar, [3, 4, 5], 4)
    for index, view in views.items():
        signature = liar.played[6].confirm(liar.roster.digest, view.root)
        liar.unmask(index, UnmaskRequest(liar.request(index, view).dropped, (6,) * 4, (signature,) * 4))
    return spoils(liar, [0, 1, 2], frozenset(range(6)))


def confirmations_by_strangers() -> Spoils:
    """Signers that are no members."""
    liar = masked()
    views = views_of_their_own(liar, [2, 3, 4, 5, 6], 4)
    for index, view in views.items():
        liar.unmask(index, UnmaskRequest(liar.request(index, view).dropped, (100, 101, 102, 103), (bytes(64),) * 4))
    return spoils(liar, [0, 1], SEVEN)


def a_revived_member() -> Spoils:
    """Five shared, four masked, five is the least: a member that never dealt a share is called a survivor."""
    liar = Liar(rules(min_size=5), VECTORS)
    liar.begin()
    dealt = {0, 1, 2, 3, 4}
    liar.deliver_all(dealt, but={4, 5, 6})
    status = liar.status({0, 1, 2, 3, 5}, dealt)
    liar.confirm_all(status, but={4, 5, 6})
    liar.unmask_all(status, but={4, 5, 6})
    return spoils(liar, [0, 1, 2, 3], frozenset({0, 1, 2, 3}))


def shrunken_sharers() -> Spoils:
    """One member is told that only a puppet has dealt besides it; the others hear the truth, and open its self-mask."""
    liar = Liar(rules(min_size=4, corrupt="1/7"), VECTORS[:6], 1, resent={0})
    liar.begin()
    liar.deliver(0, sharers={0, 6})
    liar.deliver_all(but={0})
    liar.finish(SEVEN, but={0})
    return spoils(liar, [0])


def shrunken_survivors() -> Spoils:
    """Each is told that it and the victim alone have survived."""
    liar = masked(resent=SEVEN)
    views = {index: liar.status({0, index}).for_member(index) for index in liar.honest}
    for index, view in views.items():
        liar.confirm(index, view)
    for index, view in views.items():
        liar.unmask(index, liar.request(index, view))
    return spoils(liar, [0], SEVEN)


def status_that_counts_too_much() -> Spoils:
    """Sixteen on a ring of four neighbours each; five in a row are gone, so nobody is there who knows the middle one.

    That one is counted five times: a sum over eleven passes for one over sixteen, where thirteen is the least.
    """
    with sparse(4, 2):
        liar = Liar(rules(min_size=13), [[i, 10 * i] for i in range(16)])
        liar.commit(liar.adverts())
        graph = liar.roster.graph
        middle = 7
        near = graph.neighbours(middle)
        gone = {middle, *near}
        members = set(range(16)) - gone
        for index in members:
            (liar.sealed[index],) = liar.say(index, liar.roster.for_member(index))
        liar.deliver_all(members, but=gone)
        status = liar.status(members, members)
        leaf = status._tree._nodes[middle, middle + 1]
        counting = _counting(status, middle, Node(leaf.digest, 5, 0))
        liar.confirm_all(counting, but=gone)
        liar.unmask_all(counting, but=gone)
        return spoils(liar, sorted(members), frozenset(members))


def _counting(status: CommittedStatus, index: int, leaf: Node) -> CommittedStatus:
    """The status with another leaf at one place."""
    tree = status._tree
    leaves = [tree._nodes[i, i + 1] for i in range(tree.size)]
    leaves[index] = leaf
    status._tree = Tree(leaves)
    status.root = status_root(status._roster.digest, status._tree.root)
    status._confirmed = confirm_message(status._roster.digest, status.root)
    return status


# --- asked for other things --------------------------------------------------------------------------


def dropped_at_the_collectors_will() -> Spoils:
    """All have confirmed that all survive; then each is asked for everybody's mask-key share but the victim's."""
    liar = masked()
    status = liar.status(SEVEN)
    liar.confirm_all(status)
    for index in liar.honest:
        liar.unmask(index, liar.request(index, status.for_member(index), SEVEN - {0, index}))
    return spoils(liar, [0], SEVEN)


def an_unmask_request_for_the_client_itself() -> Spoils:
    """Four are left to answer, which is just enough: everybody's own share of its own mask key is needed too."""
    liar = masked()
    status = liar.status(SEVEN)
    liar.confirm_all(status)
    for index in range(4):
        liar.unmask(index, liar.request(index, status.for_member(index), SEVEN - {0}))
    return spoils(liar, [0], frozenset(range(4)))


def ciphertexts_withheld() -> Spoils:
    """The victim is given the pairs of puppets and of members that are going to be called dropped, and no others."""
    return _few_pairs({"withheld": {3, 4}})


def hashes_that_fit_no_share() -> Spoils:
    """The same by way of the hashes: what the others have dealt looks wrong."""
    return _few_pairs({"wrong_hashes": {3, 4}})


def _few_pairs(lie: Mapping[str, Any]) -> Spoils:
    liar = Liar(rules(min_size=5, corrupt="2/7"), VECTORS[:5], 2)
    liar.begin()
    liar.deliver(0, **lie)
    liar.deliver_all(but={0})
    liar.finish({0, 3, 4, 5, 6}, but={1, 2})
    liar.told_sharers[0] = (0, 1, 2, 5, 6)  # whom a client without the rule masks with
    return spoils(liar, [0])


def receipt_for_another_sum() -> Spoils:
    """The device is to think that its report is in a sum of a thousand."""
    liar = masked()
    liar.finish(SEVEN)
    wanted = Receipt(liar.name, 1000, 7)
    liar.say(0, wanted)
    return Spoils(liar.participants[0].outcome, wanted, liar.refusals, VICTIM)


BY_REQUEST = (
    Line("participant._confirm", "owner: pair.self_share if owner in survivors else pair.mask_share", "owner: pair"),
    Line(
        "participant._unmask",
        "checks.check_unmask(request, state.dropped, state.confirmed)",
        "checks.check_unmask(request, request.dropped, state.confirmed)",
    ),
    Line(
        "participant._unmask",
        "tuple(state.releasable.values())",
        "tuple(p.mask_share if o in request.dropped else p.self_share for o, p in state.releasable.items())",
    ),
)
NO_VERIFY = Line(
    "checks.check_unmask", "if not verify(confirmed.keys[signer], signature, confirmed.message):", "if False:"
)

ROUND_ATTACKS = {
    "both shares of one device": Attack(both_shares_of_one_device, (UNSPENT,), AbortReason.OUT_OF_ORDER),
    "a late masked input": Attack(late_masked_input, (UNSPENT,), AbortReason.OUT_OF_ORDER),
    "a round run again with the same inputs": Attack(
        a_round_run_again_with_the_same_inputs, (UNSPENT,), AbortReason.OUT_OF_ORDER
    ),
    "split views under one root": Attack(
        split_views_under_one_root,
        (Line("checks.check_status", "_check_root(status, cohort, frozenset(sharers))", "pass"),),
        AbortReason.STATUS_MISMATCH,
    ),
    "split views under many roots": Attack(
        split_views_under_many_roots,
        (Line("checks.check_unmask", "need = confirmed.threshold - confirmed.own", "need = 0"),),
        AbortReason.TOO_FEW_CONFIRMATIONS,
    ),
    "forged confirmations": Attack(forged_confirmations, (NO_VERIFY,), AbortReason.BAD_CONFIRMATION),
    "confirmations of another round": Attack(
        confirmations_of_another_round, (NO_VERIFY,), AbortReason.BAD_CONFIRMATION
    ),
    "one confirmation many times": Attack(
        one_confirmation_many_times,
        (Line("checks.check_unmask", " or not _is_ascending(signers)", ""),),
        AbortReason.MALFORMED,
    ),
    "confirmations by strangers": Attack(
        confirmations_by_strangers,
        (
            Line(
                "checks.check_unmask",
                "if not confirmed.keys.keys() >= {signer for signer, _ in others}:",
                "if False:",
            ),
            Line(
                "checks.check_unmask",
                "if not verify(confirmed.keys[signer]",
                "if signer in confirmed.keys and not verify(confirmed.keys[signer]",
            ),
        ),
        AbortReason.BAD_CONFIRMATION,
    ),
    "a revived member": Attack(
        a_revived_member,
        (Line("checks.check_status", "if not set(survivors) <= set(sharers):", "if False:"), NOT_MET),
        AbortReason.STATUS_MISMATCH,
    ),
    "shrunken sharers": Attack(shrunken_sharers, (COUNTS,), AbortReason.TOO_FEW_SHARERS),
    "shrunken survivors": Attack(shrunken_survivors, (COUNTS,), AbortReason.TOO_FEW_SURVIVORS),
    "a status that counts too much": Attack(
        status_that_counts_too_much,
        (Line("merkle._given", "if not node.second <= node.first <= leaves:", "if False:"),),
        AbortReason.STATUS_MISMATCH,
    ),
    "dropped at the collector's will": Attack(dropped_at_the_collectors_will, BY_REQUEST, AbortReason.UNMASK_MISMATCH),
    "an unmask request for the client itself": Attack(
        an_unmask_request_for_the_client_itself, BY_REQUEST, AbortReason.UNMASK_MISMATCH
    ),
    "ciphertexts withheld": Attack(
        ciphertexts_withheld,
        (Line("participant._mask", "_masks(state, delivered.sharers)", "_masks(state, tuple(pairs))"), NOT_MET),
        AbortReason.TOO_FEW_SURVIVORS,
    ),
    "hashes that fit no share": Attack(
        hashes_that_fit_no_share,
        (Line("participant._mask", "_masks(state, delivered.sharers)", "_masks(state, tuple(pairs))"), NOT_MET),
        AbortReason.TOO_FEW_SURVIVORS,
    ),
    "a receipt for another sum": Attack(
        receipt_for_another_sum,
        (Line("participant._finish", "if receipt != state.receipt:", "if False:"),),
        AbortReason.STATUS_MISMATCH,
    ),
}
