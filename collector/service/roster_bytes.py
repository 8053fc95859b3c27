"""A round's rosters as bytes: every advert is encoded once, not once for each member that it is sent to.

Rules of this file: the bytes are those of `collector_message_to_wire`, to the letter (a test compares them). In
protobuf a message is its fields one after the other, so a roster is what stands before its adverts, the
adverts, and what stands behind them.
"""

from __future__ import annotations

from dataclasses import replace

from client_sdk.wire import secagg_pb2
from client_sdk.wire.convert import collector_message_to_wire
from collector.secagg.round import Round


class RosterBytes:
    """The rosters of one round."""

    def __init__(self, round_: Round) -> None:
        first, second = round_.roster_for(0), round_.roster_for(1)
        whole = replace(first, adverts=second.adverts[:1] + first.adverts, neighbours=tuple(range(round_.size)))
        wire = secagg_pb2.CollectorMessage.FromString(collector_message_to_wire(whole)).roster
        self._adverts = [secagg_pb2.Roster(adverts=[advert]).SerializeToString() for advert in wire.adverts]
        self._behind = secagg_pb2.Roster(digest=wire.digest).SerializeToString()
        self._before = wire
        self._before.ClearField("adverts")
        self._before.ClearField("digest")
        self._everybody = tuple(range(round_.size))

    def for_member(self, index: int) -> bytes:
        """`collector_message_to_wire(round_.roster_for(index))`."""
        others = (*self._everybody[:index], *self._everybody[index + 1 :])
        self._before.index = index
        self._before.neighbours[:] = others
        before = self._before.SerializeToString()
        inner = b"".join((before, *self._adverts[:index], *self._adverts[index + 1 :], self._behind))
        return _ROSTER_TAG + _varint(len(inner)) + inner


_ROSTER_TAG = secagg_pb2.CollectorMessage(roster=secagg_pb2.Roster()).SerializeToString()[:-1]
"""Without the length of an empty one."""


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last byte have their highest bit set."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
