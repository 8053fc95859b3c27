"""Everything that a dishonest device tries: harm where the named check is off, else its name and no wrong sum."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from client_sdk.errors import AbortReason, LocalProtocolError, RejectionError, RejectionReason
from client_sdk.identity import IdentityKey
from client_sdk.secagg import shamir
from client_sdk.secagg.graph import graph_of
from client_sdk.secagg.messages import (
    Advert,
    Confirm,
    Hello,
    MaskedInputPiece,
    ParticipantMessage,
    SealedShares,
    UnmaskShares,
)
from client_sdk.secagg.transcript import advert_message
from collector import intake
from tests.adversarial.attacks import sparse
from tests.adversarial.device_attacks import DEVICE_ATTACKS
from tests.adversarial.dishonest_device import VECTORS, Devices, devices
from tests.adversarial.puppets import Puppet
from tests.adversarial.weakening import Line, switch_off
from tests.fleet import SeededEntropy, column_sums, rules

WEAKENED = {name: tuple(map(str, attack.off)) for name, attack in DEVICE_ATTACKS.items()}


@pytest.mark.parametrize("name", DEVICE_ATTACKS)
def test_it_does_harm_where_the_check_is_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = DEVICE_ATTACKS[name]
    switch_off(monkeypatch, *attack.off)
    assert attack.harm(attack.play())


@pytest.mark.parametrize("name", DEVICE_ATTACKS)
def test_it_does_none(name: str) -> None:
    attack = DEVICE_ATTACKS[name]
    outcome = attack.play()
    assert outcome.crash is None
    assert outcome.aborted is attack.aborted
    assert outcome.is_exact or (outcome.total is None and outcome.aborted is not None)
    assert outcome.rejected.get(attack.liar, [None])[0] is attack.reason
    assert not outcome.refusals, "no honest member has left"
    if attack.fault is not None:
        assert (attack.liar, attack.fault) in {(blame.index, blame.fault) for blame in outcome.blamed}
    assert not attack.harm(outcome)


# --- before a round ---------------------------------------------------------------------------------

HONEST = lambda fleet, index, message: message  # noqa: E731 - a hand that changes nothing


def joined(change: Callable[[Devices, Advert], Advert]) -> tuple[Devices, Hello, bytes, Advert]:
    """Member 2's advert, changed and signed again by its own identity, and what it has to fit."""
    fleet = devices(HONEST)
    advert = change(fleet, fleet.advert_of(2))
    advert = replace(advert, signature=fleet.identities[2].sign(advert_message(advert)))
    hello = next(m for i, m in fleet.sent if i == 2 and isinstance(m, Hello))
    return fleet, hello, fleet.nonces[2], advert


def round_with(advert: Advert) -> Devices:
    """A round in which member 2's advert is this one, whoever sent it; the others have dealt, or have left."""
    fleet = devices(HONEST)
    real = fleet.advert_of
    fleet.advert_of = lambda index: advert if index == 2 else real(index)  # type: ignore[method-assign]
    messages = fleet.join()
    del messages[2]
    fleet.rejected = {}
    fleet.step(messages)
    return fleet


def test_a_key_that_makes_everybody_leave_is_refused_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    _, hello, nonce, advert = joined(lambda fleet, advert: replace(advert, mask_key=bytes(32)))
    with pytest.raises(RejectionError) as caught:
        intake.check_advert(hello, nonce, advert)
    assert caught.value.reason is RejectionReason.MALFORMED
    switch_off(
        monkeypatch, Line("intake.check_advert", '_require(is_valid_public(advert.mask_key), "mask_key")', "pass")
    )
    intake.check_advert(hello, nonce, advert)
    assert round_with(advert).refusals == dict.fromkeys({0, 1, 3, 4, 5, 6}, AbortReason.BAD_ADVERT)


