"""The device caps the zero-concentrated loss beside epsilon: its own limits, the plan's, over versions and damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk.accounting.budget import Limits, check_rho
from client_sdk.device.database import SCHEMA_VERSION
from client_sdk.device.files import DATABASE_NAME
from client_sdk.device.storage import DeviceStore
from client_sdk.errors import BudgetExceededError, ConfigurationError, RefusalReason
from client_sdk.plan import Plan, parse_plan
from tests.unit.client_sdk.device.helpers import DAY_S, NOW, Clock, make_client, undo_migrations
from tests.unit.client_sdk.device.test_storage import MICRO, NO_LIMITS, PLAN, sealed

RHO = 28_015
"""Of one report of VECTORS, in millionths."""


def vectors(budget: str = "", version: int = 1) -> Plan:
    return parse_plan(
        f'[plan]\nname = "updates"\nversion = {version}\nperiod = "1d"\nmax_delay = "7d"\n[cohort]\nmin_size = 3\n'
        f'target_size = 10\n[budget]\nlifetime = 365\n{budget}[metrics.v]\nkind = "vector"\ndimension = 4\n'
        'clip = 1\nnorm = "l2"\nepsilon = 1\ndelta = 1e-6\n'
    )


VECTORS = vectors()


def test_limits_in_rho_are_limits_too() -> None:
    check_rho(Limits(report_rho=5, rolling_24h_rho=10, lifetime_rho=20), 5, 15, 5)
    for limits in (Limits(report_rho=4), Limits(rolling_24h_rho=9), Limits(lifetime_rho=19)):
        with pytest.raises(BudgetExceededError) as refused:
            check_rho(limits, 5, 15, 5)
        assert refused.value.reason is RefusalReason.BUDGET_RHO
    assert Limits(lifetime_rho=5).lowered_to(Limits(lifetime_rho=3, report_rho=1)) == Limits(
        lifetime_rho=3, report_rho=1
    )
    with pytest.raises(ConfigurationError):
        Limits(lifetime_rho=-1)


def test_a_store_counts_both_and_refuses_by_either(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    limits = Limits(lifetime=10 * MICRO, lifetime_rho=3 * RHO)
    answers = [store.seal(sealed(period, micro_rho=RHO), limits) for period in range(5)]
    assert answers == [None] * 3 + [RefusalReason.BUDGET_RHO] * 2
    spent, _ = store.spent(PLAN.name, NOW)
    assert (spent.lifetime_micro, spent.lifetime_micro_rho) == (3 * MICRO, 3 * RHO)
    assert store.seal(sealed(7, micro_rho=1), Limits(lifetime=3 * MICRO)) is RefusalReason.BUDGET_LIFETIME


def test_a_window_of_24_hours_slides(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    limits = Limits(rolling_24h_rho=RHO)
    times = (NOW, NOW + DAY_S / 2, NOW + DAY_S, NOW + 1.5 * DAY_S)
    answers = [
        store.seal(sealed(i, now=now, micro_rho=RHO, plan_limits=limits), NO_LIMITS) for i, now in enumerate(times)
    ]
    assert answers == [None, RefusalReason.BUDGET_RHO, None, RefusalReason.BUDGET_RHO]


def test_the_strictest_of_all_versions_stays(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    first = sealed(0, micro_rho=RHO, plan_limits=Limits(lifetime_rho=2 * RHO))
    later = [sealed(i, micro_rho=RHO, plan_limits=Limits(lifetime_rho=9 * RHO)) for i in (1, 2)]
    assert [store.seal(one, NO_LIMITS) for one in (first, *later)] == [None, None, RefusalReason.BUDGET_RHO]
    assert store.plan_limits(PLAN.name, Limits()) == Limits(lifetime_rho=2 * RHO)
    assert store.seal(sealed(3, micro_rho=RHO, name="another"), NO_LIMITS) is None, "a plan's limits are its own"


def test_what_is_known_in_epsilon_alone_counts_as_much_in_rho(tmp_path: Path) -> None:
    """A ledger from before rho was kept, and spending known only from elsewhere after damage."""
    store = DeviceStore(str(tmp_path / "d"))
    assert store.seal(sealed(0, micro_rho=None), NO_LIMITS) is None
    assert store.spent(PLAN.name, NOW)[0].lifetime_micro_rho == MICRO
    assert store.note_collector_total(5 * MICRO) is False
    for _ in range(2):
        spent = store.spent(PLAN.name, NOW)[1]
        assert spent.lifetime_micro_rho == spent.lifetime_micro >= 5 * MICRO
        store.reset_ledger(NOW)


def test_an_older_file_is_brought_up(tmp_path: Path) -> None:
    store = DeviceStore(str(tmp_path / "d"))
    assert store.seal(sealed(0, micro_rho=RHO), NO_LIMITS) is None
    with closing(sqlite3.connect(tmp_path / "d" / DATABASE_NAME, isolation_level=None)) as db:
        undo_migrations(db, 3)
        assert "micro_rho" not in {row[1] for row in db.execute("PRAGMA table_info(ledger)")}
    spent, _ = DeviceStore(str(tmp_path / "d")).spent(PLAN.name, NOW)
    with closing(sqlite3.connect(tmp_path / "d" / DATABASE_NAME)) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
        assert db.execute("SELECT micro_rho FROM ledger").fetchall() == [(None,)], "that version did not know"
    assert spent.lifetime_micro_rho == MICRO


def test_a_client_charges_what_the_plan_says(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path, VECTORS, clock=clock, max_rho_lifetime="0.06")
    for _ in range(4):
        client.record("v", [0.5, -0.5, 0.1, 0.0])
        client.flush(seal=True)
        clock.now += DAY_S
    assert client.counters() == {"sealed": 2, "budget_rho": 2}
    view = client.spent()
    assert VECTORS.report_micro_rho == view.report_micro_rho == RHO
    assert (view.lifetime_micro_rho, view.left_lifetime_micro_rho) == (2 * RHO, 60_000 - 2 * RHO)
    assert view.left_24h_micro_rho is None
    assert view.report_delta == Decimal("1e-6")
    assert view.lifetime_micro == 2 * MICRO


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"max_rho_report": "0.02"}, "max_rho_report is 0.02, and one of plan 'updates' costs 0.028015 of rho"),
        ({"max_rho_24h": 0}, "max_rho_24h is 0"),
        ({"max_rho_lifetime": "0.028014"}, "max_rho_lifetime is 0.028014"),
    ],
)
def test_a_host_whose_limits_let_nothing_leave_is_told(
    tmp_path: Path, changes: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client(tmp_path, VECTORS, **changes)
    assert says in caplog.text
    client.flush(seal=True)
    assert client.counters() == {"budget_rho": 1}


@pytest.mark.parametrize("name", ["max_rho_report", "max_rho_24h", "max_rho_lifetime"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make_client(tmp_path, VECTORS, **{name: "-1"})


def test_the_plans_limit_in_rho_holds(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path, vectors("lifetime_rho = 0.03\n"), clock=clock)
    for _ in range(2):
        client.flush(seal=True)
        clock.now += DAY_S
    assert client.counters() == {"sealed": 1, "budget_rho": 1}


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        ([1.0], "wrong_length"),
        ([1.0, 2.0, 3.0, float("nan")], "not_finite"),
        (1.0, "wrong_type"),
        ("abcd", "wrong_type"),
    ],
)
def test_readings_that_cannot_be_used_are_counted(tmp_path: Path, reading: Any, reason: str) -> None:
    client = make_client(tmp_path, VECTORS)
    client.record("v", reading)
    assert client.counters() == {reason: 1}
