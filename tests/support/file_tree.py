"""The file tree of the README, written from the first sentence of each module's docstring.

Run `python -m tests.support.file_tree` to write it again after a module was added, renamed or described differently.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "railsearch"
START, END = "<!-- file tree -->\n", "<!-- end of file tree -->\n"
WIDTH = 30
ROOMS = (
    "foundation", "similarity", "folders", "kernels", "encoders", "data", "models", "index", "training", "testing",
    "evaluation", "benchmark", "recommender", "text_retriever", "baselines", "recipes", "client", "cli",
)  # fmt: skip
ORDER = {room: place for place, room in enumerate(ROOMS, start=1)}


def render_tree() -> str:
    """Return the tree: one line for each folder and file, rooms in the order of their layers."""
    return "".join(f"    {line}\n" for line in ["src/railsearch/", *_lines(PACKAGE, depth=1)])


def update(text: str) -> str:
    """Return a README with the tree between its marks replaced."""
    before, mark, rest = text.partition(START)
    _, end_mark, after = rest.partition(END)
    assert mark, f"README.md has no line {START!r}"
    assert end_mark, f"README.md has no line {END!r}"
    return f"{before}{START}\n{render_tree()}\n{END}{after}"


def _lines(folder: Path, depth: int) -> list[str]:
    lines = []
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), ORDER.get(path.name, 0), path.name)):
        if path.is_dir() and (path / "__init__.py").exists():
            lines.append(_line(f"{path.name}/", path / "__init__.py", depth))
            lines += _lines(path, depth + 1)
        elif path.suffix == ".py" and path.name != "__init__.py":
            lines.append(_line(path.name, path, depth))
    return lines


def _line(name: str, module: Path, depth: int) -> str:
    return f"{'  ' * depth + name:<{WIDTH}} {_first_sentence(module)}".rstrip()


def _first_sentence(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text())) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"\.(?:\s(?=[A-Z])|$)", paragraph, maxsplit=1)[0]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(update(readme.read_text()))
