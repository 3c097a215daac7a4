"""Measurements on the pages: a figure names the command that drew it and the day, a result its command and its day."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DAY = re.compile(r"\b\d{1,2} (?:and \d{1,2} )?[A-Z][a-z]+ 20[2-9]\d\b|\b20[2-9]\d-\d\d-\d\d\b")
COMMAND = re.compile(r"`(?:python|railsearch) [^`]+`")
SCREENSHOTS = ("explorer-light.png", "explorer-dark.png")
AFTER = 3
"""Paragraphs and tables after a figure in which its command and day are looked for."""


def captions() -> list[tuple[str, str]]:
    """Return every figure of the pages with the text after it, up to the next figure or heading."""
    found = []
    for page in PAGES:
        paragraphs = page.read_text().split("\n\n")
        for place, paragraph in enumerate(paragraphs):
            image = re.match(r"!\[[^\]]*\]\(([^)]+)\)", paragraph)
            if image and not image[1].endswith(SCREENSHOTS):
                after = []
                for each in paragraphs[place + 1 : place + 1 + AFTER]:
                    if each.startswith(("!", "#")):
                        break
                    after.append(each)
                found.append((f"{page.relative_to(ROOT)}: {Path(image[1]).name}", "\n\n".join(after)))
    return found


@pytest.mark.parametrize(("figure", "caption"), captions(), ids=lambda value: value if len(value) < 80 else "")
def test_a_figure_names_its_command_and_its_day(figure: str, caption: str) -> None:
    assert COMMAND.search(caption), f"{figure} does not name the command that drew it"
    assert DAY.search(caption), f"{figure} does not say when it was drawn, as in 17 November 2026"


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_a_result_names_its_command_and_its_day(page: Path) -> None:
    text = page.read_text()
    assert re.search(r"(?:`|^ {4}).*(?:python|railsearch) (?:-m )?\S", text, flags=re.MULTILINE), "no command"
    assert DAY.search(text), f"{page.name} has no day of measurement, as 17 November 2026"


def test_the_figures_of_the_pages_are_found() -> None:
    figures = [figure for figure, _ in captions()]
    for name in (
        "gain", "recall-time", "two-pass", "scale", "search-stages", "gate-weights", "component-scores",
        "training-curves",
    ):  # fmt: skip
        assert any(figure.startswith("docs/results/figures.md") and f" {name}." in figure for figure in figures), name
