"""`kind = "vector"` in a plan: fields, canonical form, prices, versions, and what is refused."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pytest

from client_sdk.errors import PlanError, RefusalReason
from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorLaplace
from client_sdk.plan import Plan, canonical_form, check_plan, format_check, parse_plan
from client_sdk.plan.diff import diff_plans
from client_sdk.plan.successor import raised_limit, why_no_successor

HEAD = '[plan]\nname = "updates"\nversion = 1\nperiod = "1d"\n[cohort]\nmin_size = 50\ntarget_size = 200\n'
L1 = 'kind = "vector"\ndimension = 20\nclip = 10\nnorm = "l1"\nepsilon = 0.5\n'
L2 = 'kind = "vector"\ndimension = 1000\nclip = 1.5\nnorm = "l2"\nepsilon = 1\ndelta = 0.000001\n'
NUMBER = 'kind = "numeric"\nlower = 0\nupper = 5\nepsilon = 1\n'


def text(*metrics: str, budget: str = "lifetime = 365\n", head: str = HEAD) -> str:
    return f"{head}[budget]\n{budget}" + "".join(f"[metrics.m{i}]\n{metric}" for i, metric in enumerate(metrics))


def plan(*metrics: str, budget: str = "lifetime = 365\n", version: int = 1) -> Plan:
    return parse_plan(text(*metrics, budget=budget, head=HEAD.replace("version = 1", f"version = {version}")))


def problems(*metrics: str, **more: str) -> tuple[str, ...]:
    with pytest.raises(PlanError) as refused:
        parse_plan(text(*metrics, **more))
    return refused.value.problems


def test_the_norm_decides_the_mechanism() -> None:
    flat, round_ = plan(L1, L2).metrics.values()
    assert isinstance(flat.mechanism, VectorLaplace)
    assert isinstance(round_.mechanism, VectorGaussian)
    assert (flat.mechanism.name, flat.delta) == ("laplace", 0)
    assert (round_.mechanism.name, round_.delta) == ("gaussian", Decimal("0.000001"))
    assert (flat.levels, flat.default, flat.width) == (4096, None, 20.0)
    assert plan(L1, L2).length == 1020


def test_canonical_form() -> None:
    document = json.loads(canonical_form(plan(L2)))["metrics"]["m0"]
    assert document == {
        "kind": "vector", "mechanism": "gaussian", "dimension": 1000, "clip": "1.5", "norm": "l2", "epsilon": "1",
        "delta": "0.000001",
    }  # fmt: skip
    spelled = L2 + 'mechanism = "gaussian"\nlevels = 4096\ncalibration = "analytic"\non_device = "last"\n'
    assert plan(spelled.replace("0.000001", "1e-6")).hash == plan(L2).hash
    assert plan(L1 + 'mechanism = "laplace"\n').hash == plan(L1).hash
    others = [
        L2 + "levels = 100\n",
        L2.replace("1.5", "1.6"),
        L2.replace("000001", "000002"),
        L2 + 'on_device = "mean"\n',
    ]
    others.append(L2.replace("epsilon = 1", "epsilon = 0.9") + 'calibration = "classic"\n')
    assert len({plan(L2).hash, *(plan(other).hash for other in others)}) == 6
    assert "lifetime_rho" not in canonical_form(plan(L2))
    limited = plan(L2, budget="lifetime = 365\nlifetime_rho = 3.50\nrolling_24h_rho = 1\n")
    assert json.loads(canonical_form(limited))["budget"] == {
        "lifetime": "365", "lifetime_rho": "3.5", "rolling_24h_rho": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "field", "says"),
    [
        (L2.replace("delta = 0.000001\n", ""), "delta", "missing"),
        (L2.replace("0.000001", "0.001"), "delta", "must lie between 0.000000000000000001 and 0.00001"),
        (L1 + "delta = 0.000001\n", "delta", 'belongs to norm = "l2"'),
        (L1 + 'calibration = "analytic"\n', "calibration", 'belongs to norm = "l2"'),
        (L2 + 'calibration = "classic"\n', "calibration", "proven for epsilon below 1 only, not 1"),
        (L2.replace("epsilon = 1", "epsilon = 10") + 'calibration = "classic"\n', "calibration", "not 10"),
        (L2 + 'mechanism = "laplace"\n', "mechanism", 'with "l2" goes "gaussian"'),
        (L1 + 'mechanism = "gaussian"\n', "mechanism", 'with "l1" goes "laplace"'),
        (L1 + 'mechanism = "hadamard"\n', "mechanism", "must be one of"),
        (L2.replace('"l2"', '"l3"'), "norm", 'must be one of "l1", "l2"'),
        (L2.replace('norm = "l2"\n', ""), "norm", "missing"),
        (L2.replace("clip = 1.5\n", ""), "clip", "missing"),
        (L2.replace("1.5", "0"), "clip", "must lie above 0"),
        (L2.replace("1000", "0"), "dimension", "whole number from 1 to 1000000"),
        (L2 + 'on_device = "sum"\n', "on_device", "vectors have last, first or mean"),
        (L2 + "default = 0\n", "default", "all zeros"),
        (L2 + "optional = true\n", "optional", "all zeros"),
        (L2 + "lower = 0\n", "lower", "unknown field"),
        (NUMBER + 'mechanism = "gaussian"\n', "mechanism", "fits vector only"),
    ],
)
def test_what_is_refused(metric: str, field: str, says: str) -> None:
    (line,) = problems(metric)
    assert line.startswith(f"metrics.m0.{field}: ")
    assert says in line


def test_a_million_coordinates_and_not_one_more() -> None:
    assert plan(L2.replace("1000", "1000000")).length == 1_000_000
    (line,) = problems(L2.replace("1000", "1000000"), NUMBER)
    assert line == "metrics: a report would have 1000001 elements or more; the limit is 1000000 elements"


def test_gaussian_and_a_sample_of_metrics_do_not_go_together() -> None:
    head = HEAD.replace('period = "1d"\n', 'period = "1d"\nsample_metrics = 1\n')
    (line,) = problems(L2, NUMBER, head=head)
    assert line.startswith("plan.sample_metrics: every report must hold m0")
    assert parse_plan(text(L1, NUMBER, head=head)).sample_metrics == 1


def test_rho_of_a_report() -> None:
    """Pure mechanisms by epsilon tanh(epsilon / 2), Gaussians by their own; rounded up, and limited by the plan."""
    made = plan(L2, NUMBER, budget="lifetime = 365\nlifetime_rho = 1.5\n")
    gaussian, number = made.metrics.values()
    assert number.micro_rho == math.floor(1e6 * math.tanh(0.5)) + 1 == 462_118
    assert gaussian.micro_rho == math.ceil(gaussian.mechanism.rho * 10**6) == 28_015  # type: ignore[attr-defined]
    assert made.report_micro_rho == 28_015 + 462_118
    assert made.report_delta == Decimal("0.000001")
    assert made.lifetime_reports == 3
    assert plan(L2, NUMBER).lifetime_reports == 182


def test_check_prints_the_sensitivity_beside_its_relation() -> None:
    checked = check_plan(plan(L1, L2, budget="lifetime = 365\nlifetime_rho = 0.1\n"))
    printed = format_check(checked)
    assert (
        "m0: 20 coordinates, clipped to L1 norm 10; sensitivity 20 (replace one value; 10 to add or remove one)"
        in printed
    )
    assert "clipped to L2 norm 1.5; sensitivity 3.00075 (replace one value; 1.50038 to add or remove one)" in printed
    assert "discrete Gaussian (analytic), delta 0.000001, 12.68 a coordinate, rho 0.028015" in printed
    assert "each report's epsilon holds but for delta 0.000001" in printed
    assert "a report costs rho 0.150475; lifetime 0.1" in printed
    assert "budget.lifetime_rho: less than one report (0.150475): nothing is ever sent" in printed
    vector = checked.metrics[1].vector
    assert vector is not None
    assert vector.relation == "replace one value"
    assert vector.sensitivity == 2 * vector.sensitivity_add_remove
    json.dumps(checked.as_dict())


def test_expected_errors_are_those_of_the_estimate() -> None:
    made = plan(L1, L2)
    for checked, metric in zip(check_plan(made).metrics, made.metrics.values(), strict=True):
        estimate = metric.mechanism.estimate([0] * metric.mechanism.length, 1000)
        assert checked.errors[1].standard_error == pytest.approx(estimate.standard_errors[0])
        assert [choice.mechanism for choice in checked.choices] == [metric.mechanism.name]


def test_versions() -> None:
    old = plan(L2, budget="lifetime = 365\nlifetime_rho = 2\n")
    wider = plan(L2.replace("1.5", "2"), budget="lifetime = 365\nlifetime_rho = 2\n", version=2)
    assert why_no_successor(old, wider) is None
    assert any(
        line.startswith("metrics.m0.clip: to L2 norm 2, but to L2 norm 1.5") for line in diff_plans(old, wider).breaks
    )
    longer = plan(L2.replace("1000", "1001"), budget="lifetime = 365\nlifetime_rho = 2\n", version=2)
    assert why_no_successor(old, longer) is RefusalReason.PLAN_NAMES
    assert any(line.startswith("metrics.m0.dimension: 1001, but 1000") for line in diff_plans(old, longer).breaks)
    unlimited = plan(L2, version=2)
    assert raised_limit(old, unlimited) == "lifetime_rho"
    assert raised_limit(unlimited, old) is None
    assert raised_limit(old, plan(L2, budget="lifetime = 365\nlifetime_rho = 2.1\n", version=2)) == "lifetime_rho"


def test_a_plan_can_ask_for_noise_of_so_many_kinds_only() -> None:
    """Each is worked out in decimals: a thousand of them would keep a device busy."""
    many = [L2.replace("1000", "1").replace("epsilon = 1", f"epsilon = 1.{i:03d}") for i in range(65)]
    assert len(plan(*many[:64]).metrics) == 64
    (line,) = problems(*many)
    assert line.startswith("metrics: 65 different settings")
    assert "gaussian vectors" in line
    assert len(plan(*[many[0]] * 65).metrics) == 65
