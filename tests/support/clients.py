"""One way to make a call with both clients."""

import asyncio
from collections.abc import Callable

from railsearch.client import AsyncClient, Client

AnyClient = Client | AsyncClient
Kind = type[Client] | type[AsyncClient]
Call = Callable[[AnyClient], object]
KINDS = {"sync": Client, "async": AsyncClient}


def ask(kind: Kind, url: str, call: Call, **options: object) -> object:
    """Make a call with a client of one kind, and close it."""
    if kind is Client:
        with Client(url, **options) as client:  # type: ignore[arg-type]
            return call(client)

    async def run() -> object:
        async with AsyncClient(url, **options) as client:  # type: ignore[arg-type]
            return await call(client)  # type: ignore[misc]

    return asyncio.run(run())
