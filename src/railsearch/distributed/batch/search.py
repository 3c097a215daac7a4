"""Search for every query of a file, and write the results in parts."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from railsearch.data.items import QueryFile
from railsearch.distributed.batch.index_version import IndexVersion
from railsearch.distributed.batch.job import ROWS_PER_PART, Compute, InputFile, Stated, count_parts
from railsearch.distributed.batch.parts import as_output, check_output
from railsearch.distributed.batch.runners import Runner
from railsearch.distributed.batch.running import JobReport, run_job
from railsearch.distributed.opening import open_index
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.results import SearchResult
from railsearch.index import Engine, Strategy

if TYPE_CHECKING:
    from polars import DataFrame, Series


@dataclass(frozen=True, slots=True)
class SearchJob:
    """A search for every query of a file, in one version of an index."""

    kind: ClassVar[str] = "search"
    queries: QueryFile
    file: InputFile
    index: IndexVersion
    k: int
    strategy: Strategy | None
    allow: str | None
    pad: bool
    rows_per_part: int

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return count_parts(self.queries.num_rows, self.rows_per_part)

    def stated(self) -> Stated:
        """Return everything that determines the output."""
        return {
            **self.file.stated("queries"),
            "embedding_column": self.queries.embedding_column,
            "id_column": self.queries.id_column,
            **self.index.stated(),
            "k": self.k,
            "strategy": None if self.strategy is None else repr(self.strategy),
            "allow": self.allow,
            "pad": self.pad,
            "rows_per_part": self.rows_per_part,
        }

    def places(self) -> dict[str, str]:
        """Return the paths of queries and index."""
        return {"queries": str(self.file.path), "index": str(self.index.path)}

    def open(self) -> Compute:
        """Open the index, and return the function that searches for the queries of a part."""
        index = self.index.open()

        def compute(part: int) -> "DataFrame":
            embeddings, names = self.queries.read(part * self.rows_per_part, self.rows_per_part)
            self.file.check()
            result = index.search(embeddings, self.k, self.strategy, allow=self.allow, pad=self.pad)
            return to_rows(result, names)

        return compute


def search_file(
    index: str | Path,
    queries: str | Path,
    output: str | Path,
    k: int = 10,
    *,
    strategy: Strategy | None = None,
    allow: str | None = None,
    pad: bool = False,
    version: int | None = None,
    engine: Engine | None = None,
    verify: str = "full",
    embedding_column: str = "embedding",
    id_column: str | None = None,
    rows_per_part: int = ROWS_PER_PART,
    runner: Runner | None = None,
    show_progress: bool | None = None,
) -> JobReport:
    """Find the k best items for each query of a file, with certificates, as Parquet files.

    A row is one item for one query: query, rank, id, score, and the certificate of the query: is_exact, gap and
    num_scored. Memory holds one part at a time. A second call continues a job that was interrupted.

    Args:
        index: the index folder, plain or split into shards; a worker opens all shards itself.
        queries: a .npy array (B, D), or a Parquet or Arrow table with a column of embeddings.
        output: a new folder, or one of the same job.
        k: the number of items for each query.
        strategy: as in `Index.search`.
        allow: a condition over the metadata, as in `Index.search`.
        pad: accept fewer than k items if `allow` leaves fewer.
        version: as in `Index.open`; the newest one at the start if omitted.
        engine: as in `Index.open`.
        verify: as in `Index.open`; "lazy" lets every worker start sooner.
        embedding_column: column of the embeddings in a table.
        id_column: column with the ids of the queries in a table; by default `id` if there is one, otherwise queries are
            numbered from 0.
        rows_per_part: queries in each part.
        runner: computes the parts, such as `RayRunner()`; by default this process, one after the other.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    check_output(as_output(output))
    given = QueryFile.open(queries, embedding_column=embedding_column, id_column=id_column)
    if not given.num_rows:
        raise InvalidInputError(f"{given.path} holds no queries; give at least one.")
    opened = open_index(index, version=version, engine=engine, verify=verify)
    opened.search(given.read(0, 1)[0], k, strategy, allow=allow, pad=pad)  # all arguments fit, or this raises
    job = SearchJob(
        queries=dataclasses.replace(given, path=given.path.resolve()),
        file=InputFile.describe(given.path),
        index=IndexVersion.of(opened, engine, verify=verify),
        k=k,
        strategy=strategy,
        allow=allow,
        pad=pad,
        rows_per_part=rows_per_part,
    )
    return run_job(job, output, runner=runner, show_progress=show_progress)


def to_rows(result: SearchResult, names: "Series") -> "DataFrame":
    """Return results as a table with the names of the queries and their certificates.

    Args:
        result: the results of queries.
        names: (B,) the id of each query.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    plain = result if result.has_keys else dataclasses.replace(result, lookup=None)  # metadata are not looked up
    frame = plain.to_frame().select("query", "rank", "id", "score")
    rows = frame["query"]
    certificate = {
        name: pl.Series(values.numpy(force=True)).gather(rows)
        for name, values in (("is_exact", result.is_exact), ("gap", result.gap), ("num_scored", result.num_scored))
    }
    return frame.with_columns(query=names.gather(rows), **certificate)
