"""Public names: few at the top, the rest in a public module each, complete and sorted."""

import functools
import importlib
import inspect

import pytest

import railsearch
from railsearch.foundation import errors

MODULES = ["baselines", "benchmark", "data", "encoders", "errors", "evaluation", "recipes", "similarity", "testing"]


def test_the_top_has_about_25_names() -> None:
    names = [name for name in railsearch.__all__ if not inspect.ismodule(getattr(railsearch, name))]
    assert 20 <= len(names) <= 30


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


def test_public_signatures_state_types() -> None:
    """No argument of a public call is typed as `object`, except for items, which may be parts of a similarity."""
    found = set()
    for name in [*railsearch.__all__, *(f"data.{name}" for name in railsearch.data.__all__)]:
        value = functools.reduce(getattr, name.split("."), railsearch)
        members = vars(value) if inspect.isclass(value) else {"": value}
        for member, call in members.items():
            plain = getattr(call, "__func__", call)
            if inspect.isfunction(plain) and (not member.startswith("_") or member == "__init__"):
                parameters = inspect.signature(plain).parameters.values()
                found |= {f"{name}.{each.name}" for each in parameters if each.annotation is object}
    assert found == {"ItemBatch.items"}
