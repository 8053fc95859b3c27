"""A member of a round by the words of protos/README.md: its answer to each message of the collector.

Written to judge round.json and sparse_round.json, not to be safe: of section 9 it checks what it must compute anyway.
Only `reading.py` and the generated protobuf classes; nothing else of the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from client_sdk.wire.secagg_pb2 import CollectorMessage, ParticipantMessage
from tests.vectors import reading as r


def unhex(entry: Mapping[str, Any], name: str) -> bytes:
    return bytes.fromhex(entry[name])


def fields_of(advert: Any) -> dict[str, object]:
    return {name: getattr(advert, name) for name in r.ADVERT_FIELDS}


class Member:
    """Answers like a device, from the secrets that the file gives it."""

    def __init__(self, document: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
        self.document, self.entry, self.rules = document, entry, document["rules"]
        self.identity, self.mask, self.channel, self.own = (
            unhex(entry, name) for name in ("identity_seed", "mask_seed", "channel_seed", "self_mask_seed")
        )
        self.advert: Any = None

    def hello(self) -> ParticipantMessage:
        message = ParticipantMessage()
        self._name(message.hello)
        return message

    def _name(self, part: Any) -> None:
        start, plan_name = self.document["period_start"], self.document["plan_name"]
        part.identity_key = r.identity_key(self.identity)
        issued_at = int.from_bytes(unhex(self.entry, "certificate")[34:42], "big")
        expires_at = int.from_bytes(unhex(self.entry, "certificate")[42:50], "big")
        registrar = unhex(self.document, "registrar_seed")
        part.certificate = r.certificate(registrar, 1, part.identity_key, issued_at, expires_at)
        part.plan_hash = unhex(self.document, "plan_hash")
        part.period_start = start
        part.report_id = r.report_id(self.identity, plan_name, start)

    def answer(self, message: CollectorMessage) -> list[ParticipantMessage]:
        case = message.WhichOneof("message")
        step = getattr(self, f"_on_{case}")
        return list(step(getattr(message, case)))

    def _on_challenge(self, challenge: Any) -> list[ParticipantMessage]:
        message = ParticipantMessage()
        advert = message.advert
        self._name(advert)
        advert.nonce = challenge.nonce
        advert.mask_key, advert.channel_key = r.round_key(self.mask), r.round_key(self.channel)
        advert.self_mask_commitment = r.commitment(self.own)
        advert.resent, advert.min_cohort = self.entry["resent"], self.entry["min_cohort"]
        advert.signature = r.sign(self.identity, r.advert_message(fields_of(advert)))
        self.advert = advert
        return [message]

    def _on_joined(self, joined: Any) -> list[ParticipantMessage]:
        return []

    def _on_roster(self, roster: Any) -> list[ParticipantMessage]:
        self.size, self.index, self.bits, self.t = roster.size, roster.index, roster.bits, roster.threshold
        self.adverts = {self.index: self.advert, **dict(zip(roster.neighbours, roster.adverts, strict=True))}
        for index, advert in self.adverts.items():
            self._check_advert(advert, index)
        degree = len(roster.neighbours)
        self.digest = self._digest(roster, degree)
        assert self.digest == roster.digest
        assert list(roster.neighbours) == r.neighbours(self.digest, self.size, degree, self.index)
        self.holders = r.holders(self.digest, self.size, degree, self.index)
        return [self._deal(list(roster.neighbours))]

    def _check_advert(self, advert: Any, index: int) -> None:
        assert r.is_round_key(advert.mask_key)
        assert r.is_round_key(advert.channel_key)
        assert r.holds(advert.identity_key, advert.signature, r.advert_message(fields_of(advert))), index
        asked = (unhex(self.document, "registrar_key"), advert.identity_key, 1, self.document["period_start"])
        assert r.certificate_fault(advert.certificate, *asked) is None

    def _digest(self, roster: Any, degree: int) -> bytes:
        leaves = {
            index: r.roster_leaf(index, r.advert_digest(fields_of(advert), advert.signature), advert.resent)
            for index, advert in self.adverts.items()
        }
        root = r.fold(self.size, leaves, roster.proof)
        assert root[1:] == (self.size, roster.resent)
        rules = self.rules
        numbers = (
            self.size, degree, self.t, self.bits, rules["length"], rules["bound"], rules["min_size"],
            *rules["corrupt_fraction"], *rules["dropout_fraction"], rules["max_wait_s"], roster.formed_at,
        )  # fmt: skip
        return r.roster_digest(roster.round_id, numbers, root)

    def _deal(self, neighbours: Sequence[int]) -> ParticipantMessage:
        names = ("mask_coefficients", "self_mask_coefficients")
        coefficients = [[bytes.fromhex(c) for c in self.entry[name]] for name in names]
        assert [len(some) for some in coefficients] == [self.t - 1] * 2
        pairs = {
            holder: [r.share_of(self.mask, coefficients[0], x), r.share_of(self.own, coefficients[1], x)]
            for x, holder in enumerate(self.holders, 1)
        }
        self.pairs = {self.index: pairs[self.index]} if self.index in pairs else {}
        message = ParticipantMessage()
        dealt = message.sealed_shares
        dealt.recipients.extend(neighbours)
        for other in neighbours:
            key = self._channel(self.index, other, other)
            dealt.sealed.append(r.seal(key, *pairs[other], self.digest))
        dealt.share_hashes = b"".join(
            r.share_hash(self.digest, self.index, holder, kind, pairs[holder][kind])
            for holder in self.holders
            for kind in (0, 1)
        )
        dealt.signature = r.sign(self.identity, r.hashes_message(self.digest, self.index, dealt.share_hashes))
        return message

    def _channel(self, sender: int, recipient: int, other: int) -> bytes:
        return r.derive(r.agree(self.channel, self.adverts[other].channel_key), "share", self.digest, sender, recipient)

    def _on_delivered_shares(self, delivered: Any) -> list[ParticipantMessage]:
        self.sharers = list(delivered.sharers)
        for place, (owner, sealed) in enumerate(zip(delivered.owners, delivered.sealed, strict=True)):
            hashes = delivered.share_hashes[64 * place : 64 * place + 64]
            key, ends = self._channel(owner, self.index, owner), (owner, self.index)
            pair = r.usable_pair(key, sealed, self.digest, ends, hashes)
            assert pair is not None
            self.pairs[owner] = pair
        message = ParticipantMessage()
        message.masked_input_piece.data = r.masked(self.entry["report"], self._masks(), self.bits)
        message.masked_input_piece.offset = 0
        return [message]

    def _masks(self) -> list[tuple[bytes, int]]:
        masks = [(r.derive(self.own, "self-mask", self.digest, self.index, self.index), 1)]
        for other in self.sharers:
            if other != self.index:
                low, high = sorted((self.index, other))
                secret = r.agree(self.mask, self.adverts[other].mask_key)
                sign = 1 if self.index < other else -1
                masks.append((r.derive(secret, "pairwise-mask", self.digest, low, high), sign))
        return masks

    def _on_survivor_status(self, status: Any) -> list[ParticipantMessage]:
        self.survivors = list(status.survivors)
        leaves = {
            index: r.status_leaf(self.digest, index, (index in self.sharers) + (index in self.survivors), advert.resent)
            for index, advert in self.adverts.items()
        }
        root = r.fold(self.size, leaves, status.proof)
        assert root[1:] == (status.contributors, status.resent_survivors)
        assert r.status_root(self.digest, root) == status.root
        self.confirmed = r.confirm_message(self.digest, status.root)
        message = ParticipantMessage()
        message.confirm.status_root = status.root
        message.confirm.signature = r.sign(self.identity, self.confirmed)
        return [message]

    def _on_unmask_request(self, request: Any) -> list[ParticipantMessage]:
        assert list(request.dropped) == [index for index in self.sharers if index not in self.survivors]
        assert set(request.confirmed_by) <= set(self.holders) & set(self.survivors)
        assert len(request.confirmed_by) >= self.t
        for signer, signature in zip(request.confirmed_by, request.confirmations, strict=True):
            assert r.holds(self.adverts[signer].identity_key, signature, self.confirmed)
        message = ParticipantMessage()
        for owner in sorted(self.pairs):
            message.unmask_shares.owners.append(owner)
            message.unmask_shares.shares.append(self.pairs[owner][owner in self.survivors])
        return [message]

    def _on_receipt(self, receipt: Any) -> list[ParticipantMessage]:
        assert (receipt.round_id, receipt.roster_size) == (self.document["round_id"], self.size)
        return []
