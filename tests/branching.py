"""The complete law of a random procedure: it is run again for every outcome of every choice it makes.

The procedure asks `choose(weights)` instead of drawing; each run follows one path, and the product of the
chosen weights is that path's probability. Paths below `cutoff` are left out and their mass is returned, so a
procedure that may go on for ever has its law bracketed between `law` and `law + missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
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
