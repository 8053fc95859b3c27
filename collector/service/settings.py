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
import sys
from dataclasses import dataclass, field
from pathlib import Path

from client_sdk.errors import ConfigurationError, TelemetryError
from client_sdk.files import load_public_key

DEFAULT_LISTEN = "127.0.0.1:7443"
DURATION = re.compile(r"^(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>ms|s|m|h|d)?$")
SIZE = re.compile(r"([0-9]{1,12})(KB|MB|GB|TB)?", re.ASCII)
BYTES_PER_UNIT = {"": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000, "TB": 1_000_000_000_000}
NAME = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII)
SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}

LOG_FORMATS = ("console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")

DAY_S = 86_400
MIN_KEEP_SPENDS_S = 365 * DAY_S
"""The longest window that figures are shown for."""

KEEP_CONTRIBUTIONS_S = 400 * DAY_S
MAX_KEEP_S = 366_000 * DAY_S
MAX_WAIT_S = DAY_S
"""A step, or a farewell, that takes longer is a slip; and timers do not reach without end."""

MAX_CALLS = 1_000_000
"""At once: more than any machine has descriptors for, and far below where the transport's counters end."""

MAX_WORKERS = 256
MAX_DEVICES = 1_000_000_000
MAX_ROUND_BYTES = 1_000 * 10**12
SHOWN = 24
"""Digits of a refused number that are repeated."""

FOREVER = "forever"


class MachineError(TelemetryError):
    """The machine does not let the collector work as configured: a port in use, no permission."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Everything `serve` needs. Raises ConfigurationError for what cannot work.

    plan_paths: the plans to serve, TOML files; older versions come from the store.
    db_url: the store, as an SQLAlchemy URL.
    registrar_key: whose certificates count: 64 hex digits, or the path of a file that holds them.
    listen: HOST:PORT; port 0 lets the system choose.
    step_timeout_s: how long one step of a round, or of a handshake, waits for its participants.
    grace_s: how long running rounds may go on after the first SIGTERM or SIGINT.
    expected_devices: joins expected per plan and period, so that the last cohort need not wait; None: unknown.
    max_waiting: participants that may wait for a cohort, over all plans.
    max_streams: streams that may be open at once.
    opening_workers: processes that open sums.
    client_ca: clients must present a certificate of this authority (mTLS).
    names: under which devices dial this collector, HOST or HOST:PORT; empty: those in the TLS certificate.
    max_streams_per_address: calls that one address may have open at once.
    max_joins: joins of one device for one period within an hour.
    max_round_bytes: the most memory that one round of a plan may need.
    metrics: HOST:PORT of the page for Prometheus; None: there is none. metrics_public: also beyond this machine.
    log_format, log_level: of LOG_FORMATS and LOG_LEVELS.
    drain_s: how long the collector goes on after the first signal while its health already says that it stops.
    reflection: answer gRPC's reflection, from which tools learn the services.
    keep_spends_s, keep_contributions_s, keep_rounds_s: what housekeeping keeps, see `retention`; infinite: for good.
    """

    plan_paths: tuple[Path, ...]
    db_url: str = field(repr=False)
    registrar_key: str = ""
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
    client_ca: Path | None = None
    names: tuple[str, ...] = ()
    max_streams_per_address: int = 2_000
    max_joins: int = 60
    max_round_bytes: int = 2_000_000_000
    metrics: str | None = None
    metrics_public: bool = False
    log_format: str = "console"
    log_level: str = "info"
    drain_s: float = 0.0
    reflection: bool = False
    keep_spends_s: float = MIN_KEEP_SPENDS_S
    keep_contributions_s: float = KEEP_CONTRIBUTIONS_S
    keep_rounds_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.plan_paths:
            raise ConfigurationError("--plan: name at least one plan file")
        if not self.registrar_key:
            raise ConfigurationError(
                "--registrar-key: give the registrar's public key, as 64 hex digits or a file "
                "(`ldp-collector registrar init` makes one)"
            )
        check_transport(self.listen, self.tls_cert, self.tls_key, insecure=self.insecure)
        check_wait("--step-timeout", self.step_timeout_s, "30s", above_zero=True)
        check_wait("--grace", self.grace_s, "10s")
        check_wait("--drain", self.drain_s, "5s")
        self._check_limits()
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigurationError(
                "--client-ca: clients have certificates over TLS only; give --tls-cert and --tls-key"
            )
        if bad := [name for name in self.names if not NAME.fullmatch(name)]:
            raise ConfigurationError(f"--name: {bad[0]!r} is not HOST or HOST:PORT")
        check_metrics(self.metrics, public=self.metrics_public)
        check_log(self.log_format, self.log_level)
        check_retention(self.keep_spends_s, self.keep_contributions_s, self.keep_rounds_s)

    def _check_limits(self) -> None:
        if self.expected_devices is not None:
            check_whole("--expected-devices", self.expected_devices, MAX_DEVICES)
        check_whole("--max-waiting", self.max_waiting, MAX_DEVICES)
        check_whole("--max-streams", self.max_streams, MAX_CALLS)
        check_whole("--max-streams-per-address", self.max_streams_per_address, MAX_CALLS)
        check_whole("--max-joins", self.max_joins, MAX_CALLS)
        check_whole("--opening-workers", self.opening_workers, MAX_WORKERS)
        check_whole("--max-round-memory", self.max_round_bytes, MAX_ROUND_BYTES, " bytes (1000TB)")


