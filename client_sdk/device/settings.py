"""What the host configured: keyword first, then environment, then default; checked once, at construction.

Rules of this file: a setting that cannot work raises ConfigurationError here, with one line that names it,
never later in the background; plain text is allowed to this machine only; secrets (token, seal key) never
show in a repr and the token is forgotten when it has been used. The registrar is the host's choice or stands in the
plan that the host gave, never in one that was fetched. Environment: LDP_TELEMETRY_ENDPOINT, _DATA_DIR, _CA_FILE,
_REGISTRAR, _REGISTRAR_KEY, _DISABLED. What it does not do: it opens no connection and creates no file.

No dataclasses and no `typing` in here: this module is on the path of `from client_sdk import TelemetryClient`.
"""

from __future__ import annotations

import os

from client_sdk.device.pem import CERTIFICATE, PRIVATE_KEY, pem_or_none
from client_sdk.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client_sdk.accounting.budget import Amount, Limits
    from client_sdk.device.tls import TlsSettings
    from client_sdk.plan.model import Registrar

ENVIRONMENT_PREFIX = "LDP_TELEMETRY_"
MEMORY_SCHEME = "memory:"
"""Endpoints of the test helpers' in-memory collector begin with this; no byte leaves the process."""

SEAL_KEY_BYTES = 32
HASH_BYTES = 32
MAX_TOKEN_CHARS = 256
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})

FETCHED_PLAN_24H = "10"
FETCHED_PLAN_LIFETIME = "3650"
"""Epsilon a device spends at most under a plan that is fetched, unless the host says otherwise."""

FETCHED_PLAN_REPORT = "4"
FETCHED_PLAN_MIN_COHORT = 50
"""Of a fetched plan without a pin, which is the collector's choice, unless the host says otherwise. Fewer contributors
than that could be devices of the collector but one; and then the noise of one report is all that holds: at 4 it moves
nobody's odds by more than 55, and two daily reports fit into the 10 of any 24 hours."""


