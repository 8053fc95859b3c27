"""Is there less noise in released sums than the plan says? A lower bound on its squares, chosen before any was drawn.

The distance X of a released coordinate from the truth is a sum of reports' noises and what rounding adds. Squares are
small together only by chance: P(sum X^2 / sigma^2 <= q) <= e^(tilt q) prod E e^(-tilt X^2 / sigma^2), and with G
standard normal that mean is E phi(sqrt(2 tilt) G / sigma), phi the characteristic function of X. Of both noises phi is
nowhere below 0, so whatever is added that does not depend on the noise, rounding too, only makes it smaller.
Rules of this file: the mechanism's own law, at the noise that the plan says; coordinates are drawn independently.
What it does not do: judge too much noise (`judging.allowed_noise`), or a lack that is too small to see in so few
numbers: half the deviation shows in about 100 of them, none at all in 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorMechanism

_TILTS: Final = tuple(np.geomspace(0.1, 100.0, 40).tolist())
_PLACES: Final = np.linspace(0.0, 12.0, 2401)
"""Of G, beyond which it lies once in 10^32."""


@dataclass(frozen=True, slots=True)
class Noised:
    """One metric's sum over `devices` reports. squares: X^2 / sigma^2, one a coordinate."""

    mechanism: VectorMechanism
    devices: int
    squares: tuple[float, ...]


def least_squares(sums: Sequence[Noised], chance: float) -> float:
    """What all squares together come to at least, but for `chance`; 0 where nothing can be said."""
    found = [(math.log(chance) - _log_mean(sums, tilt)) / tilt for tilt in _TILTS]
    return float(max(0.0, *found))


def _log_mean(sums: Sequence[Noised], tilt: float) -> float:
    return math.fsum(len(one.squares) * log_decay(one.mechanism, one.devices, tilt) for one in sums)


def log_decay(mechanism: VectorMechanism, devices: int, tilt: float) -> float:
    """ln E e^(-tilt X^2 / sigma^2), at most: of the noise of so many reports, sigma^2 its variance; by Fourier."""
    angles = _PLACES * math.sqrt(2.0 * tilt / (devices * mechanism.noise_variance))
    if isinstance(mechanism, VectorGaussian):  # up to 1 the lattice adds nothing that a float holds; beyond, no claim
        logs = np.where(angles <= 1.0, -mechanism.variance * angles**2 / 2.0, 0.0)
    else:
        rate = 1.0 / float(mechanism.scale)  # type: ignore[attr-defined]  # the other one is VectorLaplace
        logs = -np.log1p((np.sin(angles / 2.0) / math.sinh(rate / 2.0)) ** 2)
    density = np.exp(-(_PLACES**2) / 2.0) / math.sqrt(2.0 * math.pi)
    density[0] /= 2.0
    mean = 2.0 * float((density * np.exp(devices * logs)).sum()) * float(_PLACES[1])
    return math.log(min(1.0, mean + 1e-30) * (1.0 + 1e-9))
