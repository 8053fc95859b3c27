"""The catalogue's part of the plan: words, `auto`, bins, quantiles, optional metrics, samples, names that are gone."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from client_sdk.errors import PlanError
from client_sdk.mechanisms.categories import ABSENT
from client_sdk.mechanisms.choice import cheapest
from client_sdk.plan import Metric, Plan, canonical_form, parse_plan
from client_sdk.plan.bins import equal_edges

ROOT = Path(__file__).resolve().parents[3]
HEAD = """
[plan]
name = "app-health"
version = 3
period = "1d"
{}
[cohort]
min_size = 50
target_size = 200
[budget]
lifetime = 365
"""
NUMBER = 'kind = "numeric"\nlower = 0\nupper = 5000\nepsilon = 1\n'
LABELS = 'kind = "categorical"\ncategories = ["a", "b", "c"]\nother = "rest"\nepsilon = 1\n'
HISTOGRAM = 'kind = "histogram"\nlower = 0\nupper = 10\nepsilon = 1\n'
QUANTILES = 'kind = "quantiles"\nlower = 0\nupper = 10\nepsilon = 1\n'


def text_of(*metrics: str, head: str = "") -> str:
    return HEAD.format(head) + "".join(f"[metrics.m{i}]\n{metric}\n" for i, metric in enumerate(metrics))


def plan_of(*metrics: str, head: str = "") -> Plan:
    return parse_plan(text_of(*metrics, head=head))


def metric_of(text: str) -> Metric:
    return plan_of(text).metrics["m0"]


def form(*metrics: str, head: str = "") -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(canonical_form(plan_of(*metrics, head=head)))
    return found


def problem(*metrics: str, head: str = "") -> str:
    with pytest.raises(PlanError) as caught:
        plan_of(*metrics, head=head)
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


WORDS = [
    *((NUMBER, word) for word in ("laplace", "one_bit", "piecewise", "hybrid")),
    *(
        (kind, word)
        for kind in (LABELS, HISTOGRAM, QUANTILES)
        for word in ("randomized_response", "symmetric_unary", "optimized_unary", "subset_selection", "hadamard")
    ),
    (HISTOGRAM, "square_wave"),
    (QUANTILES, "square_wave"),
]


@pytest.mark.parametrize(("kind", "word"), WORDS, ids=lambda part: part.split("\n")[0])
def test_every_word_is_built_and_named_in_the_canonical_form(kind: str, word: str) -> None:
    metric = metric_of(f'{kind}mechanism = "{word}"')
    assert (metric.mechanism.name, metric.chosen) == (word, False)
    assert metric.mechanism.epsilon == 1
    written = form(f'{kind}mechanism = "{word}"')["metrics"]["m0"]
    assert isinstance(written, dict)
    default = {NUMBER: "laplace", LABELS: "randomized_response"}.get(kind)
    assert written.get("mechanism") == (None if word == default else word)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (NUMBER, "randomized_response"),
        (NUMBER, "square_wave"),
        (LABELS, "laplace"),
        (LABELS, "square_wave"),
        (HISTOGRAM, "hybrid"),
        (QUANTILES, "one_bit"),
        (LABELS, "gaussian"),
        (LABELS, "magic"),
    ],
)
def test_a_word_of_another_kind_is_refused_with_those_that_fit(kind: str, word: str) -> None:
    found = problem(f'{kind}mechanism = "{word}"')
    assert found.startswith("metrics.m0.mechanism: ")
    assert ("laplace" if kind == NUMBER else "hadamard") in found


@pytest.mark.parametrize(
    ("metric", "word"),
    [
        (NUMBER + 'mechanism = "auto"', "hybrid"),
        (NUMBER.replace("epsilon = 1", "epsilon = 0.6") + 'mechanism = "auto"', "one_bit"),
        # three quarters of 0.8 are left for the value, which is below the crossover
        (NUMBER.replace("epsilon = 1", "epsilon = 0.8") + 'optional = true\nmechanism = "auto"', "one_bit"),
        (LABELS + 'mechanism = "auto"', "randomized_response"),
        (LABELS.replace('"c"]', '"c", "d", "e", "f", "g", "h", "i"]') + 'mechanism = "auto"', "subset_selection"),
        (HISTOGRAM, "subset_selection"),
        (HISTOGRAM + 'bins = 3\nmechanism = "auto"', "randomized_response"),
    ],
)
def test_auto_is_replaced_by_what_it_comes_to(metric: str, word: str) -> None:
    found = metric_of(metric)
    assert (found.mechanism.name, found.chosen) == (word, True)
    named = metric.replace('mechanism = "auto"', "") + f'\nmechanism = "{word}"'
    assert plan_of(named) == plan_of(metric)
    assert "auto" not in canonical_form(plan_of(metric))


def test_auto_counts_other_and_no_reading_as_labels() -> None:
    epsilon = Decimal("0.5")
    edge = next(k for k in range(2, 40) if cheapest(k, epsilon) != cheapest(k + 1, epsilon))
    labels = ", ".join(f'"c{i}"' for i in range(edge))
    text = f'kind = "categorical"\ncategories = [{labels}]\nepsilon = 0.5\nmechanism = "auto"\n'
    plain, more = metric_of(text), [metric_of(text + line) for line in ('other = "rest"', "optional = true")]
    assert plain.mechanism.name == cheapest(edge, epsilon)
    assert {metric.mechanism.name for metric in more} == {cheapest(edge + 1, epsilon)} != {plain.mechanism.name}


def test_auto_counts_no_reading_as_a_bin() -> None:
    epsilon = Decimal("0.5")
    edge = next(k for k in range(2, 40) if cheapest(k, epsilon) != cheapest(k + 1, epsilon))
    for kind in (HISTOGRAM, QUANTILES):
        text = kind.replace("epsilon = 1", "epsilon = 0.5") + f"bins = {edge}\n"
        assert metric_of(text).mechanism.name == cheapest(edge, epsilon)
        assert metric_of(text + "optional = true").mechanism.name == cheapest(edge + 1, epsilon)


# --- bins -------------------------------------------------------------------------------------------


def test_bins_of_equal_width_are_one_plan_however_they_are_written() -> None:
    by_number = HISTOGRAM + "bins = 4"
    by_edges = HISTOGRAM.replace("lower = 0\nupper = 10\n", "edges = [0, 2.5, 5.0, 7.50, 1e1]\n")
    assert plan_of(by_number) == plan_of(by_edges)
    assert form(by_edges)["metrics"]["m0"] == {
        "bins": 4, "epsilon": "1", "kind": "histogram", "lower": "0", "mechanism": "subset_selection", "upper": "10",
    } | {"mechanism": metric_of(by_number).mechanism.name}  # fmt: skip
    assert metric_of(HISTOGRAM).edges == tuple(Decimal(i) / 2 for i in range(21))
    assert form(HISTOGRAM) == form(HISTOGRAM + "bins = 20")


def test_other_edges_stand_as_they_are() -> None:
    metric = HISTOGRAM.replace("lower = 0\nupper = 10\n", "edges = [-1.50, 0, 10, 100]\ndefault = 7\n")
    assert form(metric)["metrics"]["m0"] == {
        "default": "7", "edges": ["-1.5", "0", "10", "100"], "epsilon": "1", "kind": "histogram",
        "mechanism": "randomized_response",
    }  # fmt: skip
    found = metric_of(metric)
    assert (found.lower, found.upper, found.default) == (Decimal("-1.5"), 100, 7)
    assert found.mechanism.labels == ("[-1.5, 0)", "[0, 10)", "[10, 100]")


@pytest.mark.parametrize(
    ("lower", "upper", "bins", "edges"),
    [
        ("0", "1", 3, "0 0.3333 0.6667 1"),
        ("0", "1", 4, "0 0.25 0.5 0.75 1"),
        ("-0.5", "1000", 7, "-0.5 142.4 285.4 428.3 571.2 714.1 857.1 1000"),
        ("0", "1e29", 3, "0 33333333333333333333333333333 66666666666666666666666666667 1e29"),
        ("1e-30", "7e-30", 3, "1e-30 3e-30 5e-30 7e-30"),
        ("0", "1e-30", 3, "0 3.333e-31 6.667e-31 1e-30"),
        ("0", "3", 2, "0 1.5 3"),
    ],
)
def test_equal_edges_are_exact_or_rounded_alike(lower: str, upper: str, bins: int, edges: str) -> None:
    assert equal_edges(Decimal(lower), Decimal(upper), bins) == tuple(map(Decimal, edges.split()))


def test_many_narrow_bins_stay_apart_and_in_the_hash() -> None:
    text = HISTOGRAM.replace("upper = 10", "upper = 7") + 'bins = 4096\nmechanism = "hadamard"'
    metric = metric_of(text)
    assert len(metric.edges) == 4097
    assert sorted(set(metric.edges)) == list(metric.edges)
    assert len(set(metric.mechanism.labels)) == 4096
    assert form(text)["metrics"]["m0"]["bins"] == 4096  # type: ignore[index]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("bins = 1", "bins"),
        ("bins = 4097", "bins"),
        ("bins = 2.0", "bins"),
        ("levels = 10", "levels"),
        ("edges = [0, 1]", "edges"),
        ("edges = [0, 1, 1]", "edges"),
        ("edges = [0, 2, 1]", "edges"),
        ("edges = [0, 1, inf]", "edges"),
        ('edges = [0, 1, "2"]', "edges"),
        ("edges = [0, 1, true]", "edges"),
        ("edges = 3", "edges"),
        ("quantiles = [0.5]", "quantiles"),
        ("presence_share = 0.5", "presence_share"),
        ('removed = ["[0, 5)"]', "removed"),
    ],
)
def test_faults_of_a_histogram(line: str, field: str) -> None:
    metric = HISTOGRAM.replace("lower = 0\nupper = 10\n", "") if "edges" in line else HISTOGRAM
    assert problem(metric + line).startswith(f"metrics.m0.{field}: ")


def test_edges_leave_nothing_to_the_ends() -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(HISTOGRAM + "bins = 2\nedges = [0, 1, 2]")
    assert [line.split(":")[0] for line in caught.value.problems] == [
        f"metrics.m0.{field}" for field in ("lower", "upper", "bins")
    ]


@pytest.mark.parametrize("bounds", [("0", "0"), ("3", "-3"), ("-1", "-1"), ("nan", "1")])
@pytest.mark.parametrize("kind", [HISTOGRAM, QUANTILES])
def test_degenerate_ranges_of_bins(kind: str, bounds: tuple[str, str]) -> None:  # case D08
    text = kind.replace("lower = 0", f"lower = {bounds[0]}").replace("upper = 10", f"upper = {bounds[1]}")
    assert problem(text).startswith("metrics.m0.lower: ")


def test_quantiles_have_a_default_that_is_left_out() -> None:
    word = 'mechanism = "subset_selection"\n'
    found = metric_of(QUANTILES + word)
    assert found.quantiles == (Decimal("0.5"), Decimal("0.9"), Decimal("0.99"))
    assert found.mechanism.labels == ("p50", "p90", "p99")
    assert form(QUANTILES + word) == form(QUANTILES + word + "quantiles = [0.50, 0.9, 0.990]")
    other = form(QUANTILES + word + "quantiles = [0.25, 0.999]")["metrics"]["m0"]
    assert other["quantiles"] == ["0.25", "0.999"]  # type: ignore[index]


@pytest.mark.parametrize("asked", ["[]", "[0, 0.5]", "[0.5, 1]", "[0.9, 0.5]", "[0.5, 0.5]", '["0.5"]', "0.5", "[nan]"])
def test_faults_of_quantiles(asked: str) -> None:
    assert problem(QUANTILES + f"quantiles = {asked}").startswith("metrics.m0.quantiles: ")


# --- optional ---------------------------------------------------------------------------------------


def test_an_optional_metric_has_no_default_and_a_place_for_no_reading() -> None:
    plan = plan_of(*(kind + "optional = true" for kind in (NUMBER, LABELS, HISTOGRAM, QUANTILES)))
    assert [metric.default for metric in plan.metrics.values()] == [None] * 4
    number, labels, histogram, quantiles = plan.metrics.values()
    assert (number.mechanism.answer, number.mechanism.length, number.presence_share) == (
        "optional_mean", 2, Decimal("0.25"),
    )  # fmt: skip
    assert labels.mechanism.labels == ("a", "b", "c", "rest", ABSENT)
    assert histogram.mechanism.labels[-1] == ABSENT
    assert quantiles.mechanism.length >= 21
    assert all(metric.micro_epsilon == 1_000_000 for metric in plan.metrics.values())
    for written in form(NUMBER + "optional = true", LABELS + "optional = true")["metrics"].values():
        assert written["optional"] is True  # type: ignore[index]
        assert {"default", "presence_share"} & set(written) == set()  # type: ignore[call-overload]


def test_the_share_of_presence_is_part_of_the_plan() -> None:
    text = NUMBER + "optional = true\n"
    assert plan_of(text) == plan_of(text + "presence_share = 0.250")
    other = form(text + "presence_share = 0.5")["metrics"]["m0"]
    assert other["presence_share"] == "0.5"  # type: ignore[index]
    assert plan_of(NUMBER + "optional = false") == plan_of(NUMBER)


@pytest.mark.parametrize(
    ("metric", "field"),
    [
        (NUMBER + "optional = 1", "optional"),
        (NUMBER + 'optional = "yes"', "optional"),
        (NUMBER + "optional = true\ndefault = 3", "default"),
        (LABELS + 'optional = true\ndefault = "a"', "default"),
        (HISTOGRAM + "optional = true\ndefault = 3", "default"),
        (HISTOGRAM + 'optional = true\nmechanism = "square_wave"', "optional"),
        (QUANTILES + 'optional = true\nmechanism = "square_wave"', "optional"),
        (NUMBER + "presence_share = 0.5", "presence_share"),
        (NUMBER + "optional = false\npresence_share = 0.5", "presence_share"),
        (LABELS + "optional = true\npresence_share = 0.5", "presence_share"),
        (NUMBER + "optional = true\npresence_share = 0", "presence_share"),
        (NUMBER + "optional = true\npresence_share = 1", "presence_share"),
        (NUMBER + "optional = true\npresence_share = -0.1", "presence_share"),
        (NUMBER.replace("epsilon = 1", "epsilon = 0.000001") + "optional = true", "presence_share"),
        (LABELS.replace('"c"', f'"{ABSENT}"') + "optional = true", "categories"),
        (NUMBER + "memoize = true", "memoize"),
    ],
)
def test_faults_of_optional_metrics(metric: str, field: str) -> None:
    assert problem(metric).startswith(f"metrics.m0.{field}: ")


# --- samples ----------------------------------------------------------------------------------------


def test_a_sampled_plan_has_a_count_after_each_metric_and_costs_the_dearest() -> None:
    metrics = [LABELS, NUMBER.replace("epsilon = 1", "epsilon = 2.5"), LABELS.replace("epsilon = 1", "epsilon = 3")]
    every, two = plan_of(*metrics), plan_of(*metrics, head="sample_metrics = 2")
    assert (every.length, two.length) == (9, 12)
    assert two.slices == {"m0": slice(0, 4), "m1": slice(5, 6), "m2": slice(7, 11)}
    assert two.counts == {"m0": 4, "m1": 6, "m2": 11}
    assert (every.report_micro_epsilon, two.report_micro_epsilon) == (6_500_000, 5_500_000)
    assert two.budget.rolling_24h_micro == 2 * 5_500_000, "the default window counts what a report costs"
    assert form(*metrics, head="sample_metrics = 2")["plan"]["sample_metrics"] == 2
    assert every.hash != two.hash
    assert "rolling_24h" not in canonical_form(two)


@pytest.mark.parametrize("count", ["0", "2", "3", "-1", "1.0", "true", '"1"'])
def test_a_sample_is_fewer_than_all(count: str) -> None:
    assert problem(NUMBER, LABELS, head=f"sample_metrics = {count}").startswith("plan.sample_metrics: ")


def test_one_metric_leaves_nothing_to_draw() -> None:
    assert problem(NUMBER, head="sample_metrics = 1").startswith("plan.sample_metrics: ")


def test_the_counts_count_for_the_longest_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client_sdk.plan.parse.MAX_LENGTH", 6)
    assert plan_of(NUMBER, LABELS).length == 5
    assert plan_of(NUMBER, LABELS + 'removed = ["x"]').length == 5
    found = problem(NUMBER, LABELS, head="sample_metrics = 1")
    assert found == "metrics: a report would have 7 elements, 56 bytes; the limit is 6 elements"
    monkeypatch.setattr("client_sdk.plan.parse.MAX_LENGTH", 7)
    assert plan_of(NUMBER, LABELS, head="sample_metrics = 1").length == 7


# --- names that are gone ----------------------------------------------------------------------------


def test_removed_names_stand_sorted_and_change_the_hash() -> None:
    one = plan_of(LABELS + 'removed = ["y", "x"]', head='removed_metrics = ["old_b", "old_a"]')
    assert one.metrics["m0"].removed == ("x", "y")
    assert one.removed_metrics == ("old_a", "old_b")
    assert one == plan_of(LABELS + 'removed = ["x", "y"]', head='removed_metrics = ["old_a", "old_b"]')
    assert one != plan_of(LABELS)
    written = json.loads(canonical_form(one))
    assert (written["metrics"]["m0"]["removed"], written["plan"]["removed_metrics"]) == (["x", "y"], ["old_a", "old_b"])


@pytest.mark.parametrize("line", ['removed = ["b"]', 'removed = ["x", "rest"]', 'removed = ["x", "x"]', "removed = []",
                                  'removed = [" x"]', 'removed = "x"', "removed = [1]"])  # fmt: skip
def test_a_removed_label_is_not_in_use(line: str) -> None:
    assert problem(LABELS + line).startswith("metrics.m0.removed: ")


@pytest.mark.parametrize("listed", ['["m0"]', '["Old"]', '["a", "a"]', "[]", '"a"', "[1]", '["a/b"]'])
def test_a_removed_metric_is_not_in_use(listed: str) -> None:
    assert problem(NUMBER, head=f"removed_metrics = {listed}").startswith("plan.removed_metrics: ")


# --- what a device loads ----------------------------------------------------------------------------


def test_a_device_needs_no_numpy_to_read_any_plan() -> None:
    """And of a plan with the defaults, no mechanism that it does not name."""
    every = text_of(
        *(f'{kind}mechanism = "{word}"' for kind, word in WORDS),
        *(kind + 'mechanism = "auto"' for kind in (NUMBER, LABELS, HISTOGRAM, QUANTILES)),
        *(kind + "optional = true" for kind in (NUMBER, LABELS, HISTOGRAM, QUANTILES)),
    )
    code = f"""
