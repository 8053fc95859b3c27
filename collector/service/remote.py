"""`--server HOST:PORT`: what the command line asks a running collector, in place of opening its store.

Rules of this file: a token is read from a file and goes into the request's metadata, over TLS, or in plain text to
this machine when asked for; nothing of it reaches a message. Every fault is one line that says what to do; a
certificate that does not hold is told apart from a collector that is not there, by a handshake of our own that sends
nothing.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from client_sdk.errors import ConfigurationError, TelemetryError, WireError
from client_sdk.tls_faults import TlsFault, fault_of
from client_sdk.wire import limits
from client_sdk.wire.methods import Method
from collector.service.cli_common import DB_HELP, default_db
from collector.service.settings import is_loopback, split_address

TIMEOUT_S: Final = 120.0
HANDSHAKE_TIMEOUT_S: Final = 5.0
MAX_TOKEN_FILE_BYTES: Final = 1024
MAX_DOCUMENT_BYTES: Final = 1 << 30


class RemoteError(TelemetryError):
    """The collector could not be asked, or would not answer."""


@dataclass(frozen=True, slots=True)
class Remote:
    """How to reach a collector: see `add_source`. Raises ConfigurationError for what cannot work."""

    server: str
    token: str = field(default="", repr=False)
    ca: bytes | None = None
    insecure: bool = False
    client_certificate: bytes | None = None
    client_key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            host, _ = split_address(self.server)
        except ConfigurationError:
            raise ConfigurationError(
                f"--server: {self.server!r} is not HOST:PORT, e.g. collector.example:443"
            ) from None
        if self.insecure and not is_loopback(host):
            raise ConfigurationError("--insecure: a token goes in plain text to this machine only; leave it out")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ConfigurationError("--client-cert and --client-key: both are needed")


def add_source(parser: argparse.ArgumentParser) -> Any:
    """`--db`, or `--server` with what goes with it; the group, for what else may stand in their place."""
    default = default_db()
    which = parser.add_mutually_exclusive_group(required=default is None)
    which.add_argument("--db", default=default, metavar="URL", help=DB_HELP)
    add_server(parser, which)
    return which


def add_server(parser: argparse.ArgumentParser, which: Any) -> None:
    """`--server` in the group `which`, and its companions."""
    which.add_argument("--server", metavar="HOST:PORT", help="a running collector, asked over the network")
    parser.add_argument("--access-token-file", type=Path, metavar="FILE", help="with --server: who asks (access issue)")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="with --server: its certificate's authority, PEM")
    parser.add_argument("--client-cert", type=Path, metavar="FILE", help="with --server: own certificate, for mTLS")
    parser.add_argument("--client-key", type=Path, metavar="FILE", help="with --server: its private key")
    parser.add_argument("--insecure", action="store_true", help="with --server: plain text, to this machine only")


def remote_of(args: argparse.Namespace, *, token_needed: bool = True) -> Remote | None:
    """The collector that `--server` names, None without it. Raises ConfigurationError."""
    files = {"--access-token-file": args.access_token_file, "--ca": args.ca}
    files |= {"--client-cert": args.client_cert, "--client-key": args.client_key}
    if args.server is None:
        if args.insecure or any(files.values()):
            raise ConfigurationError(f"{next((n for n, f in files.items() if f), '--insecure')} goes with --server")
        return None
    if args.access_token_file is None and token_needed:
        raise ConfigurationError("--server needs --access-token-file (`ldp-collector access issue` makes a token)")
    token = "" if args.access_token_file is None else _token(args.access_token_file)
    contents = {option: None if path is None else _contents(option, path) for option, path in files.items()}
    if contents["--ca"] is not None:
        _check_authority(args.ca, contents["--ca"])
    certificate, key = contents["--client-cert"], contents["--client-key"]
    return Remote(args.server, token, contents["--ca"], args.insecure, certificate, key)


def _contents(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{option} {path}: {getattr(error, 'strerror', None) or error}") from None


def _check_authority(path: Path, data: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=_ascii(data))
    except (ssl.SSLError, ValueError):
        raise ConfigurationError(
            f"--ca {path}: holds no certificate in PEM form; give that of the authority behind the collector's"
        ) from None


def _ascii(pem: bytes) -> str:
    """Comments beside certificates may be in any encoding."""
    return pem.decode("ascii", "backslashreplace")


def _token(path: Path) -> str:
    try:
        token = _contents("--access-token-file", path)[: MAX_TOKEN_FILE_BYTES + 1].decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token.isprintable() or not 0 < len(token) <= limits.MAX_TOKEN_CHARS:
        raise ConfigurationError(f"--access-token-file {path}: holds no token, which is one line of text")
    return token


def fetch(remote: Remote, method: Method[Any, Any], request: object) -> dict[str, Any]:
    """The document that answers `request`. Raises ConfigurationError (the question), RemoteError (all else)."""
    import grpc

    metadata = [("authorization", f"bearer {remote.token}")] if remote.token else []
    document = bytearray()
    with _channel(remote) as channel:
        call = channel.unary_stream(method.path)(method.request_to_wire(request), timeout=TIMEOUT_S, metadata=metadata)
        try:
            for data in call:
                document += method.response_from_wire(data).data
                if len(document) > MAX_DOCUMENT_BYTES:
                    raise RemoteError(f"{remote.server}: the answer is too long; ask for a shorter window")
        except grpc.RpcError as error:
            _raise(remote, error)
        except WireError:
            raise RemoteError(f"{remote.server}: answered with something else than a document") from None
    return _document(remote, bytes(document))


@contextmanager
def wrong_question() -> Iterator[None]:
    """A question that cannot even be written down is wrong input, in the words of the store's edge."""
    try:
        yield
    except WireError as error:
        raise ConfigurationError(f"{error}; nothing was asked") from None


