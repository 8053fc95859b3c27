"""Attacks with what an earlier round has left: true adverts of members that are not there any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from client_sdk.errors import AbortReason
from client_sdk.secagg.messages import Advert
from tests.adversarial.attacks import NOT_MET, Attack, Spoils, sparse
from tests.adversarial.attacks_on_rosters import VECTORS, spoils
from tests.adversarial.dishonest_collector import Liar, plus
from tests.adversarial.weakening import Line
from tests.fleet import PERIOD_START, rules

SIX, FOUR = rules(min_size=6), rules(min_size=4)


def ghosts(period_start: int = PERIOD_START) -> tuple[Liar, Sequence[Advert]]:
    """A true round of nine of which three drop out late: their mask keys are open, their adverts signed for ever."""
    before = Liar(SIX, [[0, 0]] * 9, name="before", first_device=20, periods=dict.fromkeys(range(9), period_start))
    before.begin()
    before.deliver_all()
    before.finish(range(6), but={6, 7, 8})
    before.learn_mask_seeds([6, 7, 8])
    assert not before.refusals
    return before, before.roster.adverts[6:]


def with_ghosts(liar: Liar, before: Liar, adverts: Sequence[Advert]) -> None:
    """A round with those three in it, all said to have dealt, to have masked and to have survived."""
    liar.mask_seeds |= before.mask_seeds
    liar.commit([*liar.adverts(), *adverts])
    liar.deal()
    everybody = range(liar.roster.size)
    liar.deliver_all(everybody)
    status = liar.status(everybody, everybody)
    liar.confirm_all(status)
    liar.unmask_all(status)


def four_and_three(before: Liar, adverts: Sequence[Advert]) -> Spoils:
    """Four live members and the three: a sum over four passes for one over seven, where six is the least."""
    liar = Liar(SIX, VECTORS[:4], name="now")
    with_ghosts(liar, before, adverts)
    return spoils(liar, range(4), frozenset(range(4)))


def replayed_adverts() -> Spoils:
    return four_and_three(*ghosts())


def adverts_of_another_period() -> Spoils:
    return four_and_three(*ghosts(PERIOD_START - 86_400))


def replayed_adverts_as_company() -> Spoils:
    """Four reports whose sum is known come again with a new one; three members that are gone call theirs new too."""
    before, adverts = ghosts()
    first = Liar(FOUR, VECTORS[1:5], name="first", first_device=1)
    first.begin()
    first.deliver_all()
    first.finish(first.honest)
    known = first.open(first.honest)
    assert known == first.truth(first.honest)
    liar = Liar(FOUR, VECTORS[:5], resent=range(1, 5), name="now")
    with_ghosts(liar, before, adverts)
    both = liar.open(liar.honest)
    learnt = None if both is None else plus(both, known, -1)
    return Spoils(learnt, VECTORS[0], liar.refusals, frozenset(liar.honest))


def resent_reports_called_fresh() -> Spoils:
    """Fifteen reports whose sum is known, and one new among them; all are told that nobody's is resent.

    On a graph of four neighbours each, so that nobody can count for itself.
    """
    vectors = [[i, 10 * i] for i in range(1, 17)]
    with sparse(4, 3):
        first = Liar(rules(min_size=10), vectors[1:], name="first", first_device=1)
        first.begin()
        first.deliver_all()
        first.finish(first.honest)
        known = first.open(first.honest)
        assert known == first.truth(first.honest)
        liar = Liar(rules(min_size=10), vectors, resent=range(1, 16), name="second")
        liar.commit(liar.adverts())
        liar.deal({index: replace(liar.roster.for_member(index), resent=0) for index in liar.honest})
        liar.deliver_all()
        status = liar.status(liar.honest)
        for index in liar.honest:
            liar.confirm(index, replace(status.for_member(index), resent_survivors=0))
        liar.unmask_all(status)
        both = liar.open(liar.honest)
    learnt = None if both is None else plus(both, known, -1)
    return Spoils(learnt, vectors[0], liar.refusals, frozenset(liar.honest))


REPLAY_ATTACKS = {
    "resent reports called fresh": Attack(
        resent_reports_called_fresh,
        (
            Line("cohort._check_digest", "(root.first, root.second) != (roster.size, roster.resent)", "False"),
            Line(
                "checks._check_root",
                "(root.first, root.second) != (status.contributors, status.resent_survivors)",
                "False",
            ),
        ),
        AbortReason.ROSTER_DIGEST,
    ),
    "replayed adverts": Attack(replayed_adverts, (NOT_MET,), AbortReason.TOO_FEW_SURVIVORS),
    "replayed adverts as company": Attack(
        replayed_adverts_as_company,
        (Line("checks.check_met", "if is_thin(fresh, fresh_floor):", "if False:"),),
        AbortReason.TOO_FEW_SURVIVORS,
    ),
    "adverts of another period": Attack(
        adverts_of_another_period,
        (
            Line(
                "cohort._check_advert",
                "if (advert.plan_hash, advert.period_start) != (own.plan_hash, own.period_start):",
                "if False:",
            ),
            NOT_MET,
        ),
        AbortReason.BAD_ADVERT,
    ),
}
