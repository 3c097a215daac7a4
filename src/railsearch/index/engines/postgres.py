"""PostgreSQL with pgvector as a first-stage engine: one table with one approximate index answers every first stage."""

import contextlib
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.foundation.extras import missing_extra
from railsearch.foundation.inputs import as_choice, check_count, check_positive
from railsearch.index.engines.collection import Behind, CollectionState, Floats, Integers, has_no_tables
from railsearch.index.engines.contract import Table
from railsearch.index.engines.credentials import check_name, check_variable, read_variable, speaking_to

URL_VARIABLE = "RAILSEARCH_POSTGRES"
OLDEST_PGVECTOR = (0, 8)
"""The first version whose searches go on until they have found enough visible rows."""
MOST_EFFORT = 1000
MOST_LINKS = 100
COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
COPY_TAIL = struct.pack(">h", -1)


class VectorColumn(StrEnum):
    """The types of pgvector: fp32 or fp16 values."""

    VECTOR = "vector"
    HALFVEC = "halfvec"


LARGEST_DIM = {VectorColumn.VECTOR: 2000, VectorColumn.HALFVEC: 4000}
"""The most values for each type that pgvector can index."""
NUMBERS = {VectorColumn.VECTOR: ">f4", VectorColumn.HALFVEC: ">f2"}


@dataclass(frozen=True, slots=True)
class Postgres:
    """Search by PostgreSQL with pgvector >= 0.8; needs the extra `postgres` (`pip install '.[postgres]'`).

    `sync_engine` or `railsearch engine sync` fills the table and brings it up to date. Its answers are never certified.

    Args:
        collection: name of the table; it holds one index.
        url_env: environment variable that holds the connection string, with the password:
            "postgresql://user:password@host/database" or "host=... user=...".
        column: vector (fp32, at most 2,000 values for all components of an item) or halfvec (fp16, at most 4,000). It
            applies when the table is created.
        links: neighbours of an item in the graph (m). It applies when the table is created.
        effort: items that a search considers (ef_search), at most 1,000. A greater effort finds more and takes longer.
        behind: "refuse" to search a table that holds another version of the index, or "allow" it with a warning.
        timeout: seconds that one request may take.
    """

    collection: str
    url_env: str = URL_VARIABLE
    column: VectorColumn | str = VectorColumn.VECTOR
    links: int = 16
    effort: int = 128
    behind: Behind | str = Behind.REFUSE
    timeout: float = 30.0

    is_exact = False
    sees_every_row = False
    supports_threshold = False
    is_persistent = False
    max_n = None
    max_filter_ids = 10_000

    def __post_init__(self) -> None:
        check_name(self.collection, setting="collection")
        check_variable(self.url_env, setting="url_env")
        object.__setattr__(self, "column", as_choice(VectorColumn, self.column, name="column"))
        object.__setattr__(self, "behind", as_choice(Behind, self.behind, name="behind"))
        check_count(self.links, name="links", minimum=2, maximum=MOST_LINKS)
        check_count(self.effort, name="effort", maximum=MOST_EFFORT)
        check_positive(self.timeout, name="timeout")

    @property
    def key(self) -> str:
        """The settings that decide what is found, as a constructor call."""
        settings = f"column={str(self.column)!r}, links={self.links}, effort={self.effort}"
        return f"Postgres({self.collection!r}, {settings})"

    @property
    def table_key(self) -> str:
        """The same as the key: there are no tables of segments."""
        return self.key

    @property
    def place(self) -> str:
        """The server and the table in words."""
        return f"table {self.collection!r} of PostgreSQL at ${self.url_env}"

    def check_available(self, dim: int | None = None) -> None:
        """Check that psycopg is installed, the server answers and has pgvector, and vectors of this dimension fit."""
        kind = VectorColumn(self.column)
        if dim is not None and dim > LARGEST_DIM[kind]:
            other = (
                f"use column='halfvec', up to {LARGEST_DIM[VectorColumn.HALFVEC]:,}"
                if kind is VectorColumn.VECTOR and dim <= LARGEST_DIM[VectorColumn.HALFVEC]
                else "use Milvus(...), Flat() or Faiss(...)"
            )
            raise EngineError(
                f"the components of an item have {dim:,} values but pgvector indexes at most {LARGEST_DIM[kind]:,} of "
                f"type {kind}; {other}."
            )
        self.connect().close()

    def build(self, name: str, vectors: Tensor) -> Table:
        """Raise an error: there are no tables of segments."""
        raise has_no_tables(self)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> Table:
        """Raise an error: there are no tables of segments."""
        raise has_no_tables(self)

    def connect(self) -> "PostgresCollection":
        """Connect to the server, and check the version of pgvector."""
        collection = PostgresCollection(self, _import_psycopg(), read_variable(self.url_env, setting="url_env"))
        try:
            collection.check_version()
        except BaseException:
            collection.close()
            raise
        return collection


