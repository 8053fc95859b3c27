"""A server's TLS files: certificate, key and the authority of its clients, read again when they change on disk.

Rules of this file: connections that begin after a good change get the new certificate, those that are open go on; a
change that cannot be used (half written, key and certificate of different pairs) keeps what worked, and is said once
for each state of the files; so is a certificate that ends soon, has ended, or has not begun.
What it does not do: it needs no signal and no restart; it looks at the files' times every two seconds, and reads them
when they have stayed the same for one look.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from cryptography import x509

from client_sdk.errors import ConfigurationError
from collector.service.logs import fields
from collector.service.settings import read_tls

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0
SOON_S: Final = 14 * 86_400

State = tuple[tuple[int, int, int], ...]
"""Inode, size and time of change of each file."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the files said when they were good. names: lower case, as the certificate has them."""

    configuration: grpc.ServerCertificateConfiguration
    names: frozenset[str]
    begins_at: float
    ends_at: float


class TlsFiles:
    """Raises ConfigurationError where the files cannot be used at the start; afterwards it only warns.

    client_ca: clients must present a certificate of that authority. clock: seconds since the epoch.
    """

    def __init__(
        self, cert: Path, key: Path, client_ca: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._clock = clock
        self._state = self._changing = self._look()
        self._loaded = self._load()
        self._said = ""
        self._say_times()

    @property
    def names(self) -> frozenset[str]:
        """Host names and addresses that the certificate is for."""
        return self._loaded.names

    @property
    def ends_at(self) -> float:
        """When the certificate ends, seconds since the epoch."""
        return self._loaded.ends_at

    def credentials(self) -> grpc.ServerCredentials:
        """For a server; every handshake asks for the newest configuration."""
        return grpc.dynamic_ssl_server_credentials(
            self._loaded.configuration,
            lambda: self._loaded.configuration,
            require_client_authentication=self._client_ca is not None,
        )

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Read the files where they have changed. Never raises."""
        state = self._look()
        if state == self._state:
            self._say_times()
            return
        if state != self._changing:  # seen once more as it is now: whoever replaces two files is done then
            self._changing = state
            return
        self._state = state
        try:
            self._loaded = self._load()
        except ConfigurationError as error:
            said = fields("tls_unusable")
            log.error("TLS files changed and cannot be used, the old ones stay in use: %s", error, extra=said)
            return
        log.info("TLS files changed: new connections get the new certificate", extra=fields("tls_changed"))
        self._said = ""
        self._say_times()

    def _files(self) -> tuple[Path, ...]:
        return (self._cert, self._key) if self._client_ca is None else (self._cert, self._key, self._client_ca)

    def _look(self) -> State:
        return tuple(map(_state_of, self._files()))

    def _load(self) -> _Loaded:
        private, chain = read_tls(self._cert, self._key)
        authority = None if self._client_ca is None else _read_authority(self._client_ca)
        try:
            own = x509.load_pem_x509_certificate(chain)
        except ValueError:
            raise ConfigurationError(f"--tls-cert {self._cert}: not an X.509 certificate in PEM form") from None
        configuration = grpc.ssl_server_certificate_configuration([(private, chain)], authority)
        begins, ends = own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
        return _Loaded(configuration, _names_of(own), begins, ends)

    def _say_times(self) -> None:
        now, loaded = self._clock(), self._loaded
        if now >= loaded.ends_at:
            said = "has expired: nobody will connect until it is replaced"
        elif now < loaded.begins_at:
            said = "is not valid yet: nobody will connect until it is, or the clock is wrong"
        elif now >= loaded.ends_at - SOON_S:
            said = "expires in less than 14 days"
        else:
            said = ""
        if said and said != self._said:
            log.warning("--tls-cert %s: the certificate %s", self._cert, said, extra=fields("tls_warning"))
        self._said = said


def _state_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _read_authority(path: Path) -> bytes:
    """PEM certificates. Raises ConfigurationError."""
    try:
        data = path.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=data.decode("ascii"))
    except OSError as error:
        raise ConfigurationError(f"--client-ca {path}: {error.strerror}") from None
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise ConfigurationError(f"--client-ca {path}: holds no certificates in PEM form") from None
    return data


def _names_of(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    found = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return frozenset([*found, *map(str, names.get_values_for_type(x509.IPAddress))])


def is_name_of(host: str, names: frozenset[str]) -> bool:
    """Is `host` one of these names, or does it match a `*.` in place of its first label?"""
    host = host.lower().strip("[]")
    try:
        return str(ipaddress.ip_address(host)) in names
    except ValueError:
        return host in names or f"*.{host.partition('.')[2]}" in names
