"""Adaptive clipping: its sign, its split of the noise, and where it ends."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk import TelemetryClient
from collector.federated.clipping import ClipRule, fit_bit, fit_fraction, update_multiplier

norms = st.floats(1e-6, 1e6)


def test_the_sign() -> None:
    """b counts those that fitted: too many of them, and C shrinks; too few, and it grows."""
    rule = ClipRule(quantile=0.5, rate=0.2)
    assert rule.following(1.0, 0.9) == pytest.approx(math.exp(-0.08))
    assert rule.following(1.0, 0.1) == pytest.approx(math.exp(0.08))
    assert rule.following(3.0, 0.5) == pytest.approx(3.0)


@given(norms, st.floats(-5, 5), st.floats(0, 1), st.floats(0, 3))
def test_each_step_is_what_the_paper_says(clip: float, fraction: float, quantile: float, rate: float) -> None:
    found = ClipRule(quantile, rate).following(clip, fraction)
    assert found == pytest.approx(min(max(clip * math.exp(-rate * (fraction - quantile)), 1e-9), 1e9), rel=1e-9)


def test_noise_can_throw_c_no_farther_than_its_range() -> None:
    rule = ClipRule(rate=10.0, smallest=0.01, largest=100.0)
    assert (rule.following(1.0, 1e300), rule.following(1.0, -1e300)) == (0.01, 100.0)
    for clip, fraction in ((0.0, 0.5), (math.inf, 0.5), (1.0, math.nan), (math.nan, 0.5), (1.0, math.inf)):
        with pytest.raises(ValueError, match="finite"):
            rule.following(clip, fraction)


@pytest.mark.parametrize(
    "fields",
    [{"quantile": 1.5}, {"rate": -1.0}, {"rate": math.nan}, {"smallest": 0.0}, {"smallest": 2.0, "largest": 1.0}],
)
def test_rules_that_cannot_work(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"range above 0|must lie|a share"):
        ClipRule(**fields)


def test_the_bit() -> None:
    told = [fit_bit(norm, 1.0) for norm in (1.0, 0.0, 1.1, math.inf)]
    assert told == [(0.5,), (0.5,), (-0.5,), (-0.5,)]
    for norm in (math.nan, -1.0):
        with pytest.raises(ValueError, match="norm"):
            fit_bit(norm, 1.0)


def test_the_bit_is_recorded_as_it_is(tmp_path: Path) -> None:
    """A bare number would be refused as `wrong_type`, and C would stay where it is without a word."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[plan]\nname = "learning"\nversion = 1\nperiod = "1d"\n[cohort]\nmin_size = 2\ntarget_size = 10\n'
        "[budget]\nlifetime = 1000\n"
        '[metrics.fits]\nkind = "vector"\ndimension = 1\nclip = 0.5\nnorm = "l1"\nepsilon = 1\n'
    )
    with TelemetryClient(
        "127.0.0.1:9",
        plan=plan,
        data_dir=tmp_path / "device",
        registrar="127.0.0.1:9",
        registrar_key=b"\x58" + 31 * b"\x66",
        consent=True,
        insecure=True,
        background=False,
    ) as client:
        for norm in (0.5, 2.0):
            client.record("fits", fit_bit(norm, 1.0))
        client.flush(seal=True)
        assert client.counters() == {"sealed": 1}


def test_the_share_is_over_the_expected_count() -> None:
    """Of 100 expected devices 50 came, and 40 of them fitted: +15 of the bits, not 40 of 50."""
    assert fit_fraction(40 * 0.5 - 10 * 0.5, 100) == pytest.approx(0.65)
    assert fit_fraction(0.0, 100) == 0.5, "nobody came: nothing is known"
    with pytest.raises(ValueError, match="expected"):
        fit_fraction(0.0, 0)


def test_the_split_of_the_paper() -> None:
    """z = 1, n = 100, sigma_b = n / 20."""
    assert update_multiplier(1.0, 100 / 20) == pytest.approx(1.0050378, abs=5e-8)
    assert update_multiplier(1.0, 100 / 20) == pytest.approx((1 - 0.01) ** -0.5, rel=1e-12)
    assert update_multiplier(2.0, 1e9) == pytest.approx(2.0)


@given(st.floats(0.1, 10), st.floats(0.1, 1e3))
def test_both_parts_together_cost_as_much_as_one(z: float, deviation: float) -> None:
    """Sums of squares of sensitivity over deviation, C = 1: of the update 1 / z_delta, of the bit (1/2) / sigma_b."""
    if 2.0 * deviation <= z * 1.000001:
        with pytest.raises(ValueError, match=r"must lie above|costs all"):
            update_multiplier(z, min(deviation, z / 2.0))
        return
    update = update_multiplier(z, deviation)
    assert update >= z
    assert update**-2 + (0.5 / deviation) ** 2 == pytest.approx(z**-2, rel=1e-9)


@pytest.mark.parametrize("start", [10.0, 0.1])
@pytest.mark.parametrize("quantile", [0.5, 0.8])
def test_c_ends_at_the_quantile_from_ten_times_too_high_and_too_low(start: float, quantile: float) -> None:
    """At the paper's rate, behind noise of sigma_b = n / 20 in each round's sum of 200 bits."""
    rng = np.random.default_rng(7)
    rule, n = ClipRule(quantile=quantile, rate=0.2), 200
    spread = np.random.default_rng(1).lognormal(0.0, 0.5, 100_000)
    wanted = float(np.quantile(spread, quantile))
    clip, path = start * wanted, []
    for _ in range(250):
        bits = np.where(rng.choice(spread, n) <= clip, 0.5, -0.5)
        clip = rule.following(clip, fit_fraction(float(bits.sum() + rng.normal(0.0, n / 20)), n))
        path.append(clip)
    assert path[0] / wanted == pytest.approx(start, rel=0.3), "it began far away"
    assert np.exp(np.log(path[-100:]).mean()) == pytest.approx(wanted, rel=0.05)
    assert all(0.7 < clip / wanted < 1.4 for clip in path[-100:])
