"""What a registrar signs and renews; and that its log is not a disk's end."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from client_sdk import certificate as certificates
from client_sdk.certificate import Certificate, CertificateError, Role
from client_sdk.errors import ConfigurationError
from client_sdk.identity import IdentityKey, enrolment_message, renewal_message
from client_sdk.wire.messages import RenewRequest
from collector.service.registrar.issuing import LIFETIME_S, RENEW_FOR_S, Issuer, Terms
from collector.service.registrar.refusals import EVERY_S, RefusalLog

NOW = 1_780_000_000
REGISTRAR, DEVICE, OTHER = (IdentityKey(bytes([n]) * 32) for n in (1, 2, 3))
ISSUER = Issuer(REGISTRAR, Terms())


def request(certificate: bytes, identity: IdentityKey = DEVICE) -> RenewRequest:
    return RenewRequest(certificate, identity.sign(renewal_message(certificate)))


def test_a_certificate_says_what_it_must() -> None:
    issued = ISSUER.issue(DEVICE.public_key, NOW + 0.9)
    assert certificates.check(issued, REGISTRAR.public_key, DEVICE.public_key, Role.DEVICE, NOW) == Certificate(
        Role.DEVICE, DEVICE.public_key, NOW, NOW + 30 * 86_400
    )
    assert ISSUER.expiry(NOW + 0.9) == NOW + LIFETIME_S


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (NOW, None),
        (NOW + LIFETIME_S + RENEW_FOR_S - 1, None),
        (NOW + LIFETIME_S + RENEW_FOR_S, "expired"),
    ],
)
def test_a_certificate_is_renewed_until_some_time_after_its_end(at: float, reason: str | None) -> None:
    issued = ISSUER.issue(DEVICE.public_key, NOW)
    if reason is None:
        assert ISSUER.check_renewal(request(issued), at).identity_key == DEVICE.public_key
        return
    with pytest.raises(CertificateError) as refused:
        ISSUER.check_renewal(request(issued), at)
    assert refused.value.reason == reason


def test_only_its_own_device_has_a_certificate_renewed() -> None:
    issued = ISSUER.issue(DEVICE.public_key, NOW)
    body = certificates.read(issued)
    bad = {
        "another's signature": request(issued, OTHER),
        "a signature over something else": RenewRequest(issued, DEVICE.sign(enrolment_message(issued.hex()))),
        "another registrar's": request(certificates.issue(OTHER, body)),
        "a changed one": request(issued[:42] + (NOW + 10 * LIFETIME_S).to_bytes(8, "big") + issued[50:]),
        "another role": request(certificates.issue(REGISTRAR, replace(body, role=Role.OPERATOR))),
        "no certificate": RenewRequest(b"", bytes(64)),
    }
    for wrong in bad.values():
        with pytest.raises(CertificateError):
            ISSUER.check_renewal(wrong, NOW)


def test_terms_that_cannot_be() -> None:
    for lifetime_s in (0, 3599, 367 * 86_400):
        with pytest.raises(ConfigurationError, match="--lifetime"):
            Terms(lifetime_s=lifetime_s)
    with pytest.raises(ConfigurationError, match="--renew-for"):
        Terms(renew_for_s=-1)


def test_a_flood_of_refusals_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = RefusalLog(logging.getLogger("test"), lambda: now[0])
    for second in range(180):
        now[0] = second
        for _ in range(100):
            refusals.note("bad_token")
    refusals.note("malformed")
    refusals.flush()
    refusals.flush()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 180 / EVERY_S + 1
    assert said[0] == "refused: bad_token 1", "the first one at once"
    counts = [int(line.rpartition("bad_token ")[2].partition(",")[0]) for line in said]
    assert sum(counts) == 18_000
    assert said[-1].endswith("malformed 1")


def test_a_reasons_first_hint_is_said_with_it(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = RefusalLog(logging.getLogger("test"), lambda: now[0])
    refusals.note("unknown_plan", "one asked for ab")
    for asked in ("cd", "ef"):
        refusals.note("unknown_plan", f"one asked for {asked}")
    refusals.note("expired")
    refusals.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "refused: unknown_plan 1 (one asked for ab)",
        "refused: expired 1, unknown_plan 2 (one asked for cd)",
    ]
