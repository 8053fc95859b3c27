"""From readings to a report: on_device, defaults, refusals, clipping, the spool's bytes."""

from __future__ import annotations

import json
import math
import os
import struct
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import ConfigurationError, PlanError, RefusalReason, StorageError, ValueRefusedError
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import (
    PeriodState,
    clipped_values,
    make_report,
    pack_vector,
    report_digest,
    unpack_vector,
)

SECRET = 813.4375  # a reading that must not show anywhere

HEAD = """
[plan]
name = "app-health"
version = 1
period = "1d"
[cohort]
min_size = 3
target_size = 5
[budget]
lifetime = 365
"""


def number_plan(on_device: str = "last", extra: str = "", *, lower: str = "0", upper: str = "10") -> Plan:
    return parse_plan(
        f'{HEAD}[metrics.x]\nkind = "numeric"\nlower = {lower}\nupper = {upper}\nepsilon = 1\n'
        f'on_device = "{on_device}"\n{extra}\n'
    )


def category_plan(on_device: str = "last", extra: str = 'other = "rest"') -> Plan:
    return parse_plan(
        f'{HEAD}[metrics.x]\nkind = "categorical"\ncategories = ["a", "b", "c"]\nepsilon = 1\n'
        f'on_device = "{on_device}"\n{extra}\n'
    )


def no_entropy(size: int) -> bytes:
    raise AssertionError("entropy was drawn")


def counter_entropy(size: int) -> bytes:
    """A fixed stream: what is drawn does not matter to these tests."""
    return bytes((37 * i + 11) % 256 for i in range(size))


def folded(plan: Plan, readings: list[object]) -> object:
    state = PeriodState(plan)
    for reading in readings:
        state.add("x", reading, no_entropy)  # type: ignore[arg-type]
    return state.values()["x"]


@pytest.mark.parametrize(
    ("on_device", "readings", "value"),
    [
        ("last", [3, 9, 4], 4.0),
        ("first", [3, 9, 4], 3.0),
        ("mean", [3, 9, 6], 6.0),
        ("sum", [3, 9, -4], 8.0),
        ("max", [-3, -9], -3.0),
        ("max", [3, 9, 4], 9.0),
        ("count", [3, -9, 1e300], 3.0),
        ("last", [], 5.0),
        ("first", [], 5.0),
        ("mean", [], 5.0),
        ("max", [], 5.0),
        ("sample", [], 5.0),
        ("sum", [], 0.0),
        ("count", [], 0.0),
        ("sum", [1e308, 1e308, -1.0], math.nextafter(math.inf, 0)),
        ("sum", [-1e308, -1e308], -math.nextafter(math.inf, 0)),
        ("mean", [1e308, 1e308], math.nextafter(math.inf, 0) / 2),  # the total is cut where floats end
    ],
)
def test_numbers_become_one_value(on_device: str, readings: list[object], value: float) -> None:
    found = folded(number_plan(on_device), readings)
    assert found == value
    assert type(found) is float


@pytest.mark.parametrize(
    ("on_device", "readings", "value"),
    [
        ("last", ["a", "b"], "b"),
        ("first", ["b", "a"], "b"),
        ("last", ["a", "unheard of"], "rest"),
        ("last", ["rest"], "rest"),
        ("last", [], "rest"),
        ("sample", ["c"], "c"),
    ],
)
def test_categories_become_one_value(on_device: str, readings: list[object], value: str) -> None:
    assert folded(category_plan(on_device), readings) == value


def test_defaults_of_the_plan() -> None:
    assert folded(number_plan(extra="default = 7.5"), []) == 7.5
    assert folded(category_plan(extra='default = "b"'), []) == "b"
    assert folded(category_plan(extra=""), []) == "a"


