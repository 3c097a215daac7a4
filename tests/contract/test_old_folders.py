"""Folders that earlier versions wrote open today, and give the answers that they gave then.

`tests/support/write_folders.py` wrote them: `0.1-first` with the code of 5f8f440, the last with format 2 of indexes,
`0.1-last` with that of a late one. A release adds a folder of its own and removes none.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

import railsearch
from railsearch import Index, MixtureOfLogits, Recommender, TextRetriever
from railsearch.data import Interactions
from railsearch.index import parse_strategy

FOLDERS = sorted((Path(__file__).parents[1] / "fixtures" / "folders").iterdir())
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy, which a test may change."""
    return Path(shutil.copytree(request.param, tmp_path / "old"))


def known(folder: Path, kind: str) -> dict:
    return json.loads((folder / "known.json").read_text())[kind]


def close_to(scores: torch.Tensor, expected: list) -> bool:
    return torch.allclose(scores, torch.tensor(expected), **TOLERANCE)


def test_there_are_some() -> None:
    assert [folder.name for folder in FOLDERS][:2] == ["0.1-first", "0.1-last"]


def test_a_similarity(folder: Path) -> None:
    expected = known(folder, "similarity")
    similarity = railsearch.load(folder / "similarity")
    assert isinstance(similarity, MixtureOfLogits)
    with torch.no_grad():
        parts = similarity.query_parts(torch.tensor(expected["queries"]), user_ids=torch.tensor(expected["users"]))
        scores = similarity.score(parts, similarity.item_parts(torch.tensor(expected["items"])))
    assert close_to(scores, expected["scores"])


@pytest.mark.parametrize("verify", ["full", "lazy"])
def test_an_index(folder: Path, verify: str) -> None:
    expected = known(folder, "index")
    queries = torch.tensor(expected["queries"])
    with Index.open(folder / "index", verify=verify) as index:
        assert (len(index), index.version, index.num_removed) == (expected["num_items"], 3, 3)
        for name, answer in expected["answers"].items():
            found = index.search(queries, 5, parse_strategy(name))
            assert found.ids.tolist() == answer["ids"]
            assert close_to(found.scores, answer["scores"])
        assert index.search(queries, 5).to_frame()["title"].to_list() == expected["titles"]


def test_an_index_is_changed_and_stays_intact(folder: Path) -> None:
    expected = known(folder, "index")
    queries = torch.tensor(expected["queries"])
    assert Index.check(folder / "index").is_intact
    with Index.open(folder / "index") as index:
        index.upsert(torch.ones(1, 6), [104], metadata=index.metadata[:1])
        index.remove([104])
        index.compact()
        index.tune(queries.repeat(20, 1), 5, target_recall=0.2, show_progress=False)
    with Index.open(folder / "index") as index:
        answer = expected["answers"]["BruteForce()"]
        wanted = [[item for item in ids if item != 104] for ids in answer["ids"]]
        found = index.search(queries, 5, parse_strategy("BruteForce")).ids.tolist()
        assert [ids[: len(own)] for ids, own in zip(found, wanted, strict=True)] == wanted
        assert index.verify().is_intact


def test_a_recommender_its_data_and_its_index(folder: Path) -> None:
    expected = known(folder, "recommender")
    recommender = railsearch.load(folder / "recommender" / "model")
    assert isinstance(recommender, Recommender)
    assert isinstance(railsearch.load(folder / "recommender" / "data"), Interactions)
    for has_index in (False, True):
        if has_index:
            recommender.open_index(folder / "recommender" / "index")
        found = recommender.recommend(k=5, histories=expected["histories"])
        assert found["item"].to_list() == expected["items"]
        assert close_to(torch.tensor(found["score"].to_list()), expected["scores"])
    recommender.save(folder / "again")
    assert Recommender.load(folder / "again").fingerprint == recommender.fingerprint


def test_a_text_retriever_and_its_index(folder: Path) -> None:
    pytest.importorskip("transformers")
    expected = known(folder, "text_retriever")
    retriever = railsearch.load(folder / "text_retriever" / "model")
    assert isinstance(retriever, TextRetriever)
    retriever.open_index(folder / "text_retriever" / "index")
    found = retriever.search(expected["questions"], 5)
    assert found.to_frame()["passage"].to_list() == expected["passages"]
    assert close_to(found.scores, expected["scores"])
    retriever.save(folder / "again")
    assert TextRetriever.load(folder / "again").fingerprint == retriever.fingerprint
