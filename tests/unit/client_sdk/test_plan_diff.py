"""Versions of a plan: names that never come back, what a new version breaks, and what it costs a device's lifetime."""

from __future__ import annotations

import json

import pytest

from client_sdk.errors import PlanError
from client_sdk.plan import Plan, parse_plan
from client_sdk.plan.diff import diff_plans, format_diff
from client_sdk.plan.names import broken_names

HEAD = """
[plan]
name = "{name}"
version = {version}
period = "{period}"
{head}
[cohort]
min_size = {min_size}
target_size = 200
[budget]
{budget}
"""
NUMBER = 'kind = "numeric"\nlower = 0\nupper = 100\nepsilon = 1\n'
NETWORK = 'kind = "categorical"\ncategories = ["wifi", "cellular", "offline"]\nother = "other"\nepsilon = 1\n'
BINS = 'kind = "histogram"\nlower = 0\nupper = 100\nepsilon = 1\nmechanism = "hadamard"\n'
SHARES = 'kind = "quantiles"\nlower = 0\nupper = 100\nepsilon = 1\nmechanism = "hadamard"\n'
METRICS = {"load": NUMBER, "network": NETWORK, "sizes": BINS, "times": SHARES}


def version(number: int = 1, metrics: dict[str, str] | None = None, head: str = "", **changes: str) -> Plan:
    fields = {"name": "app", "period": "1d", "min_size": "50", "budget": "lifetime = 365\nrolling_24h = 8"} | changes
    tables = "".join(f"[metrics.{name}]\n{text}\n" for name, text in (METRICS if metrics is None else metrics).items())
    return parse_plan(HEAD.format(version=number, head=head, **fields) + tables)


def changed(number: int = 2, *, head: str = "", **metrics: str | None) -> Plan:
    """The next version, with these metrics instead (None: gone)."""
    found = {name: text for name, text in (METRICS | metrics).items() if text is not None}
    return version(number, found, head)


def fields(lines: tuple[str, ...]) -> list[str]:
    return [line.split(":")[0] for line in lines]


OLD = version()


def without(label: str, *removed: str) -> str:
    text = NETWORK.replace(f'"{label}", ', "")
    assert text != NETWORK
    listed = ", ".join(f'"{one}"' for one in removed)
    return text + (f"removed = [{listed}]\n" if removed else "")


# --- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later", "broken"),
    [
        (changed(), []),
        (changed(network=NETWORK.replace('"wifi"', '"5g", "wifi"')), []),
        (changed(network=NETWORK.replace('"wifi", "cellular"', '"cellular", "wifi"')), []),
        (changed(load=None, head='removed_metrics = ["load"]'), []),
        (changed(load=None), ["plan.removed_metrics"]),
        (changed(network=without("wifi")), ["metrics.network.removed"]),
        (changed(network=without("wifi", "wifi")), []),
        (changed(network=NETWORK.replace('"wifi"', '"wlan"')), ["metrics.network.removed"]),
        (changed(network=NETWORK.replace('"wifi"', '"wlan"') + 'removed = ["wifi"]'), []),
        (changed(network=NETWORK.replace('other = "other"\n', "")), ["metrics.network.removed"]),
        (changed(network=NETWORK.replace('other = "other"\n', "") + 'removed = ["other"]'), []),
        (changed(network=NETWORK.replace('other = "other"', 'other = "rest"') + 'removed = ["other"]'), []),
        # one that was a category must not become the place for unknown ones, nor the other way round
        (
            changed(network=without("wifi", "other").replace('other = "other"', 'other = "wifi"')),
            ["metrics.network.other"],
        ),
        (
            changed(network=NETWORK.replace('"wifi"', '"other", "wifi"').replace('other = "other"', 'other = "rest"')),
            ["metrics.network.categories"],
        ),
        (changed(load=NETWORK), ["metrics.load.kind"]),
        (changed(sizes=SHARES), ["metrics.sizes.kind"]),
        (changed(load=NUMBER + "optional = true"), ["metrics.load.optional"]),
        (changed(network=NETWORK + "optional = true", sizes=BINS + "optional = true"), []),
        (changed(load=NUMBER.replace("upper = 100", "upper = 10") + 'mechanism = "hybrid"'), []),
    ],
)
def test_what_a_version_may_do_with_names(later: Plan, broken: list[str]) -> None:
    assert fields(broken_names(OLD, later)) == broken


