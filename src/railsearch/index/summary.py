"""The summary of an index by name, for people."""

from railsearch.index.contents import Contents
from railsearch.index.corpus import Precision
from railsearch.index.metadata import without_keys
from railsearch.index.storage.table_listing import summarise_tables


def summarise(contents: Contents) -> dict[str, int | str | list[str] | None]:
    """Return the path, version, counts, similarity, metadata and settings of an index."""
    corpus, frame, similarity = contents.corpus, without_keys(contents.corpus.frame), contents.corpus.similarity
    pairs = f"{similarity.num_query_components} x {similarity.num_item_components} x {similarity.component_dim}"
    names = {own.name for own in corpus.segments}
    return {
        "path": None if contents.path is None else str(contents.path),
        "version": contents.version,
        "items": len(corpus.ids),
        "removed": len(corpus) - len(corpus.ids),
        "segments": len(corpus.segments),
        "precision": next(str(each) for each in Precision if each.dtype == corpus.segments[0].dtype),
        "bytes": sum(segment.num_bytes for segment in corpus.segments),
        "kernel": corpus.kernel.name,
        "engine": corpus.engine.key,
        "similarity": f"{type(similarity).__name__} {pairs}",
        "fingerprint": contents.models[0] if contents.models else None,
        "ids": "strings" if corpus.has_keys else "integers",
        "metadata": [] if frame is None else frame.columns,
        "source": [f"{name}: {value}" for name, value in contents.source.items()],
        "tables": [] if contents.path is None else summarise_tables(contents.path, names),
        "tuned": [f"{wanted}: {strategy}" for wanted, strategy in contents.tuned.items()],
    }
