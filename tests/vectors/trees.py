"""What members agree on: adverts, rosters, graphs, sizes, trees with sums, statuses. Made with the SDK's own code."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

from client_sdk.errors import PlanError
from client_sdk.identity import IdentityKey
from client_sdk.secagg import keys, transcript
from client_sdk.secagg.graph import graph_of
from client_sdk.secagg.merkle import Node, Tree
from client_sdk.secagg.messages import Advert
from client_sdk.secagg.parameters import RoundRules, min_roster, ring_bits, round_parameters
from tests.vectors.certificates import issued
from tests.vectors.layout import DIGEST, PERIOD_START, Entry, drawn, flipped

PLAN_HASH = drawn("plan hash")
TENTH = Fraction(1, 10)


def fraction(value: Fraction) -> list[int]:
    return [value.numerator, value.denominator]


# --- adverts.json ------------------------------------------------------------------------------------


def signer(index: int) -> IdentityKey:
    return IdentityKey(drawn(f"identity {index}"))


def advert(index: int, **changes: Any) -> Advert:
    """Member `index`'s, signed."""
    identity = signer(index)
    fields: dict[str, Any] = {
        "identity_key": identity.public_key,
        "certificate": issued(identity.public_key),
        "plan_hash": PLAN_HASH,
        "period_start": PERIOD_START,
        "report_id": identity.report_id("app-health", PERIOD_START),
        "nonce": drawn(f"nonce {index}"),
        "mask_key": keys.public_bytes(keys.load_private(drawn(f"mask key of {index}"))),
        "channel_key": keys.public_bytes(keys.load_private(drawn(f"channel key of {index}"))),
        "self_mask_commitment": keys.self_mask_commitment(drawn(f"self-mask seed of {index}")),
        "resent": index == 2,
        "min_cohort": 100 * (index == 1),
    } | changes
    unsigned = Advert(**fields)
    return replace(unsigned, signature=identity.sign(transcript.advert_message(unsigned)))


def adverts_document() -> dict[str, Any]:
    return {
        "about": "Section 7: adverts. `message` is what is signed; bad ones have a signature over something else.",
        "adverts": [
            {
                "identity_seed": signer(index).seed,
                **asdict(advert(index)),
                "message": transcript.advert_message(advert(index)),
                "digest": transcript.advert_digest(advert(index)),
            }
            for index in range(4)
        ],
        "bad_adverts": _bad_adverts(),
    }


def _bad_adverts() -> list[Entry]:
    good, other = advert(0), advert(1)
    bad = {
        "says fresh what was signed as resent": replace(good, resent=True),
        "a smaller min_cohort than was signed": replace(other, min_cohort=0),
        "the nonce of another join": replace(good, nonce=other.nonce),
        "another period": replace(good, period_start=good.period_start + 86_400),
        "another plan": replace(good, plan_hash=flipped(good.plan_hash)),
        "mask and channel key changed places": replace(good, mask_key=good.channel_key, channel_key=good.mask_key),
        "another mask key": replace(good, mask_key=other.mask_key),
        "another commitment": replace(good, self_mask_commitment=other.self_mask_commitment),
        "another report": replace(good, report_id=other.report_id),
        "another certificate for the same identity": replace(
            good, certificate=issued(good.identity_key, issued_at=PERIOD_START)
        ),
        "a bit of the signature": replace(good, signature=flipped(good.signature, 40)),
        "another identity's signature": replace(good, signature=other.signature),
        "signed without label": replace(
            good,
            signature=signer(0).sign(transcript.advert_message(good)[4 + len(b"ldp-telemetry/secagg/v1/advert") :]),
        ),
    }
    return [{**asdict(value), "why": why, "refused": "bad_signature"} for why, value in bad.items()]


# --- rosters.json ------------------------------------------------------------------------------------


def rosters_document() -> dict[str, Any]:
    return {
        "about": "Sections 6 and 7: roster trees over the first `size` adverts of adverts.json, digests; status trees.",
        "rosters": [
            _roster(2, RoundRules(2, Fraction(0), Fraction(0), 30, 1, 1)),
            _roster(3, RoundRules(2, TENTH, TENTH, 30, 4, 100)),
            _roster(4, RoundRules(3, Fraction(1, 3), Fraction(1, 4), 3600, 100_000, 2**40)),
        ],
        "statuses": [_status("2"), _status("221"), _status("20212"), _status("2222222", resent=(0, 6))],
    }


