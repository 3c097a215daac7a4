"""The reference of the Python API: one page for each public module, filled in by mkdocstrings."""

import importlib
import inspect
from collections.abc import Iterator

from tools.pages.markdown import NOTE

import railsearch

MODULES = tuple(name for name in railsearch.__all__ if inspect.ismodule(getattr(railsearch, name)))


def render_modules() -> dict[str, str]:
    """Return the pages by file name.

    Raises:
        ValueError: A public name has no docstring; the message names it.
    """
    missing = list(undocumented())
    if missing:
        raise ValueError(f"no docstring: {', '.join(missing)}; say what they are for.")
    own = [name for name in railsearch.__all__ if name not in MODULES]
    pages = {"railsearch.md": _page("railsearch", own)}
    for module in MODULES:
        names = [name for name in importlib.import_module(f"railsearch.{module}").__all__ if name not in own]
        pages[f"{module}.md"] = _page(f"railsearch.{module}", names)
    return pages


def undocumented() -> Iterator[str]:
    """Yield public names, and public methods of public classes, that have no docstring."""
    for module in ("railsearch", *(f"railsearch.{name}" for name in MODULES)):
        found = importlib.import_module(module)
        for name in found.__all__:
            value = getattr(found, name)
            if not inspect.getdoc(value):
                yield f"{module}.{name}"
            elif inspect.isclass(value) and value.__module__.startswith("railsearch"):
                yield from (f"{module}.{name}.{member}" for member in _undocumented_members(value))


def _undocumented_members(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        is_public_code = not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
        if is_public_code and not inspect.getdoc(getattr(value, name)):
            yield name


def _page(module: str, names: list[str]) -> str:
    found = importlib.import_module(module)
    lead = (inspect.getdoc(found) or "").strip()
    codes = [name for name in names if inspect.isclass(getattr(found, name)) or inspect.isroutine(getattr(found, name))]
    others = [f"`{name}`" for name in names if name not in codes]
    text = f"{NOTE}# {module}\n\n{lead}\n\n"
    text += f"Values and types: {', '.join(others)}.\n\n" if others else ""
    for name in codes:
        value = inspect.unwrap(getattr(found, name))
        text += f"::: {value.__module__}.{value.__qualname__}\n\n"
    return text
