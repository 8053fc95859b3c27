"""Everything that a dishonest collector tries: it succeeds where the named check is off, and learns nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk.errors import AbortReason
from client_sdk.identity import device_id_of
from collector.service.mailbox import Member
from collector.service.round_records import release_of
from collector.service.storage import CollectorStore
from tests.adversarial.attacks_by_replay import REPLAY_ATTACKS
from tests.adversarial.attacks_on_rosters import ROSTER_ATTACKS, VECTORS
from tests.adversarial.attacks_on_rounds import ROUND_ATTACKS
from tests.adversarial.dishonest_collector import Liar, plus
from tests.adversarial.weakening import switch_off
from tests.fleet import FORMED_AT, Fleet, rules
from tests.integration.participants import two_number_plan

ATTACKS = {**ROSTER_ATTACKS, **ROUND_ATTACKS, **REPLAY_ATTACKS}
WEAKENED = {name: tuple(map(str, attack.off)) for name, attack in ATTACKS.items()}


@pytest.mark.parametrize("name", ATTACKS)
def test_it_bites_where_the_check_is_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = ATTACKS[name]
    switch_off(monkeypatch, *attack.off)
    spoils = attack.run()
    assert spoils.learnt is not None, spoils.refusals
    assert spoils.learnt == spoils.truth


@pytest.mark.parametrize("name", ATTACKS)
def test_it_learns_nothing(name: str) -> None:
    attack = ATTACKS[name]
    spoils = attack.run()
    assert spoils.learnt is None
    assert {index: spoils.refusals.get(index) for index in spoils.victims} == dict.fromkeys(
        spoils.victims, attack.reason
    )


TWO_CHECKS = ("a revived member", "ciphertexts withheld", "hashes that fit no share", "adverts of another period",
              "resent reports called fresh")  # fmt: skip


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", TWO_CHECKS)
def test_where_two_checks_stand_either_is_enough(name: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = ATTACKS[name]
    assert len(attack.off) == 2
    switch_off(monkeypatch, attack.off[place])
    spoils = attack.run()
    assert spoils.learnt != spoils.truth


def test_every_attack_has_a_check_of_its_own_to_switch_off() -> None:
    assert all(WEAKENED.values())
    assert len(ATTACKS) >= 34


# --- the books -------------------------------------------------------------------------------------


def test_books_tell_the_truth_about_two_sums_around_one_report(tmp_path: Path) -> None:
    """A collector that keeps a sum for itself, calls the round a failure and leaves one out the next time can subtract.

    Nobody can see that, and what it learns is one report, as noisy as it left its device. So a report that may stand in
    two sums says so, signed, and is booked as such: none of the second sum's contributors hides another.
    """
    plan, lost = two_number_plan(3, 7), 6
    hashes = dict.fromkeys(range(7), plan.hash)
    secret = Liar(plan.round_rules(), VECTORS, plan_hashes=hashes, name="secret")
    secret.begin()
    secret.deliver_all()
    secret.finish(secret.honest)
    kept = secret.open(secret.honest)
    assert kept == secret.truth(secret.honest)

    members = range(lost)
    again = Fleet(VECTORS[:lost], plan.round_rules(), resent=set(members), plan_hashes=hashes)
    total = again.run().total
    assert total is not None
    assert plus(kept, total, -1) == VECTORS[lost]

    seats = [
        Member(device_id_of(advert.identity_key), plan, advert, joined_at=0.0) for advert in again.round.roster.adverts
    ]
    release = release_of(again.round, seats, total, 1.0, FORMED_AT)
    assert release.resent == len(release.contributors) == lost
    store = CollectorStore.open(f"sqlite:///{tmp_path / 'books.db'}")
    try:
        store.put_plan(plan, FORMED_AT)
        store.store_release(release)
        assert {row.resent for row in store.released_sums()} == {lost}
        assert all(contribution.resent for contribution in store.contributions())
        assert {spending.resent_reports for spending in store.spending(FORMED_AT)} == {1}
        hidden = {row.contributors - row.resent for row in store.released_sums()}
        assert hidden == {0}, "nobody in this sum hides anybody"
    finally:
        store.close()


def test_a_device_cannot_be_made_to_call_a_resent_report_fresh() -> None:
    """The flag is under its signature, and the others read it there."""
    liar = Liar(rules(min_size=3), VECTORS, resent={3})
    adverts = liar.adverts()
    assert [advert.resent for advert in adverts] == [False] * 3 + [True] + [False] * 3
    adverts[3] = replace(adverts[3], resent=False)
    liar.commit(adverts)
    liar.deal()
    assert liar.refusals == {**dict.fromkeys(range(7), AbortReason.BAD_ADVERT), 3: AbortReason.ROSTER_DIGEST}
