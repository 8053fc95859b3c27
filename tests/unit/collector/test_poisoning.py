"""Bands: whichever reports are left out of a sum, the number lies in its band; versions, quantiles, vectors, nobody."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from collector.combination import Combined, Pool, combine
from collector.poisoning import Band, bands
from tests.entropy import seeded
from tests.unit.collector.plans import make_plan, plan_of, pool


def inside(found: list[Band], combined: Combined) -> None:
    for band, value in zip(found, combined.estimate.values, strict=True):
        assert band is not None
        assert value is not None
        slack = 1e-9 * max(1.0, *map(abs, band))
        assert band[0] - slack <= value <= band[1] + slack


def left_out(metric: Any, reports: list[list[int]], devices: int, rng: random.Random) -> tuple[Pool, Pool]:
    """(all of them, all but some): some at random, or those that hold the most or the least in some cell."""
    order = list(range(len(reports)))
    rng.shuffle(order)
    if rng.random() < 0.7:
        cell, sign = rng.randrange(len(reports[0])), rng.choice((1, -1))
        order.sort(key=lambda i: sign * reports[i][cell])
    whole, rest = Pool(metric), Pool(metric)
    whole.add(np.sum(reports, axis=0).tolist(), len(reports))
    rest.add(np.sum([reports[i] for i in order[devices:]], axis=0).tolist(), len(reports) - devices)
    return whole, rest


METRICS = {
    "quantiles": (
        'kind = "quantiles"\nlower = 0\nupper = 10\nquantiles = [0.25, 0.5, 0.9]\n'
        'mechanism = "optimized_unary"\nepsilon = 2',
        "number",
    ),
    "vector": ('kind = "vector"\ndimension = 3\nclip = 2\nnorm = "l1"\nepsilon = 2', "vector"),
    "histogram": ('kind = "histogram"\nedges = [0, 2, 5, 10]\nepsilon = 2', "number"),
    "other": ('kind = "categorical"\ncategories = ["a", "b"]\nother = "o"\noptional = true\nepsilon = 2', "label"),
}


@pytest.mark.parametrize("name", METRICS)
def test_whoever_is_left_out_the_number_is_in_the_band(name: str) -> None:
    text, kind = METRICS[name]
    metric = plan_of(f"[metrics.m]\n{text}").metrics["m"]
    rng, entropy = random.Random(name), seeded(name)
    values: dict[str, Any] = {
        "number": lambda i: i % 9,
        "vector": lambda i: [i % 2, -0.5, 0.3],
        "label": lambda i: ("a", "b", "zzz", None)[i % 4],
    }
    reports = [list(metric.mechanism.perturb(values[kind](i), entropy)) for i in range(600)]
    widths = []
    for devices in (1, 6, 30):
        for _ in range(8):
            whole, rest = left_out(metric, reports, devices, rng)
            found = bands([whole], combine([whole]), devices)
            inside(found, combine([rest]))
        widths.append(sum(high - low for low, high in (band for band in found if band is not None)))
    assert widths[0] < widths[1] < widths[2]


def test_versions_are_bounded_together() -> None:
    """The false ones may all be in either version."""
    v1, v2 = make_plan(1, "1.0", ("x", "y")), make_plan(2, "3.0", ("x", "z"))
    for lies in ((9, 0), (0, 9), (4, 5)):
        honest = [pool(v1, "colour", [300, 200], 500), pool(v2, "colour", [100, 400], 500)]
        shown = [
            pool(v1, "colour", [300 + lies[0], 200], 500 + lies[0]),
            pool(v2, "colour", [100 + lies[1], 400], 500 + lies[1]),
        ]
        inside(bands(shown, combine(shown), 9), combine(honest))
        honest = [pool(v1, "seconds", [500 * 400], 400), pool(v2, "seconds", [500 * 400], 400)]
        far = [plan.metrics["seconds"].mechanism.bound for plan in (v1, v2)]
        shown = [
            pool(plan, "seconds", [500 * 400 + many * end], 400 + many)
            for plan, many, end in zip((v1, v2), lies, far, strict=True)
        ]
        inside(bands(shown, combine(shown), 9), combine(honest))


def test_none_where_there_is_none() -> None:
    plan = make_plan()
    empty = Pool(plan.metrics["colour"])
    assert bands([empty], combine([empty]), 0) == [None, None]
    alone = pool(plan, "seconds", [500], 1)
    assert bands([alone], combine([alone]), 1) == [None], "nobody is left"
    assert bands([alone], combine([alone]), 0) == [(0.0, 0.0)]
    smooth = plan_of(
        '[metrics.m]\nkind = "histogram"\nedges = [0, 2, 5]\nmechanism = "square_wave"\nepsilon = 1'
    ).metrics["m"]
    made = Pool(smooth)
    made.add([10] * smooth.mechanism.length, 10 * smooth.mechanism.length)
    assert set(bands([made], combine([made]), 3)) == {None}
