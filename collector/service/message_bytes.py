"""A collector's messages as bytes: those of `collector_message_to_wire`, to the letter, made with less work.

Rules of this file: what all members of a round get is encoded once; what consists of bytes that were checked when they
came in is put together from them (a test compares).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.messages import CollectorMessage, DeliveredShares, Receipt, SurvivorStatus, UnmaskRequest
from client_sdk.wire import secagg_pb2
from client_sdk.wire.convert import collector_message_to_wire

SAME_FOR_ALL: Final = (SurvivorStatus, UnmaskRequest, Receipt)
"""A round on the complete graph gives all its members one and the same of these."""


def encoded(message: CollectorMessage) -> bytes:
    """`collector_message_to_wire(message)`; of DeliveredShares every length must be right already."""
    if isinstance(message, DeliveredShares):
        return _delivered(message)
    if isinstance(message, SAME_FOR_ALL):
        return _encoded_once(message)
    return collector_message_to_wire(message)


_encoded_once = lru_cache(maxsize=64)(collector_message_to_wire)


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last byte have their highest bit set."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _delivered(message: DeliveredShares) -> bytes:
    # A message is its fields one after the other, and every sealed pair has the same head.
    before = secagg_pb2.DeliveredShares(sharers=message.sharers, owners=message.owners).SerializeToString()
    behind = secagg_pb2.DeliveredShares(share_hashes=message.share_hashes).SerializeToString()
    inner = b"".join((before, _SEALED_HEAD.join((b"", *message.sealed)), behind))
    return _DELIVERED_TAG + varint(len(inner)) + inner


_SEALED_HEAD: Final = secagg_pb2.DeliveredShares(sealed=[bytes(SEALED_BYTES)]).SerializeToString()[:-SEALED_BYTES]
_NONE_DELIVERED: Final = secagg_pb2.CollectorMessage(delivered_shares=secagg_pb2.DeliveredShares())
_DELIVERED_TAG: Final = _NONE_DELIVERED.SerializeToString()[:-1]
"""Without the length of an empty one."""
