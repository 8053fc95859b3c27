"""Assertions, both halves: what holds, and every byte that must not be changed."""

from __future__ import annotations

import pytest

from client_sdk.assertion import MAX_NAME_BYTES, VALID_S, check_assertion, make_assertion
from client_sdk.certificate import Certificate, Role, issue
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import IdentityKey
from tests.fleet import REGISTRAR

ME = IdentityKey(b"m" * 32)
NOW = 1_800_000_000
METHOD, NAME = "/ldp.telemetry.v1.ReportingService/GetPrivacy", "collector.example:443"
CERTIFICATE = issue(REGISTRAR, Certificate(Role.DEVICE, ME.public_key, NOW - 60, NOW + 60))
GOOD = make_assertion(ME, CERTIFICATE, METHOD, NAME, NOW)


def check(data: bytes, *, method: str = METHOD, name: str = NAME, at: float = NOW, key: bytes = b"") -> str:
    return check_assertion(data, key or REGISTRAR.public_key, method, lambda said: said == name, at)


def test_a_good_one_names_its_device() -> None:
    assert check(GOOD) == ME.device_id
    assert len(GOOD) == 114 + 8 + 64 + len(NAME)


def test_every_byte_counts() -> None:
    """Any changed byte, cut or addition is refused, with one reason."""
    changed = [GOOD[:at] + bytes([GOOD[at] ^ 1]) + GOOD[at + 1 :] for at in range(len(GOOD))]
    for data in [*changed, *(GOOD[:n] for n in range(0, len(GOOD), 7)), GOOD + b"x"]:
        with pytest.raises(RejectionError) as refused:
            # the changed name is taken for ours, so that only the signature stands in its way
            check_assertion(data, REGISTRAR.public_key, METHOD, lambda _: True, NOW)
        assert refused.value.reason is RejectionReason.BAD_CREDENTIALS


@pytest.mark.parametrize("change", ["method", "name", "key", "late", "early", "after the certificate"])
def test_it_holds_for_one_method_collector_registrar_and_time(change: str) -> None:
    wrong = {
        "method": {"method": METHOD + "x"},
        "name": {"name": "another.example:443"},
        "key": {"key": ME.public_key},
        "late": {"at": NOW + VALID_S + 1},
        "early": {"at": NOW - VALID_S - 1},
        "after the certificate": {"at": NOW + 60},
    }
    with pytest.raises(RejectionError):
        check(GOOD, **wrong[change])  # type: ignore[arg-type]


def test_its_edges_hold() -> None:
    for at in (NOW - VALID_S, NOW + 59.9):
        assert check(GOOD, at=at) == ME.device_id
    longest = "x" * MAX_NAME_BYTES
    assert check(make_assertion(ME, CERTIFICATE, METHOD, longest, NOW), name=longest) == ME.device_id
    with pytest.raises(RejectionError):
        check(make_assertion(ME, CERTIFICATE, METHOD, longest + "x", NOW), name=longest + "x")


def test_another_role_and_anothers_certificate() -> None:
    operator = issue(REGISTRAR, Certificate(Role.OPERATOR, ME.public_key, NOW - 60, NOW + 60))
    stranger = IdentityKey(b"s" * 32)
    for data in (
        make_assertion(ME, operator, METHOD, NAME, NOW),
        make_assertion(stranger, CERTIFICATE, METHOD, NAME, NOW),
        make_assertion(ME, issue(stranger, Certificate(Role.DEVICE, ME.public_key, NOW, NOW + 60)), METHOD, NAME, NOW),
    ):
        with pytest.raises(RejectionError):
            check(data)
