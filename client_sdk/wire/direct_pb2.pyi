from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeliverRequest(_message.Message):
    __slots__ = ("hello", "offer", "piece", "seal")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    hello: DirectHello
    offer: DirectOffer
    piece: DirectPiece
    seal: DirectSeal
    def __init__(self, hello: _Optional[_Union[DirectHello, _Mapping]] = ..., offer: _Optional[_Union[DirectOffer, _Mapping]] = ..., piece: _Optional[_Union[DirectPiece, _Mapping]] = ..., seal: _Optional[_Union[DirectSeal, _Mapping]] = ...) -> None: ...

class DeliverResponse(_message.Message):
    __slots__ = ("challenge", "standing", "receipts")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    challenge: DirectChallenge
    standing: DirectStanding
    receipts: DirectReceipts
    def __init__(self, challenge: _Optional[_Union[DirectChallenge, _Mapping]] = ..., standing: _Optional[_Union[DirectStanding, _Mapping]] = ..., receipts: _Optional[_Union[DirectReceipts, _Mapping]] = ...) -> None: ...

class DirectHello(_message.Message):
    __slots__ = ("identity_key", "certificate")
    IDENTITY_KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    identity_key: bytes
    certificate: bytes
    def __init__(self, identity_key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class DirectChallenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class DirectOffer(_message.Message):
    __slots__ = ("plan_hashes", "period_starts", "report_ids", "resent", "signature")
    PLAN_HASHES_FIELD_NUMBER: _ClassVar[int]
    PERIOD_STARTS_FIELD_NUMBER: _ClassVar[int]
    REPORT_IDS_FIELD_NUMBER: _ClassVar[int]
    RESENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    plan_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    period_starts: _containers.RepeatedScalarFieldContainer[int]
    report_ids: _containers.RepeatedScalarFieldContainer[bytes]
    resent: _containers.RepeatedScalarFieldContainer[bool]
    signature: bytes
    def __init__(self, plan_hashes: _Optional[_Iterable[bytes]] = ..., period_starts: _Optional[_Iterable[int]] = ..., report_ids: _Optional[_Iterable[bytes]] = ..., resent: _Optional[_Iterable[bool]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class DirectStanding(_message.Message):
    __slots__ = ("reports", "spent_micro_epsilon", "answers", "round_ids", "contributors")
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    SPENT_MICRO_EPSILON_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    ROUND_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    reports: int
    spent_micro_epsilon: int
    answers: _containers.RepeatedScalarFieldContainer[str]
    round_ids: _containers.RepeatedScalarFieldContainer[str]
    contributors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, reports: _Optional[int] = ..., spent_micro_epsilon: _Optional[int] = ..., answers: _Optional[_Iterable[str]] = ..., round_ids: _Optional[_Iterable[str]] = ..., contributors: _Optional[_Iterable[int]] = ...) -> None: ...

class DirectPiece(_message.Message):
    __slots__ = ("place", "offset", "data")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    place: int
    offset: int
    data: bytes
    def __init__(self, place: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class DirectSeal(_message.Message):
    __slots__ = ("signature",)
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    def __init__(self, signature: _Optional[bytes] = ...) -> None: ...

class DirectReceipts(_message.Message):
    __slots__ = ("answers", "round_ids", "contributors")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    ROUND_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedScalarFieldContainer[str]
    round_ids: _containers.RepeatedScalarFieldContainer[str]
    contributors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, answers: _Optional[_Iterable[str]] = ..., round_ids: _Optional[_Iterable[str]] = ..., contributors: _Optional[_Iterable[int]] = ...) -> None: ...
