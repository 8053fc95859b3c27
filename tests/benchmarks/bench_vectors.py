"""Figures of vectors: CPU time of the exact discrete Gaussian, and of a million masked elements. Asserts no time.

python -m pytest -n0 -s -m bench tests/benchmarks/bench_vectors.py
"""

from __future__ import annotations

import os
from array import array
from decimal import Decimal
from fractions import Fraction
from time import process_time

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorLaplace
from client_sdk.report import pack_vector, unpack_array, unpack_vector
from client_sdk.sampling import discrete_gaussian
from client_sdk.sampling_gaussian import discrete_gaussian_many
from client_sdk.sampling_vectorised import Keystream
from client_sdk.secagg import masking, participant
from client_sdk.secagg.messages import CollectorMessage, MaskedInputPiece, ParticipantMessage, Receipt
from client_sdk.secagg.parameters import PIECE_BYTES, RoundRules
from client_sdk.wire.convert import participant_message_to_wire
from client_sdk.wire.limits import MAX_PARTICIPANT_MESSAGE_BYTES
from collector.secagg.round import STEPS
from tests.benchmarks.bench_mechanisms import best
from tests.fleet import Fleet, rules

pytestmark = pytest.mark.bench
DIMENSION = 1_000_000
NEIGHBOURS = 100
TURNS = 5


def test_discrete_gaussian() -> None:
    stream, generator = Keystream(os.urandom), np.random.default_rng()
    variances = [Fraction(1), Fraction(3600), Fraction(35_000**2), Fraction(10**20)]
    numpy_s, *ours = best(
        lambda: generator.normal(scale=35_000.0, size=DIMENSION),
        *(lambda v=v: discrete_gaussian_many(v, DIMENSION, stream) for v in variances),
    )
    print(f"\nnumpy Generator.normal, inexact and no CSPRNG: {DIMENSION / numpy_s / 1e6:.0f} M/s")
    for variance, seconds in zip(variances, ours, strict=True):
        deviation = float(variance) ** 0.5
        print(f"exact discrete Gaussian, sigma {deviation:.6g}: {DIMENSION / seconds / 1e6:.0f} M/s (reach: >= 20)")
    n = 500
    (one,) = best(lambda: [discrete_gaussian(variances[2], os.urandom) for _ in range(n)], turns=3)
    print(f"one at a time, standard library: {one / n * 1e6:.0f} us")


def test_perturbation() -> None:
    vector = np.random.default_rng(1).normal(size=(1, DIMENSION))
    gaussian = VectorGaussian(DIMENSION, Decimal(1), Decimal(1))
    laplace = VectorLaplace(DIMENSION, Decimal(1), Decimal(1))
    figures = best(
        lambda: gaussian.perturb_many(vector, os.urandom),
        lambda: gaussian.ball.encode_many(vector, os.urandom),
        lambda: laplace.perturb_many(vector, os.urandom),
        lambda: gaussian.perturb(vector[0], os.urandom),
        turns=5,
    )
    names = ("L2, Gaussian", "of that, clipping and rounding", "L1, Laplace", "L2, Gaussian, as the device's list")
    print(f"\none vector of {DIMENSION:,} coordinates, sigma {gaussian.noise_variance**0.5:.0f} steps:")
    for name, seconds in zip(names, figures, strict=True):
        print(f"  {name}: {seconds * 1e3:.0f} ms ({DIMENSION / seconds / 1e6:.1f} M coordinates/s)")


# --- a masked vector of a million elements -----------------------------------------------------------


BOUNDS = {32: 500_000, 64: 1 << 40}
"""Of a Gaussian metric at epsilon 1, and of one behind far more noise."""


def million_rules(bits: int) -> RoundRules:
    return rules(DIMENSION, min_size=50, bound=BOUNDS[bits], corrupt="0.1", dropout="0.1")


