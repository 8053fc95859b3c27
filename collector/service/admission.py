"""How much one address, one identity and everybody together may ask of a collector at once.

Rules of this file: a refusal costs nothing but a count; what is kept is bounded by what was let in; an address is
the whole IPv4 one or the first 64 bits of an IPv6 one, for those are what one subscriber has.
What it does not do: it tells no friend from foe. Many devices behind one address (a carrier's translator, a proxy)
share its allowance: set it to what such an address really sends.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from client_sdk.errors import RejectionError, RejectionReason

JOINS_WINDOW_S: Final = 3600
ELSEWHERE: Final = "other"
"""Peers without an address (a socket file) count as one."""


class Streams:
    """Calls that are open, in total and per address."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._open = 0
        self._of: Counter[str] = Counter()

    @contextmanager
    def one(self, peer: str, *, beside_the_total: bool = False) -> Iterator[None]:
        """Hold a place while a call lasts. Raises RejectionError(TOO_MANY).

        beside_the_total: for what must be answered when all places are taken.
        """
        address = address_of(peer)
        full = self._open >= self._most and not beside_the_total
        if full or self._of[address] >= self._most_per_address:
            raise RejectionError(RejectionReason.TOO_MANY)
        self._open += not beside_the_total
        self._of[address] += 1
        try:
            yield
        finally:
            self._open -= not beside_the_total
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]


class Joins:
    """Joins of one identity for one period, by the hour of the collector's clock.

    Only identities that were proven are counted, so a stranger fills no memory here; all counts go with the hour.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._hour = 0
        self._joined: Counter[object] = Counter()

    def one(self, key: object) -> None:
        """Count a join of `key`. Raises RejectionError(TOO_MANY_JOINS)."""
        hour = int(self._clock() // JOINS_WINDOW_S)
        if hour != self._hour:
            self._hour = hour
            self._joined.clear()
        if self._joined[key] >= self._most:
            raise RejectionError(RejectionReason.TOO_MANY_JOINS)
        self._joined[key] += 1


def address_of(peer: str) -> str:
    """What counts as one address in gRPC's name of a peer: `ipv4:192.0.2.1:1234`, `ipv6:%5B2001:db8::1%5D:1234`."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return ELSEWHERE
    return _subscriber(rest.rpartition(":")[0].strip("[]").partition("%")[0])


@lru_cache(maxsize=4096)
def _subscriber(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ELSEWHERE
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
