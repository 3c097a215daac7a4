"""The start of a text encoder: what its settings leave to the folder of the pretrained model."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from railsearch.encoders.text.backbone import load_tokenizer
from railsearch.encoders.text.pretrained import add_lowercasing
from railsearch.encoders.text.sentence_folder import is_sentence_folder, read_sentence_folder
from railsearch.encoders.text.sentence_head import SentenceHead, SentenceHeadConfig
from railsearch.encoders.text.settings import Pooling, Side, TextEncoderConfig

if TYPE_CHECKING:
    from railsearch.encoders.text.pretrained import PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

PROMPTS = ("query_prompt", "passage_prompt")
"""Settings that a sentence-transformers folder may state."""
HEAD = "head."
"""Prefix of the weights of a head in a text encoder."""


@dataclass(frozen=True, slots=True, eq=False)
class TextStart:
    """Where a text encoder starts: the language model, its tokenizer, and settings without open choices."""

    backbone: Path
    tokenizer: "PreTrainedTokenizerFast"
    settings: TextEncoderConfig
    head: SentenceHeadConfig | None = None
    weights: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def build_head(self, dim: int) -> SentenceHead | None:
        """Return pooling and layers for outputs of `dim` values; None if the settings pool otherwise."""
        return None if self.head is None else SentenceHead(self.head, dim=dim, weights=self.weights)


def read_start(folder: Path, settings: TextEncoderConfig) -> TextStart:
    """Read the tokenizer of a folder, and decide what the settings leave open.

    `Pooling.OWN` remains only for a sentence-transformers folder that does more than take the mean.
    """
    if not is_sentence_folder(folder):
        pooling = Pooling.MEAN if settings.pooling is Pooling.OWN else settings.pooling
        return TextStart(folder, load_tokenizer(folder), settings.model_copy(update={"pooling": pooling}))
    found = read_sentence_folder(folder)
    tokenizer = load_tokenizer(found.backbone)
    if found.lowers:
        add_lowercasing(tokenizer)
    settings = with_prompts(settings, found.prompts)
    if settings.pooling not in {Pooling.OWN, Pooling.WINDOWS} or settings.pools_late:
        return TextStart(found.backbone, tokenizer, settings)
    settings = _with_lengths(settings, min(found.max_length or tokenizer.model_max_length, tokenizer.model_max_length))
    if found.head.is_mean:
        pooling = Pooling.MEAN if settings.pooling is Pooling.OWN else settings.pooling
        return TextStart(found.backbone, tokenizer, settings.model_copy(update={"pooling": pooling}))
    return TextStart(found.backbone, tokenizer, settings, found.head, found.weights)


def saved_head(config: SentenceHeadConfig | None, tensors: Mapping[str, Tensor], *, dim: int) -> SentenceHead | None:
    """Return the head of a saved encoder, from all its tensors."""
    if config is None:
        return None
    own = {name.removeprefix(HEAD): tensor for name, tensor in tensors.items() if name.startswith(HEAD)}
    return SentenceHead(config, dim=dim, weights=own)


def with_prompts(settings: TextEncoderConfig, prompts: Mapping[Side, str]) -> TextEncoderConfig:
    """Return settings that have these prompts, unless they state their own."""
    stated = dict(zip(PROMPTS, (prompts[side] for side in (Side.QUERY, Side.PASSAGE)), strict=True))
    open_choices = {name: text for name, text in stated.items() if text and getattr(settings, name) is None}
    return settings.model_copy(update=open_choices)


def _with_lengths(settings: TextEncoderConfig, longest: int) -> TextEncoderConfig:
    """Return settings that cut texts where the folder does, if that is earlier."""
    lengths = {f"max_{side}_length": min(settings.max_length(side), longest) for side in Side}
    cut = settings.model_copy(update=lengths)
    for name, length in lengths.items():
        if length < (asked := getattr(settings, name)):
            is_own_choice = name in settings.model_fields_set
            level = logging.WARNING if is_own_choice else logging.INFO
            logger.log(
                level, "%s is %d but %s takes %d tokens; longer texts are cut there", name, asked, settings.base, length
            )
    return cut
