"""A device's certificate: asked for with a token, renewed in time, kept in the device's store.

Rules of this file: the registrar is asked over a connection of its own; what it answers is kept only if it is the
pinned key's word for this very identity; while a certificate holds, nothing waits for the registrar; the token is
forgotten when it has been used or refused.
What it does not do: it sends no report, and believes no collector about certificates: one that does not accept ours
only makes us ask the registrar sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from client_sdk import certificate as certificates
from client_sdk.certificate import Certificate, CertificateError, Role
from client_sdk.device import advice
from client_sdk.device.interfaces import CallFailedError, Transport
from client_sdk.device.offload import run_job
from client_sdk.device.reporting import Outages
from client_sdk.device.storage import DeviceStore
from client_sdk.errors import TelemetryError, WireError
from client_sdk.identity import IdentityKey, enrolment_message, renewal_message
from client_sdk.wire.messages import EnrolRequest, EnrolResponse, RenewRequest, RenewResponse

ENROLMENT = "enrolment"

RENEW_SHARE = 3
"""Renew when less than one RENEW_SHARE-th of the lifetime is left: ten days of thirty."""

AFTER_FAILURE_S = 3600.0
"""A registrar that could not be asked for a renewal is asked again no sooner, while the certificate still holds."""

AFTER_ANSWER_S = 86_400.0
"""And one that has answered, with yes or no, no sooner than this."""

Result = TypeVar("Result")
Issued = EnrolResponse | RenewResponse


class NoCertificateError(TelemetryError):
    """There is nothing to show a collector. `reason` (and `cause`) is counted; `lasting`: asking soon will not help.

    not_enrolled, enrolment_refused, certificate_expired (and not renewed: it was refused, or the registrar was out of
    reach), registrar_* (what became of a call), registrar_bad_answer.
    """

    def __init__(self, reason: str, text: str, *, lasting: bool, cause: str | None = None) -> None:
        self.reason = reason
        self.cause = cause
        self.lasting = lasting
        super().__init__(text)


@dataclass
class Enrolment:
    """Keeps one folder's certificate good.

    registrar_key: 32 bytes, pinned. token: single use. off_loop: the caller's loop has other things to do.
    """

    registrar: Transport
    registrar_key: bytes
    clock: Callable[[], float]
    token: str | None = field(default=None, repr=False)
    outages: Outages = field(default_factory=Outages, repr=False)
    off_loop: bool = False
    _doubted: bool = False
    _not_before: float = float("-inf")

    async def _wait_for(self, job: Callable[[], Result]) -> Result:
        return await run_job(job, off_loop=self.off_loop)

    async def certificate(self, store: DeviceStore, identity: IdentityKey) -> bytes:
        """What to show the collector now; the registrar is asked only where there is none that holds.

        Raises NoCertificateError and StorageError.
        """
        kept = await self._wait_for(store.certificate)
        said = self._reading(kept, identity)
        if kept is None or said is None:
            return await self._enrol(store, identity)
        if self.clock() < said.expires_at:
            return kept
        return await self._renew_expired(store, identity, kept)

    def doubt(self) -> None:
        """A collector has not accepted the certificate: it may judge by a better clock than ours."""
        self._doubted = True

    async def renew_in_time(self, store: DeviceStore, identity: IdentityKey) -> None:
        """Once the reports are away: ask for a later certificate where this one is in its last third, or doubted.

        What goes wrong is counted and said; it costs nothing while the certificate holds. Raises StorageError.
        """
        kept = await self._wait_for(store.certificate)
        said = self._reading(kept, identity)
        if kept is None or said is None or not self._wants_renewal(said):
            return
        try:
            await self._renew(store, identity, kept)
        except (CallFailedError, WireError, CertificateError) as error:
            refused = _is_refusal(error)
            self._not_before = self.clock() + (AFTER_ANSWER_S if refused else AFTER_FAILURE_S)
            reason = "renewal_refused" if refused else _registrar_reason(error)
            why = "" if refused else advice.clause(advice.of_registrar(error))
            text = f"the certificate was not renewed ({reason}); it is still used until it ends{why}"
            self.outages.begin(ENROLMENT, text)
            await self._wait_for(partial(store.add_counts, {reason: 1}))

    def _wants_renewal(self, said: Certificate) -> bool:
        now, lifetime_s = self.clock(), said.expires_at - said.issued_at
        in_last_third = RENEW_SHARE * (said.expires_at - now) < lifetime_s
        return (in_last_third or self._doubted) and now >= self._not_before

    def _reading(self, data: bytes | None, identity: IdentityKey) -> Certificate | None:
        """What a kept certificate says; None where it is not the pinned registrar's for this identity."""
        if data is None:
            return None
        try:
            return self._checked(data, identity)
        except CertificateError:
            return None

    def _checked(self, data: bytes, identity: IdentityKey) -> Certificate:
        # Whether it has ended is looked at where it matters: this device's clock may be wrong.
        issued_at = certificates.read(data).issued_at
        return certificates.check(data, self.registrar_key, identity.public_key, Role.DEVICE, at=issued_at)

    # --- asking the registrar -------------------------------------------------------------------------

    async def _enrol(self, store: DeviceStore, identity: IdentityKey) -> bytes:
        token = self.token
        if token is None:
            text = "no certificate yet; give the client an enrolment_token of the registrar"
            raise NoCertificateError("not_enrolled", text, lasting=True)
        request = EnrolRequest(token, identity.public_key, identity.sign(enrolment_message(token)))
        try:
            async with self.registrar.connect() as connection:
                data = await self._keep(store, identity, await connection.enrol(request), "enrolled")
        except (CallFailedError, WireError, CertificateError) as error:
            if _is_refusal(error):
                self.token = None  # used up, expired or wrong: no repeat can help
                text = "the registrar refused the enrolment token; issue a new one"
                self.outages.begin(ENROLMENT, text, anew=True)  # once: whatever was wrong before had another remedy
                raise NoCertificateError("enrolment_refused", text, lasting=True) from None
            reason = _registrar_reason(error)
            cause = advice.of_registrar(error)
            text = f"not enrolled yet ({reason}); tried again later{advice.clause(cause)}"
            counted = None if cause is None else cause.counted
            raise NoCertificateError(reason, text, lasting=False, cause=counted) from None
        return data

    async def _renew_expired(self, store: DeviceStore, identity: IdentityKey, expired: bytes) -> bytes:
        try:
            return await self._renew(store, identity, expired)
        except (CallFailedError, WireError, CertificateError) as error:
            refused = _is_refusal(error)
            if refused and self.token is not None:
                return await self._enrol(store, identity)
            later = f"tried again later{advice.clause(advice.of_registrar(error))}"
            why = "the registrar does not renew it; a new enrolment_token is needed" if refused else later
            text = f"the certificate has expired ({_registrar_reason(error)}); {why}"
            raise NoCertificateError("certificate_expired", text, lasting=refused) from None

    async def _renew(self, store: DeviceStore, identity: IdentityKey, kept: bytes) -> bytes:
        """A later certificate, kept. Raises CallFailedError, WireError, CertificateError, StorageError."""
        request = RenewRequest(kept, identity.sign(renewal_message(kept)))
        async with self.registrar.connect() as connection:
            return await self._keep(store, identity, await connection.renew(request), "renewed")

    async def _keep(self, store: DeviceStore, identity: IdentityKey, answer: Issued, counted: str) -> bytes:
        """Believe nobody else than the pinned key, and no certificate of somebody else."""
        said = self._checked(answer.certificate, identity)
        if said.expires_at != answer.expires_at:
            raise WireError("expires_at: not what the certificate says")
        await self._wait_for(partial(store.keep_certificate, answer.certificate, counted, self.clock()))
        self.token, self._doubted, self._not_before = None, False, self.clock() + AFTER_ANSWER_S
        self.outages.end(ENROLMENT)
        return answer.certificate


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, CallFailedError) and error.status == "permission_denied"


def _registrar_reason(error: Exception) -> str:
    return f"registrar_{error.status}" if isinstance(error, CallFailedError) else "registrar_bad_answer"
