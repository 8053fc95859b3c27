"""What vectors cost: Gaussians and L1 noise, alone and in sums, composed, and where plain sums hold only at a delta."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest

from client_sdk.accounting.ledger import Cohort, Ledger, LedgerEntry, LedgerPlan
from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorLaplace
from client_sdk.plan import Plan, parse_plan
from collector.accounting import adaptive, fleet, local
from collector.accounting.basic import FleetHistory, FleetSum
from collector.accounting.composition import Composer
from collector.accounting.figures import COMPOSED, PURE_CHANGED, figures
from collector.accounting.losses import central_pair, local_pair, method
from collector.accounting.noise_sum import power

DAY = 86_400
DELTA = 1e-6


def gaussian(epsilon: str = "1", delta: str = "1e-6", dimension: int = 1000) -> VectorGaussian:
    return VectorGaussian(dimension, Decimal(1), Decimal(epsilon), delta=Decimal(delta))


def plan(delta: str = "1e-6", version: int = 1, epsilon: int = 1) -> Plan:
    return parse_plan(
        f'[plan]\nname = "updates"\nversion = {version}\nperiod = "1d"\n[cohort]\nmin_size = 50\ntarget_size = 200\n'
        f'[budget]\nlifetime = 3650\n[metrics.v]\nkind = "vector"\ndimension = 1000\nclip = 5\nnorm = "l2"\n'
        f"epsilon = {epsilon}\ndelta = {delta}\n"
    )


@pytest.mark.parametrize("epsilon", ["0.1", "1", "8", "40"])
def test_one_report_costs_its_epsilon_at_its_delta(epsilon: str) -> None:
    (loss,) = gaussian(epsilon).losses
    pair = local_pair(loss)
    assert pair.epsilon(DELTA) == pytest.approx(float(epsilon), rel=1e-5)
    assert pair.epsilon(DELTA) <= float(epsilon) * (1 + 1e-5)
    assert math.isinf(pair.epsilon(0.0))
    assert pair.delta(float(epsilon)) <= DELTA * (1 + 1e-4)


@pytest.mark.parametrize("n_h", [2, 50, 10_000])
def test_a_sum_of_gaussians_is_a_gaussian(n_h: int) -> None:
    mechanism = gaussian()
    (loss,) = mechanism.losses
    sigma = math.sqrt(n_h * mechanism.variance / mechanism.ball.sensitivity_squared)
    assert central_pair(loss, n_h).epsilon(DELTA) == pytest.approx(local.gaussian_epsilon(DELTA, sigma, 1.0), rel=1e-5)
    assert method(loss) == "sum of Gaussian noises"


def test_a_year_of_reports_in_sums_matches_the_reference() -> None:
    """DP-FedAvg, sigma 10 clips, 365 rounds, delta 1e-6: 24.82 under replacement (accounting reference, section 3)."""
    (loss,) = VectorGaussian(1, Decimal(1), Decimal(1), levels=1 << 20, delta=Decimal("1e-6")).losses
    scaled = local.gaussian(10.0, 2.0)
    assert Composer([scaled]).epsilon([365], DELTA) == pytest.approx(24.82, abs=5e-3)
    per_clip = math.sqrt(loss.parameter("variance")) / (math.sqrt(loss.parameter("sensitivity_squared")) / 2)
    n_h = round((10.0 / per_clip) ** 2 * 1000) / 1000
    assert 1 < n_h < 2, "two honest ones hide a little more than sigma 10 clips at epsilon 1"
    assert Composer([central_pair(loss, 2)]).epsilon([365], DELTA) < 24.82


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_all_of_an_l1_distance_in_one_coordinate_is_the_worst_case(count: int, epsilon: float) -> None:
    """Brute force: sums of `count` discrete Laplace noises on two coordinates, the distance of 8 split any way."""
    total, reach = 8, 160
    a = epsilon / total
    one = np.tanh(a / 2) * np.exp(-a * np.abs(np.arange(-reach, reach + 1)))
    law = power(one, count, reach)

    def pair(shift: int) -> tuple[np.ndarray, np.ndarray]:
        return np.append(np.zeros(shift), law), np.append(law, np.zeros(shift))

    def delta(shifts: tuple[int, int], at: float) -> float:
        (p, q), (r, s) = pair(shifts[0]), pair(shifts[1])
        return float(np.maximum(np.outer(p, r) - math.exp(at) * np.outer(q, s), 0.0).sum())

    for at in (0.0, 0.2 * epsilon, 0.6 * epsilon, 0.9 * epsilon):
        whole = delta((0, total), at)
        assert all(delta((shift, total - shift), at) <= whole + 1e-9 for shift in range(1, total // 2 + 1))


def test_l1_vectors_are_bounded_like_a_number_of_twice_the_levels() -> None:
    (loss,) = VectorLaplace(1000, Decimal(1), Decimal(1)).losses
    assert local_pair(loss).epsilon(0.0) == pytest.approx(1.0, rel=1e-9)
    assert central_pair(loss, 1000).epsilon(DELTA) == pytest.approx(0.0796, abs=1e-3), (
        "accounting reference, section 2.5"
    )


# --- ledgers ----------------------------------------------------------------------------------------


def ledger(*reports: tuple[Plan, int, int], **more: object) -> Ledger:
    """(plan, day, contributors; 0: alone)."""
    first: dict[str, LedgerPlan] = {}
    entries = []
    for made, day, contributors in reports:
        used = first.setdefault(made.hash.hex(), LedgerPlan(made.hash.hex(), made.name, made.version, day * DAY))
        cohort = Cohort(contributors, contributors, 0) if contributors else None
        entries.append(
            LedgerEntry(
                plan=used.hash, period_start=day * DAY, charged_at=day * DAY, micro_epsilon=made.report_micro_epsilon,
                outcome="counted", left_device=True, resent=False, round=f"r{day}", cohort=cohort,
            )
        )  # fmt: skip
    return Ledger("device", None, 400 * DAY, tuple(first.values()), tuple(entries), **more)  # type: ignore[arg-type]


def test_composed_figures_are_below_the_plain_sum_only_where_it_holds() -> None:
    made = plan()
    found = figures(ledger(*((made, day, 100) for day in range(30))), {made.hash.hex(): made}, delta=DELTA)
    assert found.eps_local_pure == 30
    assert found.delta_pure == Decimal("0.00003")
    assert found.method == COMPOSED
    exact = local.gaussian_epsilon(DELTA, 4.2246793 / math.sqrt(30), 1.0)
    assert found.eps_local == pytest.approx(exact, rel=1e-4)
    assert found.eps_central < found.eps_local / 5


def test_a_delta_below_the_mechanisms_own_costs_more_than_its_epsilon() -> None:
    made = plan(delta="1e-5")
    found = figures(ledger((made, 1, 0)), {made.hash.hex(): made}, delta=DELTA)
    assert found.eps_local > 1.0, "min(composed, plain sum) would have said 1, at a delta that was not asked for"
    assert found.eps_local == pytest.approx(local.gaussian_epsilon(DELTA, 3.730632, 1.0), rel=1e-4)
    assert found.eps_central == found.eps_local
    at_its_own = figures(ledger((made, 1, 0)), {made.hash.hex(): made}, delta=1e-5)
    assert at_its_own.eps_local == pytest.approx(1.0, rel=1e-5)


def test_a_plain_sum_that_stands_alone_says_its_delta() -> None:
    """The plan changed after sums were seen: no composition is claimed."""
    one, two = plan(), plan(version=2, epsilon=2)
    plans = {made.hash.hex(): made for made in (one, two)}
    found = figures(ledger((one, 1, 100), (two, 2, 100)), plans, delta=DELTA)
    assert (found.eps_local, found.method) == (3.0, f"{PURE_CHANGED}, at delta 0.000002")
    assert found.eps_central < 3.0
    loose = figures(ledger((one, 1, 100), (two, 2, 100)), plans, delta=1e-5)
    assert loose.method == PURE_CHANGED


def test_a_privacy_filter_caps_by_epsilon_only_at_its_delta() -> None:
    (loss,) = gaussian(delta="1e-5").losses
    share = Decimal("1e-6") / loss.micro_epsilon
    from fractions import Fraction

    assert adaptive.single(loss, 1, Fraction(share)) > 1.0
    assert adaptive.single(loss, 1, Fraction(Decimal("2e-5") / loss.micro_epsilon)) <= 1.0


def test_fleets_take_the_gaussians_own_rho() -> None:
    made = plan()
    assert fleet.micro_rho(made) == made.report_micro_rho == 28_015
    sums = [FleetSum(10, 30_000_000, 30 * 28_015, True), FleetSum(1, 2_000_000, 2 * 28_015, False)]
    bounds = fleet.closed_forms(sums, DELTA, is_pure=False)
    exact = local.gaussian_epsilon(DELTA, 4.2246793 / math.sqrt(30), 1.0)
    assert exact <= bounds[0][0] < 1.25 * exact
    assert bounds[1] == (2.0, 1)
    (whole,) = fleet.fleet_figures([FleetHistory(3, ((made.hash, 90, 30),))], {made.hash.hex(): made}, DELTA)
    assert whole.eps_local == pytest.approx(exact, rel=1e-4)
    assert whole.eps_central < whole.eps_local


def test_more_honest_ones_never_cost_more() -> None:
    (loss,) = gaussian().losses
    epsilons = [central_pair(loss, n_h).epsilon(DELTA) for n_h in (1, 2, 3, 10, 100, 1000)]
    assert all(later < earlier for earlier, later in itertools.pairwise(epsilons))
