"""The parts of `ldp-collector federated-demo`: its plan, its verdict, and everything that must turn that into FAIL."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from client_sdk.mechanisms.gaussian import VectorGaussian
from client_sdk.mechanisms.vector import VectorLaplace
from client_sdk.plan import Plan
from client_sdk.report import PeriodState, make_report
from collector.accounting import local
from collector.accounting.composition import Composer
from collector.accounting.losses import local_pair
from collector.federated import averaging
from collector.federated.averaging import Outcome, RoundSum, State
from collector.federated.clipping import ClipRule, fit_bit
from collector.release import ReleasedSum
from collector.reports import to_json
from collector.service import cli, cli_federated_demo
from collector.service.federated import judging
from collector.service.federated.data import DIMENSION, World, generated_world, plain_accuracies, trained_update
from collector.service.federated.fleet import Sent
from collector.service.federated.judging import allowed_noise, is_judged, learned, log_moment
from collector.service.federated.least_noise import Noised, least_squares, log_decay
from collector.service.federated.lines import DELTA, EPSILON, Line, both_lines, demo_plan
from collector.service.federated.result import FederatedResult, build_result, verdict_of
from collector.service.federated.run import FederatedRun, RoundRun, line_round
from collector.service.federated.show import print_tables

DEVICES, ROUNDS, COHORT = 60, 2, 30


def memory_run(plan: Plan, lines: tuple[Line, ...], world: World, rounds: int = ROUNDS) -> FederatedRun:
    """The demo without its protocol: the SDK's own reports, added up in the clear."""
    run, states = FederatedRun(), {line.name: State(0, (0.0,) * DIMENSION, line.first_clip) for line in lines}
    for number in range(1, rounds + 1):
        told, reports = [], []
        for examples in world.devices:
            sent, state = {}, PeriodState(plan)
            for line in lines:
                before = states[line.name]
                update = trained_update(examples, np.array(before.model))
                length = float(np.linalg.norm(update, ord=line.order))
                bit = fit_bit(length, before.clip)
                state.add(line.task.update, update / before.clip, os.urandom)
                state.add(line.task.fitted, bit, os.urandom)
                sent[line.name] = Sent(update / max(before.clip, length), *bit)
            told.append(sent)
            reports.append(make_report(plan, state, os.urandom))
        released = [one for at in range(0, len(reports), COHORT) for one in opened(plan, reports[at : at + COHORT], at)]
        found = {line.name: line_round(line, plan, states[line.name], released, told) for line in lines}
        states = {name: one.outcome.state for name, one in found.items()}
        run.rounds.append(RoundRun(number, len(reports), len(reports) // COHORT, COHORT, COHORT, 0, found))
    owed = rounds * plan.report_micro_epsilon
    run.spent_on_devices = {str(number): owed for number in range(len(world.devices))}
    run.spent_at_collector = dict(run.spent_on_devices)
    return run


def opened(plan: Plan, reports: list[Any], name: int) -> list[ReleasedSum]:
    totals = [sum(column) for column in zip(*reports, strict=True)]
    return [
        ReleasedSum(str(name), plan.hash, 0, metric, tuple(totals[plan.slices[metric]]), len(reports), len(reports))
        for metric in plan.metrics
    ]


WORLD = generated_world(DEVICES, 3)
PLAN, LINES = demo_plan(DEVICES, ROUNDS), both_lines(DEVICES)


def judged(run: FederatedRun) -> FederatedResult:
    return build_result(PLAN, LINES, WORLD, run, ROUNDS)


def verdict(run: FederatedRun, lines: tuple[Line, ...] = LINES) -> str:
    """Of what it is made of alone: costs take a second."""
    ok, text = verdict_of(judging.checks(PLAN, lines, run, ROUNDS, DEVICES), judged_accuracy=False)
    assert ok == text.startswith("PASS: ")
    return text


@pytest.fixture(scope="module")
def sound() -> FederatedRun:
    return memory_run(PLAN, LINES, WORLD)


# --- the plan and the data ------------------------------------------------------------------------------


def test_both_lines_cost_the_same_epsilon_a_report() -> None:
    plan, lines = demo_plan(200, 5), both_lines(200)
    for line in lines:
        line.task.check_plan(plan)
        losses = [loss for name in line.metrics for loss in plan.metrics[name].losses]
        pairs = [local_pair(loss) for loss in losses]
        found = Composer(pairs).epsilon([1] * len(pairs), DELTA)
        assert found <= EPSILON
        assert found == pytest.approx(EPSILON, rel=1e-3)
    update = plan.metrics["update_l2"].mechanism
    assert isinstance(update, VectorGaussian)
    multiplier = math.sqrt(update.variance / update.ball.sensitivity_squared)
    total = local.gaussian_sigma(EPSILON, DELTA, 1.0)
    assert multiplier == pytest.approx((total**-2 - 5.0**-2) ** -0.5, rel=1e-3), "parted as the paper does"
    assert plan.metrics["update_l1"].losses[0].epsilon == Decimal("3.5")


def test_the_data_come_from_their_seed() -> None:
    same, other = generated_world(5, 1), generated_world(5, 2)
    world = generated_world(5, 1)
    assert all((a.inputs == b.inputs).all() for a, b in zip(world.devices, same.devices, strict=True))
    assert not (world.test.inputs == other.test.inputs).all()
    found = plain_accuracies(generated_world(100, 1), 3)
    assert all(0.84 < accuracy < 0.93 for accuracy in found)
    assert 0.5 <= world.test.guessing < 0.6


# --- a sound run, and broken ones -----------------------------------------------------------------------


def test_a_sound_run_passes(sound: FederatedRun) -> None:
    result = judged(sound)
    assert result.ok, result.verdict
    assert result.verdict.startswith("PASS: ")
    assert "\n" not in result.verdict
    document = json.loads(to_json(result.document))
    assert [check["ok"] for check in document["checks"]] == [True] * 5
    assert {line["title"] for line in document["cost"].values()} == {"L1/Laplace", "L2/Gaussian"}
    for name, cost in document["cost"].items():
        local_, central = cost["lifetime"]["epsilon_local"], cost["lifetime"]["epsilon_central"]
        assert (
            central["add_or_remove"]["pld"]
            < central["replace"]["pld"]
            < local_["pld"]
            <= cost["lifetime"]["epsilon_plain"]
        )
        assert cost["n_h"] == COHORT - 3, name
        assert cost["relations"]["replace"]["sensitivity"] == {"update": "2C", "bit": "1"}
    last = document["rounds"][-1]["lines"]["l1"]
    assert last["epsilon_local"] == document["cost"]["l1"]["lifetime"]["epsilon_local"]


def test_tables_fit_a_terminal(sound: FederatedRun) -> None:
    out = io.StringIO()
    print_tables(judged(sound).document, Console(file=out, width=80))
    text = out.getvalue()
    assert "…  " not in text.replace("(" + PLAN.hash.hex()[:12] + "…)", "")
    for words in ("local: replace a value (2C; 1)", "central: add or remove a device (C; 1/2)", "nothing amplifies it"):
        assert words in text


def zeros(metric: Any, released: Any) -> RoundSum:
    found = REAL(metric, released)
    return dataclasses.replace(found, values=(0.0,) * len(found.values))


def flipped(metric: Any, released: Any) -> RoundSum:
    found = REAL(metric, released)
    return dataclasses.replace(found, values=tuple(-value for value in found.values))


def turned(metric: Any, released: Any) -> RoundSum:
    found = REAL(metric, released)
    return dataclasses.replace(found, values=found.values[1:] + found.values[:1])


def slightly_off(metric: Any, released: Any) -> RoundSum:
    found = REAL(metric, released)
    return dataclasses.replace(found, values=tuple(value * 1.0001 for value in found.values))


def not_a_number(metric: Any, released: Any) -> RoundSum:
    found = REAL(metric, released)
    return dataclasses.replace(found, values=(1e300,) * len(found.values))


REAL: Callable[[Any, Any], RoundSum] = RoundSum.of


@pytest.mark.parametrize("broken", [zeros, flipped, turned, slightly_off, not_a_number])
def test_a_broken_decoder_fails(monkeypatch: pytest.MonkeyPatch, broken: Callable[[Any, Any], RoundSum]) -> None:
    monkeypatch.setattr(averaging.RoundSum, "of", staticmethod(broken))
    assert verdict(memory_run(PLAN, LINES, WORLD)).startswith("FAIL: decoding: ")


def test_the_realised_count_in_place_of_the_expected_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def realised(update: RoundSum, clip: float, _: int) -> tuple[float, ...]:
        return tuple(value * clip / update.contributors for value in update.values)

    monkeypatch.setattr(averaging, "average", realised)
    lines = both_lines(DEVICES + 5)  # as if five had stayed away
    assert verdict(memory_run(PLAN, lines, WORLD), lines).startswith("FAIL: decoding: ")


def test_c_with_the_wrong_sign_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ClipRule.following
    monkeypatch.setattr(ClipRule, "following", lambda rule, clip, b: right(rule, clip, 2 * rule.quantile - b))
    assert verdict(memory_run(PLAN, LINES, WORLD)).startswith("FAIL: decoding: ")


def changed(sound: FederatedRun, change: Callable[[Any], Any]) -> FederatedRun:
    """With every round of L1 changed."""
    rounds = [dataclasses.replace(r, lines={**r.lines, "l1": change(r.lines["l1"])}) for r in sound.rounds]
    return dataclasses.replace(sound, rounds=rounds)


def test_sums_that_are_not_of_what_was_told_fail(sound: FederatedRun) -> None:
    """One unpaired mask, or one report that is somebody else's: the integers are decoded well, and are wrong."""
    far = changed(sound, lambda one: dataclasses.replace(one, true_average=tuple(x + 5.0 for x in one.true_average)))
    assert "FAIL: truth: " in verdict(far)
    share = changed(sound, lambda one: dataclasses.replace(one, true_fraction=one.true_fraction + 4.0))
    assert "FAIL: truth: " in verdict(share)


@pytest.mark.parametrize("kind", [VectorLaplace, VectorGaussian])
def test_a_line_without_noise_fails(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> None:
    """Of either line, after one round; nothing else is wrong with such a run."""
    monkeypatch.setattr(kind, "_noise", lambda *_: 0)
    run = memory_run(PLAN, LINES, WORLD, rounds=1)
    found = judging.checks(PLAN, LINES, run, 1, DEVICES)
    assert [check.name for check in found if not check.ok] == ["noise"]


def test_noise_for_the_wrong_relation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it: for the sensitivities under *add or remove*, C and 1/2."""
    for kind in (VectorLaplace, VectorGaussian):
        right: Any = kind._noise
        monkeypatch.setattr(kind, "_noise", lambda self, entropy, right=right: round(right(self, entropy) / 2))
    run = memory_run(PLAN, LINES, WORLD, rounds=6)
    found = judging.checks(PLAN, LINES, run, 6, DEVICES)
    assert [check.name for check in found if not check.ok] == ["noise"]


def test_charges_and_rounds_that_are_missing_fail(sound: FederatedRun) -> None:
    owed = ROUNDS * PLAN.report_micro_epsilon
    right = dict(sound.spent_on_devices)
    for spent in (right | {"0": owed - 1}, right | {"0": owed + 1}, {"0": owed}, {}):
        assert "FAIL: charges: " in verdict(dataclasses.replace(sound, spent_on_devices=spent))
    for spent in (right | {"0": owed + 1}, right | {"0": owed - 1}, {}):
        broken = dataclasses.replace(sound, spent_at_collector=spent)
        assert "FAIL: charges: " in verdict(broken), "more than was owed, or less than the sums hold"
    short = dataclasses.replace(sound, rounds=sound.rounds[:1])
    assert "FAIL: rounds: 1 of 2 " in verdict(short)
    few = dataclasses.replace(sound, rounds=[dataclasses.replace(r, contributors=44) for r in sound.rounds])
    assert "FAIL: rounds: " in verdict(few)
    none = judged(FederatedRun())
    assert not none.ok
    assert json.loads(to_json(none.document))["rounds"] == []
    print_tables(none.document, Console(file=io.StringIO()))


def test_accuracy_is_judged_from_the_default_size_on() -> None:
    assert is_judged(cli_federated_demo.DEVICES, cli_federated_demo.ROUNDS)
    assert not is_judged(cli_federated_demo.DEVICES - 1, cli_federated_demo.ROUNDS)
    assert not is_judged(cli_federated_demo.DEVICES, cli_federated_demo.ROUNDS - 1)
    assert learned("x", 0.61, 0.5, 0.9).ok
    for accuracy in (0.59, 0.5, 0.4, math.nan):
        assert not learned("x", accuracy, 0.5, 0.9).ok


# --- the bounds of noise --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism", [VectorLaplace(1, Decimal(1), Decimal(2), 16), VectorGaussian(1, Decimal(1), Decimal(2), 16)]
)
def test_moments_of_noise(mechanism: Any) -> None:
    """Against the law itself, added up."""
    z = np.arange(-4000, 4001).astype(float)
    if isinstance(mechanism, VectorGaussian):
        law = np.exp(-(z**2) / (2.0 * mechanism.variance))
    else:
        law = np.exp(-np.abs(z) / float(mechanism.scale))
    law /= law.sum()
    for share in (0.1, 0.3, -0.5):
        tilt = share / math.sqrt(mechanism.noise_variance)
        wanted = math.log(float((law * np.exp(tilt * z)).sum()))
        assert log_moment(mechanism, tilt) == pytest.approx(wanted, rel=1e-6)
    if not isinstance(mechanism, VectorGaussian):
        assert log_moment(mechanism, 1.0 / float(mechanism.scale)) == math.inf


@pytest.mark.parametrize(
    "mechanism", [VectorLaplace(1, Decimal(1), Decimal(2)), VectorGaussian(1, Decimal(1), Decimal(2))]
)
@pytest.mark.parametrize("devices", [5, 200])
def test_bounds_hold_and_are_near(mechanism: Any, devices: int) -> None:
    """At a chance that can be counted: broken no more often than that, and within twice the exact quantile."""
    rng, chance = np.random.default_rng(5), 1e-3
    if isinstance(mechanism, VectorGaussian):
        noise = rng.normal(scale=math.sqrt(mechanism.variance * devices), size=200_000)
    else:
        noise = np.sum([rng.laplace(scale=float(mechanism.scale), size=200_000) for _ in range(devices)], axis=0)
    allowed = allowed_noise(mechanism, devices, chance)
    assert np.mean(np.abs(noise) > allowed) < chance
    assert allowed < 2.0 * np.quantile(np.abs(noise), 1 - chance)
    assert allowed_noise(mechanism, devices, 1e-12) > 1.5 * allowed
    assert allowed_noise(mechanism, 0, chance) == 0.0


@pytest.mark.parametrize(
    "mechanism", [VectorLaplace(1, Decimal(1), Decimal(2), 16), VectorGaussian(1, Decimal(1), Decimal(2), 16)]
)
@pytest.mark.parametrize("tilt", [0.1, 1.0, 20.0])
def test_the_mean_that_bounds_the_least_noise(mechanism: Any, tilt: float) -> None:
    """Against the law itself, added up; what is added to the noise makes it no larger."""
    z = np.arange(-800, 801).astype(float)
    if isinstance(mechanism, VectorGaussian):
        law = np.exp(-(z**2) / (2.0 * mechanism.variance))
    else:
        law = np.exp(-np.abs(z) / float(mechanism.scale))
    law /= law.sum()
    three = np.convolve(np.convolve(law, law), law)
    x = np.arange(len(three)) - len(three) // 2
    for more in (0.0, 0.4, 7.0):
        wanted = math.log(float((three * np.exp(-tilt * (x + more) ** 2 / (3 * mechanism.noise_variance))).sum()))
        found = log_decay(mechanism, 3, tilt)
        assert found >= wanted
        assert more or found == pytest.approx(wanted, abs=1e-6)


def test_the_least_noise_is_a_quantile_of_chi_square() -> None:
    """Gaussian squares have that law: the bound lies below its quantile, and not far."""
    mechanism = VectorGaussian(10, Decimal(1), Decimal(4))
    for chance, exact in ((1e-3, 61.9179), (1e-6, 46.5013)):  # of 100 degrees of freedom
        found = least_squares([Noised(mechanism, 50, (1.0,) * 100)], chance)
        assert 0.9 * exact < found < exact
    assert least_squares([Noised(mechanism, 50, (1.0,) * 3)], 1e-9) == 0.0, "too few to say anything"


def test_a_report_that_came_twice_hides_nobody(sound: FederatedRun) -> None:
    again = [dataclasses.replace(sound.rounds[0], resent=4), *sound.rounds[1:]]
    for name, cost in judged(dataclasses.replace(sound, rounds=again)).document["cost"].items():
        assert cost["n_h"] == COHORT - 3 - 4, name


def test_no_raw_value_is_in_a_repr(sound: FederatedRun) -> None:
    """What the devices had told is known to the demo alone; a traceback must not print it."""
    one = sound.rounds[0].lines["l1"]
    text = repr(sound) + repr(one) + repr(WORLD) + repr(Sent(np.array([0.98712345]), 0.5))
    for raw in (*one.true_average, one.true_fraction, 0.98712345):  # of so many digits that noise has not the same
        assert repr(raw) not in text


# --- the command ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--devices", "9"],
        ["--devices", "1000000"],
        ["--rounds", "0"],
        ["--rounds", "61"],
        ["--seed", "-1"],
        ["--devices", "x"],
    ],
)
def test_wrong_input_is_one_line_and_exit_2(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = cli.main(["federated-demo", *options])
    except SystemExit as error:
        status = int(error.code or 0)
    said = capsys.readouterr()
    assert (status, said.out, len(said.err.strip().splitlines())) == (2, "", 1)
    assert options[0] in said.err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["federated-demo", "--help"])
    assert "\n  ldp-collector federated-demo\n" in capsys.readouterr().out


def test_progress_is_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    state = State(1, (0.0,), 2.5)
    with cli_federated_demo._progress(10, 3) as progress:
        progress.step("hello")
        progress.ended(1, {"l1": Outcome((0.0,), 0.5, 10, state)})
    assert capsys.readouterr().err == "round 1 of 3: 10 devices, l1 next C 2.5\n"


def test_progress_is_a_bar_on_a_terminal() -> None:
    out = io.StringIO()
    with cli_federated_demo._bar(Console(file=out, force_terminal=True, width=80), 2, 2) as progress:
        for _ in range(7):
            progress.step("hello")
        progress.ended(1, {})
    assert "2 rounds: done" in out.getvalue()
    assert "100%" in out.getvalue()


def test_how_often_accuracy_fails_is_what_was_measured() -> None:
    assert (judging.ACCURACY_RUNS, judging.GAIN) == (40_000, 0.25)
    assert judging.ALARM == 1e-9


# --- an end before the verdict --------------------------------------------------------------------------


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit(143)])
@pytest.mark.parametrize("named", [True, False])
def test_a_demo_that_is_ended_says_what_is_kept(
    named: bool, end: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(*arguments: Any) -> None:
        (folder,) = (one for one in arguments if isinstance(one, Path))
        (folder / "collector.db").touch()
        (folder / "devices").mkdir()
        raise end

    monkeypatch.setattr("collector.service.federated.run.run_rounds", ended)
    arguments = ["federated-demo", *(["--out", str(tmp_path / "kept")] if named else [])]
    if end is KeyboardInterrupt:
        assert cli.main(arguments) == 130
    else:
        with pytest.raises(SystemExit, match="143"):
            cli.main(arguments)
    what = f"{tmp_path / 'kept'} keeps collector.db, devices/" if named else "nothing was kept"
    assert capsys.readouterr().err == f"ldp-collector federated-demo: ended before its verdict; {what}\n"
