"""Write the pages of the site: those of `docs/`, those that are generated, results, and the navigation.

python -m tools.pages build/docs        `make docs` runs it, and builds the site from what it wrote
"""

import argparse
import json
import shutil
from pathlib import Path

from tools.pages.command_line import render_commands
from tools.pages.errors import render_errors
from tools.pages.file_tree import render_tree
from tools.pages.http_api import openapi, render_http, render_metrics
from tools.pages.links import fence_shell_blocks, rewrite
from tools.pages.markdown import NOTE
from tools.pages.navigation import SECTIONS, index_pages, navigation
from tools.pages.python_api import render_modules
from tools.pages.settings import render_settings

ROOT = Path(__file__).parents[2]
PICTURES = {".png", ".svg"}
TOP = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "maintainers/contributing.md",
    "CODE_OF_CONDUCT.md": "maintainers/code-of-conduct.md",
    "SECURITY.md": "maintainers/security.md",
    "examples/data/README.md": "examples-data.md",
}
HOME = "---\nhide: [navigation]\n---\n\n"
"""Front matter of the first page: it is in no section, so it needs no column for one."""


def places() -> dict[str, str]:
    """Return the place on the site of every page and picture of the repository that is there."""
    found = {name: place for name, place in TOP.items() if (ROOT / name).is_file()}
    for folder, target in (("docs", ""), ("benchmarks/results", "results/")):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".md" or path.suffix in PICTURES:
                found[str(path.relative_to(ROOT))] = f"{target}{path.relative_to(ROOT / folder)}"
    return (
        found
        | {f"docs/{section}": f"{section}/index.md" for section in SECTIONS}
        | {"benchmarks/results": "results/index.md"}
    )


def generated() -> dict[str, str]:
    """Return the pages that are made from the code."""
    description = openapi()
    files = f"# Files\n\nEvery file of the package and its purpose, from docstrings.\n\n```text\n{render_tree()}```\n"
    return {
        **{f"reference/python/{name}": text for name, text in render_modules().items()},
        "reference/cli.md": render_commands(),
        "reference/recipes.md": render_settings(),
        "reference/routes.md": render_http(description),
        "reference/openapi.json": json.dumps(description, indent=1) + "\n",
        "reference/metrics.md": render_metrics(),
        "reference/errors.md": render_errors(),
        "maintainers/files.md": NOTE + files,
    }


def write_pages(target: Path) -> list[str]:
    """Write all pages and the settings of the site into a folder, which is emptied first; return the pages."""
    known = places()
    pages = generated()
    pages |= {
        place: rewrite((ROOT / name).read_text(), page=name, places=known)
        for name, place in known.items()
        if name.endswith(".md")
    }
    texts = {place: text for place, text in pages.items() if place.endswith(".md")}
    texts |= index_pages(texts)
    pages |= {place: fence_shell_blocks(text) for place, text in texts.items()}
    pages["index.md"] = HOME + pages["index.md"]
    shutil.rmtree(target, ignore_errors=True)
    for place, text in pages.items():
        (target / "pages" / place).parent.mkdir(parents=True, exist_ok=True)
        (target / "pages" / place).write_text(text)
    for name, place in known.items():
        if Path(name).suffix in PICTURES:
            (target / "pages" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / "pages" / place)
    shutil.copyfile(ROOT / "tools" / "pages" / "site.css", target / "pages" / "site.css")
    settings = (ROOT / "tools" / "pages" / "site.toml").read_text()
    head, mark, rest = settings.partition("[project]\n")
    (target / "zensical.toml").write_text(f"{head}{mark}{navigation(texts)}{rest}")
    return sorted(pages)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, help="folder to write; it is emptied first")
    print(f"{len(write_pages(parser.parse_args().target))} pages written")
