"""First-stage engines: the best rows of one table by dot product, from a plain scan or from a search library."""

from railsearch.index.engines.contract import NO_ROW, Engine, Nearest, Table
from railsearch.index.engines.faiss import Faiss, FaissKind
from railsearch.index.engines.flat import Flat, FlatTable

__all__ = ["NO_ROW", "Engine", "Faiss", "FaissKind", "Flat", "FlatTable", "Nearest", "Table"]