class Settings:
    """A client's configuration after checking. Attributes are plain values; see `TelemetryClient` for meanings."""

    __slots__ = (
        "allow_direct",
        "background",
        "can_upload",
        "client_certificate",
        "client_key",
        "data_dir",
        "disabled",
        "endpoint",
        "enrolment_token",
        "host_limits",
        "insecure",
        "min_cohort",
        "plan_hash",
        "plan_key",
        "registrar",
        "registrar_key",
        "root_certificates",
        "seal_key",
    )

    def __init__(
        self,
        *,
        endpoint: str | None,
        data_dir: str | os.PathLike[str] | None,
        enrolment_token: str | None,
        registrar: str | None,
        registrar_key: bytes | str | os.PathLike[str] | None,
        shipped_registrar: Registrar | None,
        root_certificates: bytes | str | os.PathLike[str] | None,
        client_certificate: bytes | str | os.PathLike[str] | None,
        client_key: bytes | str | os.PathLike[str] | None,
        insecure: bool,
        max_epsilon_report: Amount | None,
        max_epsilon_24h: Amount | None,
        max_epsilon_lifetime: Amount | None,
        max_rho_report: Amount | None,
        max_rho_24h: Amount | None,
        max_rho_lifetime: Amount | None,
        min_cohort: int | None,
        allow_direct: bool,
        seal_key: bytes | None,
        background: bool,
        can_upload: Callable[[], bool] | None,
        plan_hash: bytes | str | None,
        plan_key: bytes | str | os.PathLike[str] | None,
        plan_is_fetched: bool,
        environment: Mapping[str, str],
    ) -> None:
        self.disabled = _flag(environment, "DISABLED")
        self.insecure = _boolean("insecure", insecure)
        self.background = _boolean("background", background)
        self.endpoint = _endpoint(endpoint or environment.get(ENVIRONMENT_PREFIX + "ENDPOINT"), insecure=self.insecure)
        self.data_dir = _folder(data_dir or environment.get(ENVIRONMENT_PREFIX + "DATA_DIR"))
        self.enrolment_token = check_token(enrolment_token)
        self.registrar, self.registrar_key = "", b""
        if not self.in_memory:  # a collector in memory has its own
            address, key = (
                (None, None) if shipped_registrar is None else (shipped_registrar.address, shipped_registrar.key)
            )
            address = registrar or environment.get(ENVIRONMENT_PREFIX + "REGISTRAR") or address
            self.registrar = _registrar(address, insecure=self.insecure)
            self.registrar_key = _registrar_key(
                registrar_key or environment.get(ENVIRONMENT_PREFIX + "REGISTRAR_KEY") or key
            )
        roots = environment.get(ENVIRONMENT_PREFIX + "CA_FILE") if root_certificates is None else root_certificates
        self.root_certificates = pem_or_none("root_certificates", roots, CERTIFICATE)
        self.client_certificate = pem_or_none("client_certificate", client_certificate, CERTIFICATE)
        self.client_key = pem_or_none("client_key", client_key, PRIVATE_KEY)
        if (self.client_certificate is None) != (self.client_key is None):
            raise ConfigurationError("client_certificate and client_key: give both, or neither")
        self.plan_hash = _plan_hash(plan_hash)
        self.plan_key = _plan_key(plan_key, plan_is_fetched=plan_is_fetched)
        if plan_is_fetched:  # its numbers are the collector's: only limits from this side bound them
            max_epsilon_24h = FETCHED_PLAN_24H if max_epsilon_24h is None else max_epsilon_24h
            max_epsilon_lifetime = FETCHED_PLAN_LIFETIME if max_epsilon_lifetime is None else max_epsilon_lifetime
            if self.plan_hash is self.plan_key is None:
                max_epsilon_report = FETCHED_PLAN_REPORT if max_epsilon_report is None else max_epsilon_report
                min_cohort = FETCHED_PLAN_MIN_COHORT if min_cohort is None else min_cohort
        self.host_limits = _limits(
            report=("max_epsilon_report", max_epsilon_report),
            rolling_24h=("max_epsilon_24h", max_epsilon_24h),
            lifetime=("max_epsilon_lifetime", max_epsilon_lifetime),
            report_rho=("max_rho_report", max_rho_report),
            rolling_24h_rho=("max_rho_24h", max_rho_24h),
            lifetime_rho=("max_rho_lifetime", max_rho_lifetime),
        )
        self.min_cohort = _min_cohort(min_cohort)
        self.allow_direct = _boolean("allow_direct", allow_direct)
        self.seal_key = _seal_key(seal_key)
        if can_upload is not None and not callable(can_upload):
            raise ConfigurationError("can_upload: must be a function without arguments that returns True or False")
        self.can_upload = can_upload

    def tls(self, *, off_loop: bool) -> TlsSettings | None:
        """For a channel; None: plain text. off_loop: the caller's loop has other things to do."""
        if self.insecure:
            return None
        from client_sdk.device.tls import TlsSettings

        return TlsSettings(self.root_certificates, self.client_certificate, self.client_key, off_loop)

    @property
    def in_memory(self) -> bool:
        """Does the endpoint name a collector inside this process (test helpers only)?"""
        return self.endpoint.startswith(MEMORY_SCHEME)

    def __repr__(self) -> str:
        return f"Settings(endpoint={self.endpoint!r}, data_dir={self.data_dir!r}, insecure={self.insecure})"


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name}: must be True or False, not {type(value).__name__}")
    return value


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(ENVIRONMENT_PREFIX + name, "").strip().lower()
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise ConfigurationError(f"{ENVIRONMENT_PREFIX}{name}: must be 1 or 0")


def _endpoint(value: str | None, *, insecure: bool) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(
            f"endpoint: give the collector's HOST:PORT (or set {ENVIRONMENT_PREFIX}ENDPOINT), e.g. "
            "'collector.example:443'"
        )
    if value.startswith(MEMORY_SCHEME):
        return value
    _check_address("endpoint", value, "collector.example:443", insecure=insecure)
    return value


