"""From masked rounds to every user's epsilon: the store's rows, the command's figures, and the ledger that anybody can
recompute them from.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState, make_report
from collector.service import cli
from collector.service.storage import CollectorStore, Contributor, Release
from tests.fleet import PLAN_NAME, Fleet, seeded
from tests.unit.collector.service.stores import DAY_S, plan_text

MEMBERS, ROUNDS = 24, 4
AGAIN = 3
"""The member whose report of the last round had been handed over before."""

PLAN = parse_plan(
    plan_text(min_size=8).replace(
        "target_size = 10", "target_size = 24\ncorrupt_fraction = 0.1\ndropout_fraction = 0.2"
    )
)


class Stored(NamedTuple):
    path: Path
    devices: list[str]
    n_h: list[int]
    """Of each round, the last first."""


def run_round(plan: Plan, day: int) -> tuple[Fleet, list[int]]:
    """A round that one member leaves: the fleet and the total."""
    reports = []
    for index in range(MEMBERS):
        state = PeriodState(plan)
        state.add("cold_start_ms", 40 * index, seeded(1000 + index))
        reports.append(make_report(plan, state, seeded(100 * day + index)))
    resent = {AGAIN} if day == 0 else set()
    fleet = Fleet(
        reports, plan.round_rules(), resent=resent, plan_hashes=dict.fromkeys(range(MEMBERS), plan.hash),
        round_id=f"round-{day}",
    )  # fmt: skip
    result = fleet.run({10 + day: "masked_input"} if day % 2 else {})
    assert result.total is not None
    return fleet, result.total


def release_of(fleet: Fleet, plan: Plan, day: int, total: list[int], now: float) -> Release:
    start = plan.period_start(now) - day * DAY_S
    members = sorted(fleet.round.survivors)
    contributors = [
        Contributor(fleet.identities[i].device_id, fleet.identities[i].report_id(PLAN_NAME, start), i in fleet.resent)
        for i in members
    ]
    return Release(
        fleet.round_id, plan, start, total, contributors, MEMBERS, sum(one.resent for one in contributors),
        fleet.round.dropouts, 1.0, now - day * DAY_S,
    )  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path, now = tmp_path_factory.mktemp("figures") / "collector.db", time.time()
    store = CollectorStore.open(str(path))
    store.put_plan(PLAN, now)
    devices: list[str] = []
    n_h: list[int] = []
    for day in range(ROUNDS):
        fleet, total = run_round(PLAN, day)
        release = release_of(fleet, PLAN, day, total, now)
        store.store_release(release)
        devices = [identity.device_id for identity in fleet.identities]
        corrupt = math.ceil(PLAN.cohort.corrupt_fraction * MEMBERS)
        n_h.append(len(release.contributors) - corrupt - release.resent)
    store.close()
    (path.parent / "plans").mkdir()
    (path.parent / "plans" / "plan.toml").write_text(PLAN.text)
    return Stored(path, devices, n_h)


def say(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert cli.main([str(one) for one in arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def rows_of(capsys: pytest.CaptureFixture[str], stored: Stored, member: int, *more: str) -> dict[str, Any]:
    which = "--device", stored.devices[member], "--format", "json"
    document = say(capsys, "privacy", "--db", stored.path, *which, *more)
    return {row["window"]: row for row in document["windows"]}


def test_central_epsilon_holds_for_the_honest_of_each_sum_and_not_for_who_came_twice(
    stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stored.n_h == [24 - 3 - 1, 23 - 3, 24 - 3, 23 - 3]
    for member in (0, 7):
        rows = rows_of(capsys, stored, member)
        assert rows["24h"]["n_h"] == stored.n_h[0]
        assert rows["lifetime"]["n_h"] == min(stored.n_h)
        assert rows["lifetime"]["n_min"] == 23
        assert (rows["lifetime"]["reports"], rows["lifetime"]["eps_local_pure"]) == (ROUNDS, 2.0 * ROUNDS)
        for row in rows.values():
            assert row["eps_central"] < 0.75 * row["eps_local"] < row["eps_local_pure"]
    again = rows_of(capsys, stored, AGAIN)
    assert again["24h"]["eps_central"] == again["24h"]["eps_local"], "nothing hides what was sent twice"
    assert (again["24h"]["fallbacks"], again["24h"]["n_h"]) == ({"resent": 1}, 1)
    assert rows["lifetime"]["eps_central"] < again["lifetime"]["eps_central"] < again["lifetime"]["eps_local"]
    left = rows_of(capsys, stored, 11)  # before its report had left: not in that sum, and not charged here
    assert (left["lifetime"]["reports"], left["lifetime"]["eps_local_pure"]) == (ROUNDS - 1, 2.0 * (ROUNDS - 1))


def test_more_colluding_members_hide_less(stored: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    found = [rows_of(capsys, stored, 0, "--corrupt", share)["lifetime"] for share in ("0", "0.1", "0.5", "1")]
    assert [row["n_h"] for row in found] == [23, 20, 23 - 12, 1]
    central = [row["eps_central"] for row in found]
    assert central == sorted(central)
    assert central[-1] == found[-1]["eps_local"]


def test_the_ledger_is_recomputed_to_the_last_digit(
    stored: Stored, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for member in (0, AGAIN):
        ledger = say(capsys, "privacy", "--db", stored.path, "--device", stored.devices[member], "--ledger")
        (tmp_path / "ledger.json").write_text(json.dumps(ledger))
        again = say(
            capsys, "recompute", "--ledger", tmp_path / "ledger.json", "--plans", stored.path.parent / "plans",
            "--db", stored.path, "--format", "json",
        )  # fmt: skip
        assert again["agrees"]
        shown = rows_of(capsys, stored, member)
        for row in again["windows"]:
            for name in (
                "reports",
                "eps_local_pure",
                "eps_local",
                "method",
                "eps_central",
                "n_h",
                "n_min",
                "fallbacks",
            ):
                assert row[name] == shown[row["window"]][name]


def held(path: Path) -> tuple[bytes, bytes]:
    """The store and what its log holds: the first reader makes an empty log, and the index that goes with it."""
    log = path.with_name(f"{path.name}-wal")
    return path.read_bytes(), log.read_bytes() if log.exists() else b""


def test_the_fleet_is_its_devices_and_reading_changes_nothing(
    stored: Stored, capsys: pytest.CaptureFixture[str]
) -> None:
    before = held(stored.path)
    own = [rows_of(capsys, stored, member, "--window", "lifetime")["lifetime"] for member in range(MEMBERS)]
    document = say(capsys, "privacy", "--db", stored.path, "--format", "json")
    (lifetime,) = document["windows"]
    assert (document["devices"], lifetime["n_h"], lifetime["n_min"]) == (MEMBERS, min(stored.n_h), 23)
    for name in ("eps_local_pure", "eps_local", "eps_central"):
        values = sorted(row[name] for row in own)
        for quantile, place in (("min", 0), ("p50", 11), ("p95", 22), ("p99", 23), ("max", 23)):
            assert lifetime[name][quantile] == pytest.approx(values[place], rel=2e-4)
    assert held(stored.path) == before


def test_garbage_collection_makes_no_figure_smaller(
    stored: Stored, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lifetime = "--window", "lifetime"
    before = {member: rows_of(capsys, stored, member, *lifetime)["lifetime"] for member in (0, AGAIN, 11, 13)}
    copy = tmp_path / "collector.db"
    copy.write_bytes(stored.path.read_bytes())
    store = CollectorStore.open(str(copy))
    assert store.fold_spends(time.time() + 366 * DAY_S) == (ROUNDS * MEMBERS - 2) * len(PLAN.metrics)
    store.close()
    for member, old in before.items():
        new = rows_of(capsys, stored._replace(path=copy), member, *lifetime)["lifetime"]
        for name in ("reports", "eps_local_pure", "eps_local", "eps_central", "n_h", "fallbacks", "left"):
            assert new[name] == old[name], "cohorts this small are kept as they were"
        assert new["n_min"] <= old["n_min"]
