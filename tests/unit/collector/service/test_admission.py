"""Limits per address, per identity and in total: what is let in, what is refused, what is forgotten."""

from __future__ import annotations

import contextlib

import pytest

from client_sdk.errors import RejectionError, RejectionReason
from collector.service.admission import ELSEWHERE, JOINS_WINDOW_S, Joins, Streams, address_of
from collector.service.config_file import read_config
from collector.service.names import name_judge
from collector.service.tls_files import is_name_of


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.7:40000", "192.0.2.7"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:40000", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2::1]:1", "2001:db8:1:2::/64"),
        ("ipv6:%5B::ffff:192.0.2.7%5D:1", "192.0.2.7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("unix:/run/socket", ELSEWHERE),
        ("ipv4:nonsense", ELSEWHERE),
        ("", ELSEWHERE),
    ],
)
def test_what_counts_as_one_address(peer: str, address: str) -> None:
    assert address_of(peer) == address


def hold(streams: Streams, stack: contextlib.ExitStack, peer: str, count: int, *, beside: bool = False) -> int:
    """Places that were had."""
    had = 0
    for _ in range(count):
        with contextlib.suppress(RejectionError):
            stack.enter_context(streams.one(peer, beside_the_total=beside))
            had += 1
    return had


def test_places_per_address_and_in_total_and_that_they_come_back() -> None:
    streams = Streams(most=5, most_per_address=3)
    with contextlib.ExitStack() as stack:
        assert hold(streams, stack, "ipv4:192.0.2.1:1", 9) == 3
        assert hold(streams, stack, "ipv4:192.0.2.2:1", 9) == 2
        assert hold(streams, stack, "ipv4:192.0.2.3:1", 9) == 0
        assert hold(streams, stack, "ipv4:192.0.2.3:1", 9, beside=True) == 3, "an address's own limit holds there too"
        with pytest.raises(RejectionError) as refused, streams.one("ipv4:192.0.2.4:1"):
            pass
        assert refused.value.reason is RejectionReason.TOO_MANY
    assert not streams._of, "nothing is kept of who was here"
    with contextlib.ExitStack() as stack:
        assert hold(streams, stack, "ipv4:192.0.2.3:1", 9) == 3


def test_a_refusal_and_a_fault_give_their_place_back() -> None:
    streams = Streams(most=1, most_per_address=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="a fault"), streams.one("ipv4:192.0.2.1:1"):
            raise ValueError("a fault")


def test_joins_by_the_hour() -> None:
    now = [1000.0]
    joins = Joins(2, lambda: now[0])
    for _ in range(2):
        joins.one("device and period")
    joins.one("another")
    with pytest.raises(RejectionError) as refused:
        joins.one("device and period")
    assert refused.value.reason is RejectionReason.TOO_MANY_JOINS
    now[0] += JOINS_WINDOW_S
    joins.one("device and period")
    assert len(joins._joined) == 1, "the hour before is forgotten"


# --- names that an assertion may be for ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("collector.example", True),
        ("COLLECTOR.example", True),
        ("a.wild.example", True),
        ("a.b.wild.example", False),
        ("wild.example", False),
        ("192.0.2.1", True),
        ("[2001:db8::1]", True),
        ("2001:0db8::0001", True),
        ("192.0.2.2", False),
        ("evil-collector.example", False),
        ("", False),
    ],
)
def test_names_of_a_certificate(host: str, ours: bool) -> None:
    names = frozenset({"collector.example", "*.wild.example", "192.0.2.1", "2001:db8::1"})
    assert is_name_of(host, names) is ours


def test_the_operators_names_come_first() -> None:
    judge = name_judge(("collector.example", "other.example:8443", "[2001:db8::1]"), None, lambda: 7443)
    assert judge("collector.example:443")
    assert judge("Collector.example:7443")
    assert judge("other.example:8443")
    assert not judge("other.example:443")
    assert judge("[2001:db8::1]:443")
    assert not judge("localhost:7443")
    assert not judge("collector.example")
    assert not judge("a.collector.example:443")
    loopback = name_judge((), None, lambda: 7443)
    assert loopback("localhost:7443")
    assert loopback("127.0.0.1:7443")
    assert not loopback("127.0.0.1:1"), "another collector of this machine"
    assert not loopback("collector.example:7443")


def test_the_options_in_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "c.toml"
    path.write_text('name = ["a.example"]\nclient_ca = "ca.pem"\nmax_round_memory = "1GB"\nmax_joins = 5\n')
    found = read_config(path)
    assert found["names"] == ("a.example",)
    assert (found["max_round_bytes"], found["max_joins"], str(found["client_ca"])) == (1_000_000_000, 5, "ca.pem")
