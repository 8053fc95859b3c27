"""The vectors against an independent reading: expected values by the words of protos/README.md, not by the SDK."""

from __future__ import annotations

import ast
import hashlib
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from client_sdk.wire import deletion_pb2, direct_pb2, enrolment_pb2, plan_pb2, secagg_pb2
from client_sdk.wire.secagg_pb2 import CollectorMessage, ParticipantMessage
from tests.hypergeometric import Oracle
from tests.vectors import plan_reading
from tests.vectors import reading as r
from tests.vectors.layout import load, raw
from tests.vectors.member import Member, unhex

FOLDER = Path(__file__).resolve().parent
GENERATED = (secagg_pb2, enrolment_pb2, plan_pb2, deletion_pb2, direct_pb2)


def ids(entry: Any) -> str:
    return str(entry.get("why", ""))[:40] if isinstance(entry, dict) else ""


def test_the_reading_knows_nothing_of_the_sdk_but_generated_code() -> None:
    for name in ("reading", "member", "plan_reading"):
        tree = ast.parse((FOLDER / f"{name}.py").read_text())
        found = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        found |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        ours = {module for module in found if module.split(".")[0] in ("client_sdk", "collector", "tests")}
        assert ours <= {"client_sdk.wire.secagg_pb2", "tests.vectors"}


# --- keys.json, certificates.json --------------------------------------------------------------------

KEYS = load("keys")


def test_identities() -> None:
    for one in KEYS["identities"]:
        (seed,) = raw(one, "seed")
        key = r.identity_key(seed)
        assert key.hex() == one["identity_key"]
        assert r.sha256(key)[:16].hex() == one["device_id"]
        assert r.report_id(seed, one["plan_name"], one["period_start"]).hex() == one["report_id"]


SIGNED = {
    "enrolment": lambda one, key: r.field(one["token"].encode()),
    "renewal": lambda one, key: r.field(unhex(one, "certificate")),
    "deletion": lambda one, key: r.field(key) + r.field(r.integer(one["requested_at"])),
    "plan": lambda one, key: r.field(unhex(one, "plan_hash")),
    "assertion": lambda one, key: b"".join(
        map(r.field, (one["method"].encode(), one["name"].encode(), unhex(one, "certificate"), r.integer(one["time"])))
    ),
}


@pytest.mark.parametrize("one", KEYS["signatures"], ids=lambda one: one["what"])
def test_what_an_identity_signs(one: dict[str, Any]) -> None:
    (seed,) = raw(one, "seed")
    label = f"ldp-telemetry/{one['what']}/v1".encode()
    message = r.field(label) + SIGNED[one["what"]](one, r.identity_key(seed))
    assert message.hex() == one["message"]
    assert r.sign(seed, message).hex() == one["signature"]


def test_an_assertion_is_certificate_time_signature_name() -> None:
    (one,) = (entry for entry in KEYS["signatures"] if entry["what"] == "assertion")
    told = unhex(one, "certificate") + r.integer(one["time"]) + unhex(one, "signature") + one["name"].encode()
    assert told.hex() == one["assertion"]


def test_round_keys_and_commitments() -> None:
    for one in KEYS["round_keys"]:
        assert r.round_key(unhex(one, "seed")).hex() == one["public_key"]
    for one in KEYS["self_mask_commitments"]:
        assert r.commitment(unhex(one, "self_mask_seed")).hex() == one["commitment"]


def test_derived_keys() -> None:
    usages: Counter[str] = Counter()
    for one in KEYS["derived_keys"]:
        usage, digest = one["usage"], unhex(one, "roster_digest")
        secret = unhex(one, "secret") if "secret" in one else r.agree(*raw(one, "own_seed", "peer_key"))
        assert r.info(usage, digest, one["first"], one["second"]).hex() == one["info"]
        assert r.derive(secret, usage, digest, one["first"], one["second"]).hex() == one["key"]
        if usage == "pairwise-mask":
            assert one["sign"] == (1 if one["me"] < one["other"] else -1)
        usages[usage] += 1
    assert usages == {"self-mask": 1, "pairwise-mask": 2, "share": 4}
    # Both ends have the same keys, in one direction each.
    for usage, kinds in (("pairwise-mask", 1), ("share", 2)):
        assert len({one["key"] for one in KEYS["derived_keys"] if one["usage"] == usage}) == kinds


