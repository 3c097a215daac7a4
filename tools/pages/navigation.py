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
        "Answers to one question each.",
        (
            "comparing", "choosing-a-strategy", "filtering", "index-on-disk", "live-updates", "migrating",
            "debugging", "benchmarking", "engines", "preparing-data", "recommenders", "text-retrievers",
            "long-documents",
            "late-interaction", "training", "negatives", "distilling", "several-processes", "new-items", "updating",
            "evaluating", "recommending", "operating", "shards", "ray", "batch", "scale", "exporting", "integrations",
            "own-similarity", "own-engine", "own-encoder",
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


FOLDERS = {"reference/python": "Python API"}


def index_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """Return an index page for every section that has none."""
    found = {}
    for section, (title, about, _) in SECTIONS.items():
        listed = "".join(
            _entry(page, pages[page], section) for page in ordered(section, pages) if _is_in(page, section)
        )
        found[f"{section}/index.md"] = f"# {title}\n\n{about}\n\n{listed}"
    return {page: text for page, text in found.items() if page not in pages}


def ordered(section: str, pages: Iterable[str]) -> list[str]:
    """Return the pages of a section: its index, those that are named, then the others."""
    first = SECTIONS[section][2]
    inside = [page for page in pages if page.startswith(f"{section}/")]

    def place(page: str) -> tuple[int, str]:
        stem = page.split("/")[1].removesuffix(".md")
        return (-1 if stem == "index" else first.index(stem) if stem in first else len(first), page)

    return sorted(inside, key=place)


def navigation(pages: Mapping[str, str]) -> str:
    """Return the navigation as TOML."""
    entries: list[object] = [{"railsearch": "index.md"}]
    for section, (title, _, _) in SECTIONS.items():
        inside = ordered(section, pages)
        own = [page for page in inside if page.count("/") == 1]
        folders = list(dict.fromkeys(str(PurePosixPath(page).parent) for page in inside if page.count("/") > 1))
        below: list[object] = [{_title(pages[page]): page} if not page.endswith("index.md") else page for page in own]
        for folder in folders:
            within = [page for page in inside if page.startswith(f"{folder}/")]
            within.sort(key=lambda page: not page.endswith("/railsearch.md"))
            below += [{FOLDERS.get(folder, folder): within}]
        entries.append({title: below})
    listed = {page for section in SECTIONS for page in ordered(section, pages)}
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
