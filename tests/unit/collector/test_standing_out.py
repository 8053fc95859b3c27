"""Cohorts that stand out: exact or bounded false alarms, counted over every way to deal reports to cohorts."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from client_sdk.plan import Plan
from collector.cohort_tails import hoeffding_tail, hypergeometric_tail, laplace_tail
from collector.release import ReleasedSum
from collector.standing_out import MOST_ROWS, standing_out
from tests.entropy import seeded
from tests.unit.collector.plans import plan_of

BITS = plan_of('[metrics.m]\nkind = "numeric"\nlower = 0\nupper = 1\nmechanism = "one_bit"\nepsilon = 1')
LABELS = plan_of('[metrics.m]\nkind = "categorical"\ncategories = ["a", "b"]\nepsilon = 1')
NUMBER = plan_of('[metrics.m]\nkind = "numeric"\nlower = 0\nupper = 1\nepsilon = 1\nlevels = 20')
QUANTILES = plan_of('[metrics.m]\nkind = "quantiles"\nlower = 0\nupper = 10\nquantiles = [0.5]\nepsilon = 1')


def sums(plan: Plan, totals: Sequence[Sequence[int]], sizes: Sequence[int], period: int = 0) -> list[ReleasedSum]:
    found = zip(totals, sizes, strict=True)
    return [ReleasedSum(f"r{i}", plan.hash, period, "m", tuple(t), n, n) for i, (t, n) in enumerate(found)]


def named(plan: Plan, rows: Sequence[ReleasedSum], rate: float = 0.01) -> list[str]:
    return [one.round_id for one in standing_out(rows, {plan.hash: plan.metrics["m"]}, rate).found]


# --- tails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reports", "ones", "among"), [(5, 4, 15), (20, 33, 60), (1, 1, 2), (7, 0, 9), (7, 9, 9)])
def test_a_hypergeometric_tail_is_exact(reports: int, ones: int, among: int) -> None:
    law = {
        x: Fraction(math.comb(ones, x) * math.comb(among - ones, reports - x), math.comb(among, reports))
        for x in range(max(0, reports - among + ones), min(reports, ones) + 1)
    }
    for x in law:
        ends = sum(p for at, p in law.items() if at <= x), sum(p for at, p in law.items() if at >= x)
        assert hypergeometric_tail(x, reports, ones, among) == pytest.approx(float(min(1, 2 * min(ends))), rel=1e-8)


def test_a_tail_of_a_million_reports() -> None:
    assert hypergeometric_tail(5000, 10_000, 500_000, 1_000_000) == pytest.approx(1.0, abs=0.01)
    far = hypergeometric_tail(5300, 10_000, 500_000, 1_000_000)
    assert far == pytest.approx(math.erfc(299.5 / math.sqrt(2 * 2500 * 0.99)), rel=0.05)


@pytest.mark.parametrize(("steps", "scale"), [(4, 3.0), (60, 1.0)])
@pytest.mark.parametrize(("reports", "among"), [(2, 6), (5, 6), (4, 20)])
def test_a_laplace_tail_is_never_below_the_exact_one(reports: int, among: int, steps: int, scale: float) -> None:
    """Whatever the values: all at one end, half of them at each. Exact, by convolution of the noises."""
    ratio = math.exp(-1.0 / scale)
    noise = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-150, 151))
    share = Fraction(reports, among)
    inner, outer = among - reports, reports  # times 1 / among: weights of a noise inside and outside
    for high in (0, among // 2):
        law = np.ones(1)
        for weight in [inner] * reports + [-outer] * (among - reports):
            spread = np.zeros(300 * abs(weight) + 1)
            spread[:: abs(weight)] = noise
            law = np.convolve(law, spread)
        at = (np.arange(len(law)) - len(law) // 2) / among
        falls = {
            x: math.comb(high, x) * math.comb(among - high, reports - x) / math.comb(among, reports)
            for x in range(max(0, reports - among + high), min(reports, high) + 1)
        }
        for distance in (5.0, 15.0, 30.0, 60.0, 90.0, 120.0):
            exact = sum(
                p * law[np.abs(at + steps * (x - float(share) * high)) >= distance].sum() for x, p in falls.items()
            )
            bound = laplace_tail(distance, reports, among, steps, scale)
            assert exact <= bound
            assert bound < 300 * exact + 1e-12 or distance == 5.0 or steps > scale
    assert laplace_tail(1.0, 5, 5, steps, scale) == 1.0


def test_hoeffdings_tail() -> None:
    assert hoeffding_tail(0.0, 5, 20, 1.0) == 1.0
    assert hoeffding_tail(3.0, 5, 20, 1.0) == pytest.approx(2 * math.exp(-18 / 5))
    assert hoeffding_tail(3.0, 15, 20, 1.0) == hoeffding_tail(3.0, 5, 20, 1.0), "the others say as much"
    assert hoeffding_tail(3.0, 5, 5, 1.0) == 1.0


# --- the test ---------------------------------------------------------------------------------------


def deals(sizes: Sequence[int], ones: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every way to deal `ones` set bits to cohorts, and how likely it is."""
    for dealt in itertools.product(*(range(min(size, ones) + 1) for size in sizes)):
        if sum(dealt) == ones:
            ways = math.prod(math.comb(size, bits) for size, bits in zip(sizes, dealt, strict=True))
            yield dealt, ways / math.comb(sum(sizes), ones)


