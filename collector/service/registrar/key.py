"""The registrar's signing key on disk.

Rules of this file: the key is written once, whole or not at all, mode 0600, and never over another one; a key
that others may read is refused, for it may have been; no key ever shows in a repr, a log or an exception.
What it does not do: it encrypts nothing (an encrypted disk does), and makes no copy: see the runbook on backups.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.errors import ConfigurationError
from client_sdk.identity import IdentityKey
from collector.service.on_disk import sync
from collector.service.settings import MachineError

MAX_KEY_FILE_BYTES: Final = 4096
PUBLIC_KEY: Final = re.compile(rb"[0-9a-fA-F]{64}\Z|-----BEGIN PUBLIC KEY-----")


def create_key(path: Path) -> IdentityKey:
    """A new key at `path`, an Ed25519 private key in PEM form (PKCS #8). ConfigurationError where one is there."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_new(path, pem)
    return IdentityKey(private.private_bytes_raw())


def read_key(path: Path, *, make: str = "`registrar init` makes a key") -> IdentityKey:
    """The key at `path`. Raises ConfigurationError where it is missing, open to others, or no such key, MachineError.

    make: how one comes by such a key, for the error.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            pem = stream.read(MAX_KEY_FILE_BYTES)
    except PermissionError as error:
        raise MachineError(f"{path}: cannot be read ({error.strerror}); ask its owner") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}); {make}") from None
    if PUBLIC_KEY.match(pem.strip()):
        raise ConfigurationError(f"{path}: is a public key; give the private one")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(f"{path}: others than its owner may use it; chmod 600, and ask who has read it")
    try:
        private = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):  # TypeError: it is encrypted
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigurationError(f"{path}: not an unencrypted Ed25519 private key in PEM form")
    return IdentityKey(private.private_bytes_raw())


def write_new(path: Path, content: bytes, mode: int = 0o600) -> None:
    """`content` at `path`, synced, whole or not at all. ConfigurationError where something is there already.

    MachineError where the machine does not let it be written.
    """
    if path.name in {"", ".", ".."}:
        raise ConfigurationError(f"{str(path)!r}: is no name of a file; name one that is not there yet")
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(unfinished, path)  # unlike a rename, it fails where the name is taken
    except FileExistsError:
        raise ConfigurationError(f"{path}: is there already, and is never written over; choose another name") from None
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(f"{path}: there is no folder {path.parent}; create it first") from None
    except OSError as error:
        raise MachineError(
            f"{path}: cannot be written ({error.strerror}); let this user write there, or free space"
        ) from None
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            unfinished.unlink()
    sync(path.parent)
