"""The ledger's document: there and back, strictly read, and what it adds up to."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.accounting.ledger import (
    WINDOWS,
    Cohort,
    FoldedReports,
    Ledger,
    LedgerEntry,
    LedgerPlan,
    Stated,
    is_within,
)
from client_sdk.accounting.ledger_reader import parse_ledger, read_ledger
from client_sdk.errors import ConfigurationError

DAY_S = 86_400
NOW = 1_767_268_800
HASHES = "a" * 64, "b" * 64
PLANS = tuple(LedgerPlan(plan, "p", version, NOW - 400 * DAY_S) for version, plan in enumerate(HASHES, 1))


def entry(day: int = 0, **changes: Any) -> LedgerEntry:
    """Charged `day` days ago, and counted."""
    fields: dict[str, Any] = {
        "plan": HASHES[0],
        "period_start": NOW - (day + 1) * DAY_S,
        "charged_at": NOW - day * DAY_S,
        "micro_epsilon": 1_000_000,
        "outcome": "counted",
        "left_device": True,
        "resent": False,
        "round": "r",
        "cohort": Cohort(100, 110, 3),
    }
    return LedgerEntry(**(fields | changes))


def ledger(*entries: LedgerEntry, **changes: Any) -> Ledger:
    fields: dict[str, Any] = {"source": "device", "device": "c" * 32, "as_of": NOW, "plans": PLANS, "entries": entries}
    return Ledger(**(fields | changes)).with_stated()


FULL = ledger(
    entry(0, metric_contributors={"b": 40, "a": 0}),
    entry(1, plan=HASHES[1], resent=True),
    entry(2, outcome="waiting", left_device=False, round=None, cohort=None),
    entry(3, outcome="expired", round=None, cohort=None),
    entry(4, delivery="direct"),
    entry(5, outcome="already_counted", cohort=None),
    carried_micro_epsilon=5,
    carried_until=NOW - 10 * DAY_S,
    folded=(FoldedReports(HASHES[0], NOW - 380 * DAY_S, 7, 7_000_001, resent=False, cohort=Cohort(9, 9, 9)),),
    damaged="ledger lost",
)


def test_there_and_back() -> None:
    document = json.loads(json.dumps(FULL.to_json()))
    assert read_ledger(document) == FULL
    assert parse_ledger(json.dumps(document)) == FULL
    assert json.dumps(read_ledger(document).to_json()) == json.dumps(FULL.to_json()), "to the last byte"
    empty = ledger(device=None, plans=())
    assert read_ledger(empty.to_json()) == empty
    assert "folded" not in empty.to_json()


def test_fields_that_only_some_ledgers_have_may_be_missing() -> None:
    document = ledger(entry()).to_json()
    del document["carried_until"], document["damaged"]
    assert read_ledger(document) == ledger(entry())


def test_what_falls_back_and_why() -> None:
    assert [one.falls_back for one in FULL.entries] == [
        None, "resent", None, "failed_but_spent", "direct", "unknown_cohort"
    ]  # fmt: skip
    assert [one.failed_but_spent for one in FULL.entries] == [False, False, False, True, False, False]
    assert FULL.stated == Stated(
        reports=13,
        failed_but_spent=1,
        lifetime_micro_epsilon=13_000_006,
        windows={"24h": 1_000_000, "7d": 6_000_000, "30d": 6_000_005, "365d": 6_000_005},
    )
    assert not FULL.is_whole
    assert not ledger(damaged="x").is_whole
    assert not ledger(carried_micro_epsilon=1).is_whole
    assert ledger(entry()).is_whole


def test_windows_are_open_at_their_start_and_hold_what_is_dated_later() -> None:
    for window, seconds in WINDOWS.items():
        for at, within in ((NOW - seconds, False), (NOW - seconds + 1, True), (NOW, True), (NOW + 10**6, True)):
            assert is_within(at, NOW, window) == within
            assert ledger(entry(charged_at=at)).spent_micro_epsilon(window) == 1_000_000 * within
        assert is_within(0, NOW, "lifetime")


def test_what_nobody_can_date_lies_in_every_window() -> None:
    for until, within in ((None, True), (NOW, True), (NOW - 366 * DAY_S, False)):
        found = ledger(carried_micro_epsilon=3, carried_until=until).stated
        assert set(found.windows.values()) == {3 * within}
        assert found.lifetime_micro_epsilon == 3


def test_a_false_total_shows() -> None:
    document = FULL.to_json()
    document["stated"]["lifetime_micro_epsilon"] -= 1
    found = read_ledger(document)
    assert found.stated != found.counted() == FULL.stated


# --- strict ---------------------------------------------------------------------------------------------------


def with_(path: str, value: object) -> dict[str, Any]:
    """The full ledger's document with one field changed."""
    document = copy.deepcopy(FULL.to_json())
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    inner: Any = document
    for step in way:
        inner = inner[step]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return document


# case C05
@pytest.mark.parametrize(
    "amount",
    [float("nan"), float("inf"), 1.0, 1e400, -1, 0, "1", "", "1_000", "0x1", None, True, [], 2**62 + 1, 10**400],
)
@pytest.mark.parametrize("path", ["entries/3/micro_epsilon", "folded/0/micro_epsilon"])
def test_meaningless_amounts_are_refused_by_name(path: str, amount: object) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"ledger\.{path.split('/', maxsplit=1)[0]}\[[03]\]\.micro_epsilon: must be a whole"
    ):
        read_ledger(with_(path, amount))


