"""What the identities before this one spent, where only the mirror still knows: a restored backup is not believed."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk.device import ledger
from client_sdk.device.files import DATABASE_NAME, MIRROR_NAME, Mirror, StoreDamagedError, read_mirror, write_mirror
from client_sdk.device.storage import DeviceStore
from tests.unit.client_sdk.device.helpers import NOW
from tests.unit.client_sdk.device.test_storage import (
    MICRO,
    NO_LIMITS,
    break_pages,
    lose,
    scramble,
    sealed,
    send_all,
    total,
    truncate,
)

FIELD = "earlier_micro"


def two_lives(folder: Path) -> DeviceStore:
    """Five that left and one that did not, then somebody new."""
    store = DeviceStore(str(folder))
    assert [store.seal(sealed(period), NO_LIMITS) for period in range(5)] == [None] * 5
    send_all(store)
    store.seal(sealed(5), NO_LIMITS)
    store.opt_out(NOW)
    store.opt_in()
    return store


def send(store: DeviceStore, *periods: int) -> None:
    assert [store.seal(sealed(period), NO_LIMITS) for period in periods] == [None] * len(periods)
    send_all(store)


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / MIRROR_NAME).read_text())
    return found


# --- the ledger that is made of the mirror -----------------------------------------------------------


@pytest.mark.parametrize("harm", [lose, scramble, truncate, break_pages])
@pytest.mark.parametrize("again", [0, 1], ids=["once", "twice"])
def test_a_ledger_made_of_the_mirror_hides_no_forgotten_charge(
    tmp_path: Path, harm: Callable[[Path], None], again: int
) -> None:
    folder, backup = tmp_path / "d", tmp_path / "backup"
    send(two_lives(folder), 6, 7, 8)
    for _ in range(1 + again):
        harm(folder)
        assert DeviceStore(str(folder)).reset_ledger(NOW) == 9 * MICRO
    store = DeviceStore(str(folder))
    assert store.note_collector_total(3 * MICRO), "what the collector has of the one who reports now"
    shutil.copytree(folder, backup)
    send(store, 9, 10)
    assert store.note_collector_total(5 * MICRO)
    for forgotten in (1, MICRO, 2 * MICRO):
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        restored = DeviceStore(str(folder))
        assert not restored.note_collector_total(3 * MICRO + forgotten)
        assert restored.reset_ledger(NOW) == 9 * MICRO + forgotten
        assert restored.note_collector_total(3 * MICRO + forgotten), "and it goes on"


def test_lost_before_the_next_identity_has_charged_anything(tmp_path: Path) -> None:
    two_lives(tmp_path / "d")
    lose(tmp_path / "d")
    store = DeviceStore(str(tmp_path / "d"))
    assert store.reset_ledger(NOW) == 6 * MICRO
    assert store.note_collector_total(0)
    assert not store.note_collector_total(1)


def test_lost_while_a_charge_was_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror that is written ahead of a charge says it too."""
    store = two_lives(tmp_path / "d")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "charge", crash)
        with pytest.raises(KeyboardInterrupt):
            store.seal(sealed(6), NO_LIMITS)
    assert document(tmp_path / "d")["pending_micro_epsilon"] == 7 * MICRO, "the case that this is about"
    assert document(tmp_path / "d")[FIELD] == 6 * MICRO
    lose(tmp_path / "d")
    store = DeviceStore(str(tmp_path / "d"))
    assert store.reset_ledger(NOW) == 7 * MICRO
    assert store.note_collector_total(MICRO), "it may have been counted"
    assert not store.note_collector_total(MICRO + 1)


def test_all_lives_add_up(tmp_path: Path) -> None:
    store = two_lives(tmp_path / "d")
    send(store, 6, 7)
    lose(tmp_path / "d")
    store = DeviceStore(str(tmp_path / "d"))
    store.reset_ledger(NOW)
    store.seal(sealed(8), NO_LIMITS)
    store.opt_out(NOW)
    assert document(tmp_path / "d")[FIELD] == 9 * MICRO
    lose(tmp_path / "d")
    store = DeviceStore(str(tmp_path / "d"))
    store.opt_in()
    store.reset_ledger(NOW)
    assert document(tmp_path / "d")[FIELD] == total(store) == 9 * MICRO
    send(store, 9)
    assert store.note_collector_total(MICRO)
    assert not store.note_collector_total(MICRO + 1)


# --- the field -----------------------------------------------------------------------------------------


