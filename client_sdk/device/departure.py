"""A user who withdraws consent, opts out, or comes back: what stops at once, and what the collector must still hear.

Rules of this file: memory goes first, then the disk, and only then the network hears of it; what cannot be written is
raised, for the user was promised it; a deletion request outlives consent, process and host.
What it does not do: it knows neither rows (`forgetting`) nor calls (`deletion`).
"""

from __future__ import annotations

import os

from client_sdk.errors import RefusalReason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from client_sdk.device.direct_calls import BeforeSend
    from client_sdk.device.engine import Engine


class Departure:
    """One client's way out and in again. `opted_out`: the user has, as far as this process knows."""

    def __init__(self, engine: Engine) -> None:
        self.opted_out = False
        self._engine = engine
        self._withdrawals = 0

    def look(self) -> bool:
        """Has the user opted out, in any process? Then what the collector must hear is on its way. StorageError."""
        self.opted_out = self._engine.access.store().opted_out()
        if self.opted_out:
            self.send_deletions()
        return self.opted_out

    def withdraw(self, reason: RefusalReason) -> None:
        """Drop readings and whatever waits. What was charged stays charged. Raises StorageError."""
        self._stop_at_once(reason)
        if os.path.isdir(self._engine.settings.data_dir):
            self._engine.access.store().withdraw(reason, self._engine.clock())
            self.look()

    def opt_out(self) -> None:
        """Drop all, for good, and have the collector forget this identity. Raises StorageError: then call it again."""
        self._stop_at_once(RefusalReason.OPTED_OUT)
        self.opted_out = True
        self._engine.access.store().opt_out(self._engine.clock())
        self.send_deletions()

    def _stop_at_once(self, reason: RefusalReason) -> None:
        """From here on no reading is taken and no message of a round leaves."""
        engine = self._engine
        engine.recording = False
        self._withdrawals += 1
        engine.recorder.stop(reason)
        engine.sealer.drop()
        engine.leave_uploader(lambda: False, 0.0)

    def opt_in(self, token: str | None) -> None:
        """Record again, under a new identity, which `token` enrols. Raises StorageError, ConfigurationError."""
        self._engine.access.store().opt_in()
        self.opted_out = False
        self._engine.connections.use_token(token)
        self._engine.begin()

    def send_deletions(self) -> None:
        """Wake the thread if the collector is still to be told to forget somebody. Raises StorageError."""
        settings = self._engine.settings
        if settings.disabled or not settings.background:
            return
        if self._engine.access.store().next_deletion() is not None:
            self._engine.uploader().ask()

    async def run(self, *, everything: bool) -> dict[str, int]:
        """Send the deletion requests that are due (or all); what failed, by reason. Raises StorageError."""
        engine = self._engine
        store = await engine.wait_for(engine.access.store)
        if await engine.wait_for(store.next_deletion) is None:
            return {}
        deletions = await engine.wait_for(engine.connections.deletions)
        return await deletions.run(store, everything=everything)

    def unless_withdrawn(self, before_send: BeforeSend | None) -> BeforeSend:
        """`before_send`, until consent is withdrawn: then nothing more of a round leaves."""
        begun = self._withdrawals

        def check(step: str) -> object:
            if self._withdrawals != begun:
                from client_sdk.device.session import NoLongerWaitingError  # which is what asks, so it is there

                raise NoLongerWaitingError("consent was withdrawn")
            return None if before_send is None else before_send(step)

        return check
