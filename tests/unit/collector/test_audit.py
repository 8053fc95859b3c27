"""The audit's parts: inputs of a metric, draws, views of reports and the events that are picked from them, faults."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from client_sdk.mechanisms import Value
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.plan import parse_plan
from client_sdk.sampling_vectorised import Keystream
from collector.audit import Evidence, audit_mechanism, audit_metrics, audit_sampler
from collector.audit import draws as draws_module
from collector.audit.draws import in_bulk, inputs_of, one_by_one
from collector.audit.events import CELLS_ALL, Parts, View, best_events, score_of, views_of
from tests.entropy import Untouched, seeded

D = Decimal
PLAN = """
[plan]
name = "p"
version = 1
period = "1d"
[cohort]
min_size = 10
target_size = 20
[budget]
lifetime = 100
[metrics.m]
epsilon = 1
"""
NUMBER = 'kind = "numeric"\nlower = -2\nupper = 6\non_device = "last"\n'
CATEGORY = 'kind = "categorical"\n'


def inputs(text: str) -> tuple[Value, ...]:
    return inputs_of(parse_plan(PLAN + text).metrics["m"])


def test_inputs_of_numbers() -> None:
    assert inputs(NUMBER) == (-2.0, 2.0, 6.0, 14.0)
    assert inputs(NUMBER + "optional = true\n") == (-2.0, 2.0, 6.0, 14.0, None)
    assert inputs(NUMBER.replace("numeric", "histogram")) == (-2.0, 2.0, 6.0, 14.0)


def test_inputs_of_categories() -> None:
    assert inputs(CATEGORY + 'categories = ["a", "bb", "c", "d"]') == ("a", "c", "d")
    assert inputs(CATEGORY + 'categories = ["a", "bb"]\nother = "x"') == ("a", "bb", "???")
    assert inputs(CATEGORY + 'categories = ["a"]\nother = "x"\noptional = true') == ("a", "??", None)
    assert inputs(CATEGORY + 'categories = ["?", "??"]\nother = "???"') == ("?", "??", "???"), "counts as other anyway"


def test_bulk_rows_belong_to_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs take turns within a call and over blocks; epsilon 40 keeps nearly every category."""
    monkeypatch.setattr(draws_module, "CELLS_PER_CALL", 60)
    draw = in_bulk(RandomizedResponse(("a", "b", "c"), D(40), "other"), Keystream(seeded("turns")))
    rows = draw(("c", "a", "?"), 23)
    assert [r.shape for r in rows] == [(23, 4)] * 3
    assert [set(map(tuple, r.tolist())) for r in rows] == [{(0, 0, 1, 0)}, {(1, 0, 0, 0)}, {(0, 0, 0, 1)}]


def test_bulk_numbers_come_as_a_float_array() -> None:
    seen: list[Any] = []

    class Spy(Laplace):
        def perturb_many(self, values: Any, entropy: Any) -> Any:
            seen.append(values)
            return super().perturb_many(values, entropy)

    mech = Spy(D(0), D(1), D(1))
    assert in_bulk(mech, Keystream(seeded("floats")))((0.0, 2.0), 8)[1].shape == (8, 1)
    in_bulk(mech, Keystream(seeded("integers")))((0, 1), 8)
    assert isinstance(seen[0], np.ndarray)
    assert seen[0].dtype == np.float64
    assert isinstance(seen[1], list)


@pytest.mark.parametrize("largest", [127, 128, -129, 1 << 20, 1 << 40])
def test_reports_keep_their_numbers(largest: int) -> None:
    narrowed = draws_module._narrow(np.array([[0, largest]], np.int64))
    assert narrowed.tolist() == [[0, largest]]
    assert narrowed.dtype.itemsize == {127: 1, 128: 2, -129: 2, 1 << 20: 4, 1 << 40: 8}[largest]


