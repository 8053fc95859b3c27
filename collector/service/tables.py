"""The collector's tables, for every SQL engine alike (SQLAlchemy Core; of one engine, only which references it checks).

What is stored: sums over at least `min_size` contributors, who contributed, and what it cost them. What is
never stored: a report, a masked input, a share, a seed, or who else there is (a registrar's list of identities).

Times are integer seconds since the epoch, UTC. Money is integer micro-epsilon. A change of this file needs a
new revision in `migrations/versions` and its name in `migrations.REVISIONS`; a test compares the two.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

MAX_CELL_ROWS = 4096
"""A metric with more cells than this is stored as one row of `released_vectors` per round."""

SAMPLED = "*"
"""In `spends.metric`: the report holds some of the plan's metrics. No metric has such a name."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ROW_BY_ROW: Final = "row_by_row"
"""In the `info` of a ForeignKey: may PostgreSQL check it?"""


def _unchecked(column: str) -> ForeignKey:
    """A reference of the largest tables, of which a commit writes thousands of rows. PostgreSQL would look up and lock
    the same few rows for each of them; there the doctor alone checks it, in SQLite the engine does.
    """
    return ForeignKey(column, info={ROW_BY_ROW: False})


plans = Table(
    "plans",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("name", String(255), nullable=False),
    Column("version", Integer, nullable=False),
    Column("period_s", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("added_at", BigInteger, nullable=False),
    UniqueConstraint("name", "version"),
)

rounds = Table(
    "rounds",
    metadata,
    Column("round", String(64), primary_key=True),
    Column("plan_hash", LargeBinary(32), ForeignKey("plans.hash"), nullable=False),
    Column("period_start", BigInteger, nullable=False),
    Column("joined", Integer, nullable=False),
    Column("contributors", Integer, nullable=False),
    # How many left without sending that step's message.
    Column("dropped_shares", Integer, nullable=False),
    Column("dropped_masked_input", Integer, nullable=False),
    Column("dropped_confirm", Integer, nullable=False),
    Column("dropped_unmask", Integer, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("reason", String(64)),
    Column("seconds", Float, nullable=False),
    Column("finished_at", BigInteger, nullable=False),
)


def _released_columns() -> list[Column[object]]:
    """What every released sum says of its round; `contributors` is the n to decode with: the reports that hold the
    metric, which `rounds.contributors` is more than where the plan has reports hold a sample of its metrics.
    """
    columns: list[Column[object]] = [
        Column("round", String(64), ForeignKey("rounds.round"), primary_key=True),
        Column("metric", String(255), primary_key=True),
        Column("plan_hash", LargeBinary(32), ForeignKey("plans.hash"), nullable=False),
        Column("period_start", BigInteger, nullable=False),
        Column("contributors", Integer, nullable=False),
        Column("roster", Integer, nullable=False),
        Column("resent", Integer, nullable=False),
        Column("delivery", String(16), nullable=False),
    ]
    return columns


released_sums = Table(
    "released_sums",
    metadata,
    *_released_columns(),
    Column("cell", Integer, primary_key=True, autoincrement=False),
    Column("total", BigInteger, nullable=False),  # signed; a ring of at most 64 bits cannot leave it
    Index(None, "period_start"),
)

released_vectors = Table(
    "released_vectors",
    metadata,
    *_released_columns(),
    Column("length", Integer, nullable=False),
    Column("totals", LargeBinary, nullable=False),  # `length` signed 64-bit integers, little endian
    Index(None, "period_start"),
)

# Devices whose messages broke a round's rules in a way that only they can have done; `what` is a Fault's value.
blames = Table(
    "blames",
    metadata,
    Column("round", String(64), ForeignKey("rounds.round"), primary_key=True),
    Column("device", String(32), primary_key=True),
    Column("what", String(32), primary_key=True),
    Index(None, "device"),
)

# The exactly-once key: one report per device, plan name and period, over all versions of the plan.
contributions = Table(
    "contributions",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("plan_name", String(255), primary_key=True),
    Column("period_start", BigInteger, primary_key=True, autoincrement=False),
    Column("report_id", LargeBinary(16), nullable=False),
    Column("round", String(64), _unchecked("rounds.round"), nullable=False),
    Column("resent", Boolean, nullable=False),
)

spends = Table(
    "spends",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("plan_name", String(255), primary_key=True),
    Column("plan_hash", LargeBinary(32), _unchecked("plans.hash"), primary_key=True),
    Column("period_start", BigInteger, primary_key=True, autoincrement=False),
    Column("metric", String(255), primary_key=True),
    Column("micro_epsilon", BigInteger, nullable=False),
    Column("round", String(64), _unchecked("rounds.round"), nullable=False),
    Column("charged_at", BigInteger, nullable=False),
    # The report was sent twice, or unmasked (`direct`): against somebody who sees the sums it costs its full local
    # epsilon.
    Column("central_falls_back", Boolean, nullable=False),
    Index(None, "charged_at"),
)

# Lifetime per device, never collected. `folded_*` is the part of it whose rows in `spends` are gone:
# micro_epsilon = folded_micro_epsilon + sum(spends.micro_epsilon), at every commit. What `folded_spends` does not
# explain of it was folded before there was such a table: spent, and nobody can say for what.
device_totals = Table(
    "device_totals",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("reports", BigInteger, nullable=False),
    Column("resent_reports", BigInteger, nullable=False),
    Column("micro_epsilon", BigInteger, nullable=False),
    Column("folded_reports", BigInteger, nullable=False),
    Column("folded_micro_epsilon", BigInteger, nullable=False),
)

# Reports of each memoised metric of a device: the next one's price follows from their number. Never collected. `memo`:
# a digest of the metric's law and price, so that what a plan version changes of either is counted anew.
memo_reports = Table(
    "memo_reports",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("plan_name", String(255), primary_key=True),
    Column("memo", LargeBinary(32), primary_key=True),
    Column("reports", BigInteger, nullable=False),
)

# What garbage collection keeps of spends whose rows are gone: enough for the lifetime's figures, and no more. Reports
# of one device that hid in alike sums stand in one row, however many they were.
folded_cohorts = Table(
    "folded_cohorts",
    metadata,
    Column("cohort", LargeBinary(32), primary_key=True),  # digest of the other columns
    Column("plan_hash", LargeBinary(32), ForeignKey("plans.hash"), nullable=False),
    Column("delivery", String(16), nullable=False),
    # At most what it was in each of the sums, without the resent ones; `least`: of the metric that the fewest held.
    Column("contributors", Integer, nullable=False),
    Column("least_contributors", Integer, nullable=False),
    Column("roster", Integer, nullable=False),  # at least what it was in each of the sums
    Column("metric_contributors", Text, nullable=False),  # JSON, like `contributors`; {} where all reports hold all
)

folded_spends = Table(
    "folded_spends",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("cohort", LargeBinary(32), ForeignKey("folded_cohorts.cohort"), primary_key=True),
    Column("central_falls_back", Boolean, primary_key=True),
    Column("reports", BigInteger, nullable=False),
    Column("micro_epsilon", BigInteger, nullable=False),
    Column("first_charged_at", BigInteger, nullable=False),
    Column("last_charged_at", BigInteger, nullable=False),
)

# Devices that opted out: nothing is booked for them any more, and they are never taken again. Only an id without a
# ledger, because somebody with a copy of the device's folder could otherwise begin one for it anew.
opt_outs = Table(
    "opt_outs",
    metadata,
    Column("device", String(32), primary_key=True),
    Column("acknowledged_at", BigInteger, nullable=False),
)

# Who may read over the network. A token itself is nowhere: it has 256 random bits, so its plain hash is enough.
access_tokens = Table(
    "access_tokens",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("name", String(64), nullable=False),
    Column("issued_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
)
