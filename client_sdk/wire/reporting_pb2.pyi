from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetReportRequest(_message.Message):
    __slots__ = ("metric", "since", "until", "false_devices")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    FALSE_DEVICES_FIELD_NUMBER: _ClassVar[int]
    metric: str
    since: int
    until: int
    false_devices: str
    def __init__(self, metric: _Optional[str] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., false_devices: _Optional[str] = ...) -> None: ...

class GetPrivacyRequest(_message.Message):
    __slots__ = ("device", "all", "window", "delta", "corrupt")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    device: str
    all: bool
    window: str
    delta: str
    corrupt: str
    def __init__(self, device: _Optional[str] = ..., all: bool = ..., window: _Optional[str] = ..., delta: _Optional[str] = ..., corrupt: _Optional[str] = ...) -> None: ...

class GetCountersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DocumentPiece(_message.Message):
    __slots__ = ("media_type", "data")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    data: bytes
    def __init__(self, media_type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...
