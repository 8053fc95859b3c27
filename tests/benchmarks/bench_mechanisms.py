"""Figures of the samplers and mechanisms: CPU time, as ratios within one run. Asserts nothing about time.

python -m pytest tests/benchmarks/bench_mechanisms.py -m bench -n0 -s
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.sampling import discrete_laplace
from client_sdk.sampling_vectorised import Keystream, discrete_laplace_many

pytestmark = pytest.mark.bench
N = 1 << 21


def best(*runs: Callable[[], object], turns: int = 9) -> list[float]:
    """Least CPU seconds of each run, taken in turns so that a busy machine hits them alike."""
    seconds = [float("inf")] * len(runs)
    for _ in range(turns):
        for i, run in enumerate(runs):
            start = time.process_time()
            run()
            seconds[i] = min(seconds[i], time.process_time() - start)
    return seconds


def test_discrete_laplace() -> None:
    stream, generator = Keystream(os.urandom), np.random.default_rng()
    scales = [Fraction(1), Fraction(1000), Fraction(1 << 20)]
    mech = Laplace(Decimal(0), Decimal(5000), Decimal(1))
    values = generator.uniform(0, 5000, N)
    runs: list[Callable[[], object]] = [lambda: generator.laplace(scale=1000.0, size=N)]
    runs += [lambda scale=scale: discrete_laplace_many(scale, N, stream) for scale in scales]
    runs += [lambda: mech.perturb_many(values, os.urandom)]
    numpy_s, *ours = best(*runs)
    print(f"\nnumpy Generator.laplace, scale 1000: {N / numpy_s / 1e6:.0f} M/s")
    for scale, seconds in zip(scales, ours[:3], strict=True):
        print(f"exact discrete Laplace, scale {scale}: {N / seconds / 1e6:.0f} M/s, {numpy_s / seconds:.2f} x numpy")
    print(f"Laplace.perturb_many: {N / ours[3] / 1e6:.0f} M/s, {numpy_s / ours[3]:.2f} x numpy")


@pytest.mark.parametrize("k", [2, 16, 128])
def test_randomized_response(k: int) -> None:
    stream = Keystream(os.urandom)
    mech = RandomizedResponse(tuple(f"c{i}" for i in range(k)), Decimal(1))
    codes = np.random.default_rng().integers(0, k, N)
    block, bytes_each = 1 << 14, 10  # 8 for the keep comparison, 2 for the lie
    reports_s, keystream_s = best(
        lambda: mech.perturb_codes(codes, os.urandom),
        lambda: [stream(block * bytes_each) for _ in range(N // block)],
    )
    print(
        f"\nk-RR, k={k}, codes to reported places: {N / reports_s / 1e6:.0f} M reports/s, "
        f"{keystream_s / reports_s:.2f} x the keystream bound ({N / keystream_s / 1e6:.0f} M/s)"
    )


def test_one_at_a_time() -> None:
    n = 3000
    mech = Laplace(Decimal(0), Decimal(5000), Decimal(1))
    categories = RandomizedResponse(("wifi", "cellular", "offline"), Decimal(1), "other")
    figures = best(
        lambda: [discrete_laplace(Fraction(1000), os.urandom) for _ in range(n)],
        lambda: [mech.perturb(812.5, os.urandom) for _ in range(n)],
        lambda: [categories.perturb("wifi", os.urandom) for _ in range(n)],
        turns=3,
    )
    names = ["discrete_laplace, scale 1000", "Laplace.perturb", "RandomizedResponse.perturb"]
    for name, seconds in zip(names, figures, strict=True):
        print(f"\n{name}: {seconds / n * 1e6:.1f} us", end="")
    print()
