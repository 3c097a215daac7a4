"""The pretrained model behind a text encoder: loaded from a folder or built anew, and what has to be known of it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from railsearch.encoders.text.pretrained import import_transformers, quiet
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.inputs import is_finite

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

ENCODER_CLASSES = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Of models that have a decoder too, which is of no use here."""
UNUSED_PART = "pooler"
"""A layer on top of the first position's output. Many published weights lack it, and it would be random then."""


def load_backbone(folder: Path) -> "PreTrainedModel":
    """Read a pretrained model, in fp32 on the CPU; only safetensors, and no code but that of transformers."""
    transformers = import_transformers()
    with quiet(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            backbone, report = _class_of(config).from_pretrained(
                folder, config=config, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
        except Exception as error:  # whatever transformers makes of a damaged folder
            raise ModelFolderError(
                f"{folder} cannot be read as a Hugging Face model ({_first_line(error)}); give another folder."
            ) from error
    lacking = sorted(name for name in report["missing_keys"] if UNUSED_PART not in name.split("."))
    if lacking or report["mismatched_keys"]:
        names = lacking or sorted(str(found) for found in report["mismatched_keys"])
        raise ModelFolderError(
            f"{folder} lacks {len(names)} weights of its model, or has them in another shape, the first is {names[0]}; "
            "give a folder whose weights belong to its config.json."
        )
    return _prepared(backbone)


def build_backbone(config: dict[str, Any]) -> "PreTrainedModel":
    """Build a model from its Hugging Face config, for weights that are put into it next."""
    transformers = import_transformers()
    with quiet(transformers), torch.random.fork_rng(devices=[]):  # first weights that nobody sees draw nothing
        known = type(transformers.AutoConfig.for_model(config["model_type"])).from_dict(config)
        backbone = _class_of(known)
        made = backbone.from_config(known) if hasattr(backbone, "from_config") else backbone(known)
    return _prepared(made)


def config_of(backbone: "PreTrainedModel") -> dict[str, Any]:
    """Give the Hugging Face config as plain JSON values, defaults too, which other versions may have otherwise."""
    config: dict[str, Any] = json.loads(backbone.config.to_json_string(use_diff=False))
    return config


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerFast":
    """Read a tokenizer; it must be one of the tokenizers library, as all are that have a tokenizer.json."""
    transformers = import_transformers()
    with quiet(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # whatever transformers makes of a damaged folder
            raise ModelFolderError(
                f"the tokenizer in {folder} cannot be read ({_first_line(error)}); give a folder with a tokenizer.json."
            ) from error
    if not tokenizer.is_fast:
        raise ModelFolderError(
            f"the tokenizer in {folder} is a {type(tokenizer).__name__} without a tokenizer.json; "
            "save it again as a fast tokenizer."
        )
    found: PreTrainedTokenizerFast = tokenizer
    return found


@torch.no_grad()
def is_causal(backbone: "PreTrainedModel") -> bool:
    """Whether a position sees only those before it: change the second of two tokens and look at the first."""
    vocabulary = vocabulary_table(backbone)  # (V, E)
    generator = Generator().manual_seed(0)
    first, one, other = torch.randn(3, vocabulary.shape[1], generator=generator) * vocabulary.std()  # (E,) each
    pairs = torch.stack([torch.stack([first, one]), torch.stack([first, other])])  # (2, 2, E)
    try:
        outputs = run(backbone, pairs, torch.ones(2, 2, dtype=torch.bool))[:, 0]  # (2, D)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            f"{type(backbone).__name__} cannot encode text from token embeddings ({_first_line(error)}); "
            "give an encoder or a decoder-only model."
        ) from error
    if not is_finite(outputs):
        raise ModelFolderError(f"the weights of this {type(backbone).__name__} give NaN or infinite outputs.")
    return torch.allclose(outputs[0], outputs[1], rtol=1e-5, atol=1e-7)


def run(backbone: "PreTrainedModel", embeddings: Tensor, is_real: Tensor) -> Tensor:
    """Give the output at every position (B, n, D) for token embeddings (B, n, E)."""
    outputs: Tensor = backbone(inputs_embeds=embeddings, attention_mask=is_real.long()).last_hidden_state
    return outputs


def vocabulary_table(backbone: "PreTrainedModel") -> Tensor:
    """Give the embedding of each token (V, E), as the pretrained model keeps it."""
    table = backbone.get_input_embeddings().weight
    assert isinstance(table, Tensor)
    return table


def count_positions(backbone: "PreTrainedModel") -> int | None:
    """How many tokens the model takes at most; None where positions are relative and without end."""
    for name, module in backbone.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # MPNet and RoBERTa number positions from the one after that of padding.
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    count = getattr(backbone.config, "max_position_embeddings", None)
    return count if isinstance(count, int) and count > 0 else None


def _class_of(config: "PretrainedConfig") -> Any:
    transformers = import_transformers()
    return getattr(transformers, ENCODER_CLASSES.get(config.model_type, "AutoModel"))


def _prepared(backbone: "PreTrainedModel") -> "PreTrainedModel":
    if isinstance(getattr(backbone, UNUSED_PART, None), nn.Module):
        setattr(backbone, UNUSED_PART, None)
    backbone.config.use_cache = False  # decoders would keep keys and values for a next token that never comes
    backbone.float()  # type: ignore[no-untyped-call]
    return backbone


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
