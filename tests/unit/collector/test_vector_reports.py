"""Vectors at the collector: combined over versions, bounded against lies, shown in a report, audited."""

from __future__ import annotations

import os
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from client_sdk.mechanisms import normal_quantile
from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.plan import Plan, parse_plan
from collector.audit import audit_mechanism, audit_metrics, audit_sampler, ratio_holds
from collector.audit.draws import in_bulk, inputs_of
from collector.combination import MOST_COORDINATES, Pool, beginning, combine
from collector.poisoning import bands
from collector.release import ReleasedSum, check_plausible, implausible_metrics
from collector.reports import build_report
from collector.reports.report import COLUMNS, report_rows
from collector.reports.trust import trust_of_rows


def plan(dimension: int = 3, clip: str = "1", version: int = 1, norm: str = "l2") -> Plan:
    delta = "delta = 1e-6\n" if norm == "l2" else ""
    return parse_plan(
        f'[plan]\nname = "updates"\nversion = {version}\nperiod = "1d"\n[cohort]\nmin_size = 50\ntarget_size = 200\n'
        f'[budget]\nlifetime = 3650\n[metrics.v]\nkind = "vector"\ndimension = {dimension}\nclip = {clip}\n'
        f'norm = "{norm}"\nepsilon = 8\n{delta}'
    )


def totals(made: Plan, vector: list[float], n: int) -> tuple[int, ...]:
    reports = made.metrics["v"].mechanism.perturb_many(np.tile(vector, (n, 1)), os.urandom)
    return tuple(int(total) for total in reports.sum(axis=0))


def released(made: Plan, vector: list[float], n: int, round_id: str = "r") -> ReleasedSum:
    return ReleasedSum(round_id, made.hash, 0, "v", totals(made, vector, n), n, roster=n)


def test_versions_are_decoded_by_themselves_and_weighted() -> None:
    old, new = plan(clip="1"), plan(clip="2", version=2)
    pools = [Pool(old.metrics["v"]), Pool(new.metrics["v"])]
    pools[0].add(totals(old, [0.6, 0.0, 0.8], 3000), 3000)
    pools[1].add(totals(new, [0.0, 1.0, 1.0], 1000), 1000)
    combined = combine(pools)
    wanted = (0.45, 0.25, 0.85)
    estimate = combined.estimate
    assert estimate.contributors == 4000
    assert all(
        abs(value - want) < 5.5 * error
        for value, want, error in zip(estimate.values, wanted, estimate.standard_errors, strict=True)
    )
    single = [pool.estimate().standard_errors[0] for pool in pools]
    assert estimate.standard_errors[0] == pytest.approx(np.hypot(0.75 * single[0], 0.25 * single[1]))
    mixed = [pools[0], Pool(plan(dimension=4).metrics["v"])]
    mixed[1].add((0, 0, 0, 0), 5)
    with pytest.raises(ValueError, match="different dimensions"):
        combine(mixed)


def test_how_far_a_lie_reaches() -> None:
    made = plan()
    mechanism: Any = made.metrics["v"].mechanism
    pool = Pool(made.metrics["v"])
    pool.add((0, 0, 0), 100)
    combined = combine([pool])
    unit = float(mechanism.unit)
    assert combined.influence == pytest.approx(unit * (mechanism.bound + mechanism.levels) / 100)
    assert combined.reach == pytest.approx(2 * unit * mechanism.bound)
    assert implausible_metrics(made, [100 * mechanism.bound, 0, 0], 100) == []
    assert implausible_metrics(made, [100 * mechanism.bound + 1, 0, 0], 100) == ["v"]
    check_plausible(made, [0, 0, 0], 100)


def test_report() -> None:
    made = plan()
    document = build_report([made], [released(made, [0.6, 0.0, 0.8], 2000)])
    (metric,) = document["metrics"]
    assert (metric["kind"], metric["mechanism"], metric["delta_local"]) == ("vector", "gaussian", 1e-6)
    assert metric["epsilon_local"] == 8.0
    assert 0 < metric["epsilon_central"] < 1
    assert [row["label"] for row in metric["estimates"]] == ["0", "1", "2"]
    row = metric["estimates"][2]
    assert abs(row["estimate"] - 0.8) < 5.5 * row["standard_error"]
    assert row["ci95"][0] < row["estimate"] < row["ci95"][1]
    assert row["ci95_simultaneous"][0] < row["ci95"][0]
    assert (row["sum"], row["normalised"], row["estimator"]) == (None, None, "unbiased")
    assert metric["vector"]["values"] == [row["estimate"] for row in metric["estimates"]]
    assert metric["vector"]["standard_error"] == row["standard_error"]
    assert all(len(cells) == len(COLUMNS) for cells in report_rows(document))
    empty = build_report([made], [])["metrics"][0]
    assert empty["vector"] == {"dimension": 3, "standard_error": None, "values": [None] * 3}


