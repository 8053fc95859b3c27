"""Many false but well-formed devices: whatever they send, what is printed says how far it went.

The attacks on local differential privacy of the literature (Cao, Jia & Gong 2021): *maximal gain* (each false report
supports the target as far as one can), *random* reports, *targeted inputs* (the false devices follow the protocol with
a value that they were told), and, on numbers, *outliers* at the ends of what a report can hold. The honest devices'
reports are real ones; the false devices' are added to the same sums.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from client_sdk.plan import parse_plan
from collector.combination import Pool, combine
from collector.poisoning import bands, false_devices
from collector.release import ReleasedSum
from collector.reports import build_report
from tests.entropy import seeded
from tests.unit.collector.plans import plan_of

HONEST, FALSE, K = 1200, 60, 6
LABELS = ", ".join(f'"c{i}"' for i in range(K))
COUNTS = ["randomized_response", "symmetric_unary", "optimized_unary", "subset_selection", "hadamard"]
NUMBERS = ["laplace", "one_bit", "piecewise", "hybrid"]

Attack = Callable[[Any, random.Random], list[int]]


def metric_of(text: str) -> Any:
    return plan_of(f"[metrics.m]\n{text}").metrics["m"]


def counts(mechanism: str) -> Any:
    return metric_of(f'kind = "categorical"\ncategories = [{LABELS}]\nmechanism = "{mechanism}"\nepsilon = 1.5')


def number(mechanism: str, more: str = "") -> Any:
    return metric_of(f'kind = "numeric"\nlower = -2\nupper = 8\nmechanism = "{mechanism}"\nepsilon = 1.5\n{more}')


def well_formed(mechanism: Any, rng: random.Random) -> list[int]:
    """Any report that has the form of one, each about as likely as another."""
    if mechanism.answer == "optional_mean":
        return [*well_formed(mechanism.inner, rng), rng.randint(0, 1)]
    if mechanism.answer == "mean":
        return [rng.randint(mechanism.law.lowest, mechanism.law.highest)]
    ones = rng.randint(0, mechanism.length) if mechanism.ones is None else mechanism.ones
    marked = set(rng.sample(range(mechanism.length), ones))
    return [int(cell in marked) for cell in range(mechanism.length)]


def best_for(row: int, sign: int) -> Attack:
    """The report of a few hundred well-formed ones that moves the row furthest."""

    def attack(mechanism: Any, rng: random.Random) -> list[int]:
        tried = [well_formed(mechanism, rng) for _ in range(300)]
        if mechanism.answer == "counts":  # those that one could think of
            for cell in range(mechanism.length):
                alone = [int(i == cell) for i in range(mechanism.length)]
                tried += [alone] if mechanism.is_plausible(alone, 1) else []
        if mechanism.answer == "mean":
            tried += [[mechanism.law.lowest], [mechanism.law.highest]]
        if mechanism.answer == "optional_mean":
            ends = mechanism.inner.law.lowest, mechanism.inner.law.highest
            tried += [[end, bit] for end in ends for bit in (0, 1)]
            return max(tried, key=lambda one: sign * float(mechanism.parts(one, 1).excess) * one[-1] + one[-1])
        return max(tried, key=lambda one: sign * mechanism.estimate(one, 1).values[row])

    return attack


def targeted(value: Any) -> Attack:
    return lambda mechanism, rng: list(mechanism.perturb(value, rng.randbytes))


def sent(attack: Attack, mechanism: Any, rng: random.Random, devices: int, *, alike: bool) -> list[list[int]]:
    """What so many false devices send."""
    return [attack(mechanism, rng)] * devices if alike else [attack(mechanism, rng) for _ in range(devices)]


def added(metric: Any, honest: Sequence[int], false: Sequence[Sequence[int]]) -> tuple[Pool, Pool]:
    """(without the false reports, with them)."""
    before, after = Pool(metric), Pool(metric)
    before.add(honest, HONEST)
    after.add(np.sum([honest, *false], axis=0).tolist(), HONEST + len(false))
    return before, after


def realised(before: Pool, after: Pool, devices: int) -> list[tuple[float, float, float, float]]:
    """By row: lowest of the band, what honest devices alone gave, highest of the band, what it became."""
    honest, shown = combine([before]), combine([after])
    found = []
    for band, value, now in zip(
        bands([after], shown, devices), honest.estimate.values, shown.estimate.values, strict=True
    ):
        assert band is not None
        assert value is not None
        assert now is not None
        slack = 1e-9 * max(1.0, abs(band[0]), abs(band[1]))
        assert band[0] - slack <= value <= band[1] + slack, "the honest number is in the printed band"
        found.append((band[0], value, band[1], now))
    return found


# case H05
@pytest.mark.parametrize("mechanism", COUNTS)
@pytest.mark.parametrize("attack", ["maximal gain", "random", "targeted input", "against the target"])
def test_counts(mechanism: str, attack: str) -> None:
    metric, rng = counts(mechanism), random.Random(7)
    entropy = seeded(f"honest {mechanism}")
    honest = np.sum([metric.mechanism.perturb(f"c{i % (K - 1)}", entropy) for i in range(HONEST)], axis=0).tolist()
    made: dict[str, Attack] = {
        "maximal gain": best_for(K - 1, 1),
        "random": well_formed,
        "targeted input": targeted(f"c{K - 1}"),
        "against the target": best_for(0, -1),
    }
    false = sent(made[attack], metric.mechanism, rng, FALSE, alike=attack in {"maximal gain", "against the target"})
    assert all(metric.mechanism.is_plausible(one, 1) for one in false), "well-formed, each of them"
    rows = realised(*added(metric, honest, false), FALSE)
    low, value, high, now = rows[K - 1] if attack != "against the target" else rows[0]
    if attack == "maximal gain":
        assert value == pytest.approx(low), "and the attack reaches the band's very end: it is no wider than it must be"
    if attack == "against the target":
        assert value == pytest.approx(high)
    if attack == "targeted input":
        assert now - value == pytest.approx(FALSE, abs=5 * (FALSE * 6) ** 0.5), "as many honest ones would do"


# case H05
@pytest.mark.parametrize("mechanism", NUMBERS)
@pytest.mark.parametrize("attack", ["up", "down", "random", "targeted input"])
def test_numbers(mechanism: str, attack: str) -> None:
    """Laplace outliers lie 45 noise scales out: that is how far, and no further, a false device reaches."""
    metric, rng = number(mechanism), random.Random(3)
    entropy = seeded(f"honest {mechanism}")
    honest = np.sum([metric.mechanism.perturb(i % 4, entropy) for i in range(HONEST)], axis=0).tolist()
    made: dict[str, Attack] = {
        "up": best_for(0, 1),
        "down": best_for(0, -1),
        "random": well_formed,
        "targeted input": targeted(8),
    }
    false = sent(made[attack], metric.mechanism, rng, FALSE, alike=attack in {"up", "down"})
    assert all(metric.mechanism.is_plausible(one, 1) for one in false)
    ((low, value, high, now),) = realised(*added(metric, honest, false), FALSE)
    if attack in {"up", "down"}:
        assert value == pytest.approx(low if attack == "up" else high)
    if attack == "targeted input" and mechanism != "one_bit":  # whose reports are all at an end
        assert abs(now - value) < (high - low) / 4


# case H05
@pytest.mark.parametrize("attack", ["up", "down", "random", "targeted input"])
def test_a_number_that_some_have(attack: str) -> None:
    metric, rng = number("laplace", "optional = true\npresence_share = 0.3"), random.Random(5)
    entropy = seeded("honest optional")
    values = [i % 4 if i % 3 else None for i in range(HONEST)]
    honest = np.sum([metric.mechanism.perturb(value, entropy) for value in values], axis=0).tolist()
    made: dict[str, Attack] = {
        "up": best_for(0, 1), "down": best_for(0, -1), "random": well_formed, "targeted input": targeted(8),
    }  # fmt: skip
    false = sent(made[attack], metric.mechanism, rng, 12, alike=attack in {"up", "down"})
    assert all(metric.mechanism.is_plausible(one, 1) for one in false)
    realised(*added(metric, honest, false), 12)


# case H05
def test_fewer_false_devices_than_assumed_are_in_the_band_too_and_more_may_not_be() -> None:
    metric = counts("randomized_response")
    honest = [200] * K
    lie = [1, *[0] * (K - 1)]
    for many, inside in ((FALSE // 3, True), (FALSE, True), (2 * FALSE, False)):
        before, after = added(metric, honest, [lie] * many)
        low, _ = bands([after], combine([after]), FALSE)[0] or (0.0, 0.0)
        value = combine([before]).estimate.values[0] or 0.0
        assert (low <= value * (1 + 1e-12)) == inside


def test_how_many_are_assumed() -> None:
    from fractions import Fraction

    assert [false_devices(n) for n in (0, 1, 99, 100, 101, 12345)] == [0, 1, 1, 1, 2, 124]
    assert [false_devices(100, assumed) for assumed in (0, 7, 1000, Fraction(1, 3), Fraction(0))] == [0, 7, 100, 34, 0]


# --- cohorts that somebody filled ---------------------------------------------------------------------


TEN = parse_plan(plan_of('[metrics.c]\nkind = "categorical"\ncategories = ["a", "b", "c"]\nepsilon = 1\n'
                         '[metrics.x]\nkind = "numeric"\nlower = 0\nupper = 100\nepsilon = 1\n').text)  # fmt: skip


def cohorts(poisoned: int, of: int = 9, size: int = 120, false: int = 60) -> list[ReleasedSum]:
    """Honest cohorts, and `poisoned` in which `false` devices support a, and say as much as they can."""
    category, share = TEN.metrics["c"].mechanism, TEN.metrics["x"].mechanism
    entropy, rows = seeded(f"cohorts {poisoned}"), []
    for number in range(of):
        honest = size - (false if number < poisoned else 0)
        totals = np.array(category.total_of(category.perturb_codes(np.arange(honest) % 3, entropy)))
        mean = np.sum(share.perturb_many(np.arange(honest) % 100, entropy), dtype=np.int64)
        if number < poisoned:
            totals = totals + np.array([false, 0, 0])
            mean += false * (share.levels + share.tail)
        found = (("c", tuple(map(int, totals))), ("x", (int(mean),)))
        rows += [ReleasedSum(f"r{number}", TEN.hash, 0, name, total, size, size) for name, total in found]
    return rows


# case H05
def test_the_cohorts_that_somebody_filled_are_named_and_the_median_hardly_moves() -> None:
    clean, dirty = ({m["name"]: m for m in build_report([TEN], cohorts(many))["metrics"]} for many in (0, 2))
    for name in ("c", "x"):
        assert clean[name]["standing_out"] == []
        assert {one["round"] for one in dirty[name]["standing_out"]} == {"r0", "r1"}
        assert all(one["p"] <= dirty[name]["false_alarm_rate"] == 0.01 for one in dirty[name]["standing_out"])
        before, after = (found[name]["estimates"][0] for found in (clean, dirty))
        moved = abs(after["estimate"] - before["estimate"])
        assert moved > 5 * before["population_error"]
        assert abs(after["median_of_cohorts"] - before["median_of_cohorts"]) < moved / 3
        truth = 360 if name == "c" else 44.5
        assert abs(after["median_of_cohorts"] - truth) < 4 * after["median_of_cohorts_error"] + 0.1 * truth
