"""Who is calling: a bearer token's role, or a device by its assertion.

Rules of this file:
- nothing that a caller sends is looked up: tokens that hold are few and kept here, and each is compared in constant
  time; so a guess costs one hash and says nothing by the time it takes, and a flood of guesses never reaches the disk;
- what the store says of tokens is read again at most once a second, so a revoked one ends within that;
- whoever shows something that does not hold is nobody, whatever else it shows.
What it does not do: it decides nothing about what a caller may do; `gate` does.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from client_sdk.assertion import METADATA_KEY, check_assertion, said_at
from client_sdk.certificate import Role
from client_sdk.errors import RejectionError, RejectionReason
from collector.service.storage import AccessToken, CollectorStore
from collector.service.storage_tokens import hash_of
from collector.service.store_access import StoreAccess

BEARER_KEY: Final = "authorization"
BEARER: Final = "bearer "
MAX_TOKEN_CHARS: Final = 256
READ_AGAIN_S: Final = 1.0

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose word was checked. `device_id` for devices, else empty."""

    role: Role
    device_id: str = ""


class Access:
    """Judges metadata. Used on the event loop only.

    is_our_name: is that a name under which devices dial this collector? clock: seconds since the epoch. on_skew: told
    how far the clock of a proven device is ahead of that, in seconds.
    """

    def __init__(
        self,
        store: StoreAccess[CollectorStore],
        registrar_key: bytes,
        is_our_name: Callable[[str], bool],
        clock: Callable[[], float],
        on_skew: Callable[[float], None] = lambda _ahead_s: None,
    ) -> None:
        self._store = store
        self._registrar_key = registrar_key
        self._is_our_name = is_our_name
        self._clock = clock
        self._on_skew = on_skew
        self._live: tuple[AccessToken, ...] = ()
        self._read_at = float("-inf")
        self._reading: asyncio.Lock = asyncio.Lock()

    async def caller(self, method: str, metadata: Metadata) -> Caller | None:
        """Who calls `method`; None for somebody who shows nothing. Raises RejectionError, StoreError."""
        shown = [(key, value) for key, value in metadata if key in {BEARER_KEY, METADATA_KEY}]
        if not shown:
            return None
        if len(shown) > 1:
            raise RejectionError(RejectionReason.BAD_CREDENTIALS)
        key, value = shown[0]
        if key == BEARER_KEY:
            return Caller(await self._role_of(value))
        data = value if isinstance(value, bytes) else value.encode()
        return Caller(Role.DEVICE, self._device(method, data))

    def _device(self, method: str, data: bytes) -> str:
        now = self._clock()
        device = check_assertion(data, self._registrar_key, method, self._is_our_name, now)
        self._on_skew(said_at(data) - now)
        return device

    async def _role_of(self, value: str | bytes) -> Role:
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        if not text[: len(BEARER)].lower() == BEARER or len(text) > len(BEARER) + MAX_TOKEN_CHARS:
            raise RejectionError(RejectionReason.BAD_CREDENTIALS)
        await self._read_tokens()
        shown, now = hash_of(text[len(BEARER) :]), self._clock()
        found = [token for token in self._live if hmac.compare_digest(token.token_hash, shown)]
        if not found or not found[0].is_live(now):
            raise RejectionError(RejectionReason.BAD_CREDENTIALS)
        return found[0].role

    async def _read_tokens(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._reading:
            if loop.time() - self._read_at < READ_AGAIN_S:
                return
            tokens = await self._store.call(CollectorStore.access_tokens)
            self._live = tuple(token for token in tokens if token.is_live(self._clock()))
            self._read_at = loop.time()
