"""A kind of store, whatever engine it is in: its tables, its revisions, and how one is brought up to date.

Rules of this file: the caller owns connection and transaction; nothing of one engine in here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, MetaData, inspect, text

from collector.service.storage_errors import StoreError, StoreProblem


@dataclass(frozen=True, slots=True)
class Schema:
    """A kind of store. revisions: oldest first; their files, and an `env.py` for Alembic, lie in `folder`.

    version_table: where Alembic keeps which revision it is; by its name one kind is told from another. where: says
    where such a store comes from, and `make` what brings it into being or up to date, both for the operator.
    """

    revisions: tuple[str, ...]
    folder: Path
    metadata: MetaData
    version_table: str
    where: str
    make: str

    @property
    def head(self) -> str:
        """The revision of a store that is up to date."""
        return self.revisions[-1]


def revision_of(conn: Connection, schema: Schema) -> str | None:
    """Which revision it is; None where no such store has been made yet."""
    if not inspect(conn).has_table(schema.version_table):
        return None
    newest = f"SELECT max(version_num) FROM {schema.version_table}"  # noqa: S608 - the name is a constant of ours
    return conn.execute(text(newest)).scalar()


def judged_revision(conn: Connection, where: str, schema: Schema) -> str | None:
    """`revision_of`; raises StoreError where another program's tables are."""
    revision = revision_of(conn, schema)
    if revision is None and inspect(conn).get_table_names():
        raise StoreError(where, StoreProblem.NOT_A_STORE, "is a database of another program; name another one")
    return revision


def require_known(where: str, schema: Schema, revision: str | None) -> None:
    """Raises StoreError for one that a newer version has written."""
    if revision is not None and revision not in schema.revisions:
        raise not_current(where, schema, revision)


def not_current(where: str, schema: Schema, revision: str | None) -> StoreError:
    """What to say of a store that is not at the newest revision."""
    if revision is None:
        return StoreError(where, StoreProblem.NOT_A_STORE, f"holds no store yet; {schema.make}")
    if revision in schema.revisions:
        return StoreError(where, StoreProblem.OLDER, f"was written by an older version; {schema.make}")
    return StoreError(
        where,
        StoreProblem.NEWER,
        f"was written by a newer version (revision {revision[:32]!r}); nothing was changed, install that version",
    )


def upgrade(conn: Connection, schema: Schema, revision: str = "head") -> None:
    """Bring the tables to the newest revision (or the one named), in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(schema.folder).replace("%", "%%"))
    config.attributes["connection"] = conn
    config.attributes["schema"] = schema
    command.upgrade(config, revision)
