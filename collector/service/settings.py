"""What an operator decides about a running collector, checked once, before anything is opened.

Rules of this file: a setting that cannot work raises `ConfigurationError` (exit 2), something the machine
refuses raises `MachineError` (exit 3); both say in one line what, where and what to do. Plain text is
possible only on loopback, and only when asked for.
"""

from __future__ import annotations

import ipaddress
import math
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import ConfigurationError, TelemetryError

DEFAULT_LISTEN = "127.0.0.1:7443"
DURATION = re.compile(r"^(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>ms|s|m|h)?$")
SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class MachineError(TelemetryError):
    """The machine does not let the collector work as configured: a port in use, no permission."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Everything `serve` needs. Raises ConfigurationError for what cannot work.

    plan_paths: the plans to serve, TOML files; older versions come from the store.
    db_url: the store, as an SQLAlchemy URL.
    listen: HOST:PORT; port 0 lets the system choose.
    step_timeout_s: how long one step of a round, or of a handshake, waits for its participants.
    grace_s: how long running rounds may go on after the first SIGTERM or SIGINT.
    expected_devices: joins expected per plan and period, so that the last cohort need not wait; None: unknown.
    max_waiting: participants that may wait for a cohort, over all plans.
    max_streams: streams that may be open at once.
    opening_workers: processes that open sums.
    """

    plan_paths: tuple[Path, ...]
    db_url: str
    listen: str = DEFAULT_LISTEN
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    step_timeout_s: float = 30.0
    grace_s: float = 10.0
    expected_devices: int | None = None
    max_waiting: int = 10_000
    max_streams: int = 20_000
    opening_workers: int = 1

    def __post_init__(self) -> None:
        if not self.plan_paths:
            raise ConfigurationError("--plan: name at least one plan file")
        host, _ = split_address(self.listen)
        _check_transport(self, host)
        _check_positive("--step-timeout", self.step_timeout_s)
        if not 0.0 <= self.grace_s < math.inf:
            raise ConfigurationError(f"--grace: {self.grace_s} is not a time; use seconds, e.g. 10s")
        if self.expected_devices is not None and self.expected_devices < 1:
            raise ConfigurationError(f"--expected-devices: must be at least 1, not {self.expected_devices}")
        if min(self.max_waiting, self.max_streams, self.opening_workers) < 1:
            raise ConfigurationError("limits on waiting participants, streams and workers must be at least 1")


def _check_transport(settings: ServeSettings, host: str) -> None:
    given = (settings.tls_cert is not None, settings.tls_key is not None)
    if settings.insecure:
        if any(given):
            raise ConfigurationError("--insecure and --tls-cert/--tls-key exclude each other; drop one of them")
        if not is_loopback(host):
            raise ConfigurationError(f"--insecure: plain text is served on loopback only, not on {host!r}")
    elif not all(given):
        raise ConfigurationError("--tls-cert and --tls-key: both are needed (or --insecure, on loopback)")


def _check_positive(option: str, seconds: float) -> None:
    if not 0.0 < seconds < math.inf:
        raise ConfigurationError(f"{option}: {seconds} is not a time above zero; use e.g. 30s")


def split_address(address: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT` -> (host, port). Raises ConfigurationError."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    plain = bool(host) and not set(host) & set("[]:/ ")
    if not colon or not (bracketed or plain) or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigurationError(f"--listen: {address!r} is not HOST:PORT, e.g. 127.0.0.1:7443 or [::1]:7443")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """True for addresses that never leave this machine, whatever a resolver says."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_duration(text: str) -> float:
    """`30`, `30s`, `500ms`, `2m` -> seconds. Raises ConfigurationError."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} is not a duration; use e.g. 30s, 500ms or 2m")
    return float(match["number"]) * SECONDS_PER_UNIT[match["unit"]]


def read_tls(cert: Path, key: Path) -> tuple[bytes, bytes]:
    """The key's and the chain's PEM bytes, after a look whether they belong together. Raises ConfigurationError."""
    try:
        pair = key.read_bytes(), cert.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError:
        raise ConfigurationError(
            f"--tls-cert {cert}, --tls-key {key}: not a PEM certificate chain with its own unencrypted key"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"--tls-cert {cert}, --tls-key {key}: {error.strerror}: {error.filename}") from None
    return pair


def _no_password() -> str:
    """An encrypted key must fail at once instead of asking at the terminal of a service."""
    return ""