def test_a_long_vector_has_rows_for_its_beginning_and_all_of_its_values() -> None:
    dimension = MOST_COORDINATES + 5
    made = plan(dimension)
    (metric,) = build_report([made], [released(made, [0.0] * dimension, 100)])["metrics"]
    assert len(metric["estimates"]) == MOST_COORDINATES
    assert metric["vector"]["dimension"] == len(metric["vector"]["values"]) == dimension
    row = metric["estimates"][0]
    z = (row["ci95_simultaneous"][1] - row["estimate"]) / row["standard_error"]
    assert z == pytest.approx(normal_quantile(0.95, dimension)), "for all coordinates at once, those without a row too"


def test_what_stands_beside_a_long_vector_is_of_its_beginning_too() -> None:
    """Of a million coordinates nobody is shown more than the first rows: nothing is computed for the others."""
    dimension = MOST_COORDINATES + 5
    made = plan(dimension)
    sums = [replace(released(made, [0.1 * i] + [0.0] * (dimension - 1), 100), round_id=f"r{i}") for i in range(3)]
    metric = made.metrics["v"]
    pool = Pool(metric)
    for row in sums:
        pool.add(row.totals, row.contributors)
    combined = combine([pool])
    rows = trust_of_rows(sums, {made.hash: metric}, [pool], combined, 3)
    assert len(rows) == MOST_COORDINATES
    band = bands([pool], combined, 3)[MOST_COORDINATES - 1]
    assert band is not None
    assert rows[-1]["without_false"] == list(band)
    medians = [sorted(row.totals[-6] / 100 for row in sums)[1] * float(metric.mechanism.unit)]  # type: ignore[attr-defined]
    assert [rows[-1]["median_of_cohorts"]] == pytest.approx(medians)
    assert beginning(combined).labels[-1] == str(MOST_COORDINATES - 1)
    assert beginning(combined).estimate.values == combined.estimate.values[:MOST_COORDINATES]
    short = combine([Pool(plan(3).metrics["v"])])
    assert beginning(short) is short


# --- audit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("dimension", [1, 20])
def test_the_shipped_samplers_pass(norm: str, dimension: int) -> None:
    (audit,) = audit_metrics([plan(dimension, norm=norm).metrics["v"]], os.urandom, samples=600)
    assert audit.passed
    assert audit.exact_holds
    assert audit.exact == pytest.approx(8.0, abs=1e-6)
    assert audit.delta == (Decimal("1e-6") if norm == "l2" else 0)


def test_too_little_noise_is_convicted() -> None:
    """The audit has teeth: half the deviation, and a claim of a third of the epsilon."""
    metric = plan(3).metrics["v"]
    honest: Any = metric.mechanism
    weak = VectorGaussian(3, Decimal(1), Decimal(40))
    audit = audit_mechanism(weak, inputs_of(metric), os.urandom, samples=1000, epsilon=Decimal(3))
    assert not audit.exact_holds
    assert not audit.samplers[0].passed, "four hundred reports of each input are enough"
    object.__setattr__(honest, "variance", honest.variance // 16)
    assert not ratio_holds(honest.worst_ratio, honest.epsilon), "seen in the integers, whatever the plan claims"


def test_a_leak_of_a_constant_is_convicted_whatever_delta() -> None:
    metric = plan(2).metrics["v"]

    def leaky(inputs: Any, n: int) -> list[np.ndarray]:
        rows = in_bulk(metric.mechanism, os.urandom)(inputs, n)
        rows[0][:, 1] = 7  # of the first input alone
        return rows

    evidence = audit_sampler(leaky, inputs_of(metric), samples=4000, delta=1e-6)
    assert evidence.convicts(Decimal(5)) or evidence.lower_bound > 4
    assert not audit_sampler(
        in_bulk(metric.mechanism, os.urandom), inputs_of(metric), samples=2000, delta=1e-6
    ).convicts(Decimal(8))


def test_a_delta_is_taken_off_what_is_certified() -> None:
    """An event that one input never shows and the other shows seldom is within a delta of that size."""

    def draw(inputs: Any, n: int) -> list[np.ndarray]:
        rare = np.zeros((n, 1), np.int64)
        rare[::20, 0] = 1
        return [rare, np.zeros((n, 1), np.int64)]

    assert audit_sampler(draw, [0.0, 1.0], samples=40_000).lower_bound > 3
    assert audit_sampler(draw, [0.0, 1.0], samples=40_000, delta=0.06).lower_bound < 0.1
