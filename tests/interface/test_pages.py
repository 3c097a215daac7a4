"""The documentation site: generated pages are complete, no page is lost, and what cannot be described is an error."""

import doctest
import importlib
import re
import tomllib
from pathlib import Path

import pytest
from tools.pages import drawing, figures, links, mixture_drawing, python_api
from tools.pages.__main__ import ROOT, write_pages
from tools.pages.command_line import render_commands
from tools.pages.file_tree import PACKAGE, first_sentence, render_tree
from tools.pages.markdown import first_sentence_of
from tools.pages.navigation import GROUPS, index_pages, navigation
from tools.pages.settings import groups_of

import railsearch
from railsearch.recipes import Recipe


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all pages of the site."""
    target = tmp_path_factory.mktemp("site") / "docs"
    write_pages(target)
    return target


def pages_of(entry: object) -> list[str]:
    """Return the pages that a part of the navigation names."""
    if isinstance(entry, dict):
        return [page for each in entry.values() for page in pages_of(each)]
    if isinstance(entry, list):
        return [page for each in entry for page in pages_of(each)]
    return [str(entry)]


def test_every_page_is_in_the_navigation_once(written: Path) -> None:
    settings = tomllib.loads((written / "zensical.toml").read_text())["project"]
    listed = pages_of(settings["nav"])
    there = [str(path.relative_to(written / "pages")) for path in (written / "pages").rglob("*.md")]
    assert sorted(listed) == sorted(there)
    for path in (ROOT / "docs").rglob("*.md"):
        assert str(path.relative_to(ROOT / "docs")) in listed
    titles = [next(iter(entry)) for entry in settings["nav"]]
    assert titles[:6] == ["Home", "Tutorials", "How-to", "Examples", "Concepts", "Reference"]
    how_to = next(entry["How-to"] for entry in settings["nav"] if "How-to" in entry)
    assert [next(iter(group)) for group in how_to[1:]] == list(GROUPS["how-to"])


def test_generated_pages_are_complete(written: Path) -> None:
    reference = written / "pages" / "reference"
    commands = (reference / "cli.md").read_text()
    for command in ("railsearch search", "railsearch index build", "railsearch serve", "railsearch recipes list"):
        assert f"## {command}\n" in commands
    assert "| `-k`, `--k` | `10` |" in commands
    assert "| `--seeds` | 3, and 1 for a recipe |" in commands
    recipes = (reference / "recipes.md").read_text()
    for section, field in Recipe.model_fields.items():
        for group in groups_of(field.annotation):
            assert f"### {section}" in recipes
            assert all(f"| `{name}` |" in recipes for name in group.model_fields)
    assert '| `["query", "item", "pair"]` |' in recipes
    assert "GateInput" not in recipes
    assert "`railsearch_results_total` | counter | `index`, `exactness`" in (reference / "metrics.md").read_text()
    errors = (reference / "errors.md").read_text()
    assert "| `NotEnoughItemsError` | `ValueError` |" in errors
    assert "| `ServerTimeoutError` | `RuntimeError`, `TimeoutError` |" in errors
    assert "## POST /v1/indexes/{name}/search" in (reference / "routes.md").read_text()
    assert "::: railsearch.index.index.Index" in (reference / "python" / "railsearch.md").read_text()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_opens_with_a_sentence(page: Path) -> None:
    sentence = first_sentence_of(page.read_text())
    assert sentence, "open the page with a sentence that does not begin with code; the index of its section shows it"
    assert len(sentence) < 240


def test_no_command_was_left_in_a_paragraph() -> None:
    """A command whose indent is missing is shown as prose, and no test runs it."""
    names = "|".join(re.findall(r"^## railsearch (\w+)$", render_commands(), flags=re.MULTILINE))
    assert "bench" in names
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        commands = rf"^(?:railsearch (?:{names})|pip install|curl|torchrun|python -m|python benchmarks)\b.*$"
        assert not re.findall(commands, text, flags=re.MULTILINE), page.name


def test_the_paper_is_covered() -> None:
    page = (ROOT / "docs" / "reference" / "paper-to-code.md").read_text()
    wanted = [
        *(f"Equation {number}" for number in (1, 2, 3, 4)), "Equations 5 and 6", "Theorem 1", "Theorem 2", "Theorem 3",
        "lemmas", "Definition 1", "Definition 2", "Algorithm 1", "ApproxTopK", "TopKPerEmbedding", "TopKAvg",
        "Combined top K", "notations", "statistics table", "Quality of recommenders (table)",
        "Quality of question answering (table)", "Hit rate and latency of strategies (table)", "worked example",
        "Figure of the mixture", "Figure of its use", "appendix's figure",
    ]  # fmt: skip
    assert [name for name in wanted if name not in page] == []


def test_a_page_that_nobody_listed_comes_last() -> None:
    pages = {
        "index.md": "# Home\n",
        "how-to/zebra.md": "# Zebras\n\nFeed them. Daily.\n",
        "how-to/filtering.md": "# F\n",
    }
    assert "- [Zebras](zebra.md): Feed them.\n" in index_pages(pages)["how-to/index.md"]
    entries = tomllib.loads(navigation({**pages, **index_pages(pages)}))["nav"]
    assert pages_of(entries[2]) == ["how-to/index.md", "how-to/filtering.md", "how-to/zebra.md"]


def test_links_lead_to_places_on_the_site() -> None:
    places = {"docs/how-to/a.md": "how-to/a.md", "benchmarks/results/b.md": "results/b.md", "README.md": "index.md"}
    text = (
        "[b](../../benchmarks/results/b.md#x) [c](../../Makefile) [d](https://d.org) [e](gone.md)\n\n    [f](README.md)"
    )
    assert links.rewrite(text, page="docs/how-to/a.md", places=places) == (
        "[b](../results/b.md#x) c (`Makefile`) [d](https://d.org) [e](gone.md)\n\n    [f](README.md)\n"
    )
    assert links.rewrite("[a](docs/how-to/a.md)", page="README.md", places=places) == "[a](how-to/a.md)\n"
    assert links.rewrite("[Makefile](Makefile)", page="README.md", places=places) == "`Makefile`\n"


def test_examples_of_a_command_are_one_block(written: Path) -> None:
    text = (written / "pages" / "reference" / "cli.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    assert any(block.count("\n") > 2 for block in blocks)
    assert not [block for block in blocks if "\n\n" in block]


def test_public_names_have_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(python_api.undocumented()) == []
    monkeypatch.setattr(Recipe, "read", property(lambda _: None))
    assert list(python_api.undocumented()) == ["railsearch.Recipe.read", "railsearch.recipes.Recipe.read"]
    with pytest.raises(ValueError, match=r"no docstring: railsearch\.Recipe\.read"):
        python_api.render_modules()


def test_files_of_the_paper_are_there() -> None:
    page = (ROOT / "docs" / "reference" / "paper-to-code.md").read_text()
    names = re.findall(r"`([a-z_/0-9]+\.py)`", page)
    assert len(names) >= 40
    assert [name for name in names if not any((place / name).is_file() for place in (ROOT, PACKAGE))] == []


def test_figures_are_drawn_from_the_results(tmp_path: Path) -> None:
    drawn = figures.write_figures(tmp_path)
    assert all(file.stat().st_size > 1000 for file in drawn)
    for file in drawn:
        kept = figures.IMAGES / file.name
        assert figures.tables_of(kept) == figures.tables_of(file), f"run `python -m tools.pages.figures`: {file.name}"
    with pytest.raises(ValueError, match=r"scale\.md has no table under 'Nothing'"):
        drawing.read_table("scale.md", "Nothing", first="items")


def test_the_drawing_is_the_one_of_the_tool() -> None:
    assert mixture_drawing.IMAGE.read_text() == mixture_drawing.draw(), "run `python -m tools.pages.mixture_drawing`"


def test_the_readme_is_short_and_the_citation_has_the_version() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 220
    assert f"version: {railsearch.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("name", ["drawing", "errors", "links", "markdown", "navigation", "settings"])
def test_examples_of_the_tools_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"tools.pages.{name}")).failed == 0


def test_the_file_tree_names_every_module_with_its_purpose() -> None:
    lines = render_tree().splitlines()
    modules = list(PACKAGE.rglob("*.py"))
    assert len(lines) == len(modules)
    names = [line.split()[0] for line in lines]
    for path in modules:
        name = f"{path.parent.name}/" if path.name == "__init__.py" else path.name
        assert names.count(f"src/{name}" if path.parent == PACKAGE and name.endswith("/") else name), path
    assert all(len(line.split()) > 2 for line in lines[1:])


def test_a_module_without_a_purpose_is_named(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text('"""Count apples. Then pears.\n\nMore."""\n')
    assert render_tree(package).splitlines() == ["src/package/", "  one.py                       Count apples"]
    (package / "two.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"two\.py has no docstring"):
        render_tree(package)
    assert first_sentence(package / "one.py") == "Count apples"
