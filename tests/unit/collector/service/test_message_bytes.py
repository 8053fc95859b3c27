"""Messages put together from parts are those that the wire's own encoder makes."""

from __future__ import annotations

import pytest

from client_sdk.secagg.keys import SEALED_BYTES
from client_sdk.secagg.messages import SHARE_HASH_PAIR_BYTES, CollectorMessage, DeliveredShares, Joined
from client_sdk.wire.convert import collector_message_from_wire, collector_message_to_wire
from collector.service.message_bytes import encoded
from tests.fleet import Fleet, rules


def same(message: CollectorMessage) -> None:
    data = encoded(message)
    assert data == collector_message_to_wire(message)
    assert collector_message_from_wire(data) == message


@pytest.mark.parametrize("members", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (130, 300))])
def test_to_the_letter(members: int) -> None:
    """Of a real round. At 130 indices take two bytes, at 300 the graph is sparse; what all get is asked for twice."""
    fleet = Fleet([[1, 2]] * members, rules())
    fleet.join()
    fleet.step({index: fleet.round.roster_for(index) for index in range(members)})
    messages = fleet.round.close()
    for index in (0, 1, members - 1, 0):
        assert isinstance(messages[index], DeliveredShares)
        same(messages[index])


@pytest.mark.parametrize("last", [126, 127, 128, 129, 16_383])
def test_indices_of_one_byte_and_of_two(last: int) -> None:
    """Made up, for a round of so many takes long; some of those who shared dealt nothing."""
    for sharers in (range(last + 1), range(last % 7, last + 1, 7)):
        owners = tuple(index for index in sharers if index % 5)[-300:]
        sealed = tuple(bytes([index % 251]) * SEALED_BYTES for index in owners)
        same(DeliveredShares(tuple(sharers)[-300:], owners, sealed, b"h" * (SHARE_HASH_PAIR_BYTES * len(owners))))


def test_nobody_dealt_and_other_messages() -> None:
    same(DeliveredShares((), (), (), b""))
    same(Joined(3, 1_000_000))
    same(Joined(0, 0))
