"""Every exception that leaves the SDK, named after whose fault it is.

Rules of this file: an exception's text says what, where and what to do, in one line; it never holds
a reading, a seed, a key or a token. The edge (device, service) translates each class once, into a
counter, an exit status or a gRPC status; nothing else decides by exception text.
"""

from __future__ import annotations

from enum import Enum


class TelemetryError(Exception):
    """Base of all errors of this package; never raised itself."""


class PlanError(TelemetryError):
    """The plan's author is wrong. `problems` holds one line per fault, each naming its field."""

    def __init__(self, problems: list[str] | str) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class ConfigurationError(TelemetryError):
    """The host application (or the operator) configured something that cannot work."""


class MissingExtraError(TelemetryError):
    """An optional dependency is not installed; the text names the exact extra to install."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the {extra!r} extra: pip install 'ldp-telemetry[{extra}]'")


class StorageError(TelemetryError):
    """The device's or the collector's store is full, locked, read-only or damaged."""


class RefusalReason(Enum):
    """Why a reading or a report was refused on the device. Counted, readable by the host.

    The names are public: they are the keys of `TelemetryClient.counters()`.
    """

    NO_CONSENT = "no_consent"
    NO_PLAN = "no_plan"
    CLOSED = "closed"
    DISABLED = "disabled"
    UNKNOWN_METRIC = "unknown_metric"
    UNKNOWN_CATEGORY = "unknown_category"
    WRONG_TYPE = "wrong_type"
    WRONG_LENGTH = "wrong_length"
    NOT_FINITE = "not_finite"
    PERIOD_SEALED = "period_sealed"
    OTHER_PROCESS = "other_process"
    BUDGET_REPORT = "budget_report"
    BUDGET_24H = "budget_24h"
    BUDGET_LIFETIME = "budget_lifetime"
    BUDGET_RHO = "budget_rho"
    LEDGER_DAMAGED = "ledger_damaged"
    STORAGE = "storage"
    TOO_LARGE = "too_large"
    SPOOL_FULL = "spool_full"
    EXPIRED = "expired"
    METRIC_EXPIRED = "metric_expired"
    OPTED_OUT = "opted_out"
    PLAN_PERIOD_CHANGED = "plan_period_changed"
    PLAN_NOT_PINNED = "plan_not_pinned"
    PLAN_SIGNATURE = "plan_signature"
    PLAN_NAME_CHANGED = "plan_name_changed"
    PLAN_CHANGED_WITHOUT_VERSION = "plan_changed_without_version"
    PLAN_VERSION_BACK = "plan_version_back"
    PLAN_LIMITS_RAISED = "plan_limits_raised"
    PLAN_WEAKER = "plan_weaker"
    PLAN_NAMES = "plan_names"
    PLAN_TOO_WEAK = "plan_too_weak"
    RESEND_NEVER = "resend_never"
    DIRECT_NOT_ALLOWED = "direct_not_allowed"


class ValueRefusedError(TelemetryError, ValueError):
    """A reading cannot be used. The text names the metric and the reason, never the reading."""

    def __init__(self, metric: str, reason: RefusalReason) -> None:
        self.metric = metric
        self.reason = reason
        super().__init__(f"metric {metric!r}: reading refused ({reason.value}); nothing was spent")


class PlanRefusedError(TelemetryError):
    """A plan is valid, but this device does not go over to it; what it held before stays."""

    def __init__(self, reason: RefusalReason) -> None:
        self.reason = reason
        super().__init__(f"plan refused ({reason.value}); the one before stays")


class BudgetExceededError(TelemetryError):
    """A charge would pass one of the device's own limits; nothing was charged."""

    def __init__(self, reason: RefusalReason, needed_micro_epsilon: int, left_micro_epsilon: int) -> None:
        self.reason = reason
        self.needed_micro_epsilon = needed_micro_epsilon
        self.left_micro_epsilon = left_micro_epsilon
        super().__init__(
            f"report refused ({reason.value}): it costs {needed_micro_epsilon} micro-epsilon, "
            f"{left_micro_epsilon} left; raise the limit in the host's settings or wait"
        )


