"""The reference of recipes: every setting, from the classes that check it."""

import json
import types
import typing
from collections.abc import Iterator

from pydantic.fields import FieldInfo
from tools.pages.markdown import NOTE, table

from railsearch.foundation.settings import Config
from railsearch.recipes import Recipe, TextRecipe, shipped_recipes

OPENING = """# Recipes

A recipe is a TOML file with all settings of a model and its training; omitted settings have the defaults below.
`railsearch recipes copy NAME` gives you one to edit, `--set section.setting=value` changes one setting for one run, and
an unknown name or value is refused before any work.

"""


def render_settings() -> str:
    """Return the page of all settings."""
    text = NOTE + OPENING + _shipped()
    for recipe, title in ((Recipe, "Recommenders"), (TextRecipe, "Text retrievers")):
        text += f"## {title}\n\n"
        for section, field in recipe.model_fields.items():
            for config in groups_of(field.annotation):
                text += _group(section, config)
            if not list(groups_of(field.annotation)):
                text += f"### {section}\n\n" + table(HEADER, [_row(section, field)]) + "\n"
    return text


HEADER = ("setting", "type", "default", "allowed", "meaning")


def groups_of(annotation: object) -> Iterator[type[Config]]:
    """Yield the groups of settings in the type of a section: one, or one for each kind."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for each in typing.get_args(annotation):
        yield from groups_of(each)


def _shipped() -> str:
    rows = [(f"`{each.name}`", each.about) for each in shipped_recipes()]
    return "## Recipes that come with railsearch\n\n" + table(["name", "model and data"], rows) + "\n"


def _group(section: str, config: type[Config]) -> str:
    kind = config.model_fields.get("kind")
    name = f"### {section}" + (f', kind = "{kind.default}"' if kind and isinstance(kind.default, str) else "")
    lead = (config.__doc__ or "").partition("\n\n")[0].strip()
    text = f"{name}\n\n{lead} Class: `{config.__name__}`.\n\n"
    text += table(HEADER, [_row(name, field) for name, field in config.model_fields.items()]) + "\n"
    for inner, field in config.model_fields.items():
        for each in groups_of(field.annotation):
            text += _group(f"{section}.{inner}", each)
    return text


def _row(name: str, field: FieldInfo) -> tuple[str, str, str, str, str]:
    if field.is_required():
        default = "required"
    else:
        value = field.get_default(call_default_factory=True)  # type: ignore[call-overload]
        default = "its defaults" if isinstance(value, Config) else f"`{json.dumps(value)}`" if value is not None else ""
    bounds = [
        f"{sign} {getattr(each, word):,}" for each in field.metadata for word, sign in SIGNS if hasattr(each, word)
    ]
    return f"`{name}`", f"`{type_name(field.annotation)}`", default, ", ".join(bounds), field.description or ""


SIGNS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"), ("min_length", "at least"), ("max_length", "at most"))


def type_name(annotation: object) -> str:
    """Return the type of a setting as people write it.

    >>> type_name(int | None), type_name(typing.Literal["a", "b"])
    ('int or none', '"a" or "b"')
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(f'"{each}"' for each in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if each is types.NoneType else type_name(each) for each in inner)
    if origin is typing.Annotated:
        return type_name(inner[0])
    if origin is not None:
        return f"{origin.__name__} of {', '.join(type_name(each) for each in inner if each is not ...)}"
    members = getattr(annotation, "__members__", None)
    if members:
        return " or ".join(f'"{each.value}"' for each in members.values())
    return getattr(annotation, "__name__", str(annotation))
