"""Random rounds that must succeed, the look of masked inputs, and honest members among a lying collector's."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import chain

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client_sdk import identity
from client_sdk.errors import AbortReason, RemoteProtocolError
from client_sdk.secagg import checks, cohort, shamir
from client_sdk.secagg.keys import RoundSecrets
from client_sdk.secagg.masking import add_masks, from_ring, remove_masks, ring_from_bytes, to_ring
from client_sdk.secagg.merkle import Tree
from client_sdk.secagg.messages import Confirm, MaskedInputPiece, SurvivorStatus, UnmaskRequest, UnmaskShares
from client_sdk.secagg.parameters import RoundRules, threshold
from client_sdk.secagg.transcript import Status, confirm_message, status_leaf, status_root
from collector.secagg import shares, status
from tests.fleet import Fleet, SeededEntropy, column_sums, rules

STEPS = ("shares", "masked_input", "confirm", "unmask")
CORRUPT = ("0", "0.1", "0.2", "1/3")
MIN_SIZE = 2


def reserve(size: int, corrupt: str) -> int:
    """How many members may drop, whenever they do, without costing the sum."""
    return size - max(MIN_SIZE, threshold(size, Fraction(corrupt)))


@st.composite
def rounds(draw: st.DrawFn, must: tuple[str, ...]) -> tuple[list[list[int]], RoundRules, dict[int, str], set[int]]:
    """Vectors within a bound, rules, drops within the reserve (the steps of `must` among them), who is resent."""
    size = draw(st.integers(3 if len(must) < 2 else 5, 9))
    corrupt = draw(st.sampled_from([text for text in CORRUPT if reserve(size, text) >= len(must)]))
    more = draw(st.integers(0, reserve(size, corrupt) - len(must)))
    steps = [*must, *draw(st.lists(st.sampled_from(STEPS), min_size=more, max_size=more))]
    drops = dict(zip(draw(st.permutations(range(size))), steps, strict=False))
    length = draw(st.integers(1, 5))
    bound = draw(st.sampled_from([1, 1000, (2**15 - 1) // size, (2**31 - 1) // size, (2**63 - 1) // size]))
    element = st.one_of(st.sampled_from([-bound, 0, bound]), st.integers(-bound, bound))
    vectors = draw(st.lists(st.lists(element, min_size=length, max_size=length), min_size=size, max_size=size))
    resent = set(range(size)) if draw(st.booleans()) else set()
    return vectors, rules(length, min_size=MIN_SIZE, bound=bound, corrupt=corrupt), drops, resent


MUST = {
    "any": (),
    "recovered": ("masked_input",),
    "recovered with fewer sharers": ("masked_input", "shares"),
    "recovered with fewer answers": ("masked_input", "unmask"),
    "recovered with fewer confirmations": ("masked_input", "confirm"),
}


@pytest.mark.parametrize("kind", MUST)
def test_drops_within_the_reserve_never_cost_the_sum(kind: str) -> None:
    """The exact sum, and the interesting case was reached each time: a wrong sign in recovery must not hide."""
    reached: Counter[str] = Counter()

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(rounds(MUST[kind]))
    def run(drawn: tuple[list[list[int]], RoundRules, dict[int, str], set[int]]) -> None:
        vectors, round_rules, drops, resent = drawn
        result = Fleet(vectors, round_rules, resent=resent).run(drops)
        lost = {index for index, step in drops.items() if step in ("shares", "masked_input")}
        assert result.aborted is None
        assert result.total == column_sums(vectors, set(range(len(vectors))) - lost)
        assert result.contributors == len(vectors) - len(lost)
        assert result.dropouts == {step: list(drops.values()).count(step) for step in STEPS}
        assert result.recovered == result.dropouts["masked_input"]
        reached["rounds"] += 1
        reached["recovered"] += result.recovered > 0

    run()
    assert reached["rounds"] >= 40
    assert reached["recovered"] >= (reached["rounds"] if MUST[kind] else 0)


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([16, 32, 64]),
    seeds=st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.sampled_from([1, -1])), max_size=5),
    values=st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1, max_size=40),
)
def test_masks_come_off_again(bits: int, seeds: list[tuple[bytes, int]], values: list[int]) -> None:
    vector = to_ring(values, bits)
    add_masks(vector, seeds)
    remove_masks(vector, seeds[::-1])
    assert from_ring(vector) == values


@settings(max_examples=60, deadline=None)
@given(
    secret=st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32])),
    sizes=st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))),
    order=st.randoms(use_true_random=False),
)
def test_any_threshold_of_shares_combines(secret: bytes, sizes: tuple[int, int], order: object) -> None:
    needed, holders = sizes
    shares = shamir.split(secret, needed, holders, SeededEntropy(secret))
    xs = list(range(1, holders + 1))
    order.shuffle(xs)  # type: ignore[attr-defined]
    chosen = xs[:needed]
    assert shamir.combine(chosen, [shares[x - 1] for x in chosen]) == secret


def masked_inputs(value: int, rounds_count: int, bits_bound: int) -> list[np.ndarray]:
    """Member 1's masked input of a constant vector, over rounds that differ in their entropy only."""
    found = []
    for number in range(rounds_count):
        fleet = Fleet(
            [[value] * 4096] * 3,
            rules(4096, min_size=3, bound=bits_bound),
            entropy_for=lambda i, number=number: SeededEntropy(b"%d of %d" % (i, number)),
        )
        fleet.run()
        pieces = [m.data for i, m in fleet.sent if i == 1 and isinstance(m, MaskedInputPiece)]
        found.append(ring_from_bytes(b"".join(pieces), fleet.round.bits))
    return found


