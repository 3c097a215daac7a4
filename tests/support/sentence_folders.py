"""Folders in the layout of sentence-transformers, written by hand, and their embeddings by a plain reference."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from tests.support.tiny_text import make_base

LIBRARY = "sentence_transformers.models"
DIM = 16


def make_sentence_folder(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    layers: list[dict[str, Any]] | None = None,
    inner: str = "",
    transformer: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
) -> Path:
    """Write a tiny BERT with a pooling and layers after it.

    Args:
        folder: a new folder.
        pooling: the config of the pooling; by default the mean, as old versions of the library write it.
        layers: modules after the pooling: their type, the other entries of their config, and their weights.
        inner: the folder of the language model within it; empty for the folder itself.
        transformer: the content of sentence_bert_config.json.
        settings: the content of config_sentence_transformers.json.
    """
    make_base(folder / inner)
    modules = [("Transformer", inner), ("Pooling", "1_Pooling")]
    (folder / "1_Pooling").mkdir()
    own = pooling or {"word_embedding_dimension": DIM, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(own))
    for number, layer in enumerate(layers or [], start=2):
        path = folder / f"{number}_{layer['type']}"
        path.mkdir()
        modules.append((layer["type"], path.name))
        (path / "config.json").write_text(json.dumps(layer.get("config", {})))
        if "weights" in layer:
            safetensors.torch.save_file(layer["weights"], path / "model.safetensors")
    listed = [
        {"idx": row, "name": str(row), "path": path, "type": f"{LIBRARY}.{kind}"}
        for row, (kind, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    if transformer is not None:
        (folder / inner / "sentence_bert_config.json").write_text(json.dumps(transformer))
    if settings is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def dense(
    in_features: int, out_features: int, *, activation: str = "torch.nn.modules.activation.Tanh"
) -> dict[str, Any]:
    """Return a dense layer with random weights."""
    generator = torch.Generator().manual_seed(in_features + out_features)
    return {
        "type": "Dense",
        "config": {
            "in_features": in_features,
            "out_features": out_features,
            "bias": True,
            "activation_function": activation,
        },
        "weights": {
            "linear.weight": torch.randn(out_features, in_features, generator=generator) / 4,
            "linear.bias": torch.randn(out_features, generator=generator),
        },
    }


@torch.no_grad()
def outputs_of(folder: Path, text: str) -> Tensor:
    """Return the outputs (n, D) of the language model for one text, without padding."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    found: Tensor = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).last_hidden_state[0]
    return found
