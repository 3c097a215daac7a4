"""Folders of sentence-transformers as a base: step 0 equals their own cosine, and hostile ones are refused."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from railsearch import TextRetriever
from railsearch.encoders import Side, TextEncoder, TextEncoderConfig
from railsearch.encoders.text.sentence_head import SentenceMode
from railsearch.encoders.text.settings import Pooling
from railsearch.errors import ModelFolderError
from railsearch.recipes import CosineConfig, TextMixtureConfig, TextRecipe
from tests.support.sentence_folders import DIM, dense, make_sentence_folder, outputs_of

TEXTS = ["who w1 w2 w3", "w7", "it is w9 end"]
NORMALIZE: dict[str, Any] = {"type": "Normalize"}


def encoder_of(folder: Path, **options: object) -> TextEncoder:
    settings = {"max_query_length": 12, "max_passage_length": 12, **options}
    return TextEncoder.from_pretrained(TextEncoderConfig(base=str(folder), **settings))


def expected_of(mode: str, outputs: torch.Tensor) -> torch.Tensor:
    """Return the pooled outputs (D,) by a loop over positions."""
    rows = list(outputs)
    if mode == "cls":
        return rows[0]
    if mode == "lasttoken":
        return rows[-1]
    if mode == "max":
        return torch.stack([max(column) for column in outputs.t()])
    weights = range(1, len(rows) + 1) if mode == "weightedmean" else [1] * len(rows)
    total = torch.stack([weight * row for weight, row in zip(weights, rows, strict=True)]).sum(dim=0)
    return total / (len(rows) ** 0.5 if mode == "mean_sqrt_len_tokens" else sum(weights))


@pytest.mark.parametrize("mode", [*SentenceMode, ["cls", "mean"]])
def test_every_pooling_equals_a_loop(mode: str | list[str], tmp_path: Path) -> None:
    folder = make_sentence_folder(tmp_path / "base", pooling={"embedding_dimension": DIM, "pooling_mode": mode})
    encoder = encoder_of(folder)
    found = encoder.encode(TEXTS, Side.PASSAGE, show_progress=False)  # (3, 1, D)
    modes = [mode] if isinstance(mode, str) else mode
    expected = [
        torch.cat([expected_of(own, outputs_of(folder, text)) for own in modes]) for text in TEXTS
    ]  # each without padding
    torch.testing.assert_close(found[:, 0], torch.stack(expected), rtol=1e-4, atol=1e-5)
    assert encoder.pooling is (Pooling.MEAN if mode == "mean" else Pooling.OWN)


def test_old_names_of_poolings(tmp_path: Path) -> None:
    old = {"word_embedding_dimension": DIM, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    folder = make_sentence_folder(tmp_path / "base", pooling=old)
    found = encoder_of(folder).encode(TEXTS, Side.QUERY, show_progress=False)[:, 0]
    torch.testing.assert_close(
        found, torch.stack([outputs_of(folder, text)[0] for text in TEXTS]), rtol=1e-4, atol=1e-5
    )


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layers = [dense(DIM, 10), {"type": "Dropout", "config": {"dropout": 0.5}}, dense(10, 6), NORMALIZE]
    return make_sentence_folder(tmp_path_factory.mktemp("layered") / "base", layers=layers, inner="0_Transformer")


@pytest.mark.parametrize(
    "similarity", [CosineConfig(), TextMixtureConfig(num_query_components=2, num_item_components=3)]
)
def test_step_0_equals_the_cosine_of_the_folder(similarity: CosineConfig | TextMixtureConfig, layered: Path) -> None:
    vectors = torch.stack([outputs_of(layered / "0_Transformer", text).mean(dim=0) for text in TEXTS])  # (3, D)
    for layer in (dense(DIM, 10), dense(10, 6)):
        weights = layer["weights"]
        vectors = torch.tanh(vectors @ weights["linear.weight"].t() + weights["linear.bias"])
    cosines = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)  # (3, 3)
    recipe = TextRecipe(
        encoder={"base": str(layered), "max_query_length": 12, "max_passage_length": 12}, similarity=similarity
    )
    retriever = TextRetriever(recipe)
    retriever.build_index(TEXTS, show_progress=False)
    result = retriever.search(TEXTS, k=3)
    assert retriever.model.encoder.dim == 6
    expected = cosines.gather(1, result.ids) / similarity.temperature
    torch.testing.assert_close(result.scores, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shares", [True, False])
def test_a_saved_encoder_is_the_same_without_the_folder(shares: bool, layered: Path, tmp_path: Path) -> None:
    encoder = encoder_of(layered, shares_backbone=shares)
    assert encoder.pretrained_names() == {name for name, _ in encoder.named_parameters()}
    encoder.save(tmp_path / "encoder")
    loaded = TextEncoder.load(tmp_path / "encoder")
    assert loaded.identity == encoder.identity
    for side in Side:
        one, other = (own.encode(TEXTS, side, show_progress=False) for own in (encoder, loaded))
        torch.testing.assert_close(one, other)
    found = loaded.train()(loaded.tokenize(TEXTS, Side.PASSAGE), Side.PASSAGE)
    found.sum().backward()
    head = loaded.head if loaded.passage_head is None else loaded.passage_head
    assert head is not None
    assert all(weight.grad is not None for weight in head.parameters())


def test_prompts_lengths_and_lowercase(tmp_path: Path) -> None:
    folder = make_sentence_folder(
        tmp_path / "base",
        transformer={"max_seq_length": 5, "do_lower_case": True},
        settings={"prompts": {"query": "who ", "document": "it is "}, "default_prompt_name": None},
    )
    encoder = encoder_of(folder)
    plain = encoder_of(folder, query_prompt="", passage_prompt="")
    assert encoder.tokenize(["W3 w4"], Side.QUERY) == plain.tokenize(["who w3 w4"], Side.QUERY)
    assert encoder.tokenize(["w3"], Side.PASSAGE) == plain.tokenize(["it is w3"], Side.PASSAGE)
    assert (encoder.max_query_length, encoder.max_passage_length) == (5, 5)
    assert encoder.count_cut(["w3 w4"], Side.PASSAGE) == 1
    assert plain.count_cut(["w3 w4"], Side.PASSAGE) == 0
    assert encoder.identity != plain.identity
    several = TextEncoderConfig(base=str(folder), pooling="multi", max_query_length=12, max_passage_length=12)
    assert encoder.repooled(several).tokenize(["w3"], Side.QUERY) == encoder.tokenize(["w3"], Side.QUERY)
    assert encoder_of(folder, pooling="mean").max_query_length == 12  # the folder's limit belongs to its own pooling


def test_a_stated_length_beyond_the_limit_of_the_folder_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_sentence_folder(tmp_path / "base", transformer={"max_seq_length": 5})
    with caplog.at_level(logging.WARNING):
        TextEncoder.from_pretrained(
            TextEncoderConfig(base=str(folder), max_passage_length=9)
        )  # a query has the default
    assert [record.message for record in caplog.records if record.name.startswith("railsearch")] == [
        f"max_passage_length is 9 but {folder} takes 5 tokens; longer texts are cut there"
    ]


def write_modules(folder: Path, modules: object) -> None:
    (folder / "modules.json").write_text(json.dumps(modules))


def modules_with(**change: object) -> list[dict[str, object]]:
    own = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in own]
    return [*modules[:2], {**modules[2], **change}]


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("not a list", "lists no language model with a pooling"),
        ([1, 2], "each module needs a type and a path"),
        (modules_with(path="../../secret"), "names the path '../../secret', which is not a folder in it"),
        (modules_with(path="/etc"), "names the path '/etc'"),
        (modules_with(path="a/../.."), "which is not a folder in it"),
        (modules_with(path=".."), "which is not a folder in it"),
        (modules_with(type="os.system"), "names the module 'os.system', which is code of its own and is not run"),
        (modules_with(type="sentence_transformers.models.CNN"), "is a CNN module but railsearch reads Dense"),
        (modules_with() + modules_with()[2:] * 98, "lists 101 modules; give a model with at most 100"),
        (modules_with()[1:], "lists Pooling and Dense first but railsearch reads Transformer and Pooling"),
    ],
)
def test_hostile_modules_are_refused(modules: object, message: str, tmp_path: Path) -> None:
    folder = make_sentence_folder(tmp_path / "base", layers=[dense(DIM, 4)])
    write_modules(folder, modules)
    with pytest.raises(ModelFolderError, match=message):
        encoder_of(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"activation_function": "os.system"}, "has the activation 'os.system'; railsearch has: Identity, Tanh"),
        ({"activation_function": "torch.nn.modules.activation.Bilinear"}, "has the activation"),
        ({"in_features": 7}, "a dense layer takes 7 values but gets 16"),
        ({"out_features": 2**19}, r"is \(4,\) there but the config needs \(524288,\)"),
        ({"out_features": 2**40}, "has wrong settings: out_features is"),
        ({"out_features": "many"}, "has wrong settings: out_features is 'many'"),
        ({"module_input_name": "token_embeddings"}, "changes .*token_embeddings"),
        ({"module_output_name": {"a": 1}}, "changes sentence_embedding, {'a': 1}, not only the embedding"),
    ],
)
def test_hostile_layers_are_refused(config: dict[str, object], message: str, tmp_path: Path) -> None:
    layer = dense(DIM, 4)
    folder = make_sentence_folder(tmp_path / "base", layers=[{**layer, "config": {**layer["config"], **config}}])
    with pytest.raises(ModelFolderError, match=message):
        encoder_of(folder)


def test_other_damage_is_refused(tmp_path: Path) -> None:
    folder = make_sentence_folder(tmp_path / "base", layers=[dense(DIM, 4)], settings={"prompts": {"query": 3}})
    with pytest.raises(ModelFolderError, match="states prompts that are not texts"):
        encoder_of(folder)
    (folder / "config_sentence_transformers.json").write_text("{")
    with pytest.raises(ModelFolderError, match="cannot be read"):
        encoder_of(folder)
    wrong = '{"prompts": {"query": "q "}, "default_prompt_name": ["query"]}'  # a name that is no text names no prompt
    (folder / "config_sentence_transformers.json").write_text(wrong)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean", "include_prompt": false}')
    with pytest.raises(ModelFolderError, match="without their prompts"):
        encoder_of(folder)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "median"}')
    with pytest.raises(ModelFolderError, match=r"modes.0 is 'median'"):
        encoder_of(folder)
    (folder / "1_Pooling" / "config.json").write_text("{}")
    weights = folder / "2_Dense" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50])
    with pytest.raises(ModelFolderError, match="cannot be read"):
        encoder_of(folder)
    weights.rename(folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelFolderError, match="reads no pickled weights"):
        encoder_of(folder)
