"""Basic composition: exact integers, an honest median, a certainty that cannot overflow."""

from __future__ import annotations

import pytest

from collector.accounting.basic import WINDOWS, best_certainty, distribution


@pytest.mark.parametrize(
    ("lifetimes", "expected"),
    [
        ([], (0, None, None, None)),
        ([7], (1, 7, 7, 7)),
        ([3, 1], (2, 1, 2, 3)),
        ([2, 1], (2, 1, 2, 2)),  # 1.5 rounds up: never less than was spent
        ([9, 1, 5], (3, 1, 5, 9)),
        ([10**15, 1, 1, 10**15 - 1], (4, 1, 5 * 10**14, 10**15)),
    ],
)
def test_distribution(lifetimes: list[int], expected: tuple[int | None, ...]) -> None:
    d = distribution(lifetimes)
    assert (d.devices, d.min_micro, d.median_micro, d.max_micro) == expected


@pytest.mark.parametrize(
    ("micro", "certainty"), [(0, 0.5), (1_000_000, 0.7310586), (3_000_000, 0.9525741), (10**15, 1.0)]
)
def test_best_certainty(micro: int, certainty: float) -> None:
    assert best_certainty(micro) == pytest.approx(certainty, abs=1e-7)


def test_windows_grow() -> None:
    assert list(WINDOWS) == ["24h", "7d", "30d", "365d"]
    assert list(WINDOWS.values()) == sorted(WINDOWS.values())
