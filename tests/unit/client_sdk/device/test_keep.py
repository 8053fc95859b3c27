"""An open period on the disk: its size follows from the plan, never from what was read."""

from __future__ import annotations

import json
import os
import sys

import pytest

from client_sdk.device.keep import PAD_BYTES, open_state, padded_bytes, seal_state
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState
from tests.unit.client_sdk.device.helpers import plan_text

KEY = bytes(32)
HEAD = plan_text()[: plan_text().index("[metrics.cold_start_ms]")]
FACES = "\U0001f600" * 128
"""A label of 128 characters: 1,536 in JSON, which writes each as two escapes."""


def plan_of(*metrics: str) -> Plan:
    return parse_plan(HEAD + "".join(f"[metrics.metric_number_{i:02d}]\n{text}" for i, text in enumerate(metrics)))


LABELS = plan_of(f'kind = "categorical"\noptional = true\ncategories = ["a", "{FACES}"]\nepsilon = 1\n')
SHORT = plan_of('kind = "categorical"\noptional = true\ncategories = ["a"]\nother = "b"\nepsilon = 1\n')
NUMBERS = plan_of(*['kind = "numeric"\noptional = true\nlower = 0\nupper = 1\nepsilon = 1\n'] * 30)
BINS = plan_of('kind = "quantiles"\non_device = "sum"\nlower = 0\nupper = 1\nepsilon = 1\n')


def state_of(plan: Plan, reading: float | str | None) -> PeriodState:
    state = PeriodState(plan)
    if reading is not None:
        for name in plan.metrics:
            state.add(name, reading, os.urandom)
    return state


@pytest.mark.parametrize(
    ("plan", "readings"),
    [
        (LABELS, [None, "a", FACES]),
        (SHORT, [None, "a", "anything else"]),
        (NUMBERS, [None, 0.0, 0.1234567890123456, -sys.float_info.max, 5e-324, -2.2250738585072014e-308]),
        (BINS, [None, 0.0, 0.1234567890123456, -sys.float_info.max]),
    ],
    ids=["labels", "short labels", "numbers", "bins"],
)
def test_the_size_tells_nothing_of_the_readings(plan: Plan, readings: list[float | str | None]) -> None:
    for reading in readings:
        state = state_of(plan, reading)
        state._folds["metric_number_00"].seen *= 2**63  # as many as anybody can have recorded
        sealed = seal_state(KEY, state, 0, os.urandom)
        assert len(sealed) == 12 + 16 + padded_bytes(plan)
        opened = open_state(KEY, plan, 0, sealed)
        assert opened is not None
        assert json.loads(opened.dump()) == json.loads(state.dump())


def test_the_padding_is_no_longer_than_it_must_be() -> None:
    longest = len(state_of(LABELS, FACES).dump())
    assert longest > PAD_BYTES, "one that a multiple of PAD_BYTES alone gave away"
    assert padded_bytes(LABELS) == 2 * PAD_BYTES
    assert padded_bytes(SHORT) == PAD_BYTES
