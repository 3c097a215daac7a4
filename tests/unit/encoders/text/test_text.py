"""The text encoder, over tiny models of every family: where tokens go, what padding may not do, what is refused."""

import copy
import json
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from railsearch.encoders import Pooling, Side, TextEncoder, TextEncoderConfig, TokenPlace
from railsearch.encoders.text.backbone import count_positions, load_backbone
from railsearch.encoders.text.pooling import ParameterisedPooling
from railsearch.encoders.text.pretrained import import_transformers, quiet
from railsearch.encoders.text.tokens import batches_by_length
from railsearch.foundation.errors import (
    DownloadError,
    InvalidInputError,
    ModelFolderError,
    RailsearchError,
    StorageError,
)
from tests.support.faults.mutations import seal_config

transformers = pytest.importorskip("transformers")

DIM = 16
POSITIONS = 40
WORDS = ["a", "the", "cat", "sat", "on", "mat", "dog", "ran", "far", "red", "blue", "sea", "[", "]", "Q1", "CLS"]
TEXTS = ["the cat", "a dog ran far on the red mat on the blue sea", "sea", "the red dog", "cat cat cat cat cat"]
SHAPE = {"hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}

SPECIAL: dict[str, list[str]] = {  # in the order of their ids
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
    "mpnet": ["<s>", "<pad>", "</s>", "<unk>"],
    "t5": ["<pad>", "</s>", "<unk>"],
    "gpt2": ["<|endoftext|>", "<unk>"],
    "llama": ["<unk>", "<s>", "</s>"],
}
AROUND: dict[str, tuple[list[str], list[str]]] = {
    "bert": (["[CLS]"], ["[SEP]"]),
    "mpnet": (["<s>"], ["</s>"]),
    "t5": ([], ["</s>"]),
    "gpt2": ([], []),
    "llama": (["<s>"], []),
}
KINDS = sorted(SPECIAL)
CAUSAL = {"gpt2", "llama"}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_pooling = pytest.mark.parametrize("pooling", list(Pooling))


def make_model(kind: str, vocab_size: int) -> object:
    ends = {"pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
    sizes = {**SHAPE, "vocab_size": vocab_size}
    t5 = transformers.T5Config(vocab_size=vocab_size, d_model=DIM, num_layers=2, num_heads=2, d_kv=8, d_ff=32)
    gpt2 = {"n_embd": DIM, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS, "vocab_size": vocab_size}
    builders: dict[str, Callable[[], object]] = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(max_position_embeddings=POSITIONS, **sizes)),
        "mpnet": lambda: transformers.MPNetModel(
            transformers.MPNetConfig(max_position_embeddings=POSITIONS + 2, **sizes)
        ),
        "t5": lambda: transformers.T5EncoderModel(t5),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**gpt2, **{**ends, "bos_token_id": 0, "eos_token_id": 0})
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(max_position_embeddings=POSITIONS, **sizes, **ends)
        ),
    }
    return builders[kind]()