def test_an_advert_of_another_stream_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has overheard one could seat its owner in every round: a member that never answers."""
    _, hello, nonce, advert = joined(lambda fleet, advert: advert)
    intake.check_advert(hello, nonce, advert)
    later = bytes(32)
    with pytest.raises(RejectionError) as caught:
        intake.check_advert(hello, later, advert)
    assert caught.value.reason is RejectionReason.BAD_SIGNATURE
    switch_off(
        monkeypatch,
        Line("intake.check_advert", "if len(nonce) != NONCE_BYTES or advert.nonce != nonce:", "if False:"),
    )
    intake.check_advert(hello, later, advert)
    ghost = round_with(advert)
    assert not ghost.refusals
    assert ghost.round.pending() == {2}, "everybody waits for a member that is not there"


def test_two_places_for_one_identity_end_in_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Puppet("twin", devices(HONEST).identities[3])
    with pytest.raises(LocalProtocolError):
        round_with(twin.advert())
    switch_off(monkeypatch, Line("roster._check_cohort", "if not are_distinct(adverts):", "if False:"))
    assert set(round_with(twin.advert()).refusals.values()) == {AbortReason.DUPLICATE_KEY}, (
        "all honest members are lost by it"
    )


def test_there_is_no_share_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """x = 0 is the secret's own place. Roster index 0 has x = 1, in both graphs."""
    secret = bytes(range(32))
    shares = shamir.split(secret, 3, 5, SeededEntropy(b"zero"))
    shamir.weights_at_zero.cache_clear()
    with pytest.raises(ValueError, match="distinct and in 1"):
        shamir.combine((0, 1, 2), (shares[4], *shares[:2]))
    assert shamir.combine((1, 2, 3), shares[:3]) == secret
    assert graph_of(7, 6, bytes(32)).share_x(3, 0) == 1
    with sparse(4, 3):
        graph = graph_of(20, 4, bytes(32))
        assert {graph.share_x(owner, 0) for owner in graph.neighbours(0)} <= {1, 2, 3, 4}
    switch_off(monkeypatch, Line("shamir.weights_at_zero", " or min(xs) < 1", ""))
    assert shamir.combine((0, 1, 2), (shares[4], *shares[:2])) != secret, "a wrong seed, and nothing is said"


# --- wrong in form ----------------------------------------------------------------------------------

Change = Callable[[ParticipantMessage], ParticipantMessage]

