"""TextRetriever, by its public calls and its commands: what is saved is what searches; the wrong model is refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from railsearch import (
    DotProduct,
    Index,
    TextRecipe,
    TextRetriever,
    TwoPass,
    read_recipe,
)
from railsearch.cli.app import app
from railsearch.errors import FingerprintError, InvalidInputError, ModelFolderError
from railsearch.models import TextModel
from railsearch.recipes import CosineConfig, TextTrainingConfig
from tests.support.tiny_text import PAIRS, make_base, make_data, make_recipe, make_retriever

pytest.importorskip("transformers")

PASSAGES = [passage for _, passage in PAIRS]
TRAINING = TextTrainingConfig(epochs=2, batch_size=10, learning_rate=0.01, new_learning_rate=0.01)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert")


@pytest.fixture(scope="module")
def trained(base: Path) -> TextRetriever:
    data = make_data()
    return TextRetriever.fit(dataclasses.replace(data, test=data.train.select(range(5))), make_recipe(base, TRAINING))


def test_search_gives_passages_with_a_certificate(trained: TextRetriever) -> None:
    index = trained.build_index(dict(zip("abcdefghijklmnopqrst", PASSAGES, strict=True)))
    result = trained.search(["who w1 w7", "who w2 w14"], k=3, strategy=TwoPass())
    frame = result.to_frame()
    assert frame.columns == ["query", "rank", "id", "score", "passage"]
    assert [PASSAGES["abcdefghijklmnopqrst".index(name)] for name in frame["id"]] == frame["passage"].to_list()
    assert result.is_exact.all()
    assert (result.gap == 0).all()
    expected = trained.model.similarity.score(
        trained.model.query_parts(["who w1 w7", "who w2 w14"]), trained.model.item_parts(PASSAGES)
    )
    torch.testing.assert_close(result.scores, expected.topk(3).values)
    assert len(index) == 20


def test_an_index_of_passages_changes(trained: TextRetriever, tmp_path: Path) -> None:
    named = {f"p{row}": passage for row, passage in enumerate(PASSAGES)}
    questions = [question for question, _ in PAIRS]
    trained.build_index(named)
    expected = trained.search(questions, k=5)
    first = dict(list(named.items())[:12])
    trained.build_index(first, tmp_path / "passages.index")
    trained.add({key: named[key] for key in named if key not in first})
    trained.upsert({"p3": "it is w1 end", "extra": "it is w2 end"})
    assert len(trained.index) == 21
    trained.remove(["extra"])
    trained.upsert({"p3": named["p3"]})
    opened = Index.open(tmp_path / "passages.index")  # every change is durable
    assert sorted(opened.keys) == sorted(named)
    assert opened.verify().is_intact
    found = trained.search(questions, k=5)
    assert found.keys == expected.keys
    torch.testing.assert_close(found.scores, expected.scores)


def test_wrong_changes_of_passages(base: Path, trained: TextRetriever, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="there is no index; call build_index"):
        make_retriever(base).add({"a": "it is w1"})
    trained.build_index({"a": "it is w1", "b": "it is w2"})
    monkeypatch.setattr(TextModel, "locate_passages", None)  # all of these are refused before any text is encoded
    for call, given, message in (
        (trained.add, {"c": "it is", "b": "it is"}, r"passage 'b' is already in the index \(1 of 2 passages are\)"),
        (trained.add, {7: "it is"}, "ids holds the integer 7 but the ids of this index are strings"),
        (trained.add, ["it is"], "passages is a list without ids but the ids of this index are strings"),
        (trained.add, {"c": " "}, "passage 'c' is empty"),
        (trained.upsert, ["it is"], "passages is a list without ids"),
        (trained.upsert, {7: "it is"}, "ids holds the integer 7"),
        (trained.remove, ["c"], "id 'c' is not in the index"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call(given)
    assert (trained.index.keys, trained.index.version) == (["a", "b"], 1)


def test_passages_without_ids_are_numbered(trained: TextRetriever) -> None:
    trained.build_index(PASSAGES[:3])
    trained.add(PASSAGES[3:5])
    trained.remove([1])
    assert trained.index.ids.tolist() == [0, 2, 3, 4]
    assert trained.index.metadata["passage"].to_list() == [PASSAGES[row] for row in (0, 2, 3, 4)]


def test_the_card_has_test_figures_and_protocol(trained: TextRetriever) -> None:
    card = trained.card
    assert card is not None
    assert set(card.metrics) == {"HR@1", "HR@10", "HR@100", "MRR", "NDCG@10", "NDCG@100"}
    assert "5 test questions" in card.protocol
    assert "all 20 passages" in card.protocol
    assert f"| MRR | {card.metrics['MRR']:.4f} |" in card.to_markdown(trained.recipe)


@pytest.mark.parametrize("options", [{}, {"pooling": "parameterised", "shares_backbone": False}], ids=str)
def test_what_was_saved_searches_the_same(base: Path, tmp_path: Path, options: dict[str, object]) -> None:
    retriever = TextRetriever.fit(PAIRS, make_recipe(base, TRAINING, **options))
    retriever.save(tmp_path / "model")
    retriever.build_index(PASSAGES, tmp_path / "passages.index")
    loaded = TextRetriever.load(tmp_path / "model")
    loaded.open_index(tmp_path / "passages.index")
    questions = [question for question, _ in PAIRS]
    torch.testing.assert_close(loaded.encode_queries(questions), retriever.encode_queries(questions))
    torch.testing.assert_close(loaded.encode_passages(PASSAGES), retriever.encode_passages(PASSAGES))
    before, after = retriever.search(questions, k=4), loaded.search(questions, k=4)
    assert torch.equal(before.ids, after.ids)
    torch.testing.assert_close(before.scores, after.scores)
    assert loaded.recipe == retriever.recipe
    assert loaded.card == retriever.card
    assert TextRetriever.load_for(Index.open(tmp_path / "passages.index")).fingerprint == retriever.fingerprint


def test_an_index_of_another_model_is_refused(base: Path, trained: TextRetriever, tmp_path: Path) -> None:
    trained.save(tmp_path / "trained")
    trained.build_index(PASSAGES, tmp_path / "passages.index")
    other = make_retriever(base)
    with pytest.raises(FingerprintError, match=f"{trained.fingerprint} but this is {other.fingerprint}"):
        other.open_index(tmp_path / "passages.index")
    other.save(tmp_path / "other")
    index = Index.open(tmp_path / "passages.index")
    with pytest.raises(FingerprintError, match="load the model that built it"):
        TextRetriever.load_for(index, tmp_path / "other")
    assert TextRetriever.load_for(index, tmp_path / "trained").index is index
    (tmp_path / "trained").rename(tmp_path / "moved")
    with pytest.raises(InvalidInputError, match="which does not exist; give the folder"):
        TextRetriever.load_for(index)
    Index.build(DotProduct(dim=3), torch.eye(3), path=tmp_path / "plain.index")
    with pytest.raises(FingerprintError, match="was not built by a text retriever"):
        trained.open_index(tmp_path / "plain.index")


def test_cosines_of_two_encoders_are_two_models(base: Path, tmp_path: Path) -> None:
    # A cosine has no weights of its own, so that only the encoder tells them apart.
    options = {"num_query_components": 1, "num_item_components": 1, "pooling": "mean", "similarity": CosineConfig()}
    first = make_retriever(base, **options)
    assert first.fingerprint == make_retriever(base, **options).fingerprint
    second = TextRetriever.fit(PAIRS, make_recipe(base, TRAINING, **options))
    first.build_index(PASSAGES, tmp_path / "first.index")
    with pytest.raises(FingerprintError):
        second.open_index(tmp_path / "first.index")


def test_wrong_calls_say_what_to_do(base: Path, trained: TextRetriever, tmp_path: Path) -> None:
    fresh = make_retriever(base)
    with pytest.raises(InvalidInputError, match="there is no index; call build_index"):
        fresh.search(["who w1"], k=1)
    with pytest.raises(InvalidInputError, match=r"texts\[1\] is empty"):
        fresh.build_index(["it is w1", "  "], tmp_path / "never")
    assert not (tmp_path / "never").exists()
    with pytest.raises(InvalidInputError, match="passages is a str"):
        fresh.build_index("it is w1")
    with pytest.raises(InvalidInputError, match="a cosine compares one component with one but the encoder has 2 and 3"):
        make_retriever(base, similarity=CosineConfig())
    with pytest.raises(InvalidInputError, match="pooling"):
        make_retriever(base, pooling="max")
    with pytest.raises(InvalidInputError, match="has no test questions"):
        fresh.evaluate(make_data())
    trained.save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="already exists"):
        trained.save(tmp_path / "model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError, match="will not be replaced"):
        trained.save(tmp_path / "mine", overwrite=True)
    with pytest.raises(ModelFolderError, match="does not exist"):
        TextRetriever.load(tmp_path / "nowhere")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace('"temperature": 0.05', '"temperature": 0.06'))
    with pytest.raises(ModelFolderError, match="changed or damaged"):
        TextRetriever.load(tmp_path / "model")


def test_the_tokenizer_and_the_architecture_are_of_the_model(base: Path, tmp_path: Path) -> None:
    plain = make_retriever(base).fingerprint
    for name, before, after in (
        ("tokenizer.json", '"w1": ', '"w1_": '),
        ("config.json", '"num_attention_heads": 2', '"num_attention_heads": 4'),
    ):
        other = shutil.copytree(base, tmp_path / name)
        text = (other / name).read_text()
        assert text.count(before) == 1
        (other / name).write_text(text.replace(before, after))
        assert make_retriever(other).fingerprint != plain
    assert make_retriever(shutil.copytree(base, tmp_path / "same")).fingerprint == plain


def test_no_model_is_tested_on_what_it_was_trained_on(base: Path, tmp_path: Path) -> None:
    write_recipe(tmp_path, base)
    retriever = TextRetriever.fit(PAIRS, make_recipe(base, TRAINING))
    retriever.save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="it may have been trained on them"):
        retriever.test_data(tmp_path / "pairs.jsonl")


def write_recipe(folder: Path, base: Path) -> Path:
    lines = [json.dumps({"question": question, "passage": passage}) for question, passage in PAIRS]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    (folder / "passages.jsonl").write_text(
        "\n".join(json.dumps({"id": f"p{row}", "text": passage}) for row, passage in enumerate(PASSAGES))
    )
    recipe = folder / "recipe.toml"
    recipe.write_text(f"""
