"""From an open period to a charged and spooled report, or to an encrypted row for the next process.

Rules of this file: a period's readings are perturbed once and dropped in the same moment; a sealed report that
the store cannot take waits in memory, bounded, and is offered again with the same bytes; a report too old to
be taken is not even charged. What it does not do: it sends nothing.
"""

from __future__ import annotations

import os
import threading

from client_sdk.device.access import LEDGER, StoreAccess
from client_sdk.device.period import ID_BYTES, OpenPeriod
from client_sdk.errors import RefusalReason, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from client_sdk.device.memos import Answers
    from client_sdk.device.recorder import Recorder
    from client_sdk.device.records import SealedReport
    from client_sdk.device.settings import Settings
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan

MAX_UNSTORED = 8
"""Sealed reports kept in memory while the store does not answer; beyond this the oldest is given up."""


class Sealer:
    """Opens, seals and keeps the periods of one client.

    life: how often the user had opted out when this client began; None where no store could say.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        entropy: Entropy,
        recorder: Recorder,
        access: StoreAccess,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._recorder = recorder
        self._access = access
        self._sealed_by = os.urandom(ID_BYTES)
        self._lock = threading.RLock()
        self.life: int | None = None
        self._unstored: list[tuple[SealedReport, int]] = []  # with the number of its readings

    def open_period(self, plan: Plan) -> None:
        """Record under `plan` from here on; go on with what an earlier process kept. Raises StorageError."""
        now, self.life = self._clock(), self._access.store().life()
        period = self._kept_period(plan, now) or OpenPeriod(plan, now)
        self._recorder.begin(period, sealed_already=self._access.store().is_sealed(plan.name, period.start))

    def _kept_period(self, plan: Plan, now: float) -> OpenPeriod | None:
        """The open period that was kept for this process; kept ones that are over wait for sealing."""
        key = self._settings.seal_key
        if key is None:
            return None
        from client_sdk.device import keep

        current = None
        for plan_hash, start, sealed in self._access.store().take_open_periods(plan.name):
            state = keep.open_state(key, plan, start, sealed) if plan_hash == plan.hash else None
            if state is None:
                self._recorder.count("kept_period_lost")
            elif start == plan.period_start(now):
                current = OpenPeriod(plan, now, state, start)
            else:
                self._recorder.put_ended(OpenPeriod(plan, now, state, start))
        return current

    def keep_or_seal_open(self) -> None:
        """Leave the open period to the next process, encrypted; without a key, seal it. Raises StorageError."""
        key = self._settings.seal_key
        if key is None:
            self.seal_open(RefusalReason.CLOSED)
            return
        from client_sdk.device import keep

        self.seal_ended()
        period = self._recorder.take_open(RefusalReason.CLOSED)
        if period is not None:
            sealed = keep.seal_state(key, period.state, period.start, self._entropy)
            plan = period.plan
            kept = self._access.store().keep_open_period(
                plan.name, plan.hash, period.start, sealed, self._clock(), self.life
            )
            if not kept:
                self._recorder.count(RefusalReason.OPTED_OUT.value, period.readings)

    def seal_open(self, reason: RefusalReason) -> None:
        """Seal what has ended, and the open period too; its later readings are refused with `reason`."""
        self._recorder.turn(self._clock())
        period = self._recorder.take_open(reason)
        if period is not None:
            self._recorder.put_ended(period)
        self.seal_ended()

    def seal_ended(self) -> None:
        """Perturb, charge and spool every period that has ended. Raises StorageError; then it is tried again."""
        with self._lock:
            now = self._clock()
            self._recorder.turn(now)
            self._perturb_ended(now)
            while len(self._unstored) > MAX_UNSTORED:
                del self._unstored[0]
                self._recorder.count(RefusalReason.STORAGE.value)
            self._store_sealed(now)

    def _perturb_ended(self, now: float) -> None:
        """Every one that is not too old. One whose permanent answers the store cannot give waits as it is."""
        ended = self._recorder.take_ended()
        try:
            while ended:
                if ended[0].expires_at() <= now:
                    self._recorder.count(RefusalReason.EXPIRED.value)
                else:
                    self._unstored.append((self.perturb(ended[0], now), ended[0].readings))
                del ended[0]
        except StorageError:
            for period in ended:
                self._recorder.put_ended(period)
            raise

    def perturb(self, period: OpenPeriod, now: float, *, keep: bool = True) -> SealedReport:
        """The period as a report. Once for each period: another draw would be another answer.

        keep: have the store remember what memoised metrics answer for. Raises StorageError where there are some.
        """
        permanent = self._permanent(period, keep=keep) if period.plan.memos else None
        return period.seal(
            now,
            self._entropy,
            min_cohort=self._settings.min_cohort,
            sealed_by=self._sealed_by,
            life=self.life,
            permanent=permanent,
        )

    def _permanent(self, period: OpenPeriod, *, keep: bool) -> Answers:
        from client_sdk.report import memo_codes

        codes = memo_codes(period.plan, period.state)
        return self._access.store().memo_answers(period.plan, codes, self._settings.seal_key, self.life, keep=keep)

    def _store_sealed(self, now: float) -> None:
        """What a store took too long to take, on a full disk for one, is not charged any more: nobody would take it."""
        while self._unstored:
            sealed, readings = self._unstored[0]
            if sealed.expires_at <= now:
                self._recorder.count(RefusalReason.EXPIRED.value)
                del self._unstored[0]
                continue
            refused = self._access.store().seal(sealed, self._settings.host_limits)
            del self._unstored[0]
            self._access.works()
            if refused in (RefusalReason.PERIOD_SEALED, RefusalReason.OTHER_PROCESS):
                self._recorder.count(refused.value, readings)  # a report was made, these are not in it
            elif refused is RefusalReason.OPTED_OUT:  # by another process
                self._recorder.count(refused.value, readings)
                self._recorder.stop(refused)
            elif refused is not None:
                self._recorder.count(refused.value)
            if refused is RefusalReason.LEDGER_DAMAGED and self._access.store().damage() is not None:
                self._access.outages().begin(LEDGER, "not to be believed; no report is made until reset_ledger()")

    def drop(self) -> None:
        """Forget what no store has taken yet."""
        with self._lock:
            self._unstored.clear()