@pytest.mark.parametrize("sizes", [(6, 6, 6), (4, 9), (3, 5, 7, 9)])
@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_false_alarms_over_all_cohorts_are_at_most_the_stated_rate(sizes: tuple[int, ...], rate: float) -> None:
    """Exactly: over every way in which chance deals the bits that are set."""
    some = 0.0
    for ones in range(sum(sizes) + 1):
        alarms = sum(
            chance for dealt, chance in deals(sizes, ones) if named(BITS, sums(BITS, [[d] for d in dealt], sizes), rate)
        )
        assert alarms <= rate
        some = max(some, alarms)
    assert some > rate / 20, "and it is not for nothing"


def test_rows_and_periods_count_for_the_same_rate() -> None:
    sizes = (40, 40, 40)
    far = [[34], [16], [18]]
    assert named(BITS, sums(BITS, far, sizes)) == ["r0"]
    calm = [row for day in range(1, 400) for row in sums(BITS, [[20], [21], [19]], sizes, day)]
    assert named(BITS, [*sums(BITS, far, sizes), *calm]) == [], "among so many it is nothing special"
    verdict = standing_out([*sums(BITS, far, sizes), *calm], {BITS.hash: BITS.metrics["m"]})
    assert (verdict.cohorts, verdict.tests) == (1200, 1200)
    both = sums(LABELS, [[34, 6], [16, 24], [18, 22]], sizes)
    found = standing_out(both, {LABELS.hash: LABELS.metrics["m"]})
    assert found.tests == 6
    assert found.found[0].p == pytest.approx(
        2 * standing_out(sums(BITS, far, sizes), {BITS.hash: BITS.metrics["m"]}).found[0].p
    )
    assert found.found[0].share == 34 / 40
    assert found.found[0].others == 34 / 80


def test_one_that_is_far_off_does_not_make_the_others_look_odd() -> None:
    rows = sums(BITS, [[990], *[[500]] * 4], [1000] * 5)
    assert named(BITS, rows) == ["r0"]
    assert named(BITS, sums(BITS, [[990], [980], *[[500]] * 6], [1000] * 8)) == ["r0", "r1"]


