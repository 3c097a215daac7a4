"""Folders that sentence-transformers wrote itself: step 0 equals its own `encode`."""

from pathlib import Path

import pytest
import torch

from railsearch import TextRetriever
from railsearch.encoders import Side
from railsearch.recipes import CosineConfig, TextRecipe
from tests.support.tiny_text import PAIRS, make_base

library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

TEXTS = [text for pair in PAIRS[:6] for text in pair] + ["w1 " * 40]


def save_model(folder: Path, mode: str | tuple[str, ...], layers: list[object], **options: object) -> object:
    """Let the library write a folder, and return its model."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(make_base(folder / "base")))
    transformer.max_seq_length = 12
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode=mode)
    model = library.SentenceTransformer(modules=[transformer, pooling, *layers], device="cpu", **options)
    model.save(str(folder / "saved"))
    return model


def retriever_of(folder: Path) -> TextRetriever:
    encoder = {"base": str(folder / "saved"), "max_query_length": 30, "max_passage_length": 30}
    return TextRetriever(TextRecipe(encoder=encoder, similarity=CosineConfig()))


@pytest.mark.parametrize(
    "mode", ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "max")]
)
def test_every_pooling(mode: str | tuple[str, ...], tmp_path: Path) -> None:
    model = save_model(tmp_path, mode, [])
    encoder = retriever_of(tmp_path).model.encoder
    found = encoder.encode(TEXTS, Side.PASSAGE, show_progress=False)[:, 0]
    expected = torch.from_numpy(model.encode(TEXTS, show_progress_bar=False))  # type: ignore[attr-defined]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_dense_layers_and_normalisation(tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Normalize

    torch.manual_seed(0)
    layers = [
        Dense(16, 16, use_residual=True), Normalize(), Dense(16, 8, activation_function=torch.nn.GELU()), LayerNorm(8),
        Dense(8, 6, bias=False, activation_function=None, use_residual=True), Normalize(),
    ]  # fmt: skip
    model = save_model(tmp_path, "mean", layers)
    retriever = retriever_of(tmp_path)
    retriever.build_index(TEXTS, show_progress=False)
    result = retriever.search(TEXTS, k=len(TEXTS))
    vectors = torch.from_numpy(model.encode(TEXTS, show_progress_bar=False))  # type: ignore[attr-defined]
    expected = (vectors @ vectors.t()).gather(1, result.ids) / 0.05
    torch.testing.assert_close(result.scores, expected, rtol=1e-3, atol=1e-3)
    retriever.save(tmp_path / "model")
    loaded = TextRetriever.load(tmp_path / "model")
    torch.testing.assert_close(loaded.encode_queries(TEXTS[:2]), retriever.encode_queries(TEXTS[:2]))


def test_prompts(tmp_path: Path) -> None:
    model = save_model(tmp_path, "mean", [], prompts={"query": "who ", "document": "it is "})
    retriever = retriever_of(tmp_path)
    texts = [text for text in TEXTS if len(text) < 40]
    for found, expected in (
        (retriever.encode_queries(texts), model.encode_query(texts)),  # type: ignore[attr-defined]
        (retriever.encode_passages(texts), model.encode_document(texts)),  # type: ignore[attr-defined]
    ):
        torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-4, atol=1e-5)
