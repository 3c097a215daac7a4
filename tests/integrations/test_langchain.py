"""The retriever of LangChain: the documents are those of a search, alone, in batches, in chains and in async code."""

import asyncio
from pathlib import Path

import pytest

from railsearch import TextRetriever, TwoPass
from tests.support.tiny_text import PAIRS, make_retriever

pytest.importorskip("langchain_core", reason="langchain-core is not installed")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

QUESTIONS = [question for question, _ in PAIRS[:3]]


def test_documents_are_those_of_a_search(retriever: TextRetriever) -> None:
    from langchain_core.documents import Document

    from railsearch.integrations.langchain import RailsearchRetriever

    adapter = RailsearchRetriever(retriever=retriever, k=3, strategy=TwoPass())
    expected = retriever.search(QUESTIONS, k=3).to_frame()
    for query, documents in enumerate(adapter.batch(QUESTIONS)):
        own = expected.filter(expected["query"] == query)
        assert all(isinstance(document, Document) for document in documents)
        assert [document.id for document in documents] == own["id"].to_list()
        assert [document.page_content for document in documents] == own["passage"].to_list()
        assert [document.metadata["rank"] for document in documents] == [1, 2, 3]
        assert [document.metadata["score"] for document in documents] == pytest.approx(own["score"].to_list())
        assert all(document.metadata["is_exact"] and document.metadata["gap"] == 0 for document in documents)
    assert len(RailsearchRetriever(retriever=retriever, k=1000).invoke(QUESTIONS[0])) == 20  # all that there are


def test_async_and_chains(folders: Path) -> None:
    from langchain_core.runnables import RunnableLambda

    from railsearch.integrations.langchain import RailsearchRetriever

    adapter = RailsearchRetriever.load(folders / "model", folders / "index", k=2)
    first = RunnableLambda(lambda documents: documents[0].page_content)
    chain = adapter | first

    async def ask() -> list[str]:
        return await asyncio.gather(*(chain.ainvoke(question) for question in QUESTIONS))

    assert asyncio.run(ask()) == [chain.invoke(question) for question in QUESTIONS]


def test_an_index_whose_passages_were_all_removed_has_no_documents(folders: Path) -> None:
    from railsearch.integrations.langchain import RailsearchRetriever

    retriever = TextRetriever.load(folders / "model")
    retriever.build_index({"p0": PAIRS[0][1]}).remove(["p0"])
    assert RailsearchRetriever(retriever=retriever).invoke(QUESTIONS[0]) == []


def test_wrong_input(retriever: TextRetriever, folders: Path) -> None:
    from railsearch.integrations.langchain import RailsearchRetriever

    with pytest.raises(ValueError, match=r"has no index; call build_index\(passages\)"):
        RailsearchRetriever(retriever=make_retriever(folders / "base"))
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        RailsearchRetriever(retriever=retriever, k=0)
    with pytest.raises(ValueError, match="is empty; remove it"):
        RailsearchRetriever(retriever=retriever).invoke(" ")
    with pytest.raises(ValueError, match="year"):
        RailsearchRetriever(retriever=retriever, allow="year > 3").invoke("who")
