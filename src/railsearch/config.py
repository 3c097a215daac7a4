"""Settings that are checked when they are made: unknown names are errors, and every error says what is allowed."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from railsearch.errors import InvalidInputError


class Config(BaseModel):
    """A group of settings: keyword-only, checked, never changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            field = type(self).model_fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise InvalidInputError(f"{name} is {value}, which would pass for {int(value)}; give the value itself.")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidInputError(_explained(type(self), error)) from None


def _explained(config: type[Config], error: ValidationError) -> str:
    """Every problem in one line: where it is, what was given, what is allowed."""
    problems = []
    for found in error.errors():
        place = ".".join(str(part) for part in found["loc"]) or config.__name__
        context = found.get("ctx", {})
        if found["type"] == "extra_forbidden":
            problems.append(f"{place} is not a setting; known are: {', '.join(sorted(config.model_fields))}")
        elif found["type"] == "missing":
            problems.append(f"{place} is missing")
        elif found["type"] == "union_tag_not_found":
            problems.append(f"{place}.kind is missing")
        elif found["type"] == "union_tag_invalid":
            problems.append(f"{place}.kind is {context['tag']!r}; choose from: {context['expected_tags']}")
        elif isinstance(nested := context.get("error"), InvalidInputError):  # of a group within this one
            problems.append(f"{place}: {str(nested).removesuffix('.')}")
        else:
            problems.append(f"{place} is {found['input']!r}: {found['msg'][0].lower()}{found['msg'][1:]}")
    return "; ".join(problems) + "."
