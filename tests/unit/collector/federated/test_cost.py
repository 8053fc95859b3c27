"""What rounds cost: the reference's figures, oracles, both relations, and what must never be below what."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest

from client_sdk.accounting.loss import PrivacyLoss
from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorLaplace
from collector.accounting import local, rdp
from collector.accounting.composition import Composer
from collector.accounting.losses import central_pair, local_pair
from collector.federated.clipping import update_multiplier
from collector.federated.cost import (
    ORDERS,
    RELATIONS,
    SENSITIVITY,
    CostMeter,
    averaging_cost,
    divergences,
    loss_under,
)

HALF = Decimal("0.5")
LAPLACE = (*VectorLaplace(10, Decimal(1), Decimal("2.5")).losses, *VectorLaplace(1, HALF, HALF).losses)
GAUSSIAN = (
    *VectorGaussian(10, Decimal(1), Decimal("2.9"), delta=Decimal("5e-7")).losses,
    *VectorGaussian(1, HALF, Decimal("0.86"), delta=Decimal("5e-7")).losses,
)
LINES = {"laplace": LAPLACE, "gaussian": GAUSSIAN}
DELTA = 1e-6


def test_a_year_of_federated_averaging() -> None:
    """Noise of ten clipping norms, 365 rounds: the reference's rows, each with the relation that it is of."""
    removed, replaced = (averaging_cost(10.0, 365, DELTA, relation) for relation in ("add_or_remove", "replace"))
    assert removed.pld == pytest.approx(10.40654, abs=1e-3)
    assert replaced.pld == pytest.approx(24.82, abs=0.005)
    assert removed.rdp == pytest.approx(11.06557, rel=1e-3)
    for found, sensitivity in ((removed, 1.0), (replaced, 2.0)):
        assert found.pld == pytest.approx(local.gaussian_epsilon(DELTA, 10.0 / math.sqrt(365.0), sensitivity), rel=1e-5)
        assert found.pld < found.rdp < 1.1 * found.pld
    assert averaging_cost(10.0, 1, DELTA, "replace").pld == pytest.approx(0.8341175, abs=1e-5)
    with pytest.raises(ValueError, match="round"):
        averaging_cost(10.0, 0, DELTA, "replace")


def test_against_dp_accounting() -> None:
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    year = pld.from_gaussian_mechanism(10.0, value_discretization_interval=1e-4).self_compose(365)
    assert averaging_cost(10.0, 365, DELTA, "add_or_remove").pld == pytest.approx(
        year.get_epsilon_for_delta(DELTA), rel=1e-3
    )
    meter = CostMeter(LAPLACE, 1, DELTA)
    parts = [pld.from_laplace_mechanism(1.0 / epsilon, value_discretization_interval=1e-4) for epsilon in (2.5, 0.5)]
    theirs = parts[0].self_compose(20).compose(parts[1].self_compose(20)).get_epsilon_for_delta(DELTA)
    assert meter.local(20).pld == pytest.approx(theirs, rel=1e-3)


def test_the_split_of_the_paper_costs_one_release() -> None:
    """Update at z_delta and bit at sigma_b, composed: what a single release at z costs, under both relations."""
    z, sigma_b = 1.0, 5.0
    update = update_multiplier(z, sigma_b)
    for scale in (1.0, 2.0):
        one = local.gaussian(z, scale)
        two = Composer([local.gaussian(update, scale), local.gaussian(sigma_b, scale * 0.5)])
        assert two.epsilon([1, 1], DELTA) == pytest.approx(one.epsilon(DELTA), rel=1e-4)


@pytest.mark.parametrize("losses", LINES.values(), ids=LINES)
def test_what_must_never_be_below_what(losses: tuple[PrivacyLoss, ...]) -> None:
    meter, alone = CostMeter(losses, 30, DELTA), CostMeter(losses, 1, DELTA)
    for rounds in (1, 2, 5, 40):
        local_, plain = meter.local(rounds), meter.plain(rounds)
        replaced, removed = (meter.central(rounds, relation) for relation in RELATIONS)
        assert removed.pld < replaced.pld < local_.pld <= float(plain[0]) + 1e-9
        for found in (local_, replaced, removed):
            assert found.pld <= found.rdp * (1 + 1e-4)
            assert found.rdp < 1.25 * found.pld + 0.05
        assert alone.local(rounds) == local_, "no sum and no cohort changes the local figure"
        assert alone.central(rounds).pld == pytest.approx(local_.pld), "alone, nobody hides a report"
    assert meter.report.epsilon == sum(loss.epsilon for loss in losses)
    assert meter.plain(5) == (5 * meter.report.epsilon, 5 * meter.report.delta)


