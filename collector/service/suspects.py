"""Who was in rounds that ended in an impossible sum, so that rosters can be parted: see `collector.cohorts`.

Rules of this file: nobody is refused because of what stands here, and it names nobody: all contributors of such a sum
are suspects alike. A suspect that was left for the next roster is none until the next such sum. It is kept in memory
only, for the pools in which that happened last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collector.service.mailbox import PoolKey

MOST_POOLS = 256
"""Pools remembered; each has the identities of its own spoiled rounds."""


@dataclass(slots=True)
class _Record:
    rounds: int = 0
    left: int = 0


class Suspects:
    """Per pool and identity: rounds that ended in an impossible sum, and how often it was left for the next roster."""

    def __init__(self) -> None:
        self._pools: dict[PoolKey, dict[str, _Record]] = {}

    def spoiled(self, key: PoolKey, device_ids: Iterable[str]) -> None:
        """One of these spoiled a round."""
        records = self._pools[key] = self._pools.pop(key, {})  # last again
        for device_id in device_ids:
            records.setdefault(device_id, _Record()).rounds += 1
        if len(self._pools) > MOST_POOLS:
            del self._pools[next(iter(self._pools))]

    def left(self, key: PoolKey, device_ids: Iterable[str]) -> None:
        """These suspects were left for the next roster."""
        for device_id in device_ids:
            self._pools[key][device_id].left += 1

    def suspicion(self, key: PoolKey, device_id: str) -> int:
        """In how many such rounds it was; 0 too where it was left as often."""
        record = self._pools.get(key, {}).get(device_id)
        return 0 if record is None or record.rounds <= record.left else record.rounds
