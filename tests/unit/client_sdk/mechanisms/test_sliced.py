"""Sliced numbers: both halves, refusals, errors against what repeated cohorts show, versions put together."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Entropy, Mechanism
from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.mechanisms.sliced import SlicedNumber
from client_sdk.mechanisms.sliced_choice import WORDS, exact_cost, sliced_choice
from client_sdk.mechanisms.slices import SlicesEstimate, slices_of
from client_sdk.sampling_vectorised import Keystream
from tests.entropy import Untouched, seeded

D = Decimal
NETWORKS = "wifi", "cellular", "offline"
LARGEST = 1.7976931348623157e308


def sliced(
    word: str = "subset_selection",
    epsilon: str = "1",
    levels: int = 1,
    *,
    optional: bool = False,
    lower: str = "0",
    upper: str = "10",
    other: str | None = "other",
    absent: bool = False,
) -> SlicedNumber:
    by = RandomizedResponse(NETWORKS, D(1), other, absent)
    return SlicedNumber(by, D(lower), D(upper), D(epsilon), word, levels, optional)


@pytest.mark.parametrize("word", WORDS)
def test_shape(word: str) -> None:
    mech = sliced(word, levels=2, optional=True)
    assert isinstance(mech, Mechanism)
    assert (mech.name, mech.answer, mech.length, mech.bound) == (word, "slices", 13, 1)
    assert mech.slices == ("wifi", "cellular", "offline", "other")
    assert mech.labels[:3] == ("wifi: mean", "wifi: present", "cellular: mean")
    assert len(set(mech.labels)) == 8
    (loss,) = mech.losses
    assert (loss.mechanism, loss.epsilon, loss.parameter("k")) == (word, 1, 13), "the whole of epsilon, once"
    for value in (("wifi", 3.0), ("?", -1e300), ("offline", None), ("other", 7)):
        report = mech.perturb(value, seeded(f"shape {value}"))
        assert len(report) == 13
        assert set(report) <= {0, 1}


REFUSED: list[tuple[Any, RefusalReason]] = [
    (3.0, RefusalReason.WRONG_TYPE),
    ("wifi", RefusalReason.WRONG_TYPE),
    (("wifi",), RefusalReason.WRONG_TYPE),
    (["wifi", 1.0], RefusalReason.WRONG_TYPE),
    ((3.0, "wifi"), RefusalReason.WRONG_TYPE),
    (("wifi", None), RefusalReason.WRONG_TYPE),
    ((None, 1.0), RefusalReason.WRONG_TYPE),
    (("wifi", True), RefusalReason.WRONG_TYPE),
    (("wifi", math.nan), RefusalReason.NOT_FINITE),
    (("wifi", -math.inf), RefusalReason.NOT_FINITE),
    (("unheard of", 1.0), RefusalReason.UNKNOWN_CATEGORY),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED, ids=lambda case: repr(case)[:30])
def test_what_is_no_pair_is_refused_before_anything_is_drawn(value: Any, reason: RefusalReason) -> None:
    mech = sliced(other=None)
    for call in (
        lambda: mech.perturb(value, Untouched()),
        lambda: mech.perturb_many([("wifi", 1.0), value], Untouched()),
    ):
        with pytest.raises(ValueRefusedError) as refused:
            call()
        assert refused.value.reason == reason


def test_no_reading_of_the_other_metric_is_a_slice_where_it_may_be_missing() -> None:
    mech = sliced(absent=True, epsilon="40")
    assert mech.slices[-1] == ABSENT
    total = mech.perturb_many([(None, 10.0)] * 20, seeded("absent")).sum(axis=0)
    values = mech.estimate(total.tolist(), 20).values
    assert values[-2:] == pytest.approx((10.0, 20.0), rel=1e-6)


@pytest.mark.parametrize("word", WORDS)
def test_bulk_takes_what_single_does(word: str) -> None:
    """At epsilon 40 hardly any report lies (a unary one misses its own bit half of the time)."""
    mech = sliced(word, "40", 2, optional=True)
    values: list[Any] = [("wifi", 10), ("cellular", 0.0), ("what", Fraction(5)), ("offline", None), ("wifi", LARGEST)]
    wanted = [2, 3, 10, 12, 2]
    many = mech.perturb_many(values, seeded("takes"))
    assert many.shape == (5, 13)
    for report, value, place in zip(many, values, wanted, strict=True):
        for bits in (report.tolist(), mech.perturb(value, seeded(f"takes {value}"))):
            assert [cell for cell, bit in enumerate(bits) if bit] in ([place], [])
    with pytest.raises(ValueError, match="expected 13 totals"):
        mech.estimate([0] * 12, 1)
    assert mech.perturb_many([], seeded("none")).shape == (0, 13)


def cohort(seed: int, n: int) -> list[Any]:
    """Four slices of very different sizes, each with readings of its own kind."""
    rng = np.random.default_rng(seed)
    names = rng.choice(["wifi", "cellular", "offline", "?"], n, p=[0.55, 0.3, 0.1, 0.05])
    centre = {"wifi": 2.0, "cellular": 7.0, "offline": 5.0, "?": 9.0}
    numbers = np.clip(rng.normal([centre[str(name)] for name in names], 2.0), 0, 10)
    return list(zip(map(str, names), numbers.tolist(), strict=True))


def total_of(mech: SlicedNumber, values: list[Any], entropy: Entropy) -> list[int]:
    """As `perturb_many` draws it, without an object a reading."""
    places = np.array([mech.by.code(name) for name, _ in values])
    points, stream = mech.lattice.encode_many(np.array([number for _, number in values]), entropy)
    total: list[int] = mech.inner.total_of(mech.inner.perturb_codes(places * mech.points + points, stream)).tolist()
    return total


def truths(mech: SlicedNumber, values: list[Any]) -> list[float]:
    found = []
    for place in range(mech.by.k):
        mine = [number for name, number in values if mech.by.code(name) == place]
        found += [math.fsum(mine) / len(mine), float(len(mine))]
    return found


@pytest.mark.parametrize(
    ("word", "epsilon", "levels"),
    [
        ("subset_selection", "1", 1),
        ("randomized_response", "4", 3),
        ("optimized_unary", "2", 2),
        ("symmetric_unary", "2", 1),
    ],
)
def test_errors_are_those_that_repeated_cohorts_show(word: str, epsilon: str, levels: int) -> None:
    """One cohort, reported 300 times: estimates lie around the truth as the stated errors say, a bound on them."""
    mech, n, rounds = sliced(word, epsilon, levels), 3_000, 300
    values = cohort(1, n)
    truth = np.array(truths(mech, values))
    codes_entropy = Keystream(seeded(f"errors {word}"))
    found, errors, held, sums = [], [], [], []
    for _ in range(rounds):
        estimate = mech.estimate(total_of(mech, values, codes_entropy), n)
        found.append([math.nan if value is None else value for value in estimate.values])
        errors.append([math.nan if error is None else error for error in estimate.standard_errors])
        rows = zip(estimate.interval(0.95), truth, strict=True)
        held.append([row is None or row[0] <= true <= row[1] for row, true in rows])
        sums.append([total for total, _ in estimate.sums])
    clear = ~np.isnan(found).any(axis=0)
    assert clear[:4].all(), "the large slices have means"
    off = (np.array(found) - truth)[:, clear]
    stated = np.mean(errors, axis=0)[clear]
    assert (np.abs(off.mean(axis=0)) < 5 * stated / math.sqrt(rounds) + 0.02 * stated).all()
    ratio = off.std(axis=0) / stated
    assert (ratio < 1.13).all()
    assert (ratio > 0.8).all()
    assert (np.mean(held, axis=0)[clear] > 0.91).all()
    true_sums = truth[::2] * truth[1::2]
    spread = np.array(sums).std(axis=0)
    assert (np.abs(np.mean(sums, axis=0) - true_sums) < 5 * spread / math.sqrt(rounds)).all(), "unbiased, clear or not"
    assert [error for _, error in estimate.sums] == pytest.approx(spread.tolist(), rel=0.2)


def test_populations_errors_hold_who_is_in_which_slice() -> None:
    mech, n, rounds = sliced("randomized_response", "5", 3), 800, 250
    entropy = Keystream(seeded("population"))
    found, errors = [], []
    for seed in range(rounds):
        values = cohort(seed, n)
        estimate = mech.estimate(total_of(mech, values, entropy), n)
        found.append(estimate.values[:4])
        errors.append(estimate.population_errors[:4])
    ratio = np.std(np.array(found, float), axis=0) / np.mean(np.array(errors, float), axis=0)
    assert (ratio < 1.12).all()
    assert (ratio > 0.85).all()
    assert all(p >= s for p, s in zip(estimate.population_errors, estimate.standard_errors, strict=True) if p and s)


def test_a_slice_without_clear_devices_has_a_count_and_a_sum_but_no_mean() -> None:
    mech = sliced("optimized_unary", "1")
    values = [("wifi", 4.0)] * 3_000
    estimate = mech.estimate(mech.perturb_many(values, seeded("clear")).sum(axis=0).tolist(), 3_000)
    assert estimate.values[0] == pytest.approx(4.0, abs=5 * (estimate.standard_errors[0] or 0))
    for place in (1, 2, 3):
        mean, present = estimate.values[2 * place : 2 * place + 2]
        assert mean is None
        assert present is not None
        assert abs(present) < 4 * (estimate.standard_errors[2 * place + 1] or 0)
        assert estimate.interval()[2 * place] is None
        total, error = estimate.sums[place]
        assert total is not None
        assert error is not None
        assert abs(total) < 5 * error


def test_nobody_is_an_explicit_answer() -> None:
    estimate = sliced().estimate([0] * 8, 0)
    assert estimate.values == estimate.standard_errors == (None,) * 8
    assert estimate.interval() == (None,) * 8
    assert estimate.sums == ((None, None),) * 4


def test_a_range_far_from_0_and_totals_beyond_64_bits_cost_no_digits() -> None:
    near, far = (
        sliced("randomized_response", "3", 2),
        sliced("randomized_response", "3", 2, lower="1e9", upper="1000000010"),
    )
    n = 10**21
    total = [n // 100 * share for share in (20, 10, 15, 7, 5, 8, 5, 5, 5, 8, 6, 6)]
    one, other = near.estimate(total, n), far.estimate(total, n)
    assert one.standard_errors == pytest.approx(other.standard_errors, rel=1e-9)
    for place in range(4):
        assert one.values[2 * place] == pytest.approx((other.values[2 * place] or 0) - 1e9, abs=1e-6)
    assert near.is_plausible(total, n)
    assert not near.is_plausible([n + 1, *[0] * 11], n)


def test_versions_add_up_to_what_one_would_have_said() -> None:
    """Two halves of the reports, decoded and put together, are the whole: values and errors."""
    mech = sliced("subset_selection", "3")
    values = cohort(3, 8_000)
    reports = mech.perturb_many(values, seeded("halves"))
    whole = mech.estimate(reports.sum(axis=0).tolist(), 8_000)
    parts = [mech.parts(reports[half::2].sum(axis=0).tolist(), 4_000) for half in (0, 1)]
    halves = slices_of([list(both) for both in zip(*parts, strict=True)], 8_000)
    assert halves.values == pytest.approx(whole.values, rel=1e-9)
    assert halves.standard_errors == pytest.approx(whole.standard_errors, rel=0.01)
    assert halves.interval()[0] == pytest.approx(whole.interval()[0], rel=0.01)


def test_versions_of_other_ranges_and_lattices_are_put_together_by_their_sums() -> None:
    one, other = sliced("randomized_response", "6", 1), sliced("randomized_response", "5", 4, lower="5", upper="25")
    values = [("wifi", 8.0)] * 3_000
    parts = [
        m.parts(m.perturb_many(values, seeded(str(m.levels))).sum(axis=0).tolist(), 3_000)[0] for m in (one, other)
    ]
    found = slices_of([parts], 6_000)
    assert isinstance(found, SlicesEstimate)
    mean, error = found.values[0] or 0.0, found.standard_errors[0] or 0.0
    assert abs(mean - 8.0) < 5 * error
    alone = [slices_of([[part]], 3_000).standard_errors[0] or 0.0 for part in parts]
    assert error == pytest.approx(math.hypot(*alone) / 2, rel=0.05)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"levels": 0}, "levels"), ({"levels": 65}, "levels"), ({"levels": True}, "levels"),
        ({"word": "hadamard"}, "mechanism"), ({"word": "auto"}, "mechanism"), ({"epsilon": "0"}, "epsilon"),
        ({"epsilon": "41"}, "epsilon"), ({"lower": "10"}, "upper"), ({"upper": "Infinity"}, "upper"),
    ],
)  # fmt: skip
def test_parameters_that_cannot_work(change: dict[str, Any], field: str) -> None:
    with pytest.raises(PlanError) as refused:
        sliced(**change)
    assert refused.value.problems[0].startswith(f"{field}: ")


def test_too_many_pairs_are_refused() -> None:
    by = RandomizedResponse(tuple(map(str, range(40_000))), D(1))
    with pytest.raises(PlanError, match="levels: 40000 slices of 2 points are 80000 cells; at most 65536"):
        SlicedNumber(by, D(0), D(1), D(1), "randomized_response")


@pytest.mark.parametrize("slices", [2, 3, 8, 100, 5_000])
@pytest.mark.parametrize("epsilon", ["0.000001", "0.5", "1", "2", "4", "8", "40"])
def test_what_is_chosen_has_the_least_error_of_all(slices: int, epsilon: str) -> None:
    word, levels = sliced_choice(slices, D(epsilon), optional=False)
    least = exact_cost(slices, D(epsilon), word, levels, optional=False)
    tried = [
        steps for steps in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if steps == 1 or slices * (steps + 1) <= 4096
    ]
    assert least == min(exact_cost(slices, D(epsilon), w, s, optional=False) for w in WORDS for s in tried)
    assert sliced_choice(slices, D(epsilon), optional=False, word=word) == (word, levels)
    assert sliced_choice(slices, D(epsilon), optional=False, levels=levels) == (word, levels)


@pytest.mark.parametrize(
    ("slices", "epsilon", "word", "levels", "cost"),
    [
        (2, "2", "randomized_response", 2, 1.2334), (4, "1", "subset_selection", 1, 7.9297),
        (8, "3", "randomized_response", 1, 0.4675), (100, "1", "subset_selection", 1, 9.7404),
    ],
)  # fmt: skip
def test_the_choice_stays_what_it_was(slices: int, epsilon: str, word: str, levels: int, cost: float) -> None:
    """A plan's hash rests on it."""
    assert sliced_choice(slices, D(epsilon), optional=False) == (word, levels)
    assert float(exact_cost(slices, D(epsilon), word, levels, optional=False)) == pytest.approx(cost, abs=1e-4)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "4", "8"])
def test_less_error_than_slots_of_lattice_noise(epsilon: str) -> None:
    """What else could be done: the number's point in its own slot (0, the middle, in others), exact Laplace noise of
    the whole width in each, and the slice beside it by the best mechanism for categories, epsilon split at the best
    of 19 shares. Variance of a slice's sum and a third of its count's, 4 slices, in [-1, 1], as `exact_cost`.
    """
    from client_sdk.mechanisms.choice import costs

    slots = []
    for share in range(1, 20):
        number, slice_ = D(epsilon) * share / 20, D(epsilon) * (20 - share) / 20
        slots.append(8 / float(number) ** 2 + min(costs(4, slice_).values()) / 3)
    best = exact_cost(4, D(epsilon), *sliced_choice(4, D(epsilon), optional=False), optional=False)
    assert float(best) < 0.35 * min(slots)