def test_among_chances_that_no_float_holds_the_false_one_is_still_the_least() -> None:
    """Each of these is 0.0 as a float, that of honest ones too: they are compared with all, false ones among them."""
    assert named(BITS, sums(BITS, [[50_000], [90_000], [50_000], [50_000]], [100_000] * 4)) == ["r1"]
    assert named(LABELS, sums(LABELS, [[50_000, 50_000]] * 3 + [[9, 99_991]], [100_000] * 4)) == ["r3"]
    far = 40 * 20 * 3000
    assert named(NUMBER, sums(NUMBER, [[0], [far], [0], [0], [0]], [3000] * 5)) == ["r1"]
    assert named(NUMBER, sums(NUMBER, [[0], [0], [0], [-far], [0]], [3000] * 5)) == ["r3"]


@pytest.mark.parametrize("total", [-1, 41, -(10**6), 10**6])
def test_a_sum_that_no_reports_give_is_named_and_harms_nobody_else(total: int) -> None:
    """More bits than reports, or fewer than none: there is no chance to work out."""
    assert named(BITS, sums(BITS, [[20], [total], [19]], [40] * 3)) == ["r1"]
    assert named(BITS, sums(BITS, [[20], [total]], [40] * 2)) == ["r1"], "of two: here it can be told which"
    assert named(LABELS, sums(LABELS, [[total, 20], [total, 20]], [40] * 2)) == ["r0", "r1"]
    verdict = standing_out(sums(BITS, [[20], [total], [10]], [40] * 3), {BITS.hash: BITS.metrics["m"]})
    (one,) = verdict.found
    assert (one.p, one.share, one.others) == (0.0, total / 40, 30 / 80)
    assert hypergeometric_tail(total, 40, 39, 80) == 0.0


def test_of_two_nobody_can_tell_which() -> None:
    assert named(BITS, sums(BITS, [[990], [500]], [1000] * 2)) == ["r0", "r1"]


