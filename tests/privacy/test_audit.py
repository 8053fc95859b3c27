"""The black-box audit convicts what leaks, each for its own reason, and never what keeps its claim.

Every source of randomness is seeded: these are fixed runs, each either convicts or does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from math import comb, exp, log
from typing import Any, cast

import numpy as np
import pytest

from client_sdk.mechanisms import Entropy, Mechanism, Value
from client_sdk.mechanisms.laplace import Laplace
from client_sdk.mechanisms.memoized import Memoized, MemoizedResponse
from client_sdk.mechanisms.memoized_unary import MemoizedUnary
from client_sdk.mechanisms.randomized_response import RandomizedResponse
from client_sdk.plan import parse_plan
from client_sdk.sampling import discrete_laplace
from client_sdk.sampling_vectorised import Keystream
from collector.audit import (
    Evidence,
    MetricAudit,
    audit_mechanism,
    audit_metrics,
    audit_sampler,
    exact_epsilon,
    ratio_holds,
)
from collector.audit.binomial import lower_bound, upper_bound
from collector.audit.draws import Draw, in_bulk, one_by_one
from tests.entropy import seeded

D = Decimal
SAMPLES = 40_000
ABC = ("a", "b", "c")
ONE = D(1)

Rows = np.ndarray[Any, Any]


def stream(label: str) -> Entropy:
    """Fast and fixed."""
    return Keystream(seeded(label))


def simulated(rows: Callable[[int, np.random.Generator, int], Rows]) -> Draw:
    """A sampler for tests: `rows(place of the input, generator, n)` -> n reports."""

    def draw(inputs: Sequence[Value], n: int) -> list[Rows]:
        generator = np.random.default_rng(5)
        return [rows(place, generator, n) for place in range(len(inputs))]

    return draw


def one_hot(answers: Rows, k: int) -> Rows:
    return np.eye(k, dtype=np.int64)[answers]


# --- samplers that leak ------------------------------------------------------------------------------------


def a_true_bit_is_never_cleared(place: int, generator: np.random.Generator, n: int) -> Rows:
    """Bits that lie only one way: one missing bit excludes its category for sure."""
    bits = (generator.random((n, 8)) < 1 / (exp(0.5) + 1)).astype(np.int64)
    bits[:, place] = 1
    return bits


def a_lie_is_drawn_over_all_categories(place: int, generator: np.random.Generator, n: int) -> Rows:
    """The truth is kept with the right probability, and told once more among the lies."""
    k = 3
    keep = generator.random(n) < exp(1) / (exp(1) + k - 1)
    return one_hot(np.where(keep, place, generator.integers(0, k, n)), k)


def a_subset_whose_order_leaks(place: int, generator: np.random.Generator, n: int) -> Rows:
    """Size and probabilities are right; the true category, where it is in, comes first."""
    k, w = 16, 4
    keys = generator.random((n, k))
    kept = generator.random(n) < w * exp(1) / (w * exp(1) + k - w)
    keys[:, place] = np.where(kept, -1.0, 2.0)
    return np.argsort(keys, axis=1)[:, :w]


def the_subset_in_order(place: int, generator: np.random.Generator, n: int) -> Rows:
    """The same sampler, sorted before it is sent: keeps its claim."""
    return np.sort(a_subset_whose_order_leaks(place, generator, n), axis=1)


def the_noise_is_clamped(place: int, generator: np.random.Generator, n: int) -> Rows:
    """Beyond an input's largest output there is nothing, and another input gets there."""
    r = exp(-1 / 100)
    noise = generator.geometric(1 - r, n) - generator.geometric(1 - r, n)
    return (place * 50 + np.clip(noise, -100, 100)).reshape(-1, 1)


def numbers_are_not_clipped(place: int, generator: np.random.Generator, n: int) -> Rows:
    """The last input lies far beyond the range that the noise was made for."""
    r = exp(-1 / 100)
    noise = generator.geometric(1 - r, n) - generator.geometric(1 - r, n)
    return (noise + (0, 50, 100, 200)[place]).reshape(-1, 1)


