"""A Merkle tree whose nodes carry two sums: a whole cohort's counts, provable to a member that sees only some leaves.

Rules of this file: a reader computes the leaves it knows itself and takes only what lies beside them from the proof;
it bounds every sum that it is given by the number of leaves below it, so nobody can be counted twice; leaves and
inner nodes are hashed under different labels; the shape follows from the number of leaves alone (the left part is the
largest power of two below it, as in RFC 6962), so a proof needs no directions.
What it does not do: leaves that the reader does not know may be invented. Whoever knows one notices, so the reader
asks its neighbours to sign the root that they have seen.

One proof covers any set of leaves: the nodes whose leaves are all unknown, from left to right. With every leaf known
it is empty. Source: Merkle, "A digital signature based on a conventional encryption function" (1987); the sums after
the liabilities trees of Maxwell (2013), with both children's sums hashed.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from client_sdk.secagg.messages import DIGEST_BYTES

SUM_BYTES: Final = 4
NODE_BYTES: Final = DIGEST_BYTES + 2 * SUM_BYTES
"""A node in a proof: its digest, then both sums, big endian."""

_INNER: Final = b"ldp-telemetry/secagg/v1/tree-node"


class Node(NamedTuple):
    """A leaf or an inner node: what is below it, and how much. `first` >= `second` >= 0."""

    digest: bytes
    first: int
    second: int

    def to_bytes(self) -> bytes:
        """NODE_BYTES bytes."""
        return self.digest + self.first.to_bytes(SUM_BYTES, "big") + self.second.to_bytes(SUM_BYTES, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> Node:
        """Raises ValueError for another length."""
        if len(data) != NODE_BYTES:
            raise ValueError("a proof's node has the wrong length")
        sums = data[DIGEST_BYTES:]
        first, second = sums[:SUM_BYTES], sums[SUM_BYTES:]
        return cls(data[:DIGEST_BYTES], int.from_bytes(first, "big"), int.from_bytes(second, "big"))


class Tree:
    """All nodes over `leaves` (at least one): what the collector proves from."""

    def __init__(self, leaves: Sequence[Node]) -> None:
        self.size = len(leaves)
        self._nodes: dict[tuple[int, int], Node] = {}
        self.root = self._build(leaves, 0, self.size)

    def _build(self, leaves: Sequence[Node], start: int, end: int) -> Node:
        if end - start == 1:
            node = leaves[start]
        else:
            middle = start + _left_size(end - start)
            node = _parent(self._build(leaves, start, middle), self._build(leaves, middle, end))
        self._nodes[start, end] = node
        return node

    def prove(self, known: Collection[int]) -> tuple[bytes, ...]:
        """What a reader that knows the leaves `known` needs for the root, each NODE_BYTES long."""
        return tuple(self._nodes[span].to_bytes() for span in _unknown(sorted(set(known)), 0, self.size))


def root_from(size: int, known: Mapping[int, Node], proof: Sequence[bytes]) -> Node:
    """The root over `size` leaves, of which the reader knows `known` by index.

    Raises ValueError for a proof that is too short, too long, malformed, or counts more than there are leaves.
    """
    nodes = iter(proof)
    root = _fold(sorted(known), known, nodes, 0, size)
    if next(nodes, None) is not None:
        raise ValueError("the proof is too long")
    return root


def _fold(indices: Sequence[int], known: Mapping[int, Node], proof: Iterator[bytes], start: int, end: int) -> Node:
    """The node over [start, end); `indices` are the known leaves in it, ascending."""
    if not indices:
        return _given(proof, end - start)
    if end - start == 1:
        return known[start]
    middle = start + _left_size(end - start)
    place = bisect_left(indices, middle)
    left = _fold(indices[:place], known, proof, start, middle)
    return _parent(left, _fold(indices[place:], known, proof, middle, end))


def _given(proof: Iterator[bytes], leaves: int) -> Node:
    data = next(proof, None)
    if data is None:
        raise ValueError("the proof is too short")
    node = Node.from_bytes(data)
    if not node.second <= node.first <= leaves:
        raise ValueError("the proof counts more than there are leaves")
    return node


def _unknown(indices: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    if not indices:
        yield start, end
    elif end - start > 1:
        middle = start + _left_size(end - start)
        place = bisect_left(indices, middle)
        yield from _unknown(indices[:place], start, middle)
        yield from _unknown(indices[place:], middle, end)


def _left_size(leaves: int) -> int:
    return 1 << ((leaves - 1).bit_length() - 1)


def _parent(left: Node, right: Node) -> Node:
    digest = hashlib.sha256(_INNER + left.to_bytes() + right.to_bytes()).digest()
    return Node(digest, left.first + right.first, left.second + right.second)
