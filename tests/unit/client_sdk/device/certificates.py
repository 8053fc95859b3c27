"""Certificates for loopback, made when they are needed."""

from __future__ import annotations

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(name: str) -> tuple[bytes, bytes]:
    """A self-signed one: its private key and itself, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private, signed.public_bytes(pem)


class Authority:
    """Signs certificates of any name and time; `pem` is its own."""

    def __init__(self, name: str = "an authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        builder = _builder(self._name, self._name, self._key.public_key(), now - dt.timedelta(days=9), 20)
        authority = x509.BasicConstraints(ca=True, path_length=None)
        self.pem = _pem(builder.add_extension(authority, critical=True).sign(self._key, hashes.SHA256()))

    def issue(self, *names: str, begins_in_days: float = -2, days: float = 10) -> tuple[bytes, bytes]:
        """Private key and certificate for these host names, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        begins = dt.datetime.now(dt.UTC) + dt.timedelta(days=begins_in_days)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        builder = _builder(subject, self._name, key.public_key(), begins, days)
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        signed = builder.add_extension(alternatives, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private, _pem(signed)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: dt.datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + dt.timedelta(days=days))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
