"""protos/README.md is enough to write a client: its worked example, computed here from its words alone.

Nothing of `client_sdk` makes the expected values: only hashlib, hmac and `cryptography`, as another language's
author would use theirs. They must be what our code computes, and they must be what the README prints.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from client_sdk.certificate import Certificate, Role, issue
from client_sdk.identity import IdentityKey, enrolment_message
from client_sdk.plan import canonical_form, parse_plan
from client_sdk.secagg import dealing, keys, masking, merkle, transcript
from client_sdk.secagg.graph import Graph, graph_of
from client_sdk.secagg.messages import Advert
from client_sdk.secagg.parameters import RoundRules

README = Path(__file__).resolve().parents[4] / "protos" / "README.md"
PRIME = 2**256 + 297
LABEL = b"ldp-telemetry/secagg/v1/"


def seed(first: int) -> bytes:
    """Member m's identity, mask, channel and self-mask seeds: 32 times the byte 16 m + 0, 1, 2, 3."""
    return bytes([first]) * 32


def field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def integer(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def hkdf(secret: bytes, usage: bytes, digest: bytes, first: int, second: int) -> bytes:
    info = LABEL + usage + digest + first.to_bytes(4, "big") + second.to_bytes(4, "big")
    return HKDF(SHA256(), 32, None, info).derive(secret)


def x25519_public(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def exchange(secret: bytes, public: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))


def share(secret: bytes, coefficient: bytes, x: int) -> bytes:
    value = (int.from_bytes(secret, "big") + int.from_bytes(coefficient, "big") * x) % PRIME
    return value.to_bytes(33, "big")


PLAN_HASH, PERIOD, ROUND_ID, FORMED_AT = b"\xaa" * 32, 1_700_006_400, "round-1", 1_700_100_000
COEFFICIENT = b"\x77" * 32
REGISTRAR_SEED, ISSUED_AT, EXPIRES_AT = b"\x0f" * 32, 1_700_000_000, 1_702_592_000


def report_id(identity_seed: bytes) -> bytes:
    key = hmac.digest(identity_seed, b"ldp-telemetry/report-id/v1\x01", "sha256")
    return hmac.digest(key, field(b"app-health") + integer(PERIOD), "sha256")[:16]


def advert_fields(member: int) -> dict[str, bytes]:
    identity, mask, channel, self_mask = (seed(16 * member + i) for i in range(4))
    return {
        "identity_key": Ed25519PrivateKey.from_private_bytes(identity).public_key().public_bytes_raw(),
        "report_id": report_id(identity),
        "nonce": bytes([0xF0 + member]) * 32,
        "mask_key": x25519_public(mask),
        "channel_key": x25519_public(channel),
        "self_mask_commitment": sha256(LABEL + b"self-mask-commitment", self_mask),
    }


def certificate(member: int) -> bytes:
    body = b"\x01\x01" + advert_fields(member)["identity_key"] + integer(ISSUED_AT) + integer(EXPIRES_AT)
    registrar = Ed25519PrivateKey.from_private_bytes(REGISTRAR_SEED)
    return body + registrar.sign(field(b"ldp-telemetry/certificate/v1") + field(body))


def signed_message(member: int) -> bytes:
    f = advert_fields(member)
    return b"".join(
        (
            field(LABEL + b"advert"),
            field(f["identity_key"]),
            field(certificate(member)),
            field(PLAN_HASH),
            integer(PERIOD),
            field(f["report_id"]),
            field(f["nonce"]),
            field(f["mask_key"]),
            field(f["channel_key"]),
            field(f["self_mask_commitment"]),
            integer(member == 2),
            integer(0),
        )
    )


def signature(member: int) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed(16 * member)).sign(signed_message(member))


def advert_digest(member: int) -> bytes:
    return sha256(field(LABEL + b"advert-digest"), field(signed_message(member)), field(signature(member)))


Node = tuple[bytes, int, int]


def node_bytes(node: Node) -> bytes:
    return node[0] + node[1].to_bytes(4, "big") + node[2].to_bytes(4, "big")


def parent(left: Node, right: Node) -> Node:
    digest = sha256(LABEL + b"tree-node", node_bytes(left), node_bytes(right))
    return digest, left[1] + right[1], left[2] + right[2]


def hashed_node(node: Node) -> bytes:
    return field(node[0]) + integer(node[1]) + integer(node[2])


def root_of_three(leaves: list[Node]) -> Node:
    return parent(parent(leaves[0], leaves[1]), leaves[2])


def roster_leaf(member: int) -> Node:
    digest = sha256(field(LABEL + b"roster-leaf"), integer(member), field(advert_digest(member)))
    return digest, 1, int(member == 2)


def status_leaf(roster: bytes, member: int) -> Node:
    """Member 1 dropped, the others survived; member 2 is resent."""
    status = 1 if member == 1 else 2
    digest = sha256(field(LABEL + b"status-leaf"), field(roster), integer(member), integer(status))
    return digest, int(member != 1), int(member == 2)


