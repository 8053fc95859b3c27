"""What the host hands over when it makes a client, looked at once: consent, the plan, parts that only tests may give.

Import path of `from client_sdk import TelemetryClient`: only what every Python process has loaded anyway.
"""

from __future__ import annotations

import os
import sys

from client_sdk.errors import ConfigurationError

LONGEST_WAIT_S = 1e9

TYPE_CHECKING = False
if TYPE_CHECKING:
    from client_sdk.device.interfaces import MemoryTransport
    from client_sdk.device.settings import Settings
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan


def check_consent(given: object) -> None:
    """Only the very answers: a form's "no" is true in Python. Raises ConfigurationError."""
    if not isinstance(given, bool):
        raise ConfigurationError("consent: must be True or False; without the user's consent nothing is recorded")


def load_given(plan: Plan | str | os.PathLike[str] | None) -> Plan | None:
    """The plan that the host ships; None: it is to be fetched. Raises ConfigurationError, PlanError."""
    if plan is None:
        return None
    from client_sdk.plan import Plan

    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, (str, os.PathLike)):
        raise ConfigurationError("plan: give a path, a Plan from load_plan(), or leave it out to fetch it")
    from client_sdk.files import load_plan

    return load_plan(plan)


def check_pin(shipped: Plan | None, settings: Settings) -> None:
    """A plan that the host ships must be the one that it pins. Raises ConfigurationError."""
    if shipped is not None and settings.plan_hash not in (None, shipped.hash):
        raise ConfigurationError(f"plan_hash: the plan that was given has another one, {shipped.hash.hex()}")


def check_clock(clock: object) -> None:
    """Raises ConfigurationError for what cannot be asked for the time."""
    if not callable(clock):
        raise ConfigurationError("clock: must be a function without arguments that returns seconds since the epoch")


def check_timeout(timeout_s: object) -> float:
    """Seconds to wait, no longer than a lock can. Raises ConfigurationError for what is no number."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s >= float("-inf"):
        raise ConfigurationError("timeout_s: must be a number of seconds")  # which NaN is not
    return float(max(0, min(timeout_s, LONGEST_WAIT_S)))


def never_sent(plan: Plan, settings: Settings) -> str | None:
    """Why the host's own limits let no report of this plan leave, one line with the numbers; None: they let it."""
    from client_sdk.accounting.budget import format_micro

    limits, cost = settings.host_limits, plan.report_micro_epsilon
    named = {
        "max_epsilon_report": limits.report,
        "max_epsilon_24h": limits.rolling_24h,
        "max_epsilon_lifetime": limits.lifetime,
    }
    says = [f"{name} is {format_micro(limit)}" for name, limit in named.items() if limit is not None and limit < cost]
    if says:
        word, costs = ("hardly any", "can cost") if plan.memos else ("no", "costs")  # a memoised one's first is cheap
        says = [
            f"{word} report will ever be sent: {', '.join(says)}, and one of plan {plan.name!r} {costs} "
            f"{format_micro(cost)}"
        ]
    rho = {
        "max_rho_report": limits.report_rho,
        "max_rho_24h": limits.rolling_24h_rho,
        "max_rho_lifetime": limits.lifetime_rho,
    }
    says += [
        f"no report will ever be sent: {name} is {format_micro(limit)}, and one of plan {plan.name!r} costs "
        f"{format_micro(plan.report_micro_rho)} of rho"
        for name, limit in rho.items()
        if limit is not None and limit < plan.report_micro_rho
    ]
    rules = plan.cohort
    if settings.min_cohort > rules.min_size and plan.delivery.delivery != "direct":
        from client_sdk.secagg.parameters import min_roster

        needed, largest = min_roster(settings.min_cohort, rules.dropout_fraction), 2 * rules.target_size - 1
        if needed > rules.target_size:
            word = "no" if needed > largest else "hardly any"
            says.append(
                f"{word} report will ever be sent: min_cohort is {settings.min_cohort}, which takes {needed} devices "
                f"at once, and plan {plan.name!r} brings target_size = {rules.target_size} together"
            )
    return "; ".join(says) or None


def test_parts(
    settings: Settings, entropy: Entropy | None, transport: MemoryTransport | None
) -> tuple[Entropy, MemoryTransport | None]:
    """Noise that somebody can repeat must never reach a collector outside this process."""
    if not settings.in_memory:
        if entropy is not None:
            raise ConfigurationError(
                "test entropy is allowed with the in-memory collector only, never with an endpoint"
            )
        if transport is not None:
            raise ConfigurationError("an in-memory endpoint and its transport belong together")
        return os.urandom, None
    if transport is None:
        testing = sys.modules.get("client_sdk.testing")  # who has made such a collector has imported it
        collector = None if testing is None else testing.find(settings.endpoint)
        if collector is None:
            raise ConfigurationError(
                f"endpoint: nobody has made the in-memory collector {settings.endpoint!r} in this process; "
                "such endpoints are for tests (client_sdk.testing)"
            )
        return entropy or collector.entropy(), collector
    return entropy or os.urandom, transport