@pytest.mark.parametrize("bound", [1000, 2**20, 2**40])
def test_masked_inputs_look_uniform(bound: int) -> None:
    """Every byte of a masked input of equal elements takes all values evenly: chi-square, 255 degrees, 6 sigma."""
    vectors = masked_inputs(bound, 4, bound)
    width = vectors[0].itemsize
    columns = np.concatenate([vector.view(np.uint8).reshape(-1, width) for vector in vectors])
    for column in columns.T:
        counts = np.bincount(column, minlength=256)
        expected = len(column) / 256
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert abs(chi_square - 255) < 6 * (2 * 255) ** 0.5
    assert len({bytes(vector) for vector in vectors}) == 4
    assert len(set(chain.from_iterable(v[:8].tolist() for v in vectors))) > 28


def test_two_fleets_with_the_same_entropy_are_equal_byte_for_byte() -> None:
    first, second = (Fleet([[1, 2]] * 5, rules(min_size=2)) for _ in range(2))
    drops = {1: "masked_input", 2: "unmask"}
    assert first.run(drops).total == second.run(drops).total == [4, 8]
    assert first.sent == second.sent
    assert first.received == second.received
    other = Fleet([[1, 2]] * 5, rules(min_size=2), entropy_for=lambda i: SeededEntropy(b"other %d" % i))
    other.run(drops)
    assert other.sent != first.sent


def status_where(fleet: Fleet, dropped: tuple[int, ...]) -> SurvivorStatus:
    """The status of a complete cohort without resent members, in which all shared and these dropped."""
    digest, everybody = fleet.round.digest, range(fleet.round.size)
    statuses = [Status.DROPPED if index in dropped else Status.SURVIVED for index in everybody]
    root = Tree([status_leaf(digest, index, what, resent=False) for index, what in enumerate(statuses)]).root
    survivors = tuple(index for index in everybody if index not in dropped)
    return SurvivorStatus(survivors, len(survivors), 0, status_root(digest, root), ())


