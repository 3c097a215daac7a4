"""A retriever over windows: it starts as its encoder, and trains with a gradient that does not depend on passes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch import TextRetriever, TwoPass
from railsearch.encoders import Side, TextEncoderConfig
from railsearch.encoders.text import batches
from railsearch.encoders.text.merging import cluster_alike, group_neighbours
from railsearch.foundation import progress
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import TextModel
from railsearch.recipes import CosineConfig, TextRecipe, TextTrainingConfig
from railsearch.similarity import LateInteraction, MixtureOfLogits
from railsearch.similarity.gate_start import start_at_best, start_even
from railsearch.text_retriever.continuing import continue_model
from railsearch.training.windows import WindowedEncoding
from tests.support.tiny_text import WORDS, make_base, make_retriever

LONG = [" ".join(WORDS[first:] + WORDS[:first]) for first in (0, 7, 19)]
SHORT = ["it is w3 end", "w1 w2", "who"]
QUESTIONS = ["who w3", "w21 w22 w23", "w9 w10"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


def make_windows(base: Path, **options: object) -> TextRetriever:
    return make_retriever(
        base, **{"pooling": "windows", "num_query_components": 1, "num_item_components": 4, **options}
    )


def cosines(base: Path, questions: list[str], passages: list[str]) -> Tensor:
    encoder = make_retriever(base, pooling="mean", num_query_components=1, num_item_components=1).model.encoder
    queries, items = encoder.encode(questions, Side.QUERY)[:, 0], encoder.encode(passages, Side.PASSAGE)[:, 0]
    return F.cosine_similarity(queries[:, None], items, dim=-1)


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 20.0])
def test_a_text_that_fits_one_window_starts_as_the_cosine_of_the_encoder(base: Path, sharpness: float) -> None:
    similarity = {"kind": "mixture_of_logits", "window_sharpness": sharpness}
    model = make_windows(base, similarity=similarity).model
    scores = model.similarity.score(model.query_parts(QUESTIONS), model.item_parts(SHORT))
    torch.testing.assert_close(scores, cosines(base, QUESTIONS, SHORT) / 0.05, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"num_query_components": 1, "num_item_components": 1},
        {"num_query_components": 1, "num_item_components": 1, "similarity": CosineConfig()},
        {"pooling": "windows", "num_query_components": 1, "num_item_components": 1, "similarity": CosineConfig()},
        {"pooling": "windows", "num_query_components": 1, "num_item_components": 1},
    ],
    ids=str,
)
def test_one_embedding_for_each_text_starts_as_the_cosine(base: Path, options: dict[str, object]) -> None:
    model = make_retriever(base, **options).model
    scores = model.similarity.score(model.query_parts(QUESTIONS), model.item_parts(SHORT))
    torch.testing.assert_close(scores, cosines(base, QUESTIONS, SHORT) / 0.05, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 50.0])
def test_a_long_text_starts_as_a_softmax_over_its_windows(base: Path, sharpness: float) -> None:
    retriever = make_windows(base, similarity={"kind": "mixture_of_logits", "window_sharpness": sharpness})
    model = retriever.model
    queries = model.encoder.encode(QUESTIONS, Side.QUERY)[:, 0]  # (B, D)
    windows = model.encoder.encode(LONG, Side.PASSAGE)  # (N, 4, D)
    found = F.cosine_similarity(queries[:, None, None], windows[None], dim=-1) / 0.05  # (B, N, 4)
    expected = ((sharpness * found).softmax(dim=-1) * found).sum(dim=-1)  # (B, N)
    scores = model.similarity.score(model.query_parts(QUESTIONS), model.item_parts(LONG))
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-2)
    assert repr(retriever).endswith("4 x 4 components)")


LATE = {
    "window_components": 3,
    "num_query_components": 2,
    "num_item_components": 12,
    "first_spread": 0.0,
    "similarity": {"kind": "late_interaction"},
}


def wake(model: TextModel) -> TextModel:
    """Give the weights that start at zero other values, so that components differ."""
    generator = Generator().manual_seed(1)
    with torch.no_grad():
        for pooling in model.encoder.poolings.values():
            pooling.change.weight.copy_(torch.randn(pooling.change.weight.shape, generator=generator))
    return model


def means_of_clusters(vectors: Tensor, count: int) -> Tensor:
    clusters = cluster_alike(vectors, count)
    own = [[vector for vector, cluster in zip(vectors, clusters, strict=True) if cluster == c] for c in range(count)]
    return torch.stack([torch.stack(members).mean(dim=0) for members in own])


def test_late_interaction_of_windows_starts_as_the_cosine_of_the_encoder(base: Path) -> None:
    retriever = make_windows(base, **LATE)
    assert repr(retriever).endswith("2 x 12 components)")
    model = retriever.model
    assert isinstance(model.similarity, LateInteraction)
    scores = model.similarity.score(model.query_parts(QUESTIONS), model.item_parts(SHORT))
    torch.testing.assert_close(scores, cosines(base, QUESTIONS, SHORT) / 0.05, rtol=1e-4, atol=1e-3)


def test_a_text_that_fits_one_window_has_the_components_of_merged_pooling(base: Path) -> None:
    windows = wake(make_windows(base, **{**LATE, "num_item_components": 6}).model)
    merged = make_retriever(base, pooling="merged", num_query_components=2, num_item_components=3).model
    merged.encoder.poolings.load_state_dict(windows.encoder.poolings.state_dict())
    for side in Side:
        expected = merged.encoder.encode(SHORT, side)  # (N, P, D)
        found = windows.encoder.encode(SHORT, side)
        twice = expected.repeat(1, 2, 1) if side is Side.PASSAGE else expected  # the only window stands for both
        torch.testing.assert_close(found, twice, rtol=1e-5, atol=1e-5)


def test_components_of_a_long_text_are_those_of_its_windows_one_by_one(base: Path) -> None:
    encoder = wake(make_windows(base, **LATE).model).encoder
    found = encoder.encode_windows(LONG)
    for text, components, spans in zip(LONG, found.components, found.spans.tolist(), strict=True):
        windows = encoder.tokenize_windows([text])[0]
        own = torch.cat([encoder([window.ids], Side.PASSAGE).detach() for window in windows])  # (W, 3, D)
        groups = group_neighbours(own.mean(dim=1), 4)
        assert len(windows) > len(groups) == 4
        expected = torch.cat([means_of_clusters(own[first:last].flatten(0, 1), 3) for first, last in groups])
        torch.testing.assert_close(components, expected, rtol=1e-5, atol=1e-5)
        assert spans[0][0] == 0
        assert spans[-1][1] == len(text)
        assert spans == sorted(spans)
        assert len({tuple(span) for span in spans}) == 4


def test_late_interaction_of_windows_is_trained_saved_and_searched_exactly(base: Path, tmp_path: Path) -> None:
    pairs = [("who w3", LONG[0]), ("w21 w22 w23", LONG[1]), ("w9 w10", LONG[2]), ("it is w3", "it is w3 end")]
    training = TextTrainingConfig(epochs=2, batch_size=2)
    recipe = make_windows(base, **LATE).recipe.model_copy(update={"training": training})
    trained = TextRetriever.fit(pairs, recipe, show_progress=False)
    trained.save(tmp_path / "model")
    loaded = TextRetriever.load(tmp_path / "model")
    assert loaded.fingerprint == trained.fingerprint
    passages = [passage for _, passage in pairs]
    loaded.build_index(passages)
    result = loaded.search(QUESTIONS, k=4, strategy=TwoPass())
    scores = loaded.model.similarity.score(loaded.model.query_parts(QUESTIONS), loaded.model.item_parts(passages))
    torch.testing.assert_close(result.scores, scores.sort(dim=1, descending=True).values, rtol=1e-4, atol=1e-3)
    assert result.is_exact.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_components": 1, "num_query_components": 2}, "set window_components to 2 or more"),
        ({"window_components": 3, "num_item_components": 8}, "8, which is not a multiple of window_components = 3"),
        ({"pooling": "multi", "window_components": 2}, "window_components is 2 but pooling is multi"),
        ({"window_components": 0}, "window_components"),
        ({"window_components": True}, "window_components"),
    ],
    ids=str,
)
def test_components_of_windows_that_cannot_be_are_refused(base: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_windows(base, **options)


def test_the_numbers_of_components_have_defaults(base: Path) -> None:
    several = TextEncoderConfig(base=str(base), pooling="windows", window_components=4)
    assert (several.num_query_components, several.num_item_components, several.first_spread) == (16, 8, 0.5)
    one = TextEncoderConfig(base=str(base), pooling="windows")
    kinds = [TextRecipe(encoder=encoder).similarity.kind for encoder in (several, several.model_dump(), one)]
    assert kinds == ["late_interaction", "late_interaction", "mixture_of_logits"]
    assert (one.num_query_components, one.num_item_components, one.first_spread) == (1, 8, 0)


def test_a_gate_too_small_for_its_components_is_refused() -> None:
    similarity = MixtureOfLogits.around(dim=4, cosine=True, gate_inputs=["pair"], gate_dim=7)
    with pytest.raises(InvalidInputError, match=r"gate_dim is 7 .* 4 item components .*set gate_dim to 8"):
        start_at_best(similarity, sharpness=1.0)
    start_even(similarity)
    weights = similarity.eval().gate(torch.randn(2, 3, 16), None, None)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 16))


@pytest.mark.parametrize("options", [{}, LATE], ids=["one", "several"])
@pytest.mark.parametrize("rows_per_pass", [1, 3, None])
def test_the_gradient_does_not_depend_on_the_passes(
    base: Path, rows_per_pass: int | None, options: dict[str, object]
) -> None:
    encoder = wake(make_windows(base, **options).model).encoder.train()

    def gradient(rows: int | None) -> dict[str, Tensor]:
        encoder.zero_grad()
        encoding = WindowedEncoding(
            encoder, LONG, most_windows=99, rows_per_pass=rows, generator=Generator().manual_seed(0)
        )
        leaf = encoding.embeddings.requires_grad_()
        leaf.pow(2).sum().backward()
        assert leaf.grad is not None
        encoding.backward(leaf.grad)
        return {name: weight.grad.clone() for name, weight in encoder.named_parameters() if weight.grad is not None}

    whole, found = gradient(1000), gradient(rows_per_pass)
    assert whole.keys() == found.keys()
    for name in whole:
        torch.testing.assert_close(found[name], whole[name], rtol=1e-3, atol=1e-4)


def test_a_step_uses_a_sample_of_the_windows_of_a_very_long_passage(base: Path) -> None:
    encoder = make_windows(base, num_item_components=2).model.encoder
    rows = []
    forward = encoder.forward

    def counted(tokens: list[list[int]], side: Side) -> Tensor:
        rows.append(len(tokens))
        return forward(tokens, side)

    encoder.forward = counted  # type: ignore[method-assign]
    encoding = WindowedEncoding(
        encoder, [" ".join(WORDS * 30), "w1"], most_windows=5, rows_per_pass=2, generator=Generator().manual_seed(0)
    )
    assert encoding.embeddings.shape == (2, 2, encoder.dim)
    assert rows == [2, 2, 2]


@pytest.mark.parametrize("similarity", [CosineConfig(), {"kind": "mixture_of_logits"}], ids=["cosine", "mixture"])
def test_windows_follow_only_windows(base: Path, similarity: object) -> None:
    """With one component, the similarities of both would fit, and windows would be ignored."""
    counts = {"num_query_components": 1, "num_item_components": 1, "similarity": similarity}
    plain, windows = make_retriever(base, pooling="mean", **counts), make_windows(base, **counts)
    with pytest.raises(InvalidInputError, match="start has pooling mean but the recipe windows"):
        continue_model(plain.model, windows.recipe)
    with pytest.raises(InvalidInputError, match="start has pooling windows but the recipe mean"):
        continue_model(windows.model, plain.recipe)
    assert continue_model(windows.model, windows.recipe).encoder.has_windows


def one_by_one(lengths: Sequence[int], *, tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield batches of one text."""
    del tokens_per_batch
    yield from ([row] for row in range(len(lengths)))


@pytest.mark.parametrize("options", [{}, {"pooling": "mean", "num_item_components": 1}], ids=["windows", "mean"])
def test_a_build_shows_its_progress_between_batches_of_the_encoder(
    base: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], options: dict[str, object]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(batches, "batches_by_length", one_by_one)
    retriever = make_windows(base, **options)
    retriever.build_index(LONG)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) > 1
    assert lines[0].startswith("encoding passages: ")
    assert lines[-1] == "encoding passages: 3 of 3"
