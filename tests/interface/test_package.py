"""The package as users meet it: names, import cost, README, doctests, versions."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import railsearch
from railsearch.errors import MissingExtraError

ROOT = Path(__file__).parents[2]


def test_public_names_are_complete_sorted_and_real() -> None:
    names = railsearch.__all__
    assert names == sorted(names, key=lambda name: (name.islower(), name))
    assert all(hasattr(railsearch, name) for name in names)
    for name in ("MixtureOfLogits", "Index", "BruteForce", "SearchResult", "Recommender", "load", "fit_similarity"):
        assert name in names


def test_type_checkers_see_the_names_that_programs_see() -> None:
    tree = ast.parse(Path(railsearch.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    seen = {
        alias.name: getattr(importlib.import_module(str(each.module)), alias.name)
        for each in imports
        for alias in each.names
    }
    assert sorted(seen) == sorted(railsearch.__all__)
    assert all(getattr(railsearch, name) is value for name, value in seen.items())
    assert set(railsearch.__all__) <= set(dir(railsearch))
    with pytest.raises(AttributeError, match="no attribute 'Indx'"):
        railsearch.Indx  # noqa: B018


def test_public_names_are_documented() -> None:
    for name in railsearch.__all__:
        assert getattr(railsearch, name).__doc__, name


def test_import_is_quiet_and_lean() -> None:
    code = (
        "import sys, logging, railsearch; assert 'torch' not in sys.modules;"
        "import torch; state = torch.get_rng_state(); from railsearch import *;"
        "assert not logging.getLogger().handlers;"
        "assert torch.equal(state, torch.get_rng_state());"
        "assert not torch.cuda.is_initialized();"
        "heavy = {'typer', 'polars', 'matplotlib', 'faiss', 'transformers', 'tensorboard'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


class ExampleFinder(doctest.DocTestFinder):
    """Finds the examples of decorated functions too, which doctest takes for those of the decorator's module."""

    def _from_module(self, module: ModuleType | None, object: object) -> bool:  # noqa: A002
        return super()._from_module(module, inspect.unwrap(object) if callable(object) else object)


@pytest.mark.parametrize("module", [info.name for info in pkgutil.walk_packages(railsearch.__path__, "railsearch.")])
def test_doctests(module: str) -> None:
    runner = doctest.DocTestRunner()
    try:
        found = importlib.import_module(module)
    except MissingExtraError as error:  # adapters to other libraries
        pytest.skip(str(error))
    for test in ExampleFinder().find(found, module):
        runner.run(test)
    assert runner.failures == 0


def test_examples_of_decorated_functions_are_found() -> None:
    module = importlib.import_module("railsearch.kernels.selection")
    assert any(test.name.endswith("select_best") and test.examples for test in ExampleFinder().find(module))


def test_walks_name_files_that_are_there() -> None:
    page = ROOT / "docs" / "maintainers" / "architecture.md"
    walks = page.read_text().partition("## The four walks")[2]
    names = re.findall(r"`([a-z_/]+\.py)`", walks)
    assert walks.count("### ") == 4
    assert len(names) >= 40
    assert [name for name in names if not (Path(railsearch.__file__).parent / name).is_file()] == []


def test_every_module_opens_with_its_purpose() -> None:
    for path in Path(railsearch.__file__).parent.rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        assert not docstring.startswith("What"), path


def test_no_unsafe_call_in_the_package() -> None:
    unsafe = re.compile(r"(?<!safetensors\.)torch\.load\(|\bpickle\b|(?<!\.)\beval\(|\bexec\(|shell=True|os\.system")
    for path in Path(railsearch.__file__).parent.rglob("*.py"):
        assert not unsafe.search(path.read_text()), path
