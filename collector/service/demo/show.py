"""Prints the demo's result as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from collector.reports.text import plain
from collector.service.demo.result import standard_errors_off
from collector.service.demo.run import DROP_STEPS


def print_tables(document: Mapping[str, Any], console: Console) -> None:
    """Rounds, estimates beside their truth, and what each user spent."""
    plan = document["plan"]
    console.print(
        f"{document['devices']} devices, plan {plan['name']} version {plan['version']} "
        f"({plan['hash'][:12]}…), {document['seconds']:.1f} s"
    )
    console.print(_rounds_table(document["rounds"]))
    for metric in document["metrics"]:
        console.print(_metric_table(metric))
    console.print(
        "SE and interval are the estimate's own; `off by` is in SE, or in that of the truth where it is larger."
    )
    _print_privacy(document["privacy"], console)
    if any(document["left_out"].values()):
        parts = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in document["left_out"].items())
        console.print(f"Left out of the input: {parts}")


def _rounds_table(rounds: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Rounds (shares .. unmask: how many left before that step; n: contributors)", title_justify="left"
    )
    for column in ("cohort", "joined", *(step.split("_")[0] for step in DROP_STEPS), "n", "s"):
        table.add_column(column, justify="left" if column == "cohort" else "right", no_wrap=True)
    table.add_column("outcome", min_width=8)
    for r in rounds:
        drops = r["dropouts"]
        table.add_row(
            r["cohort"][:8], str(r["joined"]), *(str(drops[step]) for step in DROP_STEPS),
            str(r["contributors"]), f"{r['seconds']:.1f}",
            r["outcome"] + (f" ({r['reason']})" if r["reason"] else ""),
        )  # fmt: skip
    return table


def _metric_table(metric: Mapping[str, Any]) -> Table:
    title = f"{metric['name']}: {metric['mechanism']}, epsilon {plain(metric['epsilon'])}, n = {metric['contributors']}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("value")
    sampled = any(e["judged_by"] == "population_error" for e in metric["estimates"])
    for column in ("estimate", "SE (population)" if sampled else "SE", "95 % interval", "truth", "off by"):
        table.add_column(column, justify="right", no_wrap=True)
    for e in metric["estimates"]:
        off, (low, high) = standard_errors_off(e), e["population_ci95" if sampled else "ci95"]
        table.add_row(
            _label(e), _number(e["estimate"] if e["smoothed"] is None else e["smoothed"]),
            _number(e[e["judged_by"]]), "-" if low is None else f"{low:,.2f} .. {high:,.2f}",
            _number(e["truth"]), "-" if off is None else f"{off:.1f} SE",
        )  # fmt: skip
    return table


def _label(estimate: Mapping[str, Any]) -> str:
    """With what the number is, where it is not unbiased."""
    kind = estimate["estimator"]
    return str(estimate["label"]) if kind == "unbiased" else f"{estimate['label']} ({kind})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _print_privacy(privacy: Mapping[str, Any], console: Console) -> None:
    local = privacy["epsilon_local"]
    console.print(
        f"Epsilon spent per user (local, pure; {privacy['devices']} users): "
        + ", ".join(f"{name} {plain(local[name])}" for name in ("min", "median", "max"))
    )
    console.print("Three users' ledgers:")
    for user in privacy["sample_users"]:
        stayed = f"left before {user['left_before']}" if user["left_before"] else "stayed"
        console.print(f"  {user['device']} ({stayed.replace('_', ' ')})")
        for entry in user["entries"]:
            console.print(
                f"    {entry['period_start']}  {entry['plan']} version {entry['version']}  "
                f"epsilon {entry['epsilon']}  {entry['outcome']}"
            )
        console.print(
            f"    spent: {user['epsilon_on_device']} on the device, {user['epsilon_at_collector']} at the collector"
        )
