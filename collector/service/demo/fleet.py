"""What the simulated devices measure: a generated fleet, or rows of a CSV file grouped by device.

Nothing here is noise or a secret: a fleet is made input, so it may be made with a seeded generator.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from client_sdk.errors import ConfigurationError
from client_sdk.folding import Reading
from client_sdk.plan import Metric, Plan

COHORT_TARGET = 100
"""Participants of a cohort in the built-in plan; fewer devices make one smaller cohort."""

MIN_DEVICES = 5
"""Below this the built-in plan cannot lose a device and still open a sum."""

SILENT_SHARE = 0.05
"""Generated devices that have no reading of a metric."""

Readings = list[tuple[str, Reading]]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Per device its readings in order, and what of the input was left aside, counted."""

    readings: tuple[Readings, ...] = field(repr=False)
    left_out: dict[str, int]


def builtin_plan(devices: int, dropout: float) -> str:
    """The demo's plan as TOML, its cohort scaled to `devices` and to the share expected to drop out."""
    target = min(COHORT_TARGET, devices)
    expected_dropout = min(max(dropout, 0.1), 0.4)
    min_size = max(2, min(50, int(target * (1.0 - expected_dropout) * 0.7)))
    return f"""# The demo's plan: four questions about an app's health, one report a device and day.
[plan]
name = "app-health"
version = 1
period = "1d"
max_delay = "7d"

[cohort]
min_size = {min_size}
target_size = {target}
max_wait = "30s"
corrupt_fraction = 0.1
dropout_fraction = {expected_dropout:.2f}

[budget]
lifetime = 365

[metrics.cold_start_ms]
kind = "numeric"
lower = 0
upper = 5000
epsilon = 1.0
on_device = "mean"

[metrics.battery_drop_pct]
kind = "numeric"
lower = 0
upper = 20
epsilon = 1.0
on_device = "max"

[metrics.crashes]
kind = "numeric"
lower = 0
upper = 5
epsilon = 1.0
on_device = "sum"

[metrics.network]
kind = "categorical"
categories = ["wifi", "cellular", "offline"]
other = "other"
default = "offline"
epsilon = 2.0
"""


def generated_fleet(plan: Plan, devices: int, seed: int = 20240601) -> Fleet:
    """Readings for any plan: skewed numbers (some out of range), rare categories, unknown ones for `other`."""
    rng = random.Random(seed)  # noqa: S311 - made input, not noise
    return Fleet(tuple(_one_device(plan, rng) for _ in range(devices)), {})


def _one_device(plan: Plan, rng: random.Random) -> Readings:
    readings: Readings = []
    for name, metric in plan.metrics.items():
        if rng.random() < SILENT_SHARE:  # no reading: the plan's default speaks, or nothing does
            continue
        draw = {"categorical": _category, "vector": _vector}.get(metric.kind, _number)
        readings += [(name, draw(metric, rng)) for _ in range(rng.randint(1, 3))]
    return readings


def _number(metric: Metric, rng: random.Random) -> Reading:
    lower, upper = float(metric.lower or 0), float(metric.upper or 0)
    return round(lower + (upper - lower) * 1.4 * rng.betavariate(2.0, 5.0), 2)


def _category(metric: Metric, rng: random.Random) -> Reading:
    categories = list(metric.categories)
    if metric.other is not None:
        categories.append("something the plan does not list")
    weights = [1.0 / (rank + 1) for rank in range(len(categories))]
    return rng.choices(categories, weights)[0]


def _vector(metric: Metric, rng: random.Random) -> Reading:
    """Half again as long as it is clipped to, most of it in the first coordinates."""
    if metric.vector is None:
        return []
    numbers = [rng.gauss(1.0, 1.0) / (place + 1) for place in range(metric.vector.dimension)]
    length = math.hypot(*numbers) if metric.vector.norm == "l2" else math.fsum(map(abs, numbers))
    return [1.5 * rng.random() * float(metric.vector.clip) * number / (length or 1.0) for number in numbers]


def csv_fleet(path: Path, device_column: str, plan: Plan, devices: int) -> Fleet:
    """The first `devices` complete devices of a CSV file (gzip by name), each row's cells as readings.

    A device is complete when every metric of the plan has at least one reading that the plan can use. Columns
    that are no metric (dates among them) are ignored, empty cells skipped; what is left aside is counted: rows
    without a device, readings the SDK refuses (unknown categories where the plan has no `other`, numbers that
    are not finite). Raises ConfigurationError naming file, line and column.
    """
    vectors = [name for name, metric in plan.metrics.items() if metric.vector is not None]
    if vectors:
        raise ConfigurationError(f"{path}: a CSV file has no vectors, and {vectors[0]} is one; leave --data out")
    by_device: dict[str, Readings] = {}
    left_out = dict.fromkeys(("rows_without_device", "refused_readings", "incomplete_devices", "further_devices"), 0)
    with _open_text(path) as stream:
        for line, row in _rows(stream, path, device_column, plan):
            name = row.get(device_column) or ""
            if not name:
                left_out["rows_without_device"] += 1
                continue
            by_device.setdefault(name, []).extend(_cells(row, plan, path, line))
    usable = {name: [r for r in readings if _usable(plan, *r)] for name, readings in by_device.items()}
    complete = [by_device[name] for name, readings in usable.items() if {m for m, _ in readings} == set(plan.metrics)]
    left_out["refused_readings"] = sum(len(by_device[name]) - len(usable[name]) for name in by_device)
    left_out["incomplete_devices"] = len(by_device) - len(complete)
    left_out["further_devices"] = max(0, len(complete) - devices)
    if len(complete) < devices:
        raise ConfigurationError(
            f"{path}: {len(complete)} of {len(by_device)} devices have a reading for every metric, "
            f"{devices} asked for; lower --devices"
        )
    return Fleet(tuple(complete[:devices]), left_out)


def _open_text(path: Path) -> IO[str]:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        return path.open(encoding="utf-8-sig", newline="")
    except (OSError, ValueError) as error:  # a NUL in the name is a ValueError
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise ConfigurationError(f"{path}: cannot be read ({reason}); give --data an existing CSV file") from None


def _rows(stream: IO[str], path: Path, device_column: str, plan: Plan) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        reader = csv.DictReader(stream)
        columns = list(reader.fieldnames or [])
        for wanted in (device_column, *plan.metrics):
            if columns.count(wanted) > 1:
                raise ConfigurationError(f"{path}: column {wanted!r} stands there {columns.count(wanted)} times")
            if wanted not in columns:
                # without a header the first line holds readings, which stay out of the text
                raise ConfigurationError(
                    f"{path}: no column {wanted!r} in its first line ({len(columns)} columns; commas separate them)"
                )
        for row in reader:
            yield reader.line_num, row
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(
            f"{path}: not a readable CSV file ({type(error).__name__}); it must be UTF-8 text with commas"
        ) from None


def _usable(plan: Plan, name: str, value: Reading) -> bool:
    metric = plan.metrics[name]
    if isinstance(value, str):
        return value in metric.categories or metric.other is not None
    return isinstance(value, (int, float)) and math.isfinite(value)


def _cells(row: dict[str, str], plan: Plan, path: Path, line: int) -> Readings:
    readings: Readings = []
    for name, metric in plan.metrics.items():
        cell = row.get(name)  # None where the row is shorter than the header
        if not cell:
            continue
        if metric.kind == "categorical":
            readings.append((name, cell))
            continue
        try:
            readings.append((name, float(cell)))
        except ValueError:
            raise ConfigurationError(f"{path}: line {line}: column {name!r} is not a number") from None
    return readings
