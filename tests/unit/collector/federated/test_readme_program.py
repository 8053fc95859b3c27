"""The README's program for the collector's half of federated averaging, run as it is printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from collector.federated.averaging import State, advance
from collector.service.federated.data import DIMENSION
from collector.service.federated.lines import both_lines, demo_plan
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import DAY_S, NOW, PERIOD, make_release

README = Path(__file__).resolve().parents[4] / "README.md"
DEVICES, ROUNDS = 60, 2


def printed_program() -> str:
    (section,) = re.findall(r"\n### Federated averaging\n(.*?)\n### ", README.read_text(encoding="utf-8"), re.S)
    (program,) = (text for text in re.findall(r"```python\n(.*?)```", section, re.S) if "CollectorStore" in text)
    return str(program)


def test_it_makes_the_demos_model_out_of_what_the_demo_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder as of the demo, two cohorts a round: the state is that of the line, rounds in their order."""
    plan, line = demo_plan(DEVICES, ROUNDS), both_lines(DEVICES)[1]
    (tmp_path / "plan.toml").write_text(plan.text, encoding="utf-8")
    store, noise = CollectorStore.open(f"sqlite:///{tmp_path / 'collector.db'}"), np.random.default_rng(1)
    store.put_plan(plan, NOW)
    for number in range(2 * ROUNDS):
        totals = noise.integers(-10_000, 10_000, plan.length).tolist()
        devices, day = range(30 * (number % 2), 30 * (number % 2) + 30), PERIOD - DAY_S * (number // 2)
        store.store_release(make_release(plan, f"r{number}", devices, period_start=day, totals=totals))
    wanted = State(0, (0.0,) * DIMENSION, line.first_clip)
    for day in (PERIOD - DAY_S, PERIOD):
        wanted = advance(line.task, plan, wanted, store.released_sums(since=day, until=day + DAY_S)).state
    store.close()
    (tmp_path / "program.py").write_text(printed_program(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py")
    assert (tmp_path / "next.json").read_text(encoding="utf-8") == wanted.to_json()
    said = capsys.readouterr().out.splitlines()
    assert [row.split(":")[0] for row in said[:2]] == ["after round 1", "after round 2"]
    assert said[2].startswith("Epsilons(pld=5.93")
