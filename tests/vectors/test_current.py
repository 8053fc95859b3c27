"""The committed vector files are what the generator writes, all of them, and not too large to copy into a client."""

from __future__ import annotations

import pytest

from tests.vectors.generate import FILES
from tests.vectors.layout import FOLDER, as_text, edited, edits


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_what_the_generator_writes(name: str) -> None:
    document = FILES[name]()
    assert (FOLDER / f"{name}.json").read_text() == as_text(document), "run: python -m tests.vectors.generate"


def test_there_are_no_other_files() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(FILES)
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 330_000


def test_edits_give_back_what_was_changed() -> None:
    base = bytes(range(60))
    for changed in (base, b"", base + b"x", base[:10] + base[12:], base[:5] + b"!!" + base[7:40] + b"?" + base[41:]):
        told = [[place, gone, new.hex()] for place, gone, new in edits(base, changed)]
        assert edited(base, told) == changed
