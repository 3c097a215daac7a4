"""The file tree of the package, from the first sentence of each module's docstring.

`python -m tools.pages.file_tree` prints it; `make docs` makes it a page for maintainers. Nothing is kept in a file, so
a new module needs a docstring and nothing else.
"""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "railsearch"
WIDTH = 30
ROOMS = (
    "foundation", "similarity", "folders", "kernels", "encoders", "data", "models", "index", "training", "testing",
    "evaluation", "benchmark", "recommender", "text_retriever", "baselines", "recipes", "distributed", "comparison",
    "server", "client", "cli",
)  # fmt: skip
ORDER = {room: place for place, room in enumerate(ROOMS, start=1)}


def render_tree(package: Path = PACKAGE) -> str:
    """Return the tree: one line for each folder and file, rooms in the order of their layers."""
    return "".join(f"{line}\n" for line in [f"src/{package.name}/", *_lines(package, depth=1)])


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
    return f"{'  ' * depth + name:<{WIDTH}} {first_sentence(module)}"


def first_sentence(module: Path) -> str:
    """Return the first sentence of a module's docstring.

    Raises:
        ValueError: The module has no docstring; the message names it.
    """
    docstring = ast.get_docstring(ast.parse(module.read_text()))
    if not docstring:
        raise ValueError(f"{module} has no docstring; open it with one sentence that says what the module is for.")
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"\.(?:\s(?=[A-Z])|$)", paragraph, maxsplit=1)[0]


if __name__ == "__main__":
    print(render_tree(), end="")