# Without a weakened run of their own: a message of the wrong form gains nothing where its check is off, it ends in an
# exception or in one of the attacks above.
WRONG_IN_FORM: dict[str, tuple[type, Change, RejectionReason]] = {
    "a pair too few": (
        SealedShares, lambda m: replace(m, recipients=m.recipients[1:], sealed=m.sealed[1:]), RejectionReason.MALFORMED
    ),
    "a pair twice": (
        SealedShares,
        lambda m: replace(m, recipients=(0, 0, *m.recipients[2:])),
        RejectionReason.MALFORMED,
    ),
    "a pair for itself": (
        SealedShares, lambda m: replace(m, recipients=(0, 1, 2, *m.recipients[3:])), RejectionReason.MALFORMED
    ),
    "a pair for nobody": (
        SealedShares, lambda m: replace(m, recipients=(*m.recipients[:-1], 7)), RejectionReason.MALFORMED
    ),
    "a short pair": (
        SealedShares, lambda m: replace(m, sealed=(m.sealed[0][:-1], *m.sealed[1:])), RejectionReason.MALFORMED
    ),
    "hashes for too few": (
        SealedShares, lambda m: replace(m, share_hashes=m.share_hashes[64:]), RejectionReason.MALFORMED
    ),
    "half a hash more": (
        SealedShares, lambda m: replace(m, share_hashes=m.share_hashes + bytes(16)), RejectionReason.MALFORMED
    ),
    "unsigned hashes": (SealedShares, lambda m: replace(m, signature=b""), RejectionReason.BAD_SIGNATURE),
    "hashes signed by another": (
        SealedShares, lambda m: replace(m, signature=IdentityKey(bytes(32)).sign(b"x")), RejectionReason.BAD_SIGNATURE
    ),
    "hashes that were changed": (
        SealedShares, lambda m: replace(m, share_hashes=bytes(len(m.share_hashes))), RejectionReason.BAD_SIGNATURE
    ),
    "an odd piece": (MaskedInputPiece, lambda m: replace(m, data=m.data[:-1]), RejectionReason.MALFORMED),
    "an empty piece": (MaskedInputPiece, lambda m: replace(m, data=b""), RejectionReason.MALFORMED),
    "a piece too far": (MaskedInputPiece, lambda m: replace(m, offset=1), RejectionReason.MALFORMED),
    "a piece before the first": (MaskedInputPiece, lambda m: replace(m, offset=-1), RejectionReason.MALFORMED),
    "another root": (Confirm, lambda m: replace(m, status_root=bytes(32)), RejectionReason.MALFORMED),
    "a short signature": (Confirm, lambda m: replace(m, signature=m.signature[:-1]), RejectionReason.BAD_SIGNATURE),
    "a short share": (
        UnmaskShares, lambda m: replace(m, shares=(m.shares[0][:-1], *m.shares[1:])), RejectionReason.MALFORMED
    ),
    "a share above the field": (
        UnmaskShares, lambda m: replace(m, shares=(b"\xff" * 33, *m.shares[1:])), RejectionReason.MALFORMED
    ),
    "shares in disorder": (UnmaskShares, lambda m: replace(m, owners=m.owners[::-1]), RejectionReason.MALFORMED),
    "more shares than owners": (
        UnmaskShares, lambda m: replace(m, shares=(*m.shares, m.shares[0])), RejectionReason.MALFORMED
    ),
    "a share of nobody": (UnmaskShares, lambda m: replace(m, owners=(*m.owners[:-1], 7)), RejectionReason.MALFORMED),
    "a step ahead": (
        SealedShares, lambda m: UnmaskShares((0,), (bytes(33),)), RejectionReason.OUT_OF_ORDER
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_IN_FORM)
def test_what_is_wrong_in_form_is_refused_by_name_and_costs_its_sender_only(name: str) -> None:
    kind, change, reason = WRONG_IN_FORM[name]
    outcome = devices(lambda fleet, index, m: change(m) if isinstance(m, kind) else m).play()
    assert outcome.rejected == {2: [reason]}
    assert outcome.is_exact
    assert outcome.served == {0, 1, 3, 4, 5, 6}
    assert not outcome.blamed, "a refused message proves nothing to others"
    counted = outcome.truth == column_sums(VECTORS, range(7))
    assert counted == (kind in (Confirm, UnmaskShares)), "whoever has sent its masked input is in the sum"


# --- silence ----------------------------------------------------------------------------------------

SILENT_AT = (SealedShares, MaskedInputPiece, Confirm, UnmaskShares)


@pytest.mark.parametrize("kind", SILENT_AT)
@pytest.mark.parametrize("tell", [0, 1, 3, 6])
def test_who_is_silent_costs_nothing_but_its_report(kind: type, tell: int) -> None:
    """Also towards some only: pairs that just `tell` of six can open, or shares of just so many owners."""

    def hand(fleet: Devices, index: int, message: ParticipantMessage) -> object:
        if not isinstance(message, kind):
            return message
        if isinstance(message, SealedShares) and tell:
            return replace(message, sealed=(*message.sealed[:tell], *[bytes(82)] * (6 - tell)))
        if isinstance(message, UnmaskShares):
            return UnmaskShares(message.owners[:tell], message.shares[:tell])
        return []

    outcome = devices(hand).play()
    told_too_few = kind is SealedShares and 0 < tell < 4  # with its own: fewer than the five that it takes
    assert outcome.is_exact != told_too_few
    assert outcome.served == {0, 1, 3, 4, 5, 6}
    assert not outcome.refusals
    assert {blame.index for blame in outcome.blamed} <= {2}
    assert bool(outcome.blamed) == (kind is SealedShares and 0 < tell < 5), "more than one could not use its shares"


def test_liars_of_all_kinds_at_once() -> None:
    """Two of eleven lie, each in its own way, and two honest ones drop: an exact sum, or none and a liar's name."""
    seen: Counter[str] = Counter()
    names = [n for n in WRONG_IN_FORM if WRONG_IN_FORM[n][0] is not SealedShares]
    for first, second in itertools.islice(itertools.combinations(names, 2), 0, None, 3):
        changes = {3: WRONG_IN_FORM[first], 7: WRONG_IN_FORM[second]}

        def hand(fleet: Devices, index: int, message: ParticipantMessage, changes=changes) -> ParticipantMessage:
            kind, change, _ = changes[index]
            return change(message) if isinstance(message, kind) else message

        vectors = [[i, 10 * i] for i in range(11)]
        fleet = devices(hand, (3, 7), rules(min_size=5, corrupt="2/11"), vectors=vectors)
        outcome = fleet.play({0: "masked_input", 10: "confirm"})
        assert outcome.is_exact or outcome.aborted is AbortReason.TOO_FEW_RESPONSES
        assert outcome.rejected == {i: [reason] for i, (_, _, reason) in changes.items()}
        assert not outcome.refusals
        seen["exact" if outcome.is_exact else "aborted"] += 1
    assert seen["exact"] > 10
