"""What the collector asks of reports that come unmasked; the vectors have a whole call and its forgeries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client_sdk.direct import MAX_CALL_BYTES, offer_message, pieces, report_bytes, seal_message
from client_sdk.errors import RejectionError
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, parse_plan
from client_sdk.report import PeriodState, make_report, pack_vector
from client_sdk.secagg.messages import NONCE_BYTES
from client_sdk.wire.messages import DirectHello, DirectOffer, DirectPiece, DirectSeal
from collector.direct import Incoming, Offered, check_offer, read_report, why_not_taken
from collector.intake import CLOCK_SKEW_S
from tests.entropy import seeded
from tests.registrar import certificate_of
from tests.unit.client_sdk.device.helpers import DAY_S, plan_text

RESEND = 'resend = "same_bytes"'
NOW = 1_767_268_800
PERIOD = NOW // DAY_S * DAY_S
SIGNER = IdentityKey(bytes(range(32)))
NONCE = b"n" * NONCE_BYTES


def plan_of(delivery: str, **changes: Any) -> Plan:
    return parse_plan(plan_text(**changes).replace(RESEND, delivery))


DIRECT, FALLBACK, MASKED = plan_of('delivery = "direct"'), plan_of('fallback = "direct"'), plan_of("")
HELLO = DirectHello(SIGNER.public_key, certificate_of(SIGNER, NOW))


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(RejectionError) as caught:
        work()
    return caught.value.reason.value


def asked(plan: Plan | None, *, now: float = NOW, **changes: Any) -> str | None:
    plan_hash = MASKED.hash if plan is None else plan.hash
    fields: dict[str, Any] = {"plan_hash": plan_hash, "period_start": PERIOD, "report_id": bytes(16), "resent": False}
    reason = why_not_taken(HELLO, Offered(**(fields | changes)), plan, now)
    return None if reason is None else reason.value


def test_which_reports_are_taken() -> None:
    assert asked(DIRECT) is None
    assert asked(FALLBACK) is None
    assert asked(MASKED) == "wrong_delivery"
    assert asked(None) == "unknown_plan"
    assert asked(DIRECT, plan_hash=FALLBACK.hash) == "unknown_plan"
    assert asked(DIRECT, period_start=PERIOD + 1) == "malformed"
    assert asked(DIRECT, report_id=bytes(15)) == "malformed"


def test_when_reports_are_taken() -> None:
    ahead = PERIOD + DAY_S
    assert asked(DIRECT, period_start=ahead, now=ahead - CLOCK_SKEW_S) is None
    assert asked(DIRECT, period_start=ahead, now=ahead - CLOCK_SKEW_S - 1) == "period_not_started"
    end = PERIOD + DAY_S + DIRECT.max_delay_s
    assert asked(DIRECT, now=end - 1) is None
    assert asked(DIRECT, now=end) == "period_too_old"


def test_an_offer_of_nothing_is_none() -> None:
    empty = DirectOffer((), (), (), ())
    signed = DirectOffer((), (), (), (), SIGNER.sign(offer_message(HELLO, NONCE, empty)))
    assert refusal(lambda: check_offer(HELLO, NONCE, signed)) == "malformed"


def offered(*sizes: int) -> tuple[DirectOffer, Incoming]:
    many = len(sizes)
    unsigned = DirectOffer((DIRECT.hash,) * many, tuple(range(many)), (bytes(16),) * many, (False,) * many)
    return unsigned, Incoming.of(HELLO, NONCE, unsigned, dict(enumerate(sizes)))


def test_reports_of_many_pieces_come_whole() -> None:
    sizes = (600_000, 262_144, 262_145, 1)
    reports = {place: bytes(i % 253 for i in range(size)) for place, size in enumerate(sizes)}
    offer, incoming = offered(*sizes)
    for place, report in reports.items():
        for piece in pieces(place, report):
            incoming.add(piece)
    message = seal_message(offer_message(HELLO, NONCE, offer), reports)
    assert incoming.seal(DirectSeal(SIGNER.sign(message))) == reports


@pytest.mark.parametrize("then", ["seal", "another report"])
def test_a_report_that_breaks_off_between_pieces_is_out_of_order(then: str) -> None:
    _, incoming = offered(600_000, 10)
    incoming.add(DirectPiece(0, 0, bytes(262_144)))
    if then == "seal":
        assert refusal(lambda: incoming.seal(DirectSeal(bytes(64)))) == "out_of_order"
    else:
        assert refusal(lambda: incoming.add(DirectPiece(1, 0, bytes(10)))) == "out_of_order"


def test_pieces_of_a_few_bytes_cannot_hold_a_call_open() -> None:
    """Else every byte of a long report could come alone, each in its own time."""
    _, incoming = offered(600_000)
    assert refusal(lambda: incoming.add(DirectPiece(0, 0, bytes(1)))) == "malformed"


def test_no_more_is_kept_than_was_wanted() -> None:
    _, incoming = offered(100)
    assert refusal(lambda: incoming.add(DirectPiece(0, 0, bytes(262_144)))) == "too_large"
    incoming.add(DirectPiece(0, 0, bytes(100)))
    assert refusal(lambda: incoming.add(DirectPiece(0, 100, b"x"))) == "too_large"
    assert refusal(lambda: incoming.add(DirectPiece(1, 0, b"x"))) == "out_of_order"


MANY = """
[metrics.day]
kind = "categorical"
categories = ["mon", "tue", "wed"]
epsilon = 1
mechanism = "symmetric_unary"
[metrics.size]
kind = "histogram"
lower = 0
upper = 10
bins = 4
mechanism = "hadamard"
epsilon = 1
[metrics.share]
kind = "numeric"
lower = 0
upper = 1
mechanism = "hybrid"
epsilon = 1
[metrics.maybe]
kind = "numeric"
lower = 0
upper = 1
optional = true
epsilon = 1
"""


@pytest.mark.parametrize("sample", ["", "sample_metrics = 2\n"])
def test_every_report_that_a_device_makes_is_taken(sample: str) -> None:
    """Of every kind of mechanism; a report that came out at its limits too."""
    text = (
        (plan_text() + MANY).replace(RESEND, 'delivery = "direct"').replace("version = 1\n", f"version = 1\n{sample}")
    )
    plan = parse_plan(text)
    for seed in range(300):
        vector = make_report(plan, PeriodState(plan), seeded(seed))
        data = pack_vector(vector, plan.bound)
        assert len(data) == report_bytes(plan)
        assert read_report(plan, data) == vector


def test_a_report_that_holds_another_number_of_metrics_than_drawn_is_implausible() -> None:
    plan = plan_of("")
    text = plan.text.replace("version = 1\n", "version = 1\nsample_metrics = 1\n")
    plan = parse_plan(text.replace("[delivery]\n", '[delivery]\ndelivery = "direct"\n'))
    # cold_start_ms and its count, then network's four cells and their count
    good = [500, 1, 0, 0, 0, 0, 0]
    assert read_report(plan, pack_vector(good, plan.bound)) == good
    for bad in ([500, 1, 1, 0, 0, 0, 1], [0] * 7, [500, 2, 0, 0, 0, 0, -1], [500, 0, 0, 0, 0, 0, 1]):
        assert refusal(lambda bad=bad: read_report(plan, pack_vector(bad, plan.bound))) == "implausible_report"


def test_the_largest_report_fits_into_a_call() -> None:
    assert MAX_CALL_BYTES >= 1 + 8 * 1_000_000
