"""The fields of a metric of vectors: how many coordinates, which norm they are clipped to, and what noise that takes.

Rules of this file: the norm decides the mechanism: L1 goes with `laplace`, whose epsilon is pure, L2 with `gaussian`,
which needs a delta. Without a reading a vector is all zeros, whatever the plan: there is no other default, and no
`optional`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, cast

from client_sdk.plan import defaults
from client_sdk.plan.fields import Table, shown
from client_sdk.plan.model import Norm, VectorRules
from client_sdk.plan.ranges import MAX_LEVELS

MAX_DIMENSION: Final = 1_000_000
NORM_OF: Final[dict[str, Norm]] = {"laplace": "l1", "gaussian": "l2"}
CALIBRATIONS: Final = ("analytic", "classic")


def read_vector(table: Table) -> tuple[str, dict[str, Any]]:
    """(the mechanism's word, what a metric of vectors has beside the common fields, as the Metric's fields)."""
    dimension = table.integer("dimension", 1, MAX_DIMENSION, example="1000")
    clip = table.decimal("clip", example="1.0")
    if table.clean and clip <= 0:
        table.problem("clip", f"must lie above 0, not {shown(clip)}")
    word = _word(table)
    if table.data.get("norm") not in tuple(NORM_OF.values()):  # which fields belong here is unknown
        table.take("delta", "", optional=True)
        table.take("calibration", "", optional=True)
        delta, calibration = Decimal(0), defaults.CALIBRATION
    else:
        delta, calibration = _gaussian(table) if word == "gaussian" else _pure(table)
    levels = table.integer("levels", 1, MAX_LEVELS, default=defaults.VECTOR_LEVELS)
    for field in ("default", "optional", "presence_share"):
        value = table.take(field, "", optional=True)
        if value is not None and not (field == "optional" and value is False):
            table.problem(field, "a vector without a reading is all zeros; remove the field")
    rules = VectorRules(dimension, clip, NORM_OF[word], delta, calibration)
    return word, {"vector": rules, "levels": levels, "default": None}


def _word(table: Table) -> str:
    norm = cast("Norm", table.choice("norm", NORM_OF.values()))
    fitting = next(word for word, other in NORM_OF.items() if other == norm)
    if "mechanism" not in table.data:
        table.take("mechanism", "", optional=True)
        return fitting
    word = table.choice("mechanism", NORM_OF)
    if table.clean and word != fitting:
        table.problem("mechanism", f'"{word}" clips to norm = "{NORM_OF[word]}"; with "{norm}" goes "{fitting}"')
    return word if table.clean else fitting


def _gaussian(table: Table) -> tuple[Decimal, str]:
    delta = table.decimal("delta", example="0.000001")
    return delta, table.choice("calibration", CALIBRATIONS, default=defaults.CALIBRATION)


def _pure(table: Table) -> tuple[Decimal, str]:
    for field in ("delta", "calibration"):
        if table.take(field, "", optional=True) is not None:
            table.problem(field, 'belongs to norm = "l2" (gaussian); laplace is pure: remove it')
    return Decimal(0), defaults.CALIBRATION
