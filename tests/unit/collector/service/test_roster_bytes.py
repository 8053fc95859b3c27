"""Rosters put together from parts are the rosters that the wire's own encoder makes."""

from __future__ import annotations

import pytest

from client_sdk.wire.convert import collector_message_from_wire, collector_message_to_wire
from collector.service.roster_bytes import RosterBytes
from tests.fleet import Fleet, rules


@pytest.mark.parametrize("members", [2, 3, 130, 300])
def test_to_the_letter(members: int) -> None:
    """At 130 indices take two bytes, at 300 the graph is sparse, and each member has a proof of its own.

    Two are resent and one has a floor of its own: no advert is like the next.
    """
    fleet = Fleet([[1, 2]] * members, rules(), resent={0, members - 1}, min_cohorts={1: 2})
    fleet.join()
    assert fleet.round.roster.is_complete == (members < 256)
    rosters = RosterBytes(fleet.round.roster)
    for index in (0, 1, members // 2, members - 1, 0):
        data = rosters.for_member(index)
        assert data == collector_message_to_wire(fleet.round.roster_for(index))
        assert collector_message_from_wire(data) == fleet.round.roster_for(index)
