"""Engines by name: parse text such as Faiss(hnsw, effort=64), and register engines of users."""

import dataclasses
import re
from collections.abc import Hashable, Mapping
from typing import TypeVar

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.engines.collection import as_collection_engine
from railsearch.index.engines.contract import Engine
from railsearch.index.engines.credentials import hide_credentials
from railsearch.index.engines.faiss import Faiss
from railsearch.index.engines.flat import Flat
from railsearch.index.engines.guarded import blaming
from railsearch.index.engines.milvus import Milvus
from railsearch.index.engines.postgres import Postgres

Kind = TypeVar("Kind", bound=type[Engine])

ENGINE = re.compile(r"\s*(?P<name>[A-Za-z]\w{0,63})\s*(?:\((?P<arguments>[^()]{0,1000})\))?\s*")
ARGUMENT = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*=)?\s*(?P<value>'[^',]*'|\"[^\",]*\"|[^'\",=\s]+)\s*")
WHOLE_NUMBER = re.compile(r"[-+]?\d{1,40}")
DECIMAL_NUMBER = re.compile(r"[-+]?\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,3})?")
WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}

_kinds: dict[str, type] = {"Flat": Flat, "Faiss": Faiss, "Milvus": Milvus, "Postgres": Postgres}


def register_engine(kind: Kind) -> Kind:
    """Register an engine class by its name, so that commands accept it; use it as a decorator.

    The class is a frozen dataclass whose settings are text, numbers or booleans. Check it with
    `railsearch.testing.check_engine` first.
    """
    if not hasattr(kind, "__name__") or not hasattr(kind, "__dataclass_fields__") or missing_members(kind):
        raise InvalidInputError(
            f"{kind!r} is not an engine class; give a frozen dataclass that has all members of "
            "railsearch.index.engines.Engine."
        )
    known = next((own for name, own in _kinds.items() if name.lower() == kind.__name__.lower()), None)
    if known is not None and known is not kind:
        raise InvalidInputError(f"the name {kind.__name__} is taken by {known!r}; rename one of the two engines.")
    _kinds[kind.__name__] = kind
    return kind


def parse_engine(text: str, more: Mapping[str, str] | None = None) -> Engine:
    """Read an engine from text: its name, and its settings in parentheses, by position or by name.

    Args:
        text: the engine, such as "Faiss(hnsw, effort=64)".
        more: settings that the text does not hold, by name.

    >>> parse_engine("Faiss(hnsw, effort=64)").key
    "Faiss('hnsw', effort=64, links=32)"
    >>> parse_engine("flat")
    Flat()
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"the engine is {text!r}; give text. {_usage()}")
    shown = hide_credentials(text)
    match = ENGINE.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"the engine is {shown!r}, which cannot be read; {_usage()}")
    kind = next((kind for name, kind in _kinds.items() if name.lower() == match["name"].lower()), None)
    if kind is None:
        raise InvalidInputError(f"there is no engine {match['name']!r}; {_usage()}")
    settings = _settings(kind, match["arguments"] or "", shown)
    names = {field.name for field in dataclasses.fields(kind)}
    for name, value in (more or {}).items():
        if name not in names or name in settings:
            problem = "is given twice" if name in settings else f"is not a setting of {kind.__name__}"
            raise InvalidInputError(f"{name} {problem}; {_usage()}")
        settings[name] = value
    try:
        engine: Engine = kind(**settings)
    except InvalidInputError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the engine is {shown!r}, which has wrong settings ({error}); {_usage()}") from error
    return engine


def check_choice(engine: object) -> Engine:
    """Check that the value can be used as an engine, without calling it."""
    missing = missing_members(engine)
    if isinstance(engine, type) or "build" in missing:
        raise InvalidInputError(f"engine is {engine!r}; give an engine such as Flat() or Faiss('hnsw').")
    if missing or not isinstance(engine, Engine):
        raise InvalidInputError(
            f"engine is {engine!r}, which lacks {', '.join(missing)}; see railsearch.index.engines.Engine."
        )
    if not isinstance(engine, Hashable):
        raise InvalidInputError(f"engine is {engine!r}, which cannot be hashed; make it a frozen dataclass.")
    return engine


def ensure_available(engine: object, dim: int | None = None) -> Engine:
    """Check that the value is an engine and can build tables of vectors of this dimension here; return it."""
    checked = check_choice(engine)
    with blaming(checked, "say whether it is available"):
        checked.check_available(dim)
    return checked


def ensure_builds(engine: object, dim: int | None = None) -> Engine:
    """Check like `ensure_available`, and refuse an engine whose collection is filled from an index folder."""
    checked = check_choice(engine)
    if as_collection_engine(checked) is not None:
        raise InvalidInputError(
            f"engine is {checked.key}, which keeps a collection of an index folder; build the folder without an "
            "engine, bring the collection up to date with sync_engine, then open the folder with the engine."
        )
    return ensure_available(checked, dim)


def missing_members(engine: object) -> list[str]:
    """Return the members of the contract that an engine, or its class, lacks."""
    fields = set(getattr(engine, "__dataclass_fields__", ()))
    members = [name for name in vars(Engine) if not name.startswith("_")]
    methods = {"check_available", "build", "open"}
    return [
        name
        for name in members
        if name not in fields
        and not (callable(getattr(engine, name, None)) if name in methods else hasattr(engine, name))
    ]


def _settings(kind: type, arguments: str, text: str) -> dict[str, str | int | float | bool | None]:
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    settings: dict[str, str | int | float | bool | None] = {}
    has_named = False
    for place, argument in enumerate(arguments.split(",") if arguments.strip() else []):
        match = ARGUMENT.fullmatch(argument)
        if match is None:
            raise InvalidInputError(f"{hide_credentials(argument.strip())!r} in {text!r} is not a setting; {_usage()}")
        has_named = has_named or match["name"] is not None
        if match["name"] is None and (has_named or place >= len(names)):
            problem = "follows a named one and needs a name" if has_named else "is one too many"
            raise InvalidInputError(f"the setting {hide_credentials(match['value'])} in {text!r} {problem}; {_usage()}")
        name = names[place] if match["name"] is None else match["name"]
        if name not in names or name in settings:
            problem = "is given twice" if name in settings else "is not one of its settings"
            raise InvalidInputError(f"{name} in {text!r} {problem}; {_usage()}")
        settings[name] = _value(match["value"])
    return settings


def _value(text: str) -> str | int | float | bool | None:
    if text[0] in "'\"":
        return text[1:-1]
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return float(text) if DECIMAL_NUMBER.fullmatch(text) else text


def _usage() -> str:
    """Return every engine with the names of its settings."""
    usages = (f"{name}({', '.join(field.name for field in dataclasses.fields(kind))})" for name, kind in _kinds.items())
    return f"choose from: {', '.join(usages)}."
