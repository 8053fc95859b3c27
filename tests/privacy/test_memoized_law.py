"""Memoised answers: the complete law of one and of several reports, enumerated from the shipped integers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import permutations, product
from math import log, prod
from typing import Any

import numpy as np
import pytest

from client_sdk.accounting.memo import MemoCharge
from client_sdk.errors import PlanError
from client_sdk.mechanisms import memoized as rounds
from client_sdk.mechanisms import memoized_unary as bit_rounds
from client_sdk.mechanisms.memoized import Memoized, MemoizedResponse, memoized
from client_sdk.mechanisms.memoized_unary import MemoizedUnary, bits_ratio
from tests.entropy import seeded
from tests.exact_law import Law, e_to, exact_law, worst_ratio

LABELS = tuple("abcdefgh")
MODULES = rounds, bit_rounds


def response(k: int, first: str, inf: str, max_distinct: int = 1) -> MemoizedResponse:
    return MemoizedResponse(LABELS[:k], Decimal(first), None, False, Decimal(inf), max_distinct)


def unary(k: int, first: str, inf: str, max_distinct: int = 1) -> MemoizedUnary:
    return MemoizedUnary(LABELS[:k], Decimal(first), None, False, Decimal(inf), max_distinct)


def epsilon(ratio: Fraction) -> float:
    return log(ratio.numerator) - log(ratio.denominator)


def history_law(mech: Memoized, values: Sequence[int]) -> Law:
    """Of all reports of these values together: each value's permanent answer is drawn once."""

    def run() -> Any:
        answers = {code: mech.permanent(code, None) for code in dict.fromkeys(values)}  # type: ignore[arg-type]
        return tuple(tuple(mech.instantaneous(answers[code], None)) for code in values)  # type: ignore[arg-type]

    return exact_law(run, *MODULES)


SMALL = [response(2, "1", "2"), response(3, "0.5", "3"), response(4, "1.5", "1.6"), unary(2, "1", "2")]


@pytest.mark.parametrize("mech", SMALL, ids=repr)
@pytest.mark.parametrize("reports", [1, 2, 3])
def test_reports_of_an_unchanged_value_lose_what_the_chain_says(mech: Memoized, reports: int) -> None:
    laws = [history_law(mech, [code] * reports) for code in range(mech.k)]
    assert worst_ratio(laws) == mech.chain_ratio(reports) < mech.permanent_ratio


@pytest.mark.parametrize("mech", [*SMALL, unary(3, "0.5", "2")], ids=repr)
def test_the_first_report_costs_epsilon_first_and_the_permanent_answer_epsilon_inf(mech: Memoized) -> None:
    laws = [history_law(mech, [code]) for code in range(mech.k)]
    assert worst_ratio(laws) == mech.worst_ratio <= e_to(mech.epsilon)
    assert epsilon(mech.worst_ratio) == pytest.approx(float(mech.epsilon), abs=1e-12)
    permanent = [exact_law(lambda code=code: mech.permanent(code, None), *MODULES) for code in range(mech.k)]
    assert worst_ratio(permanent) == mech.permanent_ratio <= e_to(mech.epsilon_inf)
    assert epsilon(mech.permanent_ratio) == pytest.approx(float(mech.epsilon_inf), abs=1e-12)
    for code, law in enumerate(laws):
        for cell in range(mech.k):
            support = sum(mass for (report,), mass in law.items() if report[cell])
            assert support == (mech.p if cell == code else mech.q), "what the estimator undoes"


@pytest.mark.parametrize(("k", "first", "inf"), [(2, "0.000001", "40"), (8, "39", "40"), (8, "1", "1.000001")])
def test_extreme_parameters_keep_both_promises(k: int, first: str, inf: str) -> None:
    for mech in (response(k, first, inf), unary(k, first, inf)):
        assert 1 < mech.worst_ratio <= e_to(mech.epsilon)
        assert mech.permanent_ratio <= e_to(mech.epsilon_inf)


def test_one_unit_more_in_the_instantaneous_round_would_break_epsilon() -> None:
    for mech in (response(8, "1", "2"), unary(8, "1", "2")):
        mech._set(second=mech.second + 16)
        assert mech.worst_ratio > e_to(mech.epsilon)


def test_reference_rows() -> None:
    """RAPPOR f = 1/2, p = 1/2, q = 3/4; the 8-ary chain of 2 and 1; the reference's chains of 2 and 2."""
    f = Fraction(1, 2)
    rounds = 1 - f / 2, f / 2, Fraction(3, 4), Fraction(1, 2)
    assert epsilon(bits_ratio(*rounds, reports=1)) == pytest.approx(0.53714293, abs=1e-8)
    permanent = Fraction(1), Fraction(0)
    assert epsilon(bits_ratio(1 - f / 2, f / 2, *permanent, reports=1)) == pytest.approx(2.19722458, abs=1e-8)
    assert epsilon(bits_ratio(*rounds, reports=200)) == pytest.approx(2.19722458, abs=1e-8)
    chain = response(8, "0.519727", "2")
    assert chain.change == pytest.approx(1.0, abs=1e-5)
    assert epsilon(chain.chain_ratio(2)) == pytest.approx(1.0867, abs=5e-5)
    assert epsilon(chain.chain_ratio(2)) > 2 * float(chain.epsilon), "reports x epsilon_first is no bound"
    assert response(8, "1.086732", "2").change == pytest.approx(2.0, abs=1e-4)
    assert response(2, "1.325003", "2").change == pytest.approx(2.0, abs=1e-4)