def low_bits_of_a_float(place: int, generator: np.random.Generator, n: int) -> Rows:
    """Laplace noise added in floats: whether the sum lies on a grid of 2^-53 depends on the input."""  # case A05
    noisy = float(place) + generator.laplace(0.0, 1.0 * 2, n)
    return np.stack([np.floor(noisy).astype(np.int64), (noisy * 2.0**53 % 1 != 0).astype(np.int64)], axis=1)


def two_cells_at_full_epsilon(place: int, generator: np.random.Generator, n: int) -> Rows:
    """Each cell alone keeps epsilon; both together cost twice."""
    lie = generator.random((n, 2)) >= exp(1) / (exp(1) + 1)
    return np.asarray((place > 0) ^ lie, np.int64)


def many_cells_at_a_little(place: int, generator: np.random.Generator, n: int) -> Rows:
    """No cell and no pair of cells says much; their sum of evidence does: 24 cells of epsilon 1/4 for a claim of 1."""
    signs = np.random.default_rng(9).integers(0, 2, 24)
    lie = generator.random((n, 24)) >= exp(0.25) / (exp(0.25) + 1)
    return np.asarray((signs ^ (place > 0)) ^ lie, np.int64)


def epsilon_is_a_little_more(place: int, generator: np.random.Generator, n: int) -> Rows:
    """1.15 where 1 is claimed."""
    keep = generator.random(n) < exp(1.15) / (exp(1.15) + 1)
    return np.where(keep, place, 1 - place).reshape(-1, 1)


BROKEN: list[tuple[Callable[..., Rows], int, float]] = [
    (a_true_bit_is_never_cleared, 3, 2.5),
    (a_lie_is_drawn_over_all_categories, 3, 1.5),
    (a_subset_whose_order_leaks, 3, 2.0),
    (the_noise_is_clamped, 3, 1.5),
    (numbers_are_not_clipped, 4, 1.7),
    (low_bits_of_a_float, 2, 2.5),
    (two_cells_at_full_epsilon, 2, 1.8),
    (many_cells_at_a_little, 2, 1.3),
    (epsilon_is_a_little_more, 2, 1.05),
]


@pytest.mark.parametrize(("rows", "inputs", "at_least"), BROKEN, ids=lambda case: getattr(case, "__name__", ""))
def test_a_broken_sampler_is_convicted(rows: Callable[..., Rows], inputs: int, at_least: float) -> None:
    evidence = audit_sampler(simulated(rows), range(inputs), samples=SAMPLES)
    assert evidence.convicts(ONE)
    assert evidence.lower_bound > at_least
    assert evidence.event


def test_the_same_subset_in_order_is_not_convicted() -> None:
    evidence = audit_sampler(simulated(the_subset_in_order), range(3), samples=SAMPLES)
    assert not evidence.convicts(ONE)
    assert evidence.lower_bound > 0.4


def test_evidence_names_what_told() -> None:
    evidence = audit_sampler(simulated(a_true_bit_is_never_cleared), ABC, samples=SAMPLES)
    assert evidence.event in {f"cell {place} = 0" for place in range(3)}
    assert ABC.index(str(evidence.unlikely)) == int(evidence.event[5])
    assert evidence.likely in set(ABC) - {evidence.unlikely}


# --- any callable, one report at a time --------------------------------------------------------------------


def test_order_counts_in_a_callable() -> None:
    """The first of two cells is the truth, where it is in; as a set the two say little."""
    generator = np.random.default_rng(3)

    def report(value: Value) -> tuple[int, ...]:
        truth = ABC.index(str(value))
        if generator.random() < 0.75:
            return truth, (truth + int(generator.integers(1, 3))) % 3
        return (truth + 1) % 3, (truth + 2) % 3

    ordered = audit_sampler(one_by_one(report), ABC, samples=8_000)
    unordered = audit_sampler(one_by_one(lambda value: sorted(report(value))), ABC, samples=8_000)
    assert ordered.lower_bound > 1.5
    assert unordered.lower_bound < 1.1


def test_a_length_that_tells() -> None:
    """A device without a reading that sends nothing has told just that."""
    evidence = audit_sampler(one_by_one(lambda v: () if v is None else (0,)), (1.0, None), samples=2_000)
    assert evidence.convicts(D(4))


