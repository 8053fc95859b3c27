"""Small readers of untrusted bytes and text: certificates, assertions, signatures, spooled vectors, and whole plans."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.assertion import check_assertion, make_assertion
from client_sdk.certificate import Certificate as Certified
from client_sdk.certificate import CertificateError, Role, check, issue, read
from client_sdk.errors import PlanError, RejectionError, StorageError
from client_sdk.identity import IdentityKey
from client_sdk.plan import Plan, canonical_form, parse_plan
from client_sdk.plan.parse import MAX_PLAN_BYTES
from client_sdk.plan.signature import PlanSignature
from client_sdk.report import pack_vector, unpack_vector

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PLANS = sorted(DEPLOY.rglob("*plan*.toml"))
REGISTRAR, DEVICE = IdentityKey(b"r" * 32), IdentityKey(b"d" * 32)
CERTIFICATE = issue(REGISTRAR, Certified(Role.DEVICE, DEVICE.public_key, 1_000, 2_000))


def damaged(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return rng.choice(
        [data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :], data[:at], data + data[at:], data]
    )


def test_certificates() -> None:
    ends: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=130) | st.integers(0, 2**32), st.floats(0, 3_000))
    def judge(source: bytes | int, at: float) -> None:
        data = source if isinstance(source, bytes) else damaged(CERTIFICATE, random.Random(source))
        try:
            found = check(data, REGISTRAR.public_key, DEVICE.public_key, Role.DEVICE, at)
        except CertificateError as error:
            ends[error.reason] += 1
            if error.reason != "malformed":
                read(data)
        else:
            ends["good"] += 1
            assert (data, found.expires_at) == (CERTIFICATE, 2_000)
            assert at < 2_000

    judge()
    assert set(ends) >= {"malformed", "bad_signature", "expired", "good"}, ends


def test_assertions() -> None:
    method, name = "/x/Y", "c:443"
    good = make_assertion(DEVICE, CERTIFICATE, method, name, 1_500)
    ends: Counter[bool] = Counter()

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=300) | st.integers(0, 2**32))
    def judge(source: bytes | int) -> None:
        data = source if isinstance(source, bytes) else damaged(good, random.Random(source))
        try:
            device = check_assertion(data, REGISTRAR.public_key, method, lambda told: told == name, 1_500.0)
        except RejectionError:
            ends[False] += 1
        else:
            ends[True] += 1
            assert (data, device) == (good, DEVICE.device_id)

    judge()
    assert min(ends[False], ends[True]) >= 10, ends


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_spooled_vectors(data: bytes) -> None:
    try:
        vector = unpack_vector(data)
    except StorageError:
        return
    assert all(isinstance(element, int) for element in vector)
    bound = {1: 2**7, 2: 2**15, 4: 2**31, 8: 2**63}[data[0]] - 1
    if all(-bound <= element <= bound for element in vector):
        assert pack_vector(vector, bound) == data


def test_packed_vectors_come_back_in_every_width() -> None:
    for bound in (1, 127, 128, 32_767, 32_768, 2**31, 2**63 - 1):
        vector = [0, 1, -1, bound, -bound]
        assert unpack_vector(pack_vector(vector, bound)) == vector


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=220) | st.from_regex(r"[0-9a-f]{64} [0-9a-f]{128}\n?", fullmatch=True))
def test_plan_signatures(text: str) -> None:
    found = PlanSignature.from_text(text)
    assert found is None or found.as_text().strip() == text.strip()


# --- plans -------------------------------------------------------------------------------------------


def judged(text: str) -> Plan | tuple[str, ...]:
    """The plan, or its problems: each one line that names its field first."""
    problems: tuple[str, ...] = ()
    try:
        return parse_plan(text)
    except PlanError as error:
        problems = error.problems
    assert problems
    assert all(len(line) < 1200 and line.isprintable() and ": " in line for line in problems), problems
    return problems


VALUES = ["0", "-1", "1e999999999", "nan", "inf", "1_0", "0x10", '""', '"a"', "true", "[]", "{}", "1979-05-27",
          "[[]]", '"' + "x" * 300 + '"', "9" * 5000, "1e-400", '"\\u202e"', "''' '''", "[1,]", "07:32:00",
          '["a", "a"]', "-0.0", "18446744073709551616"]  # fmt: skip


def hostile(text: str, rng: random.Random) -> str:
    """A plan with lines dropped, doubled, swapped, or with another value, or with characters that nobody typed."""
    lines = text.split("\n")
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition("=")
        match rng.randrange(7):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2 | 3 if equals:
                lines[at] = f"{key}= {rng.choice(VALUES)}"
            case 4 if equals:
                lines[at] = f"{rng.choice(['epsilon', 'x', 'a.b', chr(34) * 2, 'name', 'kind'])} = {rng.choice(VALUES)}"
            case 5:
                place = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:place] + rng.choice("\0\r\v\x85\u2028\ud800\"'[]{}=.#\\,") + lines[at][place:]
            case _:
                lines[at] = rng.choice(["[", "[[metrics]]", "[plan]", "[metrics.x]", "[a.b.c]", "x = {", '"""', "'''"])
        lines = lines or [""]
    return "\n".join(lines)


