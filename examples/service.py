"""A FastAPI service in front of a railsearch server: your routes, your answers, one client for all requests.

python examples/service.py

`railsearch serve` owns the index, batches searches and takes new versions. Your service asks it through
`railsearch.client`, which needs neither torch nor the index. Here both run on this machine, over an excerpt of MedQuAD.
"""

import gzip
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from railsearch.client import AsyncClient, Client
from railsearch.errors import ServerError

DATA = Path(__file__).parent / "data"
QUESTIONS = np.load(DATA / "medquad-minilm.npz")["questions"].astype("float32")  # (Q, 384)


class Kind(StrEnum):
    """The kinds of questions; whatever else a caller sends is refused, and never gets into a filter."""

    INFORMATION = "information"
    TREATMENT = "treatment"
    OUTLOOK = "outlook"
    RESEARCH = "research"


class Answer(BaseModel):
    """An answer as the callers of this service see it."""

    topic: str
    text: str
    score: float


class Answers(BaseModel):
    """The answers to one question, and whether they are proven to be the best ones."""

    is_exact: bool
    answers: list[Answer]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one client when the service starts, and close it when the service ends."""
    async with AsyncClient(os.environ.get("RAILSEARCH_URL", "http://127.0.0.1:8080"), timeout=10.0) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)  # in production: uvicorn service:app


@app.get("/questions/{row}/answers")
async def answers(row: int, kind: Kind | None = None, k: int = 3) -> Answers:
    """Answer a question that was encoded before; with an encoder, take the text and encode it here."""
    if not 0 <= row < len(QUESTIONS):
        raise HTTPException(404, f"question {row} does not exist; there are {len(QUESTIONS)}")
    try:
        result = await app.state.client.search(
            "answers", QUESTIONS[row : row + 1], k=k, allow=None if kind is None else f"type = '{kind}'",
            fields=["topic", "answer"],
        )  # fmt: skip
    except ServerError as error:  # busy, too slow or away; the client has already retried what can be retried
        raise HTTPException(503, str(error)) from error
    found = [
        Answer(topic=line["topic"], text=line["answer"], score=line["score"])
        for line in result.to_frame().iter_rows(named=True)
    ]
    return Answers(is_exact=bool(result.is_exact.all()), answers=found)


def build_index(path: Path) -> None:
    """Index the answers under the cosine, with their texts; any similarity would do."""
    import polars as pl  # noqa: PLC0415  (the service itself needs neither polars nor torch)

    from railsearch import DotProduct, Index  # noqa: PLC0415

    with gzip.open(DATA / "medquad.jsonl.gz", "rt") as file:
        texts = pl.DataFrame([json.loads(line) for line in file]).select("topic", "type", "answer")
    items = np.load(DATA / "medquad-minilm.npz")["answers"].astype("float32")
    Index.build(DotProduct(dim=items.shape[1], cosine=True), items, path=path, metadata=texts)


def main() -> None:
    """Start a railsearch server, then call the service as its users would."""
    from fastapi.testclient import TestClient  # noqa: PLC0415

    build_index(Path("answers.index"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "railsearch", "serve", "answers.index", "--port", str(port)])  # noqa: S603
    try:
        os.environ["RAILSEARCH_URL"] = f"http://127.0.0.1:{port}"
        wait_for(os.environ["RAILSEARCH_URL"], server)
        with TestClient(app) as browser:
            print(json.dumps(browser.get("/questions/1/answers", params={"kind": "treatment"}).json(), indent=1)[:700])
            print("a question that does not exist:", browser.get("/questions/9999/answers").json())
            server.terminate()
            server.wait()
            print("without the server:", browser.get("/questions/1/answers").status_code)
    finally:
        server.kill()
        server.wait()


def wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    """Wait until a server answers."""
    while server.poll() is None:
        try:
            with Client(url) as client:
                print("served:", [index["name"] for index in client.indexes()])
                return
        except ServerError:  # not there yet, or still opening the index
            time.sleep(0.2)
    raise SystemExit("the server ended")


if __name__ == "__main__":
    main()
