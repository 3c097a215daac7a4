"""Aggregation tokens: their names, their place in a text, and their initial embeddings (the paper's section 5)."""

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from railsearch.encoders.text.backbone import is_causal, vocabulary_table
from railsearch.encoders.text.settings import Pooling, Side, TextEncoderConfig, TokenPlace
from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from railsearch.encoders.text.pretrained import PreTrainedModel, PreTrainedTokenizerFast

LETTERS = {Side.QUERY: "Q", Side.PASSAGE: "X"}
FIRST_NOISE = 0.5
"""Noise of initial embeddings, as a share of the spread of the vocabulary. With 0.02, all components of a text were
still equal after 65 steps of MiniLM."""


def aggregation_names(settings: TextEncoderConfig) -> list[str]:
    """Return the names of the aggregation tokens, [Q1] .. [Qn] and [X1] .. [Xm], in the order of their ids."""
    if settings.pooling is not Pooling.TOKENS:
        return []
    return [f"[{LETTERS[side]}{number + 1}]" for side in Side for number in range(settings.num_components(side))]


def add_aggregation_tokens(tokenizer: "PreTrainedTokenizerFast", settings: TextEncoderConfig) -> None:
    """Add the aggregation tokens after the vocabulary of a pretrained model."""
    names = aggregation_names(settings)
    known = sorted(set(names) & tokenizer.get_vocab().keys())
    if known:
        raise InvalidInputError(
            f"the vocabulary of {settings.base} already has {known[0]}; give a pretrained model without railsearch's "
            "aggregation tokens, or another pooling."
        )
    if names:
        tokenizer.add_tokens(names, special_tokens=True)


def choose_place(settings: TextEncoderConfig, backbone: "PreTrainedModel") -> TokenPlace:
    """Return the place of aggregation tokens that the settings ask for, or that suits the model."""
    if not is_causal(backbone):
        return settings.token_place or TokenPlace.FRONT
    if settings.token_place is TokenPlace.FRONT:
        raise InvalidInputError(
            f'token_place is "front" but in {settings.base} a position sees only earlier ones, so tokens at the '
            'front would not see the text; use "end", or omit it.'
        )
    return TokenPlace.END


@torch.no_grad()
def first_embeddings(
    backbone: "PreTrainedModel", num_tokens: int, *, summary_id: int | None, generator: Generator
) -> Tensor:
    """Draw embeddings (num_tokens, E) near that of the model's summary token, or near the mean of its vocabulary."""
    vocabulary = vocabulary_table(backbone)  # (V, E)
    summary = None if summary_id is None else torch.tensor(summary_id)
    centre = vocabulary.mean(dim=0) if summary is None else backbone.get_input_embeddings()(summary)  # (E,)
    noise = torch.randn(num_tokens, vocabulary.shape[1], generator=generator)  # (num_tokens, E)
    return centre + FIRST_NOISE * vocabulary.std() * noise