class PostgresCollection:
    """Connections to a table of PostgreSQL: as many as threads search at the same time."""

    def __init__(self, engine: Postgres, psycopg: ModuleType, url: str) -> None:
        self._engine = engine
        self._psycopg = psycopg
        self._url = url
        self._secrets = _secrets_of(psycopg, url, engine)
        self._free: list[Any] = []
        self._lock = threading.Lock()

    def check_version(self) -> None:
        """Check that the server has pgvector, and a version that is new enough."""
        with self._speaking("connect") as connection:
            row = connection.execute(
                "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
            ).fetchone()
        found = "" if row is None else str(row[0])
        numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
        if numbers < OLDEST_PGVECTOR:
            state = f"has pgvector {found}" if found else "has no pgvector"
            raise EngineError(f"the server of {self._engine.place} {state}; install pgvector 0.8 or newer there.")

    def describe(self) -> CollectionState | None:
        """Return the stamp, the comment of the table, and the dimension."""
        with self._speaking("describe the table") as connection:
            row = connection.execute(
                "SELECT obj_description(c.oid, 'pg_class'), a.atttypmod FROM pg_class c LEFT JOIN pg_attribute a "
                "ON a.attrelid = c.oid AND a.attname = 'components' WHERE c.oid = to_regclass(%s)",
                (self._quoted.as_string(connection),),
            ).fetchone()
        return None if row is None else CollectionState(row[0] or "", int(row[1] or 0))

    def create(self, dim: int, note: str) -> None:
        """Create the table and its stamp in one transaction."""
        sql = self._psycopg.sql
        kind = sql.SQL(str(self._engine.column))  # one of two words
        with self._speaking("create the table") as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (id bigint PRIMARY KEY, checksum bigint NOT NULL, components {}({}) NOT NULL)"
                ).format(self._quoted, kind, sql.Literal(dim))
            )
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(self._quoted, sql.Literal(note)))

    def mark(self, note: str) -> None:
        """Replace the stamp."""
        sql = self._psycopg.sql
        with self._speaking("change the stamp of the table") as connection:
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(self._quoted, sql.Literal(note)))

    def load(self) -> None:
        """Do nothing: a table is always ready."""

    def stored(self, first: int, last: int) -> tuple[Integers, Integers]:
        """Read ids and checksums."""
        query = self._psycopg.sql.SQL("SELECT id, checksum FROM {} WHERE id BETWEEN %s AND %s ORDER BY id")
        with self._speaking("read the table") as connection:
            rows = connection.execute(query.format(self._quoted), (first, last)).fetchall()
        both = np.array(rows, dtype=np.int64).reshape(-1, 2)  # (n, 2)
        return both[:, 0], both[:, 1]

    def put(self, ids: Integers, checksums: Integers, vectors: Floats) -> None:
        """Copy items to a temporary table, then add or replace them in one transaction."""
        sql = self._psycopg.sql
        with self._speaking("write items") as connection:
            connection.execute(sql.SQL("CREATE TEMPORARY TABLE incoming (LIKE {}) ON COMMIT DROP").format(self._quoted))
            with connection.cursor().copy("COPY incoming FROM STDIN WITH (FORMAT BINARY)") as copy:
                copy.write(_as_copy(ids, checksums, vectors, NUMBERS[VectorColumn(self._engine.column)]))
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} SELECT * FROM incoming ON CONFLICT (id) DO UPDATE SET "
                    "checksum = excluded.checksum, components = excluded.components"
                ).format(self._quoted)
            )

    def remove(self, ids: Integers) -> None:
        """Remove items."""
        query = self._psycopg.sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(self._quoted)
        with self._speaking("remove items") as connection:
            connection.execute(query, (ids.tolist(),))

    def finish(self) -> None:
        """Build the graph, unless it is there: then PostgreSQL has kept it up to date."""
        sql = self._psycopg.sql
        operators = sql.SQL(f"{self._engine.column}_ip_ops")  # one of two words
        with self._speaking("build the index", seconds=0) as connection:
            connection.execute(
                sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (components {}) WITH (m = {})").format(
                    sql.Identifier(f"{self._engine.collection}_hnsw"), self._quoted, operators,
                    sql.Literal(self._engine.links),
                )
            )  # fmt: skip
            connection.execute(sql.SQL("ANALYZE {}").format(self._quoted))

    def nearest(
        self, vectors: Floats, n: int, *, only: Integers | None, without: Integers | None
    ) -> tuple[Integers, Floats]:
        """Search the graph for every vector, in one statement."""
        sql = self._psycopg.sql
        ids = without if only is None else only
        condition = "WHERE id <> ALL(%(ids)s)" if only is None else "WHERE id = ANY(%(ids)s)"
        query = sql.SQL(
            "SELECT q.place, r.id, r.score FROM unnest(%(vectors)s::{kind}[]) WITH ORDINALITY AS q(vector, place) "
            "CROSS JOIN LATERAL (SELECT id, -(components <#> q.vector) AS score FROM {table} {condition} "
            "ORDER BY components <#> q.vector LIMIT %(n)s) r"
        ).format(
            kind=sql.SQL(str(self._engine.column)), table=self._quoted,
            condition=sql.SQL("" if ids is None else condition),
        )  # fmt: skip
        values = {
            "vectors": [f"[{','.join(map(repr, vector))}]" for vector in vectors.tolist()],
            "n": n,
            "ids": None if ids is None else ids.tolist(),
        }
        found = np.full((len(vectors), n), -1, dtype=np.int64)
        scores = np.full((len(vectors), n), -np.inf, dtype=np.float32)
        with self._speaking("search") as connection:
            for name, value in (
                ("hnsw.ef_search", min(max(self._engine.effort, n), MOST_EFFORT)),
                ("hnsw.iterative_scan", "relaxed_order"),
                ("hnsw.max_scan_tuples", max(20_000, 8 * n)),
            ):
                connection.execute("SELECT set_config(%s, %s, true)", (name, str(value)))
            rows = connection.execute(query, values).fetchall()
        counts = [0] * len(vectors)
        for place, own, score in rows:
            column = counts[place - 1]
            found[place - 1, column], scores[place - 1, column] = own, score
            counts[place - 1] = column + 1
        return found, scores

    def drop(self) -> None:
        """Remove the table."""
        with self._speaking("drop the table") as connection:
            connection.execute(self._psycopg.sql.SQL("DROP TABLE IF EXISTS {}").format(self._quoted))

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    @property
    def _quoted(self) -> Any:
        return self._psycopg.sql.Identifier(self._engine.collection)

    @contextlib.contextmanager
    def _speaking(self, action: str, *, seconds: float | None = None) -> Iterator[Any]:
        """Yield a connection in a transaction of its own; a connection that failed is not used again."""
        limit = self._engine.timeout if seconds is None else seconds
        with speaking_to(self._engine.place, action, *self._secrets):
            with self._lock:
                connection = self._free.pop() if self._free else None
            if connection is None:
                connection = self._psycopg.connect(self._url, connect_timeout=max(1, int(self._engine.timeout)))
            try:
                with connection.transaction():
                    timeout = str(int(limit * 1000))
                    connection.execute("SELECT set_config('statement_timeout', %s, true)", (timeout,))
                    yield connection
            except BaseException:
                connection.close()
                raise
            with self._lock:
                self._free.append(connection)


