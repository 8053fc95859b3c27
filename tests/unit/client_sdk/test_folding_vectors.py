"""Readings of vectors on the device: what is taken, what a period makes of them, what is kept, what is refused."""

from __future__ import annotations

import json
import math
import os
from array import array
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from client_sdk.device.keep import open_state, padded_bytes, seal_state
from client_sdk.errors import RefusalReason, StorageError, ValueRefusedError
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState, clipped_values, make_report, pack_vector, unpack_array, unpack_vector

DAY = 86_400


def plan(on_device: str = "last", dimension: int = 3, expires: str = "") -> Plan:
    return parse_plan(
        '[plan]\nname = "updates"\nversion = 1\nperiod = "1d"\n[cohort]\nmin_size = 50\ntarget_size = 200\n'
        "[budget]\nlifetime = 365\n"
        f'[metrics.v]\nkind = "vector"\ndimension = {dimension}\nclip = 5\nnorm = "l2"\nepsilon = 1\ndelta = 1e-6\n'
        f'on_device = "{on_device}"\n{expires}'
    )


def folded(on_device: str, *readings: Any) -> list[float]:
    state = PeriodState(plan(on_device))
    for reading in readings:
        state.add("v", reading, os.urandom)
    value: Any = state.values()["v"]
    return list(value)


def test_rules() -> None:
    readings = [[1.0, 2.0, 3.0], (3, 2, 1), np.array([5.0, 5.0, 5.0])]
    assert folded("last", *readings) == [5, 5, 5]
    assert folded("first", *readings) == [1, 2, 3]
    assert folded("mean", *readings) == [3, 3, 3]
    for rule in ("last", "first", "mean"):
        assert folded(rule) == [0, 0, 0], "without a reading it is all zeros"


