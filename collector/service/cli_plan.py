"""`ldp-collector plan check FILE`: what a plan costs its users and how exact its answers will be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from client_sdk.files import load_plan
from client_sdk.plan.check import check_plan, format_check
from collector.service.cli_common import Subparsers, add_format, new_parser, print_json

EXAMPLE = """example:
  ldp-collector plan check plan.toml
  ldp-collector plan check plan.toml --format json"""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `plan check`."""
    group = new_parser(subparsers, "plan", "check a plan before it is published", EXAMPLE)
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "print epsilon per report, day, 30 days and year, and the standard errors to expect"
    parser = new_parser(actions, "check", text, EXAMPLE)
    parser.add_argument("file", type=Path, metavar="FILE", help="the plan, TOML")
    add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> int:
    """Exit 0 for a valid plan; an invalid one raises PlanError with every fault."""
    check = check_plan(load_plan(args.file))
    if args.format == "json":
        print_json(check.as_dict())
    else:
        sys.stdout.write(format_check(check) + "\n")
    return 0
