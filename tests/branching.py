"""The complete law of a random procedure: it is run again for every outcome of every choice it makes.

The procedure asks `choose(weights)` instead of drawing; each run follows one path, and the product of the
chosen weights is that path's probability. Paths below `cutoff` are left out and their mass is returned, so a
procedure that may go on for ever has its law bracketed between `law` and `law + missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import TypeVar

Outcome = TypeVar("Outcome")
Choose = Callable[[Sequence[Decimal]], int]

DIGITS = 90


class _CutOffError(Exception):
    pass


def complete_law(
    run: Callable[[Choose], Outcome], cutoff: Decimal = Decimal(0)
) -> tuple[dict[Outcome, Decimal], Decimal]:
    """({outcome: probability}, probability of the paths left out)."""
    law: dict[Outcome, Decimal] = {}
    missing = Decimal(0)
    todo: list[list[int]] = [[]]
    with localcontext(Context(prec=DIGITS)):
        while todo:
            prefix = todo.pop()
            taken: list[int] = []
            mass = Decimal(1)

            def choose(weights: Sequence[Decimal]) -> int:
                nonlocal mass
                if len(taken) < len(prefix):  # noqa: B023 - called within this turn of the loop only
                    pick = prefix[len(taken)]  # noqa: B023
                else:
                    pick = 0
                    todo.extend([*taken, other] for other in range(1, len(weights)) if weights[other])  # noqa: B023
                taken.append(pick)  # noqa: B023
                mass *= weights[pick]
                if mass <= cutoff:
                    raise _CutOffError
                return pick

            try:
                outcome = run(choose)
            except _CutOffError:
                missing += mass
            else:
                law[outcome] = law.get(outcome, Decimal(0)) + mass
    return law, missing


def exact_law(run: Callable[[Callable[[Sequence[Fraction]], int]], Outcome]) -> dict[Outcome, Fraction]:
    """{outcome: probability} in exact arithmetic, of a procedure that always ends. See `complete_law`."""

    def weighed(choose: Choose) -> tuple[Outcome, Fraction]:
        mass = Fraction(1)

        def pick(weights: Sequence[Fraction]) -> int:
            nonlocal mass
            picked = choose([Decimal(weight > 0) for weight in weights])
            mass *= weights[picked]
            return picked

        return run(pick), mass

    law: dict[Outcome, Fraction] = {}
    for (outcome, mass), paths in complete_law(weighed, cutoff=Decimal(-1))[0].items():
        law[outcome] = law.get(outcome, Fraction(0)) + mass * int(paths)
    return {outcome: mass for outcome, mass in law.items() if mass}


def e_to(epsilon: Decimal) -> Fraction:
    """e^epsilon, rounded down at its 110th digit: what a ratio may not exceed."""
    with localcontext(Context(prec=120)):
        return Fraction(epsilon.exp() * (1 - Decimal("1e-110")))