def _roster(size: int, rules: RoundRules) -> Entry:
    leaves = [transcript.roster_leaf(index, advert(index)) for index in range(size)]
    root, formed_at = Tree(leaves).root, PERIOD_START + 1000
    degree, threshold, bits = rules.degree(size), rules.threshold(size), rules.bits(size)
    return {
        "round_id": f"round_{size}-A",
        "size": size,
        "degree": degree,
        "threshold": threshold,
        "bits": bits,
        **rules_entry(rules),
        "formed_at": formed_at,
        "leaves": [leaf.to_bytes() for leaf in leaves],
        "root": root.to_bytes(),
        "digest": transcript.roster_digest(f"round_{size}-A", rules, size, degree, threshold, bits, formed_at, root),
    }


def rules_entry(rules: RoundRules) -> Entry:
    return {
        "length": rules.length,
        "bound": rules.bound,
        "min_size": rules.min_size,
        "corrupt_fraction": fraction(rules.corrupt_fraction),
        "dropout_fraction": fraction(rules.dropout_fraction),
        "max_wait_s": rules.max_wait_s,
    }


def _status(statuses: str, resent: tuple[int, ...] = (0,)) -> Entry:
    leaves = [
        transcript.status_leaf(DIGEST, index, transcript.Status(int(status)), resent=index in resent)
        for index, status in enumerate(statuses)
    ]
    tree, identity = Tree(leaves), signer(0)
    root = transcript.status_root(DIGEST, tree.root)
    message = transcript.confirm_message(DIGEST, root)
    return {
        "roster_digest": DIGEST,
        "statuses": [int(status) for status in statuses],
        "resent": resent,
        "leaves": [leaf.to_bytes() for leaf in leaves],
        "tree_root": tree.root.to_bytes(),
        "status_root": root,
        "identity_seed": identity.seed,
        "message": message,
        "signature": identity.sign(message),
    }


# --- graphs.json and sizes.json ----------------------------------------------------------------------


def graphs_document() -> dict[str, Any]:
    degree = round_parameters(300, TENTH, TENTH)[0]
    return {
        "about": "Section 6: `order` is the ring, two bytes big endian a member (none in the complete graph).",
        "graphs": [_graph(5, 4, (0, 4)), _graph(256, 255, (0,)), _graph(257, 12, (0, 256)),
                   _graph(300, degree, (0, 1, 299))],
    }  # fmt: skip


def _graph(size: int, degree: int, shown: tuple[int, ...]) -> Entry:
    graph = graph_of(size, degree, DIGEST)
    return {
        "roster_digest": DIGEST,
        "size": size,
        "degree": degree,
        "order": b"" if graph.is_complete else ring(size, degree),
        "members": [_member(graph, index) for index in shown],
    }


