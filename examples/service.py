"""A FastAPI service in front of a railsearch server: your routes, your answers, one client for all requests.

python examples/service.py

`railsearch serve` owns the index, batches searches and follows new versions. Your service asks it through
`railsearch.client`, which needs neither torch nor the index. Here both run on this machine, over an excerpt of MedQuAD.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel

from railsearch.client import AsyncClient
from railsearch.errors import InvalidInputError, ServerError

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
async def answers(row: int, kind: Kind | None = None, k: Annotated[int, Query(ge=1, le=50)] = 3) -> Answers:
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
    except InvalidInputError as error:  # for example fewer answers of this kind than k
        raise HTTPException(422, str(error)) from error
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

    with tempfile.TemporaryDirectory() as folder:
        build_index(Path(folder, "answers.index"))
        command = [sys.executable, "-m", "railsearch", "serve", "answers.index", "--port", "0", "--no-access-log"]
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)  # noqa: S603
        try:
            os.environ["RAILSEARCH_URL"] = address_of(server)
            with TestClient(app) as browser:
                answer = browser.get("/questions/1/answers", params={"kind": "treatment"}).json()
                print(json.dumps(answer, indent=1)[:700])
                print("a question that does not exist:", browser.get("/questions/9999/answers").json())
                print("no answers at all:", browser.get("/questions/1/answers", params={"k": 0}).status_code)
                server.terminate()
                server.wait()
                print("without the server:", browser.get("/questions/1/answers").status_code)
        finally:
            server.kill()
            server.wait()


def address_of(server: "subprocess.Popen[str]") -> str:
    """Wait for the line in which a server names its address."""
    for line in server.stdout or ():
        if found := re.search(r"railsearch serves .* at (http://\S+)/", line):
            return found[1]
    raise SystemExit("the server ended")


if __name__ == "__main__":
    main()