def test_sample_keeps_each_reading_equally_often_exactly() -> None:
    """All draws enumerated: with four readings each must be kept in exactly a quarter of the cases."""
    plan, kept = number_plan("sample"), Counter[object]()
    weight_total = Fraction(0)
    for draws in product(range(2), range(4), range(4)):  # candidates for n = 2 (1 bit), 3 and 4 (2 bits)
        if draws[1] == 3:
            continue  # the sampler rejects 3 of 0..3 for n = 3 and draws again: conditional on the rest
        stream = iter((draws[0] << 7, draws[1] << 6, draws[2] << 6))
        state = PeriodState(plan)
        for reading in (1, 2, 3, 4):
            state.add("x", reading, lambda size, stream=stream: bytes([next(stream)]) * size)
        weight = Fraction(1, 2 * 3 * 4)
        kept[state.values()["x"]] += weight  # type: ignore[assignment]
        weight_total += weight
    assert weight_total == 1
    assert set(kept.values()) == {Fraction(1, 4)}
    assert set(kept) == {1.0, 2.0, 3.0, 4.0}


# case A04
@pytest.mark.parametrize("on_device", ["last", "first", "sample", "mean", "sum", "max", "count"])
@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (math.nan, RefusalReason.NOT_FINITE),
        (math.inf, RefusalReason.NOT_FINITE),
        (-math.inf, RefusalReason.NOT_FINITE),
        (np.float64("nan"), RefusalReason.NOT_FINITE),
        (np.float32("inf"), RefusalReason.NOT_FINITE),
        (Decimal("NaN"), RefusalReason.NOT_FINITE),
        (Decimal("sNaN"), RefusalReason.NOT_FINITE),
        (Decimal("-Infinity"), RefusalReason.NOT_FINITE),
        (True, RefusalReason.WRONG_TYPE),
        ("3", RefusalReason.WRONG_TYPE),
        (None, RefusalReason.WRONG_TYPE),
        (b"3", RefusalReason.WRONG_TYPE),
        ([3], RefusalReason.WRONG_TYPE),
        (3 + 0j, RefusalReason.WRONG_TYPE),
        (np.array([1.0, 2.0]), RefusalReason.WRONG_TYPE),
    ],
)
def test_refused_numbers_change_nothing(on_device: str, reading: object, reason: RefusalReason) -> None:
    state = PeriodState(number_plan(on_device))
    for before in ([], [4.0]):
        for good in before:
            state.add("x", good, counter_entropy)
        saved = state.dump()
        with pytest.raises(ValueRefusedError) as caught:
            state.add("x", reading, no_entropy)  # type: ignore[arg-type]
        assert (caught.value.metric, caught.value.reason) == ("x", reason)
        assert state.dump() == saved


@pytest.mark.parametrize(
    ("reading", "value"),
    [
        (10**400, math.nextafter(math.inf, 0)),
        (-(10**400), -math.nextafter(math.inf, 0)),
        (Fraction(-(10**400)), -math.nextafter(math.inf, 0)),
        (Decimal("1e9999"), math.nextafter(math.inf, 0)),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (np.float64(2.5), 2.5),
        (np.float32(2.5), 2.5),
        (np.int64(7), 7.0),
    ],
)
def test_other_numbers_are_numbers(reading: object, value: float) -> None:
    assert folded(number_plan(), [reading]) == value


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (1, RefusalReason.WRONG_TYPE),
        (None, RefusalReason.WRONG_TYPE),
        (["a"], RefusalReason.WRONG_TYPE),
        (b"a", RefusalReason.WRONG_TYPE),
        ("A", RefusalReason.UNKNOWN_CATEGORY),
        ("", RefusalReason.UNKNOWN_CATEGORY),
    ],
)
def test_refused_categories(reading: object, reason: RefusalReason) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        folded(category_plan(extra=""), [reading])
    assert caught.value.reason is reason


@pytest.mark.parametrize("name", ["y", "", 3, None, ["x"], {}])
def test_unknown_metrics(name: object) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        PeriodState(number_plan()).add(name, 3, no_entropy)  # type: ignore[arg-type]
    assert caught.value.reason is RefusalReason.UNKNOWN_METRIC