@pytest.mark.parametrize("path", ["carried_micro_epsilon", "as_of", "stated/reports", "stated/windows/7d"])
@pytest.mark.parametrize("amount", [float("nan"), 0.0, -1, "0", None, False, ...])
def test_so_are_counts_and_times(path: str, amount: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"{path.rsplit('/', maxsplit=1)[-1]}: (must be|is missing)"):
        read_ledger(with_(path, amount))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("ledger", "ldp-telemetry/2", "ledger.ledger"),
        ("source", "me", "ledger.source"),
        ("device", "C" * 32, "ledger.device"),
        ("device", ..., "ledger.device"),
        ("relation", "add or remove one", "ledger.relation"),
        ("damaged", 1, "ledger.damaged"),
        ("plans", {}, "ledger.plans"),
        ("plans/0/hash", "a" * 63, "ledger.plans[0].hash"),
        ("plans/0/hash", "b" * 64, "ledger.plans"),
        ("plans/0/name", "a\nb", "ledger.plans[0].name"),
        ("plans/0/version", "1", "ledger.plans[0].version"),
        ("plans/0/more", 1, "ledger.plans[0].'more'"),
        ("entries/0", [], "ledger.entries[0]"),
        ("entries/0/plan", "d" * 64, "ledger.entries[0].plan"),
        ("entries/1/period_start", FULL.entries[0].period_start, "ledger.entries[1].period_start"),
        ("entries/0/left_device", 1, "ledger.entries[0].left_device"),
        ("entries/0/left_device", False, "ledger.entries[0].left_device"),
        ("entries/2/resent", True, "ledger.entries[2].left_device"),
        ("entries/0/delivery", "masked", "ledger.entries[0].delivery"),
        ("entries/0/outcome", "", "ledger.entries[0].outcome"),
        ("entries/0/round", "x" * 256, "ledger.entries[0].round"),
        ("entries/0/roster", None, "ledger.entries[0].contributors"),
        ("entries/0/roster", 99, "ledger.entries[0].contributors"),
        ("entries/0/contributors", 0, "ledger.entries[0].contributors"),
        ("entries/0/resent_contributors", 101, "ledger.entries[0].contributors"),
        ("entries/0/metric_contributors/a", 101, "ledger.entries[0].metric_contributors.a"),
        ("entries/3/metric_contributors", {"a": 1}, "ledger.entries[3].metric_contributors"),
        ("entries/0/report", "00", "ledger.entries[0].'report'"),
        ("folded/0/plan", "d" * 64, "ledger.folded[0].plan"),
        ("folded/0/reports", 0, "ledger.folded[0].reports"),
        ("folded/0/micro_epsilon", 6, "ledger.folded[0].micro_epsilon"),
        ("stated/more", 1, "ledger.stated.'more'"),
        ("stated/windows/1y", 1, "ledger.stated.windows.'1y'"),
        ("more", 1, "ledger.'more'"),
    ],
)
def test_what_is_wrong_is_named(path: str, value: object, named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_ledger(with_(path, value))
    assert str(caught.value).startswith(f"{named}: ")


@pytest.mark.parametrize("row", ["entries/0", "plans/0", "folded/0", "stated"])
def test_no_field_is_filled_in(row: str) -> None:
    fields: Any = FULL.to_json()
    for step in row.split("/"):
        fields = fields[int(step) if step.isdigit() else step]
    for name in set(fields) - {"metric_contributors"}:
        with pytest.raises(ConfigurationError, match=f"{name}: is missing"):
            read_ledger(with_(f"{row}/{name}", ...))


@pytest.mark.parametrize("document", [None, [], 1, "x", {1: 2}, {}])
def test_what_is_no_ledger_is_refused(document: object) -> None:
    with pytest.raises(ConfigurationError, match="ledger"):
        read_ledger(document)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": 1, "a": 2}', "[" * 100_000, '{"as_of": ' + "9" * 5000 + "}", '{"as_of": NaN}', "\ud800"]
)
def test_a_text_that_is_no_ledger_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^ledger"):
        parse_ledger(text)


def test_a_key_that_stands_twice_is_refused() -> None:
    """Else two readers could see two ledgers in one file."""
    text = json.dumps(FULL.to_json())
    with pytest.raises(ConfigurationError, match="twice"):
        parse_ledger(text.replace('"as_of":', '"as_of": 5, "as_of":'))


def test_one_period_of_one_plans_name_is_charged_once_over_all_versions() -> None:
    twice = ledger(entry(), entry(plan=HASHES[1]))
    with pytest.raises(ConfigurationError, match="charged twice"):
        read_ledger(twice.to_json())
    others = (PLANS[0], dataclasses.replace(PLANS[1], name="q"))
    assert read_ledger(dataclasses.replace(twice, plans=others).to_json()).entries == twice.entries


# --- adding up --------------------------------------------------------------------------------------------------

DAYS = st.lists(st.tuples(st.integers(-5, 500), st.integers(1, 10**9)), max_size=20)


@given(DAYS, st.integers(0, 20), st.integers(0, 10**9))
def test_splitting_and_merging_adds_up_and_order_changes_nothing(
    days: list[tuple[int, int]], cut: int, carried: int
) -> None:
    entries = [entry(day, micro_epsilon=micro) for day, micro in days]
    whole = ledger(*entries, carried_micro_epsilon=carried)
    parts = ledger(*entries[:cut]), ledger(*entries[cut:], carried_micro_epsilon=carried)
    assert ledger(*reversed(entries), carried_micro_epsilon=carried).stated == whole.stated
    assert whole.stated.lifetime_micro_epsilon == sum(part.stated.lifetime_micro_epsilon for part in parts)
    spent = [whole.stated.windows[window] for window in WINDOWS]
    assert spent == [sum(part.stated.windows[window] for part in parts) for window in WINDOWS]
    assert spent == sorted(spent)
    assert spent[-1] <= whole.stated.lifetime_micro_epsilon