def test_a_removed_name_never_comes_back() -> None:
    second = changed(2, load=None, network=without("wifi", "wifi"), head='removed_metrics = ["load"]')
    assert broken_names(OLD, second) == ()
    back = changed(3, network=NETWORK)
    assert fields(broken_names(second, back)) == ["metrics.load", "metrics.network.categories"]
    assert broken_names(OLD, back) == (), "which is why every version goes on listing what is gone"
    as_other = changed(3, load=None, network=without("wifi").replace('other = "other"', 'other = "wifi"')
                       + 'removed = ["other"]', head='removed_metrics = ["load"]')  # fmt: skip
    assert fields(broken_names(second, as_other)) == ["metrics.network.categories"]
    forgotten = changed(3, load=None, network=without("wifi"))
    assert fields(broken_names(second, forgotten)) == ["plan.removed_metrics", "metrics.network.removed"]
    kept = changed(3, load=None, network=without("wifi", "wifi"), head='removed_metrics = ["load"]')
    assert broken_names(second, kept) == ()


def test_a_histogram_keeps_its_bins_under_its_name() -> None:
    moved = changed(sizes=BINS.replace("lower = 0", "lower = -5"))
    (line,) = broken_names(OLD, moved)
    assert line.startswith("metrics.sizes: other bins than in version 1")
    assert line.endswith("take a new metric name")
    assert line in diff_plans(OLD, moved).breaks, "the collector refuses it: `put_plan` asks the same rule"
    same = ", ".join(str(edge) for edge in range(0, 101, 5))
    written_out = changed(sizes=BINS.replace("lower = 0\nupper = 100", f"edges = [{same}.0]"))
    assert broken_names(OLD, written_out) == (), "the same edges, written in another way"
    assert broken_names(OLD, changed(times=SHARES.replace("lower = 0", "lower = -5"))) == (), "distributions are mixed"


NO_READING = NETWORK.replace('"offline"', '"(no reading)"')


def test_the_label_for_no_reading_is_nobody_elses() -> None:
    """Counts of both would be added up under one name."""
    own = changed(1, network=NO_READING)
    product, gone = NETWORK.replace('"offline"', '"none"') + "optional = true\n", 'removed = ["(no reading)"]\n'
    assert "metrics.network.optional" in fields(broken_names(own, changed(2, network=product)))
    listed = changed(2, network=product.replace("optional = true", "optional = false") + gone)
    assert broken_names(own, listed) == ()
    assert "metrics.network.optional" in fields(broken_names(listed, changed(3, network=product)))
    was = changed(1, network=NETWORK + "optional = true\n")
    assert "metrics.network.categories" in fields(broken_names(was, changed(2, network=NO_READING)))
    assert broken_names(was, changed(2, network=NETWORK)) == ()
    with pytest.raises(PlanError, match=r'^metrics\.network\.removed: "\(no reading\)" is in use'):
        changed(2, network=product + gone)


def test_a_line_names_three_of_many() -> None:
    def of(count: int, first: str) -> Plan:
        labels = ", ".join(f'"{first}{i}"' for i in range(count))
        return version(1, {"x": f'kind = "categorical"\ncategories = [{labels}]\nepsilon = 1\n'})

    (line,) = broken_names(of(20_000, "a"), of(20_000, "b"))
    assert '"a0", "a1", "a2" and 19997 more' in line
    assert len(line) < 200


# --- the whole diff ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "breaks"),
    [
        (changed(), []),
        (version(2, name="other-app"), ["plan.name"]),
        (version(1, period="2d"), ["plan.version", "plan.period"]),
        (version(2, period="2d"), ["plan.period"]),
        (version(0 + 2, budget="lifetime = 366\nrolling_24h = 8"), ["budget.lifetime"]),
        (version(2, budget="lifetime = 365\nrolling_24h = 9"), ["budget.rolling_24h"]),
        (version(2, min_size="49"), ["cohort.min_size"]),
        (changed(network=without("wifi")), ["metrics.network.removed"]),
        (changed(load=NUMBER.replace("upper = 100", "upper = 10")), ["metrics.load.upper"]),
        (changed(load=NUMBER.replace("lower = 0", "lower = -1")), ["metrics.load.lower"]),
        (changed(times=SHARES.replace("upper = 100", "upper = 10")), ["metrics.times.upper"]),
        (changed(sizes=BINS + "bins = 10"), ["metrics.sizes"]),
        (changed(times=SHARES + "bins = 10"), []),
        (changed(times=SHARES + "quantiles = [0.5]"), []),
        (changed(load=NUMBER + 'on_device = "max"'), ["metrics.load.on_device"]),
        (changed(load=NUMBER + "default = 7"), ["metrics.load.default"]),
        (changed(load=NUMBER + "optional = true"), ["metrics.load.optional"]),
        (changed(network=NETWORK + "optional = true"), ["metrics.network.optional"]),
        (changed(network=NETWORK + 'default = "wifi"'), ["metrics.network.default"]),
        (changed(load=NETWORK), ["metrics.load.kind"]),
        (changed(load=NUMBER.replace("epsilon = 1", "epsilon = 2") + 'mechanism = "hybrid"\nlevels = 99'), []),
        (changed(head="sample_metrics = 2"), []),
        (changed(more=NUMBER), []),
        (changed(load=NUMBER + "expires = 2027-01-01"), []),
    ],
)
def test_what_breaks(new: Plan, breaks: list[str]) -> None:
    assert fields(diff_plans(OLD, new).breaks) == breaks