def recorded_round(bits: int, monkeypatch: pytest.MonkeyPatch) -> list[CollectorMessage]:
    """All that member 0 of a round of 101 is told. Nobody masks meanwhile: only the sum would tell."""
    shared = array("q", [1, -1] * (DIMENSION // 2))
    with monkeypatch.context() as patch:
        patch.setattr(participant, "_checked_vector", lambda vector, rules: shared)
        patch.setattr(masking, "add_masks", lambda vector, masks: None)
        fleet = Fleet([[]] * (NEIGHBOURS + 1), million_rules(bits))
        messages = fleet.join()
        for _ in STEPS:
            for index, message in messages.items():
                for reply in fleet.tell(index, message):
                    fleet.round.receive(index, reply)
                fleet.sent.clear()
            messages = fleet.round.close()
    receipt = Receipt(fleet.round_id, len(fleet.round.survivors), fleet.round.size)
    assert fleet.round.bits == bits
    return [*(message for index, message in fleet.received if index == 0), receipt]


@pytest.mark.parametrize("bits", BOUNDS)
def test_client_round(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = recorded_round(bits, monkeypatch)
    packed = pack_vector([1, -1] * (DIMENSION // 2), BOUNDS[bits])  # as it lies in the spool
    seeds = [os.urandom(32) for _ in range(NEIGHBOURS + 1)]

    def client_round() -> list[ParticipantMessage]:
        (member,) = Fleet([unpack_array(packed)], million_rules(bits)).participants
        sent: list[ParticipantMessage] = [member.hello()]
        for message in told:
            sent.extend(member.receive(message, 0.0))
        assert member.outcome is not None
        return sent

    def without_masks() -> None:
        """All that does not grow with the vector: keys, shares, signatures; and the vector's way in and out."""
        with monkeypatch.context() as patch:
            patch.setattr(masking, "add_masks", lambda vector, masks: None)
            client_round()

    def plain_floor() -> None:
        """Keystreams of the self-mask and of 100 pairwise masks over the vector, and their additions, straight on."""
        ring, zeros = np.zeros(DIMENSION, f"<u{bits // 8}"), bytes(DIMENSION * bits // 8)
        for i, seed in enumerate(seeds):
            stream = Cipher(AES(seed), CTR(bytes(16))).encryptor().update(zeros)
            (np.add if i % 2 else np.subtract)(ring, np.frombuffer(stream, ring.dtype), out=ring)

    def blocked_floor() -> None:
        """The same by our own loop, which stays in the cache."""
        masking.add_masks(masking.zero_ring(DIMENSION, bits), [(seed, 1) for seed in seeds])

    pieces = [message for message in client_round() if isinstance(message, MaskedInputPiece)]
    assert sum(len(piece.data) for piece in pieces) == DIMENSION * bits // 8
    assert all(len(participant_message_to_wire(piece)) < MAX_PARTICIPANT_MESSAGE_BYTES for piece in pieces)
    whole, rest, plain, blocked = best(client_round, without_masks, plain_floor, blocked_floor, turns=TURNS)
    print(f"\nclient round, {DIMENSION:,} elements of {bits} bits, {NEIGHBOURS} neighbours, every signature verified,")
    print(f"{len(pieces)} pieces of at most {PIECE_BYTES // 1024} KiB: {whole * 1e3:.0f} ms CPU (reach: <= 1.5 x)")
    print(f"  keystream and additions, straight on: {plain * 1e3:.0f} ms: {whole / plain:.2f} x")
    print(f"  keystream and additions by our own loop: {blocked * 1e3:.0f} ms: {whole / blocked:.2f} x")
    print(f"  all but the masks: {rest * 1e3:.0f} ms")


def test_report_bytes() -> None:
    report = VectorGaussian(DIMENSION, Decimal(1), Decimal(1)).perturb([0.0] * DIMENSION, os.urandom)
    bound = 500_000
    start = process_time()
    packed = pack_vector(report, bound)
    middle = process_time()
    assert unpack_vector(packed) == report
    print(f"\na report of {DIMENSION:,} elements: {len(packed) / 1e6:.1f} MB in the spool, packed in ", end="")
    print(f"{(middle - start) * 1e3:.0f} ms, unpacked in {(process_time() - middle) * 1e3:.0f} ms CPU")
