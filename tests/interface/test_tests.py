"""The structure of tests and source: imports among tests, and files of optional libraries."""

import ast
import functools
from pathlib import Path

import pytest

import railsearch

PACKAGE = Path(railsearch.__file__).parent
TESTS = Path(__file__).parents[1]
OPTIONAL = (
    "bm25s", "faiss", "fastapi", "httpcore", "httpx", "huggingface_hub", "matplotlib", "orjson", "prometheus_client",
    "psycopg", "pymilvus", "ray", "starlette", "tensorboard", "tokenizers", "torch.utils.tensorboard", "transformers",
    "uvicorn",
)  # fmt: skip


@functools.cache
def imported_at_run_time(path: Path) -> set[str]:
    """Return the modules that a file imports anywhere, except those that only type checkers see."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_no_test_module_imports_another() -> None:
    for path in TESTS.rglob("*.py"):
        inside = {name for name in imported_at_run_time(path) if name.startswith("tests.")}
        wrong = {name for name in inside if not name.startswith("tests.support")}
        assert not wrong, f"{path.relative_to(TESTS)} imports {wrong}; move what it needs to tests/support"


def test_unit_tests_mirror_the_package() -> None:
    unit = TESTS / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    missing = sorted(str(folder) for folder in folders if not (PACKAGE / folder).is_dir())
    assert not missing, f"tests/unit has {missing}, which the package has not"


@pytest.mark.parametrize("library", OPTIONAL)
def test_an_optional_library_is_imported_in_one_file(library: str) -> None:
    importers = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if any(name == library or name.startswith(f"{library}.") for name in imported_at_run_time(path))
    ]
    assert len(importers) <= 1, f"{library} is imported in {importers}"


def test_imports_for_type_checkers_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("if TYPE_CHECKING:\n    import ray\ndef f():\n    from faiss.contrib import evaluation\n")
    assert imported_at_run_time(file) == {"faiss.contrib", "faiss.contrib.evaluation"}
