"""Messages that come in the middle of round.json's round and must be refused, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from client_sdk.certificate import Role
from client_sdk.errors import AbortReason as A
from client_sdk.errors import RejectionReason as R
from client_sdk.identity import IdentityKey
from client_sdk.secagg import messages as m
from client_sdk.secagg.shamir import PRIME
from client_sdk.secagg.transcript import confirm_message, share_hashes_message
from client_sdk.wire import convert
from tests.fleet import PERIOD_START, Fleet, certified
from tests.unit.client_sdk.secagg.one_member import redigested, resigned, told_status, with_neighbour
from tests.vectors.layout import Entry, drawn, edits, flipped
from tests.vectors.primitives import little
from tests.vectors.rounds import recorded_round, replaced, sent_by, stopped, with_advert

Bad = Iterator[tuple[str, A, m.CollectorMessage]]


def refusals_document() -> dict[str, Any]:
    return {
        "about": (
            "Sections 9 and 10. `participant`: what member 0 of round.json is told instead of the message of this kind "
            "in that file, as edits of that message: [place, bytes that go, bytes that come], places before any edit. "
            "`collector`: the same for what a member sends."
        ),
        "participant": [_told(kind, *one) for kind, bad in PARTICIPANT.items() for one in bad()],
        "collector": [_sent(*one) for one in _collector()],
    }


def _told(kind: type, why: str, reason: A, message: m.CollectorMessage) -> Entry:
    changes = edits(recorded("to", 0, kind.__name__), convert.collector_message_to_wire(message))
    return {"instead_of": kind.__name__, "edits": changes, "why": why, "refused": reason.value}


# --- at the participant ------------------------------------------------------------------------------


def _rosters() -> Bad:
    fleet, roster = stopped(m.Roster)
    yield (
        "one neighbour fewer",
        A.WRONG_GRAPH,
        replace(roster, neighbours=roster.neighbours[:-1], adverts=roster.adverts[:-1]),
    )
    yield "three members, four are needed", A.COHORT_TOO_SMALL, replace(roster, size=3)
    yield "my index is a neighbour's", A.OWN_ADVERT_MISSING, replace(roster, index=1)
    yield (
        "neighbours descend",
        A.MALFORMED,
        replace(roster, neighbours=roster.neighbours[::-1], adverts=roster.adverts[::-1]),
    )
    yield (
        "a threshold of 3, its digest fits",
        A.WEAK_PARAMETERS,
        redigested(fleet, replace(roster, threshold=3), threshold=3),
    )
    yield "16 bits, the digest fits", A.WEAK_PARAMETERS, redigested(fleet, replace(roster, bits=16), bits=16)
    yield "another length", A.WEAK_PARAMETERS, replace(roster, length=7)
    yield "a bit of the digest", A.ROSTER_DIGEST, replace(roster, digest=flipped(roster.digest))
    yield "formed a second later than the digest says", A.ROSTER_DIGEST, replace(roster, formed_at=roster.formed_at + 1)
    yield "nobody is resent", A.ROSTER_DIGEST, replace(roster, resent=0)
    yield "a proof where none is needed", A.ROSTER_DIGEST, replace(roster, proof=(bytes(40),))
    yield (
        "two adverts changed places",
        A.ROSTER_DIGEST,
        replace(roster, adverts=(roster.adverts[1], roster.adverts[0], *roster.adverts[2:])),
    )
    yield from _adverts(fleet, roster)


def _adverts(fleet: Fleet, roster: m.Roster) -> Bad:
    first, second = roster.adverts[:2]

    def signed(**changes: Any) -> m.Roster:
        """The digest fits and the signature holds: a dishonest member, not a clumsy collector."""
        return with_neighbour(fleet, roster, 0, resigned(fleet, roster.neighbours[0], replace(first, **changes)))

    own = next(sent_by(fleet, 0, m.Advert))
    key = first.identity_key
    yield "two neighbours are one identity", A.DUPLICATE_KEY, with_advert(roster, 1, identity_key=key)
    yield "a neighbour has my mask key", A.DUPLICATE_KEY, signed(mask_key=own.mask_key)
    yield "a mask key is another's channel key", A.DUPLICATE_KEY, signed(mask_key=second.channel_key)
    yield "a channel key of small order", A.BAD_ADVERT, signed(channel_key=little(1))
    yield "a mask key that is not canonical", A.BAD_ADVERT, signed(mask_key=flipped(first.mask_key, 31, 7))
    yield "another plan", A.BAD_ADVERT, signed(plan_hash=flipped(first.plan_hash))
    yield "another period", A.BAD_ADVERT, signed(period_start=first.period_start + 86_400)
    wrong = replace(first, signature=flipped(first.signature))
    yield "a signature that does not hold", A.BAD_ADVERT, with_neighbour(fleet, roster, 0, wrong)
    for why, certificate in {
        "no certificate": b"",
        "a certificate that ends when the period starts": certified(key, expires_at=PERIOD_START),
        "another identity's certificate": second.certificate,
        "an analyst's certificate": certified(key, role=Role.ANALYST),
        "another registrar's certificate": certified(key, registrar=IdentityKey(drawn("another registrar"))),
    }.items():
        yield why, A.BAD_CERTIFICATE, signed(certificate=certificate)


def _shares() -> Bad:
    _, good = stopped(m.DeliveredShares)

    def without(place: int) -> m.DeliveredShares:
        hashes = good.share_hashes[: 64 * place] + good.share_hashes[64 * (place + 1) :]
        owners, sealed = list(good.owners), list(good.sealed)
        return replace(
            good, owners=owners[:place] + owners[place + 1 :], sealed=sealed[:place] + sealed[place + 1 :],
            share_hashes=hashes,
        )  # fmt: skip

    yield "I am no sharer", A.MALFORMED, replace(good, sharers=good.sharers[1:])
    yield "sharers descend", A.MALFORMED, replace(good, sharers=good.sharers[::-1])
    yield "a sharer beyond the roster", A.MALFORMED, replace(good, sharers=(*good.sharers, 5))
    yield "a pair from me", A.MALFORMED, replace(good, owners=replaced(good.owners, 0, 0))
    yield "a pair from who shared nothing", A.MALFORMED, replace(good, sharers=(0, 2, 3, 4))
    three = without(3)
    yield (
        "three sharers, four are needed",
        A.TOO_FEW_SHARERS,
        replace(
            without(3), sharers=(0, 1, 2), owners=three.owners[:2], sealed=three.sealed[:2], share_hashes=bytes(128)
        ),
    )
    spoilt = replaced(replaced(good.sealed, 0, flipped(good.sealed[0])), 1, flipped(good.sealed[1], 81))
    yield "two pairs of four do not open: three usable ones with mine", A.TOO_FEW_SHARES, replace(good, sealed=spoilt)
    hashes = flipped(flipped(good.share_hashes, 0), 64 + 32)
    yield "two pairs do not fit their hashes", A.TOO_FEW_SHARES, replace(good, share_hashes=hashes)
    both = replace(good, owners=good.owners[:2], sealed=good.sealed[:2], share_hashes=good.share_hashes[:128])
    yield "two pairs are withheld", A.TOO_FEW_SHARES, both


def _status() -> Bad:
    fleet, good = stopped(m.SurvivorStatus)
    proper = {4}
    yield "I am called a dropout", A.NOT_A_SURVIVOR, told_status(fleet, (1, 2, 3, 4), resent=proper)
    yield "survivors descend", A.MALFORMED, replace(good, survivors=good.survivors[::-1])
    yield "three survivors, four are needed", A.TOO_FEW_SURVIVORS, told_status(fleet, (0, 1, 4), resent=proper)
    yield (
        "three survivors are said to be four",
        A.STATUS_MISMATCH,
        replace(told_status(fleet, (0, 1, 4), resent=proper), contributors=4),
    )
    yield (
        "member 3 is said to have survived, under the root that says not",
        A.STATUS_MISMATCH,
        replace(good, survivors=(0, 1, 2, 3, 4)),
    )
    yield "a bit of the root", A.STATUS_MISMATCH, replace(good, root=flipped(good.root))
    yield "the tree's root without its label", A.STATUS_MISMATCH, replace(good, root=drawn("root"))
    yield "the resent member counted as fresh", A.STATUS_MISMATCH, told_status(fleet, (0, 1, 2, 4))
    yield "a fresh member counted as resent too", A.TOO_FEW_SURVIVORS, told_status(fleet, (0, 1, 2, 4), resent={1, 4})
    yield (
        "five contributors where the roster has four fresh",
        A.STATUS_MISMATCH,
        replace(good, contributors=5, resent_survivors=0),
    )
    yield "a proof where none is needed", A.STATUS_MISMATCH, replace(good, proof=(bytes(40),))
    yield "the unmask request instead", A.OUT_OF_ORDER, m.UnmaskRequest((), (), ())


def _unmask() -> Bad:
    fleet, good = stopped(m.UnmaskRequest)
    yield "nobody dropped", A.UNMASK_MISMATCH, replace(good, dropped=())
    yield "a survivor is called dropped: both its seeds would open", A.UNMASK_MISMATCH, replace(good, dropped=(2, 3))
    yield "I am called dropped", A.UNMASK_MISMATCH, replace(good, dropped=(0, 3))
    two = replace(good, confirmed_by=good.confirmed_by[:3], confirmations=good.confirmations[:3])
    yield "three confirmations with mine, four are needed", A.TOO_FEW_CONFIRMATIONS, two
    yield (
        "signers descend",
        A.MALFORMED,
        replace(good, confirmed_by=good.confirmed_by[::-1], confirmations=good.confirmations[::-1]),
    )
    one = good.confirmations
    yield "a bit of a signature", A.BAD_CONFIRMATION, replace(good, confirmations=replaced(one, 1, flipped(one[1])))
    yield (
        "two signatures changed places",
        A.BAD_CONFIRMATION,
        replace(good, confirmations=(one[0], one[2], one[1], *one[3:])),
    )
    other = fleet.identities[1].sign(confirm_message(fleet.round.digest, drawn("another root")))
    yield "a signature over another root", A.BAD_CONFIRMATION, replace(good, confirmations=replaced(one, 1, other))
    yield "signed by the dropout", A.BAD_CONFIRMATION, replace(good, confirmed_by=(0, 1, 2, 3))
    yield (
        "the status once more",
        A.OUT_OF_ORDER,
        next(message for index, message in fleet.received if index == 0 and isinstance(message, m.SurvivorStatus)),
    )


def _receipt() -> Bad:
    _, good = stopped(m.Receipt)
    yield "another round", A.STATUS_MISMATCH, replace(good, round_id="round_6-A")
    yield "five contributors", A.STATUS_MISMATCH, replace(good, contributors=5)
    yield "six members", A.STATUS_MISMATCH, replace(good, roster_size=6)
    yield "asked once more", A.OUT_OF_ORDER, m.UnmaskRequest((), (), ())


PARTICIPANT = {
    m.Roster: _rosters,
    m.DeliveredShares: _shares,
    m.SurvivorStatus: _status,
    m.UnmaskRequest: _unmask,
    m.Receipt: _receipt,
}


# --- at the collector --------------------------------------------------------------------------------


def _sent(member: int, why: str, reason: str, message: m.ParticipantMessage, kind: type | None = None) -> Entry:
    name = (kind or type(message)).__name__
    changes = edits(recorded("from", member, name), convert.participant_message_to_wire(message))
    return {"from": member, "instead_of": name, "edits": changes, "why": why, "refused": reason}


def recorded(end: str, member: int, kind: str) -> bytes:
    """The bytes of the message in round.json, as generated."""
    log, _ = recorded_round()
    found: bytes = next(entry["wire"] for entry in log if entry.get(end) == member and entry["kind"] == kind)
    return found


def _collector() -> Iterator[tuple[Any, ...]]:
    fleet, _ = stopped(m.Receipt)
    shares = next(sent_by(fleet, 1, m.SealedShares))
    other_hashes = flipped(shares.share_hashes, 5)
    yield 1, "hashes that were not signed", R.BAD_SIGNATURE.value, replace(shares, share_hashes=other_hashes)
    unlabelled = fleet.identities[1].sign(shares.share_hashes)
    yield 1, "signed without label, roster and owner", R.BAD_SIGNATURE.value, replace(shares, signature=unlabelled)
    as_owner_0 = fleet.identities[1].sign(share_hashes_message(fleet.round.digest, 0, shares.share_hashes))
    yield 1, "signed as another owner's", R.BAD_SIGNATURE.value, replace(shares, signature=as_owner_0)
    yield 1, "recipients in another order", R.MALFORMED.value, replace(shares, recipients=shares.recipients[::-1])
    yield 1, "no hashes of my own pair", R.MALFORMED.value, replace(shares, share_hashes=shares.share_hashes[:-64])
    piece = next(sent_by(fleet, 1, m.MaskedInputPiece))
    yield 1, "a gap", R.MALFORMED.value, replace(piece, offset=1)
    yield 1, "half an element", R.MALFORMED.value, replace(piece, data=piece.data[:-2])
    yield 1, "more elements than the vector has", R.MALFORMED.value, replace(piece, data=piece.data + bytes(4))
    confirm = next(sent_by(fleet, 1, m.Confirm))
    yield 1, "another root", R.MALFORMED.value, replace(confirm, status_root=flipped(confirm.status_root))
    yield 1, "a bit of the signature", R.BAD_SIGNATURE.value, replace(confirm, signature=flipped(confirm.signature))
    yield from _unmask_shares(fleet, confirm)


def _unmask_shares(fleet: Fleet, confirm: m.Confirm) -> Iterator[tuple[Any, ...]]:
    shares = next(sent_by(fleet, 1, m.UnmaskShares))
    prime = replaced(shares.shares, 2, PRIME.to_bytes(33, "big"))
    yield 1, "a share is the prime", R.MALFORMED.value, replace(shares, shares=prime)
    yield (
        1,
        "owners descend",
        R.MALFORMED.value,
        replace(shares, owners=shares.owners[::-1], shares=shares.shares[::-1]),
    )
    yield 1, "an owner twice", R.MALFORMED.value, replace(shares, owners=replaced(shares.owners, 1, 0))
    yield 1, "the confirmation once more", R.ALREADY_RECEIVED.value, confirm, m.UnmaskShares
    late = next(sent_by(fleet, 1, m.MaskedInputPiece))
    yield 1, "another masked input", R.LATE.value, replace(late, data=bytes(len(late.data))), m.UnmaskShares
    wrong = replaced(shares.shares, 2, flipped(shares.shares[2], 32))
    yield (
        1,
        "a share that its owner did not sign: taken, left out, and held against the member",
        "wrong_share",
        replace(shares, shares=wrong),
    )
