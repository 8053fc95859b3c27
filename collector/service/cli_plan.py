"""`ldp-collector plan ACTION`: check a plan before it is published, compare versions, sign it for devices."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from client_sdk.errors import ConfigurationError
from client_sdk.files import load_plan, load_plan_signature, signature_path
from client_sdk.plan.check import check_plan
from client_sdk.plan.check_text import format_check
from client_sdk.plan.diff import diff_plans, format_diff
from client_sdk.plan.signature import sign_plan
from collector.service.cli_common import Subparsers, add_format, new_parser, print_json
from collector.service.settings import MachineError

EXAMPLE = """examples:
  ldp-collector plan check plan.toml
  ldp-collector plan check plan.toml --format json
  ldp-collector plan diff plan.toml next.toml
  ldp-collector plan keygen operator.key
  ldp-collector plan sign plan.toml --key operator.key

`keygen` prints the public key that devices pin (plan_key=); keep the other half off the collector's machine, for
whoever has it can give such devices any plan. `sign` writes plan.toml.sig: leave it beside the plan that is served."""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `plan` and its actions."""
    group = new_parser(
        subparsers, "plan", "check a plan before it is published, compare two versions, or sign one", EXAMPLE
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "print epsilon per report, day, 30 days and year, and the standard errors to expect"
    check = new_parser(actions, "check", text, EXAMPLE)
    check.add_argument("file", type=Path, metavar="FILE", help="the plan, TOML")
    add_format(check, "table", "json")
    text = "say what a new version breaks (exit 1 if anything) and what it costs a device's lifetime"
    diff = new_parser(actions, "diff", text, EXAMPLE)
    diff.add_argument("old", type=Path, metavar="OLD", help="the version that is in use, TOML")
    diff.add_argument("new", type=Path, metavar="NEW", help="the version that is to follow, TOML")
    add_format(diff, "table", "json")
    sign = new_parser(actions, "sign", "write an operator's signature beside a plan, as FILE.sig", EXAMPLE)
    sign.add_argument("file", type=Path, metavar="FILE", help="the plan, TOML")
    sign.add_argument("--key", type=Path, required=True, metavar="KEYFILE", help="the operator's key, from `keygen`")
    sign.add_argument("--force", action="store_true", help="also in place of a signature by another key")
    keygen = new_parser(actions, "keygen", "make an operator's key, and print what devices pin", EXAMPLE)
    keygen.add_argument("file", type=Path, metavar="KEYFILE", help="where the key goes (mode 0600); must not exist")


def run(args: argparse.Namespace) -> int:
    """One action. Raises what the command line turns into one line and an exit status."""
    return ACTIONS[args.action](args)


def _check(args: argparse.Namespace) -> int:
    """Exit 0 for a valid plan; an invalid one raises PlanError with every fault."""
    check = check_plan(load_plan(args.file))
    if args.format == "json":
        print_json(check.as_dict())
    else:
        sys.stdout.write(format_check(check) + "\n")
    return 0


def _diff(args: argparse.Namespace) -> int:
    """Exit 0 where nothing breaks, 1 where something does."""
    diff = diff_plans(load_plan(args.old), load_plan(args.new))
    if args.format == "json":
        print_json(diff.as_dict())
    else:
        sys.stdout.write(format_diff(diff) + "\n")
    return 1 if diff.breaks else 0


def _sign(args: argparse.Namespace) -> int:
    """Only a plan that can be served is signed."""
    from collector.service.registrar.key import read_key

    plan, key = load_plan(args.file), read_key(args.key, make="`plan keygen` makes one")
    if plan.registrar is not None and plan.registrar.key == key.public_key:
        raise ConfigurationError(f"{args.key}: is the registrar's key; sign with the operator's (`plan keygen`)")
    path = signature_path(args.file)
    if not args.force:
        _check_replaced(path, args.file, key.public_key)
    signature = sign_plan(key, plan)
    _replace(path, signature.as_text())
    sys.stdout.write(f"{path}: {plan.name} version {plan.version}, signed by {signature.key.hex()}\n")
    return 0


def _keygen(args: argparse.Namespace) -> int:
    """stdout has nothing but the public key."""
    from collector.service.registrar.key import create_key

    sys.stdout.write(f"{create_key(args.file).public_key.hex()}\n")
    return 0


def _check_replaced(path: Path, plan_path: Path, key: bytes) -> None:
    """Devices that pin the key of an earlier signature believe no other: not by a slip of the hand."""
    try:
        earlier = load_plan_signature(plan_path)
    except ConfigurationError:  # whatever it is, it is no signature that anybody could believe
        return
    if earlier is not None and earlier.key != key:
        raise ConfigurationError(
            f"{path}: is signed by another key ({earlier.key.hex()}), and devices that pin it take no other; "
            "--force to replace it"
        )


def _replace(path: Path, text: str) -> None:
    """Whole or not at all: a collector may start meanwhile."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="ascii")
        unfinished.replace(path)
    except OSError as error:
        raise MachineError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


ACTIONS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "check": _check,
    "diff": _diff,
    "sign": _sign,
    "keygen": _keygen,
}