@pytest.mark.parametrize("losses", LINES.values(), ids=LINES)
def test_taken_away_is_half_as_far(losses: tuple[PrivacyLoss, ...]) -> None:
    """A vector of zeros instead of another one: half the distance, the same noise."""
    assert SENSITIVITY == {"replace": ("2C", "1"), "add_or_remove": ("C", "1/2")}
    for loss in losses:
        halved = loss_under(loss, "add_or_remove")
        assert loss_under(loss, "replace") is loss
        if loss.mechanism == "laplace":
            assert 2 * halved.parameter("levels") == loss.parameter("levels")
            scales = [one.parameter("levels") / float(one.epsilon) for one in (loss, halved)]
            assert scales[0] == pytest.approx(scales[1], rel=1e-12)
            assert local_pair(halved).epsilon(0.0) == pytest.approx(float(loss.epsilon) / 2, rel=1e-9)
        else:
            assert 4 * halved.parameter("sensitivity_squared") == loss.parameter("sensitivity_squared")
            assert halved.parameter("variance") == loss.parameter("variance")
    with pytest.raises(ValueError, match="only vectors"):
        loss_under(PrivacyLoss.of("one_bit", Decimal(1)), "add_or_remove")


def test_a_sum_of_laplace_noises_taken_away_by_brute_force() -> None:
    """Ten noises of a small lattice: the law of their sum against itself moved by half of the whole width."""
    loss = VectorLaplace(1, Decimal(1), Decimal(2), 4).losses[0]
    rate = 2.0 / loss.parameter("levels")
    one = np.exp(-rate * np.abs(np.arange(-400, 401)))
    law = one / one.sum()
    total = law
    for _ in range(9):
        total = np.convolve(total, law)
    for relation, shift in (("replace", 8), ("add_or_remove", 4)):
        upper, lower = np.concatenate((np.zeros(shift), total)), np.concatenate((total, np.zeros(shift)))
        pair = central_pair(loss_under(loss, relation), 10)  # type: ignore[arg-type]
        for epsilon in (0.2, 0.5, 1.0):
            wanted = float(np.maximum(upper - math.exp(epsilon) * lower, 0.0).sum())
            assert pair.delta(epsilon) == pytest.approx(wanted, rel=1e-6, abs=1e-12)


def test_divergences_of_atoms() -> None:
    pair = local.gaussian(3.0, 2.0)
    orders = ORDERS[ORDERS < 10]  # from about 18 on, what counts lies beyond the atoms: in the slack
    assert divergences(pair, orders) == pytest.approx(rdp.gaussian(3.0, 2.0, orders), rel=1e-4)
    binary = local.pure(1.0)
    assert divergences(binary) == pytest.approx(rdp.pure(1.0, ORDERS), rel=1e-9)


@pytest.mark.parametrize(
    ("losses", "n_h", "delta", "words"),
    [
        *((LAPLACE, n_h, 1e-6, "^n_h: must be a whole number of at least 1, got") for n_h in (0, -1, 2.5, 3.0, True)),
        *((LAPLACE, 5, delta, "delta") for delta in (0.0, 1.0, math.nan)),
        ((), 5, 1e-6, "at least one loss"),
    ],
)
def test_what_has_no_cost(losses: tuple[PrivacyLoss, ...], n_h: int, delta: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CostMeter(losses, n_h, delta)


METER = CostMeter(LAPLACE, np.int64(5), DELTA)  # type: ignore[arg-type]  # numpy's are whole numbers too


@pytest.mark.parametrize("relation", ["foo", "", "Replace", None, ["replace"]])
def test_an_unknown_relation_is_not_taken_for_the_cheaper_one(relation: Any) -> None:
    asked: list[Callable[[], object]] = [
        lambda: averaging_cost(1.0, 1, DELTA, relation),
        lambda: METER.central(1, relation),
        *(partial(loss_under, loss, relation) for loss in (*LAPLACE, *GAUSSIAN)),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match=r"^relation: must be 'replace' or 'add_or_remove', got "):
            ask()


@pytest.mark.parametrize("rounds", [-1, 1.0, 1.5, math.nan, True, "1", None])
def test_rounds_are_counted_in_whole_numbers(rounds: Any) -> None:
    averaging_cost(10.0, 1, DELTA, "replace")  # 1.0 and True are not found where 1 was kept
    asked = (METER.plain, METER.local, METER.central, lambda n: averaging_cost(10.0, n, DELTA, "replace"))
    for ask, least in zip(asked, (0, 0, 0, 1), strict=True):
        with pytest.raises(ValueError, match=f"^rounds: must be a whole number of at least {least}, got "):
            ask(rounds)


def test_no_rounds_and_those_of_numpy() -> None:
    assert (METER.plain(0), METER.local(0).pld, METER.central(0).pld) == ((Decimal(0), Decimal(0)), 0.0, 0.0)
    two: Any = np.int64(2)
    assert (METER.plain(two), METER.local(two), METER.central(two)) == (
        METER.plain(2),
        METER.local(2),
        METER.central(2),
    )
