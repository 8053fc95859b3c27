from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ParticipantMessage(_message.Message):
    __slots__ = ("hello", "advert", "sealed_shares", "masked_input_piece", "confirm", "unmask_shares")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ADVERT_FIELD_NUMBER: _ClassVar[int]
    SEALED_SHARES_FIELD_NUMBER: _ClassVar[int]
    MASKED_INPUT_PIECE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    UNMASK_SHARES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    advert: Advert
    sealed_shares: SealedShares
    masked_input_piece: MaskedInputPiece
    confirm: Confirm
    unmask_shares: UnmaskShares
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., advert: _Optional[_Union[Advert, _Mapping]] = ..., sealed_shares: _Optional[_Union[SealedShares, _Mapping]] = ..., masked_input_piece: _Optional[_Union[MaskedInputPiece, _Mapping]] = ..., confirm: _Optional[_Union[Confirm, _Mapping]] = ..., unmask_shares: _Optional[_Union[UnmaskShares, _Mapping]] = ...) -> None: ...

class CollectorMessage(_message.Message):
    __slots__ = ("challenge", "joined", "already_counted", "come_back", "roster", "delivered_shares", "survivor_status", "unmask_request", "receipt", "round_aborted")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    ALREADY_COUNTED_FIELD_NUMBER: _ClassVar[int]
    COME_BACK_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_SHARES_FIELD_NUMBER: _ClassVar[int]
    SURVIVOR_STATUS_FIELD_NUMBER: _ClassVar[int]
    UNMASK_REQUEST_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    ROUND_ABORTED_FIELD_NUMBER: _ClassVar[int]
    challenge: Challenge
    joined: Joined
    already_counted: AlreadyCounted
    come_back: ComeBack
    roster: Roster
    delivered_shares: DeliveredShares
    survivor_status: SurvivorStatus
    unmask_request: UnmaskRequest
    receipt: Receipt
    round_aborted: RoundAborted
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., joined: _Optional[_Union[Joined, _Mapping]] = ..., already_counted: _Optional[_Union[AlreadyCounted, _Mapping]] = ..., come_back: _Optional[_Union[ComeBack, _Mapping]] = ..., roster: _Optional[_Union[Roster, _Mapping]] = ..., delivered_shares: _Optional[_Union[DeliveredShares, _Mapping]] = ..., survivor_status: _Optional[_Union[SurvivorStatus, _Mapping]] = ..., unmask_request: _Optional[_Union[UnmaskRequest, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., round_aborted: _Optional[_Union[RoundAborted, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("identity_key", "certificate", "plan_hash", "period_start", "report_id")
    IDENTITY_KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    PERIOD_START_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    identity_key: bytes
    certificate: bytes
    plan_hash: bytes
    period_start: int
    report_id: bytes
    def __init__(self, identity_key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., plan_hash: _Optional[bytes] = ..., period_start: _Optional[int] = ..., report_id: _Optional[bytes] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class Advert(_message.Message):
    __slots__ = ("identity_key", "certificate", "plan_hash", "period_start", "report_id", "nonce", "mask_key", "channel_key", "self_mask_commitment", "resent", "min_cohort", "signature")
    IDENTITY_KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    PERIOD_START_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_KEY_FIELD_NUMBER: _ClassVar[int]
    SELF_MASK_COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    RESENT_FIELD_NUMBER: _ClassVar[int]
    MIN_COHORT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    identity_key: bytes
    certificate: bytes
    plan_hash: bytes
    period_start: int
    report_id: bytes
    nonce: bytes
    mask_key: bytes
    channel_key: bytes
    self_mask_commitment: bytes
    resent: bool
    min_cohort: int
    signature: bytes
    def __init__(self, identity_key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., plan_hash: _Optional[bytes] = ..., period_start: _Optional[int] = ..., report_id: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., mask_key: _Optional[bytes] = ..., channel_key: _Optional[bytes] = ..., self_mask_commitment: _Optional[bytes] = ..., resent: bool = ..., min_cohort: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("reports", "spent_micro_epsilon")
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    SPENT_MICRO_EPSILON_FIELD_NUMBER: _ClassVar[int]
    reports: int
    spent_micro_epsilon: int
    def __init__(self, reports: _Optional[int] = ..., spent_micro_epsilon: _Optional[int] = ...) -> None: ...

class AlreadyCounted(_message.Message):
    __slots__ = ("round_id", "contributors")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    contributors: int
    def __init__(self, round_id: _Optional[str] = ..., contributors: _Optional[int] = ...) -> None: ...

class ComeBack(_message.Message):
    __slots__ = ("at", "jitter_s")
    AT_FIELD_NUMBER: _ClassVar[int]
    JITTER_S_FIELD_NUMBER: _ClassVar[int]
    at: int
    jitter_s: int
    def __init__(self, at: _Optional[int] = ..., jitter_s: _Optional[int] = ...) -> None: ...

class Roster(_message.Message):
    __slots__ = ("round_id", "index", "size", "threshold", "bits", "length", "formed_at", "neighbours", "adverts", "digest", "resent", "proof")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    FORMED_AT_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    ADVERTS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESENT_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    index: int
    size: int
    threshold: int
    bits: int
    length: int
    formed_at: int
    neighbours: _containers.RepeatedScalarFieldContainer[int]
    adverts: _containers.RepeatedCompositeFieldContainer[Advert]
    digest: bytes
    resent: int
    proof: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, round_id: _Optional[str] = ..., index: _Optional[int] = ..., size: _Optional[int] = ..., threshold: _Optional[int] = ..., bits: _Optional[int] = ..., length: _Optional[int] = ..., formed_at: _Optional[int] = ..., neighbours: _Optional[_Iterable[int]] = ..., adverts: _Optional[_Iterable[_Union[Advert, _Mapping]]] = ..., digest: _Optional[bytes] = ..., resent: _Optional[int] = ..., proof: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SealedShares(_message.Message):
    __slots__ = ("recipients", "sealed", "share_hashes", "signature")
    RECIPIENTS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SHARE_HASHES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    recipients: _containers.RepeatedScalarFieldContainer[int]
    sealed: _containers.RepeatedScalarFieldContainer[bytes]
    share_hashes: bytes
    signature: bytes
    def __init__(self, recipients: _Optional[_Iterable[int]] = ..., sealed: _Optional[_Iterable[bytes]] = ..., share_hashes: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class DeliveredShares(_message.Message):
    __slots__ = ("sharers", "owners", "sealed", "share_hashes")
    SHARERS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SHARE_HASHES_FIELD_NUMBER: _ClassVar[int]
    sharers: _containers.RepeatedScalarFieldContainer[int]
    owners: _containers.RepeatedScalarFieldContainer[int]
    sealed: _containers.RepeatedScalarFieldContainer[bytes]
    share_hashes: bytes
    def __init__(self, sharers: _Optional[_Iterable[int]] = ..., owners: _Optional[_Iterable[int]] = ..., sealed: _Optional[_Iterable[bytes]] = ..., share_hashes: _Optional[bytes] = ...) -> None: ...

class MaskedInputPiece(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class SurvivorStatus(_message.Message):
    __slots__ = ("survivors", "contributors", "resent_survivors", "root", "proof")
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    RESENT_SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    survivors: _containers.RepeatedScalarFieldContainer[int]
    contributors: int
    resent_survivors: int
    root: bytes
    proof: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, survivors: _Optional[_Iterable[int]] = ..., contributors: _Optional[int] = ..., resent_survivors: _Optional[int] = ..., root: _Optional[bytes] = ..., proof: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Confirm(_message.Message):
    __slots__ = ("status_root", "signature")
    STATUS_ROOT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    status_root: bytes
    signature: bytes
    def __init__(self, status_root: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class UnmaskRequest(_message.Message):
    __slots__ = ("dropped", "confirmed_by", "confirmations")
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_BY_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATIONS_FIELD_NUMBER: _ClassVar[int]
    dropped: _containers.RepeatedScalarFieldContainer[int]
    confirmed_by: _containers.RepeatedScalarFieldContainer[int]
    confirmations: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, dropped: _Optional[_Iterable[int]] = ..., confirmed_by: _Optional[_Iterable[int]] = ..., confirmations: _Optional[_Iterable[bytes]] = ...) -> None: ...

class UnmaskShares(_message.Message):
    __slots__ = ("owners", "shares")
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedScalarFieldContainer[int]
    shares: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, owners: _Optional[_Iterable[int]] = ..., shares: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("round_id", "contributors", "roster_size")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    ROSTER_SIZE_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    contributors: int
    roster_size: int
    def __init__(self, round_id: _Optional[str] = ..., contributors: _Optional[int] = ..., roster_size: _Optional[int] = ...) -> None: ...

class RoundAborted(_message.Message):
    __slots__ = ("reason", "have", "need")
    REASON_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    reason: str
    have: int
    need: int
    def __init__(self, reason: _Optional[str] = ..., have: _Optional[int] = ..., need: _Optional[int] = ...) -> None: ...
