"""`ldp-collector price`: what a setting costs in epsilon, before anybody deploys it. It reads and writes nothing."""

from __future__ import annotations

import argparse
import os
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from client_sdk.accounting.budget import format_micro
from client_sdk.accounting.loss import RELATION
from client_sdk.accounting.words import in_words
from client_sdk.errors import ConfigurationError, PlanError
from collector.service.cli_common import Subparsers, new_parser, print_json
from collector.service.cli_numbers import add_corrupt, add_delta, epsilon, whole

if TYPE_CHECKING:
    from collector.accounting.price import Price

EXAMPLE = """examples:
  ldp-collector price --mechanism laplace --epsilon 1 --contributors 1000
  ldp-collector price --mechanism randomized_response --k 8 --epsilon 0.5 --contributors 200 --corrupt 0.1 --rounds 365
  ldp-collector price --mechanism optimized_unary --k 20 --epsilon 4 --contributors 1000 --json
  ldp-collector price --mechanism laplace --epsilon 1 --contributors 1000 --fleet 100000 --rounds 30

Local: somebody who sees each report. Central: somebody who sees only sums of which n_h reports are honest, the user's
own counted; without --contributors nobody is, and central is local. A number has a lattice of 1000 levels."""

MOST_LABELS: Final = 1 << 20
MOST: Final = 100_000
"""Releases in all: five metrics a day for more than fifty years."""

MOST_CONTRIBUTORS: Final = 1_000_000_000


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `price`."""
    parser = new_parser(subparsers, "price", "print what a setting costs before it is deployed", EXAMPLE)
    parser.add_argument("--mechanism", required=True, metavar="NAME", help="a mechanism as plans name it")
    parser.add_argument("--epsilon", required=True, type=epsilon, metavar="E", help="of one report of one metric")
    text = "categories, or bins of square_wave; numbers have none"
    parser.add_argument("--k", type=whole(2, MOST_LABELS), metavar="K", help=text)
    text = "reports that each sum holds"
    parser.add_argument("--contributors", type=whole(1, MOST_CONTRIBUTORS), metavar="N", help=text)
    text = "devices out of which each sum's contributors are drawn at random, unseen (default: nobody draws)"
    parser.add_argument("--fleet", type=whole(1, MOST_CONTRIBUTORS), metavar="N", help=text)
    add_corrupt(parser, "0")
    text = "reports that a user makes, one a period (default 1)"
    parser.add_argument("--rounds", type=whole(1, MOST), default=1, metavar="R", help=text)
    text = "equal metrics of each report (default 1)"
    parser.add_argument("--metrics", type=whole(1, MOST), default=1, metavar="M", help=text)
    add_delta(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Exit 0; wrong numbers raise what names the option."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read as numpy comes: a second thread only waits, and burns CPU
    from collector.accounting.price import losses_of, price

    if args.rounds * args.metrics > MOST:
        raise ConfigurationError(f"--rounds: times --metrics must be at most {MOST}, not {args.rounds * args.metrics}")
    if args.fleet is not None and (args.contributors is None or args.fleet < args.contributors):
        raise ConfigurationError("--fleet: goes with --contributors, and is at least as many")
    try:
        losses = losses_of(args.mechanism, args.epsilon, args.k)
    except PlanError as error:
        raise ConfigurationError(f"--{error.problems[0]}") from None
    found = price(
        losses,
        contributors=args.contributors,
        corrupt=args.corrupt or Fraction(0),
        releases=args.rounds * args.metrics,
        delta=args.delta,
        fleet=args.fleet,
    )
    if args.json:
        print_json(_as_dict(found))
    else:
        sys.stdout.write(_as_text(found, args))
    return 0


def _as_dict(found: Price) -> dict[str, Any]:
    return {
        "eps_local_pure": float(found.eps_local_pure),
        "eps_local": found.eps_local,
        "eps_central": found.eps_central,
        "n_h": found.n_h,
        "method": found.method,
        **_outsiders(found),
    }


def _outsiders(found: Price) -> dict[str, Any]:
    """Only where it was asked for, and never without what it holds under."""
    if found.eps_outsiders is None:
        return {}
    from collector.accounting.subsampling import OUTSIDERS

    return {"eps_outsiders": found.eps_outsiders, "outsiders": OUTSIDERS}


def _as_text(found: Price, args: argparse.Namespace) -> str:
    """Three figures, each with whom it holds against, and what they mean."""
    rows = (
        ("eps_local_pure", format_micro(round(found.eps_local_pure * 1_000_000)), "every report seen, delta 0"),
        ("eps_local", f"{found.eps_local:.6g}", f"every report seen, delta {args.delta:g}"),
        ("eps_central", f"{found.eps_central:.6g}", f"only sums seen, n_h {found.n_h}, delta {args.delta:g}"),
    )
    figures = "".join(f"{name:<15} {amount:>14}   {against}\n" for name, amount, against in rows)
    words = (
        f"Against whoever sees every report: {in_words(found.eps_local, args.delta).sentence}.\n"
        f"Against whoever sees only the sums: {in_words(found.eps_central, args.delta).sentence}.\n"
    )
    if found.eps_outsiders is not None:
        against = f"sums seen, and never who was in, delta {args.delta:g}"
        figures += f"{'eps_outsiders':<15} {f'{found.eps_outsiders:.6g}':>14}   {against}\n"
        words += f"eps_outsiders holds {_outsiders(found)['outsiders']}.\n"
    return figures + f"Relation: {RELATION}. Method: {found.method}.\n" + words + _conditions(args)


def _conditions(args: argparse.Namespace) -> str:
    if args.contributors is None:
        return "No --contributors: nobody is assumed to hide a report, so central is local.\n"
    from collector.accounting.figures import CONDITIONS

    return f"Central holds {CONDITIONS}.\n"
