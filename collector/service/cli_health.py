"""`ldp-collector health`: does a collector serve? For supervisors that speak no gRPC, such as a container's."""

from __future__ import annotations

import argparse
import sys

from client_sdk.wire.messages import GetCountersRequest
from client_sdk.wire.methods import GET_COUNTERS_METHOD
from collector.service.cli_common import Subparsers, new_parser, print_json
from collector.service.remote import add_server, check_health, fetch, remote_of

EXAMPLE = """examples:
  ldp-collector health --server 127.0.0.1:7443 --ca ca.pem
  ldp-collector health --server collector.example:7443 --access-token-file health.token

Needs no token; with one of the roles health or operator it prints the collector's counters as JSON.
exit status: 0 it serves, 1 it says that it does not, 3 it cannot be asked"""


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Register `health`."""
    parser = new_parser(subparsers, "health", "ask a running collector whether it serves", EXAMPLE)
    add_server(parser, parser.add_mutually_exclusive_group(required=True))


def run(args: argparse.Namespace) -> int:
    """Exit 0 where it serves, 1 where it says that it does not."""
    remote = remote_of(args, token_needed=False)
    if remote is None:  # `required` leaves no other way here
        return 1
    if remote.token:
        document = fetch(remote, GET_COUNTERS_METHOD, GetCountersRequest())
        print_json(document)
        return 0 if document.get("serving") is True else 1
    serving = check_health(remote)
    sys.stdout.write("serving\n" if serving else "not serving\n")
    return 0 if serving else 1
