"""A module imports only from layers below its own: DESIGN's table, read off the code."""

import ast
from pathlib import Path

import pytest

import railsearch

PACKAGE = Path(railsearch.__file__).parent
LAYERS = {
    "foundation": 0,
    "errors": 1, "similarity": 1,
    "folders": 2,
    "kernels": 3, "encoders": 3, "data": 3,
    "models": 4, "index": 4,
    "training": 5, "testing": 5,
    "evaluation": 6, "benchmark": 6,
    "recommender": 7, "text_retriever": 7, "demo": 7,
    "loading": 8, "recipes": 8,
    "cli": 9,
    "__main__": 10,
}  # fmt: skip
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def top_name(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Top-level names under railsearch that a file imports, wherever in the file it does."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "railsearch"
                else {node.module}
            )
    return {name.split(".")[1] for name in names if name.startswith("railsearch.")}


@pytest.mark.parametrize(
    "module", [module for module in MODULES if module.name != "__init__.py" or module.parent.name], ids=str
)
def test_imports_only_from_below(module: Path) -> None:
    own = top_name(module)
    if own == "__init__":
        return
    layer = LAYERS[own]
    for name in imported(PACKAGE / module) - {own}:
        assert name in LAYERS, f"{module} imports railsearch.{name}, which has no layer"
        is_below = LAYERS[name] < layer or (layer == 0 and LAYERS[name] == 0)
        assert is_below, f"{module} (layer {layer}) imports {name} (layer {LAYERS[name]})"


def test_every_module_has_a_layer_and_every_layer_a_module() -> None:
    assert {top_name(module) for module in MODULES} - {"__init__"} == set(LAYERS)


def test_an_upward_import_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("from railsearch.index import Index\nfrom railsearch import cli\nimport railsearch.demo\n")
    assert imported(file) == {"index", "cli", "demo"}


def test_only_its_own_engine_imports_a_search_library() -> None:
    importers = {module for module in MODULES if "import faiss" in (PACKAGE / module).read_text()}
    assert importers == {Path("index/engines/faiss.py")}
