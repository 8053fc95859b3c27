"""Memoised answers at parameters that nobody chose: both promises, and a price that only grows."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.accounting.memo import MemoCharge
from client_sdk.mechanisms.memoized import MemoizedResponse
from client_sdk.mechanisms.memoized_unary import MemoizedUnary
from tests.exact_law import e_to

EPSILONS = st.decimals(Decimal("0.01"), Decimal(20), places=3)


@settings(deadline=None, max_examples=40)  # powers of fractions take their time
@given(st.integers(2, 300), EPSILONS, EPSILONS, st.integers(1, 30))
def test_both_rounds_keep_what_they_promise(k: int, one: Decimal, more: Decimal, reports: int) -> None:
    first, inf = one, one + more
    for made in (MemoizedResponse, MemoizedUnary):
        mech = made(tuple(map(str, range(k))), first, None, False, inf, 1)
        ratio = mech.chain_ratio(reports)
        assert 1 < mech.worst_ratio <= e_to(first)
        assert mech.worst_ratio <= ratio <= mech.permanent_ratio <= e_to(inf)
        assert 0 < mech.q < mech.p < 1


@given(st.integers(1, 10**8), st.integers(0, 10**8), st.integers(1, 1000), st.integers(0, 3000))
def test_every_report_costs_something_and_none_more_than_the_dearest(
    first: int, more: int, max_distinct: int, earlier: int
) -> None:
    charge = MemoCharge(b"", first, first + more, max_distinct)
    assert 1 <= charge.of_report(earlier) <= charge.dearest
    assert charge.total(earlier) >= min(earlier, max_distinct) * charge.inf_micro - (more if earlier == 1 else 0)
