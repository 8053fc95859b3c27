"""What happens to living clients when the process forks or ends.

Rules of this file: after a fork the child's copy starts anew (locks, thread, randomness owner, readings: the
parent still has them and will speak for them); at exit an open client is closed with no time to wait, so that
its period is sealed and on disk. References are weak: a client that nobody holds is nobody's business.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from client_sdk.device.client import TelemetryClient

_living: weakref.WeakSet[TelemetryClient] = weakref.WeakSet()
_hooks: list[str] = []


def register(client: TelemetryClient) -> None:
    """Watch over `client` until it is closed."""
    _living.add(client)
    if not _hooks:
        _hooks.append("installed")
        atexit.register(_close_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_renew_all)


def forget(client: TelemetryClient) -> None:
    """It is closed."""
    _living.discard(client)


def _close_all() -> None:
    for client in list(_living):
        client.close(timeout_s=0.0)


def _renew_all() -> None:
    uploader = sys.modules.get("client_sdk.device.uploader")
    if uploader is not None:
        uploader.forget_all()
    for client in list(_living):
        client.after_fork()
