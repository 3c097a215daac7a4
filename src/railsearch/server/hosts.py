"""The check of Host: a page of a foreign name that was pointed at this machine must not read from it."""

import ipaddress
import re
from collections.abc import Iterable

from railsearch.foundation.errors import InvalidInputError

LOCAL = "localhost"
HOST_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
PORT = re.compile(r":\d{1,5}")
ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:]+\])(:\d{1,5})?")


class Hosts:
    """The names that this server answers to: localhost, every IP address, and names that were given."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {LOCAL}
        for name in names:
            if not HOST_NAME.fullmatch(name.lower()):
                raise InvalidInputError(
                    f"{name!r:.80} is not a host name; give a name without port, such as a.example."
                )
            self._names.add(name.lower())

    def knows(self, header: str) -> bool:
        """Return whether a Host header names this server.

        >>> hosts = Hosts(["search.example"])
        >>> hosts.knows("search.example:8080"), hosts.knows("10.0.0.7"), hosts.knows("[::1]:80"), hosts.knows("evil")
        (True, True, True, False)
        """
        name, port = header.strip().lower(), ""
        if name.startswith("["):
            name, bracket, port = name[1:].partition("]")
            if not bracket:
                return False
        elif name.count(":") == 1:
            name, colon, port = name.partition(":")
            port = colon + port
        if port and not PORT.fullmatch(port):
            return False
        return name.removesuffix(".") in self._names or is_address(name)


def check_origin(origin: str) -> str:
    """Return an origin, as browsers send it; raises InvalidInputError for others, which no request would have.

    >>> check_origin("https://shop.example")
    'https://shop.example'
    """
    if not ORIGIN.fullmatch(origin):
        raise InvalidInputError(
            f"{origin!r:.80} is not an origin; give scheme and host in lower case, such as https://shop.example."
        )
    return origin


def is_address(host: str) -> bool:
    """Return whether a host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return host == LOCAL or (is_address(host) and ipaddress.ip_address(host).is_loopback)
