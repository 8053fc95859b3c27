"""What all mechanisms for categories share: labels, devices without a reading, sums of bits."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from client_sdk.errors import PlanError, RefusalReason, ValueRefusedError
from client_sdk.mechanisms import Mechanism, categories
from client_sdk.mechanisms.categories import ABSENT, CategoricalMechanism, column_sums
from client_sdk.mechanisms.choice import CATEGORICAL
from tests.entropy import Untouched, seeded

ALL = pytest.mark.parametrize("kind", CATEGORICAL.values(), ids=list(CATEGORICAL))
D = Decimal
Kind = type[CategoricalMechanism]


@ALL
def test_labels_are_categories_then_other_then_absent(kind: Kind) -> None:
    assert kind(("a", "b"), D(1)).labels == ("a", "b")
    mech = kind(("a", "b"), D(1), "else", optional=True)
    assert isinstance(mech, Mechanism)
    assert mech.labels == ("a", "b", "else", ABSENT)
    assert [mech.code(value) for value in ("a", "b", "else", "violet", None)] == [0, 1, 2, 2, 3]
    assert kind(("a",), D(1), optional=True).k == 2
    assert mech.worst_ratio <= Decimal(1).exp()


@ALL
def test_no_reading_is_refused_where_the_metric_is_not_optional(kind: Kind) -> None:
    for attempt in (
        lambda: kind(("a", "b"), D(1), "else").perturb(None, Untouched()),
        lambda: kind(("a", "b"), D(1), "else").perturb_many(["a", None], Untouched()),
    ):
        with pytest.raises(ValueRefusedError) as caught:
            attempt()
        assert caught.value.reason is RefusalReason.WRONG_TYPE


@ALL
def test_a_reading_never_counts_as_no_reading(kind: Kind) -> None:
    """The label's own text is an unknown category like any other."""
    assert kind(("a", "b"), D(1), "else", optional=True).code(ABSENT) == 2
    with pytest.raises(ValueRefusedError) as caught:
        kind(("a", "b"), D(1), optional=True).perturb(ABSENT, Untouched())
    assert caught.value.reason is RefusalReason.UNKNOWN_CATEGORY


@pytest.mark.parametrize(("listed", "other"), [(("a", ABSENT), None), (("a", "b"), ABSENT)])
def test_the_label_of_no_reading_is_taken(listed: tuple[str, ...], other: str | None) -> None:
    kind = CATEGORICAL["randomized_response"]
    with pytest.raises(PlanError, match="is the label of devices without a reading"):
        kind(listed, D(1), other, optional=True)
    assert kind(listed, D(1), other).k == len(listed) + (other is not None)


def test_too_many_categories_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categories, "CATEGORIES_MAX", 3)
    kind = CATEGORICAL["randomized_response"]
    assert kind(("a", "b", "c"), D(1)).k == 3
    with pytest.raises(PlanError, match="at most 3 are needed, not 4"):
        kind(("a", "b", "c"), D(1), "else")


@ALL
@pytest.mark.parametrize("epsilon", [0.5, True, "1"], ids=repr)
def test_epsilon_is_a_decimal_or_an_integer(kind: Kind, epsilon: object) -> None:
    with pytest.raises(PlanError, match=r"^epsilon: must be a Decimal or an integer"):
        kind(("a", "b"), epsilon)  # type: ignore[arg-type]


@ALL
def test_both_halves_meet(kind: Kind) -> None:
    """Half a million devices, one by one the same law as many: every row within five errors of the truth."""
    mech = kind(tuple("abcd"), D(2), "else", optional=True)
    truth = [20_000, 10_000, 5_000, 3_000, 2_000, 0]
    codes = np.repeat(np.arange(6), truth)
    total = mech.total_of(mech.perturb_codes(codes, seeded(mech.name))).tolist()
    assert mech.is_plausible(total, codes.size)
    estimate = mech.estimate(total, codes.size)
    for value, error, true in zip(estimate.values, estimate.standard_errors, truth, strict=True):
        assert value is not None
        assert error is not None
        assert abs(value - true) < 5 * error


@ALL
def test_totals_of_split_cohorts_add_up(kind: Kind) -> None:
    mech = kind(tuple("abcde"), D(1))
    answers = mech.perturb_codes(np.arange(700) % 5, seeded("split"))
    assert (mech.total_of(answers[:300]) + mech.total_of(answers[300:]) == mech.total_of(answers)).all()
    assert (mech.total_of(answers[:0]) == 0).all()


@ALL
def test_perturb_many_is_the_rows_as_they_are_masked(kind: Kind) -> None:
    mech = kind(("a", "b"), D(1), "else", optional=True)
    rows = mech.perturb_many(["a", None, "violet", "b"], seeded("rows"))
    assert (rows.shape, rows.dtype) == ((4, mech.length), np.int64)
    same = mech.rows(mech.perturb_codes(np.array([0, 3, 2, 1]), seeded("rows")))
    assert (rows == same).all()
    assert mech.perturb_many([], seeded("none")).shape == (0, mech.length)


@ALL
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_codes_of_any_integer_type_give_the_same_reports(kind: Kind, dtype: type) -> None:
    mech = kind(tuple(f"c{i}" for i in range(100)), D(1))
    answers = mech.perturb_codes(np.arange(100).astype(dtype), seeded("codes"))
    assert (answers == mech.perturb_codes(np.arange(100), seeded("codes"))).all()


@pytest.mark.parametrize("length", [1, 3, 16, 1000, 20_000])
@pytest.mark.parametrize("n", [0, 1, 254, 255, 256, 600])
def test_column_sums(n: int, length: int) -> None:
    """All 1s: a byte that overflowed would show. Then a pattern, and rows that do not stand side by side."""
    assert column_sums(np.ones((n, length), np.uint8)).tolist() == [n] * length
    rows = ((np.arange(n)[:, np.newaxis] * 7 + np.arange(length) * 3) % 5 == 0).astype(np.uint8)
    assert (column_sums(rows) == rows.sum(axis=0, dtype=np.int64)).all()
    assert (column_sums(rows[::2]) == rows[::2].sum(axis=0, dtype=np.int64)).all()


def test_column_sums_of_many_strips() -> None:
    """More rows than one block of 255 strips holds."""
    n, length = 255 * (categories.STRIP // 16) + 1025, 16
    assert column_sums(np.ones((n, length), np.uint8)).tolist() == [n] * length
