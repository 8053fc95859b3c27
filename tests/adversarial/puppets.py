"""A member in the collector's hands: it checks nothing, keeps everything, and signs what it is told to.

A `Puppet` speaks the protocol with the project's own keys, shares and transcript, but without the participant's state
machine: so it deals and opens in rosters that no honest member would accept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from client_sdk.identity import IdentityKey
from client_sdk.secagg import keys
from client_sdk.secagg.dealing import all_hashes, split_pairs
from client_sdk.secagg.keys import RoundSecrets, SharePair
from client_sdk.secagg.messages import Advert, SealedShares
from client_sdk.secagg.transcript import advert_message, confirm_message, share_hashes_message
from collector.secagg.roster import CommittedRoster
from tests.fleet import PERIOD_START, PLAN_HASH, PLAN_NAME, SeededEntropy, certified


@dataclass
class Puppet:
    """label: everything random of it follows from this. identity: its own unless it plays somebody else."""

    label: str
    identity: IdentityKey | None = None
    certificate: bytes | None = None
    resent: bool = False
    entropy: SeededEntropy = field(init=False)
    secrets: RoundSecrets = field(init=False)

    def __post_init__(self) -> None:
        self.entropy = SeededEntropy(f"puppet {self.label}".encode())
        own = IdentityKey(self.entropy(32))
        self.identity = self.identity or own
        self.certificate = self.certificate or certified(self.identity.public_key)
        self.secrets = RoundSecrets.draw(self.entropy)

    def advert(self) -> Advert:
        assert self.identity is not None
        assert self.certificate is not None
        unsigned = Advert(
            identity_key=self.identity.public_key,
            certificate=self.certificate,
            plan_hash=PLAN_HASH,
            period_start=PERIOD_START,
            report_id=self.identity.report_id(PLAN_NAME, PERIOD_START),
            nonce=self.entropy(32),
            mask_key=keys.public_bytes(keys.load_private(self.secrets.mask_seed)),
            channel_key=keys.public_bytes(keys.load_private(self.secrets.channel_seed)),
            self_mask_commitment=keys.self_mask_commitment(self.secrets.self_mask_seed),
            resent=self.resent,
            min_cohort=0,
        )
        return replace(unsigned, signature=self.identity.sign(advert_message(unsigned)))

    def deal(self, roster: CommittedRoster, index: int) -> SealedShares:
        """As an honest member would, without a look at the roster."""
        assert self.identity is not None
        pairs = split_pairs(self.secrets, roster.holders(index), roster.threshold, self.entropy)
        neighbours = roster.graph.neighbours(index)
        sealed = tuple(self._seal(roster, index, other, pairs[other]) for other in neighbours)
        hashes = all_hashes(roster.digest, index, pairs)
        return SealedShares(
            neighbours, sealed, hashes, self.identity.sign(share_hashes_message(roster.digest, index, hashes))
        )

    def _seal(self, roster: CommittedRoster, index: int, other: int, pair: SharePair) -> bytes:
        sending, _ = self._channel(roster, index, other)
        return keys.seal_pair(sending, pair, roster.digest)

    def open(self, roster: CommittedRoster, index: int, owner: int, sealed: bytes) -> SharePair | None:
        """What `owner` dealt to me, of both kinds."""
        _, receiving = self._channel(roster, index, owner)
        return keys.open_pair(receiving, sealed, roster.digest)

    def _channel(self, roster: CommittedRoster, index: int, other: int) -> tuple[bytes, bytes]:
        private = keys.load_private(self.secrets.channel_seed)
        peer = keys.load_public(roster.adverts[other].channel_key)
        return keys.channel_keys(private, peer, roster.digest, index, other)

    def confirm(self, digest: bytes, root: bytes) -> bytes:
        """A signature over any status."""
        assert self.identity is not None
        return self.identity.sign(confirm_message(digest, root))

    def knows(self) -> Mapping[bytes, bytes]:
        """Mask-key seeds by mask key."""
        return {self.advert_key: self.secrets.mask_seed}

    @property
    def advert_key(self) -> bytes:
        return keys.public_bytes(keys.load_private(self.secrets.mask_seed))