# case H02
def test_nothing_shows_a_reading() -> None:
    plan = number_plan("sum")
    state = PeriodState(plan)
    state.add("x", SECRET, no_entropy)
    texts = [repr(state), str(state), repr(state.adders), repr(state.adders["x"]), repr(state.adders["x"].__self__)]
    for call in (
        lambda: state.add("x", f"{SECRET}", no_entropy),
        lambda: state.add(f"{SECRET}", "x", no_entropy),  # swapped arguments
        lambda: PeriodState(category_plan(extra="")).add("x", f"{SECRET}", no_entropy),
        lambda: clipped_values(plan, {"x": f"{SECRET}"}),
        lambda: PeriodState.load(number_plan("max"), state.dump()),
        lambda: PeriodState.load(plan, state.dump()[:-1]),  # a decoder's exception holds the whole document
        lambda: PeriodState.load(plan, state.dump().replace(b"[1, ", b"[-1, ")),
    ):
        with pytest.raises((ValueRefusedError, StorageError)) as caught:
            call()
        texts.append(str(caught.value))
        texts.append(repr(caught.value))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None, "what is suppressed is still there for whoever looks"
    assert not any(str(SECRET) in text for text in texts)


# case A04: 1e300 has the law of 10, -3 that of 0
@pytest.mark.parametrize(("reading", "counts_as"), [(1e300, 10.0), (-3, 0.0), (10**400, 10.0), (4, 4.0)])
def test_clipping(reading: float, counts_as: float) -> None:
    plan = number_plan()
    state = PeriodState(plan)
    state.add("x", reading, no_entropy)
    assert clipped_values(plan, state.values()) == {"x": counts_as}
    other = PeriodState(plan)
    other.add("x", counts_as, no_entropy)
    for seed in range(40):
        assert make_report(plan, state, stream(seed)) == make_report(plan, other, stream(seed))


def stream(seed: int) -> Callable[[int], bytes]:
    """A reproducible stream for comparing two reports draw by draw."""
    rng = np.random.default_rng(seed)
    return rng.bytes


def test_clipped_categories() -> None:
    assert clipped_values(category_plan(), {"x": "unheard of"}) == {"x": "rest"}
    with pytest.raises(ValueRefusedError):
        clipped_values(category_plan(extra=""), {"x": "unheard of"})


def test_zero_outside_the_range_is_clipped_too() -> None:
    plan = number_plan("sum", lower="1")
    assert clipped_values(plan, PeriodState(plan).values()) == {"x": 1.0}


MIXED = (
    HEAD
    + """
[metrics.b_number]
kind = "numeric"
lower = 0
upper = 1
epsilon = 1
[metrics.a_category]
kind = "categorical"
categories = ["x", "y", "z"]
epsilon = 1
"""
)


def test_report_has_the_plans_shape_with_and_without_readings() -> None:
    plan = parse_plan(MIXED)
    full = PeriodState(plan)
    full.add("b_number", 0.75, no_entropy)
    full.add("a_category", "y", no_entropy)
    for state in (PeriodState(plan), full):
        for seed in range(50):
            report = make_report(plan, state, stream(seed))
            assert len(report) == plan.length == 4
            assert all(type(element) is int for element in report)
            category, number = report[plan.slices["a_category"]], report[plan.slices["b_number"]]
            assert sorted(category) == [0, 0, 1]
            assert -plan.bound <= number[0] <= plan.bound


def test_a_report_is_made_under_its_own_plan() -> None:
    with pytest.raises(ConfigurationError):
        make_report(number_plan("max"), PeriodState(number_plan()), counter_entropy)


@pytest.mark.parametrize("on_device", ["last", "first", "sample", "mean", "sum", "max", "count"])
def test_a_saved_period_goes_on_as_if_nothing_had_happened(on_device: str) -> None:
    plan = number_plan(on_device)
    for readings in ([], [2.5], [2.5, 9.0, 1e308, 1e308]):
        state = PeriodState(plan)
        for reading in readings:
            state.add("x", reading, counter_entropy)
        loaded = PeriodState.load(plan, state.dump())
        assert loaded.values() == state.values()
        for both in (loaded, state):
            both.add("x", 3.0, counter_entropy)
        assert loaded.values() == state.values()


def test_a_saved_period_of_categories() -> None:
    plan = category_plan()
    state = PeriodState(plan)
    state.add("x", "c", no_entropy)
    assert PeriodState.load(plan, state.dump()).values() == {"x": "c"}


