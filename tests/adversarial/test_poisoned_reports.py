"""False reports: counted once a device, held to what a sum can be, and said how far one of them reaches.

A report that has the form of one cannot be told from an honest one: that is the promise to its owner. Nor can, under a
mask, something that is no report, as long as the sum is one that could be. What is left is that a device has one, that
nothing moves a sum out of what honest reports could give, and that the reader is told how far either kind reaches.
"""

from __future__ import annotations

import asyncio
import json
import math
from array import array
from collections import Counter
from fractions import Fraction
from pathlib import Path

import grpc
import numpy as np
import pytest

from client_sdk.errors import AbortReason, RefusalReason, RoundAbortedError, ValueRefusedError
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.plan import parse_plan
from client_sdk.report import PeriodState
from client_sdk.secagg.messages import ComeBack, Receipt, RoundAborted
from collector.cohorts import Waiting, _most_suspicious_first
from collector.release import check_plausible
from collector.service import rounds
from collector.service.cli import main
from tests.adversarial.weakening import Other, switch_off
from tests.fleet import SeededEntropy
from tests.integration.participants import Device, collector, until

TEN = parse_plan(
    """
[plan]
name = "ten"
version = 1
period = "1d"
[cohort]
min_size = 3
target_size = 5
max_wait = "10s"
corrupt_fraction = 0
dropout_fraction = 0
[budget]
lifetime = 100
[metrics.category]
kind = "categorical"
categories = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
epsilon = 1
[metrics.share]
kind = "numeric"
lower = 0
upper = 1
epsilon = 1
"""
)
CATEGORY, SHARE = (metric.mechanism for metric in TEN.metrics.values())


def report(category: int, share: int = 500) -> list[int]:
    return [*(int(cell == category) for cell in range(10)), share]


# case H05
def test_one_false_report_among_a_thousand() -> None:
    """Nobody is in category 0. One device says it is; two hundred false reports would have given about 1,248."""
    honest = CATEGORY.total_of(CATEGORY.perturb_codes(np.arange(1000) % 9 + 1, SeededEntropy(b"honest")))
    counted = CATEGORY.estimate([int(n) + 200 * (i == 0) for i, n in enumerate(honest)], 1200).values[0]
    once = CATEGORY.estimate([int(n) + (i == 0) for i, n in enumerate(honest)], 1001).values[0]
    none = CATEGORY.estimate([int(n) for n in honest], 1000).values[0]
    assert -265 <= once <= 278
    assert once - none == pytest.approx(6.238, abs=0.01)
    assert counted - none == pytest.approx(1248, abs=1)


# case H05
async def test_two_hundred_reports_of_one_device_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the report says how far one of them reaches."""
    async with collector(tmp_path, TEN) as running:
        honest = [Device(report(i), TEN) for i in (3, 4, 5, 6)]
        false = Device(report(0), TEN)
        first = asyncio.create_task(false.upload(running.address))
        await until(lambda: running.service.monitor.snapshot().get("joins", 0) == 1)
        again = [Device(report(0), TEN, identity=false.identity) for _ in range(199)]
        ended = []
        for start in range(0, 199, 20):
            ended += await running.upload(*again[start : start + 20])
        assert Counter(one.code for one in ended) <= Counter(
            {grpc.StatusCode.ALREADY_EXISTS: 199, grpc.StatusCode.RESOURCE_EXHAUSTED: 199}
        )
        assert len(ended) == 199
        assert all(one.joined is None for one in ended)
        await running.upload(*honest)
        assert isinstance((await first).outcome, Receipt)
        ((totals, contributors),) = running.sums()
        assert (totals[0], sum(totals[:10]), contributors) == (1, 5, 5)
    assert main(["report", "--db", f"sqlite:///{tmp_path / 'collector.db'}", "--format", "json"]) == 0
    category, share = json.loads(capsys.readouterr().out)["metrics"]
    assert category["one_false_report"] == pytest.approx(6.238, abs=0.01)
    assert share["one_false_report"] == pytest.approx(46 / 5)
    assert main(["report", "--db", f"sqlite:///{tmp_path / 'collector.db'}"]) == 0
    printed = capsys.readouterr().out
    assert "One well-formed false report among them moves a count by at most 6.238;" in printed
    assert "One well-formed false report among them moves a mean by at most 9.2;" in printed


# case H05
def test_a_number_without_bounds_is_held_to_the_declared_ones() -> None:
    """1e300 is clipped before the noise, and what leaves the device lies in the one output range there is."""
    assert isinstance(SHARE, Laplace)
    entropy = SeededEntropy(b"numbers")
    reports = [SHARE.perturb(1e300, entropy)[0] for _ in range(200)]
    assert all(-SHARE.tail <= value <= SHARE.bound for value in reports)
    assert abs(np.mean(reports) / SHARE.levels - 1) < 0.5, "it counts as 1, not as what it said"
    others = 999 * 500
    before, after = SHARE.estimate([others], 999), SHARE.estimate([others + SHARE.bound], 1000)
    bound = Fraction(SHARE.bound, SHARE.levels)
    assert abs(after.values[0] - before.values[0]) <= bound / 1000


# case H05
@pytest.mark.parametrize("value", ["10", "-1", math.nan, -1, 10, ("1", "2")], ids=str)
def test_a_malformed_reading_is_refused_on_the_device(value: object) -> None:
    state = PeriodState(TEN)
    metric = "share" if isinstance(value, float) else "category"
    with pytest.raises(ValueRefusedError) as caught:
        state.add(metric, value, SeededEntropy(b""))  # type: ignore[arg-type]
    assert caught.value.reason in {
        RefusalReason.UNKNOWN_CATEGORY,
        RefusalReason.WRONG_TYPE,
        RefusalReason.NOT_FINITE,
    }


MALFORMED = {
    "two categories": [1, 1, *[0] * 8, 500],
    "a category ten times": [10, *[0] * 9, 500],
    "less than none": [-1, 1, 1, *[0] * 7, 500],
    "nothing": [0] * 10 + [500],
    "a number out of its range": [1, *[0] * 9, 1_000_000],
}


# case H05
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_report_ends_in_no_sum(name: str) -> None:
    """Nobody sees a single report, so nobody can refuse it: the sum that it is in is not released."""
    vectors = [report(i) for i in (3, 4, 5, 6)]
    totals = [sum(column) for column in zip(*vectors, MALFORMED[name], strict=True)]
    with pytest.raises(RoundAbortedError) as caught:
        check_plausible(TEN, totals, 5)
    assert caught.value.reason is AbortReason.IMPLAUSIBLE_SUM


TWO = parse_plan(TEN.text.replace('"ten"', '"two"').replace('"2", "3", "4", "5", "6", "7", "8", "9"', "")
                 .replace('"0", "1", ]', '"0", "1"]').replace("target_size = 5", "target_size = 12"))  # fmt: skip


# case H05
async def test_a_lie_that_passes_the_check_stays_within_what_the_report_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve devices, six in each category. One adds +5 and -5 to its cells, and a thousandfold to its number."""
    category, share = TWO.metrics["category"].mechanism, TWO.metrics["share"].mechanism
    assert isinstance(share, Laplace)
    monkeypatch.setattr("client_sdk.secagg.participant._checked_vector", lambda vector, rules: array("q", vector))
    honest = [[int(i % 2 == 0), int(i % 2 == 1), 500] for i in range(11)]
    true = [sum(column) for column in zip(*honest, strict=True)]
    lie = [1 + 5, -5, 12 * share.bound - true[2]]
    async with collector(tmp_path, TWO) as running:
        ended = await running.upload(*(Device(vector, TWO) for vector in (*honest, lie)))
        assert all(isinstance(one.outcome, Receipt) for one in ended)
        ((totals, contributors),) = running.sums()
    assert (totals[:2], contributors) == ([12, 0], 12)
    moved = [
        abs((mechanism.estimate(after, 12).values[0] or 0.0) - (mechanism.estimate(before, 11).values[0] or 0.0))
        for mechanism, before, after in ((category, true[:2], totals[:2]), (share, true[2:], totals[2:]))
    ]
    assert main(["report", "--db", f"sqlite:///{tmp_path / 'collector.db'}", "--format", "json"]) == 0
    for metric, far in zip(json.loads(capsys.readouterr().out)["metrics"], moved, strict=True):
        assert metric["one_false_report"] < far <= metric["one_broken_device"]
    assert main(["report", "--db", f"sqlite:///{tmp_path / 'collector.db'}"]) == 0
    printed = capsys.readouterr().out
    assert "can move it, in one round, by anything up to 25.97 " in printed
    assert "can move it, in one round, by anything up to 91 " in printed


