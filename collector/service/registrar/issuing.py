"""What the registrar signs, and whose certificates it renews. Pure: time comes in as an argument.

Rules of this file: only devices are certified here; a renewal needs a certificate that this registrar signed and the
signature of its own identity; nothing is said about which of them failed.
What it does not do: it knows no tokens and no revocations, the store does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client_sdk import certificate as certificates
from client_sdk.certificate import Certificate, CertificateError, Role
from client_sdk.errors import ConfigurationError
from client_sdk.identity import IdentityKey, renewal_message, verify
from client_sdk.wire.messages import RenewRequest

LIFETIME_S: Final = 30 * 86_400
"""How long a certificate holds: how long somebody revoked can still take part, at most."""

RENEW_FOR_S: Final = 90 * 86_400
"""How long after its end a certificate is still renewed: a season in a drawer costs a device no new token, but a
copy of a device that nobody has used for longer is worth nothing."""

MIN_LIFETIME_S: Final = 3600
MAX_LIFETIME_S: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds that a certificate holds, and seconds after its end in which it is renewed."""

    lifetime_s: int = LIFETIME_S
    renew_for_s: int = RENEW_FOR_S

    def __post_init__(self) -> None:
        if not MIN_LIFETIME_S <= self.lifetime_s <= MAX_LIFETIME_S:
            raise ConfigurationError("--lifetime: a certificate holds for 1h to 366d")
        if not 0 <= self.renew_for_s <= 10 * MAX_LIFETIME_S:
            raise ConfigurationError("--renew-for: expired certificates are renewed for at most ten years")

    @property
    def repeat_for_s(self) -> int:
        """How long a used token still answers its own device: as long as the certificate that it gave could be renewed.

        The answer may have been lost; but a token must not renew for ever what a certificate no longer can.
        """
        return self.lifetime_s + self.renew_for_s


class Issuer:
    """Signs with the registrar's key."""

    def __init__(self, key: IdentityKey, terms: Terms) -> None:
        self._key = key
        self.terms = terms

    def expiry(self, now: float) -> int:
        """When a certificate that is issued `now` ends."""
        return int(now) + self.terms.lifetime_s

    def issue(self, identity_key: bytes, now: float) -> bytes:
        """A device's certificate from `now` on."""
        return certificates.issue(self._key, Certificate(Role.DEVICE, identity_key, int(now), self.expiry(now)))

    def check_renewal(self, request: RenewRequest, now: float) -> Certificate:
        """What the certificate that is shown says. Raises CertificateError where it may not be renewed."""
        said = certificates.read(request.certificate)
        found = certificates.check(
            request.certificate,
            self._key.public_key,
            said.identity_key,
            Role.DEVICE,
            at=now - self.terms.renew_for_s,
        )
        if not verify(found.identity_key, request.signature, renewal_message(request.certificate)):
            raise CertificateError("bad_signature")
        return found