def test_osue_rates_are_those_of_the_paper() -> None:
    mech = unary(8, "1", "2")
    e1, e2 = float(e_to("1")), float(e_to("2"))
    _, q1, p2, q2 = mech._rounds
    assert float(q1) == pytest.approx(1 / (e2 + 1), rel=1e-14)
    assert float(p2) == pytest.approx((e1 * e2 - 1) / (e2 - e1 + e1 * e2 - 1), rel=1e-14)
    assert float(p2 + q2) == 1.0
    variance = float(mech.q * (1 - mech.q) / (mech.p - mech.q) ** 2)
    assert variance == pytest.approx(3.68, abs=0.005), "the reference's nVar of one collection at epsilon_first 1"


@pytest.mark.parametrize("mech", [response(2, "1", "2"), response(8, "1", "2"), unary(8, "1", "2")], ids=repr)
def test_400_days_of_an_unchanged_value_recover_nothing_beyond_eps_inf(mech: Memoized) -> None:
    # case C08
    losses = [epsilon(mech.chain_ratio(reports)) for reports in (1, 2, 7, 30, 400)]
    assert losses == sorted(losses)
    assert mech.chain_ratio(400) <= mech.permanent_ratio <= e_to("2")
    certainty = e_to("2") / (1 + e_to("2"))
    ratio = mech.chain_ratio(400)
    assert ratio / (1 + ratio) <= certainty < Fraction(9, 10), "of two equally likely values, guessed after 400 days"


# --- what a history of several values loses ------------------------------------------------------------


def relabelled(values: Sequence[int], k: int) -> list[list[int]]:
    """Every history with the same pattern: each value replaced by another wherever it stood."""
    distinct = list(dict.fromkeys(values))
    images = permutations(range(k), len(distinct))
    return [[dict(zip(distinct, image, strict=True))[value] for value in values] for image in images]


@pytest.mark.parametrize("pattern", [[0, 0], [0, 1], [0, 1, 0], [0, 0, 1]], ids=str)
@pytest.mark.parametrize("mech", [response(3, "0.5", "1", 2)], ids=repr)
def test_the_charge_bounds_every_replacement_of_values(mech: MemoizedResponse, pattern: list[int]) -> None:
    charge = MemoCharge(b"", int(mech.epsilon * 10**6), int(mech.epsilon_inf * 10**6), mech.max_distinct)
    loss = epsilon(worst_ratio([history_law(mech, values) for values in relabelled(pattern, mech.k)]))
    distinct = len(set(pattern))
    assert loss < distinct * float(mech.epsilon_inf) <= charge.total(len(pattern)) / 10**6
    assert loss > float(mech.epsilon)


def test_what_a_change_tells_is_bounded_by_the_instantaneous_rounds_alone() -> None:
    """The pattern itself is not what epsilon_inf is about: one report of another value, among unchanged ones."""
    mech = response(3, "0.1", "0.2", 3)
    for changed in ([0, 1, 0], [0, 0, 1], [1, 0, 0]):
        laws = [history_law(mech, [0, 0, 0]), history_law(mech, changed)]
        assert epsilon(mech.chain_ratio(1)) < epsilon(worst_ratio(laws)) <= mech.change + 1e-12
    apart = worst_ratio([history_law(mech, [0, 0]), history_law(mech, [1, 2])])
    assert epsilon(apart) <= 2 * mech.change
    assert unary(8, "1", "2").change == pytest.approx(8 * 1.407605964, abs=1e-6), "every bit may differ"


def test_the_charge_does_not_bound_what_a_change_tells() -> None:
    """Three reports of each of two values against six of one: said in plan check and README, not hidden."""
    mech = response(3, "1", "2", 2)
    p1, q1, p2, q2 = mech._rounds
    three = [[(p2 if cell == seen else q2) ** 3 for cell in range(3)] for seen in range(2)]
    drawn = [[p1 if cell == value else q1 for cell in range(3)] for value in range(3)]
    changed = [sum(p * like for p, like in zip(drawn[value], three[value], strict=True)) for value in range(2)]
    unchanged = [sum(p * a * b for p, a, b in zip(law, *three, strict=True)) for law in drawn]
    loss = epsilon(changed[0] * changed[1] / min(unchanged))
    assert loss == pytest.approx(5.513899, abs=1e-6)
    assert 2 * float(mech.epsilon_inf) < loss <= 6 * mech.change


