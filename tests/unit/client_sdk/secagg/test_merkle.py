"""The tree with sums: what is proven is what is there, and no proof counts anybody twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest

from client_sdk.secagg.merkle import NODE_BYTES, Node, Tree, root_from
from client_sdk.wire.limits import MAX_PROOF_NODES

INNER = b"ldp-telemetry/secagg/v1/tree-node"


def leaves_of(size: int) -> list[Node]:
    return [Node(hashlib.sha256(b"%d" % i).digest(), i % 3 and 1, i % 3 == 2) for i in range(size)]


def packed(digest: bytes, first: int, second: int) -> bytes:
    return digest + first.to_bytes(4, "big") + second.to_bytes(4, "big")


def plain_root(leaves: list[Node]) -> Node:
    """The root by its definition: the left part is the largest power of two below the number of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    middle = 1
    while 2 * middle < len(leaves):
        middle *= 2
    left, right = plain_root(leaves[:middle]), plain_root(leaves[middle:])
    digest = hashlib.sha256(INNER + packed(*left) + packed(*right)).digest()
    return Node(digest, left.first + right.first, left.second + right.second)


@pytest.mark.parametrize("size", [*range(1, 18), 31, 32, 33, 100])
def test_root_is_as_specified_and_sums_the_leaves(size: int) -> None:
    leaves = leaves_of(size)
    root = Tree(leaves).root
    assert root == plain_root(leaves)
    assert (root.first, root.second) == (sum(leaf.first for leaf in leaves), sum(leaf.second for leaf in leaves))


@pytest.mark.parametrize("size", range(1, 9))
def test_every_set_of_known_leaves_proves_the_root(size: int) -> None:
    leaves = leaves_of(size)
    tree = Tree(leaves)
    for known in (set(c) for count in range(size + 1) for c in combinations(range(size), count)):
        proof = tree.prove(known)
        assert root_from(size, {i: leaves[i] for i in known}, proof) == tree.root
        assert {len(node) for node in proof} <= {NODE_BYTES}
        assert (proof == ()) is (len(known) == size)


def test_large_trees_with_some_leaves_known() -> None:
    random = Random(4)
    for size in (255, 256, 257, 1000):
        leaves = leaves_of(size)
        tree = Tree(leaves)
        for count in (1, 2, 139, size - 1):
            known = random.sample(range(size), count)
            assert root_from(size, {i: leaves[i] for i in known}, tree.prove(known)) == tree.root


def test_knowing_a_leaf_twice_or_out_of_order_changes_nothing() -> None:
    tree = Tree(leaves_of(9))
    assert tree.prove([7, 2, 7]) == tree.prove((2, 7))


def test_another_leaf_gives_another_root() -> None:
    """Digest, either sum, or the place of a known leaf: each of them moves the root."""
    leaves = leaves_of(11)
    tree = Tree(leaves)
    known = {i: leaves[i] for i in (1, 4, 8)}
    proof = tree.prove(known)
    leaf = leaves[4]
    others = [
        {**known, 4: leaf._replace(digest=bytes(32))},
        {**known, 4: leaf._replace(first=leaf.first + 1)},
        {**known, 4: leaf._replace(second=leaf.second + 1)},
        {**known, 4: leaves[8], 8: leaves[4]},
    ]
    roots = {root_from(11, other, proof) for other in others}
    assert len(roots) == 4
    assert tree.root not in roots


def test_sums_are_part_of_the_hash_on_the_way_up() -> None:
    """A proof that moves a member from one node to another keeps the total, and the digest changes."""
    leaves = [Node(bytes([i]) * 32, 1, 0) for i in range(8)]
    tree = Tree(leaves)
    proof = [Node.from_bytes(node) for node in tree.prove([0])]
    assert [node.first for node in proof] == [1, 2, 4]
    moved = [proof[0]._replace(first=0), proof[1], proof[2]]
    root = root_from(8, {0: leaves[0]._replace(first=2)}, [node.to_bytes() for node in moved])
    assert root.first == tree.root.first
    assert root.digest != tree.root.digest


Spoil = Callable[[tuple[bytes, ...]], tuple[bytes, ...]]


def recounted(place: int, first: int, second: int) -> Spoil:
    def spoil(proof: tuple[bytes, ...]) -> tuple[bytes, ...]:
        node = Node.from_bytes(proof[place])._replace(first=first, second=second)
        return (*proof[:place], node.to_bytes(), *proof[place + 1 :])

    return spoil


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: p[:-1], "too short"),
        (lambda p: (), "too short"),
        (lambda p: (*p, p[0]), "too long"),
        (lambda p: (p[0][:-1], *p[1:]), "wrong length"),
        (lambda p: (p[0] + b"\x00", *p[1:]), "wrong length"),
        (lambda p: (b"", *p[1:]), "wrong length"),
        (recounted(0, 2, 0), "more than there are leaves"),  # one leaf counted twice
        (recounted(1, 3, 0), "more than there are leaves"),
        (recounted(2, 5, 5), "more than there are leaves"),
        (recounted(2, 2**32 - 1, 0), "more than there are leaves"),
        (recounted(1, 0, 1), "more than there are leaves"),  # resent, and not there
    ],
)
def test_proofs_that_are_none(spoil: Spoil, says: str) -> None:
    """Leaf 0 of 8 is known: the proof's nodes stand for 1, 2 and 4 leaves."""
    leaves = leaves_of(8)
    proof = Tree(leaves).prove([0])
    assert len(proof) == 3
    with pytest.raises(ValueError, match=says):
        root_from(8, {0: leaves[0]}, spoil(proof))


def test_a_proof_where_all_leaves_are_known_is_too_long() -> None:
    leaves = leaves_of(3)
    with pytest.raises(ValueError, match="too long"):
        root_from(3, dict(enumerate(leaves)), (bytes(NODE_BYTES),))


def test_a_leaf_is_no_inner_node() -> None:
    """The shape follows from the size: the same nodes under another number of leaves give another root."""
    leaves = leaves_of(4)
    roots = {Tree(leaves[:count]).root for count in (1, 2, 3, 4)}
    inner = [plain_root(leaves[:2]), plain_root(leaves[2:])]
    assert len(roots) == 4
    assert Tree(inner).root == Tree(leaves).root, "the sizes are told apart by whoever hashes a leaf: labels"


def test_node_bytes() -> None:
    node = Node(bytes(range(32)), 258, 3)
    assert node.to_bytes() == bytes(range(32)) + bytes.fromhex("0000010200000003")
    assert Node.from_bytes(node.to_bytes()) == node


def test_no_proof_of_the_largest_roster_is_longer_than_the_wire_takes() -> None:
    """Known leaves spread evenly, and at random, 1,024 and fewer of 16,384."""
    size = 1 << 14
    tree = Tree([Node(bytes(32), 1, 0)] * size)
    for count in (1, 139, 512, 1000, 1023, 1024):
        evenly = [i * size // count for i in range(count)]
        by_chance = Random(count).sample(range(size), count)
        for known in (evenly, by_chance):
            assert len(tree.prove(known)) <= MAX_PROOF_NODES
    assert len(tree.prove(range(0, size, 16))) == MAX_PROOF_NODES