@pytest.mark.parametrize(
    "reading",
    [[1, 2, 3], (1.0, 2.0, 3.0), array("d", [1, 2, 3]), array("i", [1, 2, 3]),
     np.array([1, 2, 3]), np.float32([1, 2, 3]),
     np.arange(1, 7)[::2] // 2 + np.array([1, 1, 1]), [Fraction(1), Decimal(2), np.float64(3)]],
)  # fmt: skip
def test_vectors_in_any_dress_are_copied(reading: Any) -> None:
    state = PeriodState(plan())
    state.add("v", reading, os.urandom)
    if not isinstance(reading, tuple):
        reading[0] = 9
    assert list(state.values()["v"]) == [1, 2, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (3.0, RefusalReason.WRONG_TYPE), ("abc", RefusalReason.WRONG_TYPE), (None, RefusalReason.WRONG_TYPE),
        (b"abc", RefusalReason.WRONG_TYPE), ({1.0, 2.0, 3.0}, RefusalReason.WRONG_TYPE),
        (iter([1.0, 2.0, 3.0]), RefusalReason.WRONG_TYPE), ([1.0, 2.0, "3"], RefusalReason.WRONG_TYPE),
        ([1.0, 2.0, True], RefusalReason.WRONG_TYPE), ([1.0, 2.0, [3.0]], RefusalReason.WRONG_TYPE),
        (np.ones((3, 1)), RefusalReason.WRONG_TYPE), (np.array(["a", "b", "c"]), RefusalReason.WRONG_TYPE),
        (np.array([True] * 3), RefusalReason.WRONG_TYPE), (np.float64(1), RefusalReason.WRONG_TYPE),
        ([1.0, 2.0], RefusalReason.WRONG_LENGTH), (np.ones(4), RefusalReason.WRONG_LENGTH),
        ([], RefusalReason.WRONG_LENGTH),
        ([1.0, math.nan, 2.0], RefusalReason.NOT_FINITE), (np.array([1, np.inf, 2]), RefusalReason.NOT_FINITE),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(reading: Any, reason: RefusalReason) -> None:
    state = PeriodState(plan("mean"))
    state.add("v", [1.0, 2.0, 3.0], os.urandom)
    with pytest.raises(ValueRefusedError) as refused:
        state.add("v", reading, os.urandom)
    assert refused.value.reason is reason
    assert list(state.values()["v"]) == [1, 2, 3]  # type: ignore[arg-type]


def test_a_mean_of_huge_vectors_stays_finite() -> None:
    huge = 1.7e308
    mean = folded("mean", [huge, -huge, 1.0], [huge, -huge, 1.0], [huge, -huge, 1.0])
    assert all(map(math.isfinite, mean))
    assert mean[2] == 1.0
    assert mean[0] == -mean[1] > 5e307


@pytest.mark.parametrize("rule", ["last", "first", "mean"])
def test_a_period_is_kept_and_goes_on(rule: str) -> None:
    made = plan(rule)
    state = PeriodState(made, 0)
    state.add("v", [1.0, -2.5, 1e300], os.urandom)
    dumped = state.dump()
    again = PeriodState.load(made, dumped, 0)
    again.add("v", [3.0, 0.5, 0.0], os.urandom)
    state.add("v", [3.0, 0.5, 0.0], os.urandom)
    assert again.values() == state.values()
    empty = PeriodState.load(made, PeriodState(made, 0).dump(), 0)
    assert list(empty.values()["v"]) == [0, 0, 0]  # type: ignore[arg-type]


def test_what_is_kept_is_of_one_size_whatever_was_read() -> None:
    made = plan("mean", dimension=100)
    key, sizes = bytes(32), set()
    for readings in ([], [[0.0] * 100], [[-1.2345678901234567e-300] * 100, [1e300] * 100]):
        state = PeriodState(made, 0)
        for reading in readings:
            state.add("v", reading, os.urandom)
        assert len(state.dump()) <= padded_bytes(made)
        sealed = seal_state(key, state, 0, os.urandom)
        sizes.add(len(sealed))
        opened = open_state(key, made, 0, sealed)
        assert opened is not None
        assert opened.values() == state.values()
    assert len(sizes) == 1


@pytest.mark.parametrize("held", [None, 3, "", "####", "AAAA", [1.0, 2.0, 3.0]])
def test_a_damaged_state_is_refused(held: object) -> None:
    made = plan()
    document = json.loads(PeriodState(made).dump())
    document["folds"]["v"] = [1, held]
    with pytest.raises(StorageError):
        PeriodState.load(made, json.dumps(document).encode())


def test_an_expired_vector_is_asked_no_more_and_reports_zeros() -> None:
    made = plan(expires="expires = 1970-01-02\n")
    state = PeriodState(made, DAY)
    with pytest.raises(ValueRefusedError) as refused:
        state.add("v", [1.0, 2.0, 3.0], os.urandom)
    assert refused.value.reason is RefusalReason.METRIC_EXPIRED
    assert list(state.values()["v"]) == [0, 0, 0]  # type: ignore[arg-type]
    assert PeriodState.load(made, state.dump(), DAY).values() == state.values()
    assert len(make_report(made, state, os.urandom)) == 3


def test_the_truth_that_estimates_aim_at_is_the_clipped_vector() -> None:
    made = plan()
    assert clipped_values(made, {"v": [3.0, 0.0, 4.0]})["v"] == (3.0, 0.0, 4.0)
    assert clipped_values(made, {"v": [6.0, 0.0, 8.0]})["v"] == pytest.approx((3.0, 0.0, 4.0))
    assert clipped_values(made, {"v": [1e308, 0.0, 0.0]})["v"] == pytest.approx((5.0, 0.0, 0.0))
    assert clipped_values(made, {"v": [0.0, 0.0, 0.0]})["v"] == (0.0, 0.0, 0.0)


def test_a_state_shows_no_reading() -> None:
    state = PeriodState(plan())
    state.add("v", [12345.0, 2.0, 3.0], os.urandom)
    assert "12345" not in repr(state)


def test_a_long_report_is_unpacked_in_bulk() -> None:
    made = plan(dimension=20_000)
    state = PeriodState(made)
    state.add("v", np.linspace(-1, 1, 20_000), os.urandom)
    report = make_report(made, state, os.urandom)
    packed = pack_vector(report, made.bound)
    assert list(unpack_array(packed)) == unpack_vector(packed) == report
    assert list(unpack_array(pack_vector([1, -2], 100))) == [1, -2]
    for damaged in (packed[:-1], b"\x03" + packed[1:]):
        with pytest.raises(StorageError):
            unpack_array(damaged)
