"""The in-memory half of a client: the open period, what has ended, and what was refused. No I/O at all.

Rules of this file: `add` never raises into the host, never blocks on anything but its own short lock, and
never shows a reading: what it refuses is a count by reason. The lock is re-entrant, so that a signal handler
or a finaliser that records while its thread is recording cannot deadlock. Time comes from the given clock.
What it does not do: it seals nothing and knows neither disk nor network; `on_turn` wakes whoever does.
"""

from __future__ import annotations

import threading

from client_sdk.device.period import OpenPeriod
from client_sdk.errors import RefusalReason, ValueRefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client_sdk.folding import Reading
    from client_sdk.mechanisms import Entropy
    from client_sdk.plan import Plan

NEVER, ALWAYS = float("-inf"), float("inf")
CLOCK_SET_BACK = "clock_set_back"


class Recorder:
    """Readings of one client, guarded for threads.

    on_turn(): called under the lock at the first reading and whenever a period has ended; must not block.
    """

    __slots__ = (
        "_adders",
        "_clock",
        "_counts",
        "_end",
        "_ended",
        "_entropy",
        "_guard",
        "_next_plan",
        "_on_turn",
        "_period",
        "_plan",
        "_readings",
        "_refusal",
        "_start",
        "_window",
    )

    def __init__(self, clock: Callable[[], float], entropy: Entropy, on_turn: Callable[[], None]) -> None:
        self._clock = clock
        self._entropy = entropy
        self._on_turn = on_turn
        self._guard = threading.RLock()
        self._counts: dict[str, int] = {}
        self._ended: list[OpenPeriod] = []
        self._readings = 0
        self._plan: Plan | None = None
        self._next_plan: Plan | None = None
        self._period: OpenPeriod | None = None
        self._adders: Mapping[str, Callable[[Reading, Entropy], None]] = {}
        self._refusal = RefusalReason.NO_PLAN
        self._window = (NEVER, NEVER)
        self._start, self._end = ALWAYS, NEVER  # the first reading takes the slow path

    def add(self, name: str, value: Reading) -> None:
        """One reading, into the open period. Never raises; what is refused is counted."""
        try:
            now = self._clock()
            with self._guard:
                if not self._start <= now < self._end:
                    self._turn(now)
                self._adders[name](value, self._entropy)
                self._readings += 1
        except ValueRefusedError as refused:
            self.count(refused.reason.value)
        except KeyError:
            self.count(self._refusal.value)
        except Exception:  # noqa: BLE001 - an odd value or name (its own __hash__, __float__ ...) must not hurt the host
            self.count(RefusalReason.WRONG_TYPE.value)

    def _turn(self, now: float) -> None:
        """Slow path, under the lock: the first reading, or the clock has left the period."""
        if self._plan is None:
            self._start, self._end = NEVER, ALWAYS
        else:
            self.turn(now)
            # A clock that is set back by less than a period stays in the period that it had reached.
            self._start, self._end = self._window[0] - self._plan.period_s, self._window[1]
        self._on_turn()

    def turn(self, now: float) -> None:
        """Let the period end if `now` lies beyond it, and open the next one."""
        with self._guard:
            plan, (start, end) = self._plan, self._window
            if plan is None or start - plan.period_s <= now < end:
                return
            period = self.take_open(RefusalReason.PERIOD_SEALED)
            if period is not None:
                if now >= end:
                    self._ended.append(period)
                else:
                    self.count(CLOCK_SET_BACK)
            self._plan, self._next_plan = self._next_plan or plan, None
            self._open(OpenPeriod(self._plan, now))

    def adopt(self, plan: Plan) -> None:
        """Record under a later version of the plan, of the same period, from the next period on."""
        with self._guard:
            self._next_plan = plan if plan != self._plan else None

    def _open(self, period: OpenPeriod) -> None:
        self._period, self._adders = period, period.adders
        self._refusal = RefusalReason.UNKNOWN_METRIC
        self._window = (period.start, period.end)

    def begin(self, period: OpenPeriod, *, sealed_already: bool) -> None:
        """Record from here on, into `period`; if some process has sealed it already, from the next one on."""
        with self._guard:
            self._plan, self._next_plan = period.plan, None
            self._open(period)
            if sealed_already:
                self.take_open(RefusalReason.PERIOD_SEALED)
            self._start, self._end = ALWAYS, NEVER

    def stop(self, reason: RefusalReason) -> None:
        """Drop all readings, counted, and refuse further ones with `reason`."""
        with self._guard:
            period = self.take_open(reason)
            dropped = self._ended if period is None else [*self._ended, period]
            self.count(reason.value, sum(one.readings for one in dropped))
            self._ended.clear()
            self._plan = self._next_plan = None
            self._start, self._end = ALWAYS, NEVER

    def take_open(self, reason: RefusalReason) -> OpenPeriod | None:
        """The open period, for sealing; later readings of it are refused with `reason`."""
        with self._guard:
            period, self._period = self._period, None
            if period is not None:
                period.readings += self._readings
            self._readings = 0
            self._adders, self._refusal = {}, reason
            return period

    def peek(self, now: float) -> tuple[list[tuple[OpenPeriod, bytes]], RefusalReason | None]:
        """Periods that are not sealed yet, oldest first, each with a copy of its state (RAW DATA, in memory).

        The second: why none of them is open, or None.
        """
        with self._guard:
            self.turn(now)
            periods = [*self._ended] if self._period is None else [*self._ended, self._period]
            return [(period, period.state.dump()) for period in periods], None if self._period else self._refusal

    def put_ended(self, period: OpenPeriod) -> None:
        """A period that waits for sealing."""
        with self._guard:
            self._ended.append(period)

    def take_ended(self) -> list[OpenPeriod]:
        """Periods that wait for sealing; the caller answers for them now."""
        with self._guard:
            ended, self._ended = self._ended, []
            return ended

    def renew(self) -> None:
        """In a forked child: own lock, no readings (the parent has them), same plan and period."""
        self._guard = threading.RLock()
        self._counts, self._ended, self._readings = {}, [], 0
        if self._plan is not None and self._period is not None:
            self._open(OpenPeriod(self._plan, self._period.opened_at, start=self._period.start))
        self._start, self._end = ALWAYS, NEVER

    @property
    def plan(self) -> Plan | None:
        """The plan that readings are recorded under, or None where nothing is recorded."""
        return self._plan

    @property
    def refusal(self) -> RefusalReason:
        """Why a name that no open period knows is refused."""
        return self._refusal

    @property
    def period_end(self) -> float | None:
        """When the current period ends, in seconds since the epoch."""
        return None if self._plan is None else self._window[1]

    def count(self, reason: str, amount: int = 1) -> None:
        """Count what was refused, until `uncount`."""
        with self._guard:
            if amount:
                self._counts[reason] = self._counts.get(reason, 0) + amount

    def counts(self) -> dict[str, int]:
        """Counted and not kept elsewhere yet."""
        with self._guard:
            return dict(self._counts)

    def uncount(self, kept: dict[str, int]) -> None:
        """These counts are kept elsewhere now."""
        with self._guard:
            left = {reason: amount - kept.get(reason, 0) for reason, amount in self._counts.items()}
            self._counts = {reason: amount for reason, amount in left.items() if amount}
