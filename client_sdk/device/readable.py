"""What a host may read of its client: identity, budget, counters, history, previews, the ledger.

Rules of this file: reading changes nothing but what its name says (`reset_ledger`); no reading of the device's is
shown to anybody but the host itself. Import path of `from client_sdk import TelemetryClient`: only what every Python
process has loaded anyway.
"""

from __future__ import annotations

from client_sdk.device.access import LEDGER
from client_sdk.errors import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from decimal import Decimal
    from typing import Any

    from client_sdk.device.engine import Engine
    from client_sdk.device.memos import MemoView
    from client_sdk.device.preview import Preview
    from client_sdk.device.records import LogEntry
    from client_sdk.device.views import BudgetView


class Readable:
    """The half of `TelemetryClient` that is read."""

    _engine: Engine
    _consent: bool

    @property
    def device_id(self) -> str | None:
        """The identity's public name, 32 hex digits; None from `opt_out()`, which destroys it, to `opt_in()`.

        Raises StorageError.
        """
        from client_sdk.identity import IdentityKey

        store = self._engine.access.store()
        return None if store.opted_out() else IdentityKey(store.identity()).device_id

    def spent(self) -> BudgetView:
        """Exact: what one report costs, what is spent and what is left. Raises StorageError."""
        from client_sdk.device.views import budget_view

        engine = self._engine
        plan = engine.recorder.plan or engine.given_plan
        return budget_view(engine.access.store(), plan, engine.settings.host_limits, engine.clock())

    async def collector_view(self) -> dict[str, Any]:
        """What the collector has booked for this device: reports, windows, lifetime, as it says; changes nothing here.

        One call over the network, on the caller's loop (`asyncio.run(client.collector_view())` without one). Raises
        ConfigurationError (not enrolled yet), TelemetryError for whatever goes wrong on the way, StorageError.
        """
        from client_sdk.device.collector_view import ask

        engine = self._engine
        return await ask(engine.access.store(), engine.settings, engine.clock)

    def counters(self) -> dict[str, int]:
        """Counts by reason since the folder was made, over all processes (but what others hold in memory still).

        Readings: no_consent, no_plan, closed, disabled, unknown_metric, unknown_category, wrong_type, wrong_length,
        not_finite, period_sealed, other_process, metric_expired, opted_out. Plans: plan_* (plan_names: a metric or a
        label came back, or means something else). Opting out: opted_out (reports too), deletion_acknowledged,
        deletion_*. Reports: sealed, counted, already_counted, expired, spool_full, too_large, resend_never, budget_*,
        ledger_damaged, storage, memoised_answer_kept (its value is beyond
        `max_distinct`, so an answer from before was sent). Attempts: come_back, timeout, rpc_*, aborted_*, left_*,
        direct_*, forked_in_upload (this process must not use the network; another one sends). Unmasked: counted_direct
        (of those counted), direct_not_allowed (by this client; a plan, or reports that wait).
        What stands behind an attempt, counted beside it: plan_not_served, certificate_not_taken, not_a_collector,
        not_a_registrar.
        Identity: enrolled, renewed, not_enrolled, enrolment_refused, renewal_refused, certificate_expired, registrar_*.
        """
        counts: dict[str, int] = {}
        if self._consent or self._engine.departure.opted_out:
            try:
                counts = self._engine.access.store().counters()
            except StorageError as error:
                self._engine.access.failed(error)
        for reason, amount in self._engine.recorder.counts().items():
            counts[reason] = counts.get(reason, 0) + amount
        return counts

    def preview(self) -> Preview:
        """What would be sent and what it costs, without spending, storing or sending anything. Raises StorageError.

        For each period that is not sealed: metrics, mechanisms, epsilon, length and encoding, and one EXAMPLE
        report, drawn afresh at each call and never the one that will be made. What waits is shown as it is.
        Examples are noisy answers about the same readings: nobody but this process sees them, and they cost
        nothing while that holds; whoever is shown many of them can average the noise away. Show one to the
        device's user, put none into a log.
        """
        from client_sdk.device.preview import make_preview

        return make_preview(self._engine, consent=self._consent)

    def memoised(self) -> list[MemoView]:
        """For each memoised metric of the plan: how many values this device answered for, and what that tells at most.

        Only this device knows; the charge, which the collector keeps too, follows from the number of reports alone.
        Raises StorageError.
        """
        engine = self._engine
        plan = engine.recorder.plan or engine.given_plan
        return [] if plan is None else engine.access.store().memo_views(plan)

    def history(self) -> list[LogEntry]:
        """What became of every report that left the spool: digest, epsilon, outcome, cohort. Raises StorageError."""
        return self._engine.access.store().history()

    def export_ledger(self) -> dict[str, Any]:
        """Everything ever charged, JSON-ready, for `ldp-collector recompute`: when, under which plan, in which sum.

        It holds no reading and no report, but it says in which periods this device took part, when it sealed its
        reports and how large its cohorts were: whoever is given it learns when the device was in use. Changes nothing;
        amounts are whole micro-epsilon, times whole seconds. Raises StorageError.
        """
        return self._engine.access.store().export_ledger(self._engine.clock())

    def reset_ledger(self) -> Decimal:
        """Use a damaged ledger again: the largest total known is booked as spent. Returns it. StorageError."""
        from decimal import Decimal

        from client_sdk.accounting.budget import format_micro

        access = self._engine.access
        total = access.store().reset_ledger(self._engine.clock())
        access.works(LEDGER)
        return Decimal(format_micro(total))
