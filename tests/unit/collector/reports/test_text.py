"""Instants, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import ConfigurationError
from collector.reports.text import format_instant, parse_instant, printable, to_csv, to_json

NAMES = ["a,b", 'say "hi"', "line1\nline2", "=2+5", "+7", "-7", "@x", "\tq", "\rq", " =7"]


def read_back(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


# case G04
def test_names_that_break_columns_or_run_as_formulas() -> None:
    text = to_csv(["label", "estimate"], [[name, -149.186] for name in NAMES])
    header, *rows = read_back(text)
    assert header == ["label", "estimate"]
    assert [len(row) for row in rows] == [2] * len(NAMES)
    assert not [row[0] for row in rows if row[0].startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert {row[1] for row in rows} == {"-149.186"}
    assert [row[0].removeprefix("'") for row in rows] == NAMES
    assert text.endswith("\r\n")


@pytest.mark.parametrize("name", ["\n=2+5", "\0=2+5"])
def test_a_formula_after_what_a_spreadsheet_passes_over(name: str) -> None:
    ((cell,),) = read_back(to_csv(["label"], [[name]]))[1:]
    assert cell == f"'{name}"


def test_raw_text_is_the_text() -> None:
    assert [row[0] for row in read_back(to_csv(["x"], [[name] for name in NAMES], raw_text=True))[1:]] == NAMES


ANY = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
DELICATE = st.sampled_from("'=+-@\t\r\n,\"")


@given(st.lists(st.text(ANY | DELICATE), min_size=1))
def test_every_name_comes_back_after_one_apostrophe(names: list[str]) -> None:
    rows = read_back(to_csv(["label", "n"], [[name, 1] for name in names]))[1:]
    assert [row[0].removeprefix("'") for row in rows] == names
    assert not [row for row in rows if row[0].startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_numbers_are_numbers_and_nothing_is_an_empty_cell() -> None:
    assert to_csv(["a", "b", "c", "d"], [[-1, -2.5, Decimal("-0.000001"), None]]) == "a,b,c,d\r\n-1,-2.5,-0.000001,\r\n"


# case A03
def test_json_refuses_what_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json({"estimate": float("nan")})
    assert to_json({"é": None}) == '{\n  "é": null\n}'


# case C04
def test_numbers_are_written_out_without_an_exponent() -> None:
    numbers = [0.000001, 12.345679, 1e22, -1e-7, 5.0, -0.0, 0, Decimal("1E-9"), 5e-324, 1.7e308]
    cells = to_csv(["x"], [[number] for number in numbers]).split("\r\n")[1:-1]
    written = f"0.000001 12.345679 1{'0' * 22}.0 -0.0000001 5.0 -0.0 0 0.000000001"
    assert cells[:8] == written.split()
    assert not any("e" in cell.lower() for cell in cells)
    assert [float(cell) for cell in cells] == [float(number) for number in numbers]
    floats = [number for number in numbers if isinstance(number, float)]
    text = to_json({"amounts": floats})
    assert "e-" not in text.lower()
    assert json.loads(text)["amounts"] == floats


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12))
def test_json_is_what_the_standard_library_writes_but_for_exponents(document: object) -> None:
    text = to_json(document)
    assert json.loads(text) == document
    usual = json.dumps(document, indent=2, ensure_ascii=False)
    assert text == usual or "e" in usual
    assert to_json({"a": (1, [])}) == '{\n  "a": [\n    1,\n    []\n  ]\n}'


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0),
        ("2026-01-31", 1_769_817_600),
        ("2026-01-31T06:00:00", 1_769_839_200),
        ("2026-01-31T06:00:00Z", 1_769_839_200),
        ("2026-01-31T06:00:00+02:00", 1_769_832_000),
        ("2026-01-31T06:00:00.001Z", 1_769_839_201),
        ("1969-12-31T23:59:59Z", -1),
    ],
)
def test_instants(text: str, seconds: int) -> None:
    assert parse_instant(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-13-01", "2026-02-30", "1769817600", "nan", "2026-01-31T25:00", "0001-01-01T00:00:00+10:00",
     "9999-12-31T23:59:59.5Z", "9999-12-31T23:59:59-10:00", "2026-01-31\n", "x" * 10_000],
)  # fmt: skip
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_instant(text)
    assert len(str(caught.value)) < 200


def test_instants_print_as_they_are_read() -> None:
    assert format_instant(None) is None
    assert format_instant(1_769_839_200) == "2026-01-31T06:00:00Z"
    assert format_instant(parse_instant("0001-01-01")) == "0001-01-01T00:00:00Z"


def test_printable_leaves_no_control_character() -> None:
    assert printable("a\x1b[31m\n\t\u202eb é") == "a\\x1b[31m\\n\\t\\u202eb é"


def test_bare_times_are_of_the_zone_that_is_given() -> None:
    zone = timezone(timedelta(hours=-8))
    assert parse_instant("1970-01-02", zone) == 86_400 + 8 * 3600
    assert parse_instant("1970-01-02T00:00:00Z", zone) == 86_400, "an offset of its own stands"