# --- the halves agree ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mech", [response(3, "1", "2"), unary(3, "1", "2")], ids=repr)
def test_bulk_reports_have_the_law_of_single_ones(mech: Memoized) -> None:
    n = 120_000
    totals = mech.total_of(mech.perturb_codes(np.full(n, 1), seeded(f"bulk {mech.name}")))
    for cell, total in enumerate(totals.tolist()):
        chance = float(mech.p if cell == 1 else mech.q)
        assert abs(total - n * chance) < 5 * (n * chance * (1 - chance)) ** 0.5
    rows = mech.rows(mech.perturb_codes(np.array([0, 2]), seeded("rows")))
    assert rows.shape == (2, 3)
    assert set(np.unique(rows)) <= {0, 1}


@pytest.mark.parametrize("code", [0, 1, 2])
def test_bits_of_bulk_reports_are_drawn_independently(code: int) -> None:
    """All patterns of a row, and of two rows side by side, are as frequent as products of single bits say."""
    mech, n = unary(3, "1", "2"), 120_000
    rows = mech.perturb_codes(np.full(n, code), seeded(f"independent {code}"))
    chances = [mech.p if cell == code else mech.q for cell in range(3)]
    for bits in (rows, rows.reshape(n // 2, 6)):
        for pattern in product((0, 1), repeat=bits.shape[1]):
            law = zip(pattern, chances * 2, strict=False)
            expected = len(bits) * float(prod(chance if bit else 1 - chance for bit, chance in law))
            assert abs(int((bits == pattern).all(axis=1).sum()) - expected) < 5 * expected**0.5


def test_a_change_among_a_hundred_thousand_labels_is_told_without_a_huge_number() -> None:
    """As a ratio it has millions of digits; its logarithm is k times one bit's."""
    labels = tuple(map(str, range(100_000)))
    mech = MemoizedUnary(labels, Decimal(1), None, False, Decimal(2), 1)
    few = unary(8, "1", "2")
    tracemalloc.start()
    assert mech.change == pytest.approx(12_500 * few.change, rel=1e-12)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    _, _, p2, q2 = few._rounds
    assert few.change == pytest.approx(epsilon((p2 / q2) ** 8), rel=1e-13), "of few, the ratio itself"


@pytest.mark.parametrize("mech", [response(4, "1", "2"), unary(4, "1", "2")], ids=repr)
def test_estimates_undo_the_chain_exactly(mech: Memoized) -> None:
    counts, n = [50, 30, 15, 5], 100
    expected = [c * mech.p + (n - c) * mech.q for c in counts]
    scale = 10**15
    total = [round(cell * scale) for cell in expected]
    assert mech.estimate(total, n * scale).values == pytest.approx([c * scale for c in counts], rel=1e-12)
    assert mech.is_plausible(mech.perturb("a", seeded("plausible")), 1)


def test_unary_permanent_answers_keep_every_bit() -> None:
    mech = unary(5, "1", "2")
    law = exact_law(lambda: mech.permanent(2, None), *MODULES)  # type: ignore[arg-type]
    assert set(law) == set(range(32))
    assert sum(mass for answer, mass in law.items() if answer >> 2 & 1) == Fraction(1, 2)
    answer = 0b01101
    sure = MemoizedUnary(LABELS[:5], Decimal(1), None, False, Decimal(2), 1)
    sure._set(second=1 << 64)
    assert sure.instantaneous(answer, seeded("kept")) == [1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("word", "first", "inf", "most", "field"),
    [
        ("randomized_response", "1", "1", 1, "epsilon_inf: must lie above epsilon"),
        ("randomized_response", "1", "41", 1, "epsilon_inf: must lie between"),
        ("optimized_unary", "1", "2", 0, "max_distinct: must be a whole number from 1 to the 4 labels"),
        ("optimized_unary", "1", "2", 5, "max_distinct"),
        ("hadamard", "1", "2", 1, "mechanism: memoize goes with randomized_response or optimized_unary"),
    ],
)
def test_parameters_that_cannot_work_are_refused_by_name(
    word: str, first: str, inf: str, most: int, field: str
) -> None:
    with pytest.raises(PlanError, match=field):
        memoized(word, LABELS[:4], Decimal(first), None, False, Decimal(inf), most)


def test_the_charge_is_a_function_of_the_number_of_reports() -> None:
    charge = MemoCharge(b"k", 1_000_000, 2_000_000, 3)
    assert [charge.total(r) for r in range(6)] == [0, 1_000_000, 4_000_000, 6_000_000, 6_000_001, 6_000_002]
    assert [charge.of_report(r) for r in range(5)] == [1_000_000, 3_000_000, 2_000_000, 1, 1]
    assert charge.dearest == 3_000_000
    one = MemoCharge(b"k", 1_000_000, 1_000_000, 1)
    assert [one.of_report(r) for r in range(3)] == [1_000_000, 1, 1]
    for most, reports in product(range(1, 5), range(8)):
        many = MemoCharge(b"k", 700_000, 2_000_000, most)
        assert many.of_report(reports) >= 1
        assert many.total(reports + 1) == sum(many.of_report(r) for r in range(reports + 1))
