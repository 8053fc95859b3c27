"""The house rules as tests: lint, types, import arrows, top level, and the README's two lines."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {"pyproject.toml", "protos", "client_sdk", "collector", "tests", "deploy", "README.md"}
README = ROOT / "README.md"


def run(*command: str, timeout: float = 280.0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LDP_", "PYTEST_"))}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=environment, check=False
    )


def tool(name: str) -> str:
    """The tool of the environment that runs the tests, not one found on PATH."""
    return str(Path(sys.executable).parent / name)


def readme_line(must_contain: str) -> str:
    lines = [
        line
        for block in re.findall(r"```(?:sh|bash)\n(.*?)```", README.read_text(), re.S)
        for line in block.splitlines()
    ]
    found = [line for line in lines if must_contain in line and "-m venv" in line]
    assert len(found) == 1, f"README must show exactly one line with {must_contain!r}, found {len(found)}"
    return found[0]


def test_lint() -> None:
    done = run(tool("ruff"), "check", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_format() -> None:
    done = run(tool("ruff"), "format", "--check", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_types() -> None:
    done = run(sys.executable, "-m", "mypy", "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_contracts() -> None:
    done = run(tool("lint-imports"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_top_level_holds_nothing_else() -> None:
    tracked = run("git", "ls-files").stdout.split("\n")
    top = {line.split("/")[0] for line in tracked if line}
    assert {name for name in top if not name.startswith(".")} == TOP_LEVEL


def test_ci_runs_the_readmes_test_line() -> None:
    line = readme_line("pytest")
    commands = [c for c in (ROOT / ".ci" / "run").read_text().splitlines() if c and not c.startswith("#")]
    assert commands[-1] == line, "the last command of .ci/run is the README's test line, to the letter"


@pytest.mark.timeout(600)
def test_demo_line_of_the_readme_in_a_new_environment(tmp_path: Path) -> None:
    """The newcomer's line as printed, in a copy of what git tracks, under a shell's usual descriptor limit."""
    line = readme_line("ldp-collector demo")
    clone = tmp_path / "clone"
    clone.mkdir()
    files = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout.split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            target = clone / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    done = run("bash", "-c", f"ulimit -Sn 1024; {line}", timeout=580, cwd=clone)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.strip().splitlines()[-1].startswith("OK: "), done.stdout[-2000:]


SECRET = re.compile(r"(^|_)(secrets?|seeds?|passwords?|private|coefficients|token)(_|$)|seal_key|mask_seed")
HARMLESS = {"int", "bool", "float"}
"""Types of counts and switches."""


def shown_secrets(source: str) -> list[str]:
    """Fields of dataclasses that are named like secrets and stand in the class's repr."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        made = [ast.unparse(one) for one in node.decorator_list if "dataclass" in ast.unparse(one)]
        own = any(isinstance(one, ast.FunctionDef) and one.name == "__repr__" for one in node.body)
        if not made or own or "repr=False" in made[0]:
            continue
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
        found += [
            f"{node.name}.{ast.unparse(one.target)}"
            for one in fields
            if SECRET.search(ast.unparse(one.target))
            and "repr=False" not in ast.unparse(one)
            and ast.unparse(one.annotation) not in HARMLESS
        ]
    return found


def test_no_secret_stands_in_a_repr() -> None:
    loose = "@dataclass\nclass A:\n    seed: bytes\n    tokens_open: int\n    token: str = field(repr=False)"
    assert shown_secrets(loose) == ["A.seed"], "it sees one"
    sources = [path for folder in ("client_sdk", "collector") for path in (ROOT / folder).rglob("*.py")]
    shown = {str(path.relative_to(ROOT)): shown_secrets(path.read_text()) for path in sources}
    assert {path: names for path, names in shown.items() if names} == {}
    assert len(sources) > 300
