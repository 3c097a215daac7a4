"""The exported query side: run by onnxruntime, compared with the model, and searched with."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from railsearch import Recommender
from railsearch.errors import InvalidInputError, MissingExtraError
from railsearch.models import QueryGraph
from railsearch.recommender import exporting
from railsearch.similarity import QueryParts
from tests.support.commands import run, run_main
from tests.support.training_worlds import random_walks, small_recipe

WORLD = random_walks(item_name=lambda item: f"item {item:02}")


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit(WORLD, small_recipe("sasrec", "mixture", epochs=1))


def padded_inputs(recommender: Recommender, names: list[str]) -> tuple[dict[str, np.ndarray], list[list[str]]]:
    """Return inputs of histories of every length, padded with garbage, and the histories as item ids."""
    longest = recommender.model.encoder.max_length
    generator = np.random.default_rng(1)
    items = generator.integers(40, size=(longest, longest))  # (B, n)
    lengths = np.arange(1, longest + 1)  # (B,)
    times = np.zeros_like(items)  # lists of items carry no times
    histories = [[f"item {row:02}" for row in own[:length]] for own, length in zip(items, lengths, strict=True)]
    given = {
        "items": items, "lengths": lengths, "times": times, "request_times": times[:, 0],
        "user_rows": np.full(longest, -1),
    }  # fmt: skip
    return {name: given[name] for name in names}, histories


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["sasrec", "hstu"])
@pytest.mark.parametrize("similarity", ["cosine", "mixture", "mixture-user"])
def test_onnxruntime_makes_the_same_queries(encoder: str, similarity: str, tmp_path: Path) -> None:
    """Every length, with padding; from the graph to the items that are found."""
    onnxruntime = pytest.importorskip("onnxruntime")
    recommender = Recommender.fit(WORLD, small_recipe(encoder, similarity, epochs=1))
    exported = recommender.export(tmp_path / "query.onnx")
    session = onnxruntime.InferenceSession(str(exported.graph))
    names = [each.name for each in session.get_inputs()]
    assert names == list(exported.inputs)
    given, histories = padded_inputs(recommender, names)
    embeddings, components, *gate = (torch.from_numpy(each) for each in session.run(None, given))
    expected = recommender.encode(histories)
    torch.testing.assert_close(embeddings, expected, atol=1e-5, rtol=1e-5)
    users = torch.full((len(histories),), -1) if recommender.model.similarity.takes_user_ids else None
    parts = recommender.model.similarity.query_parts(expected, user_ids=users)
    torch.testing.assert_close(components, parts.components, atol=1e-5, rtol=1e-5)
    if parts.gate is not None:
        torch.testing.assert_close(gate[0], parts.gate, atol=1e-5, rtol=1e-5)
    one = {name: each[2:3, :3] if each.ndim == 2 else each[2:3] for name, each in given.items()}
    np.testing.assert_allclose(session.run(None, one)[0], embeddings[2:3], atol=1e-5)  # another batch, another length
    for name in {"times", "request_times"} & set(names):
        given[name] = np.sort(np.random.default_rng(2).integers(10**8, size=given[name].shape), axis=-1)
    if "user_rows" in names:
        given["user_rows"] = np.arange(len(histories)) - 1
    plain = QueryGraph(recommender.model)(**{name: torch.from_numpy(each) for name, each in given.items()})
    for found, computed in zip(session.run(None, given), plain, strict=True):  # with times and users
        np.testing.assert_allclose(found, computed, atol=1e-5)
    index = recommender.build_index()
    wanted = recommender.search(histories, k=5)
    for queries in (embeddings, QueryParts(components, gate[0] if gate else None)):
        found = index.search(queries, k=5)
        torch.testing.assert_close(found.scores, wanted.scores, atol=1e-3, rtol=1e-4)
        is_clear = (wanted.scores[:, :-1] - wanted.scores[:, 1:] > 1e-2).cumprod(dim=1).bool()  # no ties so far
        assert torch.equal(found.ids[:, :-1][is_clear], wanted.ids[:, :-1][is_clear])
        assert is_clear.any()


@pytest.mark.slow
def test_the_command(recommender: Recommender, tmp_path: Path) -> None:
    recommender.save(tmp_path / "model")
    printed = json.loads(run("export", tmp_path / "model", tmp_path / "query.onnx", "--json"))
    contract = json.loads((tmp_path / "query.json").read_text())
    assert printed["model"] == contract["model"] == recommender.fingerprint
    assert printed["inputs"] == contract["inputs"] == {"items": "(batch, length)", "lengths": "(batch)"}
    assert list(printed["outputs"]) == ["embeddings", "components", "gate"]
    assert contract["items"] == recommender.items["item"].to_list()
    assert contract["max_length"] == 8
    text = run("export", tmp_path / "model", tmp_path / "query.onnx", "--overwrite")
    assert "input lengths" in text


def test_the_exporter_of_torch_logs_nothing(
    recommender: Recommender, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        recommender.export(tmp_path / "query.onnx")
    assert not caplog.records


def test_wrong_targets(recommender: Recommender, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"query\.pt ends in '\.pt'; give a file that ends in \.onnx"):
        recommender.export(tmp_path / "query.pt")
    with pytest.raises(InvalidInputError, match=r"there is no folder .*nowhere; create it first"):
        recommender.export(tmp_path / "nowhere" / "query.onnx")
    (tmp_path / "query.json").touch()
    with pytest.raises(InvalidInputError, match=r"query\.json already exists; choose another path or pass overwrite"):
        recommender.export(tmp_path / "query.onnx")


def test_without_the_extra(recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"onnx is not installed; .*pip install '\.\[onnx\]'"):
        recommender.export(tmp_path / "query.onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_too_large(recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "LARGEST_GRAPH", 1000)
    monkeypatch.setattr(exporting, "_check_extra", lambda: None)
    with pytest.raises(InvalidInputError, match=r"the weights take [\d,]+ bytes but an ONNX file holds at most 1,000"):
        recommender.export(tmp_path / "query.onnx")


def test_only_recommenders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("export", tmp_path, tmp_path / "query.onnx") != 0
    assert "not a folder that railsearch wrote" in " ".join(capsys.readouterr().err.split())
