"""The reports of one pass that leave unmasked: as few calls as hold them all, each driven to its end and booked.

Rules of this file: what a call's end means for each report, `booking` says; a call that fails puts all its reports off.
What it does not do: it decides for no report that it may go this way (`delivery` does).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from client_sdk.device.booking import Bookkeeper
from client_sdk.device.direct import DirectReport, DirectSession
from client_sdk.device.interfaces import Connection
from client_sdk.device.session import LedgerBehindError, NoLongerWaitingError
from client_sdk.device.spool import SpoolEntry
from client_sdk.device.storage import DeviceStore
from client_sdk.device.store_spool import LEASE_S
from client_sdk.device.views import UploadSummary
from client_sdk.direct import calls
from client_sdk.errors import StorageError, TelemetryError
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan
from client_sdk.wire.limits import MAX_DIRECT_REPORTS

BeforeSend = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose reports these are, and the registrar's word for it."""

    identity: IdentityKey
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass works with. started: when it took the spool's lease, on this process's monotonic clock."""

    store: DeviceStore
    connection: Connection
    owner: Owner
    before_send: BeforeSend | None
    summary: UploadSummary
    started: float

    @property
    def is_late(self) -> bool:
        """The lease is not renewed: what is left is for the next pass, well before it ends."""
        return time.monotonic() - self.started > LEASE_S / 2


async def deliver_direct(one: Pass, due: Sequence[tuple[SpoolEntry, Plan]], books: Bookkeeper) -> bool:
    """Book what became of these reports, a call for as many as fit into one. False: stop this pass."""
    for first, end in calls((len(entry.report) for entry, _ in due), MAX_DIRECT_REPORTS):
        if one.is_late or not await _call(one, due[first:end], books):
            return False
    return True


async def _call(one: Pass, due: Sequence[tuple[SpoolEntry, Plan]], books: Bookkeeper) -> bool:
    entries = [entry for entry, _ in due]
    session = DirectSession(
        one.connection.deliver(),
        one.owner.identity,
        one.owner.certificate,
        list(_offered(one.owner.identity, due)),
        on_standing=lambda total: books.wait_for(
            partial(one.store.note_collector_total, total, one.owner.identity.seed)
        ),
        hand_over=lambda places: books.wait_for(
            partial(one.store.hand_over_direct, [entries[place] for place in places])
        ),
        before_send=one.before_send,
    )
    try:
        answers = await session.run()
    except NoLongerWaitingError:
        return False
    except LedgerBehindError as error:
        books.ledger_behind(error, one.summary)
        return False
    except StorageError:
        raise
    except (TelemetryError, TimeoutError) as error:
        return await books.failure(one.store, entries, error, one.summary)
    await books.answers(one.store, entries, answers, one.summary)
    return True


def _offered(identity: IdentityKey, due: Sequence[tuple[SpoolEntry, Plan]]) -> Iterator[DirectReport]:
    for entry, plan in due:
        report_id = identity.report_id(plan.name, entry.period_start)
        yield DirectReport(plan.hash, entry.period_start, report_id, entry.resent, entry.report)
