"""`ldp-collector recompute`: the same figures from the document and the plans alone; whatever disagrees is said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk.accounting.ledger import Cohort, Ledger, LedgerEntry, LedgerPlan
from client_sdk.plan import Plan
from collector.accounting.figures import figures
from collector.service import cli
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, device, make_plan, make_release

Run = Callable[..., tuple[int, str, str]]
PLAN = make_plan()


def entry(day: int, **changes: Any) -> LedgerEntry:
    fields: dict[str, Any] = {
        "plan": PLAN.hash.hex(),
        "period_start": PERIOD - day * DAY_S,
        "charged_at": NOW - day * DAY_S,
        "micro_epsilon": PLAN.report_micro_epsilon,
        "outcome": "counted",
        "left_device": True,
        "resent": False,
        "round": f"r{day}",
        "cohort": Cohort(50, 60, 1),
    }
    return LedgerEntry(**(fields | changes))


def ledger(*entries: LedgerEntry) -> Ledger:
    used = (LedgerPlan(PLAN.hash.hex(), PLAN.name, 1, NOW - 300 * DAY_S),)
    return Ledger("device", device(1), NOW, used, entries).with_stated()


LEDGER = ledger(entry(0), entry(1, resent=True), entry(2, outcome="aborted", cohort=None, round=None), entry(40))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def _run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = cli.main(["recompute", *(str(a) for a in arguments)])
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return _run


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, Path, str, Path]:
    """--ledger and --plans, the latter with other files beside the plan."""
    book, folder = tmp_path / "ledger.json", tmp_path / "plans"
    folder.mkdir()
    (folder / "app-health.toml").write_text(PLAN.text)
    (folder / "collector.toml").write_text("listen = '0.0.0.0:443'")
    book.write_text(json.dumps(LEDGER.to_json()))
    return "--ledger", book, "--plans", folder


def test_every_figure_again(run: Run, given: tuple[str, Path, str, Path]) -> None:
    before = given[1].read_bytes()
    status, out, err = run(*given, "--format", "json")
    document = json.loads(out)
    assert (status, err, document["agrees"], document["faults"]) == (0, "", True, [])
    assert [row["window"] for row in document["windows"]] == ["24h", "7d", "30d", "365d", "lifetime"]
    plans: dict[str, Plan] = {PLAN.hash.hex(): PLAN}
    for row in document["windows"]:
        found = figures(LEDGER, plans, window=row["window"])
        assert row["micro_epsilon"] == LEDGER.spent_micro_epsilon(row["window"])
        assert (row["eps_local"], row["eps_central"], row["n_h"]) == (found.eps_local, found.eps_central, found.n_h)
    life = document["windows"][-1]
    assert (life["reports"], life["failed_but_spent"], life["eps_local_pure"]) == (4, 1, 8.0)
    assert life["fallbacks"] == {"failed_but_spent": 1, "resent": 1}
    assert [one["reason"] for one in document["fallback_rounds"]] == ["resent", "failed_but_spent"]
    assert run(*given, "--format", "json") == (0, out, ""), "to the last digit"
    assert given[1].read_bytes() == before


def test_a_window_never_stands_without_the_lifetime(run: Run, given: tuple[str, Path, str, Path]) -> None:
    for window, expected in (("30d", ["30d", "lifetime"]), ("lifetime", ["lifetime"])):
        _, out, _ = run(*given, "--window", window, "--format", "json", "--delta", "1e-9", "--corrupt", "0.5")
        document = json.loads(out)
        assert [row["window"] for row in document["windows"]] == expected
        assert document["delta"] == 1e-9
        assert document["windows"][0]["n_h"] == 50 - 30 - 1
    status, out, _ = run(*given, "--window", "7d")
    assert status == 0
    for word in ("lifetime", "replace one value", "n_h", "n h", "resent: 1", "Central (composition of sums) holds"):
        assert word in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stated": {"lifetime_micro_epsilon": 7_999_999}}, "stated.lifetime_micro_epsilon: 7999999, but"),
        ({"stated": {"reports": 3}}, "stated.reports: 3"),
        ({"stated": {"failed_but_spent": 0}}, "stated.failed_but_spent"),
        ({"stated": {"windows": {"24h": 0, "7d": 6_000_000, "30d": 6_000_000, "365d": 8_000_000}}}, "windows.24h: 0"),
    ],
)
def test_what_is_stated_must_be_what_the_rows_say(
    run: Run, given: tuple[str, Path, str, Path], change: dict[str, dict[str, Any]], words: str
) -> None:
    document = LEDGER.to_json()
    document["stated"] |= change["stated"]
    given[1].write_text(json.dumps(document))
    status, out, err = run(*given)
    assert (status, err.count("\n")) == (1, 1)
    assert words in err
    assert "lifetime" in out, "the figures are printed all the same"


def test_a_charge_that_is_not_the_plans(run: Run, given: tuple[str, Path, str, Path]) -> None:
    given[1].write_text(json.dumps(ledger(entry(0, micro_epsilon=1)).to_json()))
    status, _, err = run(*given)
    assert status == 1
    assert "entries[0].micro_epsilon: 1, but a report of its plan costs 2000000" in err


def test_the_device_has_booked_no_less_than_the_collector(
    run: Run, given: tuple[str, Path, str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "collector.db"
    store = CollectorStore.open(str(path))
    store.put_plan(PLAN, NOW)
    now = time.time()
    for day in range(4):
        store.store_release(make_release(PLAN, f"r{day}", range(3), period_start=PERIOD + day * DAY_S, now=now))
    store.close()
    assert run(*given, "--db", path)[0] == 0, "as much is no less"
    given[1].write_text(json.dumps(ledger(entry(0), entry(1)).to_json()))
    status, _, err = run(*given, "--db", path)
    assert (status, err.count("\n")) == (1, 1)
    assert "ALARM" in err
    assert "holds 4, less than the 8" in err
    unknown = Ledger("device", device(77), NOW, (), ()).with_stated()
    given[1].write_text(json.dumps(unknown.to_json()))
    assert run(*given, "--db", path)[0] == 0, "of whom the collector has nothing"
    given[1].write_text(json.dumps(Ledger("device", None, NOW, (), ()).with_stated().to_json()))
    assert run(*given, "--db", path)[0] == 2


def one_line(ran: tuple[int, str, str], *words: str) -> bool:
    status, out, err = ran
    return (status, out, err.count("\n")) == (2, "", 1) and all(word in err for word in words)


def test_what_cannot_be_read_is_one_line(run: Run, given: tuple[str, Path, str, Path], tmp_path: Path) -> None:
    _, book, _, folder = given
    assert one_line(run("--ledger", tmp_path / "none", "--plans", folder), "--ledger", "No such file")
    assert one_line(run("--ledger", folder, "--plans", folder), "--ledger", "directory")
    assert one_line(run("--ledger", book, "--plans", book), "--plans", "folder")
    for text, words in (("[", "JSON"), ("\xff", "UTF-8"), ("{}", "ledger.ledger"), ('{"a": 1, "a": 2}', "twice")):
        book.write_bytes(text.encode("latin-1"))
        assert one_line(run(*given), "--ledger", words)
    book.write_text(json.dumps(LEDGER.to_json()))
    (folder / "app-health.toml").unlink()
    assert one_line(run(*given), "--plans", "app-health version 1", PLAN.hash.hex(), "no plan: collector.toml")


# case C05
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "1e-320", "1e400", "", "1_000", "0x1"])
@pytest.mark.parametrize("option", ["--delta", "--corrupt"])
def test_no_number_is_taken_that_is_none(run: Run, given: tuple[str, Path, str, Path], option: str, text: str) -> None:
    assert one_line(run(*given, f"{option}={text}"), option)
    assert one_line(run(*given, "--window=1d"), "--window")
