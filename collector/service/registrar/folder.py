"""A registrar's folder: `registrar.key` (0600), `registrar.pub` (its public half, for everybody), `registrar.db`.

The store may be elsewhere, in a PostgreSQL database of its own; key and public half stay in the folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from client_sdk.errors import ConfigurationError
from client_sdk.identity import IdentityKey
from collector.service.registrar.key import create_key, read_key, write_new
from collector.service.registrar.store import RegistrarStore
from collector.service.settings import MachineError


@dataclass(frozen=True, slots=True)
class RegistrarFolder:
    """Where one registrar keeps its key and its store. db: the store's URL, where it is not in the folder."""

    path: Path
    db: str | None = field(default=None, repr=False)

    @property
    def key_path(self) -> Path:
        """The signing key."""
        return self.path / "registrar.key"

    @property
    def public_path(self) -> Path:
        """64 hex digits: what collectors and devices pin."""
        return self.path / "registrar.pub"

    @property
    def db_path(self) -> Path:
        """The store, where it is in the folder."""
        return self.path / "registrar.db"

    @property
    def db_url(self) -> str:
        """The store, wherever it is."""
        return self.db or str(self.db_path)

    def create(self, *, keep_key: bool = False) -> IdentityKey:
        """A new key and an empty store; with `keep_key` only the store, beside a key that is there.

        Raises ConfigurationError where that would take the place of something, StoreError, OSError.
        """
        if self.db is None and self.db_path.exists():
            raise ConfigurationError(f"{self.db_path}: is there already, and is never replaced; name another folder")
        if keep_key:
            key = read_key(self.key_path)
        else:
            self._make()
            key = create_key(self.key_path)
        if not self.public_path.exists():
            write_new(self.public_path, f"{key.public_key.hex()}\n".encode(), 0o644)
        store = RegistrarStore.open(self.db_url)
        try:
            if not store.belongs_to(key.public_key):
                raise ConfigurationError(f"{store.where}: is another registrar's store; name another database")
        finally:
            store.close()
        return key

    def _make(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(
                f"--dir {self.path}: cannot be made ({error.strerror}); name a folder where this user may write"
            ) from None

    def key(self) -> IdentityKey:
        """The signing key. Raises ConfigurationError."""
        return read_key(self.key_path)

    def open_store(self) -> RegistrarStore:
        """The store, which must be there: an empty one in its place would have forgotten who is revoked. StoreError."""
        return RegistrarStore.open_existing(self.db_url)

    def open_own_store(self, key: IdentityKey) -> RegistrarStore:
        """To serve: the store of the registrar with this key, brought up to date. StoreError, ConfigurationError."""
        store = RegistrarStore.open_existing(self.db_url, migrate=True)
        try:
            if not store.belongs_to(key.public_key):
                raise ConfigurationError(
                    f"{store.where}: belongs to another key than {self.key_path}; put back the one or the other"
                )
        except BaseException:
            store.close()
            raise
        return store
