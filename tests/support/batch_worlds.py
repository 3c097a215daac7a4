"""Small inputs for batch jobs, and runners that stop in the middle."""

import os
import signal
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

from railsearch import Index, MixtureOfLogits
from railsearch.distributed.batch import LocalRunner
from railsearch.distributed.batch.job import PartTask
from railsearch.errors import InvalidInputError

DIM = 8
NUM_ITEMS = 60
NUM_QUERIES = 70


class InterruptedJobError(Exception):
    """The end of a process between two parts."""


@dataclass(frozen=True)
class StoppingRunner:
    """Computes some parts, and stops before the next."""

    num_parts: int
    is_killed: bool = False
    """End the process at once, as a kill does."""

    def run(self, task: PartTask, parts: Sequence[int], on_part: Callable[[int], None]) -> None:
        LocalRunner().run(task, parts[: self.num_parts], on_part)
        if self.is_killed:
            os._exit(9)
        raise InterruptedJobError


def make_items() -> np.ndarray:
    """Return the embeddings of random items."""
    return np.random.default_rng(0).normal(size=(NUM_ITEMS, DIM)).astype(np.float32)


def make_index(folder: Path, *, has_keys: bool = False) -> Path:
    """Build an index of random items with the column year."""
    Index.build(
        MixtureOfLogits(query_dim=DIM, item_dim=DIM, num_query_components=2, seed=0),
        make_items(),
        [f"item-{row}" for row in range(NUM_ITEMS)] if has_keys else None,
        path=folder / "index",
        metadata=pl.DataFrame({"year": 1980 + np.arange(NUM_ITEMS) % 40}),
    )
    return folder / "index"


def make_queries(folder: Path, *, seed: int = 1) -> Path:
    """Write queries as a Parquet file of several row groups, with string ids."""
    embeddings = np.random.default_rng(seed).normal(size=(NUM_QUERIES, DIM)).astype(np.float32)
    frame = pl.DataFrame({"id": [f"q{row}" for row in range(NUM_QUERIES)], "embedding": embeddings, "other": "x"})
    frame.write_parquet(folder / "queries.parquet", row_group_size=16)
    return folder / "queries.parquet"


def read_parts(folder: Path) -> pl.DataFrame:
    """Return the rows of all parts, in the order of their numbers."""
    return pl.concat([pl.read_parquet(file) for file in sorted(folder.glob("part-*.parquet"))])


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all parts, by name."""
    return {file.name: file.read_bytes() for file in folder.glob("part-*.parquet")}


@dataclass(frozen=True)
class FragileJob:
    """A job whose part 1 goes wrong: its worker is killed, or it refuses its input, as often as it is told."""

    kind: ClassVar[str] = "fragile"
    notes: Path
    num_failures: int
    is_killed: bool = True
    num_parts: int = 6

    def stated(self) -> dict[str, str | int | bool | None]:
        return {"num_parts": self.num_parts}

    def places(self) -> dict[str, str]:
        return {"notes": str(self.notes)}

    def open(self) -> Callable[[int], pl.DataFrame]:
        (self.notes / f"opened-{os.getpid()}-{uuid.uuid4().hex}").touch()

        def compute(part: int) -> pl.DataFrame:
            num_before = len(list(self.notes.glob("failed-*")))
            if part == 1 and num_before < self.num_failures:
                (self.notes / f"failed-{num_before}").touch()
                if self.is_killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise InvalidInputError("part 1 has a wrong value; repair it.")
            return pl.DataFrame({"part": [part]})

        return compute