@pytest.mark.parametrize("one", KEYS["bad_x25519_keys"], ids=ids)
def test_bad_x25519_keys(one: dict[str, Any]) -> None:
    assert not r.is_round_key(unhex(one, "key"))
    assert r.is_round_key(unhex(KEYS["round_keys"][0], "public_key"))


@pytest.mark.parametrize("one", KEYS["bad_identity_keys"] + KEYS["bad_signatures"], ids=ids)
def test_bad_signatures(one: dict[str, Any]) -> None:
    assert not r.holds(*raw(one, "identity_key", "signature", "message"))


def test_bad_identity_keys_are_bad_by_themselves() -> None:
    assert not any(r.is_identity(unhex(one, "identity_key")) for one in KEYS["bad_identity_keys"])
    assert all(r.is_identity(unhex(one, "identity_key")) for one in KEYS["identities"] + KEYS["bad_signatures"])


CERTIFICATES = load("certificates")


def test_good_certificates() -> None:
    for one in CERTIFICATES["good"]:
        seed, key = raw(one, "registrar_seed", "identity_key")
        made = r.certificate(seed, one["role"], key, one["issued_at"], one["expires_at"])
        assert made.hex() == one["certificate"]
        assert r.certificate_fault(made, r.identity_key(seed), key, one["role"], one["at"]) is None


@pytest.mark.parametrize("one", CERTIFICATES["bad"], ids=ids)
def test_bad_certificates(one: dict[str, Any]) -> None:
    given = raw(one, "certificate", "registrar_key", "identity_key")
    assert r.certificate_fault(*given, one["role"], one["at"]) == one["refused"]


# --- masks.json, shamir.json, sealed_shares.json -----------------------------------------------------


def test_masks() -> None:
    document = load("masks")
    for one in document["streams"]:
        assert r.keystream(unhex(one, "key"), 32).hex() == one["stream"]
        for bits in (16, 32, 64):
            assert r.elements(unhex(one, "stream"), bits) == one[f"elements_{bits}"]
    for one in document["masked"]:
        masks = [(bytes.fromhex(key), sign) for key, sign in one["masks"]]
        assert r.masked(one["report"], masks, one["bits"]).hex() == one["masked"]
        clean = r.masked(r.elements(unhex(one, "masked"), one["bits"]), [(k, -s) for k, s in masks], one["bits"])
        assert r.signed_elements(clean, one["bits"]) == one["report"]


