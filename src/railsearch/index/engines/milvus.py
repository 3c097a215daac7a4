"""Milvus as a first-stage engine: one collection with one approximate index answers every first stage."""

import json
import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from railsearch.foundation.errors import EngineError
from railsearch.foundation.extras import missing_extra
from railsearch.foundation.inputs import as_choice, check_count, check_positive
from railsearch.index.engines.collection import (
    LARGEST_ID,
    Behind,
    CollectionState,
    Floats,
    Integers,
    has_no_tables,
)
from railsearch.index.engines.contract import Table
from railsearch.index.engines.credentials import check_name, check_uri, check_variable, read_variable, speaking_to

NOTE = "railsearch"
"""The property of a collection that holds its stamp."""
LARGEST_DIM = 32_768
MOST_RESULTS = 16_384
"""The most rows that Milvus returns for one vector."""
MOST_EFFORT = 32_768
MOST_LINKS = 2048
ROWS_PER_READ = 100_000
INDEX_SECONDS = 3600.0


class MilvusKind(StrEnum):
    """The kinds of index that Milvus builds."""

    HNSW = "hnsw"
    IVF = "ivf"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Milvus:
    """Search by a Milvus server; needs the extra `milvus` (from a checkout: `pip install '.[milvus]'`).

    `sync_engine` or `railsearch engine sync` fills the collection and brings it up to date. Its answers are never
    certified, not even those of a flat index: the server decides which changes a search sees.

    Args:
        uri: address of the server, without credentials, such as http://127.0.0.1:19530.
        collection: name of the collection; it holds one index.
        token_env: environment variable that holds the token, "user:password" or an API key; None for a server
            without access control.
        kind: hnsw (a graph), ivf (inverted lists) or flat (a scan). It applies when the collection is created.
        links: neighbours of an item in the graph of hnsw (M). It applies when the collection is created.
        effort: items that hnsw considers (ef), or lists of 128 that ivf searches (nprobe). A greater effort finds more
            and takes longer. By default 128 items, and 32 lists.
        behind: "refuse" to search a collection that holds another version of the index, or "allow" it with a warning.
        timeout: seconds that one request may take.
    """

    uri: str
    collection: str
    token_env: str | None = None
    kind: MilvusKind | str = MilvusKind.HNSW
    links: int = 16
    effort: int | None = None
    behind: Behind | str = Behind.REFUSE
    timeout: float = 30.0

    is_exact = False
    sees_every_row = False
    supports_threshold = False
    is_persistent = False
    max_n = MOST_RESULTS
    max_filter_ids = 10_000

    def __post_init__(self) -> None:
        check_uri(self.uri, setting="uri", schemes=("http", "https", "tcp"))
        check_name(self.collection, setting="collection")
        if self.token_env is not None:
            check_variable(self.token_env, setting="token_env")
        object.__setattr__(self, "kind", as_choice(MilvusKind, self.kind, name="kind"))
        object.__setattr__(self, "behind", as_choice(Behind, self.behind, name="behind"))
        check_count(self.links, name="links", minimum=4, maximum=MOST_LINKS)
        check_positive(self.timeout, name="timeout")
        if self.effort is not None:
            check_count(self.effort, name="effort", maximum=MOST_EFFORT)

    @property
    def key(self) -> str:
        """The settings that decide what is found, as a constructor call."""
        effort = "" if self.effort is None or self.kind == MilvusKind.FLAT else f", effort={self.effort}"
        links = f", links={self.links}" if self.kind == MilvusKind.HNSW else ""
        return f"Milvus({self.uri!r}, {self.collection!r}, kind={str(self.kind)!r}{links}{effort})"

    @property
    def table_key(self) -> str:
        """The same as the key: there are no tables."""
        return self.key

    @property
    def place(self) -> str:
        """The server and the collection in words."""
        return f"collection {self.collection!r} of Milvus at {self.uri}"

    def check_available(self, dim: int | None = None) -> None:
        """Check that the client is installed, the server answers, and vectors of this dimension fit."""
        if dim is not None and dim > LARGEST_DIM:
            raise EngineError(
                f"the components of an item have {dim:,} values but Milvus holds at most {LARGEST_DIM:,}; "
                "use Flat() or Faiss(...)."
            )
        self.connect().close()

    def build(self, name: str, vectors: Tensor) -> Table:
        """Raise an error: there are no tables."""
        raise has_no_tables(self)

    def open(self, name: str, vectors: Tensor, stored: bytes) -> Table:
        """Raise an error: there are no tables."""
        raise has_no_tables(self)

    def connect(self) -> "MilvusCollection":
        """Connect to the server."""
        pymilvus = _import_pymilvus()
        token = "" if self.token_env is None else read_variable(self.token_env, setting="token_env")
        secrets = (token, *(part for part in token.split(":", 1) if len(part) >= 4))
        with speaking_to(self.place, "connect", *secrets):
            client = pymilvus.MilvusClient(uri=self.uri, token=token, timeout=self.timeout)
        return MilvusCollection(self, client, secrets)

    @property
    def index_settings(self) -> dict[str, Any]:
        """The arguments of Milvus for the index of this kind."""
        settings: dict[MilvusKind | str, dict[str, Any]] = {
            MilvusKind.HNSW: {"index_type": "HNSW", "params": {"M": self.links, "efConstruction": 8 * self.links}},
            MilvusKind.IVF: {"index_type": "IVF_FLAT", "params": {"nlist": 128}},
            MilvusKind.FLAT: {"index_type": "FLAT", "params": {}},
        }
        return settings[self.kind]

    def search_settings(self, num_asked: int) -> dict[str, Any]:
        """Return the arguments of Milvus for a search that asks for `num_asked` items."""
        settings: dict[MilvusKind | str, dict[str, Any]] = {
            MilvusKind.HNSW: {"ef": min(max(self.effort or 128, num_asked), MOST_EFFORT)},
            MilvusKind.IVF: {"nprobe": min(self.effort or 32, 128)},
            MilvusKind.FLAT: {},
        }
        return {"metric_type": "IP", "params": settings[self.kind]}


