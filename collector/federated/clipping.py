"""Adaptive clipping: the clipping norm follows a quantile of the updates' norms, from a noisy count of those that fit.

Each device says with one bit whether its update's norm was at most C, as +1/2 or -1/2: centred, so that the bit of a
device that is taken away is 0, and the sensitivity of the sum is 1/2 under *add or remove a device* and 1 under
*replace a device's value*, which is our relation. The bit is a metric of the plan, noised and masked like any other.

The sign: b counts the updates that were *not* clipped. Too many of them (b above the quantile) and C shrinks. A count
of those that were clipped, put into the same formula, would make C shrink when it should grow.
What it does not do: hide C. It is a function of released sums, and every device is told it.
Source: Andrew, Thakkar, McMahan & Ramaswamy (NeurIPS 2021), Algorithm 1 and Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

BIT_CLIP: Final = 0.5
"""Of the metric that carries the bit: both answers lie on the ball's edge, so none is ever changed by clipping."""


@dataclass(frozen=True, slots=True)
class ClipRule:
    """C <- C exp(-rate (b - quantile)), kept in [smallest, largest]. ValueError for what cannot work.

    quantile: share of updates that should fit, gamma of the paper; rate: eta of the paper (0.2 there).
    """

    quantile: float = 0.5
    rate: float = 0.2
    smallest: float = 1e-9
    largest: float = 1e9

    def __post_init__(self) -> None:
        if not 0.0 <= self.quantile <= 1.0:
            raise ValueError(f"quantile: a share of updates lies between 0 and 1, got {self.quantile!r}")
        if not 0.0 <= self.rate <= 10.0:
            raise ValueError(f"rate: must lie between 0 (C stays) and 10, got {self.rate!r}")
        if not 0.0 < self.smallest <= self.largest < math.inf:
            raise ValueError(f"the clipping norm lies in a range above 0, got {self.smallest!r} .. {self.largest!r}")

    def following(self, clip: float, fraction: float) -> float:
        """The next round's C. fraction: b, the noisy share of updates that fitted; noise may take it out of 0 .. 1."""
        if not (0.0 < clip < math.inf and math.isfinite(fraction)):
            raise ValueError(f"a clipping norm above 0 and a finite share are needed, got {clip!r} and {fraction!r}")
        wanted = math.log(clip) - self.rate * (fraction - self.quantile)
        if wanted <= math.log(self.smallest):
            return self.smallest
        return self.largest if wanted >= math.log(self.largest) else math.exp(wanted)


def fit_bit(norm: float, clip: float) -> tuple[float]:
    """What a device records, a vector of one number: +1/2 where its update's norm is at most C, else -1/2.

    `client.record("fits", fit_bit(norm, C))` takes it as it is. ValueError for what is no norm.
    """
    if math.isnan(norm) or norm < 0.0:
        raise ValueError("a norm is a number of at least 0")
    return (BIT_CLIP if norm <= clip else -BIT_CLIP,)


def fit_fraction(bit_sum: float, expected: int) -> float:
    """b, from the noisy sum of the centred bits of about `expected` devices.

    Where only some of them came, b is drawn to 1/2 in proportion: nobody who is missing is taken to have fitted or not.
    """
    if expected < 1:
        raise ValueError(f"at least one device must be expected, got {expected}")
    return bit_sum / expected + BIT_CLIP


def update_multiplier(total: float, bit_deviation: float) -> float:
    """z_delta: the update's noise multiplier, so that it and the bit together cost as much as one release at `total`.

    z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2). total: z, deviation of the noise in a sum over the sum's sensitivity;
    bit_deviation: sigma_b, of the noise in the sum of centred bits, whose sensitivity is 1/2. Multipliers are deviation
    over sensitivity, and both double under *replace*, so the split is the same under either relation, each in its own
    multipliers. Gaussian noise only. ValueError where the bit alone would cost more than z allows.
    """
    if not (0.0 < total < math.inf and bit_deviation > 0.0):
        raise ValueError(f"noise needs a multiplier and a deviation above 0, got {total!r} and {bit_deviation!r}")
    left = total**-2 - (2.0 * bit_deviation) ** -2
    if not left > 0.0:
        raise ValueError(
            f"a bit with noise of deviation {bit_deviation!r} costs all that a multiplier of {total!r} allows; "
            f"it must lie above {total / 2.0!r}"
        )
    return float(left**-0.5)
