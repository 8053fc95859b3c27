"""Which windows a job writes: when they close, while their grace lasts, and never again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from collector.reports.due import SETTLE_S, Due, Held, Round, due_of, every_held, held_of, late_from_of, late_of
from collector.reports.manifest import ManifestError, Output, WindowManifest, manifest_of
from collector.reports.windows import Window, calendar_windows

DAY_S = 86_400
GRACE_S = 2 * DAY_S
WINDOW = Window("2026-11-29", 1_795_910_400, 1_795_996_800)
OVER = WINDOW.until + GRACE_S
WANTED = ("report.json", "report.csv")


def of_round(name: str, finished_at: int = WINDOW.until, reports: int = 5, period: int = WINDOW.since) -> Round:
    return Round(period, name, "aa", reports, finished_at)


def held(*rounds: Round, late_from: int = OVER) -> Held:
    return held_of(WINDOW, rounds, late_from)


def manifest(found: Held, *, is_final: bool = False, outputs: tuple[str, ...] = WANTED) -> WindowManifest:
    return WindowManifest(
        "day", "UTC", WINDOW.label, WINDOW.since, WINDOW.until, is_final, OVER, found.digest, found.rounds,
        found.reports, 7, late_of(found, None), [], {"kind": "store"}, "1", dict.fromkeys(outputs, Output(1, "00")),
    )  # fmt: skip


def due(found: Held, before: WindowManifest | None, as_of: int, present: tuple[str, ...] = WANTED) -> Due | None:
    return due_of(found, before, as_of, GRACE_S, WANTED, present)


def test_a_window_is_written_when_it_has_closed() -> None:
    found = due(held(of_round("r")), None, WINDOW.until)
    assert found is not None
    assert (found.outputs, found.is_final, found.late_from) == (WANTED, False, OVER)


def test_and_not_again_while_nothing_changes() -> None:
    found = held(of_round("r"))
    for as_of in (WINDOW.until, OVER - 1, OVER + SETTLE_S - 1):
        assert due(found, manifest(found), as_of) is None
    assert due(found, manifest(found, is_final=True), OVER + 10 * DAY_S) is None


def test_a_late_cohort_within_the_grace_is_added() -> None:
    found = due(held(of_round("r"), of_round("s", OVER - 1)), manifest(held(of_round("r"))), OVER - 1)
    assert found is not None
    assert (found.outputs, found.is_final, found.held.reports) == (WANTED, False, 10)


def test_when_the_grace_is_over_the_same_report_becomes_final() -> None:
    found = due(held(of_round("r")), manifest(held(of_round("r"))), OVER + SETTLE_S)
    assert found is not None
    assert (found.outputs, found.is_final) == ((), True)


def test_a_job_that_comes_by_late_makes_the_report_of_the_grace() -> None:
    rounds = of_round("r"), of_round("s", OVER - 1), of_round("t", OVER, 9)
    found = due(held(*rounds), manifest(held(of_round("r"))), OVER + 30 * DAY_S)
    assert found is not None
    assert (found.outputs, found.is_final) == (WANTED, True)
    assert (found.held.rounds, found.held.reports, found.held.late, found.held.late_reports) == (
        2,
        10,
        frozenset("t"),
        9,
    )
    assert found.held.digest == held(*rounds[:2]).digest, "as if it had come by in time"


def test_what_comes_after_the_grace_is_counted_and_not_added() -> None:
    before = manifest(held(of_round("r")), is_final=True)
    after = held(of_round("r"), of_round("t", OVER + DAY_S, 9))
    found = due(after, before, OVER + 2 * DAY_S)
    assert found is not None
    assert (found.outputs, found.is_final, found.missing) == ((), True, False)
    assert late_of(after, before) == {"rounds": 1, "reports": 9}
    assert due(after, replace(before, late=late_of(after, before)), OVER + 3 * DAY_S) is None


def test_a_round_that_was_committed_after_the_last_moment_is_counted_too() -> None:
    before = manifest(held(of_round("r")), is_final=True)
    after = held(of_round("r"), of_round("s", OVER - 1, 4))  # ended in time, and was not in the store in time
    found = due(after, before, OVER + DAY_S)
    assert found is not None
    assert (found.outputs, late_of(after, before)) == ((), {"rounds": 1, "reports": 4})


def test_a_final_window_keeps_its_grace_when_the_configured_one_changes() -> None:
    before = manifest(held(of_round("r")), is_final=True)
    assert late_from_of(WINDOW, before, 9 * DAY_S) == OVER
    assert late_from_of(WINDOW, replace(before, is_final=False), 9 * DAY_S) == WINDOW.until + 9 * DAY_S
    found = due_of(held(of_round("r")), replace(before, is_final=False), OVER, 9 * DAY_S, WANTED, WANTED)
    assert found is not None
    assert (found.outputs, found.is_final, found.late_from) == ((), False, WINDOW.until + 9 * DAY_S)


def test_outputs_that_are_missing_are_written_alone() -> None:
    found = held(of_round("r"))
    for is_final in (False, True):
        one = due(found, manifest(found, is_final=is_final), WINDOW.until, ("report.json",))
        assert one is not None
        assert one.outputs == ("report.csv",)


def test_a_final_report_whose_rounds_are_gone_cannot_be_made_again() -> None:
    before = manifest(held(of_round("r"), of_round("s")), is_final=True)
    found = due(held(of_round("r")), before, OVER + DAY_S)
    assert found is not None
    assert (found.outputs, found.missing) == ((), True)


def test_the_digest_is_of_the_rounds_in_any_order() -> None:
    rounds = [of_round(name, finished_at) for name, finished_at in (("a", OVER - 2), ("b", OVER - 1), ("c", OVER))]
    assert held(*rounds).digest == held(*reversed(rounds)).digest
    assert held(*rounds).digest != held(*rounds[:1]).digest
    assert held(rounds[0]).digest != held(rounds[0]._replace(reports=6)).digest


@pytest.mark.parametrize(("month", "hours"), [("03", 23), ("10", 25)])
def test_windows_without_a_round_are_held_too_and_days_are_the_zones(month: str, hours: int) -> None:
    zone = ZoneInfo("Europe/Zurich")
    day = {"03": "2026-03-29", "10": "2026-10-25"}[month]
    middle = {"03": 1_774_774_800, "10": 1_792_918_800}[month]  # 10:00 and 11:00 UTC of that day
    windows = calendar_windows("day", zone, middle - DAY_S, middle + 2 * DAY_S)
    place = next(place for place, one in enumerate(windows) if one.label == day)
    changed = windows[place]
    assert changed.until - changed.since == hours * 3600
    edges = [changed.since - 1, changed.since, changed.until - 1, changed.until]
    rounds = [of_round(f"r{edge}", edge, period=edge) for edge in edges]
    found = list(every_held(windows, rounds, lambda window: window.until + GRACE_S))
    assert [one.window for one in found] == windows
    counted = {one.window.label: one.rounds for one in found}
    assert [counted[windows[place + step].label] for step in (-1, 0, 1)] == [1, 2, 1]
    assert sum(counted.values()) == 4


def test_rounds_before_the_first_window_and_after_the_last_are_of_none() -> None:
    rounds = [of_round(str(period), period=period) for period in (0, WINDOW.since, WINDOW.until)]
    (found,) = every_held([WINDOW], rounds, lambda window: window.until)
    assert found.rounds + len(found.late) == 1
    assert list(every_held([], rounds, lambda window: window.until)) == []


# --- manifests --------------------------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = manifest(held(of_round("r"), of_round("t", OVER)), is_final=True)
    assert manifest_of(written.to_json()) == written
    assert manifest_of(written.to_json()).to_json() == written.to_json()


def _broken() -> Mapping[str, str]:
    whole = manifest(held(of_round("r"))).to_json()
    return {
        "no json": whole[:-9],
        "another": '{"format": "x"}',
        "a list": "[]",
        "a newer one": whole.replace('"version": 1', '"version": 2'),
        "without a field": whole.replace('"rounds_digest"', '"digest"'),
        "a wrong time": whole.replace("2026-11-29T", "2026-11-99T"),
        "a wrong number": whole.replace('"rows_read": 7', '"rows_read": "x"'),
        "a wrong list": whole.replace('"plans": []', '"plans": 7'),
    }


@pytest.mark.parametrize("name", _broken())
def test_what_is_no_manifest_is_refused(name: str) -> None:
    with pytest.raises(ManifestError):
        manifest_of(_broken()[name])