def ring(digest: bytes, size: int) -> list[int]:
    key = sha256(LABEL + b"graph", digest)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
    return sorted(range(size), key=lambda i: (int.from_bytes(stream[8 * i : 8 * i + 8], "little"), i))


def share_hash(roster: bytes, owner: int, holder: int, kind: int, data: bytes) -> bytes:
    ends = owner.to_bytes(4, "big") + holder.to_bytes(4, "big")
    return sha256(LABEL + b"share-hash", roster, ends, bytes([kind]), data)


def example() -> dict[str, bytes]:
    """Every value of the README's table, from the README's words."""
    tenth = integer(1) + integer(10)
    roster_root = root_of_three([roster_leaf(member) for member in range(3)])
    roster = sha256(
        field(LABEL + b"roster"),
        field(ROUND_ID.encode()),
        *(integer(value) for value in (3, 2, 2, 16, 4, 1, 2)),
        tenth,
        tenth,
        integer(30),
        integer(FORMED_AT),
        hashed_node(roster_root),
    )
    pairwise = hkdf(exchange(seed(0x01), x25519_public(seed(0x11))), b"pairwise-mask", roster, 0, 1)
    self_mask = hkdf(seed(0x03), b"self-mask", roster, 0, 0)
    channel = hkdf(exchange(seed(0x02), x25519_public(seed(0x12))), b"share", roster, 0, 1)
    pair = share(seed(0x01), COEFFICIENT, 2) + share(seed(0x03), COEFFICIENT, 2)

    def stream(key: bytes, size: int) -> bytes:
        return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))

    def elements(key: bytes) -> list[int]:
        data = stream(key, 8)
        return [int.from_bytes(data[i : i + 2], "little") for i in range(0, 8, 2)]

    other = hkdf(exchange(seed(0x01), x25519_public(seed(0x21))), b"pairwise-mask", roster, 0, 2)
    report = [1, -1, 0, 1]
    masked = b"".join(
        ((v + s + p + q) % 2**16).to_bytes(2, "little")
        for v, s, p, q in zip(report, elements(self_mask), elements(pairwise), elements(other), strict=True)
    )
    hashes = b"".join(
        share_hash(roster, 0, holder, kind, share(secret, COEFFICIENT, holder + 1))
        for holder in range(3)
        for kind, secret in ((0, seed(0x01)), (1, seed(0x03)))
    )
    sign = Ed25519PrivateKey.from_private_bytes(seed(0)).sign
    leaves = [status_leaf(roster, member) for member in range(3)]
    status = sha256(field(LABEL + b"status"), field(roster), hashed_node(root_of_three(leaves)))
    public = advert_fields(0)["identity_key"]
    return {
        "identity key of member 0": public,
        "its device id": sha256(public)[:16],
        "its report id": advert_fields(0)["report_id"],
        "enrolment message for the token `token`": field(b"ldp-telemetry/enrolment/v1") + field(b"token"),
        "its certificate": certificate(0),
        "mask key of member 0": advert_fields(0)["mask_key"],
        "its self-mask commitment": advert_fields(0)["self_mask_commitment"],
        "SHA-256 of its signed message": sha256(signed_message(0)),
        "its advert's signature": signature(0),
        "its advert's digest": advert_digest(0),
        "roster leaf of member 2, as a node of a proof": node_bytes(roster_leaf(2)),
        "root of the roster's tree, as such a node": node_bytes(roster_root),
        "roster digest": roster,
        "pairwise mask seed of 0 and 1": pairwise,
        "self mask seed of 0": self_mask,
        "share key from 0 to 1": channel,
        "pair sealed by 0 for 1": ChaCha20Poly1305(channel).encrypt(bytes(12), pair, roster),
        "hashes of the pair dealt by 0 to 1": hashes[64:128],
        "signature of 0 over all its share hashes": sign(
            field(LABEL + b"share-hashes") + field(roster) + integer(0) + field(hashes)
        ),
        "masked input of 0 for the report 1, -1, 0, 1": masked,
        "proof of the status for a reader that knows member 2 only": node_bytes(parent(leaves[0], leaves[1])),
        "status root, sharers 0 1 2, survivors 0 2": status,
        "confirmation of member 0": sign(field(LABEL + b"confirm") + field(roster) + field(status)),
        "ring of 300 members under the roster digest, its first five, 2 bytes each": b"".join(
            member.to_bytes(2, "big") for member in ring(roster, 300)[:5]
        ),
    }


EXAMPLE = example()


def advert(member: int) -> Advert:
    f = advert_fields(member)
    return Advert(
        certificate=certificate(member),
        plan_hash=PLAN_HASH,
        period_start=PERIOD,
        resent=member == 2,
        min_cohort=0,
        signature=signature(member),
        **f,
    )


def first_five(graph: Graph) -> bytes:
    """The order back from the neighbours: consecutive members of the ring are neighbours of each other."""
    told = ring(graph.roster_digest, graph.size)
    for place, member in enumerate(told):
        near = {told[(place + step) % graph.size] for step in (-2, -1, 1, 2)}
        assert graph.neighbours(member) == tuple(sorted(near))
    return b"".join(member.to_bytes(2, "big") for member in told[:5])


