"""Masks: they cancel, they cannot wrap, their bytes are as specified; vectors in pieces."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from client_sdk.secagg.masking import (
    PieceBuffer,
    add_masks,
    from_ring,
    remove_masks,
    ring_bytes,
    ring_from_bytes,
    to_pieces,
    to_ring,
    zero_ring,
)
from client_sdk.secagg.messages import MaskedInputPiece
from client_sdk.secagg.parameters import PIECE_BYTES
from tests.fleet import SeededEntropy

SEED = SeededEntropy(b"mask")(32)
WIDTHS = [16, 32, 64]


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("length", [1, 2, 3, 7, 1000, 131_072 + 5])
def test_keystream_is_aes_256_counter_mode_from_zero(bits: int, length: int) -> None:
    """Against block-wise AES: block i of the keystream is the cipher of i as 16 bytes, big endian."""
    vector = zero_ring(length, bits)
    add_masks(vector, [(SEED, 1)])
    size = length * bits // 8
    counters = b"".join(i.to_bytes(16, "big") for i in range(-(-size // 16)))
    expected = Cipher(AES(SEED), ECB()).encryptor().update(counters)[:size]  # noqa: S305 - one block at a time
    assert ring_bytes(vector) == expected


def test_known_answer() -> None:
    """The first keystream block of AES-256 under the all-zero key (NIST AESAVS: dc95c078a2408989ad48a21492842087)."""
    vector = zero_ring(4, 32)
    add_masks(vector, [(bytes(32), 1)])
    assert ring_bytes(vector).hex() == "dc95c078a2408989ad48a21492842087"


@pytest.mark.parametrize("bits", WIDTHS)
def test_opposite_signs_cancel(bits: int) -> None:
    values = [-5, 0, 3, 7, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    vector = to_ring(values, bits)
    other = SeededEntropy(b"other")(32)
    add_masks(vector, [(SEED, 1), (other, -1)])
    assert from_ring(vector) != values
    add_masks(vector, [(other, 1)])
    remove_masks(vector, [(SEED, 1)])
    assert from_ring(vector) == values


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("sign", [1, -1])
def test_ring_cannot_wrap_at_the_extremes(bits: int, sign: int) -> None:
    """All at +bound, all at -bound, with n x bound as large as the ring's half allows."""
    members = 3
    bound = ((1 << (bits - 1)) - 1) // members
    total = zero_ring(2, bits)
    for member in range(members):
        masked = to_ring([sign * bound, -sign * bound], bits)
        add_masks(masked, [(SeededEntropy(b"%d" % member)(32), 1)])
        total += masked
    remove_masks(total, [(SeededEntropy(b"%d" % member)(32), 1) for member in range(members)])
    assert from_ring(total) == [sign * members * bound, -sign * members * bound]


def test_layout_is_little_endian_twos_complement() -> None:
    assert ring_bytes(to_ring([1, -2], 16)) == b"\x01\x00\xfe\xff"
    assert ring_bytes(to_ring([1, -2], 32)) == b"\x01\x00\x00\x00\xfe\xff\xff\xff"
    assert ring_bytes(to_ring([-1], 64)) == b"\xff" * 8
    assert from_ring(ring_from_bytes(b"\x00\x80\xff\x7f", 16)) == [-32768, 32767]


def test_total_is_plain_integers() -> None:
    assert {type(value) for value in from_ring(to_ring([1, -2], 64))} == {int}


@pytest.mark.parametrize("mask", [(bytes(31), 1), (bytes(16), 1), (bytes(32), 0), (bytes(32), 2)])
def test_what_is_no_mask(mask: tuple[bytes, int]) -> None:
    with pytest.raises(ValueError, match="a mask is"):
        add_masks(zero_ring(1, 32), [mask])


@pytest.mark.parametrize("bits", [0, 8, 24, 128])
def test_what_is_no_ring(bits: int) -> None:
    with pytest.raises(ValueError, match="ring width"):
        zero_ring(1, bits)


@pytest.mark.parametrize("bits", WIDTHS)
def test_pieces_make_the_vector_again_at_every_boundary(bits: int) -> None:
    # case D10: also across the boundary
    whole_piece = PIECE_BYTES * 8 // bits
    for length in (1, whole_piece - 1, whole_piece, whole_piece + 1, 2 * whole_piece, 2 * whole_piece + 1):
        vector = to_ring(np.arange(length) % 1000, bits)
        pieces = list(to_pieces(vector))
        assert len(pieces) == -(-length // whole_piece)
        assert max(len(piece.data) for piece in pieces) <= PIECE_BYTES
        buffer = PieceBuffer(length, bits)
        for piece in pieces:
            assert not buffer.is_whole
            buffer.add(piece)
        assert buffer.is_whole
        assert ring_bytes(buffer.take()) == ring_bytes(vector)


@pytest.mark.parametrize(
    ("piece", "what"),
    [
        (MaskedInputPiece(0, bytes(4)), "begins at"),
        (MaskedInputPiece(3, bytes(4)), "begins at"),
        (MaskedInputPiece(2, bytes(3)), "whole elements"),
        (MaskedInputPiece(2, b""), "whole elements"),
        (MaskedInputPiece(2, bytes(PIECE_BYTES + 4)), "whole elements"),
        (MaskedInputPiece(2, bytes(16)), "more elements"),
    ],
)
def test_pieces_that_do_not_fit_change_nothing(piece: MaskedInputPiece, what: str) -> None:
    buffer = PieceBuffer(5, 32)
    buffer.add(MaskedInputPiece(0, bytes(range(8))))
    with pytest.raises(ValueError, match=what):
        buffer.add(piece)
    assert buffer.next_offset == 2
    buffer.add(MaskedInputPiece(2, bytes(12)))
    assert ring_bytes(buffer.take()) == bytes(range(8)) + bytes(12)
