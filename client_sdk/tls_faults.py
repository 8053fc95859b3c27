"""What can be wrong with the certificate at the other end of a TLS connection, told apart from other outages.

gRPC says `UNAVAILABLE` for all of it, in words that change with its version. The codes in here are OpenSSL's
(`X509_V_ERR_*`, x509_vfy.h), as `ssl.SSLCertVerificationError.verify_code` has them. Pure: the edges do the handshake.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class TlsFault(Enum):
    """`value` is the counter's name after `tls_`; `says` is for a person."""

    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    AUTHORITY = "authority"
    HOST_NAME = "host_name"
    CERTIFICATE = "certificate"

    @property
    def says(self) -> str:
        """One clause that names what is wrong and what would mend it."""
        return _SAYS[self]


_SAYS: Final = {
    TlsFault.EXPIRED: "its TLS certificate has expired; it must be renewed there (or this machine's clock is ahead)",
    TlsFault.NOT_YET_VALID: "its TLS certificate is not valid yet; or this machine's clock is behind",
    TlsFault.AUTHORITY: "its TLS certificate is of an authority that is not trusted here; give that authority's",
    TlsFault.HOST_NAME: "its TLS certificate is for another host name; dial the name in it",
    TlsFault.CERTIFICATE: "its TLS certificate was refused",
}

_FAULT_OF_CODE: Final = {
    9: TlsFault.NOT_YET_VALID,
    10: TlsFault.EXPIRED,
    **dict.fromkeys((2, 18, 19, 20, 21, 24, 27), TlsFault.AUTHORITY),
    62: TlsFault.HOST_NAME,
    64: TlsFault.HOST_NAME,  # an address instead of a name
}


def fault_of(verify_code: int) -> TlsFault:
    """What OpenSSL's verdict on a certificate means."""
    return _FAULT_OF_CODE.get(verify_code, TlsFault.CERTIFICATE)
