"""Mechanisms that make a place of their reading, and leave the report to another mechanism.

Rules of this file: what is sent, how private it is and what it may add up to are the inner mechanism's answers, to the
letter: it is told the place and nothing else, and randomised rounding on the way to it mixes places, which no mixture
makes easier to tell apart.
What it does not do: read a reading, or say what a total means.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from client_sdk.accounting.loss import PrivacyLoss
    from client_sdk.mechanisms.categories import CategoricalMechanism
    from client_sdk.mechanisms.square_wave import SquareWave

Inner = TypeVar("Inner", bound="CategoricalMechanism | SquareWave")


class Coded(Generic[Inner]):
    """Base of frozen dataclasses, which set `inner`."""

    inner: Inner

    @property
    def name(self) -> str:
        """The plan's word for the mechanism that sends the place."""
        return self.inner.name

    @property
    def length(self) -> int:
        """The inner mechanism's."""
        return self.inner.length

    @property
    def bound(self) -> int:
        """The inner mechanism's."""
        return self.inner.bound

    @property
    def worst_ratio(self) -> Fraction | float:
        """The inner mechanism's: a place is all that it is told."""
        return self.inner.worst_ratio

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """The inner mechanism's."""
        return self.inner.losses

    def is_plausible(self, total: Sequence[int], contributors: int) -> bool:
        """The inner mechanism's answer."""
        return self.inner.is_plausible(total, contributors)