def check_whole(option: str, value: int, most: int, unit: str = "") -> None:
    """Raises ConfigurationError for what is not in 1 to `most`, with the option, the value and the limit."""
    if not 1 <= value <= most:
        digits = str(value) if abs(value) < 10**SHOWN else "a number of more than 24 digits"
        raise ConfigurationError(f"{option}: must be a whole number, 1 to {most}{unit}, not {digits}")


def check_wait(option: str, seconds: float, example: str, *, above_zero: bool = False) -> None:
    """Raises ConfigurationError for a time that is negative, no number, or longer than MAX_WAIT_S."""
    if not 0.0 <= seconds <= MAX_WAIT_S or (above_zero and not seconds):
        least = "above 0" if above_zero else "at least 0"
        raise ConfigurationError(
            f"{option}: must be a time {least} and at most {MAX_WAIT_S} seconds (1d), not {seconds:g}; "
            f"use e.g. {example}"
        )


def check_metrics(address: str | None, *, public: bool) -> None:
    """Only this machine reads the metrics, unless asked otherwise. Raises ConfigurationError."""
    if address is None:
        if public:
            raise ConfigurationError("--metrics-public: goes with --metrics HOST:PORT")
        return
    host, _ = split_address(address, "--metrics")
    if not public and not is_loopback(host):
        raise ConfigurationError(
            f"--metrics: {host!r} can be reached from other machines, and the page is plain text without a password; "
            "use 127.0.0.1, or add --metrics-public where only Prometheus can reach it"
        )


def check_log(log_format: str, log_level: str) -> None:
    """Raises ConfigurationError."""
    if log_format not in LOG_FORMATS:
        raise ConfigurationError(f"--log-format: {log_format!r} is none of {', '.join(LOG_FORMATS)}")
    if log_level not in LOG_LEVELS:
        raise ConfigurationError(f"--log-level: {log_level!r} is none of {', '.join(LOG_LEVELS)}")


def check_retention(keep_spends_s: float, keep_contributions_s: float, keep_rounds_s: float) -> None:
    """Raises ConfigurationError. What plans need beyond that, housekeeping keeps by itself."""
    if not keep_spends_s >= MIN_KEEP_SPENDS_S:
        raise ConfigurationError(
            f"--keep-spends: must be at least {MIN_KEEP_SPENDS_S // DAY_S}d, the longest window that is shown"
        )
    for option, kept_s in (("--keep-contributions", keep_contributions_s), ("--keep-rounds", keep_rounds_s)):
        if not kept_s >= DAY_S:
            raise ConfigurationError(f"{option}: must be at least 1d")
    for option, kept_s in (
        ("--keep-spends", keep_spends_s),
        ("--keep-contributions", keep_contributions_s),
        ("--keep-rounds", keep_rounds_s),
    ):
        if MAX_KEEP_S < kept_s < math.inf:
            raise ConfigurationError(f"{option}: must be at most {MAX_KEEP_S // DAY_S}d, or `{FOREVER}`")


def check_transport(listen: str, tls_cert: Path | None, tls_key: Path | None, *, insecure: bool) -> None:
    """TLS, or plain text on loopback when asked for. Raises ConfigurationError for anything between."""
    host, _ = split_address(listen)
    given = (tls_cert is not None, tls_key is not None)
    if insecure:
        if any(given):
            raise ConfigurationError("--insecure and --tls-cert/--tls-key exclude each other; drop one of them")
        if not is_loopback(host):
            raise ConfigurationError(f"--insecure: plain text is served on loopback only, not on {host!r}")
    elif not all(given):
        raise ConfigurationError("--tls-cert and --tls-key: both are needed (or --insecure, on loopback)")


def split_address(address: str, option: str = "--listen") -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT` -> (host, port). Raises ConfigurationError, which names the option."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    plain = bool(host) and not set(host) & set("[]:/ ")
    if not colon or not (bracketed or plain) or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigurationError(f"{option}: {address!r} is not HOST:PORT, e.g. 127.0.0.1:7443 or [::1]:7443")
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
        raise ConfigurationError(f"{text[:40]!r} is not a duration; use e.g. 30s, 500ms or 2m")
    return float(match["number"]) * SECONDS_PER_UNIT[match["unit"]]


def parse_keep(text: str) -> float:
    """`90d`, or `forever` -> seconds, or infinitely many. Raises ConfigurationError."""
    if text.strip() == FOREVER:
        return math.inf
    return min(parse_duration(text), sys.float_info.max)  # digits without end are no way to say it


def parse_size(text: str) -> int:
    """`500000`, `512MB`, `2GB` -> bytes. Raises ConfigurationError."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} is not a size; use e.g. 512MB or 2GB")
    return int(match[1]) * BYTES_PER_UNIT[match[2] or ""]


def read_registrar_key(text: str) -> bytes:
    """32 bytes from 64 hex digits or a file. Raises ConfigurationError."""
    return load_public_key(text, "--registrar-key")


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
