"""The tests' registrar: one key, certificates by hand, and the real service in a thread for clients that enrol.

with running(tmp_path / "registrar") as registrar:
    TelemetryClient(endpoint, enrolment_token=registrar.token(), **registrar.settings, ...)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.identity import IdentityKey
from collector.service.registrar.folder import RegistrarFolder
from collector.service.registrar.issuing import Terms
from collector.service.registrar.key import write_new
from collector.service.registrar.service import RegistrarService, RegistrarSettings
from tests.fleet import REGISTRAR, certified
from tests.stopping import stopped

KEY = REGISTRAR.public_key
KEY_HEX = KEY.hex()
NOWHERE: dict[str, Any] = {"registrar": "127.0.0.1:9", "registrar_key": KEY}
"""A client's settings for a registrar that is never there: nobody listens on the discard port here."""

DAY_S = 86_400


def certificate_of(identity: IdentityKey, now: float | None = None, *, days: float = 30) -> bytes:
    """The registrar's word for a device, from `now` (else the real time) on."""
    issued_at = int(time.time() if now is None else now)
    return certified(identity.public_key, issued_at=issued_at, expires_at=issued_at + int(days * DAY_S))


def folder_with_key(path: Path) -> RegistrarFolder:
    """A registrar's folder whose key is REGISTRAR's."""
    folder = RegistrarFolder(path)
    path.mkdir(mode=0o700, parents=True)
    private = Ed25519PrivateKey.from_private_bytes(REGISTRAR.seed)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_new(folder.key_path, pem)
    folder.create(keep_key=True)
    return folder


class Running:
    """The real service in a thread of its own."""

    def __init__(self, folder: RegistrarFolder, clock: Callable[[], float], options: dict[str, Any]) -> None:
        self.folder = folder
        self.clock = clock
        self._settings = RegistrarSettings(folder.path, **({"listen": "127.0.0.1:0", "insecure": True} | options))
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.service = await RegistrarService.start(self._settings, self.clock)
        self.address = self.service.address
        self._ready.set()
        await self._stop.wait()
        assert await stopped(self.service)

    def stop(self) -> None:
        """Out of reach from here on."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    @property
    def settings(self) -> dict[str, Any]:
        """What a client is told about it."""
        return {"registrar": self.address, "registrar_key": KEY}

    @property
    def counts(self) -> dict[str, int]:
        return self.service.monitor.snapshot()

    def token(self) -> str:
        return self.service.store.issue_tokens(1, self.clock())[0]

    def tokens(self, count: int) -> list[str]:
        return self.service.store.issue_tokens(count, self.clock())


@contextmanager
def running(
    path: Path, clock: Callable[[], float] = time.time, terms: Terms | None = None, **options: Any
) -> Iterator[Running]:
    """A registrar on loopback over a new folder at `path`."""
    registrar = Running(folder_with_key(path), clock, options | ({} if terms is None else {"terms": terms}))
    registrar.start()
    try:
        yield registrar
    finally:
        if registrar._thread.is_alive():
            registrar.stop()
