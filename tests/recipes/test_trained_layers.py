"""Training of the top layers: the same outputs and gradients as in the complete model, and frozen weights stay."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from railsearch import TextRetriever
from railsearch.encoders import Side, TextEncoder, training_top
from railsearch.encoders.text.top_layers import LowerOutputs
from railsearch.errors import InvalidInputError
from railsearch.recipes import TextTrainingConfig
from tests.support.tiny_text import PAIRS, make_base, make_data, make_recipe, make_retriever

pytest.importorskip("transformers")

NUM_LAYERS = 3
PLENTY = 2**30
SINGLE = {"num_query_components": 1, "num_item_components": 1, "pooling": "mean"}
TEXTS = [passage for _, passage in PAIRS] + ["w1", "end w1 w2 w3 w4 w5"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert", num_layers=NUM_LAYERS)


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert", num_layers=NUM_LAYERS, dropout=0.3)


def weights_of(encoder: TextEncoder) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in encoder.backbone.named_parameters()}


def is_top(name: str, trained_layers: int) -> bool:
    return any(name.startswith(f"encoder.layer.{NUM_LAYERS - 1 - place}.") for place in range(trained_layers))


def fit(base: Path, folder: Path | None = None, *, epochs: int = 2, **options: object) -> TextRetriever:
    training = {"epochs": epochs, "batch_size": 5, "learning_rate": 0.01, "schedule": "constant", "warmup_share": 0}
    encoder = {name: options.pop(name) for name in ("similarity", "shares_backbone", *SINGLE) if name in options}
    recipe = make_recipe(base, TextTrainingConfig(**training, **options), **encoder)
    return TextRetriever.fit(make_data(), recipe, folder=folder, show_progress=False)


@pytest.mark.parametrize("pooling", ["multi", "parameterised", "mean", "windows"])
@pytest.mark.parametrize("trained_layers", [0, 1, 2])
def test_outputs_and_gradients_are_those_of_the_complete_model(base: Path, trained_layers: int, pooling: str) -> None:
    counts = {**SINGLE, "pooling": pooling} if pooling in {"mean", "windows"} else {"pooling": pooling}
    encoder = make_retriever(base, **counts).model.encoder
    tokens = encoder.tokenize(TEXTS, Side.QUERY)
    direction = torch.randn(encoder(tokens, Side.QUERY).shape, generator=torch.Generator().manual_seed(0))

    def run() -> tuple[Tensor, dict[str, Tensor | None]]:
        encoder.zero_grad()
        outputs = encoder(tokens, Side.QUERY)
        if outputs.requires_grad:
            (outputs * direction).sum().backward()
        return outputs.detach(), {name: weight.grad for name, weight in encoder.backbone.named_parameters()}

    expected, whole = run()
    with training_top(encoder, trained_layers, most_bytes=PLENTY):
        for _ in range(2):  # the second time, the outputs of frozen layers are those that were kept
            found, top = run()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            for name, gradient in top.items():
                if is_top(name, trained_layers):
                    torch.testing.assert_close(gradient, whole[name], rtol=1e-3, atol=1e-4)
                else:
                    assert gradient is None
    assert all(weight.requires_grad for weight in encoder.parameters())
    assert torch.equal(run()[0], expected)


@pytest.mark.parametrize("shares_backbone", [True, False])
def test_training_moves_the_top_layers_alone(base: Path, shares_backbone: bool) -> None:
    before = weights_of(make_retriever(base).model.encoder)
    trained = fit(base, trained_layers=1, shares_backbone=shares_backbone, **SINGLE).model.encoder
    assert (trained.passage_backbone is None) == shares_backbone
    for backbone in (trained.backbone, trained.passage_backbone or trained.backbone):
        for name, weight in backbone.named_parameters():
            assert torch.equal(weight, before[name]) != is_top(name, 1), name
    assert all(weight.requires_grad for weight in trained.parameters())


def test_a_model_without_trained_layers_learns_its_pooling_and_similarity(base: Path) -> None:
    before = make_retriever(base, **SINGLE).model
    after = fit(base, trained_layers=0, **SINGLE).model
    kept = weights_of(before.encoder)
    assert all(torch.equal(weight, kept[name]) for name, weight in weights_of(after.encoder).items())
    first, last = before.similarity.state_dict(), after.similarity.state_dict()
    assert any(not torch.equal(first[name], last[name]) for name in first)


def test_kept_outputs_change_nothing(dropping: Path) -> None:
    kept = fit(dropping, trained_layers=1, **SINGLE).model
    again = fit(dropping, trained_layers=1, kept_outputs_gib=0, **SINGLE).model
    for name, weight in kept.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def test_a_run_that_resumes_has_the_same_weights(dropping: Path, tmp_path: Path) -> None:
    straight = fit(dropping, trained_layers=1, **SINGLE).model
    fit(dropping, tmp_path, epochs=1, trained_layers=1, **SINGLE)
    resumed = fit(dropping, tmp_path, trained_layers=1, **SINGLE).model
    for name, weight in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight), name


def test_memory_is_bounded_and_texts_are_kept_once() -> None:
    store = LowerOutputs(most_bytes=100)
    store.keep([1, 2], torch.ones(2, 8))
    store.keep([1, 2], torch.zeros(2, 8))
    store.keep([3, 4], torch.ones(2, 8))
    assert store.num_bytes == 64
    assert torch.equal(store.get([1, 2]), torch.ones(2, 8))  # type: ignore[arg-type]
    assert store.get([3, 4]) is None


def test_what_cannot_be_trained_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"trained_layers is 3 but BertModel has 3 layers; set fewer"):
        fit(base, trained_layers=3, **SINGLE)
    with pytest.raises(InvalidInputError, match="pooling is tokens, which trains embeddings below all layers"):
        fit(base, trained_layers=1, pooling="tokens")
    with pytest.raises(InvalidInputError, match="nothing to train; train at least one layer, or use a mixture"):
        fit(base, trained_layers=0, similarity={"kind": "cosine"}, **SINGLE)
    t5 = make_base(tmp_path / "t5", kind="t5", num_layers=2)
    with pytest.raises(InvalidInputError, match=r"layers of T5EncoderModel cannot run apart .*; omit trained_layers"):
        fit(t5, trained_layers=1, **SINGLE)
