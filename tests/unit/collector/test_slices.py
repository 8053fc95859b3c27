"""Sliced numbers at the collector: versions put together, what false reports do, what stands out, the report's rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.slices import SlicesEstimate
from client_sdk.plan import Plan
from collector.combination import Combined, Pool, combine
from collector.poisoning import bands
from collector.release import ReleasedSum, implausible_metrics
from collector.reports.estimates import estimate_rows, population_interval
from collector.reports.trust import trust_of_metric
from collector.service.demo.result import true_estimates
from collector.slices import corners, label_of, sliced
from tests.entropy import seeded
from tests.unit.collector.plans import plan_of, pool


def plan(version: int = 1, labels: Sequence[str] = ("wifi", "cellular"), epsilon: str = "3", more: str = "") -> Plan:
    quoted = ", ".join(f'"{label}"' for label in labels)
    return plan_of(
        f"""
[metrics.load]
kind = "numeric"
lower = -10
upper = 30
epsilon = {epsilon}
slice_by = "network"
{more}
[metrics.network]
kind = "categorical"
categories = [{quoted}]
other = "other"
epsilon = 1
""",
        version=version,
    )


def total_of(made: Plan, values: Sequence[Any], label: str = "total") -> list[int]:
    total: list[int] = made.metrics["load"].mechanism.perturb_many(values, seeded(label)).sum(axis=0).tolist()
    return total


def rows_of(combined: Combined) -> dict[str, float | None]:
    return dict(zip(combined.labels, combined.estimate.values, strict=True))


def nobody(made: Plan) -> Pool:
    return pool(made, "load", [0] * made.metrics["load"].mechanism.length, 0)


WIFI, CELLULAR = [("wifi", 20.0)] * 3_000, [("cellular", -5.0)] * 2_000


def test_one_version() -> None:
    made = plan()
    found = combine([pool(made, "load", total_of(made, [*WIFI, *CELLULAR]), 5_000)])
    assert found.answer == "slices"
    assert found.labels[:4] == ("wifi: mean", "wifi: present", "cellular: mean", "cellular: present")
    assert found.labels[4:] == ("other: mean", "other: present")
    for place, truth in enumerate((20.0, 3_000.0, -5.0, 2_000.0)):
        value, error = found.estimate.values[place], found.estimate.standard_errors[place]
        assert value is not None
        assert error is not None
        assert abs(value - truth) < 5 * error
    assert true_estimates(made.metrics["load"], [*WIFI, *CELLULAR]) == [20.0, 3_000.0, -5.0, 2_000.0, None, 0.0]
    assert true_estimates(made.metrics["load"], []) == [None] * 6


def test_versions_with_other_slices_are_put_together_by_name() -> None:
    old, new = plan(), plan(2, ("satellite", "wifi"), "4", "levels = 4\noptional = true")
    values = [*WIFI, *[("satellite", 1.0)] * 1_500, *[("wifi", None)] * 500]
    pools = [pool(old, "load", total_of(old, [*WIFI, *CELLULAR], "old"), 5_000)]
    pools.append(pool(new, "load", total_of(new, values, "new"), 5_000))
    found = combine(pools)
    assert found.labels[::2] == ("satellite: mean", "wifi: mean", "cellular: mean", "other: mean")
    truth = {"satellite: mean": 1.0, "satellite: present": 1_500.0, "wifi: mean": 20.0, "wifi: present": 6_000.0}
    truth |= {"cellular: mean": -5.0, "cellular: present": 2_000.0}
    errors = dict(zip(found.labels, found.estimate.standard_errors, strict=True))
    for label, wanted in truth.items():
        assert abs((rows_of(found)[label] or 0.0) - wanted) < 5 * (errors[label] or 0.0)
    alone = [combine([one]).estimate for one in pools]
    assert found.estimate.values[3] == pytest.approx((alone[0].values[1] or 0) + (alone[1].values[3] or 0))
    empty = combine([nobody(old), pools[1]])
    assert empty.labels == found.labels, "a version that nobody reported under has its rows all the same"
    assert rows_of(empty)["cellular: mean"] is None
    assert combine([nobody(old)]).estimate.values == (None,) * 6


def test_no_reading_of_the_slicing_metric_comes_last() -> None:
    made = plan_of(
        '[metrics.load]\nkind = "numeric"\nlower = 0\nupper = 1\nepsilon = 3\nslice_by = "network"\n[metrics.network]\n'
        'kind = "categorical"\ncategories = ["b", "a"]\nother = "rest"\noptional = true\nepsilon = 1\n'
    )
    cells = made.metrics["load"].mechanism.length
    assert combine([pool(made, "load", [0] * cells, 0)]).labels[1::2] == tuple(
        f"{label}: present" for label in ("b", "a", "rest", ABSENT)
    )


# --- what false reports do ----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["randomized_response", "subset_selection", "optimized_unary"])
def test_no_report_adds_more_to_a_slice_than_its_corners(word: str) -> None:
    """Every report of this form there is, decoded: sum and count lie in the corners' hull, and reach all of them."""
    mech = sliced(plan(epsilon="1", more=f'mechanism = "{word}"\nlevels = 2').metrics["load"])
    ones = mech.inner.ones
    reports = [bits for bits in itertools.product((0, 1), repeat=mech.length) if ones is None or sum(bits) == ones]
    ends = corners(mech)
    seen = set()
    for bits in reports:
        assert mech.is_plausible(bits, 1)
        for part in mech.parts(bits, 1):
            found = float(part.total * part.width + part.middle * part.count), float(part.count)
            seen.add((round(found[0], 6), round(found[1], 6)))
            same = [total for total, count in ends if count == pytest.approx(found[1])]
            assert min(same) - 1e-9 <= found[0] <= max(same) + 1e-9
    assert {(round(total, 6), round(count, 6)) for total, count in ends} <= seen