def tell_two_stories(fleet: Fleet, victim: int, corrupt: int, told_alive: list[bool]) -> dict[bool, dict[int, bytes]]:
    """Each honest member is told that `victim` survived, or that it dropped; `corrupt` signs both and shows all.

    Returns the victim's shares that the collector then holds: of its self-mask seed (True), of its mask-key seed.
    """
    told = {True: status_where(fleet, ()), False: status_where(fleet, (victim,))}
    both = fleet.participants[corrupt]._state.pairs[victim]  # type: ignore[union-attr]
    held = {True: {corrupt: both.self_share}, False: {corrupt: both.mask_share}}
    signed: dict[bool, dict[int, bytes]] = {}
    for lives, story in told.items():
        message = confirm_message(fleet.round.digest, story.root)
        signed[lives] = {corrupt: fleet.identities[corrupt].sign(message)}
    honest = {i: told_alive[i] or i == victim for i in range(fleet.round.size) if i != corrupt}
    for index, lives in honest.items():
        (confirm,) = fleet.participants[index].receive(told[lives], fleet.now)
        assert isinstance(confirm, Confirm)
        signed[lives][index] = confirm.signature
    for index, lives in honest.items():
        signers = tuple(sorted(signed[lives]))
        signatures = tuple(signed[lives][i] for i in signers)
        request = UnmaskRequest(() if lives else (victim,), signers, signatures)
        if len(signers) < fleet.round.threshold:
            with pytest.raises(RemoteProtocolError) as caught:
                fleet.participants[index].receive(request, fleet.now)
            assert caught.value.reason is AbortReason.TOO_FEW_CONFIRMATIONS
            continue
        (answer,) = fleet.participants[index].receive(request, fleet.now)
        assert isinstance(answer, UnmaskShares)
        held[lives][index] = dict(zip(answer.owners, answer.shares, strict=True))[victim]
    return held


def test_a_collector_that_tells_two_stories_opens_at_most_one_seed() -> None:
    """corrupt_fraction 1/7 of 7 members: the threshold is 5, and only one story can find 5 who sign it.

    Where neither does, the collector holds no share but its own member's. Each outcome is reached.
    """
    reached: Counter[str] = Counter()

    @settings(max_examples=60, deadline=None)
    @given(alive=st.integers(0, 6), order=st.permutations(range(7)), victim=st.integers(0, 6))
    def run(alive: int, order: list[int], victim: int) -> None:
        fleet = Fleet([[1, 2]] * 7, rules(min_size=2, corrupt="1/7"))
        messages = fleet.join()
        for _ in range(2):
            fleet.step(messages)
            messages = fleet.round.close()
        assert fleet.round.threshold == 5
        held = tell_two_stories(fleet, victim, (victim + 1) % 7, [order[index] < alive for index in range(7)])
        found = [lives for lives, shares in held.items() if len(shares) >= 5]
        assert len(found) <= 1
        assert all(len(shares) == 1 or lives in found for lives, shares in held.items())
        reached[str(found)] += 1
        entropy = SeededEntropy(b"member %d" % victim)
        entropy(32)
        secrets = RoundSecrets.draw(entropy)
        for lives in found:
            xs = sorted(held[lives])[:5]
            seed = shamir.combine([x + 1 for x in xs], [held[lives][x] for x in xs])
            assert seed == (secrets.self_mask_seed if lives else secrets.mask_seed)

    run()
    assert set(reached) == {"[]", "[True]", "[False]"}, reached


@pytest.mark.slow
def test_a_sparse_cohort_with_a_plans_usual_fractions(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 members, 82 neighbours each, threshold 57: a tenth is lost over all steps, resent members among them."""
    verify_once = lru_cache(maxsize=None)(identity.verify)
    for module in (checks, cohort, shares, status):
        monkeypatch.setattr(module, "verify", verify_once)
    size = 300
    vectors = [[index - 150, 3 * index] for index in range(size)]
    drops = {index: STEPS[index // 10 % 4] for index in range(7, size, 10)}
    plan = rules(min_size=100, corrupt="0.1", dropout="0.1", bound=1000)
    assert (plan.degree(size), plan.threshold(size)) == (82, 57)
    result = Fleet(vectors, plan, resent={3, 7, 17, 200}).run(drops)
    lost = {index for index, step in drops.items() if step in ("shares", "masked_input")}
    assert (result.aborted, result.refusals) == (None, {})
    assert result.total == column_sums(vectors, set(range(size)) - lost)
    assert result.contributors == size - len(lost)
    assert result.dropouts == dict(Counter(drops.values()))
    assert result.recovered == result.dropouts["masked_input"]
