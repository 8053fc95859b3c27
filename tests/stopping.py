"""The end of a service in a test: its store may take longer to close than an operator would wait."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol
from unittest import mock


class Stoppable(Protocol):
    """A collector's service, or a registrar's."""

    def stop(self, grace_s: float) -> Awaitable[bool]:
        """False where the store did not close in time."""


async def stopped(service: Stoppable, grace_s: float = 0.0) -> bool:
    """Did its store close? A disk that others keep busy for a second is no fault of ours."""
    with (
        mock.patch("collector.service.app.STORE_CLOSE_S", 20.0),
        mock.patch("collector.service.registrar.service.STORE_CLOSE_S", 20.0),
    ):
        return await service.stop(grace_s)
