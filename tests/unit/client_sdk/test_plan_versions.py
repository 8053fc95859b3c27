"""An operator's signature under a plan, and what a later version may be: the rules that both ends share."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.files import load_plan_signature, signature_path
from client_sdk.identity import IdentityKey
from client_sdk.plan import parse_plan
from client_sdk.plan.signature import PlanSignature, is_signed, plan_message, sign_plan
from client_sdk.plan.successor import raised_limit, weaker_cohort
from client_sdk.secagg.parameters import round_parameters
from tests.unit.client_sdk.device.helpers import make_plan, plan_text

OPERATOR = IdentityKey(bytes(range(32)))
PLAN = make_plan()


def test_a_signature_is_under_the_plan_not_under_its_spelling() -> None:
    signature = sign_plan(OPERATOR, PLAN)
    assert signature.holds(parse_plan("# a comment\n" + plan_text()))
    assert not signature.holds(make_plan(version=2))
    assert not signature.holds(make_plan(upper=5001))
    assert not is_signed(PLAN, signature.signature, IdentityKey(bytes(32)).public_key)
    assert not is_signed(PLAN, b"", OPERATOR.public_key)
    # nothing else that an operator's key signs can be taken for a plan's signature, nor the other way round
    assert not is_signed(PLAN, OPERATOR.sign(PLAN.hash), OPERATOR.public_key)
    assert plan_message(PLAN.hash) != PLAN.hash


def test_its_text_is_one_line_that_reads_back() -> None:
    signature = sign_plan(OPERATOR, PLAN)
    text = signature.as_text()
    assert text.count("\n") == 1
    assert PlanSignature.from_text(text) == signature
    for broken in ("", text[1:], text + "x", text.replace(" ", "\n"), text.upper(), text + text):
        assert PlanSignature.from_text(broken) is None


def test_it_rests_beside_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    assert load_plan_signature(path) is None
    assert signature_path(path) == tmp_path / "plan.toml.sig"
    signature_path(path).write_text(sign_plan(OPERATOR, PLAN).as_text())
    assert load_plan_signature(str(path)) == sign_plan(OPERATOR, PLAN)
    signature_path(path).write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="plan sign"):
        load_plan_signature(path)
    signature_path(path).unlink()
    signature_path(path).mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_plan_signature(path)


def test_a_window_that_only_follows_from_one_more_question_may_grow() -> None:
    text = plan_text().replace("rolling_24h = 100\n", "")
    question = '[metrics.more]\nkind = "numeric"\nlower = 0\nupper = 1\nepsilon = 1\n'
    one, two = parse_plan(text), parse_plan(text.replace("version = 1", "version = 2") + question)
    assert two.budget.rolling_24h_micro > one.budget.rolling_24h_micro
    assert raised_limit(one, two) is None
    named = parse_plan(two.text.replace("lifetime = 365", "lifetime = 365\nrolling_24h = 5"))
    assert raised_limit(one, named) == "rolling_24h"
    assert raised_limit(named, one) is None
    assert raised_limit(make_plan(lifetime="10"), make_plan(lifetime="11")) == "lifetime"


def test_which_cohort_hides_less_well() -> None:
    assert weaker_cohort(PLAN, PLAN) is None
    assert weaker_cohort(PLAN, make_plan(min_size=4, corrupt="0.11", dropout="0.19", target_size=9)) is None
    assert weaker_cohort(PLAN, make_plan(min_size=2)) == "min_size"
    assert weaker_cohort(PLAN, make_plan(corrupt="0.09999")) == "corrupt_fraction"
    assert weaker_cohort(PLAN, make_plan(dropout="0.20001")) == "dropout_fraction"


def test_expecting_more_dropouts_is_the_weaker_side() -> None:
    """Above 256 the threshold is a smaller part of the neighbours, and the rest can be made up."""
    parts = []
    for dropout in ("0", "0.05", "0.1", "0.2", "0.3"):
        degree, threshold = round_parameters(1000, Fraction("0.1"), Fraction(dropout))
        parts.append(Fraction(threshold, degree))
    assert parts == sorted(parts, reverse=True)
    assert (parts[0], parts[-1]) == (Fraction(1), Fraction(298, 498))
