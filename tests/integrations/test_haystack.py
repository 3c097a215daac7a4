"""The component of Haystack: in a pipeline, saved and read again, and in async code."""

import asyncio
from pathlib import Path

import pytest

from railsearch import TextRetriever
from tests.support.tiny_text import PAIRS, make_retriever

pytest.importorskip("haystack", reason="haystack-ai is not installed")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

QUESTION = PAIRS[0][0]


def test_a_pipeline_that_is_saved_and_read_again(retriever: TextRetriever, folders: Path) -> None:
    from haystack import Pipeline

    from railsearch.integrations.haystack import RailsearchRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", RailsearchRetriever(str(folders / "model"), str(folders / "index"), top_k=3))
    again = Pipeline.from_dict(pipeline.to_dict(), allowed_modules=["railsearch.integrations.haystack"])
    expected = retriever.search([QUESTION], k=3).to_frame()
    for own in (pipeline, again):
        documents = own.run({"retriever": {"query": QUESTION}})["retriever"]["documents"]
        assert [document.id for document in documents] == expected["id"].to_list()
        assert [document.content for document in documents] == expected["passage"].to_list()
        assert [document.score for document in documents] == pytest.approx(expected["score"].to_list())
        assert all(document.meta["is_exact"] for document in documents)
    fewer = pipeline.run({"retriever": {"query": QUESTION, "top_k": 1}})["retriever"]["documents"]
    assert [document.id for document in fewer] == expected["id"].to_list()[:1]


def test_an_opened_retriever_and_async(retriever: TextRetriever, folders: Path) -> None:
    from railsearch.integrations.haystack import RailsearchRetriever

    component = RailsearchRetriever.of(retriever, top_k=2)
    found = asyncio.run(component.run_async(QUESTION))
    assert found == component.run(QUESTION)
    settings = component.to_dict()["init_parameters"]
    assert (settings["model"], settings["index"]) == (str(folders / "model"), str(folders / "index"))


def test_wrong_input(retriever: TextRetriever, folders: Path) -> None:
    from railsearch.integrations.haystack import RailsearchRetriever

    unsaved = make_retriever(folders / "base")
    with pytest.raises(ValueError, match="has no index"):
        RailsearchRetriever.of(unsaved)
    unsaved.build_index(["it is w1"], show_progress=False)
    with pytest.raises(ValueError, match="was never saved, so a pipeline cannot name them"):
        RailsearchRetriever.of(unsaved).to_dict()
    with pytest.raises(ValueError, match="top_k is 0"):
        RailsearchRetriever("model", "index", top_k=0)
    with pytest.raises(ValueError, match="top_k is -1"):
        RailsearchRetriever.of(retriever).run(QUESTION, top_k=-1)