# case H05
@pytest.mark.parametrize("weakened", [True, False])
async def test_junk_vectors_give_no_wrong_number(
    weakened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A masked input of random elements: a number nobody reported, where sums are not checked."""
    if weakened:
        switch_off(monkeypatch, Other("rounds.check_plausible", "sums are plausible", lambda plan, totals, n: None))
        assert rounds.check_plausible(TEN, [], 0) is None
    async with collector(tmp_path, TEN) as running:
        devices = [Device(report(i), TEN) for i in range(5)]

        def junk(step: str, message: object) -> object:
            if step != "masked_input":
                return message
            return type(message)(offset=message.offset, data=SeededEntropy(b"junk")(len(message.data)))  # type: ignore[attr-defined]

        ended = await asyncio.gather(
            devices[0].upload(running.address, on_message=junk),
            *(device.upload(running.address) for device in devices[1:]),
        )
        if weakened:
            ((totals, _),) = running.sums()
            assert sum(totals[:10]) != 5
        else:
            assert running.sums() == []
            assert {one.outcome.reason for one in ended if isinstance(one.outcome, RoundAborted)} == {"implausible_sum"}
            assert running.service.monitor.snapshot()["aborts.implausible_sum"] == 1


async def test_who_spoils_every_sum_is_left_alone_in_the_end(tmp_path: Path) -> None:
    """Nobody can say who it was, and all five are let in again; but not all five together."""
    async with collector(tmp_path, TEN) as running:
        # The one that is left first; any other would be left in one of the next rounds.
        devices = [Device(report(i), TEN) for i in range(5)]
        devices.sort(key=lambda d: _most_suspicious_first(Waiting(d.identity.device_id, 0.0, True, 0, 1)))

        def junk(step: str, message: object) -> object:
            if step != "masked_input":
                return message
            return type(message)(offset=message.offset, data=SeededEntropy(b"junk")(len(message.data)))  # type: ignore[attr-defined]

        for outcomes in ({RoundAborted}, {Receipt}):
            ended = await asyncio.gather(
                devices[0].upload(running.address, on_message=junk),
                *(device.upload(running.address) for device in devices[1:]),
            )
            assert {type(one.outcome) for one in ended[1:]} == outcomes, ended[1].details
            await until(lambda: not running.service._lobby._rounds)  # they hold their seats until it is on record
            for device in devices:
                device.resent = True
        assert isinstance(ended[0].outcome, ComeBack)
        suspicion = running.service._lobby.suspects.suspicion
        pool = (TEN.hash, devices[0].period_start)
        assert [suspicion(pool, device.identity.device_id) for device in devices] == [0, 1, 1, 1, 1]
        ((_, contributors),) = running.sums()
        assert contributors == 4