class MilvusCollection:
    """A connection to a collection of Milvus."""

    def __init__(self, engine: Milvus, client: Any, secrets: tuple[str, ...]) -> None:
        self._name = engine.collection
        self._engine = engine
        self._client = client
        self._secrets = secrets
        self._is_new = False

    def describe(self) -> CollectionState | None:
        """Return the stamp and the dimension."""
        with self._speaking("describe the collection"):
            if not self._client.has_collection(self._name, timeout=self._engine.timeout):
                return None
            found = self._client.describe_collection(self._name, timeout=self._engine.timeout)
        dims = [field.get("params", {}).get("dim") for field in found["fields"] if field["name"] == "components"]
        return CollectionState(found.get("properties", {}).get(NOTE, ""), int(dims[0]) if dims and dims[0] else 0)

    def create(self, dim: int, note: str) -> None:
        """Create the collection: an id, a checksum, and all components as one vector."""
        kinds = _import_pymilvus().DataType
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", kinds.INT64, is_primary=True)
        schema.add_field("checksum", kinds.INT64)
        schema.add_field("components", kinds.FLOAT_VECTOR, dim=dim)
        with self._speaking("create the collection"):
            self._client.create_collection(
                self._name, schema=schema, properties={NOTE: note}, timeout=self._engine.timeout
            )
        self._is_new = True

    def mark(self, note: str) -> None:
        """Replace the stamp, a property of the collection."""
        with self._speaking("change the stamp of the collection"):
            self._client.alter_collection_properties(self._name, properties={NOTE: note}, timeout=self._engine.timeout)

    def load(self) -> None:
        """Load the collection into the memory of the server."""
        with self._speaking("load the collection"):
            if not self._client.list_indexes(self._name, field_name="components"):  # a sync was killed early
                settings = self._client.prepare_index_params()
                settings.add_index("components", metric_type="IP", **self._engine.index_settings)
                self._client.create_index(self._name, settings, timeout=INDEX_SECONDS)
            self._client.load_collection(self._name, timeout=INDEX_SECONDS)

    def stored(self, first: int, last: int) -> tuple[Integers, Integers]:
        """Read ids and checksums, in pieces that fit into an answer."""
        ranges, found = [(first, last)], []
        with self._speaking("read the collection"):
            while ranges:
                low, high = ranges.pop()
                if self._count(low, high) > ROWS_PER_READ:
                    middle = low + (high - low) // 2
                    ranges += [(middle + 1, high), (low, middle)]
                    continue
                rows = self._client.query(
                    self._name, filter=f"{low} <= id <= {high}", output_fields=["id", "checksum"],
                    consistency_level="Strong", timeout=self._engine.timeout,
                )  # fmt: skip
                found += [(int(row["id"]), int(row["checksum"])) for row in rows]
        both = np.array(sorted(found), dtype=np.int64).reshape(-1, 2)  # (n, 2)
        return both[:, 0], both[:, 1]

    def put(self, ids: Integers, checksums: Integers, vectors: Floats) -> None:
        """Add or replace items."""
        rows = [
            {"id": own, "checksum": checksum, "components": vector}
            for own, checksum, vector in zip(ids.tolist(), checksums.tolist(), vectors, strict=True)
        ]
        with self._speaking("write items"):
            self._client.upsert(self._name, rows, timeout=self._engine.timeout)

    def remove(self, ids: Integers) -> None:
        """Remove items."""
        with self._speaking("remove items"):
            self._client.delete(self._name, ids=ids.tolist(), timeout=self._engine.timeout)

    def finish(self) -> None:
        """Flush, wait for the index, and let the server catch up with every change."""
        with self._speaking("build the index"):
            self._client.flush(self._name, timeout=INDEX_SECONDS)
            (name,) = self._client.list_indexes(self._name, field_name="components")
            last = time.monotonic() + INDEX_SECONDS
            while time.monotonic() < last:
                if not self._client.describe_index(self._name, name).get("pending_index_rows"):
                    break
                time.sleep(0.2)
            if self._is_new:
                # Milvus answers from a rough temporary index until it has loaded the real one. Nobody searches a new
                # collection yet, so it is loaded again.
                self._client.release_collection(self._name, timeout=INDEX_SECONDS)
                self._client.load_collection(self._name, timeout=INDEX_SECONDS)
                self._is_new = False
            self._count(0, LARGEST_ID)

    def nearest(
        self, vectors: Floats, n: int, *, only: Integers | None, without: Integers | None
    ) -> tuple[Integers, Floats]:
        """Search the index; ids that are named become an expression."""
        expression = ""
        if only is not None or without is not None:
            ids, word = (only, "in") if only is not None else (without, "not in")
            assert ids is not None
            expression = f"id {word} {json.dumps(ids.tolist())}"
        with self._speaking("search"):
            answers = self._client.search(
                self._name, data=list(vectors), limit=n, filter=expression, anns_field="components",
                search_params=self._engine.search_settings(n), consistency_level="Bounded",
                timeout=self._engine.timeout,
            )  # fmt: skip
            found = np.full((len(vectors), n), -1, dtype=np.int64)
            scores = np.full((len(vectors), n), -np.inf, dtype=np.float32)
            for place, hits in enumerate(answers):
                found[place, : len(hits)] = hits.ids
                scores[place, : len(hits)] = hits.distances
        return found, scores

    def drop(self) -> None:
        """Remove the collection."""
        with self._speaking("drop the collection"):
            self._client.drop_collection(self._name, timeout=self._engine.timeout)

    def close(self) -> None:
        """Release the connection."""
        with self._speaking("close the connection"):
            self._client.close()

    def _count(self, first: int, last: int) -> int:
        rows = self._client.query(
            self._name, filter=f"{first} <= id <= {last}", output_fields=["count(*)"], consistency_level="Strong",
            timeout=self._engine.timeout,
        )  # fmt: skip
        return int(rows[0]["count(*)"])

    def _speaking(self, action: str) -> Any:
        return speaking_to(self._engine.place, action, *self._secrets)


def _import_pymilvus() -> ModuleType:
    try:
        import pymilvus  # noqa: PLC0415  (an extra, imported only if it is used)
    except ImportError as error:
        raise missing_extra("pymilvus", "milvus") from error
    # It prints a traceback of every error that it raises as well; the errors here say more.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    module: ModuleType = pymilvus
    return module
