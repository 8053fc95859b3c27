"""A round's rosters as bytes: every advert is encoded once, not once for each member that it is sent to.

Rules of this file: the bytes are those of `collector_message_to_wire`, to the letter (a test compares them). In
protobuf a message is its fields one after the other, so a roster is what stands before its adverts, the
adverts, and what stands behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from client_sdk.secagg.messages import Roster
from client_sdk.secagg.parameters import COMPLETE_UP_TO
from client_sdk.wire import secagg_pb2
from client_sdk.wire.convert import collector_message_to_wire
from collector.secagg.roster import CommittedRoster
from collector.service.message_bytes import varint

ADVERTS_AT_ONCE = COMPLETE_UP_TO
"""Fewer than the wire takes in one roster."""


class RosterBytes:
    """The rosters of one round."""

    def __init__(self, roster: CommittedRoster) -> None:
        self._roster = roster
        first = roster.for_member(0)
        self._adverts = list(_encoded_adverts(roster, first))
        wire = _parsed(first)
        self._behind = secagg_pb2.Roster(digest=wire.digest, resent=wire.resent).SerializeToString()
        self._before = wire
        for name in ("adverts", "digest", "resent", "proof"):
            self._before.ClearField(name)

    def for_member(self, index: int) -> bytes:
        """`collector_message_to_wire(roster.for_member(index))`."""
        neighbours = self._roster.graph.neighbours(index)
        self._before.index = index
        self._before.neighbours[:] = neighbours
        before = self._before.SerializeToString()
        proof = secagg_pb2.Roster(proof=self._roster.proof(index)).SerializeToString()
        inner = b"".join((before, *map(self._adverts.__getitem__, neighbours), self._behind, proof))
        return _ROSTER_TAG + varint(len(inner)) + inner


def _encoded_adverts(roster: CommittedRoster, template: Roster) -> Iterator[bytes]:
    """Each advert as the field of a roster, in roster order."""
    for start in range(0, roster.size, ADVERTS_AT_ONCE):
        adverts = roster.adverts[start : start + ADVERTS_AT_ONCE]
        some = _parsed(replace(template, neighbours=tuple(range(len(adverts))), adverts=adverts))
        yield from (secagg_pb2.Roster(adverts=[advert]).SerializeToString() for advert in some.adverts)


def _parsed(roster: Roster) -> secagg_pb2.Roster:
    """The generated class's roster, by the wire's own encoder and its checks."""
    return secagg_pb2.CollectorMessage.FromString(collector_message_to_wire(roster)).roster


_ROSTER_TAG = secagg_pb2.CollectorMessage(roster=secagg_pb2.Roster()).SerializeToString()[:-1]
"""Without the length of an empty one."""
