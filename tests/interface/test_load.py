"""`railsearch.load` opens every folder that railsearch writes, and refuses every other path by name."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

import railsearch
from railsearch import DotProduct, Index, Recommender, TextRetriever
from railsearch.data import Interactions, read_prepared, write_prepared
from railsearch.encoders import TextEncoder
from railsearch.foundation.errors import ModelFolderError, RailsearchError
from tests.support.training_worlds import random_walks, small_recipe


def test_a_similarity(tmp_path: Path) -> None:
    railsearch.save_similarity(DotProduct(dim=3, cosine=True), tmp_path / "model")
    loaded = railsearch.load(tmp_path / "model")
    assert isinstance(loaded, DotProduct)
    assert loaded.config == DotProduct(dim=3, cosine=True).config


def test_a_recommender(tmp_path: Path) -> None:
    recommender = Recommender.fit(random_walks(), small_recipe(epochs=1))
    recommender.save(tmp_path / "model")
    loaded = railsearch.load(str(tmp_path / "model"))
    assert isinstance(loaded, Recommender)
    assert loaded.fingerprint == recommender.fingerprint


def test_texts(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.support.tiny_text import make_base, make_retriever

    retriever = make_retriever(make_base(tmp_path / "base"))
    retriever.save(tmp_path / "model")
    loaded = railsearch.load(tmp_path / "model")
    assert isinstance(loaded, TextRetriever)
    assert loaded.fingerprint == retriever.fingerprint
    assert isinstance(railsearch.load(tmp_path / "model" / "encoder"), TextEncoder)
    with pytest.raises(ModelFolderError, match="base is not a folder that railsearch wrote"):
        railsearch.load(tmp_path / "base")


def test_an_index(tmp_path: Path) -> None:
    Index.build(DotProduct(dim=3), torch.eye(3), path=tmp_path / "index")
    loaded = railsearch.load(tmp_path / "index")
    assert isinstance(loaded, Index)
    assert loaded.ids.tolist() == [0, 1, 2]


def test_prepared_data(tmp_path: Path) -> None:
    events = Interactions.from_frame(pl.DataFrame({"user": [1, 1], "item": [3, 4], "timestamp": [5, 6]}))
    write_prepared(events, tmp_path / "data", name="two events")
    loaded = railsearch.load(tmp_path / "data")
    assert isinstance(loaded, Interactions)
    assert loaded.items.tolist() == [0, 1]


def test_anything_else_is_refused(tmp_path: Path) -> None:
    kinds = (
        "give the folder of one of: index, interactions, recommender, shards, similarity, text encoder, text retriever"
    )
    (tmp_path / "file").write_text("x")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"format": "railsearch.unknown"}')
    for path in (tmp_path, tmp_path / "file", tmp_path / "odd"):
        with pytest.raises(ModelFolderError, match=f"is not a folder that railsearch wrote; {kinds}"):
            railsearch.load(path)
    with pytest.raises(ModelFolderError, match="nowhere does not exist; give the folder of one of"):
        railsearch.load(tmp_path / "nowhere")
    for path in (None, 5):
        with pytest.raises(RailsearchError, match=f"path is {path}; give the name of a folder"):
            railsearch.load(path)


@pytest.mark.parametrize(
    "open_path",
    [
        railsearch.load,
        railsearch.load_similarity,
        Recommender.load,
        TextRetriever.load,
        read_prepared,
        Index.open,
        Index.check,
    ],
)
def test_names_that_are_too_long_and_loops_of_links_are_refused_by_name(
    open_path: Callable[[Path], object], tmp_path: Path
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path / ("x" * 300), loop, loop / "inside"):
        with pytest.raises(RailsearchError, match=path.name):
            open_path(path)
