"""Public names: few at the top, the rest in a public module each, complete and sorted."""

import functools
import importlib
import inspect
from collections.abc import Iterable

import pytest

import railsearch
from railsearch.foundation import errors

LONGEST_PARAMETER = 170
LONGEST_SIGNATURE = 1100
MODULES = [
    "baselines",
    "benchmark",
    "client",
    "data",
    "distributed",
    "encoders",
    "engines",
    "errors",
    "evaluation",
    "recipes",
    "similarity",
    "testing",
]


def test_the_top_has_about_25_names() -> None:
    names = [name for name in railsearch.__all__ if not inspect.ismodule(getattr(railsearch, name))]
    assert 20 <= len(names) <= 31


@pytest.mark.parametrize("module", MODULES)
def test_public_modules_are_sorted_and_real(module: str) -> None:
    found = importlib.import_module(f"railsearch.{module}")
    names = found.__all__
    assert len(set(names)) == len(names)
    assert names == sorted(names, key=lambda name: (not name.isupper(), name.islower() or "_" in name, name))
    for name in names:
        assert hasattr(found, name), name


def test_every_error_is_public() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.RailsearchError)
    }
    assert set(railsearch.errors.__all__) == raised


def test_every_name_has_one_place() -> None:
    """A name at the top that is public elsewhere too is the same object."""
    for module in MODULES:
        found = importlib.import_module(f"railsearch.{module}")
        for name in set(found.__all__) & set(railsearch.__all__):
            assert getattr(found, name) is getattr(railsearch, name), name


def signatures(names: Iterable[str]) -> dict[str, inspect.Signature]:
    """Return the signatures of functions, and of the methods of classes, by their names below railsearch."""
    found = {}
    for name in names:
        value = functools.reduce(getattr, name.split("."), railsearch)
        members = vars(value) if inspect.isclass(value) else {"": value}
        for member, call in members.items():
            plain = getattr(call, "__func__", call)
            if inspect.isfunction(plain) and (not member.startswith("_") or member == "__init__"):
                found[f"{name}.{member}".strip(".")] = inspect.signature(plain)
    return found


def test_public_signatures_state_types() -> None:
    """No argument of a public call is typed as `object`, except for items, which may be parts of a similarity."""
    found = {
        f"{name}.{each.name}"
        for name, signature in signatures(
            [*railsearch.__all__, *(f"data.{n}" for n in railsearch.data.__all__)]
        ).items()
        for each in signature.parameters.values()
        if each.annotation is object
    }
    assert found == {"ItemBatch.__init__.items"}


def test_help_prints_short_signatures() -> None:
    """An alias of types prints its own name, not the union that it stands for."""
    names = [f"{module}.{name}" for module in MODULES for name in getattr(railsearch, module).__all__]
    found = signatures([*railsearch.__all__, *names])
    assert len(found) > 200
    for name, signature in found.items():
        for each in signature.parameters.values():
            assert len(str(each)) <= LONGEST_PARAMETER, f"{name}: {each}"
        assert len(str(signature)) <= LONGEST_SIGNATURE, f"{name}{signature}"
    assert "query_embeddings: ArrayLike, item_embeddings: ArrayLike," in str(found["fit_similarity"])
    assert "exclude: Exclude = None, allow: Allow = None," in str(found["Index.search"])
