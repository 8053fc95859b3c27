"""A PostgreSQL URL, read: what the driver is told, and what people are shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from client_sdk.errors import ConfigurationError

_SCHEMES: Final = frozenset({"postgresql", "postgresql+psycopg", "postgres"})

_OPTIONS: Final = frozenset({
    "host", "passfile", "channel_binding", "connect_timeout", "application_name", "target_session_attrs", "gssencmode",
    "krbsrvname", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "ssl_min_protocol_version",
})  # fmt: skip
"""Of libpq's; not `options`, by which a server's settings could be changed behind our back."""

_TLS_VERSIONS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")

_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "ssl_min_protocol_version": _TLS_VERSIONS,
}
"""What libpq takes for them; a slip would look like a server that cannot be reached."""


@dataclass(frozen=True, slots=True)
class Address:
    """where: for people. parameters: for the driver, the password among them."""

    where: str
    parameters: Mapping[str, Any] = field(repr=False)

    @property
    def password(self) -> str | None:
        """To be kept out of every text."""
        return self.parameters.get("password")


def address_of(url: str) -> Address:
    """Raises ConfigurationError, which repeats nothing of the URL but names that we know."""
    try:
        url.encode()  # half a character could be shown to nobody, nor sent
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "store URL: give postgresql+psycopg://USER@HOST:PORT/DATABASE; %-escape what is special in a password"
        ) from None
    if parsed.drivername not in _SCHEMES:
        raise ConfigurationError(
            "store URL: of PostgreSQL's drivers, psycopg is the one; give postgresql+psycopg://..."
        )
    if not parsed.database:
        raise ConfigurationError("store URL: name the database, postgresql+psycopg://USER@HOST:PORT/DATABASE")
    parameters = {
        "host": parsed.host, "port": parsed.port, "user": parsed.username, "password": parsed.password,
        "dbname": parsed.database, "application_name": "ldp-collector", **_options(parsed),
    }  # fmt: skip
    given = {name: value for name, value in parameters.items() if value is not None}
    return Address(_where(given), given)


def _options(url: URL) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in url.query.items():
        if name not in _OPTIONS or not isinstance(value, str):
            allowed = ", ".join(sorted(_OPTIONS))
            raise ConfigurationError(f"store URL: an option that is not known here, or twice; there are {allowed}")
        _check_value(name, value)
        found[name] = value
    return found


def _check_value(name: str, value: str) -> None:
    allowed = _VALUES.get(name)
    if allowed is not None and value not in allowed:
        raise ConfigurationError(f"store URL: {name} must be one of {', '.join(allowed)}")
    if name == "connect_timeout" and not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        raise ConfigurationError("store URL: connect_timeout must be a whole number of seconds")


def _where(parameters: Mapping[str, Any]) -> str:
    host = parameters.get("host") or os.environ.get("PGHOST", "localhost")
    port = parameters.get("port") or os.environ.get("PGPORT", "5432")
    shown = f"[{host}]" if ":" in host else quote(host, safe=",")
    return f"postgresql://{shown}:{port}/{quote(parameters['dbname'])}"
