"""load_plan: whatever is wrong with the file is one line that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, PlanError
from client_sdk.files import load_plan
from client_sdk.plan import MAX_PLAN_BYTES

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "plan.toml"


def test_reads_a_plan_with_its_text_windows_editors_included(tmp_path: Path) -> None:
    plan = load_plan(str(SAMPLE))
    assert plan.text == SAMPLE.read_text()
    saved = tmp_path / "plan.toml"
    saved.write_bytes(b"\xef\xbb\xbf" + plan.text.replace("\n", "\r\n").encode())
    assert load_plan(saved) == plan


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, ConfigurationError, "no such file"),
        ("directory", ConfigurationError, "is a directory"),
        (b"\xff\xfe[\x00p\x00", PlanError, "not UTF-8"),
        (b"#" * (MAX_PLAN_BYTES + 1), PlanError, "larger than the limit"),
    ],
)
def test_unusable_files(tmp_path: Path, content: bytes | str | None, error: type[Exception], words: str) -> None:
    path = tmp_path / "plan.toml"
    if content == "directory":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(error) as caught:
        load_plan(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unusable_paths(tmp_path: Path) -> None:
    for path in ("a\0b", "x" * 5000, str(SAMPLE / "below")):
        with pytest.raises(ConfigurationError):
            load_plan(path)
