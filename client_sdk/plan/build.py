"""From a metric's fields to its mechanism: which words a kind has, and what `auto` comes to.

Rules of this file: what the plan says is all that decides, so every device and the collector come to the same
mechanism; the mechanism is the last judge of its own parameters, and what it finds is told as the field's problem.
A mechanism's code is loaded only where a plan names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

from client_sdk.errors import PlanError
from client_sdk.plan.exact import EXACT
from client_sdk.plan.fields import Table
from client_sdk.plan.slicing import build_sliced

if TYPE_CHECKING:
    from client_sdk.mechanisms import Mechanism
    from client_sdk.mechanisms.numeric import NumericMechanism
    from client_sdk.plan.model import Metric, VectorRules

AUTO: Final = "auto"
NUMBERS: Final = ("laplace", "one_bit", "piecewise", "hybrid")
LABELS: Final = ("randomized_response", "symmetric_unary", "optimized_unary", "subset_selection", "hadamard")
MECHANISMS: Final[dict[str, tuple[str, ...]]] = {
    "numeric": (*NUMBERS, AUTO),
    "categorical": (*LABELS, AUTO),
    "histogram": (*LABELS, "square_wave", AUTO),
    "quantiles": (*LABELS, "square_wave", AUTO),
    "vector": ("laplace", "gaussian"),
}

Fields = dict[str, Any]


def build(table: Table, word: str, fields: Fields, by: Metric | None = None) -> Mechanism | None:
    """The mechanism of a metric whose fields have been read; None, with problems noted, where it cannot work.

    by: what it is sliced by.
    """
    try:
        if by is not None:
            return build_sliced(word, fields, by)
        if fields["kind"] == "categorical":
            return _categorical(word, fields)
        if fields["kind"] == "numeric":
            return _numeric(word, fields)
        if fields["kind"] == "vector":
            return _vector(fields)
        return _binned(word, fields)
    except PlanError as error:
        for line in error.problems:
            field, colon, text = line.partition(": ")
            if colon and field in table.data:
                table.problem(field, text)
            else:
                table.problem("", line)
        return None


def _categorical(word: str, fields: Fields) -> Mechanism:
    given = fields["categories"], fields["epsilon"], fields["other"], fields["optional"]
    if "epsilon_inf" in fields:
        from client_sdk.mechanisms.memoized import memoized

        return cast("Mechanism", memoized(word, *given, fields["epsilon_inf"], fields["max_distinct"]))
    if word == "randomized_response":  # what most plans have, without the code of all others
        from client_sdk.mechanisms.randomized_response import RandomizedResponse

        return RandomizedResponse(*given)
    from client_sdk.mechanisms.choice import categorical

    return cast("Mechanism", categorical(word, *given))


def _numeric(word: str, fields: Fields) -> Mechanism:
    lower, upper, epsilon, levels = (fields[name] for name in ("lower", "upper", "epsilon", "levels"))
    share: Decimal | None = fields["presence_share"]
    if share is None:
        return number(numeric_word(word, epsilon), lower, upper, epsilon, levels)
    from client_sdk.mechanisms.optional import OptionalNumber

    word = numeric_word(word, value_epsilon(epsilon, share))
    return OptionalNumber(number(word, lower, upper, value_epsilon(epsilon, share), levels), epsilon, share)


def _vector(fields: Fields) -> Mechanism:
    rules: VectorRules = fields["vector"]
    given = rules.dimension, rules.clip, fields["epsilon"], fields["levels"]
    if rules.norm == "l1":
        from client_sdk.mechanisms.vector import VectorLaplace

        return VectorLaplace(*given)
    from client_sdk.mechanisms.gaussian import VectorGaussian

    return VectorGaussian(*given, rules.delta, rules.calibration)


def value_epsilon(epsilon: Decimal, presence_share: Decimal) -> Decimal:
    """What an optional number's value is sent at: the rest of epsilon that the presence bit leaves."""
    return EXACT.multiply(epsilon, EXACT.subtract(Decimal(1), presence_share))


def numeric_word(word: str, epsilon: Decimal) -> str:
    """The word, or what `auto` comes to at this epsilon."""
    if word != AUTO:
        return word
    from client_sdk.mechanisms.choice import numeric_choice

    return numeric_choice(epsilon)


def number(word: str, lower: Decimal, upper: Decimal, epsilon: Decimal, levels: int) -> NumericMechanism:
    """The mechanism for a mean that a plan calls `word`. PlanError for another word or parameters that cannot work."""
    if word not in NUMBERS:
        raise PlanError(f"mechanism: must be one of {', '.join(NUMBERS)}, not {word!r}")
    if word == "one_bit":
        from client_sdk.mechanisms.one_bit import OneBit

        return OneBit(lower, upper, epsilon, levels)
    if word == "piecewise":
        from client_sdk.mechanisms.piecewise import Piecewise

        return Piecewise(lower, upper, epsilon, levels)
    if word == "hybrid":
        from client_sdk.mechanisms.hybrid import Hybrid

        return Hybrid(lower, upper, epsilon, levels)
    from client_sdk.mechanisms.laplace import Laplace

    return Laplace(lower, upper, epsilon, levels)


def _binned(word: str, fields: Fields) -> Mechanism:
    from client_sdk.mechanisms.histogram import Histogram

    edges, epsilon, optional = fields["edges"], fields["epsilon"], fields["optional"]
    asked = fields["quantiles"] if fields["kind"] == "quantiles" else ()
    if word == AUTO:
        word = _binned_word(edges, epsilon, asked, optional=optional)
    elif word == "square_wave":
        _check_square_wave(len(edges) - 1)
    _check_doubles(edges)
    if fields["kind"] == "histogram":
        return Histogram(edges, epsilon, word, optional)
    from client_sdk.mechanisms.quantiles import Quantiles

    return Quantiles(edges, epsilon, word, asked, optional)


def _check_square_wave(bins: int) -> None:
    from client_sdk.mechanisms.square_wave import PLANNED_BINS_MAX

    if bins > PLANNED_BINS_MAX:
        raise PlanError(
            f"mechanism: square_wave takes at most {PLANNED_BINS_MAX} bins (its smoothing would take minutes), not "
            f"{bins}; take fewer bins or another mechanism"
        )


def _check_doubles(edges: Sequence[Decimal]) -> None:
    """Readings are doubles: between two edges that are the same double none can lie, nor a quantile."""
    same = next((low for low, high in pairwise(edges) if float(low) == float(high)), None)
    if same is not None:
        raise PlanError(f"edges: {same} and the next one are the same double; take wider bins, or ends nearer to 0")


def _binned_word(edges: Sequence[Decimal], epsilon: Decimal, asked: Sequence[Decimal], *, optional: bool) -> str:
    """What `auto` comes to: by the error of the asked quantiles; of the counts for a histogram, or where optional."""
    from client_sdk.mechanisms.histogram import histogram_choice
    from client_sdk.mechanisms.quantiles import quantiles_choice

    if asked and not optional:
        return quantiles_choice(edges, epsilon, asked)
    return histogram_choice(len(edges) - 1 + optional, epsilon)
