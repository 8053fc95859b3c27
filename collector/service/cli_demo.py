"""`ldp-collector demo`: the whole path on one machine, in one line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from client_sdk.errors import ConfigurationError
from collector.service.demo.command import add_output, demo_folder, kept, signals_as_exceptions, told

if TYPE_CHECKING:
    from client_sdk.plan import Plan

EXAMPLE = """example:
  ldp-collector demo
  ldp-collector demo --devices 1000 --dropout 0.2 --json > result.json
  ldp-collector demo --plan deploy/greenhub.toml --data facts.csv.gz --device-column device --devices 900
"""

MAX_DEVICES = 20_000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `demo` and its options."""
    parser = subparsers.add_parser(
        "demo",
        help="simulate a fleet of real devices against a collector on loopback and check the estimates",
        description="Starts a registrar and a collector on loopback and a fleet of devices of the real SDK, loses "
        "some of them on the way, and prints every estimate beside the truth over its contributors. Exit 1 where an "
        "estimate lies further than 5 standard errors from its truth, or nothing was released.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--devices", type=int, default=300, metavar="N", help="how many devices (default 300)")
    parser.add_argument(
        "--dropout", type=float, default=0.1, metavar="F",
        help="share of devices that leave, spread over the protocol's steps (default 0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--plan", type=Path, metavar="FILE",
        help="a plan of your own instead of the built-in one; the demo's registrar takes the place of the one in it",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="readings from a CSV file (.csv or .csv.gz); needs --plan"
    )
    parser.add_argument("--device-column", metavar="NAME", help="the CSV's device column (default: device)")
    add_output(parser, "collector.db, registrar/, devices/, plan.toml and result.json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the estimates hold, 1 when they do not; wrong input raises, the command line turns it into 2."""
    from client_sdk.files import load_plan
    from client_sdk.plan import parse_plan
    from collector.service.demo.fleet import builtin_plan, csv_fleet, generated_fleet
    from collector.service.demo.result import build_result
    from collector.service.demo.run import registrar_in, run_fleet, with_registrar
    from collector.service.demo.show import print_tables

    _check(args)
    plan = load_plan(args.plan) if args.plan else parse_plan(builtin_plan(args.devices, args.dropout))
    _check_size(args.devices, plan)
    data = args.data
    column = args.device_column or "device"
    fleet = csv_fleet(data, column, plan, args.devices) if data else generated_fleet(plan, args.devices)
    with signals_as_exceptions(), demo_folder(args.out) as folder, _progress(args.devices) as progress:
        plan = with_registrar(plan, registrar_in(folder).create().public_key)
        plan_path = folder / "plan.toml"
        plan_path.write_text(plan.text, encoding="utf-8")
        fleet_run = run_fleet(plan, plan_path, fleet, args.dropout, folder, progress)
        result = build_result(plan, fleet_run, f"sqlite:///{folder / 'collector.db'}", fleet.left_out)
        encoded = kept(result, folder)
    return told(result, encoded, args.format, print_tables)


def _check(args: argparse.Namespace) -> None:
    from collector.service.demo.fleet import MIN_DEVICES

    if not MIN_DEVICES <= args.devices <= MAX_DEVICES:
        raise ConfigurationError(f"--devices must lie between {MIN_DEVICES} and {MAX_DEVICES:,}, not {args.devices}")
    if not 0.0 <= args.dropout <= 1.0:
        raise ConfigurationError(f"--dropout is a share between 0 and 1, not {args.dropout}")
    if args.data and not args.plan:
        raise ConfigurationError("--data needs --plan FILE: the plan's metric names pick the columns")
    if args.device_column and not args.data:
        raise ConfigurationError("--device-column names a column of --data FILE, which is missing")


def _check_size(devices: int, plan: Plan) -> None:
    from client_sdk.secagg.parameters import min_roster

    if devices < plan.cohort.min_size:
        raise ConfigurationError(
            f"--devices {devices} is below the plan's cohort.min_size {plan.cohort.min_size}: no sum may be opened"
        )
    needed = min_roster(plan.cohort.min_size, plan.cohort.dropout_fraction)
    if devices < needed:
        raise ConfigurationError(
            f"--devices {devices} is below {needed}, the smallest roster of a plan with cohort.min_size "
            f"{plan.cohort.min_size} that expects {float(plan.cohort.dropout_fraction):.0%} to drop out"
        )


@contextmanager
def _progress(devices: int) -> Iterator[Any]:
    """A bar on stderr over all devices' protocol steps."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from collector.service.demo.run import STEPS

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"{devices} devices", total=devices * len(STEPS))
        yield lambda step: bar.update(task, advance=1, description=f"{devices} devices: {step.replace('_', ' ')}")
        bar.update(task, completed=devices * len(STEPS), description=f"{devices} devices: done")
