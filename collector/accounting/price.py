"""What a setting costs before anybody deploys it: one mechanism, so many equal reports, so many contributors.

Rules of this file: the price is that of what ships: the mechanism is made as a plan would make it, and its own losses
are what is composed. Rounds and metrics are independent equal releases; each metric of a report is a sum of its own.
What it does not do: assume contributors. Without a number of them nobody hides a report, and central is local.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

from client_sdk.accounting.ledger import Cohort
from client_sdk.errors import PlanError
from client_sdk.plan.build import AUTO, LABELS, MECHANISMS, NUMBERS, number
from collector.accounting.composition import Composer
from collector.accounting.exposure import honest
from collector.accounting.figures import COMPOSED
from collector.accounting.losses import central_pair, local_pair, method
from collector.accounting.subsampling import fixed_size

if TYPE_CHECKING:
    from client_sdk.accounting.loss import PrivacyLoss
    from client_sdk.mechanisms import Mechanism
    from collector.accounting.pairs import LossPair

WORDS: Final = tuple(
    dict.fromkeys(w for kind, words in MECHANISMS.items() if kind != "vector" for w in words if w != AUTO)
)
"""The plan's words for mechanisms; those for vectors have more to say than a price asks: `plan check` prices them."""

LEVELS: Final = 1000
"""Steps of a number's lattice: as many as a plan has without a word."""


@dataclass(frozen=True, slots=True)
class Price:
    """eps_local_pure: exact, at delta 0. The others at the delta asked for; n_h: honest contributors of each sum.

    eps_outsiders: the central one amplified by sampling, None where nobody said out of how many; see `subsampling`.
    """

    eps_local_pure: Decimal
    eps_local: float
    eps_central: float
    n_h: int
    method: str
    eps_outsiders: float | None = None


def losses_of(word: str, epsilon: Decimal, k: int | None = None) -> tuple[PrivacyLoss, ...]:
    """What one report of the mechanism loses. k: labels, or bins of `square_wave`; numbers need none.

    PlanError names the parameter: a word that no plan knows, an epsilon outside [1e-6, 40], k missing or unusable.
    """
    if word in NUMBERS:
        if k is not None:
            raise PlanError(f"k: {word} sends a number and has no categories; leave it out")
        return number(word, Decimal(0), Decimal(1), epsilon, LEVELS).losses
    if word not in WORDS:
        raise PlanError(f"mechanism: must be one of {', '.join(WORDS)}, not {word!r}")
    if k is None:
        raise PlanError(f"k: is missing; {word} needs the number of {'categories' if word in LABELS else 'bins'}")
    return _labelled(word, tuple(map(str, range(k))), epsilon).losses


def _labelled(word: str, labels: tuple[str, ...], epsilon: Decimal) -> Mechanism:
    try:
        if word == "square_wave":
            from client_sdk.mechanisms.square_wave import SquareWave

            return cast("Mechanism", SquareWave(labels, epsilon))
        from client_sdk.mechanisms.choice import categorical

        return categorical(word, labels, epsilon)
    except PlanError as error:
        # A price has no list of labels, only how many there are.
        lines = (line.replace("categories: ", "k: ", 1).replace("bins: ", "k: ", 1) for line in error.problems)
        raise PlanError(list(lines)) from None


def price(
    losses: tuple[PrivacyLoss, ...],
    *,
    contributors: int | None,
    corrupt: Fraction,
    releases: int,
    delta: float,
    fleet: int | None = None,
) -> Price:
    """`releases` equal reports of these losses, each in a sum of `contributors`, of which `corrupt` are assumed to
    collude. fleet: so many devices, out of which the contributors are drawn, for each sum anew. ValueError for a delta
    outside [0, 1).
    """
    n_h = 1 if contributors is None else honest(contributors, Cohort(contributors, contributors, 0), corrupt)
    pure = sum((loss.epsilon for loss in losses), Decimal(0)) * releases
    local = min(float(pure), _composed([local_pair(loss) for loss in losses], releases, delta))
    pairs = [central_pair(loss, n_h) for loss in losses]
    central = min(local, local if n_h == 1 else _composed(pairs, releases, delta))
    outsiders = None
    if fleet is not None and contributors is not None:
        sampled = [fixed_size(pair, contributors, fleet) for pair in pairs]
        outsiders = min(central, _composed(sampled, releases, delta))
    amplified = f"{method(losses[-1])}, {COMPOSED}" if n_h > 1 else "as local (n_h is 1)"
    return Price(pure, local, central, n_h, f"local: {COMPOSED}; central: {amplified}", outsiders)


def _composed(pairs: list[LossPair], releases: int, delta: float) -> float:
    return Composer(pairs).epsilon([releases] * len(pairs), delta)