@contextmanager
def readable(remote: Remote) -> Iterator[None]:
    """A document of another version, or of something that is no collector, is one line."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise RemoteError(f"{remote.server}: answered with a document that this version cannot read") from None


def check_health(remote: Remote) -> bool:
    """What its Health/Check says. Raises RemoteError where it cannot be asked."""
    import grpc

    from collector.service.health import CHECK, SERVING

    with _channel(remote) as channel:
        try:
            return bool(channel.unary_unary(CHECK)(b"", timeout=HANDSHAKE_TIMEOUT_S) == SERVING)
        except grpc.RpcError as error:
            _raise(remote, error)


def _channel(remote: Remote) -> Any:
    import grpc

    options = [
        ("grpc.max_receive_message_length", limits.MAX_COLLECTOR_MESSAGE_BYTES),
        ("grpc.per_message_decompression", 0),
        ("grpc.enable_retries", 0),
    ]
    if remote.insecure:
        return grpc.insecure_channel(remote.server, options=[*options, ("grpc.enable_http_proxy", 0)])
    credentials = grpc.ssl_channel_credentials(remote.ca, remote.client_key, remote.client_certificate)
    return grpc.secure_channel(remote.server, credentials, options=options)


def _document(remote: Remote, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise RemoteError(f"{remote.server}: answered with something else than a document")
    return document


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


_ANSWERS: Final = {
    "UNAUTHENTICATED": "does not know this token (expired or revoked?); `access list` shows those it does",
    "PERMISSION_DENIED": "this token's role may not ask that; see `ldp-collector access issue --help`",
    "NOT_FOUND": "no report of such a device is counted there",
    "INVALID_ARGUMENT": "no such metric, or no such window, there",
    "UNIMPLEMENTED": "does not answer such questions; is it a collector, and of this version?",
    "RESOURCE_EXHAUSTED": "is asked too much at once; try again later",
    "DEADLINE_EXCEEDED": f"did not answer within {TIMEOUT_S:.0f} s; ask for a shorter window",
}
_WRONG_QUESTION: Final = frozenset({"NOT_FOUND", "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED"})


def _raise(remote: Remote, error: Any) -> NoReturn:
    """The status as one line. What the other end wrote is not repeated: it could be anything."""
    status = error.code().name
    if status == "UNAVAILABLE" and not remote.insecure:
        fault = _tls_fault(remote)
        if fault is not None:
            raise RemoteError(f"{remote.server}: not connected: {fault.says}; nothing was sent") from None
    hint = " (or TLS on one side only: see --insecure)" if status == "UNAVAILABLE" else ""
    text = _ANSWERS.get(status, f"cannot be reached or does not serve now ({status.lower()}){hint}")
    kind = ConfigurationError if status in _WRONG_QUESTION else RemoteError
    raise kind(f"{remote.server}: {text}") from None


def _tls_fault(remote: Remote) -> TlsFault | None:
    """Shake hands as the call did, and see what the certificate is refused for."""
    host, port = split_address(remote.server)
    context = ssl.create_default_context(cadata=None if remote.ca is None else _ascii(remote.ca))
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout=HANDSHAKE_TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return fault_of(error.verify_code)
    except (OSError, ValueError):
        return None
