"""Messages put together from parts are those that the wire's own encoder makes."""

from __future__ import annotations

import pytest

from client_sdk.secagg.messages import CollectorMessage, DeliveredShares, Joined
from client_sdk.wire.convert import collector_message_from_wire, collector_message_to_wire
from collector.service.message_bytes import encoded
from tests.fleet import Fleet, rules


def same(message: CollectorMessage) -> None:
    data = encoded(message)
    assert data == collector_message_to_wire(message)
    assert collector_message_from_wire(data) == message


@pytest.mark.parametrize("members", [3, 130, pytest.param(300, marks=pytest.mark.slow)])
def test_to_the_letter(members: int) -> None:
    """At 130 indices take two bytes, at 300 the graph is sparse; what all get is asked for twice."""
    fleet = Fleet([[1, 2]] * members, rules())
    fleet.join()
    fleet.step({index: fleet.round.roster_for(index) for index in range(members)})
    messages = fleet.round.close()
    for index in (0, 1, members - 1, 0):
        assert isinstance(messages[index], DeliveredShares)
        same(messages[index])


def test_nobody_dealt_and_other_messages() -> None:
    same(DeliveredShares((), (), (), b""))
    same(Joined(3, 1_000_000))
    same(Joined(0, 0))
