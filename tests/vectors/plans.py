"""Plans: texts, canonical forms, hashes and layouts; and texts that are no plan. Made with the SDK's own code."""

from __future__ import annotations

from typing import Any

from client_sdk.errors import PlanError
from client_sdk.plan import canonical_form, parse_plan
from tests.vectors.layout import Entry

# --- plans.json --------------------------------------------------------------------------------------

REST = "[cohort]\nmin_size = 50\ntarget_size = 200\n[budget]\nlifetime = 365\n"
NUMBER = 'kind = "numeric"\nlower = 0\nupper = 5000\nepsilon = 1\n'
LABELS = 'kind = "categorical"\ncategories = ["wifi", "cellular"]\nother = "other"\nepsilon = 1\n'
BINS = 'kind = "histogram"\nlower = 0\nupper = 10\nepsilon = 1\n'
FLAT = 'kind = "vector"\ndimension = 20\nclip = 10.0\nnorm = "l1"\nepsilon = 0.5\n'
ROUND = 'kind = "vector"\ndimension = 1000\nclip = 1.5\nnorm = "l2"\nepsilon = 1\ndelta = 0.000001\n'
SHARES = 'kind = "quantiles"\nlower = 0\nupper = 10\nepsilon = 1\n'


def text(*metrics: str, head: str = "", rest: str = REST) -> str:
    tables = "".join(f"[metrics.m{number}]\n{metric}" for number, metric in enumerate(metrics))
    return f'[plan]\nname = "vectors"\nversion = 1\nperiod = "1d"\n{head}{rest}{tables}'


def mechanism(word: str) -> str:
    return f'mechanism = "{word}"\n'