def test_a_shipped_sampler_one_by_one() -> None:
    mech = RandomizedResponse(ABC, D("2"))
    draw = one_by_one(lambda value: mech.perturb(value, stream(f"single {value}")))
    constant = audit_sampler(draw, ABC, samples=2_000)
    assert constant.convicts(D(3)), "the same entropy for every report of one input: no noise at all"


# --- samplers that ship ------------------------------------------------------------------------------------

PLAN = """
[plan]
name = "audited"
version = 1
period = "1d"
[cohort]
min_size = 10
target_size = 20
[budget]
lifetime = 10000
"""


def metric(kind: str, mechanism: str, epsilon: str, more: str = "") -> str:
    shape = 'categories = ["a", "b", "c", "d", "e", "f", "g"]\nother = "other"'
    if kind != "categorical":
        shape = "lower = -5\nupper = 20" + ("\nbins = 8" if kind in ("histogram", "quantiles") else "")
    name = f"{kind}_{mechanism}_{epsilon}".replace(".", "_") + ("_optional" if "optional" in more else "")
    lines = [f"[metrics.{name}]", f'kind = "{kind}"', f'mechanism = "{mechanism}"', f"epsilon = {epsilon}", shape]
    return "\n".join([*lines, *(['on_device = "last"'] if kind != "categorical" else []), more, ""])


MEMOIZED = "memoize = true\nepsilon_inf = {}\nmax_distinct = 3"


def vector(norm: str, epsilon: str, dimension: int) -> str:
    lines = [
        f"[metrics.vector_{norm}_{dimension}]",
        'kind = "vector"',
        f"dimension = {dimension}",
        f"epsilon = {epsilon}",
    ]
    return "\n".join([*lines, "clip = 3", "levels = 64", f'norm = "{norm}"', "delta = 1e-6\n" if norm == "l2" else ""])


SHIPPED = [
    metric("categorical", "randomized_response", "0.5"),
    metric("categorical", "randomized_response", "4"),
    metric("categorical", "symmetric_unary", "1"),
    metric("categorical", "optimized_unary", "2"),
    metric("categorical", "subset_selection", "1", "optional = true"),
    metric("categorical", "hadamard", "2"),
    metric("numeric", "laplace", "2"),
    metric("numeric", "one_bit", "0.5"),
    metric("numeric", "piecewise", "1"),
    metric("numeric", "hybrid", "2"),
    metric("numeric", "laplace", "2", "optional = true"),
    metric("numeric", "hybrid", "2", "optional = true"),
    metric("histogram", "square_wave", "1"),
    metric("histogram", "optimized_unary", "1"),
    metric("quantiles", "subset_selection", "1"),
    metric("categorical", "randomized_response", "1.5", MEMOIZED.format(3)),
    metric("categorical", "optimized_unary", "1.5", MEMOIZED.format(3)),
    vector("l1", "2", 3),
    vector("l2", "2", 20),
]


@pytest.mark.parametrize("text", SHIPPED, ids=lambda text: text.split("]")[0].removeprefix("[metrics."))
def test_a_shipped_mechanism_is_not_convicted(text: str) -> None:
    plan = parse_plan(PLAN + text)
    audit, *of_all_reports = audit_metrics(list(plan.metrics.values()), stream(text), samples=10_000)
    assert all(other.passed for other in of_all_reports)
    assert audit.exact_holds
    assert audit.exact <= float(audit.claimed) + 1e-15
    assert audit.passed
    bulk, single = audit.samplers
    assert (bulk.sampler, single.sampler) == ("perturb_many", "perturb")
    wide = audit.name.endswith("_20")
    seen = 0.1 if audit.name.startswith("vector") else 0.25  # of a vector mostly one coordinate at a time
    assert bulk.evidence.lower_bound > seen * float(audit.claimed), "the audit sees much of what there is"
    assert single.evidence.samples == (313 if wide else 1_000)