class WireError(TelemetryError):
    """Bytes from the other end do not form a valid message. The sender's fault; never retried as it is."""


class ProtocolError(TelemetryError):
    """Base of secure-aggregation errors; never raised itself."""


class LocalProtocolError(ProtocolError):
    """Our own code asked the protocol machine for something impossible (a step twice, a wrong order)."""


class RemoteProtocolError(ProtocolError):
    """The other end broke the protocol: this participant leaves the round. `reason` is counted."""

    def __init__(self, reason: AbortReason, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"left the round ({reason.value})" + (f": {detail}" if detail else ""))


class AbortReason(Enum):
    """Why a participant left a round, or why the collector ended one. One word per reason, counted."""

    # seen by a participant
    OWN_ADVERT_MISSING = "own_advert_missing"
    BAD_ADVERT = "bad_advert"
    BAD_CERTIFICATE = "bad_certificate"
    DUPLICATE_KEY = "duplicate_key"
    ROSTER_DIGEST = "roster_digest"
    WRONG_GRAPH = "wrong_graph"
    WEAK_PARAMETERS = "weak_parameters"
    COHORT_TOO_SMALL = "cohort_too_small"
    TOO_FEW_SHARES = "too_few_shares"
    TOO_FEW_SHARERS = "too_few_sharers"
    TOO_FEW_SURVIVORS = "too_few_survivors"
    TOO_FEW_CONFIRMATIONS = "too_few_confirmations"
    BAD_CONFIRMATION = "bad_confirmation"
    NOT_A_SURVIVOR = "not_a_survivor"
    STATUS_MISMATCH = "status_mismatch"
    UNMASK_MISMATCH = "unmask_mismatch"
    OUT_OF_ORDER = "out_of_order"
    MALFORMED = "malformed"
    # seen by the collector
    TOO_FEW_RESPONSES = "too_few_responses"
    WRONG_SHARES = "wrong_shares"
    IMPLAUSIBLE_SUM = "implausible_sum"
    NOT_STORED = "not_stored"
    SHUTTING_DOWN = "shutting_down"


class RoundAbortedError(ProtocolError):
    """The collector ended a round without a sum. Carries the reason and the counts, never a sum."""

    def __init__(self, reason: AbortReason, *, have: int, need: int) -> None:
        self.reason = reason
        self.have = have
        self.need = need
        super().__init__(f"round aborted ({reason.value}): {have} of at least {need} participants")


class RejectionError(ProtocolError):
    """One message of one participant was refused; the round goes on without it."""

    def __init__(self, reason: RejectionReason, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"rejected ({reason.value})" + (f": {detail}" if detail else ""))


class RejectionReason(Enum):
    """Why the collector refused one message or one participant. Counted by name."""

    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad_signature"
    BAD_CERTIFICATE = "bad_certificate"
    BAD_TOKEN = "bad_token"  # noqa: S105 - a reason's name, no secret
    NOT_RENEWED = "not_renewed"
    UNKNOWN_PLAN = "unknown_plan"
    WRONG_DELIVERY = "wrong_delivery"
    IMPLAUSIBLE_REPORT = "implausible_report"
    PERIOD_TOO_OLD = "period_too_old"
    PERIOD_NOT_STARTED = "period_not_started"
    DUPLICATE_IDENTITY = "duplicate_identity"
    DUPLICATE_KEY = "duplicate_key"
    OUT_OF_ORDER = "out_of_order"
    ALREADY_RECEIVED = "already_received"
    TOO_LARGE = "too_large"
    LATE = "late"
    BLAMED = "blamed"
    OPTED_OUT = "opted_out"
    TOO_MANY = "too_many"
    TOO_MANY_JOINS = "too_many_joins"
    BAD_CREDENTIALS = "bad_credentials"
    NOT_ALLOWED = "not_allowed"
    UNKNOWN_METHOD = "unknown_method"
    UNKNOWN_DEVICE = "unknown_device"
    BUSY = "busy"
    SHUTTING_DOWN = "shutting_down"
    STORAGE = "storage"
