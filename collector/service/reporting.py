"""ReportingService: the operator's documents over the network, so that jobs and analysts need no way to the store.

Rules of this file:
- it reads through a store handle and a thread of its own, so that no report, however long, holds up a round; so many
  may queue, the next is told to come back;
- a device has one question open at most, and all devices together a small share of the queue: they are many, and leave
  room for those who read the reports;
- a device is answered about itself, and refused everything else before anything is looked up: about another device,
  an unknown one, or all of them, with one text and the same (no) work;
- a document is made whole before its first piece leaves, and sent in pieces, each as soon as the reader took the last.
What it does not do: it holds no document after its call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
from grpc import aio

from client_sdk.certificate import Role
from client_sdk.errors import ConfigurationError, PlanError, RejectionError, RejectionReason
from client_sdk.wire.convert import (
    document_piece_to_wire,
    get_counters_request_from_wire,
    get_privacy_request_from_wire,
    get_report_request_from_wire,
)
from client_sdk.wire.limits import DOCUMENT_PIECE_BYTES
from client_sdk.wire.messages import DocumentPiece, GetPrivacyRequest
from client_sdk.wire.methods import GET_COUNTERS_METHOD, GET_PRIVACY_METHOD, GET_REPORT_METHOD, REPORTING_SERVICE
from collector.reports.privacy import ALL_WINDOWS, LIFETIME
from collector.reports.text import to_json
from collector.service import documents, quantities
from collector.service.access import Caller
from collector.service.documents import Document, UnknownDeviceError
from collector.service.gate import caller
from collector.service.health import Health
from collector.service.monitoring import Monitor
from collector.service.storage import CollectorStore

log = logging.getLogger(__name__)

JSON: Final = "application/json"
MOST_HISTORIES: Final = 256
"""So many are composed for an answer, which takes seconds; the histories of a larger fleet are rounded until they are
no more, or as far as RATIOS goes."""

RATIOS: Final = (0.1, 0.2, 0.5, 1.0, 3.0)

MOST_QUEUED: Final = 8
MOST_QUEUED_OF_DEVICES: Final = 2

Context = aio.ServicerContext[bytes, bytes]
Question = Callable[[CollectorStore], Document]


class Reader:
    """A second, read-only way to the store: opened on first use, one question at a time."""

    def __init__(self, db_url: str) -> None:
        self._db_url = db_url
        self._store: CollectorStore | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reports")
        self._queued: Counter[Role] = Counter()

    async def ask(self, question: Question, role: Role) -> bytes:
        """The document as JSON, UTF-8. Raises RejectionError(BUSY), StoreError and what `question` raises."""
        of_devices = role is Role.DEVICE and self._queued[role] >= MOST_QUEUED_OF_DEVICES
        if of_devices or self._queued.total() >= MOST_QUEUED:
            raise RejectionError(RejectionReason.BUSY)
        self._queued[role] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._answer, question)
        finally:
            self._queued[role] -= 1

    def _answer(self, question: Question) -> bytes:
        if self._store is None:
            self._store = CollectorStore.open(self._db_url, read_only=True)
        return to_json(question(self._store)).encode()

    def close(self) -> None:
        """No more questions; the one that is being answered ends by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()


