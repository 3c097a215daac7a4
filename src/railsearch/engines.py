"""First-stage engines: the best items by dot product, from a scan, from FAISS, or from a database that holds the items.

`Flat` and `Faiss` build tables of an index. `Milvus` and `Postgres` keep one collection on a server, which
`sync_engine` brings up to the version of an index folder.
"""

from railsearch.index.engines import Engine, Faiss, Flat, Milvus, Postgres, parse_engine, register_engine
from railsearch.index.syncing import SyncReport, sync_engine

__all__ = [
    "Engine",
    "Faiss",
    "Flat",
    "Milvus",
    "Postgres",
    "SyncReport",
    "parse_engine",
    "register_engine",
    "sync_engine",
]
