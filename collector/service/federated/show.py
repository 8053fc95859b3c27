"""Prints the demo's result as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from collector.federated.cost import RELATIONS


def print_tables(document: Mapping[str, Any], console: Console) -> None:
    """Rounds side by side, then what they cost."""
    rounds, plan = document["rounds"], document["plan"]
    console.print(
        f"{document['devices']} devices, {len(rounds)} rounds, plan {plan['name']} ({plan['hash'][:12]}…), "
        f"{document['seconds']:.1f} s. Guessing is right in {document['guessing']:.1%}; plain: without privacy; "
        + "; ".join(f"{name.upper()}: {cost['title']}" for name, cost in document["cost"].items())
    )
    console.print(_rounds_table(document))
    for cost in document["cost"].values():
        _print_cost(cost, console)
    both = sum(cost["report"]["epsilon_plain"] for cost in document["cost"].values())
    console.print(
        "Local: to whoever sees the device's own reports; nothing amplifies it. Central: to whoever sees only sums "
        "(of a report that was sent twice the local figure holds). "
        f"Both lines ride in one report here, so a device of this demo pays for both: epsilon {both:g} a report."
    )


def _rounds_table(document: Mapping[str, Any]) -> Table:
    table = Table(
        title="Accuracy after each round, C in it, epsilon so far: local / central (PLD, replace)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    names = list(document["cost"])
    for column in ("round", "n", "plain"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in names:
        for column in (name.upper(), "C", "epsilon"):
            table.add_column(column, justify="right", no_wrap=True)
    for r in document["rounds"]:
        cells = [str(r["round"]), str(r["contributors"]), f"{r['accuracy_without_privacy']:.1%}"]
        for line in (r["lines"][name] for name in names):
            local, central = line["epsilon_local"]["pld"], line["epsilon_central"]["replace"]["pld"]
            cells += [f"{line['accuracy']:.1%}", f"{line['clip']:.2f}", f"{local:.1f} / {central:.1f}"]
        table.add_row(*cells)
    return table


def _print_cost(cost: Mapping[str, Any], console: Console) -> None:
    report, lifetime = cost["report"], cost["lifetime"]
    table = Table(
        title=f"{cost['title']}: epsilon at delta {cost['delta']:g}; central: n_h = {cost['n_h']} honest ones in a sum",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("neighbours (sensitivity of update; bit)", no_wrap=True)
    for column in ("1 report", "by RDP", f"{lifetime['rounds']} reports", "by RDP"):
        table.add_column(column, justify="right", no_wrap=True)
    replace = cost["relations"]["replace"]
    table.add_row(f"local: {_relation(replace)}", *_cells(report["epsilon_local"]), *_cells(lifetime["epsilon_local"]))
    for relation in RELATIONS:
        found = [(part["epsilon_central"] or {}).get(relation) for part in (report, lifetime)]
        table.add_row(f"central: {_relation(cost['relations'][relation])}", *_cells(found[0]), *_cells(found[1]))
    console.print(table)
    console.print(f"Local, by the plain sum: {_plain(report)} a report, {_plain(lifetime)} for all.")


def _relation(relation: Mapping[str, Any]) -> str:
    sensitivity = relation["sensitivity"]
    return f"{relation['text']} ({sensitivity['update']}; {sensitivity['bit']})"


def _cells(found: Mapping[str, float] | None) -> tuple[str, str]:
    return ("-", "-") if found is None else (f"{found['pld']:.3f}", f"{found['rdp']:.3f}")


def _plain(part: Mapping[str, Any]) -> str:
    delta = float(part["delta_plain"])
    return f"{part['epsilon_plain']:g}" + (f" (delta {delta:g})" if delta else " (delta 0)")