def test_influence_and_bands_hold_whatever_reports_are_taken_away() -> None:
    made = plan()
    mech = made.metrics["load"].mechanism
    reports = mech.perturb_many([*WIFI, *CELLULAR], seeded("influence"))
    pools = [pool(made, "load", reports.sum(axis=0).tolist(), 5_000)]
    found = combine(pools)
    assert found.influence is not None
    assert found.reach is None, "a whole round of lies can make a slice vanish"
    held = bands(pools, found, 50)
    assert [band is None for band in held] == [False, False, False, False, True, False]
    rng = np.random.default_rng(4)
    worst = 0.0
    for take in (1, 50):
        for place in range(4 * mech.length):
            rows = rng.permutation(np.flatnonzero(reports[:, place % mech.length]))[:take]
            left = (reports.sum(axis=0) - reports[rows].sum(axis=0)).tolist()
            without = combine([pool(made, "load", left, 5_000 - take)]).estimate.values
            for row, band in enumerate(held):
                value, before = without[row], found.estimate.values[row]
                if value is None or before is None or band is None:
                    continue
                assert band[0] - 1e-9 <= value <= band[1] + 1e-9
                if take == 1 and row % 2 == 0:
                    worst = max(worst, abs(value - before))
    assert 0.5 * found.influence < worst <= found.influence * (1 + 1e-9)


def test_small_rounds_bound_the_reach() -> None:
    made = plan(epsilon="8", more="levels = 1")
    pools = [nobody(made)]
    pools[0].add(total_of(made, [*WIFI, *CELLULAR], "round 0"), 5_000)
    for number in range(3):
        pools[0].add(total_of(made, [*WIFI[:3], *CELLULAR[:2]], f"round {number}"), 5)
    assert pools[0].largest == 5_000
    pools[0].largest = 5
    found = combine(pools)
    assert found.influence is not None
    assert found.reach is not None
    assert 5 * found.influence < found.reach * 1.01 < 11 * found.influence


# --- what stands out, and the rows ---------------------------------------------------------------------------


def released(made: Plan, name: str, values: Sequence[Any]) -> ReleasedSum:
    return ReleasedSum(
        round_id=name, plan_hash=made.hash, metric="load", period_start=0, totals=tuple(total_of(made, values, name)),
        contributors=len(values), roster=len(values), resent=0,
    )  # fmt: skip


def test_a_cohort_full_of_one_pair_stands_out() -> None:
    made = plan()
    rows = [released(made, f"honest {i}", [*WIFI[:120], *CELLULAR[:80]]) for i in range(6)]
    rows.append(released(made, "false", [("cellular", 30.0)] * 200))
    found = trust_of_metric(rows, {made.hash: made.metrics["load"]}, 1_400)
    assert {one["round"] for one in found["standing_out"]} == {"false"}
    assert {one["label"] for one in found["standing_out"]} <= {"wifi: present", "cellular: present"}
    assert found["false_alarm_rate"] == 0.01
    optional = sliced(plan(more="optional = true\nlevels = 1").metrics["load"])
    assert [label_of(optional, pair) for pair in (0, 3, 6)] == [
        "wifi: present", "cellular: present", ABSENT,
    ]  # fmt: skip
    assert not implausible_metrics(made, made.metrics["load"].mechanism.length * [0] + [0] * 3, 0)


def test_the_rows_of_a_report() -> None:
    made = plan()
    metric = made.metrics["load"]
    combined = combine([pool(made, "load", total_of(made, [*WIFI, *CELLULAR]), 5_000)])
    rows = estimate_rows(combined, [metric])
    estimate = combined.estimate
    assert isinstance(estimate, SlicesEstimate)
    assert [row["label"] for row in rows] == list(combined.labels)
    assert [row["estimator"] for row in rows] == ["ratio", "unbiased"] * 3
    assert [row["sum"] for row in rows] == [
        estimate.sums[0][0],
        None,
        estimate.sums[1][0],
        None,
        estimate.sums[2][0],
        None,
    ]
    mean, count, total = rows[0]["estimate"], rows[1]["estimate"], rows[0]["sum"]
    assert total == pytest.approx(mean * count)
    assert rows[0]["ci95"] == pytest.approx(list(estimate.interval(0.95)[0] or ()))
    assert rows[0]["verdict"] == "usable"
    assert rows[4]["estimate"] is None
    assert rows[4]["verdict"] == "too few"
    assert all(row["normalised"] is None and row["smoothed"] is None for row in rows)
    assert population_interval(combined) == "Fieller (mean), normal (present)"
    assert math.isclose(sum(row["estimate"] for row in rows[1::2]), 5_000, rel_tol=0.1)
