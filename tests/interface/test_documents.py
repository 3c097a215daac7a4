"""README and pages: everything that a reader can paste is real, runs, or is known to the command line."""

import ast
import io
import json
import re
import shlex
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from railsearch.cli.app import app
from railsearch.similarity import registry
from tests.support.markdown import Block, blocks_of
from tests.support.tiny_text import make_base

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REPORTS = sorted((ROOT / "benchmarks").rglob("*.md"))
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language is None]
PROGRAMS = {".ci/run", "curl", "make", "pip", "python", "railsearch", "ray", "tar", "torchrun"}
MARKS = {"onnxruntime": pytest.mark.slow, "railsearch.integrations": pytest.mark.integrations}
"""Marks of Python blocks with a text: they are slow, or need a library that `make test` does not install."""
Command = TyperCommand | TyperGroup
WITHOUT_COMMENT = re.compile(r"\S {2,}(?!#)\S")


def railsearch_lines() -> list[str]:
    """Return every line of a page, a report or a help text that calls railsearch."""
    blocks = [*SHELL, *(block for page in REPORTS for block in blocks_of(page))]
    lines = [line for block in blocks for line in block.commands if line.startswith("railsearch ")]
    return list(dict.fromkeys([*lines, *examples_of(get_command(app))]))


def examples_of(command: Command) -> list[str]:
    """Return the examples in the help of a command and of all commands below it."""
    found = re.findall(r"Example: (railsearch [^\n]+)", command.help or "")
    for each in getattr(command, "commands", {}).values():
        found += examples_of(each)
    return found


def mentions() -> list[str]:
    """Return the calls of railsearch within sentences; they may leave out arguments."""
    texts = [page.read_text() for page in PAGES]
    found = [mention for text in texts for mention in re.findall(r"`(railsearch [a-z][^`\n]*)`", text)]
    return list(dict.fromkeys(mention for mention in found if "|" not in mention))


def read_only(command: Command) -> Command:
    """Change a command, and those below it, so that they read their arguments and do nothing."""
    command.callback = None
    for each in getattr(command, "commands", {}).values():
        read_only(each)
    return command


def refusal_of(line: str) -> str:
    """Return what the command line says against a line, or nothing; no command runs."""
    output = io.StringIO()
    with pytest.raises(SystemExit) as done, redirect_stdout(output), redirect_stderr(output):
        read_only(get_command(app)).main(shlex.split(line, comments=True)[1:], prog_name="railsearch")
    return output.getvalue() if done.value.code else ""


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_real(block: Block) -> None:
    """Python is fenced and has no placeholders; an indented block is for a shell."""
    if block.language == "python":
        constants = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Constant)]
        assert all(node.value is not ... for node in constants), "a placeholder: ..."
    elif block.language == "toml":
        assert tomllib.loads(block.text)
    elif block.language == "json":
        assert json.loads(block.text)
    elif block.language is None:
        for line in block.commands:
            assert line.split()[0] in PROGRAMS, f"{line!r} is no command; fence the block, as python or text"
            command = line.partition(" #")[0]
            assert "..." not in command, f"{line!r} has a placeholder"
            assert not WITHOUT_COMMENT.search(command), f"{line!r} explains itself without a #"
    else:
        assert block.language == "text", (
            f"a block of {block.language!r}; choose python, toml, json or text, or indent it"
        )


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=str(block), marks=[mark for text, mark in MARKS.items() if text in block.text])
        for block in PYTHON
        if not block.asks_a_server  # test_served_blocks.py runs it
        and not block.asks_a_database  # tests/services/test_exports.py runs it
    ],
)
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a block as a program of its own, in a folder where a tiny model has the name of a real one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    text = block.text.replace('base="package:', 'base="')
    for base in re.findall(r'base="([^"]+)"', text):
        make_base(tmp_path / base, num_layers=2, positions=128)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    exec(compile(text, str(block), "exec"), {"__name__": "__main__"})  # noqa: S102


def test_the_quickstart_is_short() -> None:
    lines = [line for line in PYTHON[0].text.splitlines() if line.strip()]
    assert len(lines) <= 12


@pytest.mark.parametrize("line", railsearch_lines())
def test_lines_for_the_shell_are_understood(line: str) -> None:
    assert not refusal_of(line)


@pytest.mark.parametrize("line", mentions())
def test_commands_in_sentences_exist(line: str) -> None:
    refusal = refusal_of(line)
    assert not refusal or "Missing" in refusal or "Usage" in refusal.splitlines()[1], refusal


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("railsearch serch movies.index", "No such command 'serch'"),
        ("railsearch index bild movies.index", "No such command 'bild'"),
        ("railsearch search movies.index --querys users.npy", "No such option"),
        ("railsearch search", "Missing argument"),
        ("railsearch doctor   tells what is wrong", "unexpected extra argument"),
        ("railsearch demo --epochs many", "Invalid value for '--epochs'"),
    ],
)
def test_wrong_lines_would_be_found(line: str, refusal: str) -> None:
    assert refusal in refusal_of(line)


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n\n    make it \\\n        so\n    x = 1\n\nb\n\n  ```toml\n  c = 1\n  ```\n\n```python\nd\n```")
    found = blocks_of(page)
    assert [(block.line, block.language, block.text) for block in found] == [
        (3, None, "make it \\\n    so\nx = 1\n"), (10, "toml", "c = 1\n"), (14, "python", "d\n"),
    ]  # fmt: skip
    assert found[0].commands == ["make it so", "x = 1"]
