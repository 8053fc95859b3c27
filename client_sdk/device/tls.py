"""What a device needs for TLS, and what was wrong with a certificate when a connection failed.

Rules of this file: files are read again at each connection where they have changed; a failed connection is asked
about once, by a handshake that sends nothing, because gRPC says `unavailable` for everything; an answer only names
the fault, it never makes a connection. The handshake waits for the network as `offload` does for the disk: asyncio's
own way would start a thread that the process could not end without.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - `ssl` looks names up with it, at a moment that a fork must not hit
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from client_sdk.device.offload import run_job
from client_sdk.tls_faults import fault_of

if TYPE_CHECKING:
    from client_sdk.device.pem import Pem
    from client_sdk.tls_faults import TlsFault

HANDSHAKE_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """roots: whom to trust, None: the authorities gRPC knows. certificate, key: who we are, where asked (mTLS).

    off_loop: the caller's loop has other things to do.
    """

    roots: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    off_loop: bool = True

    def channel_credentials(self) -> Any:
        """gRPC's, of the files as they are now."""
        import grpc

        return grpc.ssl_channel_credentials(*(_current(pem) for pem in (self.roots, self.key, self.certificate)))

    async def fault(self, endpoint: str) -> TlsFault | None:
        """Why HOST:PORT's certificate is refused; None where it is not, or nobody is there."""
        return await run_job(partial(_fault, endpoint, _current(self.roots)), off_loop=self.off_loop)


def _fault(endpoint: str, roots: bytes | None) -> TlsFault | None:
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context(cadata=None if roots is None else roots.decode("ascii", "ignore"))
        context.set_alpn_protocols(["h2"])
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # gRPC asks no more than this
        with socket.create_connection((host, int(port)), HANDSHAKE_TIMEOUT_S) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return fault_of(error.verify_code)
    except (OSError, ValueError):  # TimeoutError is an OSError
        pass
    return None


def _current(pem: Pem | None) -> bytes | None:
    return None if pem is None else pem.current()
