"""For any metric of any plan: estimates are unbiased, split cohorts add up, and the order of rounds changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from client_sdk.mechanisms import Value
from client_sdk.plan import Metric, Plan
from collector.combination import Pool, combine, pool_sums
from collector.release import ReleasedSum, implausible_metrics
from tests.entropy import seeded
from tests.unit.collector.plans import plan_of

COUNTS = ("randomized_response", "symmetric_unary", "optimized_unary", "subset_selection", "hadamard", "auto")
NUMBERS = ("laplace", "one_bit", "piecewise", "hybrid", "auto")
EPSILONS = ("0.5", "1", "2.5", "6")


def plan_with(table: str, version: int = 1) -> Plan:
    return plan_of(f"[metrics.m]\n{table}", version=version)


@st.composite
def tables(draw: st.DrawFn, *, linear: bool = False) -> str:
    """One metric: every kind and word, optional ones too. linear: without smoothed ones and quantiles."""
    kind = draw(st.sampled_from(["categorical", "numeric", "histogram", *([] if linear else ["quantiles"])]))
    optional = draw(st.booleans())
    lines = [f'kind = "{kind}"', f"epsilon = {draw(st.sampled_from(EPSILONS))}"]
    if kind == "categorical":
        k, word = draw(st.integers(2, 9)), draw(st.sampled_from(COUNTS))
        lines.append(f"categories = {[f'c{i}' for i in range(k)]}")
    else:
        lower = draw(st.sampled_from(["-3", "0", "0.5"]))
        lines += [f"lower = {lower}", "upper = 7"]
        word = draw(st.sampled_from(NUMBERS if kind == "numeric" else COUNTS))
        if kind == "numeric":
            lines.append(f"levels = {draw(st.sampled_from([2, 7, 100]))}")
        else:
            lines.append(f"bins = {draw(st.integers(2, 9))}")
            word = "square_wave" if not linear and not optional and draw(st.booleans()) else word
    if kind == "quantiles":
        lines.append("quantiles = [0.1, 0.5, 0.9]")
    event(f"{kind} {word}{' optional' if optional else ''}")
    return "\n".join([*lines, f'mechanism = "{word}"', *(["optional = true"] if optional else [])])


def readings(metric: Metric, n: int, seed: int) -> list[Value]:
    """Uneven ones, some out of range, some missing where they may be."""
    rng = np.random.default_rng(seed)  # of the cohort, not of the noise
    chosen: list[Value]
    if metric.kind == "categorical":
        chosen = [metric.categories[int(len(metric.categories) * u * u)] for u in rng.random(n)]
    else:
        chosen = [float(value) for value in rng.normal(3.0, 2.5, n)]
    return [None if metric.optional and u < 0.3 else value for value, u in zip(chosen, rng.random(n), strict=True)]


def truth(metric: Metric, values: Sequence[Value]) -> list[float]:
    """What an estimate without noise would say; of an optional mean: the mean, and how many."""
    mechanism: Any = metric.mechanism
    if mechanism.answer == "counts":
        codes = [mechanism.code(value) for value in values]
        return [float(codes.count(code)) for code in range(len(mechanism.labels))]
    known = [min(max(float(v), float(metric.lower or 0)), float(metric.upper or 0)) for v in values if v is not None]
    mean = sum(known) / len(known)
    return [mean] if mechanism.answer == "mean" else [mean, float(len(known))]


@settings(max_examples=60, deadline=None)
@given(tables(linear=True), st.integers(0, 2**32))
def test_estimates_are_unbiased_for_any_metric(table: str, seed: int) -> None:
    """Within six of their own standard errors: by chance alone once in 5 * 10^8 rows. A row without errors is exact."""
    metric = plan_with(table).metrics["m"]
    values = readings(metric, 3000, seed)
    total = metric.mechanism.perturb_many(values, seeded(f"{table}/{seed}")).sum(axis=0)
    estimate = metric.mechanism.estimate([int(cell) for cell in total], len(values))
    assert metric.mechanism.is_plausible([int(cell) for cell in total], len(values))
    for value, error, true in zip(estimate.values, estimate.standard_errors, truth(metric, values), strict=True):
        if value is None:
            event("no mean: too few had a reading, as far as is known")
            continue
        assert abs(value - true) <= 6 * (error or 0.0) + 1e-9


@st.composite
def split_metric(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    """A metric, the sizes of cohorts (empty and single ones by construction), and an order of them."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 40, 300]), min_size=1, max_size=5))
    return draw(tables()), sizes, draw(st.permutations(range(len(sizes))))


