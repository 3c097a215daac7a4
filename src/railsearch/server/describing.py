"""The description of an index: what it holds, what it takes, and what a request may ask for."""

import re
from dataclasses import asdict

from railsearch.index.strategy_text import usages
from railsearch.server.encoding import INPUTS
from railsearch.server.searched import Searched
from railsearch.server.served_index import ServedIndex
from railsearch.server.service import ServerSettings

FACTS = ("items", "removed", "shards", "segments", "bytes", "precision", "kernel", "engine")
TUNED_FOR = re.compile(r"k = (?P<k>\d+), (?P<engine>.+)")


def describe_index(served: ServedIndex, settings: ServerSettings) -> dict[str, object]:
    """Return everything that a client must know of an index; no path of the machine is in it."""
    index, model = served.current, served.model
    facts = index.describe()
    similarity = index.similarity
    accepted = {"embeddings", *([] if model is None else model.encoders)}
    return {
        "name": served.name,
        "version": index.version,
        "fingerprint": index.fingerprint,
        **{name: facts[name] for name in FACTS},
        "similarity": {
            "kind": type(similarity).__name__,
            "num_query_components": similarity.num_query_components,
            "num_item_components": similarity.num_item_components,
            "component_dim": similarity.component_dim,
        },
        "ids": facts["ids"],
        "metadata": [{"name": name, "type": str(kind)} for name, kind in index.metadata_schema().items()],
        "tables": facts["tables"],
        "tuned": _tuned(index),
        "query_shape": list(similarity.query_shape),
        "item_shape": list(similarity.item_shape),
        "accepts": [name for name in INPUTS if name in accepted],
        "model": None if model is None else {"kind": model.kind, "fingerprint": model.source.fingerprint},
        "history_column": None if model is None else model.history_column,
        "is_writable": settings.is_writable,
        "strategies": usages(),
        "limits": settings.limits.to_dict(),
    }


def _tuned(index: Searched) -> list[dict[str, object]]:
    described = []
    for name, chosen in index.tuned_strategies().items():
        found = TUNED_FOR.fullmatch(name)
        measured = chosen.expected_recall
        described.append(
            {
                "k": None if found is None else int(found["k"]),
                "engine": None if found is None else found["engine"],
                "strategy": str(chosen).partition(";")[0],
                "expected_recall": None if measured is None else asdict(measured),
            }
        )
    return described