def make_tokenizer(kind: str) -> object:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {token: number for number, token in enumerate([*SPECIAL[kind], *WORDS])}
    unknown = next(token for token in SPECIAL[kind] if "unk" in token.lower())
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit() if kind == "llama" else pre_tokenizers.Whitespace()
    before, after = AROUND[kind]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=[(token, vocabulary[token]) for token in [*before, *after]]
    )
    names = {"unk_token": unknown}
    if kind == "bert":
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    if kind in {"mpnet", "llama"}:
        names |= {"bos_token": "<s>", "eos_token": "</s>"}
    if kind == "gpt2":
        names |= {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    if kind == "t5":
        names |= {"eos_token": "</s>", "pad_token": "<pad>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Compare embeddings of equal weights; where these lie in memory may change the last bits."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with a tiny model of each kind, with weights large enough that every token matters."""
    folders = {}
    with torch.random.fork_rng(), quiet(import_transformers()):
        torch.manual_seed(0)
        for kind in KINDS:
            folders[kind] = tmp_path_factory.mktemp(kind)
            tokenizer = make_tokenizer(kind)
            model = make_model(kind, len(tokenizer))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn(parameter.shape) * 0.2)
            model.save_pretrained(folders[kind])
            tokenizer.save_pretrained(folders[kind])
    return folders


def make_encoder(base: Path, **options: object) -> TextEncoder:
    counts = 1 if options.get("pooling") in {Pooling.MEAN, Pooling.OWN, Pooling.WINDOWS} else 3
    sizes = {"num_query_components": counts, "num_item_components": max(1, counts - 1)}
    settings = {**sizes, "max_query_length": 12, "max_passage_length": 20, "pooling": Pooling.TOKENS, **options}
    return TextEncoder.from_pretrained(TextEncoderConfig(base=str(base), **settings)).eval()


def names_of(encoder: TextEncoder, base: Path, ids: list[int]) -> list[str]:
    """Token names, by the tokenizer of the base and by the names that aggregation tokens ought to have."""
    known = transformers.AutoTokenizer.from_pretrained(base)
    ours = [f"[Q{n + 1}]" for n in range(encoder.num_query_components)]
    ours += [f"[X{n + 1}]" for n in range(encoder.num_item_components)]
    return [ours[token - len(known)] if token >= len(known) else known.convert_ids_to_tokens(token) for token in ids]


class TestTokens:
    @every_kind
    def test_aggregation_tokens_stand_where_the_model_can_use_them(self, kind: str, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases[kind])
        before, after = AROUND[kind]
        (query,), (passage,) = (encoder.tokenize(["the cat"], side) for side in Side)
        text = [*before, "the", "cat", *after]
        if kind in CAUSAL:
            assert encoder.token_place is TokenPlace.END
            assert names_of(encoder, bases[kind], query) == [*text, "[Q1]", "[Q2]", "[Q3]"]
            assert names_of(encoder, bases[kind], passage) == [*text, "[X1]", "[X2]"]
        else:
            assert encoder.token_place is TokenPlace.FRONT
            assert names_of(encoder, bases[kind], query) == ["[Q1]", "[Q2]", "[Q3]", *text]
            assert names_of(encoder, bases[kind], passage) == ["[X1]", "[X2]", *text]

    def test_the_place_can_be_said(self, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["bert"], token_place=TokenPlace.END)
        (ids,) = encoder.tokenize(["the cat"], Side.QUERY)
        assert names_of(encoder, bases["bert"], ids)[-3:] == ["[Q1]", "[Q2]", "[Q3]"]

    def test_the_front_is_refused_where_it_would_know_nothing(self, bases: dict[str, Path]) -> None:
        with pytest.raises(InvalidInputError, match=r'"front".*sees only earlier ones'):
            make_encoder(bases["gpt2"], token_place=TokenPlace.FRONT)

    @every_kind
    def test_truncation_cuts_only_the_text(self, kind: str, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases[kind])
        short, long = encoder.tokenize(["the cat sat", "the cat sat " * 30], Side.QUERY)
        assert len(long) == 12
        names, (before, after) = names_of(encoder, bases[kind], long), AROUND[kind]
        assert [name for name in names if name in {*before, *after}] == [*before, *after]
        assert [name for name in names if name.startswith("[Q")] == ["[Q1]", "[Q2]", "[Q3]"]
        assert len(short) == 3 + 3 + len(before) + len(after)
        assert encoder(encoder.tokenize(["the cat " * 50], Side.PASSAGE), Side.PASSAGE).shape == (1, 2, DIM)

    @every_kind
    def test_special_tokens_in_a_text_are_only_text(self, kind: str, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases[kind])
        plain, *others = encoder.tokenize(
            ["cat", "cat [Q1] [X2]", *(f"cat {name}" for name in SPECIAL[kind])], Side.QUERY
        )
        allowed = {"<unk>", "[UNK]"}
        special = {*SPECIAL[kind], "[Q1]", "[Q2]", "[Q3]", "[X1]", "[X2]"} - allowed
        expected = [name for name in names_of(encoder, bases[kind], plain) if name in special]
        for ids in [*others, *copy.deepcopy(encoder).tokenize(["cat [Q1] [X2]"], Side.QUERY)]:
            assert [name for name in names_of(encoder, bases[kind], ids) if name in special] == expected

    @pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.PARAMETERISED])
    def test_other_poolings_have_no_aggregation_tokens(self, pooling: Pooling, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["bert"], pooling=pooling)
        (ids,) = encoder.tokenize(["the cat"], Side.QUERY)
        assert names_of(encoder, bases["bert"], ids) == ["[CLS]", "the", "cat", "[SEP]"]
        assert encoder.aggregation_embeddings is None

    @pytest.mark.parametrize(
        ("texts", "message"),
        [
            (["a", ""], r"texts\[1\] is empty"),
            (["a", "cat", " \n\t"], r"texts\[2\] is empty"),
            (["a", None], r"texts\[1\] is None, of type NoneType"),
            (["a \ud800"], r"texts\[0\] has half of a surrogate pair"),
            ("the cat", "one string"),
        ],
    )
    def test_what_is_no_text_is_refused(self, texts: list[str], message: str, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["bert"])
        with pytest.raises(InvalidInputError, match=message):
            encoder.tokenize(texts, Side.QUERY)
        with pytest.raises(InvalidInputError, match=message):
            encoder.encode(texts, Side.QUERY)

    def test_tokens_of_the_other_side_are_refused(self, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["bert"])
        passages = encoder.tokenize(["the cat"], Side.PASSAGE)
        with pytest.raises(InvalidInputError, match=r"tokens\[0\] lacks the aggregation tokens of the query side"):
            encoder(passages, Side.QUERY)
        with pytest.raises(InvalidInputError, match=r"tokens\[1\] has 21 tokens but a passage has 1 to 20"):
            encoder([*passages, [5] * 21], Side.PASSAGE)
        with pytest.raises(InvalidInputError, match=r"tokens is empty"):
            encoder([], Side.PASSAGE)
        with pytest.raises(InvalidInputError, match=r"query, passage"):
            encoder.tokenize(["a"], "item")

    def test_no_batch_is_larger_than_asked(self) -> None:
        lengths = [5, 1, 9, 3, 3, 2, 9, 40]
        batches = list(batches_by_length(lengths, tokens_per_batch=18))
        assert sorted(row for batch in batches for row in batch) == list(range(8))
        assert batches[0] == [7]
        assert all(max(lengths[row] for row in batch) * len(batch) <= 18 for batch in batches[1:])
        assert len(batches) == 4


class TestComponents:
    @every_kind
    @every_pooling
    def test_padding_changes_no_embedding(self, kind: str, pooling: Pooling, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases[kind], pooling=pooling)
        for side in Side:
            together = encoder(encoder.tokenize(TEXTS, side), side)
            alone = torch.cat([encoder(encoder.tokenize([text], side), side) for text in TEXTS])
            torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
            batched = encoder.encode(TEXTS, side, tokens_per_batch=30)
            torch.testing.assert_close(batched, alone, rtol=1e-5, atol=1e-5)
            assert (torch.pdist(alone.flatten(1)) > 1e-2).all()  # texts differ

    @every_kind
    def test_the_mean_is_that_of_the_plain_model(self, kind: str, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases[kind], pooling="mean")
        with quiet(import_transformers()):
            tokenizer = transformers.AutoTokenizer.from_pretrained(bases[kind])
            plain = transformers.T5EncoderModel if kind == "t5" else transformers.AutoModel
            model = plain.from_pretrained(bases[kind]).eval()
        rows = [tokenizer(text)["input_ids"] for text in TEXTS]
        longest = max(map(len, rows))
        padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 1
        ids = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        outputs = model(input_ids=ids, attention_mask=mask).last_hidden_state
        expected = (outputs * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        found = encoder.encode(TEXTS, Side.PASSAGE)
        assert found.shape == (len(TEXTS), 1, DIM)
        torch.testing.assert_close(found[:, 0], expected, rtol=1e-5, atol=1e-5)

    @every_kind
    def test_a_component_is_the_output_of_its_token(self, kind: str, bases: dict[str, Path]) -> None:
        """A plain model with a larger vocabulary, the usual way, gives the same."""
        encoder = make_encoder(bases[kind])
        model = load_backbone(bases[kind])
        size = model.get_input_embeddings().num_embeddings
        with quiet(import_transformers()):
            model.resize_token_embeddings(size + 5)
        with torch.no_grad():
            model.get_input_embeddings().weight[size:] = encoder.aggregation_embeddings
        for side, numbers in ((Side.QUERY, [0, 1, 2]), (Side.PASSAGE, [3, 4])):
            (ids,) = encoder.tokenize(["the cat sat"], side)
            outputs = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            expected = torch.stack([outputs[ids.index(size + number)] for number in numbers])
            torch.testing.assert_close(encoder([ids], side)[0], expected, rtol=1e-5, atol=1e-5)

    def test_aggregation_tokens_begin_near_the_summary_token_but_apart(self, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["bert"], num_query_components=4, num_item_components=4)
        embeddings = encoder.aggregation_embeddings
        own = load_backbone(bases["bert"]).get_input_embeddings().weight[2]  # [CLS]
        assert embeddings is not None
        assert embeddings.shape == (8, DIM)
        spread = load_backbone(bases["bert"]).get_input_embeddings().weight.std()
        assert float((embeddings - own).detach().std()) == pytest.approx(0.5 * float(spread.detach()), rel=0.3)
        assert len(torch.unique(embeddings, dim=0)) == 8
        again = make_encoder(bases["bert"], num_query_components=4, num_item_components=4)
        other = make_encoder(bases["bert"], num_query_components=4, num_item_components=4, seed=1)
        assert torch.equal(embeddings, again.aggregation_embeddings)
        assert not torch.equal(embeddings, other.aggregation_embeddings)

    @pytest.mark.parametrize("place", list(TokenPlace))
    def test_weights_of_positions_sum_to_one_without_padding(
        self, place: TokenPlace, generator: torch.Generator
    ) -> None:
        pooling = ParameterisedPooling(dim=6, num_components=3, max_length=9, place=place, generator=generator)
        outputs = torch.randn(2, 5, 6, generator=generator)
        is_real = torch.tensor([[True] * 5, [True, True, False, False, False]])
        weights = pooling.weights(outputs, is_real)
        assert weights.shape == (2, 3, 5)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3))
        assert (weights[1, :, 2:] == 0).all()
        assert (weights[1, :, :2] > 0).all()
        assert (weights[0, 0] - 0.2).abs().max() < 0.15  # the first component is near the mean at first,
        assert int(weights[0, 1].argmax()) in {1, 2, 3}  # the second looks at the first half of 9 positions,
        assert weights[0, 2].argmax() == 4  # the third at the second, as far as the text goes
        changed = outputs.clone()
        changed[:, 0 if place is TokenPlace.END else 1] += 1
        assert torch.equal(pooling.weights(changed, is_real)[0], weights[0])  # only one output decides
        torch.testing.assert_close(pooling(outputs, is_real)[1], weights[1, :, :2] @ outputs[1, :2])

    def test_a_causal_model_weighs_by_its_last_output(self, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["gpt2"], pooling="parameterised")
        assert {pooling.place for pooling in encoder.poolings.values()} == {TokenPlace.END}

    @every_kind
    @every_pooling
    def test_gradients_reach_every_parameter(self, kind: str, pooling: Pooling, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases[kind], pooling=pooling, shares_backbone=False).train()
        squares: Tensor = sum(
            (encoder(encoder.tokenize(TEXTS, side), side) ** 2 * torch.arange(1, DIM + 1)).sum() for side in Side
        )
        squares.backward()
        lacking = [name for name, parameter in encoder.named_parameters() if parameter.grad is None]
        assert lacking == []
        if encoder.aggregation_embeddings is not None:
            assert (encoder.aggregation_embeddings.grad.abs().amax(dim=1) > 0).all()
        for backbone in (encoder.backbone, encoder.passage_backbone):
            assert float(backbone.get_input_embeddings().weight.grad.abs().max()) > 0

    def test_sides_share_the_model_or_do_not(self, bases: dict[str, Path]) -> None:
        shared, apart = make_encoder(bases["bert"]), make_encoder(bases["bert"], shares_backbone=False)
        assert torch.equal(shared.encode(TEXTS, Side.PASSAGE), apart.encode(TEXTS, Side.PASSAGE))
        assert len(apart.pretrained_names()) == 2 * len(shared.pretrained_names())
        for encoder in (shared, apart):
            before = encoder.encode(TEXTS, Side.PASSAGE)
            with torch.no_grad():
                next(encoder.backbone.parameters()).mul_(2)
            assert torch.equal(before, encoder.encode(TEXTS, Side.PASSAGE)) == (encoder is apart)

    def test_new_parameters_are_told_from_pretrained_ones(self, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["t5"])
        names = {name for name, _ in encoder.named_parameters()}
        assert names - encoder.pretrained_names() == {"aggregation_embeddings"}
        pooled = make_encoder(bases["t5"], pooling="parameterised")
        assert {
            name.split(".")[0] for name, _ in pooled.named_parameters() if name not in pooled.pretrained_names()
        } == {"poolings"}


class TestEncode:
    def test_dropout_is_off_while_encoding_and_modes_are_kept(self, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["bert"])
        expected = encoder.encode(TEXTS, Side.QUERY)
        encoder.train()
        encoder.backbone.encoder.eval()
        modes = [module.training for module in encoder.modules()]
        assert torch.equal(encoder.encode(TEXTS, Side.QUERY), expected)
        assert [module.training for module in encoder.modules()] == modes
        assert not torch.equal(encoder(encoder.tokenize(TEXTS, Side.QUERY), Side.QUERY), expected)  # dropout is alive
        assert not expected.requires_grad

    def test_order_is_kept_over_chunks(self, bases: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        encoder = make_encoder(bases["bert"])
        expected = encoder.encode(TEXTS, Side.PASSAGE)
        monkeypatch.setattr("railsearch.encoders.text.tokens.TEXTS_PER_CHUNK", 2)
        found = encoder.encode(TEXTS, Side.PASSAGE, tokens_per_batch=1)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    def test_memory_is_bounded_by_tokens(self, bases: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        encoder, sizes = make_encoder(bases["bert"]), []
        encoder.backbone.register_forward_pre_hook(
            lambda _, __, named: sizes.append(named["inputs_embeds"].shape[:2].numel()), with_kwargs=True
        )
        encoder.encode(TEXTS * 7, Side.PASSAGE, tokens_per_batch=50)
        assert max(sizes) <= 50
        assert sum(sizes) < 1.2 * sum(map(len, encoder.tokenize(TEXTS * 7, Side.PASSAGE)))  # little padding

    def test_nothing_to_encode(self, bases: dict[str, Path]) -> None:
        assert make_encoder(bases["bert"]).encode([], Side.PASSAGE).shape == (0, 2, DIM)

    def test_the_rate_is_shown(
        self,
        bases: dict[str, Path],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        encoder = make_encoder(bases["bert"])
        monkeypatch.setattr("railsearch.encoders.text.batches.LONG_ENCODE", 0.0)
        with caplog.at_level(logging.INFO, logger="railsearch"):
            encoder.encode(TEXTS, Side.QUERY, show_progress=True)
        assert "encoded 5 query texts" in caplog.text
        assert "encoding query texts" in capsys.readouterr().err


class TestFolder:
    @every_kind
    @every_pooling
    @pytest.mark.parametrize("shares", [True, False])
    def test_saved_and_loaded_it_is_the_same(
        self, kind: str, pooling: Pooling, shares: bool, bases: dict[str, Path], tmp_path: Path
    ) -> None:
        encoder = make_encoder(bases[kind], pooling=pooling, shares_backbone=shares)
        with torch.no_grad():
            for parameter in encoder.parameters():  # trained since, both sides apart
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)) * 0.1)
        encoder.save(tmp_path / "model")
        loaded = TextEncoder.load(tmp_path / "model")
        assert loaded.settings == encoder.settings
        assert loaded.token_place == encoder.token_place
        assert not loaded.training
        assert loaded.pretrained_names() == encoder.pretrained_names()
        weights = loaded.state_dict()
        assert all(torch.equal(weights[name], value) for name, value in encoder.state_dict().items())
        for side in Side:
            assert loaded.tokenize(TEXTS, side) == encoder.tokenize(TEXTS, side)
            assert_same(loaded.encode(TEXTS, side), encoder.encode(TEXTS, side))

    def test_settings_are_plain_and_make_it_anew(self, bases: dict[str, Path]) -> None:
        encoder = make_encoder(bases["bert"], pooling="parameterised", seed=3)
        settings = json.loads(json.dumps(encoder.settings))
        assert settings["base"] == str(bases["bert"])
        assert settings["pooling"] == "parameterised"
        again = TextEncoder.from_pretrained(TextEncoderConfig(**settings))
        assert_same(again.encode(TEXTS, Side.QUERY), encoder.encode(TEXTS, Side.QUERY))

    def test_other_defaults_of_transformers_do_not_make_it_another_model(
        self, bases: dict[str, Path], tmp_path: Path
    ) -> None:
        make_encoder(bases["bert"]).save(tmp_path / "model")
        file = tmp_path / "model" / "config.json"
        config = json.loads(file.read_text())
        del config["backbone"]["classifier_dropout"]  # as if written by a version without this setting
        file.write_bytes(seal_config(config))
        loaded = TextEncoder.load(tmp_path / "model")
        loaded.save(tmp_path / "again")
        assert json.loads((tmp_path / "again" / "config.json").read_text())["backbone"] == config["backbone"]
        assert TextEncoder.load(tmp_path / "again").identity == loaded.identity
        assert loaded.identity != make_encoder(bases["bert"]).identity

    def test_loading_draws_nothing_from_the_global_generator(self, bases: dict[str, Path], tmp_path: Path) -> None:
        make_encoder(bases["bert"]).save(tmp_path / "model")
        before = torch.random.get_rng_state()
        TextEncoder.load(tmp_path / "model")
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.mark.parametrize(
        "file", ["config.json", "model.safetensors", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
    )
    def test_damage_is_noticed(self, file: str, bases: dict[str, Path], tmp_path: Path) -> None:
        make_encoder(bases["bert"]).save(tmp_path / "model")
        path = tmp_path / "model" / file
        content = bytearray(path.read_bytes())
        middle = next(place for place in range(len(content) // 2, len(content)) if chr(content[place]).isalnum())
        content[middle] ^= 1
        path.write_bytes(content)
        with pytest.raises(ModelFolderError, match=r"damaged|cannot be read"):
            TextEncoder.load(tmp_path / "model")
        path.write_bytes(content[:-10])
        with pytest.raises(ModelFolderError, match=r"damaged|cannot be read"):
            TextEncoder.load(tmp_path / "model")
        path.unlink()
        with pytest.raises(ModelFolderError, match=r"restore it|does not exist"):
            TextEncoder.load(tmp_path / "model")

    def test_aggregation_tokens_that_are_missing_are_named(self, bases: dict[str, Path], tmp_path: Path) -> None:
        """A folder that is whole, but whose vocabulary or weights are of a model without them."""
        make_encoder(bases["bert"]).save(tmp_path / "tokens")
        make_encoder(bases["bert"], pooling="mean").save(tmp_path / "mean")
        for part, message in (("tokenizer", r"lacks 5 of 5 aggregation tokens, such as \[Q1\]"),
                              ("model.safetensors", "aggregation_embeddings is missing")):  # fmt: skip
            mixed = tmp_path / f"mixed {part}"
            shutil.copytree(tmp_path / "tokens", mixed)
            if part == "tokenizer":
                shutil.rmtree(mixed / part)
                shutil.copytree(tmp_path / "mean" / part, mixed / part)
            else:
                shutil.copy(tmp_path / "mean" / part, mixed / part)
            state_what_is_there(mixed)
            with pytest.raises(ModelFolderError, match=message):
                TextEncoder.load(mixed)

    def test_foreign_folders_are_refused(self, bases: dict[str, Path], tmp_path: Path) -> None:
        with pytest.raises(ModelFolderError, match=r"is not the config of a railsearch text encoder"):
            TextEncoder.load(bases["bert"])
        with pytest.raises(ModelFolderError, match=r"does not exist"):
            TextEncoder.load(tmp_path / "none")
        encoder = make_encoder(bases["bert"])
        with pytest.raises(InvalidInputError, match=r"already exists"):
            encoder.save(tmp_path)
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(InvalidInputError, match=r"will not be replaced"):
            encoder.save(tmp_path, overwrite=True)
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_our_own_folder_is_replaced_when_asked(self, bases: dict[str, Path], tmp_path: Path) -> None:
        make_encoder(bases["bert"]).save(tmp_path / "model")
        encoder = make_encoder(bases["gpt2"])
        encoder.save(tmp_path / "model", overwrite=True)
        loaded = TextEncoder.load(tmp_path / "model")
        assert_same(loaded.encode(TEXTS, Side.QUERY), encoder.encode(TEXTS, Side.QUERY))
        assert {path.name for path in tmp_path.iterdir()} == {"model"}

    def test_a_failed_save_leaves_what_was_there(
        self, bases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        encoder = make_encoder(bases["bert"])
        encoder.save(tmp_path / "model")

        def fail(*_: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr("safetensors.torch.save_file", fail)
        with pytest.raises(StorageError, match=r"disk full.*nothing was changed"):
            encoder.save(tmp_path / "model", overwrite=True)
        monkeypatch.undo()
        assert_same(TextEncoder.load(tmp_path / "model").encode(TEXTS, Side.QUERY), encoder.encode(TEXTS, Side.QUERY))


def state_what_is_there(folder: Path) -> None:
    """Make config.json state the files as they are, as if such a folder had been saved."""
    import dataclasses

    import xxhash

    from railsearch.foundation.files import describe

    config = json.loads((folder / "config.json").read_text())
    del config["checksum"]
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "config.json"]
    config["files"] = {path.relative_to(folder).as_posix(): dataclasses.asdict(describe(path)) for path in files}
    config["checksum"] = xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True).encode())
    (folder / "config.json").write_text(json.dumps(config))


class TestBase:
    def test_a_name_on_the_hub_is_not_downloaded(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        import socket

        def fail(*_: object, **__: object) -> None:
            raise AssertionError("the network was used")

        monkeypatch.setattr(socket.socket, "connect", fail)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(ModelFolderError, match=r"allow_download=True"):
            TextEncoder.from_pretrained(TextEncoderConfig(base="nobody/nothing"))

    def test_a_download_that_fails_says_so(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked = {}

        def fail(name: str, **options: object) -> str:
            asked.update(options, name=name)
            raise OSError("no route")

        monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
        with pytest.raises(DownloadError, match=r"nobody/nothing.*no route"):
            TextEncoder.from_pretrained(TextEncoderConfig(base="nobody/nothing"), allow_download=True)
        assert asked["local_files_only"] is False
        assert "*.bin" not in asked["allow_patterns"]

    def test_a_folder_within_a_package_is_found_without_importing_it(
        self, bases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "some_tiny_model"
        shutil.copytree(bases["bert"], package / "model")
        (package / "model" / "1_Pooling").mkdir()
        (package / "model" / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
        (package / "__init__.py").write_text("raise RuntimeError('imported')")
        monkeypatch.syspath_prepend(tmp_path)
        encoder = make_encoder("package:some_tiny_model")
        assert_same(encoder.encode(TEXTS, Side.QUERY), make_encoder(bases["bert"]).encode(TEXTS, Side.QUERY))
        assert "some_tiny_model" not in sys.modules
        shutil.copytree(bases["bert"], package / "other")
        with pytest.raises(InvalidInputError, match=r"holds 2 folders"):
            make_encoder("package:some_tiny_model")
        with pytest.raises(InvalidInputError, match=r"not installed; pip install no-such-model"):
            make_encoder("package:no_such_model")

    def test_pickled_weights_are_refused(self, bases: dict[str, Path], tmp_path: Path) -> None:
        folder = tmp_path / "pickled"
        shutil.copytree(bases["bert"], folder)
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        with pytest.raises(ModelFolderError, match=r"no safetensors weights: only pickled ones"):
            make_encoder(folder)

    def test_folders_that_hold_no_model_are_refused(self, bases: dict[str, Path], tmp_path: Path) -> None:
        with pytest.raises(ModelFolderError, match=r"config.json does not exist"):
            make_encoder(tmp_path)
        with pytest.raises(ModelFolderError, match=r"does not exist"):
            make_encoder(tmp_path / "none")
        make_encoder(bases["bert"]).save(tmp_path / "ours")
        with pytest.raises(ModelFolderError, match=r"TextEncoder.load"):
            make_encoder(tmp_path / "ours")
        shutil.copytree(bases["bert"], tmp_path / "cut")
        weights = tmp_path / "cut" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        with pytest.raises(ModelFolderError, match=r"cannot be read as a Hugging Face model"):
            make_encoder(tmp_path / "cut")

    def test_weights_that_are_missing_are_named(self, bases: dict[str, Path], tmp_path: Path) -> None:
        import safetensors.torch

        shutil.copytree(bases["bert"], tmp_path / "part")
        tensors = safetensors.torch.load_file(bases["bert"] / "model.safetensors")
        without_pooler = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
        safetensors.torch.save_file(without_pooler, tmp_path / "part" / "model.safetensors", {"format": "pt"})
        make_encoder(tmp_path / "part")  # nothing here needs it
        lost = without_pooler.popitem()[0]
        safetensors.torch.save_file(without_pooler, tmp_path / "part" / "model.safetensors", {"format": "pt"})
        with pytest.raises(ModelFolderError, match=f"lacks 1 weights.*{lost}"):
            make_encoder(tmp_path / "part")

    def test_a_whole_t5_gives_its_encoder(self, bases: dict[str, Path], tmp_path: Path) -> None:
        with quiet(import_transformers()):
            whole = transformers.T5ForConditionalGeneration(transformers.AutoConfig.from_pretrained(bases["t5"]))
            whole.encoder.load_state_dict(transformers.T5EncoderModel.from_pretrained(bases["t5"]).encoder.state_dict())
            whole.save_pretrained(tmp_path)
            transformers.AutoTokenizer.from_pretrained(bases["t5"]).save_pretrained(tmp_path)
        found = make_encoder(tmp_path).encode(TEXTS, Side.QUERY)
        assert_same(found, make_encoder(bases["t5"]).encode(TEXTS, Side.QUERY))

    def test_a_model_that_needs_a_decoder_is_refused(self, bases: dict[str, Path], tmp_path: Path) -> None:
        sizes = {"d_model": DIM, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "encoder_layers": 1, "decoder_layers": 1}
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
        with quiet(import_transformers()):
            config = transformers.BartConfig(vocab_size=30, max_position_embeddings=POSITIONS, **sizes, **heads)
            transformers.BartModel(config).save_pretrained(tmp_path)
            transformers.AutoTokenizer.from_pretrained(bases["bert"]).save_pretrained(tmp_path)
        with pytest.raises(InvalidInputError, match=r"BartModel cannot encode text.*decoder-only model"):
            make_encoder(tmp_path)

    def test_transformers_is_as_loud_as_before(
        self, bases: dict[str, Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = transformers.utils.logging
        before = log.get_verbosity(), log.is_progress_bar_enabled()
        make_encoder(bases["bert"])
        assert (log.get_verbosity(), log.is_progress_bar_enabled()) == before
        captured = capsys.readouterr()
        assert captured.out + captured.err == ""


class TestSettings:
    @every_kind
    def test_no_longer_than_the_model(self, kind: str, bases: dict[str, Path]) -> None:
        longest = None if kind == "t5" else POSITIONS
        assert count_positions(load_backbone(bases[kind])) == longest
        encoder = make_encoder(bases[kind], max_passage_length=POSITIONS)
        assert encoder.encode(["the cat " * 50], Side.PASSAGE).shape == (1, 2, DIM)
        if longest is not None:
            with pytest.raises(InvalidInputError, match=f"max_passage_length is {longest + 1} but .* takes {longest} "):
                make_encoder(bases[kind], max_passage_length=longest + 1)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"pooling": "mean", "num_query_components": 4, "num_item_components": 1}, "returns one component.* is 4"),
            ({"pooling": "max"}, "'tokens', 'parameterised', 'multi', 'merged', 'mean', 'own' or 'windows'"),
            ({"token_place": "middle"}, "'front' or 'end'"),
            ({"num_query_components": 0}, "num_query_components is 0"),
            (
                {"max_query_length": 5},
                "max_query_length is 5 but special and aggregation tokens take 5; ask for at least 6",
            ),
            ({"seed": -1}, "seed is -1"),
        ],
    )
    def test_what_cannot_work_is_refused(
        self, options: dict[str, object], message: str, bases: dict[str, Path]
    ) -> None:
        with pytest.raises(RailsearchError, match=message):
            make_encoder(bases["bert"], **options)

    def test_names_of_aggregation_tokens_must_be_free(self, bases: dict[str, Path], tmp_path: Path) -> None:
        shutil.copytree(bases["bert"], tmp_path / "taken")
        tokenizer = transformers.AutoTokenizer.from_pretrained(bases["bert"])
        tokenizer.add_tokens(["[X2]"], special_tokens=True)
        tokenizer.save_pretrained(tmp_path / "taken")
        with pytest.raises(InvalidInputError, match=r"already has \[X2\]"):
            make_encoder(tmp_path / "taken")
