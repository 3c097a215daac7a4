"""Extras: the groups of optional dependencies, and the one sentence that says how to install them.

railsearch is not on PyPI, so no message may name it there; when that changes, only this module changes.
"""

from typing import Literal, get_args

from railsearch.foundation.errors import MissingExtraError

Extra = Literal[
    "faiss", "text", "train", "plot", "onnx", "client", "serve", "milvus", "postgres", "ray", "langchain", "haystack"
]
EXTRAS: tuple[Extra, ...] = get_args(Extra)


def install_advice(extra: Extra) -> str:
    """Return how to install an extra.

    >>> install_advice("faiss")
    "from a checkout of railsearch, run: pip install '.[faiss]'"
    """
    return f"from a checkout of railsearch, run: pip install '.[{extra}]'"


def missing_extra(library: str, extra: Extra) -> MissingExtraError:
    """Return the error for a library that is not installed.

    >>> print(missing_extra("faiss", "faiss"))
    faiss is not installed; from a checkout of railsearch, run: pip install '.[faiss]'
    """
    return MissingExtraError(f"{library} is not installed; {install_advice(extra)}")
