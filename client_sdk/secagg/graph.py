"""Who shares masks with whom: the complete graph, or a Harary graph on an order that the roster's digest decides.

Rules of this file: both ends draw the same graph from the same digest, and the digest commits to every member's
advert, so nobody chooses a neighbour without choosing all of them anew; everything here is public; a participant
draws its own graph and never takes one over. What it does not do: how many neighbours are enough stands in
`parameters.py`, as does why a collector that tries many rosters gains too little.

The order: member i's word is the i-th 64-bit little-endian word of the AES-256-CTR keystream under the key
SHA-256(label("graph") | digest), counter zero; members are sorted by (word, index). The member at place p has as
neighbours those at the places p - k/2 ... p - 1 and p + 1 ... p + k/2, modulo n. Two equal words would favour the
lower index; at MAX_ROSTER members that happens once in 2^37 rosters.

Holders of a member's shares: its neighbours; in the complete graph also itself. A share's x coordinate is the
holder's place among the owner's holders, ascending, from 1 on: in the complete graph its index + 1.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from client_sdk.secagg.messages import DIGEST_BYTES
from client_sdk.secagg.parameters import COMPLETE_UP_TO, MAX_NEIGHBOURS
from client_sdk.secagg.transcript import label

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Indices = npt.NDArray[np.int64]

__all__ = ["COMPLETE_UP_TO", "MAX_NEIGHBOURS", "Graph", "graph_of"]

_WORD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Graph:
    """A roster's graph. `degree` == `size` - 1: everybody is everybody's neighbour. Made by `graph_of`."""

    size: int
    degree: int
    roster_digest: bytes
    _known: dict[int, tuple[int, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_complete(self) -> bool:
        """Is everybody everybody's neighbour, and a holder of its own shares?"""
        return self.degree == self.size - 1

    def neighbours(self, index: int) -> tuple[int, ...]:
        """Roster indices of a member's neighbours, ascending, without itself. Raises IndexError for no member."""
        if not 0 <= index < self.size:
            raise IndexError(f"member {index} of {self.size}")
        if self.is_complete:
            return (*range(index), *range(index + 1, self.size))
        found = self._known.get(index)
        if found is None:
            found = self._known[index] = self._around(index)
        return found

    def holders(self, index: int) -> tuple[int, ...]:
        """Roster indices of those that hold a share of each of a member's seeds, ascending. Raises IndexError."""
        if self.is_complete and 0 <= index < self.size:
            return tuple(range(self.size))
        return self.neighbours(index)

    def share_x(self, owner: int, holder: int) -> int:
        """The x coordinate of `holder`'s shares of `owner`'s seeds, from 1 on. Raises ValueError for no holder."""
        holders = self.holders(owner)
        place = bisect_left(holders, holder)
        if place == len(holders) or holders[place] != holder:
            raise ValueError(f"member {holder} holds no share of member {owner}")
        return place + 1

    def _around(self, index: int) -> tuple[int, ...]:
        import numpy as np

        order, places = _order(self.size, self.roster_digest)
        half = self.degree // 2
        near = (places[index] + np.arange(-half, half + 1)) % self.size
        members: list[int] = order[near].tolist()
        members.remove(index)
        return tuple(sorted(members))


def graph_of(size: int, degree: int, roster_digest: bytes) -> Graph:
    """The graph of a roster of `size` with this digest (32 bytes).

    Raises ValueError for a degree that is neither size - 1 nor even and in [2, size - 1).
    """
    sparse = degree % 2 == 0 and 2 <= degree < size - 1
    if not sparse and not 0 <= degree == size - 1:
        raise ValueError(f"there is no graph of {size} members with {degree} neighbours each")
    if len(roster_digest) != DIGEST_BYTES:
        raise ValueError(f"a roster's digest has {DIGEST_BYTES} bytes, not {len(roster_digest)}")
    return Graph(size, degree, roster_digest)


# A collector and the participants that live in its process ask for one roster's order thousands of times.
@lru_cache(maxsize=32)
def _order(size: int, roster_digest: bytes) -> tuple[Indices, Indices]:
    """Members by place, and places by member."""
    import numpy as np
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    key = hashlib.sha256(label("graph") + roster_digest).digest()
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(_WORD_BYTES * size))
    order = np.frombuffer(stream, dtype="<u8").argsort(kind="stable").astype(np.int64)
    places = np.empty_like(order)
    places[order] = np.arange(size)
    return order, places
