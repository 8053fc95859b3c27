"""The scalar samplers' complete laws, layer by layer: bytes -> finite choices -> exp(-g) -> discrete Laplace."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from client_sdk import sampling
from tests.branching import DIGITS, Choose, complete_law
from tests.entropy import OutOfScript, Scripted, Untouched, seeded

EXACT = Decimal("1e-42")


def close(a: Decimal, b: Decimal, tolerance: Decimal = EXACT) -> bool:
    return abs(a - b) <= tolerance


@pytest.fixture(autouse=True)
def precise() -> Iterator[None]:
    with localcontext(Context(prec=DIGITS)):
        yield


@cache
def exp_minus(gamma: Fraction) -> Decimal:
    with localcontext(Context(prec=DIGITS)):
        return (Decimal(-gamma.numerator) / Decimal(gamma.denominator)).exp()


# --- bytes -> finite choices: every possible draw is tried ------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 7, 10, 15, 16, 100, 128, 129, 255, 256])
def test_uniform_below_gives_each_value_equally_many_of_all_bytes(n: int) -> None:
    accepted: Counter[int] = Counter()
    rejected = 0
    for byte in range(256):
        try:
            accepted[sampling.uniform_below(n, Scripted(bytes([byte])))] += 1
        except OutOfScript:
            rejected += 1
    assert set(accepted) == set(range(n))
    assert len(set(accepted.values())) == 1
    assert rejected + sum(accepted.values()) == 256
    assert rejected < 128, "fewer than half of the draws are thrown away"


@pytest.mark.parametrize("n", [257, 1000, 65535, 65536])
def test_uniform_below_two_bytes(n: int) -> None:
    accepted: Counter[int] = Counter()
    for pair in range(65536):
        try:
            accepted[sampling.uniform_below(n, Scripted(pair.to_bytes(2, "big")))] += 1
        except OutOfScript:
            continue
    assert set(accepted) == set(range(n))
    assert len(set(accepted.values())) == 1


def test_uniform_below_draws_again_after_a_rejection() -> None:
    entropy = Scripted(b"\xff", b"\xff", b"\x00")
    assert sampling.uniform_below(3, entropy) == 0
    assert entropy.asked == [1, 1, 1]


def test_uniform_below_one_needs_no_entropy_and_zero_is_refused() -> None:
    assert sampling.uniform_below(1, Untouched()) == 0
    with pytest.raises(ValueError, match="n must be at least 1"):
        sampling.uniform_below(0, Untouched())


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 1), (1, 2), (1, 3), (5, 7), (249, 250)])
def test_bernoulli_is_exact_over_all_draws(numerator: int, denominator: int) -> None:
    """Eight bytes below the probability's first 64 bits say yes, those above no, those alike go on with the rest."""
    probability = Fraction(numerator, denominator)
    whole = numerator * 2**64 // denominator
    for word in {0, whole - 1, whole + 1, 2**64 - 1} - {whole, -1, 2**64, 2**64 + 1}:
        assert sampling.bernoulli(probability, Scripted(word.to_bytes(8, "big"))) is (word < whole)
    if whole == 2**64:
        return
    outcomes: Counter[bool] = Counter()
    for byte in range(256) if denominator > 1 else (None,):
        pieces = [whole.to_bytes(8, "big")] + ([] if byte is None else [bytes([byte])])
        try:
            outcomes[sampling.bernoulli(probability, Scripted(*pieces))] += 1
        except OutOfScript:
            continue
    assert (whole + Fraction(outcomes[True], sum(outcomes.values()))) / 2**64 == probability


def test_bernoulli_refuses_what_is_no_probability() -> None:
    for bad in (Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            sampling.bernoulli(bad, Untouched())


@pytest.mark.parametrize("numerator", [0, 1, 2**63, 12345678901234567890, 2**64 - 1, 2**64])
def test_bernoulli_2_64_compares_one_64_bit_integer(numerator: int) -> None:
    for drawn in {0, max(numerator - 1, 0), min(numerator, 2**64 - 1), min(numerator + 1, 2**64 - 1), 2**64 - 1}:
        assert sampling.bernoulli_2_64(numerator, Scripted(drawn.to_bytes(8, "big"))) is (drawn < numerator)


def test_bernoulli_2_64_refuses_numerators_out_of_range() -> None:
    for bad in (-1, 2**64 + 1):
        with pytest.raises(ValueError, match="2\\^64"):
            sampling.bernoulli_2_64(bad, Untouched())


def test_a_source_that_returns_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match="instead of"):
        sampling.uniform_below(1000, lambda size: b"\x00")
    with pytest.raises(ValueError, match="instead of"):
        sampling.bernoulli_2_64(1, lambda size: b"")


# --- finite choices -> exp(-gamma) ----------------------------------------------------------------------