@pytest.mark.parametrize("more", ["", 'mechanism = "optimized_unary"\nlevels = 2\noptional = true\n'])
def test_a_sliced_number_is_not_convicted(more: str) -> None:
    text = metric("numeric", "laplace", "2").replace('mechanism = "laplace"\n', more)
    network = (
        '[metrics.network]\nkind = "categorical"\ncategories = ["a", "b"]\nother = "c"\noptional = true\nepsilon = 1\n'
    )
    plan = parse_plan(PLAN + text + 'slice_by = "network"\n' + network)
    sliced = plan.metrics["numeric_laplace_2"]
    (audit,) = audit_metrics([sliced], stream(text), samples=15_000)
    assert audit.passed
    assert audit.exact_holds
    assert audit.exact == pytest.approx(2.0, abs=1e-9)
    assert audit.samplers[0].evidence.lower_bound > 0.5


def test_a_slice_told_beside_the_number_is_convicted() -> None:
    """Both at the whole of epsilon: together they cost twice."""
    plan = parse_plan(PLAN + metric("categorical", "randomized_response", "2") + metric("numeric", "one_bit", "2"))
    slice_, number = (
        plan.metrics[name].mechanism for name in ("categorical_randomized_response_2", "numeric_one_bit_2")
    )

    def beside(value: Value) -> list[int]:
        category, reading = cast("tuple[Value, Value]", value)
        return [*slice_.perturb(category, drawn), *number.perturb(reading, drawn)]

    drawn = stream("beside")
    pairs: list[Any] = [("a", -5.0), ("b", 20.0)]
    assert audit_sampler(one_by_one(beside), pairs, samples=6_000).convicts(D(2))


class Retold:
    """A mechanism whose samplers, or whose claim, are not those of another."""

    def __init__(self, inner: Mechanism, **replaced: object) -> None:
        self._inner, self._replaced = inner, replaced

    def __getattr__(self, name: str) -> Any:
        replaced = self.__dict__["_replaced"]
        return replaced[name] if name in replaced else getattr(self.__dict__["_inner"], name)


def test_the_bulk_sampler_alone_is_broken() -> None:
    """Both samplers ship, so both are audited: here `perturb_many` draws at another epsilon than `perturb`."""
    honest, loud = (RandomizedResponse(ABC, D(e)) for e in ("1", "1.5"))
    audit = audit_mechanism(Retold(honest, perturb_many=loud.perturb_many), ABC, stream("bulk"), samples=SAMPLES)
    assert [sampler.passed for sampler in audit.samplers] == [False, True]
    assert not audit.passed
    audit = audit_mechanism(Retold(honest, perturb=loud.perturb), ABC, stream("one"), samples=SAMPLES)
    assert [sampler.passed for sampler in audit.samplers] == [True, False]


def test_the_noise_of_a_shipped_sampler_is_clamped_instead_of_its_output() -> None:
    mech = Laplace(D(0), D(1), D(2), levels=20)

    def perturb(value: Value, entropy: Entropy) -> list[int]:
        noise = discrete_laplace(mech.scale, entropy)
        return [mech.encode(value, entropy) + min(max(noise, -20), 20)]

    audit = audit_mechanism(Retold(mech, perturb=perturb), (0.0, 0.5, 1.0), stream("clamped"), samples=SAMPLES)
    assert [sampler.passed for sampler in audit.samplers] == [True, False]


def test_a_claim_below_the_mechanisms_own() -> None:
    mech = RandomizedResponse(ABC, D(2))
    audit = audit_mechanism(mech, ABC, stream("claim"), samples=SAMPLES, epsilon=D(1))
    assert not audit.exact_holds
    assert not any(sampler.passed for sampler in audit.samplers)


# --- memoised metrics: all reports of one value -------------------------------------------------------------

MEMO = "memoize = true\nepsilon_inf = 3\nmax_distinct = 2"


def audited(text: str, label: str, samples: int = SAMPLES) -> list[MetricAudit]:
    metrics = list(parse_plan(PLAN + text).metrics.values())
    return list(audit_metrics(metrics, stream(label), samples=samples))


