"""Budgets: exact decimals, limits that cannot be talked away, a window that no clock renews."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.accounting.budget import (
    WINDOW_S,
    Limits,
    charge_time,
    check_charge,
    format_micro,
    limit_to_micro,
    spent_in_window,
    to_micro,
)
from client_sdk.errors import BudgetExceededError, ConfigurationError, RefusalReason, StorageError


# case C04
@pytest.mark.parametrize(
    ("budget", "epsilon", "accepted", "left"),
    [("0.3", "0.1", 3, "0"), ("1.0", "0.1", 10, "0"), ("1.0", "0.333333", 3, "0.000001")],
)
@pytest.mark.parametrize("kind", [str, float, Decimal])
def test_budgets_are_used_up_exactly(budget: str, epsilon: str, accepted: int, left: str, kind: type) -> None:
    limits, cost = Limits(lifetime=limit_to_micro(kind(budget))), to_micro(kind(epsilon))
    spent = 0
    for _ in range(accepted):
        check_charge(limits, 0, spent, cost)
        spent += cost
    with pytest.raises(BudgetExceededError) as caught:
        check_charge(limits, 0, spent, cost)
    assert caught.value.reason is RefusalReason.BUDGET_LIFETIME
    assert format_micro(caught.value.left_micro_epsilon) == left


# case C05
@pytest.mark.parametrize(
    "amount",
    ["nan", "inf", "-inf", "-1", "0", "1e-320", "1e400", "", "1_000", "0x1", " 1", "1 ", "+1", "1.", ".5", "٣", "1e999",
     "0.0000009", float("nan"), float("inf"), -0.5, 0, 10**30, True, None, [], Decimal("sNaN"), b"1",
     Decimal("1e-999999"), Decimal("1e999999")],
)  # fmt: skip
def test_meaningless_costs_are_refused(amount: object) -> None:
    with pytest.raises(ConfigurationError):
        to_micro(amount)  # type: ignore[arg-type]


def test_an_int_too_long_to_print_is_refused() -> None:  # case C05
    for amount in (10**5000, -(10**5000)):
        with pytest.raises(ConfigurationError):
            to_micro(amount)


# case C05
@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "1e400", "1e-320", "-0.0000001", True, None])
def test_meaningless_limits_are_refused(amount: object) -> None:
    with pytest.raises(ConfigurationError):
        limit_to_micro(amount)  # type: ignore[arg-type]


def test_zero_means_nothing_may_be_sent() -> None:  # case C05
    for limits, reason in (
        (Limits(report=0), RefusalReason.BUDGET_REPORT),
        (Limits(rolling_24h=0), RefusalReason.BUDGET_24H),
        (Limits(lifetime=limit_to_micro(0)), RefusalReason.BUDGET_LIFETIME),
    ):
        with pytest.raises(BudgetExceededError) as caught:
            check_charge(limits, 0, 0, 1)
        assert caught.value.reason is reason
    check_charge(Limits(), 10**18, 10**18, 10**6)  # no limit at all is said with None only


@pytest.mark.parametrize("cost", [0, -1, 0.5, True, float("nan")])
def test_a_full_ledger_takes_no_tiny_charge(cost: object) -> None:  # case C05
    with pytest.raises(ConfigurationError):
        check_charge(Limits(lifetime=10), 0, 10, cost)  # type: ignore[arg-type]


def test_bad_limits_and_damaged_ledgers() -> None:
    for bad in (-1, 1.5, True, float("inf")):
        with pytest.raises(ConfigurationError):
            Limits(lifetime=bad)  # type: ignore[arg-type]
    for spent in ((-1, 0), (0, -1)):
        with pytest.raises(StorageError):
            check_charge(Limits(lifetime=10), *spent, 1)


def test_first_broken_limit_is_named_and_a_full_fit_passes() -> None:
    limits = Limits(report=5, rolling_24h=10, lifetime=20)
    check_charge(limits, 5, 15, 5)
    for spent, cost, reason, left in (
        ((0, 0), 6, RefusalReason.BUDGET_REPORT, 5),
        ((6, 0), 5, RefusalReason.BUDGET_24H, 4),
        ((5, 16), 5, RefusalReason.BUDGET_LIFETIME, 4),
        ((0, 99), 5, RefusalReason.BUDGET_LIFETIME, 0),
    ):
        with pytest.raises(BudgetExceededError) as caught:
            check_charge(limits, *spent, cost)
        assert (caught.value.reason, caught.value.left_micro_epsilon) == (reason, left)


def test_a_host_lowers_and_never_raises() -> None:
    plan = Limits(report=None, rolling_24h=10, lifetime=20)
    assert plan.lowered_to(Limits(report=3, rolling_24h=99, lifetime=0)) == Limits(3, 10, 0)
    assert plan.lowered_to(Limits()) == plan


@given(st.decimals(min_value=Decimal("0.000001"), max_value=10**9, allow_nan=False, places=9))
def test_conversion_rounds_against_the_sender(amount: Decimal) -> None:
    exact = amount * 10**6
    assert 0 <= to_micro(amount) - exact < 1
    assert 0 <= exact - limit_to_micro(amount) < 1


@given(st.integers(0, 10**15))
def test_printed_amounts_are_plain_and_come_back(micro: int) -> None:
    text = format_micro(micro)
    assert set(text) <= set("0123456789.")
    assert limit_to_micro(text) == micro
    if micro:
        assert to_micro(text) == micro
    assert "." not in text or not text.endswith(("0", "."))


def test_printed_amounts() -> None:  # case C04
    amounts = (0, 1, 333_333, 1_000_000, 365_000_000, -500_000)
    assert [format_micro(a) for a in amounts] == ["0", "0.000001", "0.333333", "1", "365", "-0.5"]


def test_window_is_half_open() -> None:
    charges = [(1000.0, 1), (1000.5, 2)]
    assert spent_in_window(charges, 1000.0 + WINDOW_S - 0.25) == 3
    assert spent_in_window(charges, 1000.0 + WINDOW_S) == 2
    assert spent_in_window(charges, 1000.5 + WINDOW_S) == 0
    assert spent_in_window([], 5.0) == 0


def test_a_clock_set_back_never_renews() -> None:
    charges = [(1_000_000.0, 7)]
    for now in (1_000_000.0, 999_999.0, 1_000_000.0 - 10 * WINDOW_S, 0.0):
        assert spent_in_window(charges, now) == 7
    # nor does it bring back what had left the window when the last charge was booked
    assert spent_in_window([(0.0, 5), (WINDOW_S + 10.0, 7)], 0.0) == 7
    assert charge_time(0.0, 1_000_000.0) == 1_000_000.0
    assert charge_time(1_000_001.0, 1_000_000.0) == 1_000_001.0
    assert charge_time(3.0, None) == 3.0


@given(
    st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 100)), min_size=1, max_size=12),
    st.lists(st.integers(-400_000, 400_000), min_size=1, max_size=12),
)
def test_whatever_the_clock_does_no_true_window_overspends(charges: list[tuple[int, int]], jumps: list[int]) -> None:
    """Charges booked by the rules under a clock that jumps back never exceed the limit in any 24 h of true time."""
    limit, ledger, true_times = 100, [], []
    now = 0
    for (wait, micro), jump in zip(charges, jumps * 12, strict=False):
        now += wait
        shown = now + min(jump, 0)  # a clock set back, never forward: nobody can see that one from inside
        at = charge_time(shown, max((a for a, _ in ledger), default=None))
        if spent_in_window(ledger, at) + micro <= limit:
            ledger.append((at, micro))
            true_times.append((now, micro))
    for end, _ in ledger:
        assert sum(m for at, m in ledger if end - WINDOW_S < at <= end) <= limit
    # booked times never lie after the true ones, so nothing can leave the booked window before its time
    assert all(at <= true for (at, _), (true, _) in zip(ledger, true_times, strict=True))