@settings(max_examples=60, deadline=None)
@given(split_metric(), st.integers(0, 2**32))
def test_split_cohorts_add_up_in_any_order(case: tuple[str, list[int], list[int]], seed: int) -> None:
    """Rounds of one version, in whatever order they come, are one round: to the last bit."""
    table, sizes, order = case
    plan = plan_with(table)
    metric = plan.metrics["m"]
    n = sum(sizes)
    reports = metric.mechanism.perturb_many(readings(metric, n, seed), seeded(f"{seed}"))
    ends = list(itertools.accumulate(sizes, initial=0))
    sums = [reports[start:end].sum(axis=0) for start, end in itertools.pairwise(ends)]
    rows = [
        ReleasedSum(f"r{i}", plan.hash, i, "m", tuple(int(cell) for cell in sums[i]), sizes[i])
        for i in range(len(sizes))
    ]
    for row in rows:
        assert implausible_metrics(plan, row.totals, row.contributors) == []
    whole = Pool(metric)
    whole.add([int(cell) for cell in reports.sum(axis=0)], n)
    event("nobody at all" if n == 0 else "somebody")
    for arranged in (rows, [rows[i] for i in order]):
        pooled = pool_sums({plan.hash: plan}, arranged)[plan.hash, "m"]
        assert pooled.totals == whole.totals
        assert combine([pooled]).estimate == combine([whole]).estimate


def has_distribution(pool: Pool) -> bool:
    mechanism: Any = pool.metric.mechanism
    return bool(mechanism.distribution(pool.totals, pool.contributors).cdf)


@settings(max_examples=60, deadline=None)
@given(split_metric(), st.integers(0, 2**32))
def test_versions_alike_in_all_but_their_number_say_what_one_would(
    case: tuple[str, list[int], list[int]], seed: int
) -> None:
    """Decoded apart and combined. Not smoothed ones: smoothing parts is not smoothing the whole."""
    table, sizes, order = case
    if "square_wave" in table:
        event("smoothed")
        return
    plans = [plan_with(table, version + 1) for version in range(len(sizes))]
    metric = plans[0].metrics["m"]
    reports = metric.mechanism.perturb_many(readings(metric, sum(sizes), seed), seeded(f"{seed}"))
    ends = list(itertools.accumulate(sizes, initial=0))
    whole, parts = Pool(metric), []
    for plan, (start, end) in zip(plans, itertools.pairwise(ends), strict=True):
        totals = [int(cell) for cell in reports[start:end].sum(axis=0)]
        whole.add(totals, end - start)
        part = Pool(plan.metrics["m"])
        part.add(totals, end - start)
        parts.append(part)
    if "quantiles" in table and not all(has_distribution(pool) for pool in (whole, *parts) if pool.contributors):
        event("a version in which hardly anybody seems to have had a reading: it has no distribution, is left out")
        return
    expected = combine([whole]).estimate
    for arranged in (parts, [parts[i] for i in order]):
        combined = combine(arranged).estimate
        assert combined.contributors == expected.contributors
        known = [value for value in expected.values if value is not None]
        assert [value is None for value in combined.values] == [value is None for value in expected.values]
        tolerance = 1e-6 * max(1.0, *(abs(value) for value in known)) if known else 0.0
        assert [v for v in combined.values if v is not None] == pytest.approx(known, abs=tolerance)
