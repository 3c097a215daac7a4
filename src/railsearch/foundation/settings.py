"""Settings that are checked when they are created: unknown names are refused, and errors list what is allowed."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from railsearch.foundation.errors import InvalidInputError

LARGEST_FILE = 2**20
"""Bytes of a recipe."""
SHOWN_CHARACTERS = 80
LARGEST_SIZE = 2**20
"""No embedding, layer or history is wider or longer."""
LARGEST_DEPTH = 1000
"""No encoder has more blocks."""


class Config(BaseModel):
    """A group of settings: keyword-only, checked, never changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, /, **values: Any) -> None:
        for name, value in values.items():
            field = type(self).model_fields.get(name)
            if isinstance(value, bool) and field is not None and "bool" not in str(field.annotation):
                raise InvalidInputError(f"{name} is {value}, which would count as {int(value)}; give the value itself.")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidInputError(_explained(type(self), error)) from None

    @classmethod
    def read(cls, file: str | Path, changes: Iterable[str] = ()) -> Self:
        """Read settings from a TOML file.

        Args:
            file: a file with one section for each group of settings; unknown settings are refused.
            changes: single settings that replace those of the file, such as "training.epochs=5"; without a value,
                such as "training.patience=", the setting is omitted.
        """
        content = read_settings(file, changes, sections=cls.model_fields)
        try:
            return cls(**content)
        except InvalidInputError as error:
            raise InvalidInputError(f"{file}: {error}") from None

    def with_changes(self, changes: Iterable[str]) -> Self:
        """Return these settings with single ones replaced, as in `read`."""
        content = self.model_dump()
        for change in changes:
            _apply(content, change, type(self).model_fields)
        return type(self)(**content)


def read_settings(file: str | Path, changes: Iterable[str] = (), *, sections: Iterable[str] = ()) -> dict[str, Any]:
    """Return the content of a TOML file with single settings changed; nothing is checked."""
    path = Path(file)
    try:
        if path.is_file() and path.stat().st_size > LARGEST_FILE:
            raise InvalidInputError(f"{path} has {path.stat().st_size} bytes; give a recipe of at most {LARGEST_FILE}.")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"{path} does not exist; give a recipe, which is a TOML file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read as TOML ({error}); repair it.") from error
    except RecursionError:
        raise InvalidInputError(f"{path} cannot be read as TOML (it is nested too deeply); repair it.") from None
    for change in changes:
        _apply(content, change, sections)
    return content


def _apply(content: dict[str, object], change: str, sections: Iterable[str]) -> None:
    """Put one "section.setting=value" into a recipe's content; the value is read as TOML, or else as text.

    Without a value the setting is removed from the recipe, because TOML has no null value.
    """
    name, has_value, text = change.partition("=")
    section, has_section, setting = name.strip().partition(".")
    if not (has_value and has_section):
        raise InvalidInputError(f"{change!r} is not a change of a setting; write section.setting=value.")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except RecursionError:
        raise InvalidInputError(f"the value of {name.strip()} is nested too deeply; give a plain value.") from None
    settings = content.setdefault(section, {})
    if not isinstance(settings, dict):
        raise InvalidInputError(f"{section} is not a section of the recipe; choose from: {', '.join(sections)}.")
    if text.strip():
        settings[setting] = value
    elif settings.pop(setting, None) is None:
        raise InvalidInputError(f"{change!r} would omit a setting that the recipe does not have.")


def _explained(config: type[Config], error: ValidationError) -> str:
    """Return every problem in one line: where it is, what was given, what is allowed."""
    problems = []
    for found in error.errors():
        place = ".".join(str(part) for part in found["loc"]) or config.__name__
        context = found.get("ctx", {})
        if found["type"] == "extra_forbidden":
            problems.append(f"{place} is not a setting; choose from: {', '.join(sorted(config.model_fields))}")
        elif found["type"] == "missing":
            problems.append(f"{place} is missing")
        elif found["type"] == "union_tag_not_found":
            problems.append(f"{place}.kind is missing{_kinds(config, place)}")
        elif found["type"] == "union_tag_invalid":
            problems.append(f"{place}.kind is {context['tag']!r}; choose from: {context['expected_tags']}")
        elif isinstance(nested := context.get("error"), InvalidInputError):  # of a group within this one
            problems.append((f"{place}: " if found["loc"] else "") + str(nested).removesuffix("."))
        else:
            problems.append(f"{place} is {_shortened(found['input'])}: {found['msg'][0].lower()}{found['msg'][1:]}")
    return "; ".join(problems) + "."


def _kinds(config: type[Config], place: str) -> str:
    """Return the advice to choose a kind of a section, with the kinds that the package itself has."""
    field = config.model_fields.get(place)
    kinds = []
    for option in () if field is None else get_args(field.annotation):
        section = get_args(option)[0] if get_args(option) else option  # Annotated with its tag
        kind = section.model_fields["kind"].default
        kinds += [kind] if isinstance(kind, str) else []
    return f"; name one, such as {', '.join(map(repr, kinds))}" if kinds else ""


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