def test_damaged_or_foreign_saved_periods_are_refused() -> None:
    plan = number_plan()
    state = PeriodState(plan)
    state.add("x", 3.0, no_entropy)
    good = json.loads(state.dump())
    bad: list[object] = [None, [], {}, {"plan": good["plan"]}, good | {"plan": "00"}, good | {"folds": {}}]
    bad += [
        good | {"folds": {"x": fold}} for fold in (None, [1], [-1, 3.0], [1.5, 3.0], [1, "a"], [1, None], [True, 3.0])
    ]
    for document in bad:
        with pytest.raises(StorageError):
            PeriodState.load(plan, json.dumps(document).encode())
    for data in (b"", b"{", b"\xff", b'{"plan": NaN}', json.dumps(good).encode().replace(b"3.0", b"NaN")):
        with pytest.raises(StorageError):
            PeriodState.load(plan, data)


@pytest.mark.parametrize(
    ("bound", "width"), [(1, 1), (127, 1), (128, 2), (32_767, 2), (32_768, 4), (2**31, 8), (2**63 - 1, 8)]
)
def test_packed_width_follows_the_bound_alone(bound: int, width: int) -> None:
    vectors = ([0, 0, 0], [bound, -bound, 0], [1, -1, bound])
    packed = [pack_vector(vector, bound) for vector in vectors]
    assert {len(data) for data in packed} == {1 + 3 * width}
    assert [unpack_vector(data) for data in packed] == [list(vector) for vector in vectors]


def test_packing_is_little_endian_after_its_width() -> None:
    assert pack_vector([1, -2], 40_000) == b"\x04" + struct.pack("<ii", 1, -2)
    assert report_digest(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_packing_refuses_what_breaks_the_bound_without_showing_it() -> None:
    for vector, bound in (([101], 100), ([-101], 100), ([1], 2**63)):
        with pytest.raises(PlanError) as caught:
            pack_vector(vector, bound)
        assert "101" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x03\x00\x00\x00", b"\x02\x00", b"\x08" + b"\x00" * 12])
def test_damaged_packed_reports_are_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        unpack_vector(data)


@given(st.integers(1, 2**63 - 1).flatmap(lambda b: st.tuples(st.just(b), st.lists(st.integers(-b, b), max_size=50))))
def test_packing_round_trip(case: tuple[int, list[int]]) -> None:
    bound, vector = case
    assert unpack_vector(pack_vector(vector, bound)) == vector


FIRST_EXPIRED = 1_798_761_600  # 2027-01-01T00:00Z


@pytest.mark.parametrize("on_device", ["last", "first", "sample", "mean", "sum", "max", "count"])
def test_an_expired_metric_refuses_readings_and_is_reported_as_its_default(on_device: str) -> None:
    plan = number_plan(on_device, "expires = 2027-01-01")
    before = PeriodState(plan, FIRST_EXPIRED - 86_400)
    before.add("x", 9, counter_entropy)
    after = PeriodState(plan, FIRST_EXPIRED)
    with pytest.raises(ValueRefusedError) as refused:
        after.add("x", 9, no_entropy)
    assert refused.value.reason is RefusalReason.METRIC_EXPIRED
    assert after.values() == {"x": 0.0 if on_device in ("sum", "count") else 5.0}
    assert before.values() != after.values()
    # the same length and the same cost, for the period says it and no value does
    reports = [pack_vector(make_report(plan, state, os.urandom), plan.bound) for state in (before, after)]
    assert len(reports[0]) == len(reports[1])


def test_what_was_kept_of_a_period_says_nothing_of_a_metric_that_expires_with_it() -> None:
    plan = category_plan(extra='other = "rest"\nexpires = 2027-01-01')
    state = PeriodState(plan)
    state.add("x", "a", no_entropy)
    assert PeriodState.load(plan, state.dump(), FIRST_EXPIRED - 1).values() == {"x": "a"}
    assert PeriodState.load(plan, state.dump(), FIRST_EXPIRED).values() == {"x": "rest"}