def test_a_plan_is_read_or_refused_in_so_many_words() -> None:
    texts = [path.read_text() for path in PLANS]
    assert texts
    ends: Counter[str] = Counter()

    @settings(max_examples=400, deadline=None)
    @given(st.sampled_from(texts), st.integers(0, 2**32))
    def parse(text: str, chance: int) -> None:
        found = judged(hostile(text, random.Random(chance)))
        if isinstance(found, Plan):
            ends["read"] += 1
            # What is read can be written down, stays what it is, and holds what a round and a ledger can carry.
            assert parse_plan(found.text).hash == found.hash
            assert canonical_form(found).isprintable()
            assert found.round_rules().bits(2 * found.cohort.target_size) in (16, 32, 64)
        else:
            ends["toml" if "not valid TOML" in found[0] else "refused"] += 1

    parse()
    assert min(ends["read"], ends["toml"], ends["refused"]) >= 15, ends


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_text_of_chance_is_no_plan(text: str) -> None:
    assert isinstance(judged(text), tuple)


# Each was quadratic, or could be: in a reader's regular expressions, in TOML's, in the list of problems.
SHAPES = {
    "texts of three quotes that nobody closes": lambda n: 'a = """\n' + '\\"""\n' * (n // 5),
    "texts that nobody closes": lambda n: "a = " + '\\"' * (n // 2),
    "escaped ends of lines": lambda n: 'a = "' + "\\\n" * (n // 2),
    "single quotes": lambda n: "a = " + "'''\n" * (n // 4),
    "odd quotes": lambda n: "a = '" + "'''\n\"\"\"" * (n // 8),
    "odd amounts in a text": lambda n: 'a = """\n' + "epsilon=0x1\n" * (n // 12) + '"""',
    "odd amounts in a line": lambda n: "a = '" + "epsilon=1_1 " * (n // 12) + "'",
    "half an amount": lambda n: "a = '" + "epsilon =" * (n // 9) + "'",
    "digits without end": lambda n: "epsilon = " + "1" * n,
    "unknown fields": lambda n: "".join(f"k{i}=1\n" for i in range(n // 9)),
    "unknown metrics": lambda n: "".join(f"[metrics.m{i}]\n" for i in range(n // 18)),
    "lists": lambda n: "a = [" + "[]," * (n // 3) + "]",
    "lists in lists": lambda n: "a = " + "[" * n,
    "tables in tables": lambda n: "a = " + "{a=" * (n // 3),
    "arrays of tables": lambda n: "[[a]]\n" * (n // 6),
    "comments": lambda n: "#" * n,
    "one label": lambda n: '[metrics.m]\nkind="categorical"\ncategories=["' + "a" * n + '"]\n',
    "dots in lines": lambda n: "".join(f"[{'.'.join(['a'] * 32)}.b{i}]\n" for i in range(n // 75)),
}
SIZE, SECONDS, TIMES_ITS_BYTES = 150_000, 8.0, 60


@pytest.mark.parametrize("shape", SHAPES)
def test_a_large_text_takes_seconds_and_little_memory(shape: str) -> None:
    """Linear ones take a tenth of the limit, quadratic ones took a minute. CPU time: the machine may be busy."""
    text = SHAPES[shape](SIZE)
    assert SIZE // 2 < len(text) < MAX_PLAN_BYTES
    began = time.process_time()
    assert isinstance(judged(text), tuple)
    assert time.process_time() - began < SECONDS
    tracemalloc.start()
    try:
        with pytest.raises(PlanError):
            parse_plan(text[: len(text) // 10])
        assert tracemalloc.get_traced_memory()[1] < TIMES_ITS_BYTES * len(text) // 10 + (4 << 20)
    finally:
        tracemalloc.stop()
