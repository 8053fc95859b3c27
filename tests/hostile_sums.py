"""A store whose sums are as hard to add up as sums can be, and the documents that every engine has to give of it.

In it: totals past 2^63 over the rounds of a period, and past -2^63; 400 versions of one plan; names and categories in
any script and with every quote; a vector of more cells than have rows; a sampled metric that nobody held; direct and
resent reports; a plan and periods without any sum; rounds without a reason; spends that are folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

from sqlalchemy import insert, update

from client_sdk.plan import Plan, parse_plan
from collector.plan_texts import read_plan
from collector.reports import build_report, to_json
from collector.service import documents
from collector.service import tables as t
from collector.service.storage import CollectorStore, Contributor, Release, RoundRecord
from collector.service.storage_rows import DIRECT

DAY_S: Final = 86_400
NOW: Final = 1_780_000_000
PERIOD: Final = NOW // DAY_S * DAY_S
VERSIONS: Final = 400
LONG: Final = t.MAX_CELL_ROWS + 5
LARGEST: Final = 2**63 - 1

_HEAD = """
# приложение 名 "'`\\
[plan]
name = "{name}"
version = {version}
period = "1d"
{sample}
[cohort]
min_size = 2
target_size = 10
max_wait = "30s"
[budget]
lifetime = 1000000
"""
_COLOUR = """
[metrics.colour]
kind = "categorical"
categories = ["прив\u0435т", "名前", "a\\"b'c", "=1+1", "<b>"{more}]
other = "other"
epsilon = {epsilon}
"""
_SECONDS = """
[metrics.seconds]
kind = "numeric"
lower = 0
upper = 1000
epsilon = {epsilon}
"""


def app(version: int) -> Plan:
    more = f', "v{version % 3}"' if version > 1 else ""
    text = _HEAD.format(name="app", version=version, sample="") + _COLOUR.format(more=more, epsilon=1 + version % 4)
    return parse_plan(text + _SECONDS.format(epsilon=1 + version % 4))


def named(name: str, metrics: str, sample: str = "") -> Plan:
    return parse_plan(_HEAD.format(name=name, version=1, sample=sample) + metrics)


APP: Final = [app(version) for version in range(1, VERSIONS + 1)]
LARGE: Final = named("large", _SECONDS.format(epsilon=2))
VECTOR: Final = named(
    "long",
    f'[metrics.many]\nkind = "categorical"\ncategories = [{", ".join(f"{chr(34)}c{i}{chr(34)}" for i in range(LONG))}]'
    "\nepsilon = 4\n",
)
SAMPLED: Final = named(
    "sampled", _COLOUR.format(more="", epsilon=1) + _SECONDS.format(epsilon=1), sample="sample_metrics = 1"
)
UNUSED: Final = named("unused", _COLOUR.format(more="", epsilon=1))
PLANS: Final = [*APP, LARGE, VECTOR, SAMPLED, UNUSED]

WINDOWS: Final = ((None, None), (PERIOD - 2 * DAY_S, PERIOD), (PERIOD + DAY_S, None))


def fill(store: CollectorStore, versions: int = VERSIONS) -> None:
    """Plans past the check of their history, which looks at every version again for each. versions: of `app`."""
    plans = [*APP[:versions], *PLANS[VERSIONS:]]
    rows = [
        {"hash": p.hash, "name": p.name, "version": p.version, "period_s": DAY_S, "text": p.text, "added_at": NOW}
        for p in plans
    ]
    store._write(lambda conn: conn.execute(insert(t.plans), rows))
    for release in releases(versions):
        store.store_release(release)
    for i in range(3):
        store.record_aborted(_aborted(i, None if i else "too_few"))


def fold(store: CollectorStore) -> None:
    """The oldest spends, as housekeeping does; and one device has spent for what no row explains any more."""
    assert store.fold_spends(NOW + 365 * DAY_S, 365 * DAY_S)
    d = t.device_totals.c
    more = {"micro_epsilon": d.micro_epsilon + 7, "folded_micro_epsilon": d.folded_micro_epsilon + 7}
    store._write(lambda conn: conn.execute(update(t.device_totals).where(d.device == device(0)).values(more)))


def releases(versions: int) -> Iterable[Release]:
    for i, plan in enumerate(APP[:versions]):
        n = 3 + i % 4
        colours = [n - 1, 1] + [0] * (len(plan.metrics["colour"].mechanism.labels) - 2)
        devices = range(10 * i, 10 * i + n)
        yield _release(plan, f"app-{i}", devices, [*colours, 400 * n], PERIOD - i % 8 * DAY_S)
    for i in range(4):
        yield _release(LARGE, f"past-{i}", range(20 * i, 20 * i + 5), [LARGEST - i], PERIOD)
        yield _release(LARGE, f"below-{i}", range(20 * i, 20 * i + 5), [-LARGEST - 1 + i], PERIOD - DAY_S)
    for i in range(2):
        cells = [(7 * cell + i) % 5 - 2 for cell in range(LONG)]
        yield _release(VECTOR, f"long-{i}", range(50 * i, 50 * i + 9), cells, PERIOD)
    colours = len(SAMPLED.metrics["colour"].mechanism.labels)
    for i, held in enumerate((0, 2, 6)):
        totals = [0] * SAMPLED.length
        totals[SAMPLED.slices["colour"].start] = held
        totals[SAMPLED.slices["seconds"].start] = -300 * (6 - held)
        totals[SAMPLED.counts["colour"]], totals[SAMPLED.counts["seconds"]] = held, 6 - held
        yield _release(SAMPLED, f"sampled-{i}", range(10 * i, 10 * i + 6), totals, PERIOD, resent=[10 * i])
    assert colours == 6
    yield _release(APP[5], "direct", [9_001], [1] + [0] * (APP[5].length - 2) + [-70], PERIOD, delivery=DIRECT)


def device(number: int) -> str:
    return f"{number:032x}"


def _release(
    plan: Plan, round_id: str, devices: Iterable[int], totals: Sequence[int], period: int,
    resent: Sequence[int] = (), delivery: str = "interactive",
) -> Release:  # fmt: skip
    contributors = [Contributor(device(n), n.to_bytes(16, "big"), n in resent) for n in devices]
    dropouts = {"shares": 1, "masked_input": 0, "confirm": 2, "unmask": 0}
    return Release(
        round_id, plan, period, totals, contributors, len(contributors) + 3, len(resent), dropouts, 1.25,
        period + 3600, delivery,
    )  # fmt: skip


def _aborted(number: int, reason: str | None) -> RoundRecord:
    none = dict.fromkeys(("shares", "masked_input", "confirm", "unmask"), 1)
    return RoundRecord(f"aborted-{number}", LARGE.hash, PERIOD, 7, 0, none, "aborted", reason, 0.5, NOW)


# --- what has to be the same ------------------------------------------------------------------------


def reports(source: Any) -> list[str]:
    """The JSON of reports: whole, by window, and of one metric. source: has `plans` and `reduced`."""
    plans = [read_plan(plan.text, plan.hash) for plan in source.plans()]
    return [
        to_json(build_report(plans, source.reduced(metric, since, until), since, until, metric))
        for metric, (since, until) in ((None, WINDOWS[0]), (None, WINDOWS[1]), ("seconds", WINDOWS[2]))
    ]


def ledgers(
    source: documents.FleetSource, now: float = NOW, windows: Sequence[str] = ("24h", "30d", "lifetime")
) -> list[str]:
    """The JSON of what devices have spent: as a distribution, and of each."""
    half = documents.Assumed(corrupt=Fraction(1, 3))
    return [
        to_json(documents.fleet_document(source, now)),
        to_json(documents.exact_fleet_document(source, now, windows, half)),
        to_json(documents.all_devices_document(source, now)),
        to_json(documents.all_devices_document(source, now, windows, half)),
    ]
