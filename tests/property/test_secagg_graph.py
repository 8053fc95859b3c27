"""Any roster's sizes against exact counting, and the shape of any graph."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import PlanError
from client_sdk.secagg.graph import graph_of
from client_sdk.secagg.parameters import COMPLETE_UP_TO, MAX_NEIGHBOURS, round_parameters, threshold
from tests.hypergeometric import Oracle

fractions = st.builds(Fraction, st.integers(0, 45), st.just(100)) | st.fractions(0, Fraction(1, 2), max_denominator=60)


def test_sizes_of_any_roster() -> None:
    """What is found holds by exact counting, with the smallest threshold; two neighbours fewer do not hold."""
    seen: Counter[str] = Counter()

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(size=st.integers(COMPLETE_UP_TO + 1, 2500), corrupt=fractions, dropout=fractions)
    def check(size: int, corrupt: Fraction, dropout: Fraction) -> None:
        oracle = Oracle(size, corrupt, dropout)
        try:
            degree, t = round_parameters(size, corrupt, dropout)
        except PlanError:
            most = min(MAX_NEIGHBOURS, size - 2) // 2 * 2
            assert oracle.threshold(most) is None
            assert size > MAX_NEIGHBOURS + 1 or size - oracle.dropped < threshold(size, corrupt)
            seen["none"] += 1
            return
        if degree == size - 1:
            assert t == threshold(size, corrupt)
            assert 2 * t > size + oracle.corrupt
            assert size - oracle.dropped >= t
            seen["complete"] += 1
            return
        assert oracle.threshold(degree) == t
        assert degree == 2 or oracle.threshold(degree - 2) is None
        assert oracle.nearest > 1e-6
        seen["sparse"] += 1

    check()
    assert min(seen["sparse"], seen["none"]) > 20


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_shape_of_any_graph(data: st.DataObject) -> None:
    """Regular and mutual, at places at most k/2 apart in one order, whoever is asked first."""
    size = data.draw(st.integers(4, 60))
    degree = 2 * data.draw(st.integers(1, (size - 2) // 2))
    graph = graph_of(size, degree, data.draw(st.binary(min_size=32, max_size=32)))
    asked = data.draw(st.permutations(range(size)))
    near = {index: graph.neighbours(index) for index in asked}
    for index, others in near.items():
        assert len(others) == len(set(others) - {index}) == degree
        assert list(others) == sorted(others)
        assert all(index in near[other] for other in others)
        assert [graph.share_x(index, other) for other in graph.holders(index)] == list(range(1, degree + 1))
    if degree < size - 2:
        # Next to each other in the order: as many common neighbours as a ring allows, k - 2; nobody has more.
        common = [len({*near[index]} & {*near[other]}) for index in near for other in near[index]]
        assert max(common) >= degree - 2
