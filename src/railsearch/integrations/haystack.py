"""A text retriever as a component of Haystack: documents with meta, score and certificate."""

import asyncio
from pathlib import Path
from typing import Any

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.extras import missing_extra
from railsearch.foundation.inputs import check_count
from railsearch.integrations.hits import check_retriever, find_hits, open_retriever
from railsearch.text_retriever import TextRetriever

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ImportError as error:
    raise missing_extra("haystack", "haystack") from error


@component  # its types are unknown here: checked as if Haystack were not installed
class RailsearchRetriever:
    """A retriever of Haystack over a text retriever of railsearch.

    Built from two folders, it can be a part of a pipeline that is saved as YAML; the folders are opened by `warm_up`,
    or when it first runs. `RailsearchRetriever.of(retriever)` takes an opened text retriever instead.

    Args:
        model: the folder of a text retriever.
        index: the folder of an index that it built.
        top_k: documents for each question; fewer if the index has fewer.
        allow: a condition over the columns of the index, such as "year >= 2000".
    """

    def __init__(self, model: str, index: str, *, top_k: int = 10, allow: str | None = None) -> None:
        self.model = str(model)
        self.index = str(index)
        self.top_k = check_count(top_k, name="top_k")
        self.allow = allow
        self._retriever: TextRetriever | None = None

    @classmethod
    def of(cls, retriever: TextRetriever, *, top_k: int = 10, allow: str | None = None) -> "RailsearchRetriever":
        """Wrap a text retriever with an index; only one whose index is a folder can be saved with a pipeline."""
        opened = check_retriever(retriever).index
        place = "" if opened is None or opened.path is None else str(Path(opened.path).resolve())
        folder = "" if opened is None else str(opened.source.get("folder") or "")
        wrapped = cls(folder, place, top_k=top_k, allow=allow)
        wrapped._retriever = retriever
        return wrapped

    def warm_up(self) -> None:
        """Open the model and the index, if they are not open."""
        if self._retriever is None:
            self._retriever = open_retriever(self.model, self.index)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, for a pipeline that is saved."""
        if not (self.model and self.index):
            raise InvalidInputError(
                "the model or the index was never saved, so a pipeline cannot name them; save the model, and build the "
                "index with a path."
            )
        settings = {"model": self.model, "index": self.index, "top_k": self.top_k, "allow": self.allow}
        found: dict[str, Any] = default_to_dict(self, **settings)
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RailsearchRetriever":
        """Build the component of a saved pipeline."""
        found: RailsearchRetriever = default_from_dict(cls, data)
        return found

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str, top_k: int | None = None, allow: str | None = None) -> dict[str, list[Document]]:
        """Return the best documents for a question; `top_k` and `allow` replace those of the component."""
        self.warm_up()
        assert self._retriever is not None
        k = self.top_k if top_k is None else check_count(top_k, name="top_k")
        hits = find_hits(self._retriever, query, k, allow=self.allow if allow is None else allow)
        return {
            "documents": [Document(id=hit.id, content=hit.text, score=hit.score, meta=hit.metadata) for hit in hits]
        }

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    async def run_async(
        self, query: str, top_k: int | None = None, allow: str | None = None
    ) -> dict[str, list[Document]]:
        """Return the same, from a thread."""
        return await asyncio.to_thread(self.run, query, top_k, allow)