def test_what_only_changes() -> None:
    new = changed(
        load=None,
        network=without("wifi", "wifi").replace('"cellular"', '"5g", "cellular"').replace("epsilon = 1", "epsilon = 2"),
        times=SHARES.replace("hadamard", "square_wave") + "bins = 10\nexpires = 2027-01-01",
        visits=NUMBER + 'mechanism = "auto"',
        head='removed_metrics = ["load"]\nsample_metrics = 3',
    )
    diff = diff_plans(OLD, new)
    assert diff.breaks == ()
    assert diff.changes == (
        "metrics.load: removed",
        "metrics.network.epsilon: 2, 1 before",
        'metrics.network.categories: "5g" added: counted from this version on; counted as "other" before',
        'metrics.network.categories: "wifi" removed: what was counted stays; counted as "other" from now on',
        "metrics.network.categories: a renamed label is a new one: nothing that was counted moves to its new name",
        "metrics.times.mechanism: square_wave, hadamard before",
        "metrics.times.expires: 2027-01-01, never before",
        "metrics.times: other quantiles or bins; each version's distribution is decoded by itself, then mixed",
        "metrics.visits: new (numeric, hybrid, epsilon 1)",
        "plan.sample_metrics: 3 of 4 metrics in each report, 4 of 4 metrics in each report before",
    )


def test_it_prices_the_change_in_lifetime_epsilon() -> None:
    dearer = changed(load=NUMBER.replace("epsilon = 1", "epsilon = 2.5"))
    prices = {price.what: (price.old, price.new) for price in diff_plans(OLD, dearer).prices}
    assert prices == {
        "report": ("4", "5.5"),
        "day": ("4", "5.5"),
        "30 days": ("120", "165"),
        "year": ("364", "363"),
        "lifetime": ("365", "365"),
        "reports in a lifetime": ("91", "66"),
        "days until it is used up": ("91", "66"),
    }
    rows = [line.split() for line in format_diff(diff_plans(OLD, dearer)).splitlines()]
    assert ["report", "4", "5.5", "+1.5"] in rows
    assert ["year", "364", "363", "-1"] in rows
    assert ["lifetime", "365", "365", "same"] in rows
    assert ["nothing", "breaks"] in rows
    silent = diff_plans(OLD, version(2, budget="lifetime = 1\nrolling_24h = 8"))
    assert silent.prices[-1].new is None
    assert ["days", "until", "it", "is", "used", "up", "91", "none"] in [
        line.split() for line in format_diff(silent).splitlines()
    ]


def test_the_same_plan_breaks_nothing() -> None:
    diff = diff_plans(OLD, parse_plan("# a comment\n" + OLD.text))
    assert (diff.breaks, diff.changes) == ((), ())
    assert "the same plan" in format_diff(diff)
    assert {price.old == price.new for price in diff.prices} == {True}
    assert json.loads(json.dumps(diff.as_dict(), allow_nan=False))["new_version"] == 1


# case G03, the plan's part, with the default window: what devices that have seen version 1 do with version 2
def test_a_version_that_no_window_of_the_old_one_lets_through_breaks() -> None:
    two = 'kind = "categorical"\ncategories = ["x", "{}"]\nepsilon = {}\n'
    removed = 'removed = ["y"]'
    first, dearer, dear = (
        version(number, {"m": two.format(label, epsilon) + more}, budget="lifetime = 3650")
        for number, label, epsilon, more in ((1, "y", "1", ""), (2, "z", "1.5", removed), (2, "z", "3", removed))
    )
    windows = [plan.budget.rolling_24h_micro for plan in (first, dear)]
    assert windows == [2_000_000, 6_000_000], "of two reports"
    diff = diff_plans(first, dear)
    (line,) = diff.breaks
    assert line.startswith("budget.rolling_24h: devices fall silent: a report costs 3,")
    assert line.endswith("2 in any 24 hours (version 1's); lower epsilon, or give the plan a new name")
    assert {price.what: price.new for price in diff.prices}["day"] == "0"
    assert diff.prices[-1].new is None
    assert "nothing breaks" not in format_diff(diff)
    # 1.5 fits into 2, but not twice: the day's window touches two periods
    thin = diff_plans(first, dearer)
    assert thin.breaks == ()
    assert thin.changes[-1] == (
        "budget.rolling_24h: devices keep version 1's 2, less than the reports that 24 hours can touch now cost (3): "
        "some periods go without a report"
    )
    other = version(2, {"m": two.format("y", "3")}, name="other", budget="lifetime = 3650")
    assert diff_plans(first, other).prices[1].new == "3", "another name has limits of its own"


