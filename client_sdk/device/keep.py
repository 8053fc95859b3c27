"""An open period that outlives its process, sealed with the host's key.

Rules of this file: raw readings touch the disk only as ChaCha20-Poly1305 ciphertext under a key derived from
the host's `seal_key` (32 bytes of the platform's keystore); plan, period and purpose are bound in; the size
follows from the plan alone; the row is taken out when it is read, so that two processes cannot both go on with
it. What it does not do: it cannot tell an old copy of the row from the newest, so a restored folder may repeat
readings of an open period.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from client_sdk.errors import StorageError
from client_sdk.mechanisms import Entropy
from client_sdk.plan import Plan
from client_sdk.plan.names import labels as labels_of
from client_sdk.report import PeriodState

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    from client_sdk.plan import Metric

NONCE_BYTES = 12
PAD_BYTES = 1024
"""Texts are padded with blanks to the longest that the plan's readings can make, and on to a multiple of this."""
COUNT_DIGITS = 20
"""Of how many readings a metric has had: more than 64 bits hold."""
NUMBER_CHARACTERS = 25
"""Of a float in JSON, 24 at most, and so of `null`."""

LABEL = b"ldp-telemetry/open-period/v1"


def seal_state(seal_key: bytes, state: PeriodState, period_start: int, entropy: Entropy) -> bytes:
    """nonce | ciphertext. The plain text is JSON: blanks at its end mean nothing."""
    nonce, raw = entropy(NONCE_BYTES), state.dump()
    padded = raw.ljust(padded_bytes(state.plan))
    return nonce + _cipher(seal_key).encrypt(nonce, padded, _context(state.plan.hash, period_start))


def padded_bytes(plan: Plan) -> int:
    """Bytes of the longest `PeriodState.dump` under the plan, rounded up: the size must tell no label and no digit."""
    longest = {name: [10**COUNT_DIGITS - 1, _widest(metric)] for name, metric in plan.metrics.items()}
    bytes_needed = len(json.dumps({"plan": plan.hash.hex(), "folds": longest}))
    return -(-bytes_needed // PAD_BYTES) * PAD_BYTES


def _widest(metric: Metric) -> str:
    """A text that is at least as long in JSON as anything that the metric's fold can hold."""
    # its default is one of the labels; without one it holds `null`, as long as a label of two letters
    if metric.vector is not None:
        return "." * (4 * -(-8 * metric.vector.dimension // 3))  # base64
    labels = ("..", *labels_of(metric)) if metric.kind == "categorical" else ("." * NUMBER_CHARACTERS,)
    return max(labels, key=lambda text: len(json.dumps(text)))


def open_state(seal_key: bytes, plan: Plan, period_start: int, sealed: bytes) -> PeriodState | None:
    """What `seal_state` sealed, or None under another key, plan or period."""
    from cryptography.exceptions import InvalidTag

    context = _context(plan.hash, period_start)
    try:
        raw = _cipher(seal_key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
        return PeriodState.load(plan, raw, period_start)
    except (InvalidTag, ValueError, StorageError):
        return None


def _context(plan_hash: bytes, period_start: int) -> bytes:
    return LABEL + plan_hash + period_start.to_bytes(8, "big", signed=True)


def _cipher(seal_key: bytes) -> ChaCha20Poly1305:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    return ChaCha20Poly1305(HKDFExpand(SHA256(), 32, LABEL).derive(seal_key))