def test_reports_of_differing_lengths_tell_their_length() -> None:
    rows = one_by_one(lambda value: (1,) * int(value or 0))((0, 2), 3)
    assert [r.tolist() for r in rows] == [[[0, 0, 0]] * 3, [[1, 1, 2]] * 3]
    assert one_by_one(lambda value: (7, 8))((0, 2), 1)[0].tolist() == [[7, 8]]


# --- parts, views, events ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [16, 17, 18, 19, 1000])
def test_parts_are_disjoint_and_whole(n: int) -> None:
    parts = Parts(n)
    pieces = [list(range(n))[part] for part in parts.slices]
    assert [place for piece in pieces for place in piece] == list(range(n))
    assert (len(pieces[1]), len(pieces[2])) == (parts.choosing, parts.certifying)


def test_a_view_counts_each_part_and_forgets_what_came_late() -> None:
    parts = Parts(16)
    one = np.array([3, 3, 5, 3, 9, 9, 9, 9, 3, 5, 9, 7, 7, 7, 7, 7])
    other = np.array([5] * 16)
    view = View.of("cell", "cell 0", [one, other], parts)
    assert view.values.tolist() == [3, 5, 9]
    assert view.learn.tolist() == [[3, 1, 0], [0, 4, 0]]
    assert view.choose.tolist() == [[0, 0, 4], [0, 4, 0]]
    assert view.certify.tolist() == [[1, 1, 1], [0, 8, 0]], "7 was not seen before: it is in no event"
    assert view.places[0].tolist()[-5:] == [3] * 5


def certified(rows: Sequence[np.ndarray[Any, Any]], kind: str) -> tuple[str, int, int]:
    """(event, counts) of input 0 against input 1."""
    parts = Parts(len(rows[0]))
    views = views_of(rows, parts)
    views += score_of(views, 0, 1, parts)
    (found,) = (event for event in best_events(views, 0, 1, parts.choosing, 3.0) if event.view.kind == kind)
    return str(found), *found.counts(0, 1)


def test_each_kind_of_view_finds_its_leak() -> None:
    generator = np.random.default_rng(1)
    fair = generator.integers(0, 2, (2, 4000, 3))
    cell = fair.copy()
    cell[0, :, 1] |= fair[0, :, 2]
    assert certified(list(cell), "cell")[0] == "cell 1 = 1"
    agree = fair.copy()
    agree[0, :, 2] = agree[0, :, 0]
    label, often, seldom = certified(list(agree), "two cells")
    assert "cell 0" in label
    assert "cell 2" in label
    assert (often, seldom) == (2000, pytest.approx(1000, abs=150))
    _, often, seldom = certified(list(agree), "cell")
    assert often == pytest.approx(seldom, abs=200), "neither cell tells anything by itself"
    parity = fair.copy()
    parity[0, :, 2] = parity[0, :, 0] ^ parity[0, :, 1]
    label, often, seldom = certified(list(parity), "report")
    assert (label, often, seldom) == ("the report is one of 4", 2000, pytest.approx(1000, abs=150))
    even = fair.copy()
    even[0, :, 2] = 0
    assert certified(list(even), "score")[1:] == (2000, pytest.approx(1000, abs=150))
    full = fair.copy()
    full[0] |= np.roll(full[0], 1, axis=1)
    assert certified(list(full), "sum") == (
        "the sum of the cells = 3",
        pytest.approx(1000, abs=150),
        pytest.approx(250, abs=80),
    )


def test_a_threshold_of_a_scalar() -> None:
    generator = np.random.default_rng(2)
    rows = [generator.integers(low, low + 1000, (4000, 1)) for low in (0, 500)]
    label, often, seldom = certified(rows, "cell")
    assert label.startswith("cell 0 in 0 .. ")
    assert 400 < int(label.split()[-1]) < 500
    assert often > 800
    assert seldom == 0


def test_of_a_wide_report_the_cells_that_tell_are_looked_at() -> None:
    generator = np.random.default_rng(3)
    rows = [generator.integers(0, 2, (400, 2 * CELLS_ALL)) for _ in range(2)]
    rows[0][:, 99] = 1
    views = views_of(rows, Parts(400))
    cells = [view.label for view in views if view.kind == "cell"]
    assert cells[0] == "cell 99"
    assert {"cell 0", "cell 5"} <= set(cells)
    assert len(cells) < CELLS_ALL


