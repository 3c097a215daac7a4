"""First-stage engines: the best rows of a table by dot product, from a plain scan or from a search library."""

from railsearch.index.engines.collection import (
    Behind,
    Collection,
    CollectionEngine,
    CollectionState,
    Origin,
    Stamp,
    as_collection_engine,
)
from railsearch.index.engines.collection_table import CollectionTable, check_owner, layout_of
from railsearch.index.engines.contract import NO_ROW, Engine, Nearest, Table
from railsearch.index.engines.faiss import Faiss, FaissKind
from railsearch.index.engines.flat import Flat, FlatTable, ScanPrecision
from railsearch.index.engines.guarded import GuardedTable
from railsearch.index.engines.milvus import Milvus, MilvusKind
from railsearch.index.engines.postgres import Postgres, VectorColumn
from railsearch.index.engines.registry import (
    check_choice,
    ensure_available,
    ensure_builds,
    parse_engine,
    register_engine,
)
from railsearch.index.engines.slots import SlotTable
from railsearch.index.engines.tables import Tables, TableStore

__all__ = [
    "NO_ROW",
    "Behind",
    "Collection",
    "CollectionEngine",
    "CollectionState",
    "CollectionTable",
    "Engine",
    "Faiss",
    "FaissKind",
    "Flat",
    "FlatTable",
    "GuardedTable",
    "Milvus",
    "MilvusKind",
    "Nearest",
    "Origin",
    "Postgres",
    "ScanPrecision",
    "SlotTable",
    "Stamp",
    "Table",
    "TableStore",
    "Tables",
    "VectorColumn",
    "as_collection_engine",
    "check_choice",
    "check_owner",
    "ensure_available",
    "ensure_builds",
    "layout_of",
    "parse_engine",
    "register_engine",
]
