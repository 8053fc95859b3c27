"""Messages of a secure-aggregation round, as frozen values. One class per message of the design's table.

Rules of this file: a message is data, it checks nothing but its own shape; what it may mean is decided by
the state machines (`participant.py`, `collector/secagg.py`). Indices are positions in the roster, 0-based.
Byte strings of key material sent to peers are sealed; nothing here is secret except where `repr=False` says so.
A neighbourhood is a member and its neighbours; in the complete graph (up to 256 members) that is everybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KEY_BYTES = 32
SEED_BYTES = 32
NONCE_BYTES = 32
SIGNATURE_BYTES = 64
DIGEST_BYTES = 32
REPORT_ID_BYTES = 16
SHARE_HASH_PAIR_BYTES = 2 * DIGEST_BYTES
SHARE_BYTES = 33
"""One Shamir share: an element of the field over 2^256 + 297, big endian."""


# --- participant -> collector ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """Who I am and which sum I would join. First message of a stream."""

    identity_key: bytes  # Ed25519 public key, 32 bytes
    certificate: bytes  # the registrar's, over identity_key
    plan_hash: bytes  # 32 bytes
    period_start: int  # seconds since the epoch, UTC
    report_id: bytes  # 16 bytes


@dataclass(frozen=True, slots=True)
class Advert:
    """A participant's keys for one round, signed with its identity over everything and the nonce."""

    identity_key: bytes
    certificate: bytes
    plan_hash: bytes
    period_start: int
    report_id: bytes
    nonce: bytes  # the collector's, from Challenge
    mask_key: bytes  # X25519 public key for pairwise masks; its seed may be revealed later
    channel_key: bytes  # X25519 public key for sealing shares; never revealed
    self_mask_commitment: bytes  # SHA-256 over a label and the self-mask seed
    resent: bool  # a masked input of this report may already have left the device
    min_cohort: int  # the device's own floor for contributors; travels signed
    signature: bytes = b""


@dataclass(frozen=True, slots=True)
class SealedShares:
    """One sealed pair of Shamir shares (mask-key seed, self-mask seed) per neighbour.

    `recipients[i]` is the roster index that `sealed[i]` is addressed to. `share_hashes`: SHARE_HASH_PAIR_BYTES for each
    holder of my shares, ascending (the neighbours; in the complete graph also I): the hash of its mask-key share, then
    that of its self-mask share. `signature`: my identity's over them.
    """

    recipients: tuple[int, ...]
    sealed: tuple[bytes, ...] = field(repr=False)
    share_hashes: bytes = field(repr=False)
    signature: bytes


@dataclass(frozen=True, slots=True)
class MaskedInputPiece:
    """A run of elements of the masked input, little endian, `bits` wide, beginning at `offset` (elements)."""

    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Confirm:
    """I have seen this survivor status; `signature` is my identity's over the roster and it."""

    status_root: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class UnmaskShares:
    """For each committed sharer of my neighbourhood whose pair I hold, exactly one share.

    Which of the two it is follows from the status everybody confirmed: the self-mask share of a survivor,
    the mask-key share of a dropout. So the message cannot say both for one member.
    """

    owners: tuple[int, ...]
    shares: tuple[bytes, ...] = field(repr=False)


# --- collector -> participant ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Challenge:
    """The collector's fresh nonce, to be signed in the advert."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The advert's signature holds: what the collector has booked for this identity so far."""

    reports: int
    spent_micro_epsilon: int


@dataclass(frozen=True, slots=True)
class AlreadyCounted:
    """This (identity, plan name, period) is in a stored sum; the spool entry may go."""

    round_id: str
    contributors: int


@dataclass(frozen=True, slots=True)
class ComeBack:
    """No cohort yet: try again at this time (seconds since the epoch) plus jitter up to `jitter_s`."""

    at: int
    jitter_s: int


@dataclass(frozen=True, slots=True)
class Roster:
    """The committed cohort as one participant sees it.

    `neighbours[i]` is the roster index of `adverts[i]`, ascending. `digest` commits to the parameters and the tree
    over every member's advert; `resent` counts the members whose advert says so, and `proof` holds the tree's nodes
    that the reader cannot compute (none in the complete graph).
    """

    round_id: str
    index: int
    size: int
    threshold: int
    bits: int
    length: int
    formed_at: int
    neighbours: tuple[int, ...]
    adverts: tuple[Advert, ...]
    digest: bytes
    resent: int
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class DeliveredShares:
    """The committed sharers of my neighbourhood (ascending, I included) and the sealed pairs addressed to me.

    `owners[i]` dealt `sealed[i]` and signed the i-th SHARE_HASH_PAIR_BYTES of `share_hashes` for it. A committed sharer
    whose pair is missing here is still masked with.
    """

    sharers: tuple[int, ...]
    owners: tuple[int, ...]
    sealed: tuple[bytes, ...] = field(repr=False)
    share_hashes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SurvivorStatus:
    """Which sharers of my neighbourhood sent a whole masked input (ascending), and the two sums over the whole cohort.

    `root` commits to every member's status and both sums; `proof` holds the tree's nodes that the reader cannot
    compute from the statuses of its neighbourhood.
    """

    survivors: tuple[int, ...]
    contributors: int
    resent_survivors: int
    root: bytes
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class UnmaskRequest:
    """Reveal. Carries only the sharers of my neighbourhood that dropped, and what its survivors have signed.

    `confirmations[i]` is the confirmation's signature of `confirmed_by[i]` (ascending).
    """

    dropped: tuple[int, ...]
    confirmed_by: tuple[int, ...]
    confirmations: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The sum is stored and my report is in it."""

    round_id: str
    contributors: int
    roster_size: int


@dataclass(frozen=True, slots=True)
class RoundAborted:
    """The round ended without a sum; the report stays with its device. `reason` is an AbortReason's value."""

    reason: str
    have: int
    need: int


ParticipantMessage = Hello | Advert | SealedShares | MaskedInputPiece | Confirm | UnmaskShares
CollectorMessage = (
    Challenge
    | Joined
    | AlreadyCounted
    | ComeBack
    | Roster
    | DeliveredShares
    | SurvivorStatus
    | UnmaskRequest
    | Receipt
    | RoundAborted
)
