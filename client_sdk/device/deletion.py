"""Carries deletion requests to the collector until it acknowledges them, over a connection of their own.

Rules of this file: a request leaves as it was signed when the user opted out; only an acknowledgement ends it, every
other end is a backoff that is stored, counted as `deletion_*`; nothing of the network raises into the host.
What it does not do: it needs no identity, no plan and no consent, and sends nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from client_sdk.device.forgetting import PendingDeletion
from client_sdk.device.interfaces import CallFailedError, Transport
from client_sdk.device.offload import run_job
from client_sdk.device.period import uniform
from client_sdk.device.reporting import Outages
from client_sdk.device.storage import DeviceStore
from client_sdk.errors import WireError
from client_sdk.mechanisms import Entropy

DELETION = "deletion"
BACKOFF_BASE_S = 2.0
BACKOFF_CAP_S = 3600.0

Result = TypeVar("Result")


@dataclass
class Deletions:
    """Sends one folder's deletion requests. off_loop: as in `Delivery`."""

    transport: Transport
    clock: Callable[[], float]
    entropy: Entropy
    outages: Outages = field(default_factory=Outages, repr=False)
    off_loop: bool = False

    async def _wait_for(self, job: Callable[[], Result]) -> Result:
        return await run_job(job, off_loop=self.off_loop)

    async def run(self, store: DeviceStore, *, everything: bool) -> dict[str, int]:
        """Try every request that is due (or all). Failures by the name they are counted under. Raises StorageError."""
        failed: dict[str, int] = {}
        for pending in await self._wait_for(partial(store.pending_deletions, self.clock(), everything=everything)):
            reason = await self._send(pending)
            key = pending.request.identity_key
            if reason is None:
                await self._wait_for(partial(store.deletion_acknowledged, key))
                self.outages.end(DELETION)
                continue
            failed[reason] = failed.get(reason, 0) + 1
            self.outages.begin(DELETION, f"request not acknowledged ({reason}); it waits on disk and is repeated")
            not_before = self.clock() + self._backoff_s(pending.attempts)
            await self._wait_for(partial(store.postpone_deletion, key, not_before, reason))
        return failed

    async def _send(self, pending: PendingDeletion) -> str | None:
        """None: acknowledged."""
        try:
            async with self.transport.connect() as connection:
                await connection.delete(pending.request)
        except CallFailedError as error:
            return f"deletion_rpc_{error.status}"
        except WireError:
            return "deletion_malformed_answer"
        return None

    def _backoff_s(self, attempts: int) -> float:
        """Exponential with full jitter."""
        return uniform(min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(attempts, 32)), self.entropy)
