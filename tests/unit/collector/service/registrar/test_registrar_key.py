"""The registrar's key on disk: private, whole or not there, never written over."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from client_sdk.errors import ConfigurationError
from client_sdk.files import load_public_key
from collector.service.registrar.folder import RegistrarFolder
from collector.service.registrar.key import create_key, read_key, write_new
from collector.service.storage_errors import StoreError


def test_init_makes_a_key_that_only_its_owner_may_read(tmp_path: Path) -> None:
    folder = RegistrarFolder(tmp_path / "deep" / "r")
    key = folder.create()
    assert stat.S_IMODE(folder.key_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.db_path.stat().st_mode) == 0o600
    assert folder.key().public_key == key.public_key == load_public_key(folder.public_path, "key")
    assert sorted(p.name for p in folder.path.iterdir()) == ["registrar.db", "registrar.key", "registrar.pub"]
    assert folder.key().seed.hex() not in repr(folder) + repr(key)


def test_nothing_is_ever_written_over(tmp_path: Path) -> None:
    folder = RegistrarFolder(tmp_path)
    folder.create()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for keep_key in (False, True):
        with pytest.raises(ConfigurationError, match="is there already"):
            folder.create(keep_key=keep_key)
    with pytest.raises(ConfigurationError, match="is there already"):
        create_key(folder.key_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_lost_store_is_made_anew_only_when_told_to(tmp_path: Path) -> None:
    """An empty one in its place has forgotten who is revoked: never by itself."""
    folder = RegistrarFolder(tmp_path)
    key = folder.create()
    folder.db_path.unlink()
    with pytest.raises(StoreError, match="no such store"):
        folder.open_store()
    with pytest.raises(ConfigurationError, match="is there already"):
        folder.create()
    assert folder.create(keep_key=True).public_key == key.public_key
    folder.open_store().close()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "registrar.key"
    create_key(path)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_key(path)


def test_what_is_no_key_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "registrar.key"
    with pytest.raises(ConfigurationError, match="registrar init"):
        read_key(path)
    other = ec.generate_private_key(ec.SECP256R1())
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    junk = b"SECRET junk"
    for number, content in enumerate(
        (
            b"",
            junk,
            other.private_bytes(pem, pkcs8, serialization.NoEncryption()),
            other.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"password")),
        )
    ):
        path = tmp_path / str(number)
        write_new(path, content)
        with pytest.raises(ConfigurationError) as refused:
            read_key(path)
        assert "SECRET" not in str(refused.value)
        assert "\n" not in str(refused.value)
    create_key(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_key(tmp_path / "link")


def test_a_write_that_dies_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", dies)
    with pytest.raises(KeyboardInterrupt):
        create_key(tmp_path / "registrar.key")
    assert list(tmp_path.iterdir()) == []