class ReportingServicer:
    """The three methods. `clock`: seconds since the epoch."""

    def __init__(self, reader: Reader, monitor: Monitor, health: Health, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._monitor = monitor
        self._health = health
        self._clock = clock
        self._asking: set[str] = set()

    async def get_report(self, data: bytes, context: Context) -> None:
        """Estimates, for analysts and operators."""
        request = get_report_request_from_wire(data)
        metric, since, until = request.metric or None, request.since or None, request.until or None
        try:
            assumed = quantities.false_devices(request.false_devices or quantities.FALSE_DEVICES)
        except ValueError:
            raise RejectionError(RejectionReason.MALFORMED) from None
        await self._answer(context, lambda store: documents.report_document(store, metric, since, until, assumed))

    async def get_privacy(self, data: bytes, context: Context) -> None:
        """A ledger, or the fleet's distribution: see `_question`."""
        who = caller()
        request = get_privacy_request_from_wire(data)
        if request.device and (request.all or _assumes(request)):
            raise RejectionError(RejectionReason.MALFORMED)
        question = _question(who, request, self._clock())
        with self._one_question(who):
            await self._answer(context, question)

    @contextlib.contextmanager
    def _one_question(self, who: Caller) -> Iterator[None]:
        """A device's, until its answer is sent. Raises RejectionError(BUSY) for another one meanwhile."""
        if who.role is not Role.DEVICE:
            yield
            return
        if who.device_id in self._asking:
            raise RejectionError(RejectionReason.BUSY)
        self._asking.add(who.device_id)
        try:
            yield
        finally:
            self._asking.remove(who.device_id)

    async def get_counters(self, data: bytes, context: Context) -> None:
        """The collector's own counters, and whether it serves."""
        get_counters_request_from_wire(data)
        document = {"serving": await self._health.serving(), "counters": self._monitor.snapshot()}
        await _send(context, to_json(document).encode())

    async def _answer(self, context: Context, question: Question) -> None:
        try:
            document = await self._reader.ask(question, caller().role)
        except UnknownDeviceError:
            raise RejectionError(RejectionReason.UNKNOWN_DEVICE) from None
        except ConfigurationError:
            raise RejectionError(RejectionReason.MALFORMED) from None
        except PlanError as error:  # a plan in the store that this version reads otherwise
            log.error("report not made: %s", error)
            raise RejectionError(RejectionReason.STORAGE) from None
        self._monitor.count("documents")
        await _send(context, document)

    def handler(self) -> grpc.GenericRpcHandler:
        """For the server."""
        methods = {
            GET_REPORT_METHOD.name: self.get_report,
            GET_PRIVACY_METHOD.name: self.get_privacy,
            GET_COUNTERS_METHOD.name: self.get_counters,
        }
        behaviours: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_stream_rpc_method_handler(method) for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(REPORTING_SERVICE, behaviours)


def _question(who: Caller, request: GetPrivacyRequest, now: float) -> Question:
    """What `who` may have of what it asked for. Raises RejectionError(NOT_ALLOWED), of who asks for too much first."""
    figured = _assumes(request)
    if who.role is Role.DEVICE and not request.all and not figured and request.device in {"", who.device_id}:
        return lambda store: documents.own_document(store, who.device_id, now)
    if who.role is Role.OPERATOR and request.device:
        return lambda store: documents.device_document(store, request.device, now)
    if who.role is Role.OPERATOR and request.all:
        windows, assumed = _assumed(request) if figured else ((), documents.DEFAULT)
        return lambda store: documents.all_devices_document(store, now, windows, assumed)
    if who.role in {Role.OPERATOR, Role.ANALYST} and not request.all and not request.device:
        if not figured:
            return lambda store: documents.fleet_document(store, now)
        windows, assumed = _assumed(request)
        return lambda store: documents.exact_fleet_document(store, now, windows, assumed)
    raise RejectionError(RejectionReason.NOT_ALLOWED)


def _assumes(request: GetPrivacyRequest) -> bool:
    return bool(request.window or request.delta or request.corrupt)


def _assumed(request: GetPrivacyRequest) -> tuple[Sequence[str], documents.Assumed]:
    """(windows, what figures hold for). Raises RejectionError(MALFORMED)."""
    window = request.window or LIFETIME
    try:
        delta = quantities.delta(request.delta or quantities.DELTA)
        corrupt = quantities.share(request.corrupt) if request.corrupt else None
    except ValueError:
        raise RejectionError(RejectionReason.MALFORMED) from None
    if window not in ALL_WINDOWS:
        raise RejectionError(RejectionReason.MALFORMED)
    assumed = documents.Assumed(delta, corrupt, MOST_HISTORIES, RATIOS)
    return tuple(dict.fromkeys((window, LIFETIME))), assumed


async def _send(context: Context, document: bytes) -> None:
    for start in range(0, len(document), DOCUMENT_PIECE_BYTES):
        await context.write(document_piece_to_wire(DocumentPiece(JSON, document[start : start + DOCUMENT_PIECE_BYTES])))
