"""When a cohort forms, waits or is sent away: by example at each boundary, and over chance fleets."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.plan import parse_plan
from client_sdk.secagg.parameters import MAX_ROSTER, min_roster
from collector.cohorts import PUT_OFF_S, Form, FormingRules, SendAway, Wait, Waiting, decide, takers

END = 1_700_006_400
WINDOW = 6 * 3600
SLOT = WINDOW // 12
# Floor: ceil(50 / 0.9) = 56.
RULES = FormingRules(
    min_size=50,
    target_size=100,
    max_wait_s=30,
    dropout_fraction=Fraction(1, 10),
    period_end=END,
    upload_window_s=WINDOW,
)
NOON = END + 3600 + 100.0  # well inside a slot


def crowd(n: int, *, at: float = NOON, resent: int = 0, min_cohort: int = 0, name: str = "d") -> list[Waiting]:
    """n members that joined a hundredth of a second after one another; the last `resent` of them resent."""
    return [Waiting(f"{name}{i}", at + i / 100, i >= n - resent, min_cohort) for i in range(n)]


def test_rules_come_from_the_plan() -> None:
    plan = parse_plan(
        """
        [plan]
        name = "p"
        version = 1
        period = "1d"
        upload_window = "6h"
        [cohort]
        min_size = 50
        target_size = 100
        max_wait = "30s"
        dropout_fraction = 0.1
        [budget]
        lifetime = 365
        [metrics.m]
        kind = "categorical"
        categories = ["x", "y"]
        epsilon = 1.0
        """
    )
    assert FormingRules.of(plan, END - 86_400) == RULES
    assert RULES.floor == 56


def test_at_target_size_at_once() -> None:
    members = crowd(100)
    assert decide(members[:99], RULES, NOON + 1) == Wait(NOON + 30)
    assert decide(members, RULES, NOON + 1) == Form(tuple(members))


def test_longest_waiting_first() -> None:
    members = crowd(130)
    shuffled = random.Random(1).sample(members, k=130)
    assert decide(shuffled, RULES, NOON + 2) == Form(tuple(members[:100]))


@pytest.mark.parametrize(("n", "forms"), [(1, False), (55, False), (56, True), (99, True)])
def test_at_max_wait_after_the_oldest_with_whoever_is_there(n: int, forms: bool) -> None:
    members = crowd(n)
    assert decide(members, RULES, NOON + 29.99) == Wait(NOON + 30)
    decision = decide(members, RULES, NOON + 30)
    if forms:
        assert decision == Form(tuple(members))
    else:
        assert decision == SendAway(tuple(members), END + 3 * SLOT, 15)


def test_all_of_a_fleet_are_sent_to_the_same_instants() -> None:
    # Whoever it was, whenever in the twelfth: before, during and after the window.
    for slot in (-20, -1, 0, 1, 11, 12, 40):
        expected = END + (slot + 1) * SLOT
        for into in (0.0, 31.0, 900.0, SLOT - 0.25):
            now = END + slot * SLOT + into
            lone = Waiting("x", now - 100, False, 0)
            assert decide([lone], RULES, now) == SendAway((lone,), expected, 15)


@pytest.mark.parametrize("window", [1, 7, 11, 12, 13, 100, 86_399])
def test_the_grid_moves_on_for_any_window(window: int) -> None:
    rules = replace(RULES, upload_window_s=window)
    assert [rules.meeting(k) for k in (-12, 0, 12)] == [END - window, END, END + window]
    for now in (END - 1000.5, END - 1, END, END + 0.5, END + window / 12, END + 5 * window):
        last, following = rules.meetings_around(now)
        assert last <= now < following
        assert following - now <= max(1, window / 12 + 1)
        grid = {rules.meeting(k) for k in range(-20_000 // window - 20_000, 20_000)} if window == 100 else None
        assert grid is None or not any(last < instant < following for instant in grid)


def test_a_sending_away_that_falls_into_a_meeting_waits_for_its_end() -> None:
    meeting = END + 3 * SLOT
    early = Waiting("early", meeting - 10.0, False, 0)
    others = crowd(40, at=meeting + 5)
    due = meeting + 20.0
    assert decide([early], RULES, meeting - 1) == Wait(due)
    assert decide([early, *others], RULES, due) == Wait(meeting + 30)
    # The rest arrive in time, and all are together.
    late = crowd(16, at=meeting + 24, name="late")
    assert decide([early, *others, *late], RULES, meeting + 25) == Form((early, *others, *late))
    # Or they do not, and all are sent to the next meeting.
    assert decide([early, *others], RULES, meeting + 30) == SendAway((early, *others), END + 4 * SLOT, 15)


def test_nobody_waits_longer_than_a_roster_may_take() -> None:
    rules = replace(RULES, max_wait_s=600)
    lone = Waiting("lone", END + SLOT - 500.0, False, 0)
    assert decide([lone], rules, lone.joined_at + 600) == Wait(lone.joined_at + 600 + PUT_OFF_S)
    assert isinstance(decide([lone], rules, lone.joined_at + 600 + PUT_OFF_S), SendAway)


def test_meetings_that_run_into_one_another_have_no_end_to_wait_for() -> None:
    rules = replace(RULES, upload_window_s=60)
    lone = Waiting("lone", END + 1.0, False, 0)
    assert decide([lone], rules, END + 31) == SendAway((lone,), END + 35, 15)


# --- a fleet of known size ------------------------------------------------------------------------


def cohort_sizes(devices: int, rules: FormingRules) -> tuple[list[int], int]:
    """All devices join one after the other: the sizes of the cohorts, and how many were left waiting."""
    waiting: list[Waiting] = []
    sizes = []
    for i, member in enumerate(crowd(devices)):
        waiting.append(member)
        while waiting:
            decision = decide(waiting, rules, member.joined_at, devices - i - 1)
            if not isinstance(decision, Form):
                break
            sizes.append(len(decision.members))
            waiting = [w for w in waiting if w not in decision.members]
    return sizes, len(waiting)


@pytest.mark.parametrize(
    ("devices", "sizes"),
    [
        (300, [100, 100, 100]),
        (250, [100, 150]),
        (299, [100, 199]),
        (301, [100, 100, 101]),
        (199, [199]),
        (100, [100]),
        (56, [56]),
        (55, []),
    ],
)
def test_a_remainder_joins_the_last_cohort(devices: int, sizes: list[int]) -> None:
    assert cohort_sizes(devices, RULES) == (sizes, 0 if sizes else devices)


def test_a_member_that_never_came_does_not_keep_the_last_cohort_waiting() -> None:
    members = crowd(140)
    assert decide(members, RULES, NOON + 10, 3) == Wait(NOON + 30)
    assert decide(members, RULES, NOON + 30, 3) == Form(tuple(members))


# --- who takes part -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fresh", "resent", "taken"),
    [
        (56, 0, "all"),
        (56, 300, "all"),
        (55, 0, "nobody"),
        (0, 56, "all"),
        (0, 55, "nobody"),
        (55, 55, "nobody"),
        (55, 56, "resent"),
        (1, 56, "resent"),
    ],
)
def test_fresh_members_hide_among_fresh_ones_only(fresh: int, resent: int, taken: str) -> None:
    members = crowd(fresh + resent, resent=resent)
    expected = {"all": members, "nobody": [], "resent": members[fresh:]}[taken]
    assert list(takers(members, RULES)) == expected


def test_resent_ones_form_while_too_few_fresh_ones_go_on_waiting() -> None:
    resent = crowd(60, resent=60, name="r")
    fresh = crowd(5, at=NOON + 20, name="f")
    waiting = [*resent, *fresh]
    assert decide(waiting, RULES, NOON + 30) == Form(tuple(resent))
    assert decide(fresh, RULES, NOON + 30) == Wait(NOON + 50)


def test_too_few_fresh_ones_are_sent_away_while_resent_ones_go_on_waiting() -> None:
    fresh = crowd(5, name="f")
    resent = crowd(60, at=NOON + 20, resent=60, name="r")
    waiting = [*fresh, *resent]
    assert decide(waiting, RULES, NOON + 30) == SendAway(tuple(fresh), END + 3 * SLOT, 15)
    assert decide(resent, RULES, NOON + 30) == Wait(NOON + 50)


def test_a_full_cohort_takes_fresh_ones_first_where_the_oldest_are_too_many_resent_ones() -> None:
    resent = crowd(90, resent=90, name="r")
    fresh = crowd(56, at=NOON + 1, name="f")
    assert decide([*resent, *fresh[:55]], RULES, NOON + 2) == Wait(NOON + 30)
    assert decide([*resent, *fresh], RULES, NOON + 2) == Form((*fresh, *resent[:44]))


def test_a_wish_is_met_or_left_out() -> None:
    others = crowd(99, at=NOON + 1)
    met = Waiting("met", NOON, False, 90)  # ceil(90 / 0.9) = 100
    more = Waiting("more", NOON, False, 91)
    assert decide([met, *others], RULES, NOON + 2) == Form((met, *others))
    assert decide([more, *others], RULES, NOON + 2) == Wait(NOON + 30)
    extra = Waiting("extra", NOON + 2, False, 0)
    assert decide([more, *others, extra], RULES, NOON + 2) == Form((*others, extra))


def test_a_wish_that_nothing_meets_is_sent_away_without_hurrying_the_others() -> None:
    greedy = Waiting("greedy", NOON, False, 2**32 - 1)
    others = crowd(70, at=NOON + 20)
    assert decide([greedy, *others], RULES, NOON + 30) == SendAway((greedy,), END + 3 * SLOT, 15)
    assert decide(others, RULES, NOON + 30) == Wait(NOON + 50)
    assert decide([greedy, *others], RULES, NOON + 50) == Form(tuple(others))


def test_a_wish_may_be_met_by_a_last_cohort_larger_than_the_target() -> None:
    members = [Waiting("more", NOON, False, 100), *crowd(149)]
    assert decide(members, RULES, NOON + 2, 0) == Form(tuple(members))


def test_a_roster_never_outgrows_what_a_participant_accepts() -> None:
    large = replace(RULES, target_size=10_000)
    members = crowd(MAX_ROSTER + 10, min_cohort=9_500)  # more than the target promises, so they wait
    assert decide(members, large, NOON + 200) == Form(tuple(members[:MAX_ROSTER]))
    assert decide(members, large, NOON + 200, 0) == Form(tuple(members[:MAX_ROSTER]))


def test_a_roster_never_outgrows_what_the_plan_has_a_graph_for() -> None:
    members = crowd(250, min_cohort=110)
    assert decide(members, RULES, NOON + 29) == Wait(NOON + 30)
    assert decide(members, RULES, NOON + 30) == Form(tuple(members[:199]))
    assert decide(members[199:], RULES, NOON + 30) == Wait(members[199].joined_at + 30)


def test_wishes_beyond_the_largest_roster_block_nobody() -> None:
    """More of the greedy than a roster holds, and all older: the others form theirs, then the greedy are sent away."""
    greedy = crowd(300, at=NOON - 10, min_cohort=10_000, name="g")
    others = crowd(60)
    assert decide([*greedy, *others], RULES, NOON + 20) == SendAway(tuple(greedy), END + 3 * SLOT, 15)
    assert decide([*greedy, *others], RULES, NOON + 30) == Form(tuple(others))


def test_who_has_no_room_in_this_roster_waits_for_the_next() -> None:
    """Even where somebody older is sent away first."""
    greedy = Waiting("greedy", NOON - 10, False, 10_000)
    members = crowd(250, min_cohort=110)
    assert decide([greedy, *members], RULES, NOON + 20) == SendAway((greedy,), END + 3 * SLOT, 15)


def test_large_cohorts_form_at_their_target() -> None:
    members = crowd(5_200)
    assert decide(members, replace(RULES, target_size=5_000), NOON + 20) == Form(tuple(members[:5_000]))


def test_nobody_is_no_question() -> None:
    with pytest.raises(ValueError, match="nobody waits"):
        decide([], RULES, NOON)


# --- after an impossible sum -----------------------------------------------------------------------


def suspects(n: int, suspicion: int = 1) -> list[Waiting]:
    return [replace(member, suspicion=suspicion) for member in crowd(n, resent=n)]


@pytest.mark.parametrize(("n", "formed"), [(56, 56), (57, 56), (70, 63), (100, 90), (114, 57), (150, 75)])
def test_suspects_are_parted_as_far_as_the_rest_makes_a_roster(n: int, formed: int) -> None:
    decision = decide(suspects(n), replace(RULES, target_size=150), NOON + 60)
    assert isinstance(decision, Form)
    assert len(decision.members) == formed
    assert set(decision.members) | set(decision.left) == set(suspects(n))
    assert decision == decide(suspects(n), replace(RULES, target_size=150), NOON + 60)


def test_the_most_suspicious_are_left_and_equals_in_another_order_each_time() -> None:
    others, worst = suspects(90, 3), [replace(member, suspicion=5) for member in crowd(10, resent=10, name="w")]
    decision = decide([*worst, *others], RULES, NOON + 1)
    assert isinstance(decision, Form)
    assert set(decision.left) == set(worst)
    again = [decide(suspects(100, count), RULES, NOON + 1) for count in (1, 2)]
    assert len({frozenset(m.device_id for m in one.left) for one in again if isinstance(one, Form)}) == 2


def test_who_is_no_suspect_is_never_left_and_a_wish_keeps_a_suspect_in() -> None:
    some = [*suspects(3), *crowd(97, resent=97, name="clear")]
    decision = decide(some, RULES, NOON + 1)
    assert isinstance(decision, Form)
    assert set(decision.left) == set(some[:3])
    picky = [*suspects(3), *crowd(97, resent=97, name="clear", min_cohort=90)]
    decision = decide(picky, RULES, NOON + 1)
    assert isinstance(decision, Form)
    assert set(decision.members) == set(picky), "they asked for a hundred"
    fresh = [*(replace(member, resent=False) for member in suspects(3)), *crowd(53, at=NOON + 1, name="fresh")]
    mixed = [*fresh, *crowd(44, at=NOON + 2, resent=44, name="resent")]
    decision = decide(mixed, RULES, NOON + 3)
    assert isinstance(decision, Form)
    assert set(decision.members) == set(mixed), "of the fresh ones not one is to spare"


# --- over chance fleets ---------------------------------------------------------------------------

member_strategy = st.tuples(st.floats(-200, 0), st.booleans(), st.sampled_from([0, 0, 0, 3, 6, 9, 40]))
# Its length drawn first: a list left to itself is mostly too short for a roster.
members_strategy = st.integers(1, 40).flatmap(lambda n: st.lists(member_strategy, min_size=n, max_size=n))


def satisfied(member: Waiting, roster: tuple[Waiting, ...], rules: FormingRules) -> bool:
    """Would this participant go through with the roster if the expected fraction dropped out of it?"""
    fresh = sum(not other.resent for other in roster)
    need = min_roster(max(rules.min_size, member.min_cohort), rules.dropout_fraction)
    return (len(roster) if member.resent else fresh) >= need


def test_every_decision_keeps_the_rules() -> None:
    kinds: Counter[str] = Counter()

    @settings(max_examples=400, deadline=None)
    @given(
        members_strategy,
        st.integers(2, 8),
        st.integers(0, 10),
        st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(2, 5)]),
        st.sampled_from([1, 60, 3600]),
        st.none() | st.integers(0, 20),
        st.floats(-4000, 4000),
    )
    def holds(
        rows: list[tuple[float, bool, int]],
        min_size: int,
        over: int,
        dropout: Fraction,
        window: int,
        expected: int | None,
        offset: float,
    ) -> None:
        now = END + offset
        target = min_roster(min_size, dropout) + over
        rules = FormingRules(min_size, target, 30, dropout, END, window)
        waiting = [
            Waiting(str(i), now + ago, resent, wish, i % 3 if len(rows) % 4 else 0)
            for i, (ago, resent, wish) in enumerate(rows)
        ]
        while waiting:
            decision = decide(waiting, rules, now, expected)
            kinds[type(decision).__name__] += 1
            if isinstance(decision, Wait):
                assert decision.until > now
                assert decision.until <= now + 30 + PUT_OFF_S
                if expected is None:
                    assert len(takers([m for m in waiting if rules.wanted(m) <= target], rules)) < target
                return
            assert decision.members
            assert set(decision.members) <= set(waiting)
            assert len(set(decision.members)) == len(decision.members)
            if isinstance(decision, Form):
                assert all(satisfied(member, decision.members, rules) for member in decision.members)
                kinds["mixed"] += len({member.resent for member in decision.members}) == 2
                kinds["some left out"] += len(decision.members) < len(waiting)
                assert all(member.suspicion for member in decision.left)
                assert set(decision.left) <= set(waiting) - set(decision.members)
                kinds["parted"] += bool(decision.left)
            else:
                assert decision.come_back_at > now
                assert decision.come_back_at == rules.meetings_around(now)[1]
                assert decision.members[0].joined_at + rules.max_wait_s <= now
            waiting = [member for member in waiting if member not in set(decision.members)]

    holds()
    assert min(kinds[kind] for kind in ("Wait", "Form", "SendAway", "mixed", "some left out", "parted")) >= 10, kinds


@settings(max_examples=200, deadline=None)
@given(members_strategy, st.integers(2, 6))
def test_takers_are_the_largest_content_set(rows: list[tuple[float, bool, int]], min_size: int) -> None:
    rules = replace(RULES, min_size=min_size)
    members = [Waiting(str(i), ago, resent, wish) for i, (ago, resent, wish) in enumerate(rows)]
    taken = takers(members, rules)
    assert all(satisfied(member, taken, rules) for member in taken)
    # Any content set that is a whole class of members (fresh or not, by wish) lies within it.
    for with_fresh in (False, True):
        for with_resent in (False, True):
            for most in (0, 3, 6, 9, 40):
                group = tuple(m for m in members if m.min_cohort <= most and (with_resent if m.resent else with_fresh))
                if group and all(satisfied(member, group, rules) for member in group):
                    assert set(group) <= set(taken)


def test_a_small_fleet_spread_over_the_window_meets() -> None:
    """60 devices with random offsets over six hours: each alone finds nobody, and an hour later all have reported."""
    rng = random.Random(7)
    come = sorted((END + rng.uniform(0, SLOT), f"d{i}") for i in range(60))
    waiting: list[Waiting] = []
    rosters = []
    now = come[0][0]
    while come or waiting:
        decision = decide(waiting, RULES, now) if waiting else None
        if isinstance(decision, Form):
            rosters.append(len(decision.members))
            waiting = [w for w in waiting if w not in decision.members]
        elif isinstance(decision, SendAway):
            for member in decision.members:
                come.append((decision.come_back_at + rng.uniform(0, decision.jitter_s), member.device_id))
            come.sort()
            waiting = [w for w in waiting if w not in decision.members]
        else:
            timer = decision.until if isinstance(decision, Wait) else float("inf")
            now = min(timer, come[0][0] if come else float("inf"))
            while come and come[0][0] <= now:
                at, device = come.pop(0)
                waiting.append(Waiting(device, at, False, 0))
    assert rosters == [60]
    assert now <= END + SLOT + 60