def _member(graph: Any, index: int) -> Entry:
    holders = graph.holders(index)
    listed = {} if graph.size == 256 else {"neighbours": graph.neighbours(index)}
    some = (holders[0], holders[len(holders) // 2], holders[-1])
    return {"index": index, **listed, "holders": len(holders), "x_of": {h: graph.share_x(index, h) for h in some}}


def ring(size: int, degree: int) -> bytes:
    """The order in which `graph` puts the members, asked of its own code."""
    from client_sdk.secagg.graph import _order

    return b"".join(int(member).to_bytes(2, "big") for member in _order(size, DIGEST)[0])


SIZES = (1, 2, 5, 10, 50, 100, 200, 255, 256, 257, 300, 500, 1000, 1024, 1025)
LARGE_SIZES = (3000, 10_000, 16_384)
FRACTIONS = ((Fraction(0), Fraction(0)), (TENTH, TENTH), (Fraction(1, 20), Fraction(3, 10)), (Fraction(1, 3), TENTH))


def sizes_document() -> dict[str, Any]:
    asked = [(size, *pair) for pair in FRACTIONS for size in SIZES]
    asked += [(size, *pair) for pair in FRACTIONS[:2] for size in LARGE_SIZES]
    # Where no sparse graph holds: the complete one as far as it may go, then none.
    two_fifths = Fraction(1, 5), Fraction(2, 5)
    asked += [(300, TENTH, Fraction(447, 1000)), (300, TENTH, Fraction(9, 20))]
    asked += [(1024, *two_fifths), (1025, *two_fifths)]
    return {
        "about": "Section 6. A degree or bits of null: there is no such round. Fractions are [numerator, denominator].",
        "columns": ["size", "corrupt_fraction", "dropout_fraction", "degree", "threshold"],
        "parameters": [_sizes(*one) for one in asked],
        "min_rosters": [
            {"min_size": least, "dropout_fraction": fraction(drops), "min_roster": min_roster(least, drops)}
            for least in (1, 2, 3, 50)
            for drops in (Fraction(0), TENTH, Fraction(1, 3), Fraction(9, 10))
        ],
        "ring_bits": [
            {"size": size, "bound": bound, "bits": _bits(size, bound)}
            for size, bound in ((1, 1), (1, 32_767), (1, 32_768), (32_767, 1), (7, 4681), (8, 4096), (5, 2**28),
                                (2**10, 2**21), (2**10 - 1, 2**21), (3, 2**61), (4, 2**61), (2, 2**62))
        ],
    }  # fmt: skip


def _sizes(size: int, corrupt: Fraction, dropout: Fraction) -> list[Any]:
    try:
        found: tuple[int | None, int | None] = round_parameters(size, corrupt, dropout)
    except PlanError:
        found = None, None
    return [size, fraction(corrupt), fraction(dropout), *found]


def _bits(size: int, bound: int) -> int | None:
    try:
        return ring_bits(size, bound)
    except PlanError:
        return None


# --- trees.json --------------------------------------------------------------------------------------


def leaf(index: int) -> Node:
    """The files' leaves by rule: digest SHA-256 of the index, first 0 for every third, second 1 for every fifth."""
    first = int(index % 3 > 0)
    return Node(hashlib.sha256(index.to_bytes(4, "big")).digest(), first, first * int(index % 5 == 0))


def trees_document() -> dict[str, Any]:
    sizes = (1, 2, 3, 4, 5, 8, 13, 300)
    return {
        "about": (
            "Section 7, Trees. Leaf i: SHA-256 of i as 4 bytes big endian; first is 0 where 3 divides i, else 1; "
            "second is first where 5 divides i, else 0."
        ),
        "trees": [_tree(size) for size in sizes],
        "bad_proofs": _bad_proofs(),
    }


def _tree(size: int) -> Entry:
    tree = Tree([leaf(index) for index in range(size)])
    sets = {(0,), (size - 1,), tuple(range(size)), (0, size - 1), (), tuple(range(0, size, 2))}
    if size == 300:
        sets = {(0,), (255, 256), (7, 13, 64, 128, 200, 299)}
    proofs = [{"known": known, "proof": tree.prove(known)} for known in sorted({tuple(sorted({*s})) for s in sets})]
    return {"size": size, "root": tree.root.to_bytes(), "proofs": proofs}


def _bad_proofs() -> list[Entry]:
    size, known = 13, (2, 3, 9)
    proof = Tree([leaf(index) for index in range(size)]).prove(known)
    # The first node is over the leaves 0 and 1.
    first = Node.from_bytes(proof[0])

    def told(one: int, two: int) -> tuple[bytes, ...]:
        return (Node(first.digest, one, two).to_bytes(), *proof[1:])

    bad = [
        ("one node short", "too_short", proof[:-1]),
        ("empty", "too_short", ()),
        ("one node more", "too_long", (*proof, proof[-1])),
        ("counts three among two leaves", "overcounts", told(3, 0)),
        ("counts 2^32 - 1", "overcounts", told(2**32 - 1, 0)),
        ("more of the second than of the first", "overcounts", told(1, 2)),
        ("a node of 39 bytes", "wrong_length", (proof[0][:39], *proof[1:])),
        ("a node of 41 bytes", "wrong_length", (proof[0] + b"\0", *proof[1:])),
        ("two leaves changed places", "another_root", (*proof[:2], proof[4], proof[3], proof[2])),
        ("one contributor more among the unknown, within bounds", "another_root", told(2, 0)),
    ]
    root = Tree([leaf(index) for index in range(size)]).root.to_bytes()
    return [
        {"size": size, "known": known, "root": root, "proof": given, "why": why, "refused": reason}
        for why, reason, given in bad
    ]
