"""A retriever over windows: it starts as its encoder, and trains with a gradient that does not depend on passes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch import TextRetriever
from railsearch.encoders import Side
from railsearch.encoders.text import batches
from railsearch.foundation import progress
from railsearch.foundation.errors import InvalidInputError
from railsearch.recipes import CosineConfig
from railsearch.similarity import MixtureOfLogits
from railsearch.similarity.gate_start import start_at_best, start_even
from railsearch.text_retriever.recipe import continue_model
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


def test_a_gate_too_small_for_its_components_is_refused() -> None:
    similarity = MixtureOfLogits.around(dim=4, cosine=True, gate_inputs=["pair"], gate_dim=7)
    with pytest.raises(InvalidInputError, match=r"gate_dim is 7 .* 4 item components .*set gate_dim to 8"):
        start_at_best(similarity, sharpness=1.0)
    start_even(similarity)
    weights = similarity.eval().gate(torch.randn(2, 3, 16), None, None)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 16))


@pytest.mark.parametrize("rows_per_pass", [1, 3, None])
def test_the_gradient_does_not_depend_on_the_passes(base: Path, rows_per_pass: int | None) -> None:
    encoder = make_windows(base).model.encoder.train()

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
