"""What a reader of the wire accepts at most. Checked before anything is built from a message.

How many members and neighbours there may be stands with the round's other sizes in `secagg.parameters`: MAX_ROSTER
(16,384) and MAX_NEIGHBOURS (1,023).
The byte limits double as gRPC's receive limits, so that an over-long message is not even buffered.
"""

from __future__ import annotations

from typing import Final

MAX_PARTICIPANT_MESSAGE_BYTES: Final = 1 << 20
"""The longest is a piece of 256 KiB; SealedShares with 1,023 sealed pairs of 82 bytes and their hashes take 156 KB."""

MAX_COLLECTOR_MESSAGE_BYTES: Final = 4 << 20
"""The longest is a plan's text of a million characters."""

MAX_COLLECTOR_STREAM_MESSAGE_BYTES: Final = 1 << 20
"""The longest of a round is Roster: 1,023 adverts of 430 bytes and the nodes of a proof, below 640 KB."""

MAX_PROOF_NODES: Final = 4096
"""Over 16,384 leaves of which 1,024 are known: most where these lie evenly, a node for each of four levels."""

MAX_COLLECTOR_MESSAGE_FIELDS: Final = 8192
"""In a CollectorMessage and right inside it. The most are Roster's: 1,023 neighbours, not packed, as many adverts and
the nodes of a proof. A limit beside that of bytes, because two bytes of an empty advert take nearly two hundred of
memory once they are parsed."""

MAX_PARTICIPANT_MESSAGE_FIELDS: Final = 4096
"""The most are those of UnmaskShares: an index, not packed, and a share for each of 1,024 owners."""

UNCOUNTED_BYTES: Final = 1 << 16
"""A participant's message up to here is parsed without counting: whatever is in it, it cannot fill more than a few
megabytes, and nearly every honest one is as short or holds two fields."""

MAX_SINGLE_MESSAGE_FIELDS: Final = 64
"""In a message that travels by itself, not counted inside its fields. The most are GetPrivacyRequest's five; the rest
is room for fields of later versions, which are passed over."""

MAX_REGISTRAR_MESSAGE_BYTES: Final = 4096
"""Either way. The longest is an EnrolRequest: a token of 256 characters, a key and a signature."""

MAX_DIRECT_REPORTS: Final = 100
"""Of one call: as many as a device's spool holds. MAX_SINGLE_MESSAGE_FIELDS is too few for them, so the streams of
direct delivery have limits of their own; the longest message is a piece of 256 KiB, or lists of 100 entries."""

MAX_DIRECT_MESSAGE_BYTES: Final = (256 << 10) + 1024
MAX_DIRECT_MESSAGE_FIELDS: Final = 1024

MAX_REPORTING_REQUEST_BYTES: Final = 4096
DOCUMENT_PIECE_BYTES: Final = 256 * 1024

MAX_TOKEN_CHARS: Final = 256
MAX_NAME_CHARS: Final = 256
MAX_PLAN_CHARS: Final = 1 << 20

MAX_TIME_S: Final = 253_402_300_799
"""9999-12-31T23:59:59Z: whatever arrives can be computed with and printed."""

MAX_TOTAL: Final = 2**63 - 1
"""Counters and micro-epsilon totals: what both ends' stores can hold."""
