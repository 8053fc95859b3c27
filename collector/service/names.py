"""Under which names devices dial this collector: what an assertion may be meant for.

Rules of this file: where the operator gave names (`--name`) they are the only ones, a name with a port means that port
only; else the names in the TLS certificate, which is what devices check anyway; else, in plain text, this machine's
own with the port that is listened on.
What it does not do: without `--name` no port is compared over TLS, for devices may dial another one than this collector
listens on. Collectors that share a certificate's name, or a `*.` name, are told apart by `--name` alone.
"""

from __future__ import annotations

from collections.abc import Callable

from client_sdk.errors import ConfigurationError
from collector.service.settings import is_loopback, split_address
from collector.service.tls_files import TlsFiles, is_name_of


def name_judge(given: tuple[str, ...], tls: TlsFiles | None, port: Callable[[], int]) -> Callable[[str], bool]:
    """Is `HOST:PORT`, as a device dialled it, one of ours? port: the one that is listened on."""
    ours = frozenset(name.lower() for name in given)

    def is_ours(name: str) -> bool:
        try:
            host, dialled = split_address(name)
        except ConfigurationError:
            return False
        if ours:
            return not ours.isdisjoint({name.lower(), host.lower(), f"[{host.lower()}]"})
        if tls is None:
            return is_loopback(host) and dialled == port()
        return is_name_of(host, tls.names)

    return is_ours
