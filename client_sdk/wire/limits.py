"""What a reader of the wire accepts at most. Checked before anything is built from a message.

How many members a roster may have stands with the round's other sizes: `secagg.parameters.MAX_ROSTER`.
The byte limits double as gRPC's receive limits, so that an over-long message is not even buffered.
"""

from __future__ import annotations

from typing import Final

MAX_PARTICIPANT_MESSAGE_BYTES: Final = 1 << 20
"""The longest is a piece of 256 KiB, or 1,024 sealed pairs of 82 bytes with two hashes each."""

MAX_COLLECTOR_MESSAGE_BYTES: Final = 4 << 20
"""The longest is Roster: 1,024 adverts of about 300 bytes, with room for certificates to come."""

MAX_COLLECTOR_MESSAGE_FIELDS: Final = 4096
"""In a CollectorMessage and right inside it. The most are DeliveredShares' three lists of 1,024, not packed. A limit
beside that of bytes, because two bytes of an empty advert take nearly two hundred of memory once they are parsed."""

MAX_CERTIFICATE_BYTES: Final = 4096
MAX_PROOF_BYTES: Final = 1024
MAX_TOKEN_CHARS: Final = 256
MAX_NAME_CHARS: Final = 256
MAX_PLAN_CHARS: Final = 1 << 20

MAX_TIME_S: Final = 253_402_300_799
"""9999-12-31T23:59:59Z: whatever arrives can be computed with and printed."""

MAX_TOTAL: Final = 2**63 - 1
"""Counters and micro-epsilon totals: what both ends' stores can hold."""
