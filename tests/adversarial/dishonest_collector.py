"""A collector that lies, in memory, to real participants; and all that it can make of what they give it.

It is made of the honest one's parts (committed roster, status trees) and may send anybody anything instead. Honest
members stand first in the roster, puppets (`puppets.py`) behind them. What it wants is `open`: the sum over a set of
members of its own choice, from nothing but what was sent to it, what its puppets hold, and mask-key seeds that it
knows from before. A seed counts only if it fits what its owner advertised, so whatever `open` returns was learnt.

    liar = Liar(rules(min_size=4), [[1, 10], [2, 20], ...], puppets=1)
    liar.begin()                      # adverts, committed roster, everybody deals
    liar.deliver(0, sharers=(0, 6))   # to one member, or to all with `deliver_all`
    liar.open({0})
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from client_sdk.errors import AbortReason, RemoteProtocolError
from client_sdk.identity import IdentityKey
from client_sdk.secagg import keys, masking, shamir
from client_sdk.secagg.messages import (
    SHARE_HASH_PAIR_BYTES,
    Advert,
    Challenge,
    CollectorMessage,
    Confirm,
    DeliveredShares,
    Joined,
    MaskedInputPiece,
    ParticipantMessage,
    Roster,
    SealedShares,
    SurvivorStatus,
    UnmaskRequest,
    UnmaskShares,
)
from client_sdk.secagg.parameters import RoundRules
from client_sdk.secagg.participant import Participant
from client_sdk.secagg.transcript import ShareKind
from collector.secagg import roster as roster_module
from collector.secagg.roster import CommittedRoster
from collector.secagg.status import CommittedStatus
from tests.adversarial.puppets import Puppet
from tests.fleet import (
    FORMED_AT,
    PERIOD_START,
    PLAN_HASH,
    PLAN_NAME,
    REGISTRAR,
    SeededEntropy,
    certified,
    column_sums,
)


@dataclass
class Liar:
    """rules: the honest members'. vectors: theirs, one a member. puppets: how many, or the puppets themselves."""

    rules: RoundRules
    vectors: Sequence[Sequence[int]]
    puppets: int | Sequence[Puppet] = 0
    resent: Collection[int] = ()
    min_cohorts: Mapping[int, int] = field(default_factory=dict)
    plan_hashes: Mapping[int, bytes] = field(default_factory=dict)
    periods: Mapping[int, int] = field(default_factory=dict)
    name: str = "round-1"
    first_device: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.puppets, int):
            self.puppets = [Puppet(f"{place} of {self.name}") for place in range(self.puppets)]
        self.honest = range(len(self.vectors))
        self.played = dict(enumerate(self.puppets, start=len(self.vectors)))
        # identities are the devices' own and stay, round secrets are new in every round
        self.identities = [
            IdentityKey(hashlib.sha256(b"device %d" % (self.first_device + i)).digest()) for i in self.honest
        ]
        self.participants = [self._participant(i) for i in self.honest]
        self.now = float(FORMED_AT)
        self.refusals: dict[int, AbortReason] = {}
        self.sealed: dict[int, SealedShares] = {}
        self.told_sharers: dict[int, tuple[int, ...]] = {}
        self.pieces: dict[int, bytes] = {}
        self.signatures: dict[tuple[bytes, int], bytes] = {}
        self.shares: dict[tuple[int, ShareKind], dict[int, bytes]] = {}
        self.mask_seeds: dict[bytes, bytes] = {}
        self.holders_told: dict[int, tuple[int, ...]] = {}
        self.roster: CommittedRoster

    def _participant(self, index: int) -> Participant:
        identity, period = self.identities[index], self.periods.get(index, PERIOD_START)
        return Participant(
            identity=identity,
            certificate=certified(identity.public_key),
            registrar_key=REGISTRAR.public_key,
            plan_hash=self.plan_hashes.get(index, PLAN_HASH),
            period_start=period,
            report_id=identity.report_id(PLAN_NAME, period),
            vector=self.vectors[index],
            rules=self.rules,
            resent=index in self.resent,
            min_cohort=self.min_cohorts.get(index, 0),
            entropy=SeededEntropy(b"device %d in " % index + self.name.encode()),
        )

    # --- talking -------------------------------------------------------------------------------------

    def say(self, index: int, message: CollectorMessage) -> list[ParticipantMessage]:
        """A message to one honest member; no answers where it refuses, or has refused before."""
        if index in self.refusals:
            return []
        try:
            return self.participants[index].receive(message, self.now)
        except RemoteProtocolError as error:
            self.refusals[index] = error.reason
            return []

    def adverts(self) -> list[Advert]:
        """Everybody joins."""
        found: list[Advert] = []
        for index in self.honest:
            self.participants[index].hello()
            nonce = hashlib.sha256(b"nonce %d of " % index + self.name.encode()).digest()
            (advert,) = self.say(index, Challenge(nonce))
            assert isinstance(advert, Advert)
            self.say(index, Joined(0, 0))
            found.append(advert)
        for puppet in self.played.values():
            self.mask_seeds |= puppet.knows()
            found.append(puppet.advert())
        return found

    def commit(self, adverts: Sequence[Advert]) -> CommittedRoster:
        """Also what an honest collector would not: with a member twice, or too few."""
        with mock.patch.object(roster_module, "_check_cohort"):
            self.roster = CommittedRoster(self.name, self.rules, adverts, int(self.now))
        return self.roster

    def begin(self, told: Mapping[int, Roster] | None = None) -> None:
        """Everybody joins, gets its roster (or another one) and deals."""
        self.commit(self.adverts())
        self.deal(told)

    def deal(self, told: Mapping[int, Roster] | None = None) -> None:
        for index, puppet in self.played.items():
            self.sealed[index] = puppet.deal(self.roster, index)
        for index in self.honest:
            roster = (told or {}).get(index) or self.roster.for_member(index)
            for reply in self.say(index, roster):
                assert isinstance(reply, SealedShares)
                self.sealed[index] = reply

    def deliver(
        self,
        index: int,
        sharers: Iterable[int] | None = None,
        *,
        withheld: Collection[int] = (),
        wrong_hashes: Collection[int] = (),
    ) -> None:
        """Which of its neighbourhood have dealt, and their pairs but those of `withheld`; keeps the masked input."""
        known = {index, *(self.holders_told.get(index) or self.roster.graph.neighbours(index))}
        told = tuple(sorted(known.intersection(self.sealed if sharers is None else sharers)))
        owners = tuple(o for o in told if o != index and o not in withheld and o in self.sealed)
        message = DeliveredShares(
            sharers=told,
            owners=owners,
            sealed=tuple(self._sealed_for(owner, index) for owner in owners),
            share_hashes=b"".join(
                bytes(SHARE_HASH_PAIR_BYTES) if owner in wrong_hashes else self._hashes_for(owner, index)
                for owner in owners
            ),
        )
        replies = self.say(index, message)
        if replies:
            self.told_sharers[index] = told
            self.pieces[index] = b"".join(r.data for r in replies if isinstance(r, MaskedInputPiece))

    def deliver_all(self, sharers: Iterable[int] | None = None, but: Collection[int] = ()) -> None:
        for index in self.honest:
            if index not in but:
                self.deliver(index, sharers)

    def status(self, survivors: Collection[int], sharers: Collection[int] | None = None) -> CommittedStatus:
        """A status of the whole cohort as the collector would have it; `for_member` is what a member is told of it."""
        dealt = sorted(self.sealed if sharers is None else sharers)
        return CommittedStatus(self.roster, dealt, sorted(survivors))

    def confirm(self, index: int, status: SurvivorStatus) -> None:
        for reply in self.say(index, status):
            assert isinstance(reply, Confirm)
            self.signatures[reply.status_root, index] = reply.signature

    def confirm_all(self, status: CommittedStatus, but: Collection[int] = ()) -> None:
        for index in self.honest:
            if index not in but:
                self.confirm(index, status.for_member(index))

    def signed(self, root: bytes, members: Iterable[int]) -> dict[int, bytes]:
        """Whose signature over this root there is: honest members' that gave one, puppets' for the asking."""
        found = {i: self.played[i].confirm(self.roster.digest, root) for i in members if i in self.played}
        found |= {i: self.signatures[root, i] for i in members if (root, i) in self.signatures}
        return dict(sorted(found.items()))

    def request(self, index: int, status: SurvivorStatus, dropped: Collection[int] | None = None) -> UnmaskRequest:
        """As the member expects it, but for `dropped` where that is given."""
        survivors = frozenset(status.survivors)
        holders = frozenset(self.roster.holders(index)) & survivors
        signed = self.signed(status.root, sorted(holders))
        gone = tuple(o for o in self.told_sharers[index] if o not in survivors) if dropped is None else dropped
        return UnmaskRequest(tuple(sorted(gone)), tuple(signed), tuple(signed.values()))

    def unmask(self, index: int, request: UnmaskRequest) -> None:
        """Keeps what the member reveals: of those called dropped the mask-key share, else the self-mask share."""
        for reply in self.say(index, request):
            assert isinstance(reply, UnmaskShares)
            for owner, share in zip(reply.owners, reply.shares, strict=True):
                kind = ShareKind.MASK_KEY if owner in request.dropped else ShareKind.SELF_MASK
                self.shares.setdefault((owner, kind), {})[index] = share

    def unmask_all(self, status: CommittedStatus, but: Collection[int] = ()) -> None:
        for index in self.honest:
            if index not in but and index in self.told_sharers:
                self.unmask(index, self.request(index, status.for_member(index)))

    def finish(self, survivors: Collection[int], but: Collection[int] = ()) -> CommittedStatus:
        """One true status for all, confirmed and unmasked."""
        status = self.status(survivors)
        self.confirm_all(status, but)
        self.unmask_all(status, but)
        return status

    # --- learning ------------------------------------------------------------------------------------

    def open(self, members: Collection[int]) -> list[int] | None:
        """The sum over these honest members, or None where a seed that it takes is not to be had."""
        if not all(index in self.pieces for index in members):
            return None
        total = masking.zero_ring(self.rules.length, self.roster.bits)
        for index in members:
            masks = self._masks_of(index, frozenset(members))
            if masks is None:
                return None
            vector = masking.ring_from_bytes(self.pieces[index], self.roster.bits)
            masking.remove_masks(vector, masks)
            total += vector
        return masking.from_ring(total)

    def truth(self, members: Collection[int]) -> list[int]:
        return column_sums(self.vectors, members)

    def _masks_of(self, index: int, members: frozenset[int]) -> list[masking.Mask] | None:
        """What stands on this member's masked input and does not cancel within `members`."""
        seed = self.seed(index, ShareKind.SELF_MASK)
        if seed is None:
            return None
        masks = [(keys.self_mask(seed, self.roster.digest, index), 1)]
        for other in self.told_sharers[index]:
            if other != index and other not in members:
                mask = self._pairwise(index, other)
                if mask is None:
                    return None
                masks.append(mask)
        return masks

    def _pairwise(self, index: int, other: int) -> masking.Mask | None:
        """As it stands on `index`'s masked input, by either one's seed."""
        for mine, peer in ((index, other), (other, index)):
            seed = self.seed(mine, ShareKind.MASK_KEY)
            if seed is not None:
                public = keys.load_public(self.roster.adverts[peer].mask_key)
                mask, _ = keys.pairwise_mask(keys.load_private(seed), public, self.roster.digest, mine, peer)
                return mask, 1 if index < other else -1
        return None

    def seed(self, owner: int, kind: ShareKind) -> bytes | None:
        """One that fits what the owner advertised, however it was come by."""
        advert = self.roster.adverts[owner]
        if kind is ShareKind.MASK_KEY and advert.mask_key in self.mask_seeds:
            return self.mask_seeds[advert.mask_key]
        if owner in self.played:
            return self.played[owner].secrets.self_mask_seed
        shares = self.released(owner, kind)
        holders = sorted(shares)[: self.threshold]
        if len(holders) < self.threshold:
            return None
        all_holders = self.holders_told.get(owner) or self.roster.holders(owner)
        try:
            seed = shamir.combine([all_holders.index(h) + 1 for h in holders], [shares[h] for h in holders])
        except ValueError:
            return None
        if kind is ShareKind.SELF_MASK:
            return seed if keys.self_mask_commitment(seed) == advert.self_mask_commitment else None
        return seed if keys.public_bytes(keys.load_private(seed)) == advert.mask_key else None

    threshold_told: int | None = None

    @property
    def threshold(self) -> int:
        return self.threshold_told or self.roster.threshold

    def released(self, owner: int, kind: ShareKind) -> dict[int, bytes]:
        """Shares by holder: what members revealed, and what puppets were dealt."""
        found = dict(self.shares.get((owner, kind), {}))
        for index, pair in self.held(owner).items():
            found[index] = pair.self_share if kind is ShareKind.SELF_MASK else pair.mask_share
        return found

    def held(self, owner: int) -> dict[int, keys.SharePair]:
        """The pairs of this owner that puppets hold."""
        if owner in self.played or owner not in self.sealed:
            return {}
        found = {}
        for index in self.sealed[owner].recipients:
            if index in self.played:
                pair = self.played[index].open(self.roster, index, owner, self._sealed_for(owner, index))
                if pair is not None:
                    found[index] = pair
        return found

    def learn_mask_seeds(self, owners: Iterable[int]) -> None:
        """For later rounds: mask keys whose seeds have been opened here."""
        for owner in owners:
            seed = self.seed(owner, ShareKind.MASK_KEY)
            if seed is not None:
                self.mask_seeds[self.roster.adverts[owner].mask_key] = seed

    # --- parts ---

    def _sealed_for(self, owner: int, reader: int) -> bytes:
        message = self.sealed[owner]
        return message.sealed[message.recipients.index(reader)]

    def _hashes_for(self, owner: int, holder: int) -> bytes:
        holders = self.holders_told.get(owner) or self.roster.holders(owner)
        start = SHARE_HASH_PAIR_BYTES * holders.index(holder)
        return self.sealed[owner].share_hashes[start : start + SHARE_HASH_PAIR_BYTES]


def plus(total: Sequence[int], other: Sequence[int], sign: int = 1) -> list[int]:
    return [a + sign * b for a, b in zip(total, other, strict=True)]


def told(status: SurvivorStatus, **changes: Any) -> SurvivorStatus:
    return replace(status, **changes)


def drops_for(
    members: Sequence[int], killed: Sequence[int], each: int, most: Mapping[int, int], itself: bool = False
) -> dict[int, set[int]]:
    """Private lists: whom to call dropped towards whom, so that each of `killed` is called so `each` times.

    most: how many may be called dropped towards a member. Raises where that cannot be.
    """
    lists: dict[int, set[int]] = {member: set() for member in members}
    for place, victim in enumerate(killed):
        later = set(killed[place:])
        able = [m for m in members if (itself or m != victim) and len(lists[m]) < most[m]]
        able.sort(key=lambda m: len(later - {m}) - most[m] + len(lists[m]))  # who could not be used up otherwise
        assert len(able) >= each, "no such lists"
        for member in able[:each]:
            lists[member].add(victim)
    return lists
