"""Masks and masked vectors: keystream, adding and removing, ring and integers, whole vectors and pieces.

Rules of this file: a mask is a `(seed, sign)` pair, never a roster or a participant; the seed is a 32-byte key
that was derived for this one use (`keys.py`), so the counter may start at zero; arithmetic is the native
wrap-around of unsigned little-endian integers of 16, 32 or 64 bits; both directions of each step stand together.
What it does not do: it derives no seed and checks no bound; `parameters.ring_bits` chose a width that cannot wrap.

PRG(seed) = AES-256-CTR, all-zero nonce, read as little-endian integers. numpy is imported inside functions, so
that a device that only records never loads it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from client_sdk.secagg.messages import MaskedInputPiece
from client_sdk.secagg.parameters import PIECE_BYTES, RING_BITS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ring = npt.NDArray[np.unsignedinteger[Any]]
    """A vector modulo 2^bits: shape (length,), dtype <u2, <u4 or <u8."""

Mask = tuple[bytes, int]
"""`(seed, sign)`: a 32-byte key and +1 or -1."""

_ZERO_NONCE: Final = CTR(bytes(16))
# Keystream is made a block at a time: it stays in the cache, and a long vector needs no second long buffer.
_BLOCK_BYTES: Final = 256 * 1024
_MANY: Final = 1 << 14
_ZEROS: Final = bytes(_BLOCK_BYTES)


def add_masks(vector: Ring, masks: Iterable[Mask]) -> None:
    """Add sign x PRG(seed) for every mask to `vector`, in place, modulo 2^bits."""
    import numpy as np

    buffer = bytearray(min(_BLOCK_BYTES, vector.nbytes))
    block = np.frombuffer(buffer, dtype=vector.dtype)
    for seed, sign in masks:
        if len(seed) != 32 or sign not in (1, -1):
            raise ValueError("a mask is a 32-byte seed and a sign of +1 or -1")
        combine = np.add if sign > 0 else np.subtract
        encryptor = Cipher(AES(seed), _ZERO_NONCE).encryptor()
        for start in range(0, vector.size, block.size):
            part = vector[start : start + block.size]
            encryptor.update_into(_ZEROS[: part.nbytes], buffer)
            combine(part, block[: part.size], out=part)


def remove_masks(vector: Ring, masks: Iterable[Mask]) -> None:
    """Undo `add_masks` of the same masks, in place."""
    add_masks(vector, ((seed, -sign) for seed, sign in masks))


def to_ring(values: Sequence[int], bits: int) -> Ring:
    """Signed integers of at most 64 bits as a new vector modulo 2^bits, negative ones in two's complement."""
    import numpy as np

    signed = np.asarray(values, dtype=np.int64)
    return signed.astype(_dtype(bits))


def from_ring(vector: Ring) -> list[int]:
    """A vector modulo 2^bits as signed integers in [-2^(bits-1), 2^(bits-1))."""
    signed = vector.view(vector.dtype.str.replace("u", "i"))
    totals: list[int] = signed.tolist()
    return totals


def largest(values: array[int]) -> int:
    """The largest size of a signed 64-bit integer of these, at least one; numpy is not loaded for a few of them."""
    if len(values) < _MANY:
        return max(abs(max(values)), abs(min(values)))
    import numpy as np

    signed = np.frombuffer(values, np.int64)
    return max(abs(int(signed.max())), abs(int(signed.min())))


def zero_ring(length: int, bits: int) -> Ring:
    """The empty sum."""
    import numpy as np

    return np.zeros(length, dtype=_dtype(bits))


def ring_bytes(vector: Ring) -> bytes:
    """A vector as it travels: little endian, without header."""
    return vector.tobytes()


def ring_from_bytes(data: bytes | bytearray, bits: int) -> Ring:
    """A new, writable vector from `ring_bytes`. Raises ValueError for a length that is no multiple of the width."""
    import numpy as np

    return np.frombuffer(data, dtype=_dtype(bits)).copy()


def to_pieces(vector: Ring) -> Iterator[MaskedInputPiece]:
    """A vector in pieces of at most PIECE_BYTES, ascending offsets, without gaps."""
    step = PIECE_BYTES // vector.itemsize
    for start in range(0, vector.size, step):
        yield MaskedInputPiece(offset=start, data=ring_bytes(vector[start : start + step]))


class PieceBuffer:
    """The other half of `to_pieces`: collects the pieces of one vector, in order, until it is whole."""

    def __init__(self, length: int, bits: int) -> None:
        self._data = bytearray()
        self._whole_bytes = length * bits // 8
        self._bits = bits

    @property
    def next_offset(self) -> int:
        """Where the next piece must begin, in elements."""
        return len(self._data) * 8 // self._bits

    @property
    def is_whole(self) -> bool:
        """Has every element arrived?"""
        return len(self._data) == self._whole_bytes

    def add(self, piece: MaskedInputPiece) -> None:
        """Append a piece. Raises ValueError, keeping what it had, for a gap, an overlap, an odd length or an excess."""
        size = len(piece.data)
        if piece.offset != self.next_offset:
            raise ValueError(f"piece begins at element {piece.offset}, expected {self.next_offset}")
        if not 0 < size <= PIECE_BYTES or size % (self._bits // 8):
            raise ValueError(f"a piece of {size} bytes is no run of whole elements of {self._bits} bits")
        if len(self._data) + size > self._whole_bytes:
            raise ValueError("pieces hold more elements than the vector has")
        self._data += piece.data

    def take(self) -> Ring:
        """The whole vector; the buffer is empty afterwards."""
        data, self._data = self._data, bytearray()
        return ring_from_bytes(data, self._bits)


def _dtype(bits: int) -> str:
    if bits not in RING_BITS:
        raise ValueError(f"ring width {bits} is not one of {RING_BITS}")
    return f"<u{bits // 8}"