def test_numbers_are_held_to_their_noise() -> None:
    mechanism = NUMBER.metrics["m"].mechanism
    honest = [[mechanism.levels // 2 * 500]] * 6
    assert named(NUMBER, sums(NUMBER, honest, [500] * 6)) == []
    liars = 40 * (mechanism.levels + mechanism.tail)
    assert named(NUMBER, sums(NUMBER, [[honest[0][0] + liars], *honest[1:]], [500] * 6)) == ["r0"]


def test_who_is_compared_with_whom() -> None:
    """Cohorts of one plan version and period; direct reports are in none; nothing to compare is no test."""
    far = sums(BITS, [[990], [500], [500]], [1000] * 3)
    alone = [replace(row, period_start=i) for i, row in enumerate(far)]
    direct = [replace(row, delivery="direct") for row in far]
    for rows in (alone, direct, [], far[:1]):
        verdict = standing_out(rows, {BITS.hash: BITS.metrics["m"]})
        assert (verdict.tests, verdict.found) == (0, ())
    quantiles = QUANTILES.metrics["m"]
    rows = sums(QUANTILES, [[0] * quantiles.mechanism.length] * 3, [10] * 3)
    assert standing_out(rows, {QUANTILES.hash: quantiles}).tests == 0


def test_each_that_is_named_is_the_least_likely_of_those_left() -> None:
    """One by one, by the definition: of the cohorts that are left, the one in whose row a tail is the smallest."""
    rng = np.random.default_rng(7)
    sizes = [int(size) for size in rng.integers(300, 900, 12)]
    shares = np.where(np.arange(12)[:, None] % 5 == 0, [0.62, 0.38], [0.5, 0.5])
    rows = sums(LABELS, [rng.binomial(n, share).tolist() for n, share in zip(sizes, shares, strict=True)], sizes)
    left, expected = list(rows), []
    while len(left) > 1:
        of_all, among = np.sum([row.totals for row in left], axis=0), sum(row.contributors for row in left)
        p, place = min(
            (hypergeometric_tail(row.totals[cell], row.contributors, float(of_all[cell]), among), place)
            for place, row in enumerate(left)
            for cell in (0, 1)
        )
        if p * 24 > 0.01:
            break
        expected.append((left.pop(place).round_id, pytest.approx(24 * p)))
    found = standing_out(rows, {LABELS.hash: LABELS.metrics["m"]}).found
    assert [(one.round_id, one.p) for one in found] == expected
    assert len(expected) >= 2


def test_many_cohorts_of_which_some_stand_out_are_looked_at_together() -> None:
    """Were each of them added to all others anew for every one that is named, this would be half a minute of CPU."""
    cohorts, false = 3_000, 12
    honest = [[250 + (i * 7) % 11 - 5, 250 - (i * 7) % 11 + 5] for i in range(cohorts - false)]
    rows = sums(LABELS, [*[[490, 10]] * false, *honest], [500] * cohorts)
    before = time.process_time()
    assert set(named(LABELS, rows)) == {f"r{i}" for i in range(false)}
    assert time.process_time() - before < 3.0


@pytest.mark.parametrize("plan", [LABELS, NUMBER])
def test_where_nearly_every_cohort_stands_out_work_is_bounded(plan: Plan) -> None:
    """Minutes, were the chances of all of them worked out anew for each that is named."""
    rng, cohorts = np.random.default_rng(3), 600
    sizes = rng.integers(300, 700, cohorts)
    totals = [
        [int(n * share), n - int(n * share)] for n, share in zip(sizes.tolist(), rng.random(cohorts), strict=True)
    ]
    if plan is NUMBER:
        totals = [[900 * a] for a, _ in totals]
    before = time.process_time()
    assert len(named(plan, sums(plan, totals, sizes.tolist()))) > cohorts // 2
    assert time.process_time() - before < 5.0


def test_to_look_less_often_names_fewer_and_none_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for day in range(3) for row in sums(BITS, [[990], [980], *[[500]] * 6], [1000] * 8, day)]
    assert named(BITS, rows) == ["r0", "r1"] * 3
    monkeypatch.setattr("collector.standing_out.MOST_LOOKED_AT", 1)
    assert named(BITS, rows) == ["r0"] * 3, "each period is looked at once"


def test_a_metric_of_too_many_rows_is_not_tested() -> None:
    for rows in (MOST_ROWS, MOST_ROWS + 1):
        labels = ", ".join(f'"{i}"' for i in range(rows))
        plan = plan_of(f'[metrics.m]\nkind = "categorical"\ncategories = [{labels}]\nepsilon = 1')
        found = sums(plan, [[9, *[0] * (rows - 1)], [0] * (rows - 1) + [9]], [9, 9])
        verdict = standing_out(found, {plan.hash: plan.metrics["m"]})
        assert (verdict.cohorts, verdict.tests) == ((2, 2 * rows) if rows == MOST_ROWS else (0, 0))


@pytest.mark.parametrize(
    ("mechanism", "tested"), [("optimized_unary", True), ("hadamard", True), ("square_wave", False)]
)
def test_histograms_are_tested_by_their_supports(mechanism: str, tested: bool) -> None:
    """What supports a bin, which of Hadamard no cell of a sum says by itself; smoothed ones have no such law."""
    plan = plan_of(f'[metrics.m]\nkind = "histogram"\nedges = [0, 1, 2, 3]\nmechanism = "{mechanism}"\nepsilon = 1')
    mechanism_of: Any = plan.metrics["m"].mechanism
    entropy, cohorts = seeded(mechanism), []
    for value in (0.5, 2.5):
        reports = mechanism_of.perturb_many([value] * 500, entropy)
        cohorts.append(np.sum(reports, axis=0, dtype=np.int64).tolist())
    verdict = standing_out(sums(plan, cohorts, [500, 500]), {plan.hash: plan.metrics["m"]})
    assert verdict.tests == (6 if tested else 0)
    assert [one.row in (0, 2) for one in verdict.found] == ([True, True] if tested else [])
