"""What happens to living clients when the process forks or ends.

Rules of this file: after a fork the child's copy starts anew (locks, thread, randomness owner, readings: the
parent still has them and will speak for them); at exit an open client is closed with no time to wait, so that
its period is sealed and on disk. References are weak: a client that nobody holds, neither the host nor its
background thread, is nobody's business.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from client_sdk.device.engine import Engine

_living: weakref.WeakSet[Engine] = weakref.WeakSet()
_hooks: list[str] = []


def register(engine: Engine) -> None:
    """Watch over a client's `engine` until it is closed."""
    _living.add(engine)
    if not _hooks:
        _hooks.append("installed")
        atexit.register(_close_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_renew_all)


def forget(engine: Engine) -> None:
    """It is closed."""
    _living.discard(engine)


def _close_all() -> None:
    for engine in list(_living):
        engine.close(timeout_s=0.0)


def _renew_all() -> None:
    uploader = sys.modules.get("client_sdk.device.uploader")
    if uploader is not None:
        uploader.forget_all()
    for engine in list(_living):
        engine.renew()
