"""Settings that are checked when they are made: unknown names are errors, and every error says what is allowed."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from railsearch.errors import InvalidInputError


class Config(BaseModel):
    """A group of settings: keyword-only, checked, never changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidInputError(_explained(type(self), error)) from None


def _explained(config: type[Config], error: ValidationError) -> str:
    """Every problem in one line: where it is, what was given, what is allowed."""
    problems = []
    for found in error.errors():
        place = ".".join(str(part) for part in found["loc"]) or config.__name__
        if found["type"] == "extra_forbidden":
            problems.append(f"{place} is not a setting; known are: {', '.join(_known(config, found['loc']))}")
        elif found["type"] == "missing":
            problems.append(f"{place} is missing")
        elif isinstance(nested := found.get("ctx", {}).get("error"), InvalidInputError):
            problems.append(f"{place}: {str(nested).removesuffix('.')}")
        else:
            problems.append(f"{place} is {found['input']!r}: {found['msg'][0].lower()}{found['msg'][1:]}")
    return "; ".join(problems) + "."


def _known(config: type[Config], place: tuple[int | str, ...]) -> list[str]:
    """The settings that there are where an unknown one was found."""
    fields = config.model_fields
    for part in place[:-1]:
        annotation = fields[part].annotation if part in fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        fields = annotation.model_fields
    return sorted(fields)