def _registrar(value: str | None, *, insecure: bool) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(
            "registrar: give the HOST:PORT of who certifies this fleet's devices, ship a plan with a [registrar] table "
            f"(`ldp-collector registrar init` prints it), or set {ENVIRONMENT_PREFIX}REGISTRAR"
        )
    _check_address("registrar", value, "registrar.example:443", insecure=insecure)
    return value


def _registrar_key(value: object) -> bytes:
    if not value:
        raise ConfigurationError(
            "registrar_key: give the registrar's public key (32 bytes, 64 hex digits or a file of them), ship a "
            f"plan with a [registrar] table, or set {ENVIRONMENT_PREFIX}REGISTRAR_KEY"
        )
    from client_sdk.files import load_public_key

    return load_public_key(value, "registrar_key")


def _check_address(name: str, value: str, example: str, *, insecure: bool) -> None:
    host, separator, port = value.rpartition(":")
    host_holds = host and not set(host) & set("/@?# \t\r\n") and (":" not in host or host.startswith("["))
    if not (separator and host_holds and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigurationError(f"{name}: {value!r} is not HOST:PORT, e.g. {example!r}")
    if insecure and not is_loopback(host):
        raise ConfigurationError(
            "insecure: plain text is allowed to this machine only (127.0.0.0/8, ::1, localhost); "
            f"leave insecure out and give root_certificates for an own CA ({name})"
        )


def is_loopback(host: str) -> bool:
    """Does `host` (a name, or an address, IPv6 in brackets) name this machine, whatever a resolver says?"""
    if host.lower() == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _folder(value: str | os.PathLike[str] | None) -> str:
    if value is None or not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise ConfigurationError(
            f"data_dir: give a folder that only this app's user can write (or set {ENVIRONMENT_PREFIX}DATA_DIR)"
        )
    path = os.fspath(value)
    if not isinstance(path, str) or "\0" in path:
        raise ConfigurationError("data_dir: must be text without NUL")
    return path


def check_token(value: str | None) -> str | None:
    """An enrolment token as the host gave it. Raises ConfigurationError."""
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= MAX_TOKEN_CHARS):
        raise ConfigurationError(f"enrolment_token: must be text of 1 to {MAX_TOKEN_CHARS} characters")
    return value


def _plan_hash(value: bytes | str | None) -> bytes | None:
    if isinstance(value, str) and len(value) == 2 * HASH_BYTES and set(value.lower()) <= set("0123456789abcdef"):
        value = bytes.fromhex(value)
    if value is None or (isinstance(value, bytes) and len(value) == HASH_BYTES):
        return value
    raise ConfigurationError(
        f"plan_hash: must be the plan's hash, {2 * HASH_BYTES} hex digits, as `ldp-collector plan check` prints it"
    )


def _plan_key(value: bytes | str | os.PathLike[str] | None, *, plan_is_fetched: bool) -> bytes | None:
    if value is None:
        return None
    if not plan_is_fetched:
        raise ConfigurationError("plan_key: for a plan that is fetched; one that the app ships is believed as it is")
    from client_sdk.files import load_public_key

    return load_public_key(value, "plan_key")


def _limits(**given: tuple[str, Amount | None]) -> Limits:
    """given: by the field of `Limits`, what the setting is called and its amount."""
    from client_sdk.accounting.budget import Limits, limit_to_micro

    micro: dict[str, int | None] = {}
    for field, (name, amount) in given.items():
        try:
            micro[field] = None if amount is None else limit_to_micro(amount)
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: {error}") from None
    return Limits(**micro)


def _min_cohort(value: int | None) -> int:
    if value is None:
        return 0
    from client_sdk.secagg.parameters import MAX_ROSTER

    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_ROSTER:
        raise ConfigurationError(f"min_cohort: must be a whole number of contributors from 0 to {MAX_ROSTER}")
    return value


def _seal_key(value: bytes | None) -> bytes | None:
    if value is not None and (not isinstance(value, bytes) or len(value) != SEAL_KEY_BYTES):
        raise ConfigurationError(f"seal_key: must be {SEAL_KEY_BYTES} bytes from the platform's keystore")
    return value