def test_whole_reports_are_told_apart_by_their_order() -> None:
    rows = [np.array([[1, 2, 0]] * 16), np.array([[2, 1, 0]] * 16)]
    label, often, seldom = certified(rows, "report")
    assert (label, often, seldom) == ("the report is one of 1", 8, 0)


# --- the audit ---------------------------------------------------------------------------------------------


class Wrong(RandomizedResponse):
    """Samplers that return what no report may be."""

    factor = 2

    def perturb_many(self, values: Any, entropy: Any) -> Any:
        return super().perturb_many(values, entropy)[:, :-1]

    def perturb(self, value: Value, entropy: Any) -> list[int]:
        return [self.factor * cell for cell in super().perturb(value, entropy)]


@pytest.mark.parametrize("factor", [2, -2])
def test_reports_of_a_wrong_shape_fail(monkeypatch: pytest.MonkeyPatch, factor: int) -> None:
    monkeypatch.setattr(Wrong, "factor", factor)
    audit = audit_mechanism(Wrong(("a", "b", "c"), D(1)), ("a", "b"), Keystream(seeded("wrong")), samples=400)
    bulk, single = (sampler.evidence.fault for sampler in audit.samplers)
    assert bulk == "reports are not all 3 elements long"
    assert single == "an element lies beyond the bound 1"
    assert not audit.passed
    assert audit.exact_holds


def test_samples_are_fewer_where_reports_are_wide_or_single(monkeypatch: pytest.MonkeyPatch) -> None:
    mech = RandomizedResponse(tuple(f"c{i}" for i in range(100)), D(1))
    monkeypatch.setattr("collector.audit.CELLS_HELD", 100_000)
    audit = audit_mechanism(mech, ("c0", "c1"), Keystream(seeded("wide")), samples=2_000)
    assert [sampler.evidence.samples for sampler in audit.samplers] == [500, 200]
    monkeypatch.setattr("collector.audit.SINGLE_WORK", 160 * 2 * 50)
    audit = audit_mechanism(mech, ("c0", "c1"), Keystream(seeded("wide")), samples=2_000)
    assert [sampler.evidence.samples for sampler in audit.samplers] == [500, 50]


def test_alpha_is_split_over_metrics_and_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    def note(*_: object, alpha: float, **__: object) -> Evidence:
        shares.append(alpha)
        return Evidence(0.0, 16)

    monkeypatch.setattr("collector.audit.audit_sampler", note)
    plan = parse_plan(PLAN + NUMBER + "[metrics.n]\nepsilon = 1\n" + NUMBER)
    list(audit_metrics(list(plan.metrics.values()), Untouched(), samples=100, alpha=0.1))
    assert shares == [0.1 / 4] * 4


def test_alpha_is_split_over_pairs_events_and_both_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    real = {name: getattr(__import__("collector.audit").audit, name) for name in ("lower_bound", "upper_bound")}
    for name, bound in real.items():

        def note(count: int, n: int, alpha: float, bound: Any = bound) -> float:
            spent.append(alpha)
            return float(bound(count, n, alpha))

        monkeypatch.setattr(f"collector.audit.{name}", note)
    draw = in_bulk(RandomizedResponse(("a", "b", "c"), D(1)), Keystream(seeded("split")))
    audit_sampler(draw, ("a", "b", "c"), samples=4_000, alpha=0.06)
    assert 0.0 < sum(spent) <= 0.06


@pytest.mark.parametrize(("given", "samples"), [(("a",), 100), (("a", "b"), 15)])
def test_what_cannot_be_audited(given: tuple[str, ...], samples: int) -> None:
    with pytest.raises(ValueError, match="at least 2 inputs and 16 samples"):
        audit_sampler(lambda values, n: [], given, samples=samples)
