"""What most likely stands behind a failure, and who can mend it: one clause for the log, one word for the counters.

Rules of this file: it only explains; nothing is decided by it. It names hashes, never an address, a key or a token.
What it does not do: it is not sure. A status says what the other end refused, not why, so clauses name alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk.certificate import CertificateError
from client_sdk.device.interfaces import CallFailedError

HASH_DIGITS = 8
"""Of a plan's hash: enough to compare with what `ldp-collector plan check` prints."""


@dataclass(frozen=True, slots=True)
class Cause:
    """`counted`: the word that is counted beside the status, or None where the status says it all."""

    says: str
    counted: str | None = None


_REACH = "if it stays so: is the address right, and do both sides use TLS, or neither?"
_UNREACHED = frozenset({"unavailable", "deadline_exceeded", "internal", "unknown"})


def of_report(error: Exception, plan_hash: bytes) -> Cause | None:
    """Why a collector does not take a report that was made under the plan of this hash."""
    status = _status(error)
    if status == "failed_precondition":
        shown = plan_hash.hex()[:HASH_DIGITS]
        return Cause(
            f"the collector serves no plan with this hash {shown}...: serve the very file that the app ships, "
            "[registrar] table included (or the report's period is not open there: is this clock right?)",
            "plan_not_served",
        )
    if status == "unauthenticated":
        return Cause(
            "the collector does not take this device's certificate: it was started with another registrar's key "
            "than the device's registrar_key, or one of the two clocks is wrong",
            "certificate_not_taken",
        )
    return of_collector(error)


def of_collector(error: Exception) -> Cause | None:
    """Why whatever answers there is no collector to this device."""
    if _status(error) == "unimplemented":
        return Cause(
            "whatever answers at `endpoint` is no collector, or an older one: is it the registrar's address?",
            "not_a_collector",
        )
    return Cause(_REACH) if _status(error) in _UNREACHED else None


def of_registrar(error: Exception) -> Cause | None:
    """Why whatever answers there is no registrar to this device."""
    status = _status(error)
    if isinstance(error, CertificateError) and error.reason == "bad_signature":
        return Cause(
            "the answer is not signed by registrar_key: give the device the public key of the registrar that it asks"
        )
    if status in ("unimplemented", "unauthenticated"):  # a registrar says permission_denied
        return Cause(
            "whatever answers at `registrar` is no registrar, or an older one: is it the collector's address?",
            "not_a_registrar",
        )
    return Cause(_REACH) if status in _UNREACHED else None


def clause(cause: Cause | None) -> str:
    """To put behind what happened."""
    return "" if cause is None else f": {cause.says}"


def _status(error: Exception) -> str | None:
    return error.status if isinstance(error, CallFailedError) else None
