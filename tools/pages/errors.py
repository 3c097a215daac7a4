"""The reference of errors: every class of `railsearch.errors`, and every problem of the server."""

import inspect

from tools.pages.markdown import NOTE, table

from railsearch import errors
from railsearch.foundation import errors as tree
from railsearch.server.problems import PREFIX, TITLES

OPENING = """# Errors

Every error that railsearch raises on purpose is a `RailsearchError`, and also the built-in error that fits, so
`except ValueError` works too. A message says what is wrong, both values, and what to do: "k is 50 but the index holds
20 items; ask for k <= 20." Wrong input is refused before any work. Any other exception is a bug: please report it.

"""


def render_errors() -> str:
    """Return the page of all errors."""
    drawing = (tree.__doc__ or "").partition("\n\n")[2].strip()
    rows = []
    for name in errors.__all__:
        error = getattr(errors, name)
        also = ", ".join(f"`{each.__name__}`" for each in _built_in(error))
        rows.append((f"`{name}`", also, _first_paragraph(error)))
    problems = [(f"`{name}`", str(status), title) for name, (status, title) in TITLES.items()]
    return (
        f"{NOTE}{OPENING}```text\n{drawing}\n```\n\n## In Python\n\n"
        + table(["error", "also a", "meaning"], rows)
        + f"\n## Over HTTP\n\nThe server answers errors as problem details (RFC 9457); the `type` is `{PREFIX}` and "
        "the name. The client of `railsearch.client` turns them into the errors above.\n\n"
        + table(["name", "status", "title"], problems)
    )


def _built_in(error: type) -> list[type]:
    """Return the built-in errors that an error also is, without those that another of them is.

    >>> _built_in(errors.ServerTimeoutError), _built_in(errors.RailsearchError)
    ([<class 'RuntimeError'>, <class 'TimeoutError'>], [])
    """
    found = [base for base in error.__mro__ if base.__module__ == "builtins" and base is not Exception]
    found = [base for base in found if issubclass(base, Exception)]
    return [base for base in found if not any(other is not base and issubclass(other, base) for other in found)]


def _first_paragraph(error: type) -> str:
    text = inspect.getdoc(error)
    if not text:
        raise ValueError(f"{error.__name__} has no docstring.")
    return text.partition("\n\n")[0]
