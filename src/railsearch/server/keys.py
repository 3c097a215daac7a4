"""API keys: who may read and who may write; read from a file or the environment, never from the command line."""

import base64
import binascii
import hmac
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from railsearch.foundation.errors import InvalidInputError

READ_VARIABLE, WRITE_VARIABLE = "RAILSEARCH_READ_KEYS", "RAILSEARCH_WRITE_KEYS"
SHORTEST_KEY, LONGEST_KEY = 16, 512
LARGEST_FILE = 2**20


class Role(IntEnum):
    """The rights of a request; a greater role includes the smaller ones."""

    NONE = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """Keys that may read, and keys that may read and write."""

    read: tuple[bytes, ...] = ()
    write: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"Keys({len(self.read)} to read, {len(self.write)} to write)"

    def __bool__(self) -> bool:
        return bool(self.read or self.write)

    def role_of(self, authorization: bytes | None) -> Role:
        """Return the rights that an Authorization header gives; without any keys, everyone may do everything.

        Keys are compared in constant time, and with all keys: the time of an answer tells nothing about them. Browsers
        add Basic credentials to requests on their own, so these may only read.
        """
        if not self:
            return Role.WRITE
        scheme, _, value = (authorization or b"").strip().partition(b" ")
        token = value.strip()
        is_basic = scheme.lower() == b"basic"
        if is_basic:
            token = _password(token)
        elif scheme.lower() != b"bearer":
            return Role.NONE
        may_write = sum(hmac.compare_digest(token, key) for key in self.write)  # any() would stop at the first
        may_read = sum(hmac.compare_digest(token, key) for key in self.read)
        if may_write:
            return Role.READ if is_basic else Role.WRITE
        return Role.READ if may_read else Role.NONE


def read_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> Keys:
    """Read keys from a TOML file with the lists `read` and `write`, and from the environment, separated by commas.

    A file that other users of the machine can read is refused.
    """
    found: dict[str, list[str]] = {"read": [], "write": []}
    if file is not None:
        for name, keys in _read_file(file).items():
            if name not in found or not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
                raise InvalidInputError(
                    f"{file} has {name!r:.40}, which is not a list of keys; write read = [...] and write = [...]."
                )
            found[name] += keys
    for name, variable in (("read", READ_VARIABLE), ("write", WRITE_VARIABLE)):
        found[name] += [key.strip() for key in environment.get(variable, "").split(",") if key.strip()]
    for key in (key for keys in found.values() for key in keys):
        if not SHORTEST_KEY <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidInputError(
                f"a key has {len(key)} characters; give keys of {SHORTEST_KEY} to {LONGEST_KEY} visible ASCII "
                "characters, such as those that `openssl rand -hex 32` prints."
            )
    if file is not None and not (found["read"] or found["write"]):
        raise InvalidInputError(f"{file} holds no key; write read = [...] and write = [...].")
    return Keys(*(tuple(key.encode() for key in found[name]) for name in ("read", "write")))


def _read_file(file: Path) -> dict[str, object]:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno())
            if not stat.S_ISREG(mode.st_mode) or mode.st_size > LARGEST_FILE:
                raise InvalidInputError(f"{file} is not a file of keys; give a small TOML file.")
            if mode.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidInputError(
                    f"{file} can be read by other users (mode {stat.S_IMODE(mode.st_mode):o}); run chmod 600 on it."
                )
            return tomllib.load(opened)
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read ({error.strerror}); give a file of keys.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{file} is not TOML ({error}); write read = [...] and write = [...].") from None


def _password(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