def test_a_version_that_asks_more_than_it_may_ever_spend_breaks() -> None:
    diff = diff_plans(OLD, version(2, budget="lifetime = 3\nrolling_24h = 3"))
    assert fields(diff.breaks) == ["budget.rolling_24h", "budget.lifetime"]
    assert "3 ever (version 2's)" in diff.breaks[1]


# case G03, the plan's part: x and y, then x and z at another epsilon
def test_categories_added_and_removed_between_versions() -> None:
    two = 'kind = "categorical"\ncategories = ["x", "{}"]\nepsilon = {}\n'
    budget = "lifetime = 365\nrolling_24h = 8"
    first = version(1, {"m": two.format("y", 1)}, budget=budget)
    forgot = version(2, {"m": two.format("z", 3)}, budget=budget)
    said = version(2, {"m": two.format("z", 3) + 'removed = ["y"]'}, budget=budget)
    back = version(3, {"m": two.format("y", 3) + 'removed = ["z"]'}, budget=budget)
    assert diff_plans(first, forgot).breaks == (
        'metrics.m.removed: must list "y", known to version 1 and no longer here',
    )
    diff = diff_plans(first, said)
    assert diff.breaks == ()
    assert diff.changes[:2] == (
        "metrics.m.epsilon: 3, 1 before",
        'metrics.m.categories: "z" added: counted from this version on; refused before',
    )
    assert diff.prices[0].new == "3"
    assert fields(diff_plans(said, back).breaks) == ["metrics.m.categories"]


def delivering(number: int, *lines: str) -> Plan:
    return parse_plan(version(number).text + "[delivery]\n" + "\n".join(lines) + "\n")


def test_a_version_that_sends_reports_unmasked_breaks() -> None:
    diff = diff_plans(OLD, delivering(2, 'delivery = "direct"'))
    assert fields(diff.breaks) == ["delivery.delivery"]
    assert "at its local epsilon" in diff.breaks[0]
    back = diff_plans(delivering(2, 'delivery = "direct"'), version(3))
    assert (fields(back.breaks), fields(back.changes)) == ([], ["delivery.delivery"])


def test_a_fallback_that_comes_goes_or_moves_is_a_change() -> None:
    later, sooner = delivering(2, 'fallback = "direct"'), delivering(3, 'fallback = "direct"', 'fallback_after = "6h"')
    assert fields(diff_plans(OLD, later).changes) == ["delivery.fallback"]
    assert "at its local epsilon" in diff_plans(OLD, later).changes[0]
    assert fields(diff_plans(later, sooner).changes) == ["delivery.fallback_after"]
    assert diff_plans(sooner, version(4)).changes == (
        "delivery.fallback: a report without a cohort leaves not at all; direct before",
    )
    assert fields(diff_plans(OLD, delivering(2, 'resend = "never"')).changes) == ["delivery.resend"]
    assert all(diff_plans(OLD, plan).breaks == () for plan in (later, sooner))


def test_a_version_that_no_window_in_rho_lets_through_breaks() -> None:
    limits = "lifetime = 365\nrolling_24h = 8\nlifetime_rho = 2\nrolling_24h_rho = 2"
    one, four = ({"load": NUMBER.replace("epsilon = 1", f"epsilon = {epsilon}")} for epsilon in (1, 4))
    old, new = version(1, one, budget=limits), version(2, four, budget=limits)
    assert new.lifetime_reports == 0, "the case was reached: no report fits"
    breaks = diff_plans(old, new).breaks
    assert fields(breaks) == ["budget.rolling_24h_rho", "budget.lifetime_rho"]
    assert all("a report costs 3.856" in line and "rho" in line for line in breaks)
    unlimited = version(2, four, budget="lifetime = 365\nrolling_24h = 8")
    kept = diff_plans(old, unlimited).breaks  # after the lines that say that its limits are raised
    assert fields(kept)[-2:] == fields(breaks), "a device keeps the limits that it has seen"
