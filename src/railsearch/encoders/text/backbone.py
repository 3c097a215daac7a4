"""The pretrained model inside a text encoder: how to load, build and run it, and its properties."""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import torch
from torch import Generator, Tensor, nn

from railsearch.encoders.text.pretrained import import_transformers, quiet
from railsearch.encoders.text.settings import Side, TextEncoderConfig
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.inputs import is_finite

if TYPE_CHECKING:
    from railsearch.encoders.text.pretrained import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

ENCODER_CLASSES = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Classes that load only the encoder of models that also have a decoder."""
UNUSED_PART = "pooler"
"""A layer on top of the first position's output. Many published weights lack it; it would then be random."""

REPEATED_PART = re.compile("layer|block|expert")
"""Names of settings that count parts, such as num_hidden_layers; each part has its own weights."""
MISSING_VALUES = 2**26
"""Values that published weights may lack, such as those of an unused part."""


def load_backbone(folder: Path) -> "PreTrainedModel":
    """Read a pretrained model in fp32 on the CPU, only from safetensors and without running code of the folder."""
    transformers = import_transformers()
    with quiet(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            check_sizes(config, **count_weights(folder))
            backbone, report = _class_of(config).from_pretrained(
                folder, config=config, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
        except ModelFolderError:
            raise
        except Exception as error:  # transformers raises many kinds for a damaged folder
            raise ModelFolderError(
                f"{folder} cannot be read as a Hugging Face model ({_first_line(error)}); give another folder."
            ) from error
    lacking = sorted(name for name in report["missing_keys"] if UNUSED_PART not in name.split("."))
    if lacking or report["mismatched_keys"]:
        names = lacking or sorted(str(found) for found in report["mismatched_keys"])
        raise ModelFolderError(
            f"{folder} lacks {len(names)} weights of its model, or has them in another shape, such as {names[0]}; "
            "give a folder whose weights belong to its config.json."
        )
    return _prepared(backbone)


def build_backbone(config: dict[str, Any], weights: Mapping[str, Tensor]) -> "PreTrainedModel":
    """Build a model from its Hugging Face config, for weights that are loaded next; refuse sizes that do not match."""
    transformers = import_transformers()
    # Drawing the unused initial weights must not advance the generator.
    with quiet(transformers), torch.random.fork_rng(devices=[]):
        kind = type(transformers.AutoConfig.for_model(config["model_type"]))
        known = kind.from_dict(dict(config))  # a copy: some versions change it
        check_sizes(known, num_tensors=len(weights), num_values=sum(tensor.numel() for tensor in weights.values()))
        return _prepared(_built(known))


def check_sizes(config: "PretrainedConfig", *, num_tensors: int, num_values: int) -> None:
    """Refuse a config that states a much larger model than its weights, before the model takes memory."""
    for name, size in config.to_dict().items():
        if REPEATED_PART.search(name) and isinstance(size, int) and size > max(num_tensors, 1):
            raise ModelFolderError(
                f"the config of the model states {name} {size} but there are {num_tensors} weights; restore it from a "
                "copy."
            )
    try:
        with torch.device("meta"):
            needed = sum(weight.numel() for weight in _built(config).parameters())
    except (RuntimeError, OverflowError) as error:
        raise ModelFolderError(f"the config of the model has absurd sizes ({_first_line(error)}).") from error
    if needed > num_values + MISSING_VALUES:
        raise ModelFolderError(
            f"the config of the model needs {needed:,} values but its weights have {num_values:,}; restore it from a "
            "copy."
        )


def count_weights(folder: Path) -> dict[str, int]:
    """Return the number of tensors and of values in the safetensors files of a folder, from their headers."""
    shapes = []
    for file in folder.glob("*.safetensors"):
        with safetensors.safe_open(file, framework="pt") as weights:
            shapes += [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    return {"num_tensors": len(shapes), "num_values": sum(math.prod(shape) for shape in shapes)}


def config_of(backbone: "PreTrainedModel") -> dict[str, Any]:
    """Return the Hugging Face config as JSON values, with the defaults, which differ between versions."""
    config: dict[str, Any] = json.loads(backbone.config.to_json_string(use_diff=False))
    return config


def _has_newer_class(folder: Path) -> bool:
    """Return whether transformers 5 wrote this tokenizer, under a class name that the installed version 4 lacks."""
    if hasattr(import_transformers(), "TokenizersBackend"):
        return False
    config = folder / "tokenizer_config.json"
    return config.is_file() and json.loads(config.read_text()).get("tokenizer_class") == "TokenizersBackend"


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerFast":
    """Read a tokenizer; it must be a fast one, which has a tokenizer.json."""
    transformers = import_transformers()
    with quiet(transformers):
        try:
            reader = transformers.PreTrainedTokenizerFast if _has_newer_class(folder) else transformers.AutoTokenizer
            tokenizer = reader.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # transformers raises many kinds for a damaged folder
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
    """Return True if a position sees only earlier ones: the second of two tokens does not change the first output."""
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
        raise ModelFolderError(
            f"the weights of this {type(backbone).__name__} produce NaN or infinite outputs; give another folder."
        )
    return torch.allclose(outputs[0], outputs[1], rtol=1e-5, atol=1e-7)


@contextlib.contextmanager
def eval_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Switch modules to eval mode, without dropout, while the context lasts."""
    modes = {module: module.training for module in modules}
    for module in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def run(backbone: "PreTrainedModel", embeddings: Tensor, is_real: Tensor) -> Tensor:
    """Return the output at every position (B, n, D) for token embeddings (B, n, E)."""
    outputs: Tensor = backbone(inputs_embeds=embeddings, attention_mask=is_real.long()).last_hidden_state
    return outputs


def vocabulary_table(backbone: "PreTrainedModel") -> Tensor:
    """Return the embedding of each token (V, E), as the pretrained model stores it."""
    table = backbone.get_input_embeddings().weight
    assert isinstance(table, Tensor)
    return table


def count_positions(backbone: "PreTrainedModel") -> int | None:
    """Return the most tokens that the model takes; None if positions are relative, without a limit."""
    for name, module in backbone.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # MPNet and RoBERTa number positions from the one after the padding position.
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    count = getattr(backbone.config, "max_position_embeddings", None)
    return count if isinstance(count, int) and count > 0 else None


def check_positions(settings: TextEncoderConfig, backbone: "PreTrainedModel") -> None:
    """Check that the model takes texts as long as the settings allow."""
    num_positions = count_positions(backbone)
    for side in Side:
        length = settings.max_length(side)
        if num_positions is not None and length > num_positions:
            raise InvalidInputError(
                f"max_{side}_length is {length} but {settings.base} takes {num_positions} tokens; "
                f"ask for max_{side}_length <= {num_positions}."
            )


def _built(config: "PretrainedConfig") -> "PreTrainedModel":
    kind = _class_of(config)
    built: PreTrainedModel = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    return built


def _class_of(config: "PretrainedConfig") -> Any:
    transformers = import_transformers()
    return getattr(transformers, ENCODER_CLASSES.get(config.model_type, "AutoModel"))


def _prepared(backbone: "PreTrainedModel") -> "PreTrainedModel":
    if isinstance(getattr(backbone, UNUSED_PART, None), nn.Module):
        setattr(backbone, UNUSED_PART, None)
    backbone.config.use_cache = False  # decoders would keep keys and values for a next token
    backbone.float()  # type: ignore[no-untyped-call]
    return backbone


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
