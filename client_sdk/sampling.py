"""Exact samplers, one draw at a time, from nothing but random bytes and integers.

Rules of this file: standard library only; no float, no `random`, no `secrets`; randomness only through the
`entropy` argument. Every sampler has exactly the law its docstring states, for every allowed argument: finite
choices compare integers, infinite ones are built from finite ones and stop with probability one. A table cut
at 64 bits would give a cell of probability p a relative error of 2^-64/p: its tail separates inputs.
What it does not do: run in constant time. How long a draw takes, and how many bytes it asks for, can depend
on its outcome; so reports are made when a period is sealed and sent at a scheduled time.

`client_sdk.sampling_vectorised` and `client_sdk.sampling_gaussian` draw the same laws n at a time.
Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS 2020), section 5.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client_sdk.mechanisms import Entropy


def draw(size: int, entropy: Entropy) -> bytes:
    """`size` bytes of `entropy`; ValueError where the source returns fewer or more."""
    data = entropy(size)
    if len(data) != size:
        raise ValueError(f"the entropy source returned {len(data)} bytes instead of {size}")
    return data


def uniform_below(n: int, entropy: Entropy) -> int:
    """Uniform over 0 .. n-1, by rejection: the fewest bits that can hold n-1, drawn again while too large."""
    if n < 1:
        raise ValueError("nothing to choose from: n must be at least 1")
    bits = (n - 1).bit_length()
    size = (bits + 7) // 8
    if size == 0:
        return 0
    while True:
        candidate = int.from_bytes(draw(size, entropy), "big") >> (8 * size - bits)
        if candidate < n:
            return candidate


def bernoulli(probability: Fraction, entropy: Entropy) -> bool:
    """True with exactly this probability, a Fraction in [0, 1].

    Eight bytes whatever the probability; only where they do not decide, once in 2^64 times, are more drawn.
    """
    if not 0 <= probability <= 1:
        raise ValueError("a probability must lie between 0 and 1")
    whole, rest = divmod(probability.numerator << 64, probability.denominator)
    drawn = int.from_bytes(draw(8, entropy), "big")
    return _bernoulli_ratio(rest, probability.denominator, entropy) if drawn == whole else drawn < whole


def bernoulli_2_64(numerator: int, entropy: Entropy) -> bool:
    """True with probability numerator / 2^64, an integer in [0, 2^64]; always eight bytes."""
    if not 0 <= numerator <= 1 << 64:
        raise ValueError("a probability over 2^64 must lie between 0 and 2^64")
    return int.from_bytes(draw(8, entropy), "big") < numerator


def bernoulli_exp(gamma: Fraction, entropy: Entropy) -> bool:
    """True with probability exp(-gamma), a Fraction >= 0 (CKS20, algorithm 1)."""
    if gamma < 0:
        raise ValueError("gamma must not be negative")
    whole, rest = divmod(gamma.numerator, gamma.denominator)
    for _ in range(whole):
        if not _bernoulli_exp_unit(1, 1, entropy):
            return False
    return _bernoulli_exp_unit(rest, gamma.denominator, entropy)


def geometric(scale: Fraction, entropy: Entropy) -> int:
    """x >= 0 with probability (1-r) r^x, r = exp(-1/scale), for any rational scale > 0 (CKS20, algorithm 2)."""
    if scale <= 0:
        raise ValueError("the scale must be positive")
    while True:
        outcome = geometric_attempt(scale.numerator, scale.denominator, entropy)
        if outcome is not None:
            return outcome


def geometric_attempt(numerator: int, denominator: int, entropy: Entropy) -> int | None:
    """One attempt at `geometric` of scale numerator/denominator; None says draw again.

    low + numerator*high is geometric of scale `numerator`: low < numerator is accepted with exp(-low/numerator)
    and high counts successes of exp(-1). Dividing by the denominator leaves a geometric of the quotient's scale.
    """
    low = uniform_below(numerator, entropy)
    if not bernoulli_exp(Fraction(low, numerator), entropy):
        return None
    high = 0
    while bernoulli_exp(Fraction(1), entropy):
        high += 1
    return (low + numerator * high) // denominator


def discrete_laplace(scale: Fraction, entropy: Entropy) -> int:
    """Any integer x with probability (1-r)/(1+r) r^|x|, r = exp(-1/scale), for any rational scale > 0.

    Variance 2r/(1-r)^2. Unbounded: whoever needs a range clamps what comes *out* of a mechanism.
    """
    while True:
        outcome = signed(geometric(scale, entropy), entropy)
        if outcome is not None:
            return outcome


def discrete_gaussian(variance: Fraction, entropy: Entropy) -> int:
    """Any integer x with probability proportional to exp(-x^2 / (2 variance)), for any rational variance > 0.

    CKS20, algorithm 3: discrete Laplace of scale floor(sqrt(variance)) + 1, accepted with the rest. Unbounded. The
    parameter is the continuous Gaussian's variance; the discrete one's own is at most that, and nearly it above 1.
    """
    if variance <= 0:
        raise ValueError("the variance must be positive")
    scale = isqrt(variance.numerator // variance.denominator) + 1
    while True:
        candidate = discrete_laplace(Fraction(scale), entropy)
        if bernoulli_exp((abs(candidate) - variance / scale) ** 2 / (2 * variance), entropy):
            return candidate


def signed(magnitude: int, entropy: Entropy) -> int | None:
    """A fair sign for a magnitude; None, draw both again, for the zero that would be counted twice."""
    negative = uniform_below(2, entropy) == 1
    if negative and magnitude == 0:
        return None
    return -magnitude if negative else magnitude


def _bernoulli_ratio(numerator: int, denominator: int, entropy: Entropy) -> bool:
    if not 0 <= numerator <= denominator:
        raise ValueError("a probability must lie between 0 and 1")
    return uniform_below(denominator, entropy) < numerator


def _bernoulli_exp_unit(numerator: int, denominator: int, entropy: Entropy) -> bool:
    """exp(-g) for g = numerator/denominator in [0, 1]: the run of successes of g/1, g/2, g/3 ... has even length."""
    trial = 1
    while _bernoulli_ratio(numerator, denominator * trial, entropy):
        trial += 1
    return trial % 2 == 1
