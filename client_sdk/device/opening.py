"""Opening a device's store: create, check against the mirror, repair.

Rules of this file: nothing is believed that its mirror contradicts; repairing never makes a budget larger
(the repaired ledger counts as used up until it is reset) and never loses the identity while either file
still holds it; a damaged file is put aside under a fixed name, not deleted.
What it does not do: it cannot see a folder that was restored together with its mirror; of a lost ledger it does not
know which of this identity's own reports had never left.

Which of the two files says what:  the mirror is written ahead of each charge (total so far, and the total
about to be committed) and settled after it. So a ledger at the mirror's total, or anything above, is sound;
one below it is an older copy. A crash between mirror and commit leaves the ledger at the total: sound, and
nothing left the device.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace

from client_sdk.device import forgetting, ledger
from client_sdk.device.database import (
    JOURNAL_SUFFIX,
    check_integrity,
    create_schema,
    migrate,
    schema_version,
    seed_of,
    transaction,
)
from client_sdk.device.files import (
    DAMAGED_NAME,
    SEED_BYTES,
    Mirror,
    StoreDamagedError,
    create_private,
    prepare_folder,
    read_mirror,
    refuse_link,
    storage_error,
    write_mirror,
)


def open_store(folder: str, path: str, busy_timeout_s: float) -> None:
    """Leave a store at `path` that can be used, its ledger marked damaged where it is not to be believed."""
    prepare_folder(folder)
    mirror, mirror_damaged = readable_mirror(folder)
    lost = mirror_damaged and not refuse_link(path)
    try:
        _create_or_check(path, mirror, busy_timeout_s, lost=lost)
    except StoreDamagedError:
        _put_aside(folder, path)
        _create_or_check(path, mirror, busy_timeout_s, lost=True)
    settle_mirror(folder, path, busy_timeout_s)


def _create_or_check(path: str, mirror: Mirror | None, busy_timeout_s: float, *, lost: bool) -> None:
    create_private(path)
    with transaction(path, busy_timeout_s) as db:
        if schema_version(db) != 0:
            check_integrity(db, path)
            migrate(db)
            compare(db, mirror)
            return
        create_schema(db, path)
        seed = os.urandom(SEED_BYTES) if mirror is None else mirror.seed
        db.execute("INSERT INTO identity (one, seed) VALUES (1, ?)", (seed,))
        if lost or mirror is not None:
            ledger.mark_damaged(db, "ledger lost", 0 if mirror is None else mirror.highest_micro)
        if mirror is not None:
            _remember_lives(db, mirror)


def _remember_lives(db: sqlite3.Connection, mirror: Mirror) -> None:
    """What a new database has from nowhere else."""
    ledger.remember_earlier(db, mirror.earlier_micro)
    if mirror.opted_out:
        forgetting.remember_opt_out(db)


def _put_aside(folder: str, path: str) -> None:
    """Keep the damaged file for whoever wants to look; the next damage takes its place."""
    try:
        os.replace(path, os.path.join(folder, DAMAGED_NAME))
        if refuse_link(path + JOURNAL_SUFFIX):
            os.unlink(path + JOURNAL_SUFFIX)
    except OSError as error:
        raise storage_error(error, path) from None


def readable_mirror(folder: str) -> tuple[Mirror | None, bool]:
    """The mirror where there is a readable one, and whether there is one that is not."""
    try:
        return read_mirror(folder), False
    except StoreDamagedError:
        return None, True


def compare(db: sqlite3.Connection, mirror: Mirror | None) -> None:
    """Mark the ledger where the mirror knows of more charges, or of another identity."""
    if mirror is None:
        return
    if mirror.seed != seed_of(db) and not forgetting.is_left(db, mirror.seed):
        ledger.mark_damaged(db, "identity and mirror differ", mirror.highest_micro)
    elif ledger.total_micro(db) < mirror.total_micro and ledger.damage(db) is None:
        ledger.mark_damaged(db, "ledger older than its mirror", mirror.highest_micro)


def settle_mirror(folder: str, path: str, busy_timeout_s: float) -> None:
    """Bring the mirror to what the ledger holds: no charge is pending any more.

    Within a write transaction, so that it never overwrites another process's pending charge. Where only its total
    changes it is not synced: an older one is still a true lower bound.
    """
    with transaction(path, busy_timeout_s) as db:
        found, total = readable_mirror(folder)[0], ledger.known_micro(db)
        wanted = mirror_of(db, found, total)
        if found != wanted:
            only_total = found is not None and replace(found, total_micro=total, pending_micro=None) == wanted
            write_mirror(folder, wanted, sync=not only_total)


def mirror_of(
    db: sqlite3.Connection, before: Mirror | None, total_micro: int, pending_micro: int | None = None
) -> Mirror:
    """What is to stand in place of `before`, whose earlier lives (`ledger`, *Lives*) are never made fewer."""
    earlier = max(ledger.earlier_micro(db), 0 if before is None else before.earlier_micro)
    return Mirror(seed_of(db), total_micro, pending_micro, forgetting.is_opted_out(db), earlier)
