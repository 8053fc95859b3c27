"""What the streams of devices have in common: the next message, its end, and what a refused certificate is counted as.

Rules of this file: a stream whose device has left ends without a word, one that is too slow is refused as late; which
check of a certificate failed stays in the counters and in the operator's log.
What it does not do: it judges no message, and turns nothing into a status (`entrance` does).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from grpc import aio

from client_sdk.certificate import CertificateError
from client_sdk.errors import RejectionError, RejectionReason
from collector.service.monitoring import Monitor
from collector.service.registrar.refusals import RefusalLog

T = TypeVar("T")
Kind = TypeVar("Kind")

Context = aio.ServicerContext[bytes, bytes]

CERTIFICATE_HINTS: Final = {
    "bad_signature": "signed by another registrar than --registrar-key",
    "expired": "by this machine's clock",
}
"""What an operator looks at, by a CertificateError's reason."""


class StreamEndedError(Exception):
    """The device closed its side; there is nobody left to answer."""


@contextmanager
def device_stream() -> Iterator[None]:
    """Around all that a stream does. Raises RejectionError(LATE) for a device that was too slow."""
    try:
        yield
    except StreamEndedError:
        return
    except TimeoutError:
        raise RejectionError(RejectionReason.LATE) from None


@contextmanager
def certificate_judged(monitor: Monitor, refusals: RefusalLog) -> Iterator[None]:
    """Around the check of a certificate: what it raises passes, counted by which check failed."""
    try:
        yield
    except RejectionError as error:
        if isinstance(error.__cause__, CertificateError):
            reason = error.__cause__.reason
            monitor.count(f"certificates.{reason}")
            refusals.note(f"bad_certificate/{reason}", CERTIFICATE_HINTS.get(reason, ""))
        raise


async def read(context: Context, from_wire: Callable[[bytes], T]) -> T:
    """The next message. Raises WireError, and StreamEndedError at the end."""
    data = await context.read()
    if not isinstance(data, bytes):
        raise StreamEndedError
    return from_wire(data)


async def read_one(context: Context, from_wire: Callable[[bytes], object], kind: type[Kind]) -> Kind:
    """The next message, which must be of one kind. Raises RejectionError too."""
    message = await read(context, from_wire)
    if not isinstance(message, kind):
        raise RejectionError(RejectionReason.OUT_OF_ORDER)
    return message