SPELLED = (
    '[metrics.m1]\nother = "other"\ncategories = ["wifi", "cellular"]\nkind = "categorical"\nepsilon = 1.00\n'
    '[metrics.m0]\nkind = "numeric"\nupper = 5e3\nlower = -0.0\nepsilon = 10e-1\nlevels = 1_000\ndefault = 2500.0\n'
    '[delivery]\nresend = "same_bytes"\n[budget]\nlifetime = 365.0\nrolling_24h = 4\n[cohort]\n'
    "corrupt_fraction = 0.10\ntarget_size = 200\nmin_size = 50\n"
    '[plan]\nperiod = "24h"\nmax_delay = "1440m"\nversion = 1\nname = "vectors"\n'
)
GOOD: list[tuple[str, list[str]]] = [
    ("defaults are left out, order and spelling mean nothing", [text(NUMBER, LABELS), SPELLED]),
    (
        "every field that is not its default",
        [
            '[plan]\nname = "vectors"\nversion = 7\nperiod = "1h"\nmax_delay = "7d"\nupload_window = "5m"\n'
            '[cohort]\nmin_size = 20\ntarget_size = 300\nmax_wait = "1m"\ncorrupt_fraction = 0.2\n'
            "dropout_fraction = 0.05\n[budget]\nlifetime = 100.5\nrolling_24h = 4\n"
            '[delivery]\nresend = "never"\n[registrar]\naddress = "registrar.example:443"\n'
            'key = "D75A980182B10AB7D54BFED3C964073A0EE172F3DAA62325AF021A68F707511A"\n'
            '[metrics.a]\nkind = "numeric"\nlower = -0.25\nupper = 1e3\nlevels = 65536\nepsilon = 0.125\n'
            'on_device = "mean"\ndefault = 7\nexpires = 2027-01-01\n'
            '[metrics.b]\nkind = "categorical"\ncategories = ["ä", "b\\"", "c\\\\"]\ndefault = "b\\""\nepsilon = 3\n'
            'on_device = "sample"\n'
        ],
    ),
    ("a sum without readings is 0", [text(NUMBER + 'on_device = "sum"\n', NUMBER + 'on_device = "count"\n')]),
    (
        "mechanisms by name",
        [
            text(
                *(NUMBER + mechanism(word) for word in ("laplace", "one_bit", "piecewise", "hybrid")),
                *(
                    LABELS + mechanism(word)
                    for word in ("symmetric_unary", "optimized_unary", "subset_selection", "hadamard")
                ),
            )
        ],
    ),
    (
        "auto is what it comes to",
        [
            text(*(metric + mechanism("auto") for metric in (NUMBER, LABELS, BINS))),
            text(NUMBER + mechanism("hybrid"), LABELS + mechanism("randomized_response"),
                 BINS + mechanism("subset_selection")),
        ],
    ),
    ("auto at a small epsilon", [text(NUMBER.replace("epsilon = 1", "epsilon = 0.6") + mechanism("auto"))]),
    (
        "bins of equal width, however they are written",
        [
            text(BINS + "bins = 4\n" + mechanism("hadamard")),
            text('kind = "histogram"\nedges = [0, 2.5, 5.0, 7.50, 1e1]\nepsilon = 1\n' + mechanism("hadamard")),
        ],
    ),
    (
        "bins of equal width without short edges",
        [
            text(BINS + "bins = 3\n" + mechanism("hadamard")),
            text('kind = "histogram"\nedges = [0, 3.333, 6.667, 10]\nepsilon = 1\n' + mechanism("hadamard")),
        ],
    ),
    (
        "other bins",
        [
            text(
                'kind = "histogram"\nedges = [-1.50, 0, 10, 100]\nepsilon = 1\ndefault = 7\n' + mechanism("hadamard"),
                'kind = "histogram"\nedges = [0, 3.33, 6.67, 10]\nepsilon = 1\n' + mechanism("square_wave"),
            )
        ],
    ),
    (
        "quantiles",
        [
            text(SHARES + mechanism("hadamard"), SHARES + "quantiles = [0.25, 0.999]\n" + mechanism("square_wave")),
            text(
                SHARES + mechanism("hadamard") + "quantiles = [0.5, 0.90, 0.99]\nbins = 20\n",
                SHARES + "quantiles = [0.250, 0.999]\n" + mechanism("square_wave"),
            ),
        ],
    ),
    (
        "optional metrics",
        [
            text(
                NUMBER + "optional = true\n",
                NUMBER + "optional = true\npresence_share = 0.5\n" + mechanism("one_bit"),
                LABELS + "optional = true\n",
                BINS + "optional = true\n" + mechanism("symmetric_unary"),
                SHARES + "optional = true\n" + mechanism("hadamard"),
                NUMBER + "optional = false\n",
            )
        ],
    ),
    (
        "a sample of the metrics",
        [text(LABELS, NUMBER.replace("epsilon = 1", "epsilon = 2.5"), NUMBER + "optional = true\n",
              head="sample_metrics = 2\n")],
    ),
    (
        "vectors",
        [
            text(FLAT, ROUND, ROUND.replace("epsilon = 1", "epsilon = 0.5") + 'calibration = "classic"\n',
                 FLAT + 'on_device = "mean"\nlevels = 100\nexpires = 2027-01-01\n'),
            text(FLAT + mechanism("laplace") + "levels = 4096\n",
                 ROUND.replace("0.000001", "1e-6") + mechanism("gaussian") + 'calibration = "analytic"\n',
                 ROUND.replace("epsilon = 1", "epsilon = 0.50") + 'calibration = "classic"\noptional = false\n',
                 FLAT + 'on_device = "mean"\nlevels = 100\nexpires = "2027-01-01"\n'),
        ],
    ),
    (
        "limits in rho",
        [text(ROUND, rest=REST + "lifetime_rho = 3.50\nrolling_24h_rho = 0.5\n")],
    ),
    (
        "names that are gone",
        [
            text(LABELS + 'removed = ["x", "ä", "b"]\n', head='removed_metrics = ["old_b", "old_a"]\n'),
            text(LABELS + 'removed = ["ä", "b", "x"]\n', head='removed_metrics = ["old_a", "old_b"]\n'),
        ],
    ),
    (
        "memoised categories",
        [
            text(LABELS + "memoize = true\n",
                 LABELS + "memoize = true\nepsilon_inf = 2.50\nmax_distinct = 1\n" + mechanism("optimized_unary"),
                 LABELS + "memoize = true\noptional = true\nmax_distinct = 2\n", NUMBER),
            text(LABELS + "max_distinct = 3\nepsilon_inf = 2.0\nmemoize = true\n",
                 LABELS + mechanism("optimized_unary") + "max_distinct = 1\nepsilon_inf = 2.5\nmemoize = true\n",
                 LABELS + "memoize = true\noptional = true\nmax_distinct = 2\nepsilon_inf = 2\n",
                 NUMBER),
        ],
    ),
    (
        "numbers sliced by a category",
        [
            text(NUMBER + 'slice_by = "m1"\n', LABELS,
                 NUMBER.replace("epsilon = 1", "epsilon = 3") + 'slice_by = "m1"\noptional = true\n',
                 NUMBER + 'slice_by = "m1"\nlevels = 5\n' + mechanism("symmetric_unary")),
            text(NUMBER + 'slice_by = "m1"\nlevels = 1\n' + mechanism("subset_selection"), LABELS,
                 NUMBER.replace("epsilon = 1", "epsilon = 3.0") + 'optional = true\nslice_by = "m1"\nlevels = 2\n'
                 + mechanism("auto"),
                 NUMBER + mechanism("symmetric_unary") + 'levels = 5\nslice_by = "m1"\n'),
        ],
    ),
    ("every report unmasked", [text(NUMBER, rest=REST + '[delivery]\ndelivery = "direct"\n')]),
    (
        "unmasked without a cohort after half of max_delay",
        [
            text(NUMBER, rest=REST + '[delivery]\nfallback = "direct"\n'),
            text(NUMBER, rest=REST + '[delivery]\nresend = "same_bytes"\nfallback = "direct"\nfallback_after = "12h"\n'
                 'delivery = "interactive"\n'),
        ],
    ),
    (
        "unmasked without a cohort, sooner",
        [text(NUMBER, rest=REST + '[delivery]\nresend = "never"\nfallback = "direct"\nfallback_after = "90m"\n')],
    ),
    ("no fallback is the default", [text(NUMBER + "levels = 10\n", rest=REST + '[delivery]\nfallback = "none"\n'),
                                    text(NUMBER + "levels = 10\n")]),
]  # fmt: skip
REFUSED: list[tuple[str, str]] = [
    ("an unknown field", text(NUMBER + "colour = 1\n")),
    ("a mechanism of another kind", text(LABELS + mechanism("laplace"))),
    ("a default beside no reading", text(NUMBER + "optional = true\ndefault = 1\n")),
    ("a share of presence without a presence bit", text(LABELS + "optional = true\npresence_share = 0.5\n")),
    ("no place for no reading", text(BINS + "optional = true\n" + mechanism("square_wave"))),
    ("a removed label in use", text(LABELS + 'removed = ["wifi"]\n')),
    ("a removed label that is other", text(LABELS + 'removed = ["other"]\n')),
    ("a removed metric in use", text(NUMBER, head='removed_metrics = ["m0"]\n')),
    ("as many in the sample as there are", text(NUMBER, LABELS, head="sample_metrics = 2\n")),
    ("none in the sample", text(NUMBER, LABELS, head="sample_metrics = 0\n")),
    ("edges that do not ascend", text('kind = "histogram"\nedges = [0, 2, 1]\nepsilon = 1\n')),
    ("edges beside ends", text(BINS + "edges = [0, 1, 2]\n")),
    ("one bin", text(BINS + "bins = 1\n")),
    ("a Gaussian without a delta", text(ROUND.replace("delta = 0.000001\n", ""))),
    ("a delta beside L1", text(FLAT + "delta = 0.000001\n")),
    ("the classic calibration at an epsilon of 1", text(ROUND + 'calibration = "classic"\n')),
    ("a mechanism of the other norm", text(FLAT + mechanism("gaussian"))),
    ("a default of a vector", text(FLAT + "default = 0\n")),
    ("a Gaussian in a sample of the metrics", text(ROUND, NUMBER, head="sample_metrics = 1\n")),
    ("a slice by a number", text(NUMBER + 'slice_by = "m1"\n', NUMBER)),
    ("a slice by nothing", text(NUMBER + 'slice_by = "m1"\n')),
    ("a slice of categories", text(LABELS + 'slice_by = "m1"\n', LABELS)),
    ("a slice by what is memoised", text(NUMBER + 'slice_by = "m1"\n', LABELS + "memoize = true\n")),
    ("a slice by lattice noise", text(NUMBER + 'slice_by = "m1"\n' + mechanism("laplace"), LABELS)),
    ("quantiles that do not ascend", text(SHARES + "quantiles = [0.9, 0.5]\n")),
    (
        "a fallback of what is direct",
        text(NUMBER, rest=REST + '[delivery]\ndelivery = "direct"\nfallback = "direct"\n'),
    ),
    ("a time without fallback", text(NUMBER, rest=REST + '[delivery]\nfallback_after = "6h"\n')),
    ("a fallback after the end", text(NUMBER, rest=REST + '[delivery]\nfallback = "direct"\nfallback_after = "1d"\n')),
    ("a memory of numbers", text(NUMBER + "memoize = true\n")),
    ("a memory of another mechanism", text(LABELS + "memoize = true\n" + mechanism("hadamard"))),
    ("no more for ever than for once", text(LABELS + "memoize = true\nepsilon_inf = 1\n")),
    ("more answers than labels", text(LABELS + "memoize = true\nmax_distinct = 4\n")),
    ("a memory's field without memory", text(LABELS + "max_distinct = 2\n")),
    ("an unknown way", text(NUMBER, rest=REST + '[delivery]\ndelivery = "masked"\n')),
    ("a quantile that is the largest", text(SHARES + "quantiles = [0.5, 1]\n")),
]


def plans_document() -> dict[str, Any]:
    return {
        "about": "Section 4: all texts of an entry are one plan. Places are [first, end) of each metric's elements.",
        "plans": [_plan(why, texts) for why, texts in GOOD],
        "refused": [{"why": why, "text": bad, "fields": _fields(bad)} for why, bad in REFUSED],
    }


def _plan(why: str, texts: list[str]) -> Entry:
    plan = parse_plan(texts[0])
    levels = {name: metric.levels for name, metric in plan.metrics.items() if metric.slice_by is not None}
    return {
        "why": why,
        "texts": texts,
        "mechanisms": {name: metric.mechanism.name for name, metric in plan.metrics.items()},
        **({"levels": levels} if levels else {}),
        "canonical": canonical_form(plan),
        "hash": plan.hash,
        "elements": plan.length,
        "places": {name: [place.start, place.stop] for name, place in plan.slices.items()},
        "counts": dict(plan.counts),
        "report_micro_epsilon": plan.report_micro_epsilon,
    }


def _fields(bad: str) -> list[str]:
    try:
        parse_plan(bad)
    except PlanError as error:
        return [line.split(":")[0] for line in error.problems]
    raise AssertionError("a text that should be refused is a plan")
