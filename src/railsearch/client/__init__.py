"""Client of a railsearch server: searches over HTTP, with the same certificates as `Index.search`.

It needs the extra `client` (httpx) and imports no torch. Arrays of any kind are accepted, and answers are numpy arrays:

    with Client("http://127.0.0.1:8080") as client:
        result = client.search("movies", embeddings, k=10, fields=["title"])
        print(result.to_frame(), result.is_exact, result.gap)

`AsyncClient` has the same calls for asyncio.
"""

from railsearch.client.answers import (
    Change,
    Job,
    Refreshed,
    ServedExplanation,
    ServedItem,
    ServedResult,
    ServedSimilar,
)
from railsearch.client.client import AsyncClient, Client
from railsearch.foundation.recall import ExpectedRecall

__all__ = [
    "AsyncClient",
    "Change",
    "Client",
    "ExpectedRecall",
    "Job",
    "Refreshed",
    "ServedExplanation",
    "ServedItem",
    "ServedResult",
    "ServedSimilar",
]