def _as_copy(ids: Integers, checksums: Integers, vectors: Floats, numbers: str) -> bytes:
    """Return rows in the binary format of COPY: each value after its length."""
    dim, width = vectors.shape[1], np.dtype(numbers).itemsize
    row = np.dtype([
        ("num_fields", ">i2"), ("id_size", ">i4"), ("id", ">i8"), ("checksum_size", ">i4"), ("checksum", ">i8"),
        ("components_size", ">i4"), ("dim", ">i2"), ("unused", ">i2"), ("components", numbers, (dim,)),
    ])  # fmt: skip
    rows = np.zeros(len(ids), dtype=row)
    rows["num_fields"], rows["id_size"], rows["checksum_size"] = 3, 8, 8
    rows["components_size"], rows["dim"] = 4 + width * dim, dim
    rows["id"], rows["checksum"], rows["components"] = ids, checksums, vectors
    return COPY_HEAD + rows.tobytes() + COPY_TAIL


def _secrets_of(psycopg: ModuleType, url: str, engine: Postgres) -> tuple[str, ...]:
    """Return what must not be shown: the connection string and the password in it."""
    try:
        password = psycopg.conninfo.conninfo_to_dict(url).get("password")
    except psycopg.Error:
        # Its message repeats a part of the string.
        raise EngineError(
            f"the connection string in {engine.url_env} cannot be read; give one such as "
            "postgresql://user:password@host/database."
        ) from None
    return (url, str(password)) if password and len(str(password)) >= 4 else (url,)


def _import_psycopg() -> ModuleType:
    try:
        import psycopg  # noqa: PLC0415  (an extra, imported only if it is used)
        import psycopg.sql  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("psycopg", "postgres") from error
    module: ModuleType = psycopg
    return module
