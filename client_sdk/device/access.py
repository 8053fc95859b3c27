"""A client's way to its store: opened on first need, its failures counted and warned about once."""

from __future__ import annotations

import threading

from client_sdk.errors import RefusalReason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from client_sdk.device.recorder import Recorder
    from client_sdk.device.reporting import Outages
    from client_sdk.device.storage import DeviceStore
    from client_sdk.errors import StorageError

STORE = "device store"
LEDGER = "ledger"


class StoreAccess:
    """The store of one folder, for one process."""

    def __init__(self, data_dir: str, recorder: Recorder) -> None:
        self.data_dir = data_dir
        self._recorder = recorder
        self._keeping = threading.Lock()
        self._store: DeviceStore | None = None
        self._outages: Outages | None = None

    @property
    def is_open(self) -> bool:
        """Has anybody needed the store yet?"""
        return self._store is not None

    def store(self) -> DeviceStore:
        """The folder's store. Raises StorageError."""
        if self._store is None:
            from client_sdk.device.storage import DeviceStore

            self._store = DeviceStore(self.data_dir)
        return self._store

    def outages(self) -> Outages:
        """What is out of order, for one warning each."""
        if self._outages is None:
            from client_sdk.device import fork_gate

            with fork_gate.closed():
                from client_sdk.device.reporting import Outages

            self._outages = Outages()
        return self._outages

    def failed(self, error: StorageError) -> None:
        """Count it, and warn once."""
        self._recorder.count(RefusalReason.STORAGE.value)
        self.outages().begin(STORE, str(error))

    def works(self, what: str = STORE) -> None:
        """The store took a write, or `what` is in order again."""
        if self._outages is not None:
            self._outages.end(what)

    def keep_counts(self) -> None:
        """Move what was counted in memory to the store. Raises StorageError."""
        with self._keeping:
            counts = self._recorder.counts()
            if counts:
                self.store().add_counts(counts)
                self._recorder.uncount(counts)
