"""`preview()`: what would be sent and what it costs, with nothing spent, stored, sent or counted."""

from __future__ import annotations

import hashlib
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from client_sdk import TelemetryClient
from client_sdk.device.preview import EXAMPLE
from client_sdk.plan import parse_plan
from client_sdk.report import unpack_vector
from tests.registrar import NOWHERE
from tests.unit.client_sdk.device.helpers import DAY_S, NOW, Clock, make_client, make_plan
from tests.unit.client_sdk.device.test_client import _entries

PLAN = make_plan()


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_shows_the_open_period_and_changes_nothing(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d")
    client.record("cold_start_ms", 812)
    client.record("nobody", 1)
    before, counters = folder_bytes(tmp_path / "d"), client.counters()
    preview = client.preview()
    assert (preview.waiting, preview.not_recording) == ((), None)
    (report,) = preview.unsealed
    assert (report.plan_name, report.plan_version, report.plan_hash) == (PLAN.name, 1, PLAN.hash)
    assert (report.period_start, report.period_end) == (PLAN.period_start(NOW), PLAN.period_start(NOW) + DAY_S)
    assert (report.epsilon, report.length, report.refused) == (Decimal(2), PLAN.length, None)
    assert [(m.name, m.mechanism, m.epsilon, m.elements, len(m.example)) for m in report.metrics] == [
        ("cold_start_ms", "laplace", Decimal(1), 1, 1),
        ("network", "randomized_response", Decimal(1), 4, 4),
    ]
    assert len(report.example) == PLAN.length
    assert all(abs(element) <= PLAN.bound for element in report.example)
    assert f"+-{PLAN.bound}" in report.encoding
    assert folder_bytes(tmp_path / "d") == before
    assert client.counters() == counters
    assert client.spent().lifetime_micro == 0
    client.flush(seal=True)
    (entry,) = _entries(client)
    assert f"{len(entry.report)} bytes" in report.encoding, "as long as the one that was made"


def test_examples_are_fresh_draws_about_the_readings_and_do_not_disturb_them(tmp_path: Path) -> None:
    plan = parse_plan(PLAN.text.replace("epsilon = 1.0", "epsilon = 40"))
    client = make_client(tmp_path / "d", plan)
    client.record("cold_start_ms", 2500)
    client.record("network", "cellular")
    numbers, categories = Counter[int](), Counter[int]()
    for _ in range(60):
        (report,) = client.preview().unsealed
        number, *category = report.example
        numbers[number] += 1
        categories[category.index(1)] += 1
    assert len(numbers) > 1, "each is drawn anew"
    assert 0 < min(numbers) <= max(numbers) < 1000, "around 500 of 1000 levels: 20 scales away is never seen"
    assert categories == {1: 60}
    period = client._engine.recorder._period
    assert period is not None
    assert period.state.values() == {"cold_start_ms": 2500.0, "network": "cellular"}
    assert period.readings == 0
    assert client._engine.recorder._readings == 2


def test_what_waits_is_shown_as_it_will_be_sent(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "d", clock=clock)
    client.flush(seal=True)
    clock.now += DAY_S
    client.record("cold_start_ms", 1)
    clock.now += DAY_S
    preview = client.preview()
    (entry,) = _entries(client)
    (waiting,) = preview.waiting
    assert waiting.report == entry.report
    assert waiting.elements == tuple(unpack_vector(entry.report))
    assert waiting.digest == hashlib.sha256(entry.report).digest()
    assert (waiting.epsilon, waiting.resent, waiting.period_start) == (Decimal(2), False, entry.period_start)
    assert entry.period_start + DAY_S <= waiting.not_before < waiting.expires_at
    assert [report.period_start for report in preview.unsealed] == [
        PLAN.period_start(NOW) + DAY_S,
        PLAN.period_start(NOW) + 2 * DAY_S,
    ], "the one that has ended is not sealed before somebody seals it"
    text = preview.as_text()
    assert waiting.digest.hex() in text
    assert "waiting: 1" in text
    client.flush()
    assert client.preview().waiting[0] == waiting
    assert len(client.preview().waiting) == 2


def test_why_no_report_would_be_made(tmp_path: Path) -> None:
    clock = Clock()
    client = make_client(tmp_path / "b", make_plan(lifetime="2"), clock=clock)
    client.flush(seal=True)
    assert client.preview().not_recording == "period_sealed"
    clock.now += DAY_S
    (report,) = client.preview().unsealed
    assert (report.refused, client.preview().not_recording) == ("budget_lifetime", None)
    assert "would not be made now: budget_lifetime" in client.preview().as_text()
    assert client.counters() == {"sealed": 1}
    limited = make_client(tmp_path / "l", max_epsilon_report="1.5")
    assert limited.preview().unsealed[0].refused == "budget_report"
    late = make_client(tmp_path / "e", clock=clock)
    clock.now += 9 * DAY_S
    assert [report.refused for report in late.preview().unsealed] == ["expired", None]
    client.close()
    assert client.preview().not_recording == "closed"
    assert len(client.preview().waiting) == 2 - 1, "what waits is shown after close() too"


def test_a_version_that_is_only_looked_at_lowers_no_limit(tmp_path: Path) -> None:
    """The strictest limits of all versions hold; a preview under a stricter one must not count as one of them."""
    make_client(tmp_path / "d", make_plan(version=2, lifetime="2")).preview()
    clock = Clock()
    client = make_client(tmp_path / "d", make_plan(lifetime="6"), clock=clock)
    for _ in range(3):
        client.flush(seal=True)
        clock.now += DAY_S
    assert client.counters() == {"sealed": 3}


def test_without_consent_nothing_is_looked_up(tmp_path: Path) -> None:
    client = make_client(tmp_path / "d", consent=False)
    preview = client.preview()
    assert (preview.unsealed, preview.waiting, preview.not_recording) == ((), (), "no_consent")
    assert not (tmp_path / "d").exists()


def test_without_a_plan_there_is_nothing_to_show_yet(tmp_path: Path) -> None:
    client = TelemetryClient(
        "127.0.0.1:9", data_dir=tmp_path / "d", consent=True, insecure=True, background=False, **NOWHERE
    )
    assert client.preview().not_recording == "no_plan"


def test_an_example_says_that_it_is_one_and_no_repr_shows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = parse_plan(PLAN.text.replace("upper = 5000", "upper = 5000\nlevels = 1000000"))
    client = make_client(tmp_path / "d", plan)
    client.record("cold_start_ms", 3141.59)
    with caplog.at_level(1):
        preview = client.preview()
    (report,) = preview.unsealed
    drawn = str(report.metrics[0].example[0])
    assert len(drawn) >= 4, "rare enough to be found by its digits"
    assert drawn in preview.as_text()
    assert preview.as_text().count(EXAMPLE) == 1
    for text in (repr(preview), str(preview), repr(report), repr(report.metrics), caplog.text):
        assert drawn not in text