def ours() -> Mapping[str, bytes]:
    """The same values by our code."""
    identity = IdentityKey(seed(0))
    rules = RoundRules(2, Fraction(1, 10), Fraction(1, 10), 30, 4, 1)
    adverts = [advert(member) for member in range(3)]
    threshold, bits = rules.threshold(3), rules.bits(3)
    roster_tree = merkle.Tree([transcript.roster_leaf(i, advert) for i, advert in enumerate(adverts)])
    digest = transcript.roster_digest(ROUND_ID, rules, 3, rules.degree(3), threshold, bits, FORMED_AT, roster_tree.root)
    mask_private = keys.load_private(seed(0x01))
    masks = [
        (keys.self_mask(seed(0x03), digest, 0), 1),
        *(keys.pairwise_mask(mask_private, keys.load_public(adverts[i].mask_key), digest, 0, i) for i in (1, 2)),
    ]
    peer = keys.load_public(adverts[1].channel_key)
    sending, _ = keys.channel_keys(keys.load_private(seed(0x02)), peer, digest, 0, 1)
    secrets = keys.RoundSecrets(seed(0x01), seed(0x02), seed(0x03))
    pairs = dealing.split_pairs(secrets, (0, 1, 2), threshold, lambda n: COEFFICIENT[:n])
    hashes = dealing.all_hashes(digest, 0, pairs)
    statuses = (transcript.Status.SURVIVED, transcript.Status.DROPPED, transcript.Status.SURVIVED)
    status_tree = merkle.Tree(
        [transcript.status_leaf(digest, i, status, resent=i == 2) for i, status in enumerate(statuses)]
    )
    status = transcript.status_root(digest, status_tree.root)
    graph = graph_of(300, 4, digest)
    vector = masking.to_ring([1, -1, 0, 1], bits)
    masking.add_masks(vector, masks)
    return {
        "identity key of member 0": identity.public_key,
        "its device id": bytes.fromhex(identity.device_id),
        "its report id": identity.report_id("app-health", PERIOD),
        "enrolment message for the token `token`": enrolment_message("token"),
        "its certificate": issue(
            IdentityKey(REGISTRAR_SEED), Certificate(Role.DEVICE, identity.public_key, ISSUED_AT, EXPIRES_AT)
        ),
        "mask key of member 0": keys.public_bytes(mask_private),
        "its self-mask commitment": keys.self_mask_commitment(seed(0x03)),
        "SHA-256 of its signed message": sha256(transcript.advert_message(adverts[0])),
        "its advert's signature": identity.sign(transcript.advert_message(adverts[0])),
        "its advert's digest": transcript.advert_digest(adverts[0]),
        "roster leaf of member 2, as a node of a proof": roster_tree.prove([0, 1])[0],
        "root of the roster's tree, as such a node": roster_tree.root.to_bytes(),
        "roster digest": digest,
        "pairwise mask seed of 0 and 1": masks[1][0],
        "self mask seed of 0": masks[0][0],
        "share key from 0 to 1": sending,
        "pair sealed by 0 for 1": keys.seal_pair(sending, pairs[1], digest),
        "hashes of the pair dealt by 0 to 1": dealing.pair_hashes(digest, 0, 1, pairs[1]),
        "signature of 0 over all its share hashes": identity.sign(transcript.share_hashes_message(digest, 0, hashes)),
        "masked input of 0 for the report 1, -1, 0, 1": masking.ring_bytes(vector),
        "proof of the status for a reader that knows member 2 only": b"".join(status_tree.prove([2])),
        "status root, sharers 0 1 2, survivors 0 2": status,
        "confirmation of member 0": identity.sign(transcript.confirm_message(digest, status)),
        "ring of 300 members under the roster digest, its first five, 2 bytes each": first_five(graph),
    }


@pytest.mark.parametrize("name", EXAMPLE)
def test_our_code_computes_what_the_readme_says(name: str) -> None:
    assert ours()[name].hex() == EXAMPLE[name].hex()


@pytest.mark.parametrize("name", EXAMPLE)
def test_the_readme_prints_it(name: str) -> None:
    rows = [line for line in README.read_text().splitlines() if line.startswith(f"| {name} |")]
    assert [row.split("|")[2].strip() for row in rows] == [f"`{EXAMPLE[name].hex()}`"]


PLAN = """[plan]
name = "app-health"
version = 1
period = "1d"
max_delay = "2d"
[cohort]
min_size = 50
target_size = 200
[budget]
lifetime = 365
[metrics.load]
kind = "numeric"
lower = 0
upper = 1
epsilon = 0.5
[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular"]
other = "other"
epsilon = 1.0
"""


def test_the_readmes_canonical_form_is_this_plans() -> None:
    plan = parse_plan(PLAN)
    printed = [line.strip() for line in README.read_text().splitlines() if line.startswith('    {"budget"')]
    assert printed == [canonical_form(plan)]
    assert f"SHA-256: {hashlib.sha256(printed[0].encode()).hexdigest()}" in README.read_text()
    assert hashlib.sha256(printed[0].encode()).digest() == plan.hash
