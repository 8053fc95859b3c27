"""What the collector asks of a participant before it may wait for a cohort. Pure: time comes in as an argument.

Rules of this file: everything that can be refused is refused before any state is kept for a participant; a
signature is checked last, because it costs most; a refusal says which field, never what was in it.
What it does not do: counting and "already counted" are the store's; two members with one identity or
one key are the cohort's.

A key that others will use is part of what is checked: one member with a mask key of small order would make
every other member leave the round.
"""

from __future__ import annotations

from typing import Final

from client_sdk.certificate import Certificate, CertificateError, Role, check, read
from client_sdk.errors import RejectionError, RejectionReason
from client_sdk.identity import deletion_message, is_valid_public_key, verify
from client_sdk.plan import Plan
from client_sdk.secagg.keys import is_valid_public
from client_sdk.secagg.messages import DIGEST_BYTES, NONCE_BYTES, REPORT_ID_BYTES, Advert, Hello
from client_sdk.secagg.transcript import advert_message
from client_sdk.wire.messages import DeleteRequest

CLOCK_SKEW_S: Final = 300
"""How far a device's clock may run ahead of the collector's."""


def check_hello(hello: Hello, plan: Plan | None, now: float, *, direct: bool = False) -> None:
    """May this report still be counted under this plan? `plan` is the one that `hello.plan_hash` names, if any.

    direct: it comes unmasked.

    A period may be sealed, and so sent, before it ends; its start may lie CLOCK_SKEW_S ahead. It is taken until
    its end + `max_delay`, that second excluded. Raises RejectionError: MALFORMED, UNKNOWN_PLAN,
    WRONG_DELIVERY (the plan's reports do not come this way), PERIOD_NOT_STARTED or PERIOD_TOO_OLD.
    """
    _require(len(hello.plan_hash) == DIGEST_BYTES, "plan_hash")
    if plan is None or plan.hash != hello.plan_hash:
        raise RejectionError(RejectionReason.UNKNOWN_PLAN)
    _require(is_valid_public_key(hello.identity_key), "identity_key")
    _require(len(hello.report_id) == REPORT_ID_BYTES, "report_id")
    _require(plan.period_start(hello.period_start) == hello.period_start, "period_start")
    if not (plan.delivery.takes_direct if direct else plan.delivery.delivery != "direct"):
        raise RejectionError(RejectionReason.WRONG_DELIVERY)
    if hello.period_start > now + CLOCK_SKEW_S:
        raise RejectionError(RejectionReason.PERIOD_NOT_STARTED)
    if now >= expires_at(plan, hello.period_start):
        raise RejectionError(RejectionReason.PERIOD_TOO_OLD)


def check_certificate(hello: Hello, registrar_key: bytes, now: float) -> Certificate:
    """Is the participant's identity one that the registrar has certified as a device's, until after `now`?

    And after the period's start, which may lie ahead: the other members judge by that, and would all leave the round.
    Raises RejectionError(BAD_CERTIFICATE) from a CertificateError, whose `reason` is for the collector's own counters.
    """
    try:
        at = max(now, hello.period_start)
        return check(hello.certificate, registrar_key, hello.identity_key, Role.DEVICE, at)
    except CertificateError as error:
        raise RejectionError(RejectionReason.BAD_CERTIFICATE) from error


def check_deletion(request: DeleteRequest) -> None:
    """Did the identity itself ask to be forgotten? Raises RejectionError(BAD_SIGNATURE).

    No clock is asked: the request may have waited for months on a device that was offline.
    """
    message = deletion_message(request.identity_key, request.requested_at)
    if not verify(request.identity_key, request.signature, message):
        raise RejectionError(RejectionReason.BAD_SIGNATURE)


def was_certified(request: DeleteRequest, registrar_key: bytes) -> bool:
    """Has the registrar ever vouched for the identity? Whether that has ended meanwhile does not matter."""
    try:
        issued_at = read(request.certificate).issued_at
        check(request.certificate, registrar_key, request.identity_key, Role.DEVICE, issued_at)
    except CertificateError:
        return False
    return True


def expires_at(plan: Plan, period_start: int) -> int:
    """From this second on (since the epoch) no report of the period is taken."""
    return period_start + plan.period_s + plan.max_delay_s


def check_advert(hello: Hello, nonce: bytes, advert: Advert) -> None:
    """Did the participant that said `hello` sign these round keys for this `nonce`?

    Raises RejectionError: MALFORMED for a field that differs from the hello's or is no key, DUPLICATE_KEY where
    both round keys are one, BAD_SIGNATURE for another nonce (a replay) or a signature that does not hold.
    """
    for name in ("identity_key", "certificate", "plan_hash", "period_start", "report_id"):
        _require(getattr(advert, name) == getattr(hello, name), name)
    _require(is_valid_public(advert.mask_key), "mask_key")
    _require(is_valid_public(advert.channel_key), "channel_key")
    _require(len(advert.self_mask_commitment) == DIGEST_BYTES, "self_mask_commitment")
    _require(0 <= advert.min_cohort < 2**32, "min_cohort")
    if advert.mask_key == advert.channel_key:
        raise RejectionError(RejectionReason.DUPLICATE_KEY, "mask_key and channel_key")
    if len(nonce) != NONCE_BYTES or advert.nonce != nonce:
        raise RejectionError(RejectionReason.BAD_SIGNATURE, "nonce")
    if not verify(advert.identity_key, advert.signature, advert_message(advert)):
        raise RejectionError(RejectionReason.BAD_SIGNATURE)


def _require(holds: bool, field: str) -> None:
    if not holds:
        raise RejectionError(RejectionReason.MALFORMED, field)
