"""Credentials of servers: only the name of an environment variable is ever stored or shown."""

import contextlib
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from railsearch.foundation.errors import EngineError, InvalidInputError, RailsearchError

VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
LONGEST_URI = 200
IN_URI = re.compile(r"//[^/@\s'\",]*@")
IN_SETTING = re.compile(r"(?i)\b(?P<name>token|password|passwd|secret|api_?key|url|dsn|conninfo)\s*=\s*[^,)]*")


def check_variable(name: object, *, setting: str) -> str:
    """Check the name of an environment variable.

    A value that is not such a name may be the credential itself, so it is not repeated.
    """
    if not isinstance(name, str) or not VARIABLE.fullmatch(name):
        raise InvalidInputError(
            f"{setting} is not the name of an environment variable; give a name of at most 64 capital letters, digits "
            "and underscores, such as MILVUS_TOKEN, and the credential as its value."
        )
    return name


def check_name(name: object, *, setting: str) -> str:
    """Check the name of a collection: letters, digits and underscores."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInputError(
            f"{setting} is {name!r:.80}; give at most 60 letters, digits and underscores, the first not a digit."
        )
    return name


def check_uri(uri: object, *, setting: str, schemes: tuple[str, ...]) -> str:
    """Check the address of a server; refuse one that holds a credential, and do not repeat it."""
    advice = f"give an address such as {schemes[0]}://127.0.0.1:19530"
    if not isinstance(uri, str) or not uri.isprintable() or len(uri) > LONGEST_URI:
        raise InvalidInputError(f"{setting} is not an address of at most {LONGEST_URI} characters; {advice}.")
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise InvalidInputError(f"{setting} is not an address; {advice}.") from None
    if "@" in uri or parts.query or parts.fragment:
        raise InvalidInputError(
            f"{setting} holds a user name, a password or parameters, which would be shown and stored too; {advice}, "
            "and the credential in an environment variable that you name with token_env."
        )
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        raise InvalidInputError(f"{setting} is {uri!r:.80}, which is not an address; {advice}.")
    return uri


def read_variable(name: str, *, setting: str) -> str:
    """Return the value of an environment variable that holds a credential."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise EngineError(f"{setting} names the environment variable {name}, which is not set; export it first.")
    return value


def hide_credentials(text: str) -> str:
    """Return the text of an engine without what may be a credential.

    >>> hide_credentials("Milvus(http://root:secret@host:19530, movies, token=abc)")
    'Milvus(http://***@host:19530, movies, token=***)'
    """
    return IN_SETTING.sub(lambda found: f"{found['name']}=***", IN_URI.sub("//***@", text))


@contextlib.contextmanager
def speaking_to(place: str, action: str, *secrets: str) -> Iterator[None]:
    """Turn a failure of a server into an EngineError that names the place and the cause, and no secret.

    The original exception is not chained, because its text may hold a credential.
    """
    try:
        yield
    except (RailsearchError, MemoryError):
        raise
    except Exception as error:
        cause = " ".join(f"{type(error).__name__}: {getattr(error, 'message', None) or error}".split())
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            cause = cause.replace(secret, "***")
        raise EngineError(
            f"{place} failed to {action} ({hide_credentials(cause):.400}); check that the server runs, can be reached "
            "from here and accepts the credentials."
        ) from None
