"""The lattice mechanism's complete output law, in fractions: the largest ratio over all inputs and outputs.

The noise's law is proven in the samplers' tests: P(x) = (1-r)/(1+r) r^|x| with r = exp(-1/scale). Here the
mechanism itself is run for every noise in a window wider than its output, and the probability of what lies
beyond is added where the clamp puts it. Everything is a rational function of r, so with a *rational* r the
law is exact: the ratio must never pass r^-levels, which at r = exp(-1/scale) is e^epsilon to the last digit.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from functools import cache

import pytest

from client_sdk.mechanisms import laplace, lattice
from client_sdk.mechanisms.laplace import Laplace
from tests.entropy import Untouched

R = Fraction(2, 3)
Law = dict[int, Fraction]


def mechanism(levels: int = 4, epsilon: str = "2") -> Laplace:
    return Laplace(Decimal(0), Decimal(10), Decimal(epsilon), levels)


@cache
def noise_law(reach: int) -> Law:
    """P(noise = x) for |x| <= reach; the tails beyond are folded into the two outermost cells."""
    inner = {x: (1 - R) / (1 + R) * R ** abs(x) for x in range(-reach + 1, reach)}
    tail = R**reach / (1 + R)
    return {**inner, -reach: tail, reach: tail}


def output_law(mech: Laplace, value: float, monkeypatch: pytest.MonkeyPatch) -> Law:
    """Run `perturb` for both roundings and every noise; the outermost noises stand for everything beyond."""
    reach = mech.levels + 2 * mech.tail + 3
    up, noise, share = False, 0, Fraction(0)

    def rounding(p: Fraction, entropy: object) -> bool:
        nonlocal share
        share = p if up else 1 - p
        return up

    def drawn(scale: Fraction, entropy: object) -> int:
        assert scale == mech.levels / Fraction(mech.epsilon), "r^-levels is e^epsilon at this scale only"
        return noise

    monkeypatch.setattr(lattice, "bernoulli", rounding)
    monkeypatch.setattr(laplace, "discrete_laplace", drawn)
    noises = noise_law(reach)
    masses: dict[bool, dict[int, Fraction]] = {}
    shares: dict[bool, Fraction] = {}
    for up in (False, True):
        masses[up] = {}
        for noise in noises:
            (output,) = mech.perturb(value, Untouched())
            masses[up][output] = masses[up].get(output, Fraction(0)) + noises[noise]
            assert shares.setdefault(up, share) == share
    assert sum(shares.values()) == 1
    law: Law = defaultdict(Fraction)
    for up in (False, True):
        if shares[up]:
            for output, mass in masses[up].items():
                law[output] += mass * shares[up]
    assert sum(law.values()) == 1
    return law


LATTICE_AND_BETWEEN = [0.0, 2.5, 5.0, 7.5, 10.0, 0.1, 3.3, 9.999999, 1e-300, -3.0, 1e300]


@pytest.mark.parametrize(("levels", "epsilon"), [(2, "1"), (4, "2"), (3, "0.5"), (7, "3"), (5, "40")])
def test_largest_ratio_over_all_inputs_and_outputs(levels: int, epsilon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mech = mechanism(levels, epsilon)
    laws = [output_law(mech, value, monkeypatch) for value in LATTICE_AND_BETWEEN]
    outputs = set(range(-mech.tail, levels + mech.tail + 1))
    assert all(set(law) == outputs for law in laws), "every input reaches the same outputs, the clamped ends included"
    ratios = {y: max(law[y] for law in laws) / min(law[y] for law in laws) for y in outputs}
    assert max(ratios.values()) == R**-levels, "never more, and reached: nothing is given away or wasted"
    assert ratios[-mech.tail] == ratios[levels + mech.tail] == R**-levels


def test_clamping_the_noise_instead_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above has teeth: with clamped noise, inputs reach different outputs."""
    mech = mechanism()
    reached = [{min(max(x, -mech.tail), mech.tail) + point for x in noise_law(300)} for point in (0, mech.levels)]
    assert reached[0] != reached[1]


def test_values_out_of_range_have_the_law_of_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    # case A04
    mech = mechanism()
    assert output_law(mech, -3, monkeypatch) == output_law(mech, 0, monkeypatch)
    assert output_law(mech, 1e300, monkeypatch) == output_law(mech, 10, monkeypatch)
    assert output_law(mech, 10**400, monkeypatch) == output_law(mech, 10, monkeypatch)
    assert output_law(mech, 0, monkeypatch) != output_law(mech, 10, monkeypatch)


def test_mean_of_the_law_is_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unbiased: in units of the lattice, up to what the clamp can move (r^tail)."""
    mech = mechanism()
    for value in (0.0, 1.0, 3.3, 10.0):
        mean = sum(y * mass for y, mass in output_law(mech, value, monkeypatch).items())
        assert abs(mean - Fraction(value) * mech.levels / 10) < 2 * R**mech.tail / (1 - R)