import sys
from client_sdk.plan import parse_plan
from client_sdk.report import PeriodState, make_report
import os
parse_plan({text_of(NUMBER, LABELS)!r})
print([name for name in ("hybrid", "choice", "histogram") if "client_sdk.mechanisms." + name in sys.modules])
plan = parse_plan({every!r})
make_report(plan, PeriodState(plan), os.urandom)
print("numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


# --- what a fault says ------------------------------------------------------------------------------


def test_a_word_that_fits_another_kind_and_one_that_nobody_knows_are_told_alike() -> None:
    offered = 'must be one of "laplace", "one_bit", "piecewise", "hybrid", "auto"'
    fits = "which fits categorical, histogram, quantiles only"
    assert problem(NUMBER + 'mechanism = "hadamard"') == (
        f'metrics.m0.mechanism: {offered} for numeric, not "hadamard", {fits}'
    )
    assert problem(NUMBER + 'mechanism = "nobody"') == f'metrics.m0.mechanism: {offered}, not "nobody"'


def test_how_many_metrics_can_be_sampled_is_said_with_the_reason() -> None:
    why = "less than the plan's 2 metrics (without the field each report holds all)"
    assert problem(NUMBER, LABELS, head="sample_metrics = 2") == f"plan.sample_metrics: must be 1, {why}, not 2"
    three = problem(NUMBER, LABELS, NUMBER, head="sample_metrics = 3")
    assert "must be a whole number from 1 to 2, less than the plan's 3 metrics" in three


def test_what_the_plan_says_without_loading_a_mechanism_is_what_the_mechanism_says() -> None:
    """A plan is read without the code of mechanisms that it does not name: these words and limits stand twice."""
    from client_sdk.mechanisms import choice, gaussian, lattice, memoized, sliced_choice, square_wave, vector
    from client_sdk.plan import build, defaults, memoize, ranges, slicing, vectors

    assert tuple(choice.CATEGORICAL) == build.LABELS
    assert set(choice.NUMERIC) == set(build.NUMBERS)
    assert choice.LEVELS == defaults.LEVELS
    assert memoized.LAWS == memoize.LAWS
    assert (slicing.WORDS[1:], slicing.LEVELS_MAX) == (sliced_choice.WORDS, sliced_choice.LEVELS_MAX)
    assert lattice.LEVELS_MAX == ranges.MAX_LEVELS
    assert square_wave.BINS_MAX == ranges.MAX_BINS
    assert vector.DIMENSION_MAX == vectors.MAX_DIMENSION
    assert (vector.LEVELS, gaussian.CALIBRATIONS) == (defaults.VECTOR_LEVELS, vectors.CALIBRATIONS)
