"""What a client reaches its collector and its registrar with: made on first need, in pieces that no fork cuts in two.

Rules of this file: what these parts import is imported in here, within the fork gate, because a thread of ours may
need it first; the enrolment token has one place at a time and is in a forked child too, until it has been used; a
process that was forked in the middle of an upload makes no connection any more, counted and said once.
What it does not do: it does not decide when to send (`engine`), and imports none of it on the way of `record()`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from client_sdk.device.access import StoreAccess
    from client_sdk.device.deletion import Deletions
    from client_sdk.device.delivery import Delivery
    from client_sdk.device.enrolment import Enrolment
    from client_sdk.device.interfaces import MemoryTransport, Transport
    from client_sdk.device.recorder import Recorder
    from client_sdk.device.settings import Settings
    from client_sdk.mechanisms import Entropy

MEMORY_TOKEN = "memory"  # noqa: S105 - a registrar in memory takes any: hosts' tests need none
FORKED_IN_UPLOAD = "forked_in_upload"


class Connections:
    """One client's ways out, for one process. in_memory: the test helpers' collector and registrar, else None."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        entropy: Entropy,
        in_memory: MemoryTransport | None,
        recorder: Recorder,
        access: StoreAccess,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._in_memory = in_memory
        self._recorder = recorder
        self._access = access
        self._delivery: Delivery | None = None
        self._deletions: Deletions | None = None
        self._said_cut_off = False

    @property
    def in_round(self) -> bool:
        """Would stopping now cost others a dropout?"""
        return self._delivery is not None and self._delivery.in_round

    def delivery(self) -> Delivery:
        """What carries reports. Imports numpy, grpc, protobuf and cryptography: only an upload needs it."""
        if self._delivery is None:
            from client_sdk.device import fork_gate

            with fork_gate.closed():
                from client_sdk.device.delivery import Delivery

                _import_what_a_round_needs()
                self._delivery = Delivery(
                    self._way_to(self._settings.endpoint),
                    self._enrolment(),
                    self._clock,
                    self._entropy,
                    self._access.outages(),
                    off_loop=not self._settings.background,
                    allow_direct=self._settings.allow_direct,
                )
        return self._delivery

    def _enrolment(self) -> Enrolment:
        from client_sdk.device.enrolment import Enrolment

        settings, in_memory = self._settings, self._in_memory
        token, key = settings.enrolment_token, settings.registrar_key
        if in_memory is not None:
            token, key = token or MEMORY_TOKEN, in_memory.registrar_key
        way, off_loop = self._way_to(settings.registrar), not settings.background
        enrolment = Enrolment(way, key, self._clock, token, self._access.outages(), off_loop=off_loop)
        settings.enrolment_token = None
        return enrolment

    def deletions(self) -> Deletions:
        """What has identities forgotten."""
        if self._deletions is None:
            from client_sdk.device import fork_gate

            with fork_gate.closed():
                from client_sdk.device.deletion import Deletions

                way, off_loop = self._way_to(self._settings.endpoint), not self._settings.background
                outages = self._access.outages()
                self._deletions = Deletions(way, self._clock, self._entropy, outages, off_loop=off_loop)
        return self._deletions

    def _way_to(self, address: str) -> Transport:
        if self._in_memory is not None:
            return self._in_memory
        from client_sdk.device.transport import GrpcTransport, import_grpc

        import_grpc()
        return GrpcTransport(address, self._settings.tls(off_loop=not self._settings.background))

    # --- the token ------------------------------------------------------------------------------------

    def unused_token(self) -> str | None:
        """What could still enrol this client."""
        return self._settings.enrolment_token if self._delivery is None else self._delivery.enrolment.token

    def use_token(self, token: str | None) -> None:
        """What enrols the next identity."""
        from client_sdk.device import fork_gate

        with fork_gate.closed():  # not while our thread makes a delivery
            if self._delivery is None:
                self._settings.enrolment_token = token or self._settings.enrolment_token
            else:
                enrolment = self._delivery.enrolment
                enrolment.token = token or enrolment.token or (None if self._in_memory is None else MEMORY_TOKEN)

    # --- forks ----------------------------------------------------------------------------------------

    def are_lost(self) -> bool:
        """Must this process leave gRPC alone, and so its reports to another one? Counted and said once."""
        from client_sdk.device import fork_gate

        if self._in_memory is not None or not fork_gate.network_lost():
            return False
        if not self._said_cut_off:
            self._said_cut_off = True
            self._recorder.count(FORKED_IN_UPLOAD)
            self._access.outages().begin(
                "network", "this process was forked in the middle of an upload; another one sends what waits on disk"
            )
        return True


def _import_what_a_round_needs() -> None:
    """And what a fetched plan does: the pure rooms import these where they use them, a part at the first use."""
    import numpy as np  # noqa: F401 - for masks

    from client_sdk.device import keep  # noqa: F401 - opens what was kept under a plan that is fetched
    from client_sdk.device.files import SEED_BYTES
    from client_sdk.identity import IdentityKey
    from client_sdk.mechanisms import laplace, randomized_response  # noqa: F401 - for plans
    from client_sdk.secagg.keys import load_private

    IdentityKey(bytes(SEED_BYTES)).sign(b"")  # imports a part of cryptography
    load_private(bytes(SEED_BYTES))
