"""PEM settings: checked at construction, read again when the file changes, what was good is kept."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from client_sdk.device.pem import CERTIFICATE, PRIVATE_KEY, Pem
from client_sdk.errors import ConfigurationError
from client_sdk.tls_faults import TlsFault, fault_of
from tests.unit.client_sdk.device.certificates import certificate

KEY, FIRST = certificate("first")
_, SECOND = certificate("second")


def test_a_changed_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(FIRST)
    pem = Pem("root_certificates", path, CERTIFICATE)
    assert pem.current() == FIRST
    path.write_bytes(b"half")
    assert [pem.current() for _ in range(3)] == [FIRST] * 3
    path.unlink()
    assert [pem.current() for _ in range(3)] == [FIRST] * 3
    assert len(caplog.records) == 2, "one warning for each state of the file"
    new = tmp_path / "new"
    new.write_bytes(SECOND)
    new.replace(path)
    assert pem.current() == SECOND
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_bytes_stay_what_they_are_and_nothing_is_shown(tmp_path: Path) -> None:
    pem = Pem("client_key", KEY, PRIVATE_KEY)
    assert pem.current() == KEY
    assert KEY.decode().splitlines()[1] not in repr(pem)


@pytest.mark.parametrize("value", [b"", b"no pem", "/does/not/exist", "a\0b", FIRST])
def test_what_cannot_be_used_raises_at_once(value: bytes | str) -> None:
    with pytest.raises(ConfigurationError, match="client_key") as refused:
        Pem("client_key", value, PRIVATE_KEY)
    assert "\n" not in str(refused.value)


def test_faults_have_names_and_words() -> None:
    assert [fault_of(code) for code in (9, 10, 18, 19, 20, 62)] == [
        TlsFault.NOT_YET_VALID, TlsFault.EXPIRED, *[TlsFault.AUTHORITY] * 3, TlsFault.HOST_NAME,
    ]  # fmt: skip
    assert fault_of(12345) is TlsFault.CERTIFICATE
    assert all("certificate" in fault.says and "\n" not in fault.says for fault in TlsFault)
