"""A plan's history at the collector: names that were given up stay so, whatever is served later; and `plan diff`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.errors import PlanError
from client_sdk.plan import Plan, parse_plan
from collector.service.storage import CollectorStore
from tests.commands import Run
from tests.unit.collector.service.stores import NOW, plan_text

FIRST = ("wifi", "cellular", "offline")
LATER = ("cellular", "offline", "satellite")


def text_of(number: int, labels: tuple[str, ...] = FIRST, removed: tuple[str, ...] = ()) -> str:
    listed = ", ".join(f'"{label}"' for label in removed)
    return plan_text(number, categories=labels) + (f"removed = [{listed}]\n" if removed else "")


def plan_of(number: int, labels: tuple[str, ...] = FIRST, removed: tuple[str, ...] = ()) -> Plan:
    return parse_plan(text_of(number, labels, removed))


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    opened = CollectorStore.open(store_url)
    opened.put_plan(plan_of(1), NOW)
    yield opened
    opened.close()


# case G03
def test_a_label_is_dropped_only_by_saying_so(store: CollectorStore) -> None:
    with pytest.raises(PlanError) as caught:
        store.put_plan(plan_of(2, LATER), NOW)
    (line,) = caught.value.problems
    assert line.startswith('metrics.network.removed: must list "wifi"')
    assert line.endswith("(plan 'app-health' version 2)")
    assert len(store.plans()) == 1
    store.put_plan(plan_of(2, LATER, ("wifi",)), NOW)
    assert len(store.plans()) == 2


def test_what_is_gone_stays_gone_for_all_later_versions(store: CollectorStore) -> None:
    store.put_plan(plan_of(2, LATER, ("wifi",)), NOW)
    for back in (plan_of(3, (*LATER, "wifi")), plan_of(3, LATER), plan_of(4, (*LATER, "wifi"))):
        with pytest.raises(PlanError, match="wifi"):
            store.put_plan(back, NOW)
    store.put_plan(plan_of(4, (*LATER, "6g"), ("wifi",)), NOW)
    # One that is handed in late has to fit to what follows it, as well as to what it follows.
    with pytest.raises(PlanError, match=r"must list \"5g\".*version 4\)"):
        store.put_plan(plan_of(3, (*LATER, "5g"), ("wifi",)), NOW)
    store.put_plan(plan_of(3, LATER, ("wifi",)), NOW)
    assert [plan.version for plan in store.plans()] == [1, 2, 3, 4]


def test_metrics_too(store: CollectorStore) -> None:
    number = text_of(2).index("[metrics.cold_start_ms]"), text_of(2).index("[metrics.network]")
    without = text_of(2)[: number[0]] + text_of(2)[number[1] :]
    with pytest.raises(PlanError, match=r"plan\.removed_metrics: must list \"cold_start_ms\""):
        store.put_plan(parse_plan(without), NOW)
    said = without.replace("version = 2", 'version = 2\nremoved_metrics = ["cold_start_ms"]')
    store.put_plan(parse_plan(said), NOW)
    with pytest.raises(PlanError, match=r"metrics\.cold_start_ms: version 2 had removed this name"):
        store.put_plan(plan_of(3), NOW)
    other_kind = said[: said.index("[metrics.network]")].replace("version = 2", "version = 3")
    other_kind += '[metrics.network]\nkind = "numeric"\nlower = 0\nupper = 1\nepsilon = 1\n'
    with pytest.raises(PlanError, match=r"metrics\.network\.kind: "):
        store.put_plan(parse_plan(other_kind), NOW)


def test_a_histograms_bins_too(store: CollectorStore) -> None:
    bins = '[metrics.sizes]\nkind = "histogram"\nedges = [{}0, 10, 20]\nepsilon = 1\n'
    store.put_plan(parse_plan(text_of(2) + bins.format("")), NOW)
    with pytest.raises(PlanError, match=r"metrics\.sizes: other bins .* take a new metric name"):
        store.put_plan(parse_plan(text_of(3) + bins.format("-5, ")), NOW)
    renamed = bins.format("-5, ").replace("sizes", "spread")
    listed = text_of(3).replace("version = 3", 'version = 3\nremoved_metrics = ["sizes"]')
    store.put_plan(parse_plan(listed + renamed), NOW)


def test_plan_diff(run: Run, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.toml" for name in ("old", "forgot", "said")]
    for path, text in zip(paths, (text_of(1), text_of(2, LATER), text_of(2, LATER, ("wifi",))), strict=True):
        path.write_text(text)
    old, forgot, said = paths
    status, out, err = run("plan", "diff", old, forgot)
    assert (status, err) == (1, "")
    assert 'breaks: metrics.network.removed: must list "wifi"' in out
    status, out, err = run("plan", "diff", old, said)
    assert (status, err) == (0, "")
    assert "nothing breaks" in out
    assert "days until it is used up" in out
    status, out, _ = run("plan", "diff", old, said, "--format", "json")
    document = json.loads(out)
    assert (status, document["breaks"], document["prices"][0]) == (
        0, [], {"what": "report", "old": "2", "new": "2"},
    )  # fmt: skip
    assert json.loads(run("plan", "diff", old, forgot, "--format", "json")[1])["breaks"]
    (tmp_path / "bad.toml").write_text("[plan]")
    for wrong in ([old, tmp_path / "none.toml"], [tmp_path / "bad.toml", old], [old]):
        status, out, err = run("plan", "diff", *wrong)
        assert (status, out) == (2, "")
        assert err.startswith(("ldp-collector plan: ", "usage: ", "ldp-collector"))
