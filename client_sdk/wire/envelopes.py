"""How a message becomes bytes and comes back: a shape's checks around a generated class that is given.

Rules of this file: bytes and fields are counted before anything is built from them; whatever bytes come in, the answer
is a checked message or WireError, one line that names message and field, never the content. No exception of
protobuf's leaves this file.
What it does not do: it knows no message and imports no generated code; `convert` puts the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from client_sdk.errors import WireError
from client_sdk.wire import limits
from client_sdk.wire.checks import FieldError, Shape
from client_sdk.wire.scan import fields_within

Fields = dict[str, Any]
Prepare = Callable[[Fields], Fields]


def _as_they_are(fields: Fields) -> Fields:
    return fields


def _check_bytes(name: str, data: bytes, most: int) -> None:
    if len(data) > most:
        raise WireError(f"{name}: {len(data)} bytes, at most {most}")


def _check_fields(name: str, data: bytes, most: int, *, inside: bool = True) -> None:
    # Before parsing, which makes an object of whatever it finds: a message for two bytes, even one that the next two
    # replace in its `oneof`.
    if not fields_within(data, most, inside=inside):
        raise WireError(f"{name}: more than {most} fields")


def _parse(wire_type: type[Any], data: bytes) -> Any:
    try:
        return wire_type.FromString(data)
    except (DecodeError, ValueError, RecursionError):
        # The last two come from protobuf's pure Python half: text that is none, groups nested too deep.
        raise WireError(f"{wire_type.DESCRIPTOR.name}: not a protobuf message of this kind") from None


def _read(shape: Shape, wire: object, path: str) -> Any:
    try:
        return shape.kind(**shape.checked(wire))
    except FieldError as fault:
        raise WireError(f"{path}.{fault}") from None


def _write(
    shape: Shape, message: object, path: str, wire_type: type[Any], case: str | None, prepared: Prepare
) -> bytes:
    try:
        fields = prepared(shape.checked(message))
        # A mapping is filled into the envelope in place; a ready-made inner message would be copied.
        wire = wire_type(**fields) if case is None else wire_type(**{case: fields})
        data: bytes = wire.SerializeToString()
    except FieldError as fault:
        raise WireError(f"{path}.{fault}") from None
    except (TypeError, ValueError, OverflowError, AttributeError, EncodeError):
        raise WireError(f"{path}: a field has the wrong type") from None
    return data


@dataclass(frozen=True, slots=True)
class Single:
    """A message that travels by itself."""

    wire_type: type[Any]
    shape: Shape
    most_bytes: int

    def from_wire(self, data: bytes) -> Any:
        """A checked message. Raises WireError."""
        name = self.wire_type.DESCRIPTOR.name
        _check_bytes(name, data, self.most_bytes)
        _check_fields(name, data, limits.MAX_SINGLE_MESSAGE_FIELDS, inside=False)
        return _read(self.shape, _parse(self.wire_type, data), name)

    def to_wire(self, message: object) -> bytes:
        """The other way, under the same checks. Raises WireError."""
        return _write(self.shape, message, self.wire_type.DESCRIPTOR.name, self.wire_type, None, _as_they_are)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Messages that travel in a stream's `oneof`."""

    wire_type: type[Any]
    shapes: Mapping[str, Shape]
    cases: Mapping[type[Any], str]
    most_bytes: int
    most_fields: int
    uncounted_bytes: int = 0
    """So short a message may hold as many fields as it likes."""

    prepare: Prepare = _as_they_are
    """What turns our fields into those that the generated classes take, where these differ."""

    @classmethod
    def of(
        cls,
        wire_type: type[Any],
        shapes: Mapping[str, Shape],
        most_bytes: int,
        most_fields: int,
        uncounted_bytes: int = 0,
        prepare: Prepare = _as_they_are,
    ) -> Envelope:
        """With `cases` made from `shapes`."""
        cases = {shape.kind: case for case, shape in shapes.items()}
        return cls(wire_type, shapes, cases, most_bytes, most_fields, uncounted_bytes, prepare)

    def from_wire(self, data: bytes) -> Any:
        """A checked message. Raises WireError."""
        name = self.wire_type.DESCRIPTOR.name
        _check_bytes(name, data, self.most_bytes)
        if len(data) > self.uncounted_bytes:
            _check_fields(name, data, self.most_fields)
        wire = _parse(self.wire_type, data)
        case = wire.WhichOneof("message")
        if case is None:
            raise WireError(f"{name}: no message that this version knows")
        return _read(self.shapes[case], getattr(wire, case), f"{name}.{case}")

    def to_wire(self, message: object) -> bytes:
        """The other way, under the same checks. Raises WireError."""
        name = self.wire_type.DESCRIPTOR.name
        case = self.cases.get(type(message))
        if case is None:
            raise WireError(f"{name}: {type(message).__name__} does not travel in it")
        return _write(self.shapes[case], message, f"{name}.{case}", self.wire_type, case, self.prepare)
