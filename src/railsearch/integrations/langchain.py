"""A text retriever as a retriever of LangChain: documents with metadata, score and certificate."""

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator

from railsearch.foundation.extras import missing_extra
from railsearch.foundation.settings import LARGEST_SIZE
from railsearch.index import Strategy
from railsearch.integrations.hits import check_retriever, find_hits, open_retriever
from railsearch.text_retriever import TextRetriever

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
except ImportError as error:
    raise missing_extra("langchain-core", "langchain") from error


class RailsearchRetriever(BaseRetriever):  # type: ignore[misc]  # checked as if LangChain were not installed
    """A retriever of LangChain over a text retriever of railsearch, which has an index.

    It is a `Runnable`: `invoke`, `ainvoke`, `batch` and `abatch` take questions and return documents. The metadata of a
    document are the columns of the index and id, score, rank, gap and is_exact.
    """

    retriever: TextRetriever
    """A text retriever with an index."""
    k: int = Field(default=4, ge=1, le=LARGEST_SIZE)
    """Documents for each question; fewer if the index has fewer."""
    strategy: Strategy | None = None
    """How to search; by default the strategy that the index was tuned to, or brute force."""
    allow: str | None = None
    """A condition over the columns of the index, such as "year >= 2000"."""

    @classmethod
    def load(cls, model: str | Path, index: str | Path, *, k: int = 4, allow: str | None = None) -> Self:
        """Read a model folder, and open the index that it built."""
        return cls(retriever=open_retriever(model, index), k=k, allow=allow)

    @field_validator("retriever")
    @classmethod
    def _check_index(cls, retriever: TextRetriever) -> TextRetriever:
        return check_retriever(retriever)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        del run_manager  # the search calls nothing that has callbacks
        hits = find_hits(self.retriever, query, self.k, strategy=self.strategy, allow=self.allow)
        return [Document(id=hit.id, page_content=hit.text, metadata=hit.metadata) for hit in hits]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        """Search in a thread: encoding and scoring release the interpreter lock."""
        found: list[Document] = await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=run_manager.get_sync()
        )
        return found
