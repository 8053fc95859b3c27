"""Shares on their way through the collector: sealed pairs from owner to holder, released ones from holder back.

Rules of this file: an owner signs the hashes of all the shares it deals, verified once when they come; a released
share counts only if it is the one whose hash its owner signed, else it is an erasure, so that no holder can spoil a
seed.
What it does not do: it opens nothing, and it cannot tell whether a sealed pair holds what its hashes say; its holder
can, and says so by releasing no share of that owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import eq

from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import verify
from client_sdk.secagg import shamir
from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.messages import (
    DIGEST_BYTES,
    SHARE_HASH_PAIR_BYTES,
    DeliveredShares,
    SealedShares,
    UnmaskShares,
)
from client_sdk.secagg.transcript import ShareKind, share_hashes_message, share_hashes_of_holder
from collector.secagg.blame import Blame, Fault
from collector.secagg.roster import CommittedRoster
from collector.secagg.step_messages import StepMessages


class DealtShares:
    """What the members dealt: sealed pairs until they are delivered, hashes until the end."""

    def __init__(self, roster: CommittedRoster) -> None:
        self._roster = roster
        self._sealed: dict[int, tuple[bytes, ...]] = {}
        self._hashes: dict[int, bytes] = {}

    def take(self, owner: int, message: SealedShares) -> None:
        """One pair for every neighbour, in its order, and the signed hashes. Raises RejectionError."""
        neighbours, holders = self._roster.graph.neighbours(owner), self._roster.holders(owner)
        if message.recipients != neighbours or [len(s) for s in message.sealed] != [SEALED_BYTES] * len(neighbours):
            raise RejectionError(RejectionReason.MALFORMED, "not one sealed pair for every neighbour")
        if len(message.share_hashes) != SHARE_HASH_PAIR_BYTES * len(holders):
            raise RejectionError(RejectionReason.MALFORMED, "not two hashes for every holder")
        signed = share_hashes_message(self._roster.digest, owner, message.share_hashes)
        if not verify(self._roster.adverts[owner].identity_key, message.signature, signed):
            raise RejectionError(RejectionReason.BAD_SIGNATURE, "share hashes")
        self._sealed[owner], self._hashes[owner] = message.sealed, message.share_hashes

    def deliver(self, sharers: tuple[int, ...], readers: Iterable[int]) -> StepMessages[DeliveredShares]:
        """The pairs of the committed sharers, for each reader its own. The sealed pairs go with the messages."""
        sealed, self._sealed = self._sealed, {}
        return StepMessages(readers, partial(self._delivery, sealed, sharers, frozenset(sharers)))

    def _delivery(
        self, sealed: Mapping[int, Sequence[bytes]], sharers: tuple[int, ...], committed: frozenset[int], reader: int
    ) -> DeliveredShares:
        complete, known = self._roster.is_complete, sharers
        if not complete:
            known = tuple(sorted(committed.intersection(self._roster.neighbourhood(reader))))
        owners = tuple([owner for owner in known if owner != reader])
        places = self._roster.places(owners, reader)
        # In the complete graph an owner is among its own holders, but seals nothing for itself.
        pairs = [sealed[i][place - (complete and reader > i)] for i, place in zip(owners, places, strict=True)]
        starts = [SHARE_HASH_PAIR_BYTES * place for place in places]
        hashes = [self._hashes[i][at : at + SHARE_HASH_PAIR_BYTES] for i, at in zip(owners, starts, strict=True)]
        return DeliveredShares(sharers=known, owners=owners, sealed=tuple(pairs), share_hashes=b"".join(hashes))

    def are_signed(
        self,
        holder: int,
        owners: Sequence[int],
        places: Sequence[int],
        kinds: Sequence[ShareKind],
        shares: Sequence[bytes],
    ) -> list[bool]:
        """Of each owner: is it the share of that kind that it dealt to this holder?"""
        found = share_hashes_of_holder(self._roster.digest, holder, owners, kinds, shares)
        pair, one = SHARE_HASH_PAIR_BYTES, DIGEST_BYTES
        starts = [pair * place + one * kind for place, kind in zip(places, kinds, strict=True)]
        signed = [self._hashes[owner][at : at + one] for owner, at in zip(owners, starts, strict=True)]
        return list(map(eq, found, signed))

    def clear(self) -> None:
        """Let go of the sealed pairs; hashes stay."""
        self._sealed.clear()


class ReleasedShares:
    """One share an owner from each holder that answers, once the status is confirmed.

    sharers: the committed ones; survivors among them release and are opened by self-mask shares, the others by
    mask-key shares.
    """

    def __init__(self, dealt: DealtShares, roster: CommittedRoster, sharers: Sequence[int], survivors: Collection[int]):
        self._dealt, self._roster = dealt, roster
        alive = frozenset(survivors)
        self._kinds = {index: ShareKind.SELF_MASK if index in alive else ShareKind.MASK_KEY for index in sharers}
        self._shares: dict[int, list[bytes | None]] = {i: [None] * len(roster.holders(i)) for i in sharers}
        self._good, self._given = Counter(dict.fromkeys(sharers, 0)), Counter(dict.fromkeys(sharers, 0))
        self._responders: set[int] = set()
        self._wrong: set[int] = set()

    def take(self, holder: int, message: UnmaskShares) -> None:
        """Some of the shares it holds, ascending by owner; a missing one is no fault of the holder's.

        Raises RejectionError for a malformed message; a share that is not the signed one is an erasure.
        """
        owners = message.owners
        held = self._kinds.keys() & self._roster.holders(holder)
        ascending = list(owners) == sorted(set(owners))
        if not (ascending and held.issuperset(owners) and len(owners) == len(message.shares)):
            raise RejectionError(RejectionReason.MALFORMED, "not one share for each of some sharers, ascending")
        if not all(map(shamir.is_share, message.shares)):
            raise RejectionError(RejectionReason.MALFORMED, "a share is no element of the field")
        places, kinds = self._roster.places(owners, holder), [self._kinds[owner] for owner in owners]
        signed = self._dealt.are_signed(holder, owners, places, kinds, message.shares)
        for owner, place, share in compress(zip(owners, places, message.shares, strict=True), signed):
            self._shares[owner][place] = share
        self._given.update(owners)
        self._good.update(compress(owners, signed))
        if not all(signed):
            self._wrong.add(holder)
        self._responders.add(holder)

    @property
    def fewest(self) -> int:
        """Good shares of the owner that has fewest."""
        return min(self._good.values(), default=0)

    def of(self, owner: int) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        """The first `threshold` good shares of one owner: (their x, ascending; the shares)."""
        good = [(place + 1, share) for place, share in enumerate(self._shares[owner]) if share is not None]
        chosen = good[: self._roster.threshold]
        return tuple(x for x, _ in chosen), tuple(share for _, share in chosen)

    def clear(self) -> None:
        """Let go of the shares."""
        self._shares.clear()

    # --- blame ---

    def blamed(self) -> list[Blame]:
        """Holders of wrong shares, and owners whose shares too many holders could not use, as of now."""
        wrong = [Blame(holder, Fault.WRONG_SHARE) for holder in sorted(self._wrong)]
        return wrong + [Blame(owner, Fault.UNUSABLE_SHARES) for owner in self._given if self._is_unusable(owner)]

    def _is_unusable(self, owner: int) -> bool:
        """Could this owner's seed not be opened because more holders than may lie about it had nothing of it?

        Among the holders of the complete graph no more than the corrupt fraction can be corrupt; one of them may be
        even where the fraction of a small cohort comes to none, for one liar must not have all the others blamed. In a
        sparse graph chance puts more around some members, but never more than the threshold was chosen against
        (`parameters.py`, conditions (b) and (d)).
        """
        if self._good[owner] >= self._roster.threshold:
            return False
        holders = self._roster.holders(owner)
        silent = sum(holder in self._responders for holder in holders) - self._given[owner]
        if not self._roster.is_complete:
            return silent > 2 * self._roster.threshold - self._roster.degree - 1
        corrupt = self._roster.rules.corrupt_fraction
        return silent > max(1, corrupt.numerator * len(holders) // corrupt.denominator)