@pytest.mark.parametrize("law", ["randomized_response", "optimized_unary"])
def test_a_memoised_metric_has_a_second_claim(law: str) -> None:
    """One report keeps epsilon, any number of one value's reports epsilon_inf: what the permanent answer tells."""
    one, every = audited(metric("categorical", law, "1", MEMO), law)
    assert (one.title, every.title) == (one.name, f"{one.name}, all reports")
    assert (one.claimed, every.claimed) == (D(1), D(3))
    assert (one.all_reports, every.all_reports) == (False, True)
    assert one.passed
    assert every.passed
    assert every.exact == pytest.approx(3, abs=1e-9)
    (sampler,) = every.samplers
    assert sampler.sampler == "permanent"
    assert sampler.evidence.lower_bound > 2.0, "the audit sees much of what there is"


def a_permanent_answer_at_another_epsilon(self: Memoized, code: int, entropy: Entropy) -> int:
    """Of the integers of epsilon_inf 6, where 3 is claimed."""
    return SHIPPED_PERMANENT[type(self)](louder(self), code, entropy)


@cache
def louder(mech: Memoized) -> Memoized:
    return type(mech)(mech.categories, mech.epsilon, mech.other, mech.optional, epsilon_inf=D(6), max_distinct=2)


def the_truth(self: Memoized, code: int, entropy: Entropy) -> int:
    """No permanent round at all."""
    return code if self.name == "randomized_response" else 1 << code


SHIPPED_PERMANENT = {kind: kind.permanent for kind in (MemoizedResponse, MemoizedUnary)}


