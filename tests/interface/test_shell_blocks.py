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
HOW_TO = (
    "batch", "evaluating", "filtering", "index-on-disk", "integrations", "migrating", "operating", "preparing-data",
    "recommenders", "recommending", "scale", "shards", "text-retrievers",
)  # fmt: skip
TUTORIALS = ("documents", "movielens", "sharding")
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / "how-to" / f"{name}.md" for name in HOW_TO),
    *(ROOT / "docs" / "tutorials" / f"{name}.md" for name in TUTORIALS),
]
"""Pages with commands that can run; a new page is added here once `make_shell_world` has what it names."""
SKIPPED = {
    r"railsearch serve ": "a server; tests/interface/test_server.py runs it",
    r" --ray\b|ray-address": "a cluster; tests/services run it",
    r"engine sync|--engine": "a Milvus or PostgreSQL server; tests/services run it",
    r"data prepare (ml-|books)": "a download, or original files",
    r"railsearch train ": "takes minutes to hours, or needs a pretrained model; tests/recipes train",
    r"railsearch compare ": "takes minutes to hours; tests/interface/test_cli_compare.py runs it",
    r"evaluate runs/insuranceqa|insuranceqa-en": "original files",
    r"doctor": "depends on the machine",
    r"railsearch export ": "slow to import; test_documents.py runs the same in Python",
    r"runs/shop/|runs/week-|data prepare (own|shop --from events.parquet)": "the result of a training on the page",
}
"""Commands that cannot run here, and why."""


def commands_of(page: Path) -> list[str]:
    """Return the calls of railsearch in the shell blocks of a page that can run here."""
    lines = [line.strip() for block in blocks_of(page) if block.language is None for line in block.commands]
    calls = [line for line in lines if line.startswith("railsearch ")]
    return [line for line in calls if not any(re.search(pattern, line) for pattern in SKIPPED)]


ALONE = {"docs/tutorials/sharding.md"}
"""Pages whose own Python makes everything that their commands need."""
COMMANDS = {str(page.relative_to(ROOT)): commands_of(page) for page in PAGES}


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
    for line in COMMANDS[page]:
        arguments = shlex.split(line, comments=True)[1:]
        if page not in ALONE and arguments[:2] in (["index", "build"], ["index", "shard"]):
            made = arguments[2] if arguments[1] == "build" else arguments[-1]
            shutil.rmtree(made, ignore_errors=True)  # the page makes it; the world has one for other pages
        run(*arguments)


def test_every_page_has_a_command_that_runs_and_every_reason_a_command() -> None:
    assert all(COMMANDS.values())
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = [line for page in pages for block in blocks_of(page) if block.language is None for line in block.commands]
    unused = [pattern for pattern in SKIPPED if not any(re.search(pattern, line) for line in lines)]
    assert not unused, f"no page has {unused} any more"
