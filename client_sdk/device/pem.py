"""A PEM file, or PEM bytes: checked when the client is made, read again when the file has changed on disk.

Rules of this file: what cannot be used at the start raises ConfigurationError; later a changed file that cannot be
used keeps what was read before, and is said once for each of its states. Looking costs one `stat` a connection.

Like `settings` this module is on the path of `from client_sdk import TelemetryClient`: no heavy imports.
"""

from __future__ import annotations

import os

from client_sdk.errors import ConfigurationError

MAX_BYTES = 4 << 20
CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
PRIVATE_KEY = b"PRIVATE KEY-----"


class Pem:
    """`name` is the setting's; `marker` must stand in it, e.g. CERTIFICATE. Never shows its content."""

    __slots__ = ("_data", "_marker", "_name", "_path", "_state")

    def __init__(self, name: str, value: bytes | str | os.PathLike[str], marker: bytes) -> None:
        self._name = name
        self._marker = marker
        self._path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
        self._state = self._look()
        self._data = self._checked(value) if self._path is None else self._checked(self._read())

    def __repr__(self) -> str:
        return f"Pem({self._name}, {self._path!r})"

    def current(self) -> bytes:
        """The file as it is now where it can be used, else as it was. Never raises."""
        state = self._look()
        if state != self._state:
            self._state = state
            try:
                self._data = self._checked(self._read())
            except ConfigurationError as error:
                from client_sdk.device.reporting import logger

                logger().warning("%s; what was read before stays in use", error)
        return self._data

    def _look(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except (OSError, ValueError):
            return (0, 0, 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _read(self) -> bytes:
        try:
            with open(self._path or "", "rb") as file:
                return file.read(MAX_BYTES)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"{self._name}: {self._path!r}: cannot be read ({why})") from None

    def _checked(self, data: object) -> bytes:
        if not isinstance(data, bytes) or self._marker not in data:
            where = self._name if self._path is None else f"{self._name}: {self._path!r}"
            what = "certificates" if self._marker == CERTIFICATE else "an unencrypted private key"
            raise ConfigurationError(f"{where}: must hold {what} in PEM form")
        return data


def pem_or_none(name: str, value: bytes | str | os.PathLike[str] | None, marker: bytes) -> Pem | None:
    """A setting that may be left out. Raises ConfigurationError."""
    return None if value is None else Pem(name, value, marker)
