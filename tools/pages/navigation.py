"""The order of the site: pages that are named here come first, all others follow by title, and none is lost."""

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from tools.pages.markdown import first_sentence_of, title_of

SECTIONS = {
    "tutorials": (
        "Tutorials",
        "Lessons that you follow from the first line to the last.",
        ("embeddings", "movielens", "documents", "serving", "sharding"),
    ),
    "how-to": (
        "How-to",
        "One task on each page.",
        (
            "comparing", "choosing-a-strategy", "filtering", "index-on-disk", "live-updates", "migrating",
            "debugging", "benchmarking", "engines", "preparing-data", "recommenders", "training", "negatives",
            "several-processes", "distilling", "new-items", "updating", "evaluating", "recommending", "exporting",
            "text-retrievers", "long-documents", "late-interaction", "integrations", "operating", "shards", "ray",
            "batch", "scale", "own-similarity", "own-engine", "own-encoder",
        ),
    ),
    "concepts": (
        "Concepts",
        "Why it works, what is proven, and what is measured.",
        ("mixture-of-logits", "certificates", "first-stages", "bit-stable-scores", "precision", "index-folder"),
    ),
    "reference": (
        "Reference",
        "Every name, flag, route, setting, metric and error; most pages are generated from the code.",
        ("python", "cli", "recipes", "http", "routes", "metrics", "errors", "paper-to-code"),
    ),
    "results": (
        "Results",
        "Measurements with their commands, machines and dates, and what is not reached.",
        ("figures", "when-it-pays", "ml-1m", "insuranceqa", "strategies", "kernels", "scale", "serving", "sharding"),
    ),
    "maintainers": (
        "Maintainers",
        "For people who change railsearch.",
        ("architecture", "contributing", "releasing", "tutorial-times", "files", "site", "security", "code-of-conduct"),
    ),
}  # fmt: skip
"""Title, one sentence, and first pages of each section, in the order of the site."""


GROUPS = {
    "how-to": {
        "Search": "comparing",
        "Recommenders": "preparing-data",
        "Texts": "text-retrievers",
        "Production": "operating",
        "Your own parts": "own-similarity",
    }
}
"""Headings within a section, each with the first page under it. Pages that no section names come last."""

AFTER = {"how-to": ["examples.md", "examples-data.md"]}
"""Pages outside of the sections that follow one in the navigation, together; all others are at its end."""

FOLDERS = {"reference/python": "Python API"}


def index_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """Return an index page for every section that has none."""
    found = {}
    for section, (title, about, _) in SECTIONS.items():
        inside = [page for page in ordered(section, pages) if _is_in(page, section)]
        listed = "".join(
            (f"\n## {group}\n\n" if group else "") + "".join(_entry(page, pages[page], section) for page in within)
            for group, within in grouped(section, inside)
        )
        found[f"{section}/index.md"] = f"# {title}\n\n{about}\n\n{listed.lstrip()}"
    return {page: text for page, text in found.items() if page not in pages}


def ordered(section: str, pages: Iterable[str]) -> list[str]:
    """Return the pages of a section: its index, those that are named, then the others."""
    first = SECTIONS[section][2]
    inside = [page for page in pages if page.startswith(f"{section}/")]

    def place(page: str) -> tuple[int, str]:
        stem = page.split("/")[1].removesuffix(".md")
        return (-1 if stem == "index" else first.index(stem) if stem in first else len(first), page)

    return sorted(inside, key=place)


def grouped(section: str, pages: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return the ordered pages of a section by heading; the heading is empty for pages before the first one.

    >>> grouped("how-to", ["how-to/comparing.md", "how-to/operating.md", "how-to/ray.md"])
    [('Search', ['how-to/comparing.md']), ('Production', ['how-to/operating.md', 'how-to/ray.md'])]
    """
    starts = {first: group for group, first in GROUPS.get(section, {}).items()}
    found: list[tuple[str, list[str]]] = []
    for page in pages:
        group = starts.get(page.split("/")[1].removesuffix(".md"))
        if group or not found:
            found.append((group or "", []))
        found[-1][1].append(page)
    return found


def navigation(pages: Mapping[str, str]) -> str:
    """Return the navigation as TOML."""
    entries: list[object] = [{"Home": "index.md"}]
    for section, (title, _, _) in SECTIONS.items():
        inside = ordered(section, pages)
        own = [page for page in inside if page.count("/") == 1]
        folders = list(dict.fromkeys(str(PurePosixPath(page).parent) for page in inside if page.count("/") > 1))
        below: list[object] = [page for page in own if page.endswith("index.md")]
        for group, within in grouped(section, [page for page in own if not page.endswith("index.md")]):
            named = [{_title(pages[page]): page} for page in within]
            below += [{group: named}] if group else named
        for folder in folders:
            within = [page for page in inside if page.startswith(f"{folder}/")]
            within.sort(key=lambda page: not page.endswith("/railsearch.md"))
            below += [{FOLDERS.get(folder, folder): within}]
        entries.append({title: below})
        together = [{_title(pages[page]): page} for page in AFTER.get(section, []) if page in pages]
        entries += [{next(iter(together[0])): together}] if together else []
    listed = {page for section in SECTIONS for page in [*ordered(section, pages), *AFTER.get(section, [])]}
    entries += [{_title(pages[page]): page} for page in sorted(pages) if page not in listed and page != "index.md"]
    return f"nav = {_toml(entries)}\n"


def _title(text: str) -> str:
    return title_of(text).replace("`", "")


def _is_in(page: str, section: str) -> bool:
    return page.count("/") == 1 and page != f"{section}/index.md"


def _entry(page: str, text: str, section: str) -> str:
    sentence = first_sentence_of(text)
    return f"- [{title_of(text)}]({page.removeprefix(f'{section}/')})" + (f": {sentence}" if sentence else "") + "\n"


def _toml(value: object) -> str:
    """Return strings, lists and one-line tables as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