def test_a_long_vector_goes_in_pieces() -> None:
    one = load("masks")["long"]
    ((key, sign),) = one["masks"]
    assert sign == 1
    stream = r.keystream(bytes.fromhex(key), one["length"] * one["bits"] // 8)
    begin = 0
    for piece in one["pieces"]:
        assert piece["offset"] * one["bits"] == 8 * begin
        data = stream[begin : begin + piece["bytes"]]
        assert hashlib.sha256(data).hexdigest() == piece["sha256"]
        begin += piece["bytes"]
    assert begin == len(stream)
    assert max(piece["bytes"] for piece in one["pieces"]) == 262_144


SHAMIR = load("shamir")


def test_shares() -> None:
    assert int(SHAMIR["prime"], 16) == r.PRIME
    for one in SHAMIR["splits"]:
        coefficients = [bytes.fromhex(c) for c in one["coefficients"]]
        assert len(coefficients) == one["threshold"] - 1
        for x, share in one["shares"].items():
            assert r.share_of(unhex(one, "secret"), coefficients, int(x)).hex() == share
    for one in SHAMIR["combinations"]:
        assert r.seed_of(one["xs"], [bytes.fromhex(share) for share in one["shares"]]).hex() == one["secret"]


@pytest.mark.parametrize("one", SHAMIR["bad_combinations"], ids=ids)
def test_bad_shares(one: dict[str, Any]) -> None:
    with pytest.raises(r.SharesError, match=one["refused"]):
        r.seed_of(one["xs"], [bytes.fromhex(share) for share in one["shares"]])


SEALED = load("sealed_shares")


def test_sealed_shares() -> None:
    for one in SEALED["sealed"]:
        digest, own, peer, mask_share, self_share = raw(
            one, "roster_digest", "owner_channel_seed", "holder_channel_seed", "mask_share", "self_share"
        )
        ends = one["owner"], one["holder"]
        key = r.derive(r.agree(own, r.round_key(peer)), "share", digest, *ends)
        assert key.hex() == one["share_key"]
        assert r.seal(key, mask_share, self_share, digest).hex() == one["sealed"]
        hashes = r.share_hash(digest, *ends, 0, mask_share) + r.share_hash(digest, *ends, 1, self_share)
        assert hashes.hex() == one["share_hashes"]
        assert r.usable_pair(key, unhex(one, "sealed"), digest, ends, hashes) == [mask_share, self_share]
    (one,) = SEALED["signed_hashes"]
    message = r.hashes_message(unhex(one, "roster_digest"), one["owner"], unhex(one, "share_hashes"))
    assert message.hex() == one["message"]
    assert r.sign(unhex(one, "seed"), message).hex() == one["signature"]


@pytest.mark.parametrize("one", SEALED["unusable"], ids=ids)
def test_unusable_pairs(one: dict[str, Any]) -> None:
    digest, seed, peer, sealed, hashes = raw(
        one, "roster_digest", "holder_channel_seed", "owner_channel_key", "sealed", "share_hashes"
    )
    ends = one["owner"], one["holder"]
    key = r.derive(r.agree(seed, peer), "share", digest, *ends)
    assert r.usable_pair(key, sealed, digest, ends, hashes) is None


# --- adverts.json, rosters.json, trees.json ----------------------------------------------------------

ADVERTS = load("adverts")


def fields(one: dict[str, Any]) -> dict[str, object]:
    return {n: bytes.fromhex(v) if isinstance(v := one[n], str) else v for n in r.ADVERT_FIELDS}


def test_adverts() -> None:
    for one in ADVERTS["adverts"]:
        message = r.advert_message(fields(one))
        assert message.hex() == one["message"]
        signature = r.sign(unhex(one, "identity_seed"), message)
        assert signature.hex() == one["signature"]
        assert r.advert_digest(fields(one), signature).hex() == one["digest"]


@pytest.mark.parametrize("one", ADVERTS["bad_adverts"], ids=ids)
def test_bad_adverts(one: dict[str, Any]) -> None:
    assert not r.holds(*raw(one, "identity_key", "signature"), r.advert_message(fields(one)))


def test_rosters() -> None:
    for one in load("rosters")["rosters"]:
        adverts = ADVERTS["adverts"][: one["size"]]
        leaves = [r.roster_leaf(i, unhex(a, "digest"), a["resent"]) for i, a in enumerate(adverts)]
        assert [r.node_bytes(leaf).hex() for leaf in leaves] == one["leaves"]
        root = r.fold(one["size"], dict(enumerate(leaves)), ())
        assert r.node_bytes(root).hex() == one["root"]
        names = ("size", "degree", "threshold", "bits", "length", "bound", "min_size")
        numbers = [*(one[name] for name in names), *one["corrupt_fraction"], *one["dropout_fraction"]]
        numbers += [one["max_wait_s"], one["formed_at"]]
        assert r.roster_digest(one["round_id"], numbers, root).hex() == one["digest"]


def test_statuses() -> None:
    seen = Counter[int]()
    for one in load("rosters")["statuses"]:
        digest = unhex(one, "roster_digest")
        leaves = [r.status_leaf(digest, i, s, i in one["resent"]) for i, s in enumerate(one["statuses"])]
        assert [r.node_bytes(leaf).hex() for leaf in leaves] == one["leaves"]
        tree_root = r.fold(len(leaves), dict(enumerate(leaves)), ())
        assert r.node_bytes(tree_root).hex() == one["tree_root"]
        root = r.status_root(digest, tree_root)
        assert root.hex() == one["status_root"]
        assert r.confirm_message(digest, root).hex() == one["message"]
        assert r.sign(unhex(one, "identity_seed"), unhex(one, "message")).hex() == one["signature"]
        seen.update(one["statuses"])
    assert set(seen) == {0, 1, 2}


TREES = load("trees")


def leaf(index: int) -> r.Node:
    first = int(index % 3 != 0)
    return r.sha256(index.to_bytes(4, "big")), first, first if index % 5 == 0 else 0


def test_trees() -> None:
    for tree in TREES["trees"]:
        size = tree["size"]
        whole = r.fold(size, {index: leaf(index) for index in range(size)}, ())
        assert r.node_bytes(whole).hex() == tree["root"]
        for one in tree["proofs"]:
            known = {index: leaf(index) for index in one["known"]}
            assert r.fold(size, known, map(bytes.fromhex, one["proof"])) == whole
            assert bool(one["proof"]) == (len(known) < size)


@pytest.mark.parametrize("one", TREES["bad_proofs"], ids=ids)
def test_bad_proofs(one: dict[str, Any]) -> None:
    known, proof = {index: leaf(index) for index in one["known"]}, map(bytes.fromhex, one["proof"])
    if one["refused"] == "another_root":
        assert r.node_bytes(r.fold(one["size"], known, proof)).hex() != one["root"]
        return
    with pytest.raises(r.ProofError, match=f"^{one['refused']}$"):
        r.fold(one["size"], known, proof)


# --- graphs.json, sizes.json -------------------------------------------------------------------------


def test_graphs() -> None:
    for one in load("graphs")["graphs"]:
        digest, size, degree = unhex(one, "roster_digest"), one["size"], one["degree"]
        complete = degree == size - 1
        order = [] if complete else r.ring_order(digest, size)
        assert b"".join(member.to_bytes(2, "big") for member in order).hex() == one["order"]
        for member in one["members"]:
            index = member["index"]
            near, held = r.neighbours(digest, size, degree, index), r.holders(digest, size, degree, index)
            assert member.get("neighbours", near) == near
            assert len(near) == degree
            assert (index in held) == complete
            assert member["holders"] == len(held) == degree + complete
            assert {holder: held.index(int(holder)) + 1 for holder in member["x_of"]} == member["x_of"]


SIZES = load("sizes")


def test_sizes() -> None:
    seen: Counter[str] = Counter()
    for size, corrupt, dropout, degree, threshold in SIZES["parameters"]:
        c, d = Fraction(*corrupt), Fraction(*dropout)
        complete = size - 1, r.complete_threshold(size, c)
        expected: tuple[int, int] | None = complete
        if size > 256:
            expected = Oracle(size, c, d).parameters()
            seen["sparse" if expected else "none sparse"] += 1
            if expected is None and size <= 1024 and size - int(d * size) >= complete[1]:
                expected = complete
                seen["complete above 256"] += 1
        assert (degree, threshold) == (expected or (None, None)), (size, corrupt, dropout)
    assert seen["none sparse"] > seen["complete above 256"] > 0, seen
    assert seen["sparse"] > 20


def test_small_numbers() -> None:
    for one in SIZES["min_rosters"]:
        assert r.min_roster(one["min_size"], Fraction(*one["dropout_fraction"])) == one["min_roster"]
    for one in SIZES["ring_bits"]:
        assert r.ring_bits(one["size"], one["bound"]) == one["bits"]
    assert {one["bits"] for one in SIZES["ring_bits"]} == {16, 32, 64, None}


# --- round.json, sparse_round.json -------------------------------------------------------------------


def replayed(document: dict[str, Any]) -> dict[int, Member]:
    """Every member answers what it is told as the file says it answers."""
    members = {entry["index"]: Member(document, entry) for entry in document["members"]}
    owed: dict[int, list[ParticipantMessage]] = {index: [member.hello()] for index, member in members.items()}
    left_out = 0
    for one in document["messages"]:
        data = bytes.fromhex(one["wire"])
        if "from" in one:
            assert ParticipantMessage.FromString(data) == owed[one["from"]].pop(0), one["kind"]
        else:
            assert not owed[one["to"]], "the file has no answer"
            owed[one["to"]] = members[one["to"]].answer(CollectorMessage.FromString(data))
    left_out = sum(map(len, owed.values()))
    assert left_out == 0
    return members


def test_a_whole_round_message_by_message() -> None:
    document = load("round")
    members = replayed(document)
    kinds = {one["kind"] for one in document["messages"]}
    assert len(kinds) == 13
    assert {index for index, member in members.items() if hasattr(member, "survivors")} == set(document["survivors"])


def test_the_sum_opens() -> None:
    """Section 8, Opening, from the messages alone: what a collector does with them."""
    document = load("round")
    sent: dict[str, dict[int, Any]] = {}
    told: dict[str, Any] = {}
    for one in document["messages"]:
        data = bytes.fromhex(one["wire"])
        outer = ParticipantMessage.FromString(data) if "from" in one else CollectorMessage.FromString(data)
        case = outer.WhichOneof("message")
        if "from" in one:
            sent.setdefault(case, {})[one["from"]] = getattr(outer, case)
        else:
            told[case] = getattr(outer, case)
    digest, bits, t = told["roster"].digest, told["roster"].bits, told["roster"].threshold
    adverts, pieces = sent["advert"], sent["masked_input_piece"]
    assert sorted(pieces) == document["survivors"]
    total = [sum(column) for column in zip(*(r.elements(p.data, bits) for p in pieces.values()), strict=True)]
    masks = []
    for owner in sent["sealed_shares"]:
        given = {i + 1: dict(zip(m.owners, m.shares, strict=True))[owner] for i, m in sent["unmask_shares"].items()}
        chosen = sorted(given)[:t]
        seed = r.seed_of(chosen, [given[x] for x in chosen])
        if owner in pieces:
            assert r.commitment(seed) == adverts[owner].self_mask_commitment
            masks.append((r.derive(seed, "self-mask", digest, owner, owner), -1))
            continue
        assert r.round_key(seed) == adverts[owner].mask_key
        for other in pieces:
            secret = r.agree(seed, adverts[other].mask_key)
            low, high = sorted((owner, other))
            masks.append((r.derive(secret, "pairwise-mask", digest, low, high), -1 if other < owner else 1))
    assert r.signed_elements(r.masked(total, masks, bits), bits) == document["total"]
    reports = [document["members"][index]["report"] for index in document["survivors"]]
    assert document["total"] == [sum(column) for column in zip(*reports, strict=True)]


def test_a_member_that_does_not_see_everybody() -> None:
    document = load("sparse_round")
    (member,) = replayed(document).values()
    assert member.index not in member.holders
    assert len(member.holders) == 12 < member.size - 1
    near = set(member.adverts)
    assert near & set(document["absent"]), "a neighbour that dealt no shares"
    assert near & set(document["dropped"]), "a neighbour whose mask key is asked for"
    told = [CollectorMessage.FromString(bytes.fromhex(one["wire"])) for one in document["messages"] if "to" in one]
    assert sum(len(m.roster.proof) + len(m.survivor_status.proof) for m in told) > 20


def plain(message: Any) -> dict[str, Any]:
    """A generated message as a file writes it."""
    found = {}
    for descriptor in message.DESCRIPTOR.fields:
        value = getattr(message, descriptor.name)
        many = descriptor.is_repeated if hasattr(descriptor, "is_repeated") else descriptor.label == 3
        found[descriptor.name] = [as_file(item) for item in value] if many else as_file(value)
    return found


def as_file(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int) else plain(value)


@pytest.mark.parametrize("one", load("messages")["messages"], ids=lambda one: one["kind"])
def test_messages_say_what_their_fields_say(one: dict[str, Any]) -> None:
    wire_type = next(getattr(module, one["message"]) for module in GENERATED if hasattr(module, one["message"]))
    outer = wire_type.FromString(unhex(one, "wire"))
    inner = getattr(outer, outer.WhichOneof("message")) if outer.DESCRIPTOR.oneofs else outer
    assert inner.DESCRIPTOR.name == one["kind"]
    assert plain(inner) == one["fields"]


# --- plans.json --------------------------------------------------------------------------------------

PLANS = load("plans")


@pytest.mark.parametrize("one", PLANS["plans"], ids=ids)
def test_plans(one: dict[str, Any]) -> None:
    for text in one["texts"]:
        plan = plan_reading.read(text)
        assert plan_reading.canonical(plan, one["mechanisms"], one.get("levels", {})) == one["canonical"]
        assert plan_reading.report_price(plan) == one["report_micro_epsilon"]
        for name, table in plan["metrics"].items():
            named = table.get("mechanism", "auto")
            assert one["mechanisms"][name] == named or named == "auto"
    assert plan_reading.sha256(one["canonical"]) == one["hash"]


@pytest.mark.parametrize("one", PLANS["plans"], ids=ids)
def test_where_a_plans_metrics_stand(one: dict[str, Any]) -> None:
    plan, at = plan_reading.read(one["texts"][0]), 0
    for name in sorted(plan["metrics"]):
        first, end = one["places"][name]
        wanted = plan_reading.elements(plan["metrics"][name], one["mechanisms"][name])
        if "slice_by" in plan["metrics"][name]:
            wanted = plan_reading.pairs(plan["metrics"], name, one["levels"][name])
        assert (first, wanted or end - first) == (at, end - first)
        at = end + (name in one["counts"])
        assert one["counts"].get(name, end) == end
    assert (at, len(one["counts"])) == (
        one["elements"], len(plan["metrics"]) if "sample_metrics" in plan["plan"] else 0,
    )  # fmt: skip


def test_plans_of_every_kind_and_with_every_new_field_are_there() -> None:
    forms = [json.loads(one["canonical"]) for one in PLANS["plans"]]
    fields = {(table["kind"], name) for form in forms for table in form["metrics"].values() for name in table}
    assert {kind for kind, _ in fields} == {"numeric", "categorical", "histogram", "quantiles", "vector"}
    assert {name for _, name in fields} >= {
        "edges", "bins", "quantiles", "optional", "presence_share", "removed", "mechanism", "default", "expires",
    }  # fmt: skip
    assert {name for form in forms for name in form["plan"]} >= {"sample_metrics", "removed_metrics"}
    assert len({one["hash"] for one in PLANS["plans"]}) == len(PLANS["plans"])


# --- direct.json -------------------------------------------------------------------------------------

DIRECT = load("direct")


def direct_reports() -> list[dict[str, Any]]:
    plan_hash = unhex(DIRECT, "plan_hash")
    return [{**one, "plan_hash": plan_hash, "report_id": unhex(one, "report_id")} for one in DIRECT["reports"]]


def test_a_direct_call() -> None:
    seed, certificate, nonce = raw(DIRECT, "identity_seed", "certificate", "nonce")
    key = r.identity_key(seed)
    form = plan_reading.canonical(plan_reading.read(DIRECT["plan"]), {"m0": "laplace", "m1": "randomized_response"})
    assert plan_reading.sha256(form) == DIRECT["plan_hash"]
    for one in DIRECT["reports"]:
        assert r.report_id(seed, "vectors", one["period_start"]).hex() == one["report_id"]
        assert r.packed_report(one["elements"], 46_000).hex() == one["packed"]
    offered = r.direct_offer_message(key, certificate, nonce, direct_reports())
    assert offered.hex() == DIRECT["offer_message"]
    said = [
        (direct_pb2.DeliverRequest if "from" in one else direct_pb2.DeliverResponse).FromString(unhex(one, "wire"))
        for one in DIRECT["messages"]
    ]
    assert [one.WhichOneof("message") for one in said] == [
        "hello", "challenge", "offer", "standing", "piece", "piece", "seal", "receipts"
    ]  # fmt: skip
    assert said[2].offer.signature == r.sign(seed, offered)
    sent = {one.piece.place: one.piece.data for one in said[4:6]}
    assert list(sent) == [place for place, word in enumerate(said[3].standing.answers) if word == "wanted"] == [0, 2]
    assert all(data.hex() == DIRECT["reports"][place]["packed"] for place, data in sent.items())
    message = r.direct_seal_message(offered, sent)
    assert message.hex() == DIRECT["seal_message"]
    assert said[6].seal.signature == r.sign(seed, message)


@pytest.mark.parametrize("one", DIRECT["bad_offers"], ids=ids)
def test_bad_direct_offers(one: dict[str, Any]) -> None:
    seed, certificate, nonce = raw(DIRECT, "identity_seed", "certificate", "nonce")
    offered = r.direct_offer_message(r.identity_key(seed), certificate, nonce, direct_reports())
    assert not r.holds(r.identity_key(seed), unhex(one, "signature"), offered)


@pytest.mark.parametrize("one", DIRECT["bad_seals"], ids=ids)
def test_bad_direct_seals(one: dict[str, Any]) -> None:
    key = r.identity_key(unhex(DIRECT, "identity_seed"))
    assert not r.holds(key, unhex(one, "signature"), unhex(DIRECT, "seal_message"))
