"""`ldp-collector federated-demo`: a model learned from many devices in real rounds, beside the one without privacy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client_sdk.errors import ConfigurationError
from collector.reports.text import printable
from collector.service.demo.command import add_output, demo_folder, kept, signals_as_exceptions, told

if TYPE_CHECKING:
    from collector.federated.averaging import Outcome

EXAMPLE = """example:
  ldp-collector federated-demo
  ldp-collector federated-demo --devices 60 --rounds 3 --json > result.json
"""

DEVICES: Final = 200
ROUNDS: Final = 5
MIN_DEVICES, MAX_DEVICES = 10, 5_000
MAX_ROUNDS: Final = 60
MAX_SEED: Final = 2**32 - 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `federated-demo` and its options."""
    parser = subparsers.add_parser(
        "federated-demo",
        help="learn a model from simulated devices in real rounds, privately in two ways",
        description="Starts a registrar and a collector on loopback and a fleet of devices of the real SDK, which "
        "learn one logistic regression together: clipped in L1 behind Laplace noise, and in L2 behind Gaussian noise, "
        "beside federated averaging without privacy. Prints accuracy and epsilon after each round. Exit 1 where an "
        "average is not what its devices' updates and noise explain, or nothing was learned.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--devices", type=int, default=DEVICES, metavar="N", help=f"how many devices ({DEVICES})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"how many rounds ({ROUNDS})")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="of the generated data (1); noise has none, it is the machine's",
    )
    add_output(parser, "collector.db, registrar/, devices/, plan.toml, the models and result.json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit 0 for PASS, 1 for FAIL; wrong input raises, the command line turns it into 2."""
    from collector.service.federated.data import generated_world
    from collector.service.federated.lines import both_lines, demo_plan
    from collector.service.federated.result import build_result
    from collector.service.federated.run import run_rounds
    from collector.service.federated.show import print_tables

    _check(args)
    plan, lines = demo_plan(args.devices, args.rounds), both_lines(args.devices)
    world = generated_world(args.devices, args.seed)
    with (
        _end_is_told(args.out),
        signals_as_exceptions(),
        demo_folder(args.out) as folder,
        _progress(args.devices, args.rounds) as progress,
    ):
        done = run_rounds(plan, lines, world, args.rounds, folder, progress.step, progress.ended)
        result = build_result(plan, lines, world, done, args.rounds)
        encoded = kept(result, folder)
    return told(result, encoded, args.format, print_tables)


@contextmanager
def _end_is_told(out: Path | None) -> Iterator[None]:
    """One line where Ctrl-C or a signal ends the demo before its verdict: what stands in `out` now."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        found = sorted(path.name + "/" * path.is_dir() for path in out.iterdir()) if out and out.is_dir() else []
        what = f"{printable(str(out))} keeps {', '.join(found)}" if found else "nothing was kept"
        sys.stderr.write(f"ldp-collector federated-demo: ended before its verdict; {what}\n")
        raise


def _check(args: argparse.Namespace) -> None:
    limits = {"devices": (MIN_DEVICES, MAX_DEVICES), "rounds": (1, MAX_ROUNDS), "seed": (0, MAX_SEED)}
    for name, (fewest, most) in limits.items():
        if not fewest <= getattr(args, name) <= most:
            raise ConfigurationError(f"--{name} must lie between {fewest} and {most}, not {getattr(args, name)}")


@dataclass(frozen=True, slots=True)
class _Progress:
    """step: a device did one of its steps; ended: a round has, with each line's outcome."""

    step: Callable[[str], None]
    ended: Callable[[int, Mapping[str, Outcome]], None]


@contextmanager
def _progress(devices: int, rounds: int) -> Iterator[_Progress]:
    """A bar over all devices' steps where stderr is a terminal; elsewhere a line a round."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Progress(lambda _: None, lambda number, outcomes: _say(number, rounds, outcomes))
        return
    with _bar(console, devices, rounds) as progress:
        yield progress


def _say(number: int, rounds: int, outcomes: Mapping[str, Outcome]) -> None:
    parts = ", ".join(f"{name} next C {outcome.state.clip:.3g}" for name, outcome in outcomes.items())
    count = max((outcome.contributors for outcome in outcomes.values()), default=0)
    sys.stderr.write(f"round {number} of {rounds}: {count} devices, {parts}\n")
    sys.stderr.flush()


@contextmanager
def _bar(console: Any, devices: int, rounds: int) -> Iterator[_Progress]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from collector.service.federated.run import STEPS_A_ROUND

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    each = devices * STEPS_A_ROUND
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"round 1 of {rounds}", total=each * rounds)

        def ended(number: int, _: Mapping[str, Outcome]) -> None:
            # a step that was done twice, or not at all, must not move the bar for the rest of the run
            bar.update(task, completed=each * number, description=f"round {min(number + 1, rounds)} of {rounds}")

        yield _Progress(lambda _: bar.update(task, advance=1), ended)
        bar.update(task, completed=each * rounds, description=f"{rounds} rounds: done")
