"""An epsilon in words: what it lets somebody find out.

Rules of this file: no number is written with an exponent; nothing overflows, however large epsilon is; where delta is
not 0 the sentence says so, because what it says holds except with that probability; where protection ends, it says
that and gives no figure that would look like some.
What it does not do: say against whom. That, the relation, and for a central epsilon n_h and its conditions, stand
beside the sentence.

Source: with prior odds of a guess about one device, whatever is seen multiplies them by at most e^epsilon (Bayes'
theorem); of an even guess the posterior is then at most e^epsilon / (1 + e^epsilon).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from client_sdk.accounting.loss import plain
from client_sdk.errors import ConfigurationError

NO_PROTECTION_ABOVE: Final = 7
NO_PROTECTION: Final = "no meaningful protection at this layer"

Number = Decimal | float | int


@dataclass(frozen=True, slots=True)
class Words:
    """factor: the largest by which the odds of any one guess can change. certainty: the best, in (0, 1), of a guess
    that was 50/50. Both None where there is no meaningful protection. sentence: all of that for a reader.
    """

    factor: float | None
    certainty: float | None
    sentence: str


def in_words(epsilon: Number, delta: Number = 0) -> Words:
    """What `epsilon` at `delta` means. ConfigurationError for a negative epsilon, a NaN, or a delta outside [0, 1)."""
    if _is_nan(epsilon) or epsilon < 0 or _is_nan(delta) or not 0 <= delta < 1:
        raise ConfigurationError("epsilon must be 0 or more, and delta must lie in [0, 1)")
    if epsilon > NO_PROTECTION_ABOVE:
        return Words(None, None, NO_PROTECTION)
    factor = math.exp(float(epsilon))
    certainty = 1.0 / (1.0 + math.exp(-float(epsilon)))
    sentence = (
        f"the odds of any one guess change at most {_three_digits(factor)}-fold; "
        f"a 50/50 guess becomes at most {_tenth(100.0 * certainty)} % certain"
    )
    if delta:
        sentence += f" (except with probability {plain(_as_decimal(delta))})"
    return Words(factor, certainty, sentence)


def _is_nan(number: Number) -> bool:
    return number.is_nan() if isinstance(number, Decimal) else isinstance(number, float) and math.isnan(number)


def _three_digits(factor: float) -> str:
    """To the nearest of three digits: 1.11, 20.1, 1100."""
    digits = 2 - math.floor(math.log10(factor))
    return plain(Decimal(repr(round(factor, digits))))


def _tenth(percent: float) -> str:
    """To the nearest tenth. Never 100: even 7 is 99.9 %."""
    return plain(Decimal(f"{percent:.1f}"))


def _as_decimal(number: Number) -> Decimal:
    return number if isinstance(number, Decimal) else Decimal(repr(number))
