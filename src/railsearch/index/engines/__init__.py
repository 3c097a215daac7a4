"""First-stage engines: the best rows of a table by dot product, from a plain scan or from a search library."""

from railsearch.index.engines.contract import NO_ROW, Engine, Nearest, Table
from railsearch.index.engines.faiss import Faiss, FaissKind
from railsearch.index.engines.flat import Flat, FlatTable, ScanPrecision
from railsearch.index.engines.registry import check_choice, ensure_available, parse_engine, register_engine
from railsearch.index.engines.tables import Tables, TableStore

__all__ = [
    "NO_ROW",
    "Engine",
    "Faiss",
    "FaissKind",
    "Flat",
    "FlatTable",
    "Nearest",
    "ScanPrecision",
    "Table",
    "TableStore",
    "Tables",
    "check_choice",
    "ensure_available",
    "parse_engine",
    "register_engine",
]