def branching_ratio(choose: Choose):  # type: ignore[no-untyped-def]
    """`_bernoulli_ratio`, whose law the tests above give, as a choice between its two outcomes."""

    def ratio(numerator: int, denominator: int, entropy: object) -> bool:
        p = Decimal(numerator) / Decimal(denominator)
        return choose([1 - p, p]) == 1

    return ratio


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_bernoulli_exp_complete_law(gamma: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(choose: Choose) -> bool:
        monkeypatch.setattr(sampling, "_bernoulli_ratio", branching_ratio(choose))
        return sampling.bernoulli_exp(gamma, Untouched())

    law, missing = complete_law(run, Decimal("1e-46"))
    assert missing < EXACT
    assert close(law.get(True, Decimal(0)), exp_minus(gamma))
    assert close(law.get(False, Decimal(0)), 1 - exp_minus(gamma))


def test_bernoulli_exp_refuses_a_negative_gamma() -> None:
    with pytest.raises(ValueError, match="negative"):
        sampling.bernoulli_exp(Fraction(-1), Untouched())


# --- exp(-gamma) -> geometric -> discrete Laplace ------------------------------------------------------


def branching_samplers(choose: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers below, by the laws that the tests above give."""

    def uniform_below(n: int, entropy: object) -> int:
        return choose([1 / Decimal(n)] * n)

    def bernoulli_exp(gamma: Fraction, entropy: object) -> bool:
        p = exp_minus(gamma)
        return choose([1 - p, p]) == 1

    monkeypatch.setattr(sampling, "uniform_below", uniform_below)
    monkeypatch.setattr(sampling, "bernoulli_exp", bernoulli_exp)


SCALES = [Fraction(1), Fraction(7, 2), Fraction(1, 3), Fraction(20, 7), Fraction(12)]


def geometric_law(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> dict[int, Decimal]:
    """Law of `geometric`: one attempt, given that it was not thrown away (the loop around it draws until then)."""

    def run(choose: Choose) -> int | None:
        branching_samplers(choose, monkeypatch)
        return sampling.geometric_attempt(scale.numerator, scale.denominator, Untouched())

    law, missing = complete_law(run, Decimal("1e-44"))
    assert missing < Decimal("1e-42")
    accepted = 1 - law.pop(None, Decimal(0))
    return {outcome: mass / accepted for outcome, mass in law.items() if outcome is not None}


@pytest.mark.parametrize("scale", SCALES)
def test_geometric_complete_law(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    law = geometric_law(scale, monkeypatch)
    r = exp_minus(1 / scale)
    assert len(law) > 30
    for outcome, mass in law.items():
        assert close(mass, (1 - r) * r**outcome, Decimal("1e-41"))


@pytest.mark.parametrize("scale", SCALES)
def test_discrete_laplace_complete_law(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    magnitudes = geometric_law(scale, monkeypatch)
    law: dict[int, Decimal] = {}
    for magnitude, mass in magnitudes.items():

        def run(choose: Choose, magnitude: int = magnitude) -> int | None:
            branching_samplers(choose, monkeypatch)
            return sampling.signed(magnitude, Untouched())

        for outcome, share in complete_law(run)[0].items():
            if outcome is not None:
                law[outcome] = law.get(outcome, Decimal(0)) + mass * share
    total = sum(law.values())
    r = exp_minus(1 / scale)
    for outcome, mass in law.items():
        assert close(mass / total, (1 - r) / (1 + r) * r ** abs(outcome), Decimal("1e-40"))
    assert {-1, 0, 1} <= set(law)


def test_the_loops_draw_again_what_an_attempt_threw_away(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = iter([None, None, 0, 5])
    monkeypatch.setattr(sampling, "geometric_attempt", lambda *_: next(attempts))
    signs = iter([1, 1])  # the first meets magnitude 0: minus zero is thrown away with its magnitude
    monkeypatch.setattr(sampling, "uniform_below", lambda *_: next(signs))
    assert sampling.discrete_laplace(Fraction(3), Untouched()) == -5


def test_scales_must_be_positive() -> None:
    for bad in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="positive"):
            sampling.discrete_laplace(bad, Untouched())


# --- the whole, from bytes: a sanity check, not the proof --------------------------------------------------


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(1000, 7), Fraction(1, 20)])
def test_discrete_laplace_from_bytes(scale: Fraction) -> None:
    entropy = seeded(f"scalar {scale}")
    n = 4000
    draws = [sampling.discrete_laplace(scale, entropy) for _ in range(n)]
    r = float(exp_minus(1 / scale))
    variance = 2 * r / (1 - r) ** 2
    fourth = 12 * variance**2 + variance  # of a Laplace twice over: generous for the error of a variance
    assert abs(sum(draws)) <= 5 * (n * variance) ** 0.5
    assert abs(sum(x * x for x in draws) - n * variance) <= 5 * (n * fourth) ** 0.5
    assert abs(draws.count(0) / n - (1 - r) / (1 + r)) < 0.03


def test_sampling_imports_nothing_beyond_integers_and_fractions() -> None:
    tree = ast.parse(Path(sampling.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert modules == {"__future__", "fractions", "math", "typing", "client_sdk.mechanisms"}, "math: isqrt"
