"""Which plan one client records under: the one its host gave, or one that was fetched and is held on to.

Rules of this file: a plan that the host ships is believed, but not in place of another one of the same number; a
fetched one only as far as `pinning` allows; each refusal is counted by its reason and warned about once, and what was
held before stays. What it does not do: it opens no period, and decides no budget.
"""

from __future__ import annotations

from client_sdk.errors import PlanRefusedError, RefusalReason, StorageError, TelemetryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from client_sdk.device.access import StoreAccess
    from client_sdk.device.delivery import Delivery
    from client_sdk.device.pinning import PlanPin
    from client_sdk.device.recorder import Recorder
    from client_sdk.device.settings import Settings
    from client_sdk.device.storage import DeviceStore
    from client_sdk.plan import Plan

PLAN = "plan"
FIRST_RETRY_S = 2.0
RETRY_S = 60.0
"""A collector that could not be asked may just be starting: soon again at first, then at this pace."""

_REMEDIES = {RefusalReason.DIRECT_NOT_ALLOWED: ": where its reports may leave unmasked, pass allow_direct=True"}

REFETCH_S = 3600.0
"""A collector that has answered, with a plan or with one that is refused, is asked again no sooner."""


class PlanChoice:
    """The plan of one client. given: the host's, None where it is fetched."""

    def __init__(
        self,
        given: Plan | None,
        settings: Settings,
        clock: Callable[[], float],
        recorder: Recorder,
        access: StoreAccess,
    ) -> None:
        self.given = given
        self.retry_at = float("-inf")
        self._failures = 0
        self.refused = False  # the last plan that there was a word on
        self.refusal = RefusalReason.NO_PLAN  # why `to_begin` had none
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._access = access

    def to_begin(self) -> Plan | None:
        """What to record under now, or None: readings are refused for `refusal` then. StorageError, PlanError."""
        self.refusal, self.refused = RefusalReason.NO_PLAN, False
        if self.given is not None:
            refusal = self._refusal_of_given(self.given)
            if refusal is None:
                return self.given
            self.refusal = refusal
            self._refuse(self.refusal)
            return None
        from client_sdk.device.pinning import held_plans, in_force, why_none_held

        pinned, pin = self._access.store().pinned_plans(), self._pin()
        held = held_plans(pinned, pin)
        refusal = None if held else why_none_held(pinned, pin)
        if refusal is not None:  # the host asks for something else since its last release
            self._refuse(refusal)
        return in_force(held, self._clock())

    def _refusal_of_given(self, plan: Plan) -> RefusalReason | None:
        if plan.delivery.delivery == "direct" and not self._settings.allow_direct:
            return RefusalReason.DIRECT_NOT_ALLOWED
        same = self._access.store().is_same_version(plan)
        return None if same else RefusalReason.PLAN_CHANGED_WITHOUT_VERSION

    def _pin(self) -> PlanPin:
        from client_sdk.device.pinning import PlanPin

        settings = self._settings
        return PlanPin(settings.plan_hash, settings.plan_key, settings.min_cohort, settings.allow_direct)

    def _refuse(self, reason: RefusalReason) -> None:
        self._recorder.count(reason.value)
        kept = "nothing is recorded" if self._recorder.plan is None else "the one before stays"
        self.refused = True
        self._access.outages().begin(PLAN, f"refused ({reason.value}); {kept}{_REMEDIES.get(reason, '')}")

    @property
    def is_missing(self) -> bool:
        """Is there none to record under, although one could be fetched?"""
        return self.given is None and self._recorder.plan is None

    @property
    def keeps_nothing(self) -> bool:
        """Is there none to record under because the one that there was is refused?"""
        return self.refused and self._recorder.plan is None

    def wants_refetch(self, delivery: Delivery) -> bool:
        """Has the collector called the plan of a report one that is not open there, and was it not asked just now?"""
        return self.given is None and delivery.plan_doubted and self._clock() >= self.retry_at

    async def fetch(self, delivery: Delivery, store: DeviceStore) -> Plan | None:
        """The collector's newest plan, held from now on; None where that did not come, counted. Raises StorageError."""
        from client_sdk.device import advice
        from client_sdk.device.booking import COLLECTOR, failure_reason

        self.retry_at, delivery.plan_doubted = self._clock() + REFETCH_S, False
        try:
            plan = await delivery.fetch_plan(store, self._pin())
        except StorageError:
            raise
        except PlanRefusedError as error:
            self._refuse(error.reason)
            return None
        except (TelemetryError, TimeoutError) as error:
            self.retry_at = self._clock() + min(RETRY_S, FIRST_RETRY_S * 2.0 ** min(self._failures, 8))
            self._failures += 1
            reason, cause = failure_reason(error), advice.of_collector(error)
            self._recorder.count(f"plan_{reason}")
            if cause is not None and cause.counted is not None:
                self._recorder.count(cause.counted)
            text = f"plan not fetched ({reason}); tried again later{advice.clause(cause)}"
            self._access.outages().begin(COLLECTOR, text)
            return None
        if self._failures:
            self._access.outages().end(COLLECTOR)
        self._failures, self.refused = 0, False
        self._access.outages().end(PLAN)
        return plan
