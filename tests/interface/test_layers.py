"""The house: a module imports only from layers below its own, and rooms inside a room form no cycle."""

import ast
from pathlib import Path

import pytest

import railsearch

PACKAGE = Path(railsearch.__file__).parent
LAYERS = {
    "foundation": 0,
    "errors": 1, "similarity": 1,
    "folders": 2, "kernels": 2,
    "encoders": 3, "data": 3,
    "models": 4, "index": 4,
    "training": 5, "evaluation": 5, "benchmark": 5, "engines": 5, "testing": 5,
    "recommender": 6, "text_retriever": 6, "demo": 6,
    "baselines": 7, "distributed": 7, "recipes": 7,
    "loading": 8, "integrations": 8,
    "comparison": 9, "server": 9,
    "client": 10, "cli": 10,
    "__main__": 11,
}  # fmt: skip
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
ROOMS = sorted({module.parts[0] for module in MODULES if len(module.parts) > 1})
APART = {
    "data": ("interactions", "passages", "synthetic"),
    "encoders": ("sequence", "text"),
}
"""Rooms inside a room that know nothing of each other."""
LARGEST_FILE = 350


def imported(path: Path) -> set[str]:
    """Return the modules of railsearch that a file imports, anywhere in the file, without "railsearch." in front."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "railsearch":
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return {name.removeprefix("railsearch.") for name in names if name.startswith("railsearch.")}


def imported_rooms(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def inner_imports(room: str) -> dict[str, set[str]]:
    """Return which parts of a room, files and folders at its top, import which others."""
    edges: dict[str, set[str]] = {}
    for module in MODULES:
        if (
            module.parts[0] != room
            or len(module.parts) == 1
            or (module.name == "__init__.py" and len(module.parts) == 2)
        ):
            continue
        own = module.parts[1].removesuffix(".py")
        parts = {tuple(name.split(".")) for name in imported(PACKAGE / module)}
        edges.setdefault(own, set()).update(part[1] for part in parts if part[0] == room and len(part) > 1)
        edges[own].discard(own)
    return edges


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_only_from_below(module: Path) -> None:
    own = module.parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for name in imported_rooms(PACKAGE / module) - {own}:
        assert name in LAYERS, f"{module} imports railsearch.{name}, which has no layer"
        assert LAYERS[name] < LAYERS[own], f"{module} (layer {LAYERS[own]}) imports {name} (layer {LAYERS[name]})"


def test_every_module_has_a_layer_and_every_layer_a_module() -> None:
    assert {module.parts[0].removesuffix(".py") for module in MODULES} - {"__init__"} == set(LAYERS)


@pytest.mark.parametrize("room", ROOMS)
def test_parts_of_a_room_form_no_cycle(room: str) -> None:
    edges = inner_imports(room)
    left = set(edges)
    while ready := {part for part in left if not edges[part] & left}:
        left -= ready
    assert not left, f"these import each other in a circle: { ({part: edges[part] & left for part in left}) }"


@pytest.mark.parametrize("room", APART)
def test_rooms_that_are_apart_do_not_import_each_other(room: str) -> None:
    edges = inner_imports(room)
    for part in APART[room]:
        assert not edges[part] & set(APART[room]), f"{room}/{part} imports {edges[part] & set(APART[room])}"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_file_is_one_idea(module: Path) -> None:
    num_lines = len((PACKAGE / module).read_text().splitlines())
    assert num_lines <= LARGEST_FILE, f"{module} has {num_lines} lines; split it by idea"


def test_an_upward_import_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("from railsearch.index import Index\nfrom railsearch import cli\nimport railsearch.demo\n")
    assert imported_rooms(file) == {"index", "cli", "demo"}
