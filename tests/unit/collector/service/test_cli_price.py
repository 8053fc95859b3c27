"""`ldp-collector price`: the five keys, the words, one line for whatever is no number."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from collector.service import cli

Run = Callable[..., tuple[int, str, str]]
RR = ("--mechanism", "randomized_response", "--epsilon", "1")
C05 = ["nan", "inf", "-inf", "-1", "0", "1e-320", "1e400", "", "1_000", "0x1", " 1", "١"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def _run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = cli.main(["price", *(str(a) for a in arguments)])
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return _run


def refused(ran: tuple[int, str, str], option: str) -> bool:
    status, out, err = ran
    return (status, out, err.count("\n")) == (2, "", 1) and option in err and err.startswith("ldp-collector price: ")


def test_json_has_five_keys_in_order(run: Run) -> None:
    status, out, err = run(*RR, "--k", 2, "--contributors", 1000, "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert list(found) == ["eps_local_pure", "eps_local", "eps_central", "n_h", "method"]
    assert (found["eps_local_pure"], found["n_h"]) == (1.0, 1000)
    assert found["eps_central"] == pytest.approx(0.1486706, abs=1e-6)
    assert "privacy blanket" in found["method"]


def test_rounds_times_metrics_and_corrupt(run: Run) -> None:
    _, out, _ = run(*RR, "--k", 2, "--rounds", 20, "--metrics", 5, "--json")
    assert json.loads(out)["eps_local"] == pytest.approx(83.5307, abs=1e-3)
    _, out, _ = run("--mechanism", "laplace", "--epsilon", 1, "--contributors", 1000, "--corrupt", "0.9", "--json")
    found = json.loads(out)
    assert (found["n_h"], found["eps_central"]) == (100, pytest.approx(0.2602247, abs=1e-6))


def test_the_text_never_shows_central_without_n_h_and_its_conditions(run: Run) -> None:
    status, out, _ = run("--mechanism", "laplace", "--epsilon", "0.5", "--contributors", 50)
    assert status == 0
    (line,) = [line for line in out.splitlines() if line.startswith("eps_central")]
    assert "n_h 50" in line
    for word in ("replace one value", "Central holds", "honest", "50/50"):
        assert word in out
    _, alone, _ = run("--mechanism", "laplace", "--epsilon", "8")
    assert "central is local" in alone
    assert "no meaningful protection" in alone


def test_sampling_helps_against_outsiders_only_and_says_so(run: Run) -> None:
    given = ("--mechanism", "laplace", "--epsilon", 1, "--contributors", 1000, "--rounds", 30)
    plain = json.loads(run(*given, "--json")[1])
    drawn = json.loads(run(*given, "--fleet", 100_000, "--json")[1])
    assert {name: drawn[name] for name in plain} == plain, "nothing else changes"
    assert list(drawn)[5:] == ["eps_outsiders", "outsiders"]
    assert 0.0 < drawn["eps_outsiders"] < plain["eps_central"] / 10
    for word in ("not against the collector", "never on top of the local figure"):
        assert word in drawn["outsiders"]
        assert word in run(*given, "--fleet", 100_000)[1]
    everybody = json.loads(run(*given, "--fleet", 1000, "--json")[1])
    assert everybody["eps_outsiders"] == plain["eps_central"]
    assert refused(run("--mechanism", "laplace", "--epsilon", 1, "--fleet", 10), "--fleet")
    assert refused(run(*given, "--fleet", 999), "--fleet")


# case C05
@pytest.mark.parametrize("text", C05)
@pytest.mark.parametrize(
    "option", ["--epsilon", "--delta", "--k", "--contributors", "--rounds", "--metrics", "--corrupt"]
)
def test_no_number_is_taken_that_is_none(run: Run, option: str, text: str) -> None:
    if option == "--corrupt" and text == "0":
        return
    given = {"--mechanism": "hadamard", "--epsilon": "1", "--k": "4"} | {option: text}
    assert refused(run(*(f"{name}={value}" for name, value in given.items())), option)


# case A01
def test_epsilon_800_is_refused_by_one_line(run: Run) -> None:
    assert refused(run("--mechanism", "randomized_response", "--k", 4, "--epsilon", 800), "--epsilon")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--epsilon", 1), "--mechanism"),
        (("--mechanism", "laplace"), "--epsilon"),
        (("--mechanism", "nonsense", "--epsilon", 1), "--mechanism"),
        (RR, "--k"),
        (("--mechanism", "square_wave", "--epsilon", 1), "--k"),
        (("--mechanism", "one_bit", "--epsilon", 1, "--k", 4), "--k"),
        (("--mechanism", "square_wave", "--epsilon", 1, "--k", 5000), "--k"),
        ((*RR, "--k", 4, "--corrupt", "1.01"), "--corrupt"),
        ((*RR, "--k", 4, "--delta", "1"), "--delta"),
        ((*RR, "--k", 4, "--rounds", 1000, "--metrics", 1000), "--rounds"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_named(run: Run, arguments: tuple[object, ...], option: str) -> None:
    assert refused(run(*arguments), option)
