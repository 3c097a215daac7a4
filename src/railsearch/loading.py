"""One call that opens any folder that railsearch wrote."""

from pathlib import Path
from typing import cast

from typing_extensions import TypeAliasType

from railsearch.data import Interactions
from railsearch.distributed import ShardedIndex
from railsearch.encoders import TextEncoder
from railsearch.folders import open_folder
from railsearch.index import Index
from railsearch.recommender import Recommender
from railsearch.similarity import Similarity
from railsearch.text_retriever import TextRetriever

Loaded = TypeAliasType(
    "Loaded", Similarity | Recommender | TextRetriever | TextEncoder | Index | ShardedIndex | Interactions
)


def load(path: str | Path) -> Loaded:
    """Open a folder that railsearch wrote, whatever it holds.

    A folder of a similarity, a recommender, a text retriever or a text encoder returns the model, on the CPU and ready
    to use; an index folder returns the `Index`, and a split one the `ShardedIndex`; a folder of prepared data returns
    its `Interactions`. Any other path, and a folder that is damaged, is refused.

    >>> import tempfile
    >>> from railsearch import DotProduct, save_similarity
    >>> folder = tempfile.mkdtemp() + "/similarity"
    >>> _ = save_similarity(DotProduct(dim=3), folder)
    >>> load(folder).component_dim
    3
    """
    return cast("Loaded", open_folder(path))


def a_kind(loaded: object) -> str:
    """Return the name of a loaded object's kind with its article, for a message.

    >>> a_kind([]), a_kind(0)
    ('a list', 'an int')
    """
    name = type(loaded).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