@pytest.mark.parametrize("kind", SHIPPED_PERMANENT)
@pytest.mark.parametrize("broken", [a_permanent_answer_at_another_epsilon, the_truth])
def test_permanent_answers_that_leak_are_convicted(
    kind: type[Memoized], broken: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One report may keep its claim meanwhile: its own noise hides what a hundred reports of the value tell."""
    monkeypatch.setattr(kind, "permanent", broken)
    law = "randomized_response" if kind is MemoizedResponse else "optimized_unary"
    one, every = audited(metric("categorical", law, "0.1", MEMO), "leaking permanent answers", 6_000)
    assert one.passed
    assert not every.passed
    assert every.exact_holds, "of the integers nothing is wrong, but of what is drawn"
    assert every.samplers[0].evidence.lower_bound > 3.0


@pytest.mark.parametrize("kind", SHIPPED_PERMANENT)
def test_integers_of_the_permanent_round_above_the_claim(kind: type[Memoized], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = kind._first_numerator
    monkeypatch.setattr(kind, "_first_numerator", lambda self: honest(self) + 1)
    law = "randomized_response" if kind is MemoizedResponse else "optimized_unary"
    _, every = audited(metric("categorical", law, "1", MEMO), "one unit", 400)
    assert not every.exact_holds
    assert not every.passed


def test_the_audits_share_alpha(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    def told(*_: object, alpha: float, **__: object) -> Evidence:
        shares.append(alpha)
        return Evidence(0.0, 16)

    monkeypatch.setattr("collector.audit.audit_sampler", told)
    both = metric("categorical", "randomized_response", "1", MEMO) + metric("numeric", "laplace", "1")
    metrics = list(parse_plan(PLAN + both).metrics.values())
    assert len(list(audit_metrics(metrics, stream("shares"), samples=16, alpha=0.3))) == 3
    assert sum(shares) == pytest.approx(0.3)
    assert shares == pytest.approx([0.05, 0.05, 0.1, 0.05, 0.05])
    assert list(audit_metrics([], stream("none"), samples=16)) == []


# --- no false convictions ----------------------------------------------------------------------------------


def upper_tail(count: int, n: int, p: Fraction) -> Fraction:
    return sum((comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(count, n + 1)), Fraction(0))


@pytest.mark.parametrize("alpha", [0.2, 1e-3, 1e-9])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_bounds_against_the_exact_binomial_law(n: int, alpha: float) -> None:
    """At the bound the count's tail is at most alpha, and a hair above it more: Clopper and Pearson's, exactly."""
    for count in range(1, n + 1):
        bound = lower_bound(count, n, alpha)
        assert upper_tail(count, n, Fraction(bound)) <= Fraction(alpha)
        assert upper_tail(count, n, Fraction(bound) * Fraction(100001, 100000)) > Fraction(alpha)
        assert upper_bound(n - count, n, alpha) == 1.0 - bound
    assert lower_bound(0, n, alpha) == 0.0
    assert upper_bound(n, n, alpha) == 1.0


@pytest.mark.parametrize(("count", "n"), [(3, 100_000), (50_000, 100_000), (99_990, 100_000), (700, 1_000_000)])
def test_bounds_of_many(count: int, n: int) -> None:
    """The tail at the bound, summed term by term in logarithms, far beyond where the sum is cut."""
    from math import fsum, lgamma

    for alpha in (0.05, 1e-10):
        p = lower_bound(count, n, alpha)
        top = min(n, count + 40_000)
        terms = (
            lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * log(p) + (n - i) * np.log1p(-p)
            for i in range(count, top + 1)
        )
        assert fsum(map(exp, terms)) == pytest.approx(alpha, rel=1e-4)


@pytest.mark.parametrize(("count", "n", "alpha"), [(1, 0, 0.1), (-1, 5, 0.1), (6, 5, 0.1), (1, 5, 0.0), (1, 5, 0.3)])
def test_bounds_refuse_what_is_no_count(count: int, n: int, alpha: float) -> None:
    with pytest.raises(ValueError, match="no bound"):
        lower_bound(count, n, alpha)


@pytest.mark.parametrize(
    ("mech", "inputs", "audits"),
    [
        (RandomizedResponse(("a", "b"), ONE), ("a", "b"), 60),
        (RandomizedResponse(tuple("abcdefgh"), ONE), ("a", "d", "h"), 15),
        (Laplace(D(0), D(1), ONE, levels=4), (0.0, 0.5, 1.0), 30),
    ],
)
def test_false_convictions_stay_below_alpha(mech: Mechanism, inputs: Sequence[Value], audits: int) -> None:
    """Samplers exactly at their claim, alpha 0.2: at most a fifth of the audits may convict (here far fewer)."""
    draw = in_bulk(mech, stream("repeated"))
    found = [audit_sampler(draw, inputs, samples=800, alpha=0.2) for _ in range(audits)]
    assert sum(evidence.convicts(ONE) for evidence in found) <= 0.2 * audits
    assert max(evidence.lower_bound for evidence in found) > 0.6, "and the bounds come close"


def test_an_event_is_certified_on_reports_that_did_not_choose_it() -> None:
    """Reports of pure chance with as many outcomes as there are reports: whatever looked telling was luck.

    An audit that counted the choosing part again would convict here every time.
    """
    for seed in range(12):
        generator = np.random.default_rng(seed)
        found = audit_sampler(partial(chance, generator), ABC, samples=400, alpha=0.2)
        assert found.lower_bound < 0.5


def chance(generator: np.random.Generator, inputs: Sequence[Value], n: int) -> list[Rows]:
    """Reports that no input has any part in."""
    return [generator.integers(0, 3, (n, 12)) for _ in inputs]


# --- the exact check ---------------------------------------------------------------------------------------


def test_the_exact_check_tells_neighbouring_integers_apart() -> None:
    """One unit of 2^-64 more for the truth, and the ratio passes e^epsilon."""
    for k, epsilon in ((2, "1"), (4, "0.5"), (100, "3"), (3, "40"), (2, "0.000001")):
        mech = RandomizedResponse(tuple(f"c{i}" for i in range(k)), D(epsilon))
        more = Fraction(mech.keep + 1, 2**64)
        assert ratio_holds(mech.worst_ratio, D(epsilon))
        assert not ratio_holds(more * (k - 1) / (1 - more), D(epsilon))


def test_a_float_ratio_may_be_the_next_above() -> None:
    for epsilon in ("0.000001", "0.5", "1", "7.3", "40"):
        assert ratio_holds(Laplace(D(0), D(1), D(epsilon)).worst_ratio, D(epsilon))
        assert not ratio_holds(exp(float(epsilon)) * (1 + 1e-12), D(epsilon))


def test_exact_epsilon_is_rounded_up() -> None:
    assert exact_epsilon(Fraction(3)) == pytest.approx(log(3), abs=3e-16)
    assert D(exact_epsilon(Fraction(3))).exp() >= 3
    assert exact_epsilon(Fraction(1)) == 0.0
    assert exact_epsilon(Fraction(2**64 - 1)) == pytest.approx(64 * log(2))