[data]
path = "{folder}/pairs.jsonl"
[encoder]
kind = "text"
base = "{base}"
num_query_components = 2
num_item_components = 2
max_query_length = 12
max_passage_length = 12
[training]
epochs = 2
batch_size = 8
""")
    return recipe


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_from_a_recipe_to_an_answer(base: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, base)
    trained = json.loads(run("train", recipe, "--out", tmp_path / "run", "--json"))
    assert set(trained["metrics"]) == {"HR@1", "HR@10", "HR@100", "MRR", "NDCG@10", "NDCG@100"}
    assert trained["counts"]["questions"] == 16  # 2 held out for validation, 2 for the test
    model = tmp_path / "run" / "model"
    measured = json.loads(run("evaluate", model, "--data", tmp_path / "pairs.jsonl", "--json"))
    assert measured["metrics"] == trained["metrics"]
    assert measured["protocol"] == trained["protocol"]
    index = tmp_path / "passages.index"
    built = json.loads(
        run("index", "build", index, "--model", model, "--passages", tmp_path / "passages.jsonl", "--json")
    )
    assert built["items"] == 20
    assert f"folder: {model.resolve()}" in built["source"]
    found = json.loads(run("search", index, "--text", "who w1 w7", "--text", "who w3", "-k", 2, "--json"))
    assert [answer["text"] for answer in found["queries"]] == ["who w1 w7", "who w3"]
    assert all(answer["is_exact"] and len(answer["items"]) == 2 for answer in found["queries"])
    assert {item["id"] for answer in found["queries"] for item in answer["items"]} <= {f"p{n}" for n in range(20)}
    assert "passages per second; 0 of them are longer than 12 tokens" in built["encoding"]
    (tmp_path / "more.jsonl").write_text('{"id": "new", "text": "it is w1"}\n{"id": "p3", "text": "it is w2"}')
    more = ("index", "add", index, "--passages", tmp_path / "more.jsonl")
    assert json.loads(run(*more, "--upsert", "--json"))["items"] == 21
    assert set(Index.open(index).keys) == {"new", *(f"p{n}" for n in range(20))}
    assert json.loads(run("index", "remove", index, "new", "--json"))["items"] == 20
    shown = run("search", index, "--text", "who w1 w7", "--row", 0, "--row", 0, "-k", 1, "--explain")
    assert "who w1 w7" in shown
    assert "certified exact" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "{index}"], "give either --queries"),
        (["search", "{index}", "--text", " "], "empty"),
        (["search", "{index}", "--text", "who", "--model", "{base}"], "not the config of a railsearch text retriever"),
        (["index", "build", "{new}", "--model", "{model}"], "give either --items"),
        (["index", "add", "{index}"], "give either --items with embeddings or --passages with texts"),
        (["index", "add", "{index}", "--passages", "{texts}"], "the ids of this index are integers"),
        (["index", "add", "{index}", "--passages", "{texts}", "--ids", "{texts}"], "--ids and --metadata belong to"),
        (["index", "build", "{new}", "--model", "{model}", "--passages", "{pairs}"], "has no field 'text' in line 1"),
        (["train", "{recipe}", "--set", "encoder.pool=mean"], "pool is not a setting"),
        (["train", "{recipe}", "--set", "encoder.kind=bert"], "choose from: sasrec, hstu, text"),
        (["train", "{recipe}", "--data", "{new}"], "does not exist"),
    ],
)
def test_wrong_commands_say_what_to_do(base: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    retriever = make_retriever(base)
    retriever.save(tmp_path / "model")
    retriever.build_index(PASSAGES, tmp_path / "index")
    places = {
        "index": tmp_path / "index", "model": tmp_path / "model", "base": base, "new": tmp_path / "new",
        "recipe": write_recipe(tmp_path, base), "pairs": tmp_path / "pairs.jsonl",
        "texts": tmp_path / "passages.jsonl",
    }  # fmt: skip
    done = CliRunner().invoke(app, [argument.format(**places) for argument in arguments])
    assert isinstance(done.exception, Exception)
    assert message in str(done.exception)
    assert not (tmp_path / "new").exists()


def test_a_recipe_with_a_typo_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('[encoder]\nkind = "text"\nbase = "x"\n[training]\nepoch = 3')
    with pytest.raises(InvalidInputError, match="epoch is not a setting"):
        read_recipe(file)
    with pytest.raises(InvalidInputError, match=r"encoder\.base is missing|encoder is missing"):
        TextRecipe()


def test_a_build_of_windows_says_that_long_passages_were_cut_into_them(base: Path, tmp_path: Path) -> None:
    retriever = make_retriever(base, pooling="windows", num_query_components=1, num_item_components=3)
    retriever.save(tmp_path / "model")
    (tmp_path / "passages.jsonl").write_text(json.dumps({"id": "long", "text": "it is w1 " * 9}))
    built = json.loads(
        run("index", "build", tmp_path / "i", "--model", tmp_path / "model", "--passages", tmp_path / "passages.jsonl",
            "--json")
    )  # fmt: skip
    assert built["encoding"].endswith("per second; those longer than 12 tokens were cut into windows")