def test_without_an_earlier_identity_the_file_is_as_it_always_was(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    send(store, 1)
    known = {"seed", "total_micro_epsilon", "pending_micro_epsilon"}
    assert set(document(tmp_path / "d")) == known
    store.opt_out(NOW)
    store.opt_in()
    for period in (2, 3):
        assert set(document(tmp_path / "d")) == known | {FIELD}
        send(store, period)
    mirror = read_mirror(str(tmp_path / "d"))
    assert mirror is not None
    assert (mirror.total_micro, mirror.earlier_micro) == (3 * MICRO, MICRO)


def test_an_older_file_says_nothing_of_earlier_identities(tmp_path: Path) -> None:
    two_lives(tmp_path / "d")
    older = document(tmp_path / "d")
    del older[FIELD]
    (tmp_path / "d" / MIRROR_NAME).write_text(json.dumps(older))
    mirror = read_mirror(str(tmp_path / "d"))
    assert mirror is not None
    assert mirror.earlier_micro == 0
    DeviceStore(str(tmp_path / "d"))
    assert document(tmp_path / "d")[FIELD] == 6 * MICRO, "the ledger knows it"


def test_an_older_stores_word_for_it_counts(tmp_path: Path) -> None:
    """Before it was in the mirror, the ledger kept what had left of it."""
    two_lives(tmp_path / "d")
    with sqlite3.connect(tmp_path / "d" / DATABASE_NAME) as db:
        db.execute("DELETE FROM meta WHERE key = 'earlier_unsent_micro'")
        db.execute("UPDATE meta SET value = ? WHERE key = 'earlier_lives_micro'", (5 * MICRO,))
    db.close()
    older = document(tmp_path / "d")
    del older[FIELD]
    (tmp_path / "d" / MIRROR_NAME).write_text(json.dumps(older))
    store = DeviceStore(str(tmp_path / "d"))
    assert document(tmp_path / "d")[FIELD] == 5 * MICRO
    assert store.note_collector_total(0)
    assert not store.note_collector_total(1), "and the one that never left"


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None, 2**63])
def test_a_word_that_is_no_amount_makes_no_mirror(tmp_path: Path, value: object) -> None:
    two_lives(tmp_path / "d")
    (tmp_path / "d" / MIRROR_NAME).write_text(json.dumps(document(tmp_path / "d") | {FIELD: value}))
    with pytest.raises(StoreDamagedError):
        read_mirror(str(tmp_path / "d"))


def test_it_is_never_lowered(tmp_path: Path) -> None:
    """A ledger of before the user opted out: its identity goes on, and what the mirror knows is not forgotten."""
    folder = tmp_path / "d"
    send(DeviceStore(str(folder)), 0, 1)
    backup = (folder / DATABASE_NAME).read_bytes()
    two_lives_more(folder)
    (folder / DATABASE_NAME).write_bytes(backup)
    store = DeviceStore(str(folder))
    assert store.damage() is not None
    assert document(folder)[FIELD] == 3 * MICRO, "settled when it is opened"
    store.reset_ledger(NOW)
    assert document(folder)[FIELD] == 3 * MICRO
    written = [mirror_before_charge(store, period) for period in (10, 11)]
    assert [mirror.earlier_micro for mirror in written] == [3 * MICRO] * 2
    assert document(folder)[FIELD] == 3 * MICRO


def two_lives_more(folder: Path) -> None:
    store = DeviceStore(str(folder))
    send(store, 2)
    store.opt_out(NOW)
    store.opt_in()
    send(store, 3)


def mirror_before_charge(store: DeviceStore, period: int) -> Mirror:
    """What stood in the mirror when the charge of `period` was about to be made."""
    seen: list[Mirror | None] = []
    real = ledger.charge
    with pytest.MonkeyPatch.context() as patch:

        def look(*arguments: Any) -> None:
            seen.append(read_mirror(store.folder))
            real(*arguments)

        patch.setattr(ledger, "charge", look)
        assert store.seal(sealed(period), NO_LIMITS) is None
    (mirror,) = seen
    assert mirror is not None
    return mirror


def test_opting_out_is_on_the_disk_in_the_mirror_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody charges while the user is out, so no later replacement would bring it there."""
    store = DeviceStore(str(tmp_path / "d"))
    send(store, 1)
    synced: list[int] = []
    real = os.fsync  # the file and its folder; SQLite's own go past Python

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.opt_out(NOW)
    assert synced == [(tmp_path / "d" / MIRROR_NAME).stat().st_ino, (tmp_path / "d").stat().st_ino]
    assert (document(tmp_path / "d")["opted_out"], document(tmp_path / "d")[FIELD]) == (True, MICRO)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for mirror in (
        Mirror(bytes(32), 5, 7, True, 3),
        Mirror(bytes(32), 5, None, False, 2**63 - 1),
        Mirror(bytes(32), 0),
    ):
        write_mirror(str(tmp_path), mirror)
        assert read_mirror(str(tmp_path)) == mirror
