"""`ldp-collector audit`: does the installed build keep the epsilon that a plan claims? One verdict at the end.

Per metric the exact ratio of the integers that ship, and a black-box audit of both samplers, `perturb_many` and
`perturb`, on fresh randomness of this machine; of a memoised metric the same for its permanent answers ("all reports").
A failed audit is exit status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from client_sdk.accounting.loss import plain
from client_sdk.errors import ConfigurationError
from client_sdk.files import load_plan
from client_sdk.mechanisms import Value
from client_sdk.plan import Plan
from collector.audit import ALPHA, SAMPLES_MIN, MetricAudit, audit_metrics
from collector.reports.text import printable
from collector.service.cli_common import Subparsers, add_format, new_parser, print_json

EXAMPLE = """examples:
  ldp-collector audit --plan plan.toml
  ldp-collector audit --plan plan.toml --samples 1000000
  ldp-collector audit --plan plan.toml --format json

`exact` is ln of the largest ratio of two inputs' probabilities, from the integers that the sampler draws with. `at
least` is what the reports of two inputs certify by themselves: above the claim, the sampler leaks. A sampler that keeps
its claim is convicted once in a million audits at most. `all reports`: of a memoised metric's permanent answers, which
any number of reports of one value tell at most. Passing proves the integers, and of the sampler that no event
which this audit looks at gave it away: more samples see smaller leaks."""

SAMPLES: Final = 200_000
SAMPLES_MAX: Final = 10_000_000
HEADER: Final = ("metric", "mechanism", "claimed", "exact", "sampler", "at least", "samples", "verdict")


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `audit`."""
    parser = new_parser(subparsers, "audit", "check that the installed mechanisms keep a plan's epsilon", EXAMPLE)
    parser.add_argument("--plan", type=Path, required=True, metavar="FILE", help="the plan, TOML")
    help_text = f"reports of each input per metric, fewer where they are wide or made singly (default {SAMPLES:,})"
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help=help_text)
    add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> int:
    """Exit 0 where every metric passes, 1 where one does not."""
    if not SAMPLES_MIN <= args.samples <= SAMPLES_MAX:
        raise ConfigurationError(f"--samples: must lie between {SAMPLES_MIN} and {SAMPLES_MAX}, not {args.samples}")
    plan = load_plan(args.plan)
    audits = list(audit_metrics(list(plan.metrics.values()), os.urandom, samples=args.samples))
    if args.format == "json":
        print_json(_as_dict(plan, audits))
    else:
        sys.stdout.write("\n".join([*_aligned([HEADER, *_rows(audits)]), *_evidence(audits), _verdict(audits)]) + "\n")
    return 0 if all(audit.passed for audit in audits) else 1


def _rows(audits: Sequence[MetricAudit]) -> Iterator[tuple[str, ...]]:
    for audit in audits:
        claimed = f"{audit.claimed}, delta {plain(audit.delta)}" if audit.delta else str(audit.claimed)
        named: tuple[str, ...] = (printable(audit.title), audit.mechanism, claimed, _exact(audit))
        for sampler in audit.samplers:
            evidence = sampler.evidence
            found = ("PASS" if sampler.passed and audit.exact_holds else "FAIL",)
            yield (*named, sampler.sampler, f"{evidence.lower_bound:.4f}", f"{evidence.samples:,}", *found)
            named = ("", "", "", "")


def _exact(audit: MetricAudit) -> str:
    return f"{audit.exact:.6f}" + ("" if audit.exact_holds else " ABOVE")


def _evidence(audits: Sequence[MetricAudit]) -> Iterator[str]:
    """Why: one line per check that failed."""
    for audit in audits:
        if not audit.exact_holds:
            yield f"{printable(audit.title)}: the shipped integers' largest ratio is above e^{audit.claimed}"
        for sampler in audit.samplers:
            where = f"{printable(audit.title)}, {sampler.sampler}"
            evidence = sampler.evidence
            if evidence.fault is not None:
                yield f"{where}: {evidence.fault}"
            if evidence.lower_bound > float(audit.claimed):
                inputs = f"{_shown(evidence.likely)} than of {_shown(evidence.unlikely)}"
                yield f"{where}: '{evidence.event}' is more likely of {inputs} than epsilon {audit.claimed} allows"


def _shown(value: Value) -> str:
    """An input for one line; of a vector the two ends."""
    if not isinstance(value, tuple) or len(value) <= 2:
        return printable(repr(value))
    return f"({value[0]}, ... {value[-1]})"


def _verdict(audits: Sequence[MetricAudit]) -> str:
    failed = [audit for audit in audits if not audit.passed]
    metrics = len({audit.name for audit in audits})
    counted = f"{metrics} metric{'' if metrics == 1 else 's'}"
    if failed:
        titles = printable("; ".join(audit.title for audit in failed))
        return f"audit: FAIL, {len({audit.name for audit in failed})} of {counted}: {titles}"
    return f"audit: PASS, {counted}, no claim refuted (false alarms: at most {ALPHA:g} of audits)"


def _as_dict(plan: Plan, audits: Sequence[MetricAudit]) -> dict[str, object]:
    return {
        "plan": plan.name,
        "version": plan.version,
        "hash": plan.hash.hex(),
        "alpha": ALPHA,
        "verdict": "PASS" if all(audit.passed for audit in audits) else "FAIL",
        "metrics": [_metric_as_dict(audit) for audit in audits],
    }


def _metric_as_dict(audit: MetricAudit) -> dict[str, object]:
    return {
        "metric": audit.name,
        "all_reports": audit.all_reports,
        "mechanism": audit.mechanism,
        "claimed_epsilon": str(audit.claimed),
        "delta": str(audit.delta),
        "exact_epsilon": audit.exact,
        "exact_holds": audit.exact_holds,
        "verdict": "PASS" if audit.passed else "FAIL",
        "samplers": [
            {
                "sampler": sampler.sampler,
                "epsilon_at_least": sampler.evidence.lower_bound,
                "samples": sampler.evidence.samples,
                "event": sampler.evidence.event,
                "likely": _as_json(sampler.evidence.likely),
                "unlikely": _as_json(sampler.evidence.unlikely),
                "fault": sampler.evidence.fault,
                "verdict": "PASS" if sampler.passed else "FAIL",
            }
            for sampler in audit.samplers
        ],
    }


def _as_json(value: Value) -> object:
    return _shown(value) if isinstance(value, tuple) else value


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
