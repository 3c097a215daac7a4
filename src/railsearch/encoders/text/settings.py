"""Settings of a text encoder, defined only here, and the closed choices in them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import LARGEST_SIZE, Config


class Side(StrEnum):
    """The two kinds of texts that are encoded."""

    QUERY = "query"
    PASSAGE = "passage"


class Pooling(StrEnum):
    """Ways from the outputs of a model to components.

    tokens: the output of each aggregation token is one component; parameterised: each component is a weighted sum over
    positions, with weights that a small network computes (the paper's A.2); multi: each component begins as the mean
    and learns to see its own tokens by attention; merged: the same for a query, and each component of a passage begins
    as the mean and learns to be the mean of alike tokens; mean: the mean over positions is the only component; own: the
    only component is the embedding of a sentence-transformers folder, by its own pooling and layers, or else the mean;
    windows: a passage of any length is cut into overlapping windows, and each is encoded as with own.
    """

    TOKENS = "tokens"
    PARAMETERISED = "parameterised"
    MULTI = "multi"
    MERGED = "merged"
    MEAN = "mean"
    OWN = "own"
    WINDOWS = "windows"


LATE_POOLINGS = (Pooling.MULTI, Pooling.MERGED)
"""Poolings with many components that begin as the mean, which late interaction compares by default."""
WINDOW_COMPONENTS = 8
"""Components of a passage that is cut into windows, unless the settings say otherwise."""
MULTI_COUNTS = {"num_query_components": 8, "num_item_components": 16}
"""Components of late poolings that are not stated."""


def default_pooling(given: Mapping[str, object]) -> Pooling:
    """Return the pooling of settings that state none: both start as the cosine of the frozen encoder.

    >>> default_pooling({"num_item_components": 4}).value
    'multi'
    """
    return Pooling.OWN if all(given.get(name, 1) == 1 for name in MULTI_COUNTS) else Pooling.MULTI


class TokenPlace(StrEnum):
    """The place of aggregation tokens: in front if every position sees all others, else at the end."""

    FRONT = "front"
    END = "end"


class TextEncoderConfig(Config):
    """Settings of a text encoder: a pretrained language model, and how its outputs become components.

    >>> TextEncoderConfig(base="models/minilm").pooling.value
    'own'
    >>> TextEncoderConfig(base="models/minilm", num_query_components=4, num_item_components=4).pooling.value
    'multi'
    """

    kind: Literal["text"] = "text"
    base: str = Field(
        min_length=1,
        description='a folder with a Hugging Face or sentence-transformers model; "package:NAME", the folder with a '
        "config.json within an installed Python package; or a name on the Hugging Face Hub. Only safetensors are read, "
        "and no code from the folder is run",
    )
    num_query_components: int = Field(
        default=1, ge=1, le=LARGEST_SIZE, description="components that the encoder returns for a query"
    )
    num_item_components: int = Field(default=1, ge=1, le=LARGEST_SIZE, description="the same for a passage")
    pooling: Pooling = Field(
        default=Pooling.OWN,
        description="tokens: one component for each aggregation token; parameterised: learned weights over positions; "
        "multi: late interaction, components that begin as the mean and attend to their own tokens, by default 8 of a "
        "query and 16 of a passage; merged: the same, but those of a passage are clusters of alike tokens; mean: one "
        "component; own: one component, as the base's sentence-transformers folder makes it, or else the mean; "
        "windows: one component for each part of a passage of any length, by default 8, and one for a query. By "
        "default own if both sides have one component, else multi",
    )
    token_place: TokenPlace | None = Field(
        default=None,
        description="front or end; by default the end if a position sees only those before it, else the front. "
        "Aggregation tokens are placed there, and parameterised pooling computes its weights from the output there",
    )
    shares_backbone: bool = Field(
        default=True,
        description="use the same weights for queries and passages, or two models that start equal",
    )
    max_query_length: int = Field(
        default=64,
        ge=1,
        le=LARGEST_SIZE,
        description="tokens of a query, special ones counted; the end of a longer text is cut off",
    )
    max_passage_length: int = Field(
        default=256, ge=1, le=LARGEST_SIZE, description="the same for a passage, or for each window of a passage"
    )
    window_overlap: int | None = Field(
        default=None,
        ge=0,
        le=LARGEST_SIZE,
        description="tokens of a window that the next one repeats, about; by default an eighth of max_passage_length",
    )
    query_prompt: str | None = Field(
        default=None,
        max_length=10_000,
        description='text before every query, such as "query: "; by default, the one that the base\'s '
        "sentence-transformers folder states, if any",
    )
    passage_prompt: str | None = Field(default=None, max_length=10_000, description="the same for a passage")
    seed: int = Field(
        default=0, ge=0, le=LARGEST_SEED, description="seed of the initial weights that do not come with the model"
    )

    def num_components(self, side: Side) -> int:
        """Return how many components a text of this side has."""
        return self.num_query_components if side is Side.QUERY else self.num_item_components

    def prompt(self, side: Side) -> str:
        """Return the text that is put before every text of this side."""
        return (self.query_prompt if side is Side.QUERY else self.passage_prompt) or ""

    def max_length(self, side: Side) -> int:
        """Return how many tokens a text of this side has at most; special and aggregation tokens count."""
        return self.max_query_length if side is Side.QUERY else self.max_passage_length

    @property
    def overlap(self) -> int:
        """Tokens of a window that the next one repeats, about."""
        return self.max_passage_length // 8 if self.window_overlap is None else self.window_overlap

    @model_validator(mode="before")
    @classmethod
    def _choose_pooling(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        if given.get("pooling") in LATE_POOLINGS:
            return {**MULTI_COUNTS, **given}
        if given.get("pooling") == Pooling.WINDOWS:
            return {"num_item_components": WINDOW_COMPONENTS, **given}
        if "pooling" in given:
            return given
        return {**given, "pooling": default_pooling(given)}

    @model_validator(mode="after")
    def _check_pooling(self) -> Self:
        asked = (self.num_query_components, self.num_item_components)
        if self.pooling in {Pooling.MEAN, Pooling.OWN} and asked != (1, 1):
            raise InvalidInputError(
                f"pooling is {self.pooling}, which returns one component, but num_query_components is {asked[0]} and "
                f"num_item_components is {asked[1]}; set both to 1 or choose another pooling"
            )
        if self.pooling is Pooling.WINDOWS and asked[0] != 1:
            raise InvalidInputError(
                f"pooling is windows, which returns one component for a query, but num_query_components is {asked[0]}; "
                "set it to 1 (the similarity has a num_query_components of its own)"
            )
        if self.window_overlap is not None and self.window_overlap > self.max_passage_length // 2:
            raise InvalidInputError(
                f"window_overlap is {self.window_overlap} but a window has max_passage_length = "
                f"{self.max_passage_length} tokens; repeat at most half of a window"
            )
        if self.window_overlap is not None and self.pooling is not Pooling.WINDOWS:
            raise InvalidInputError(
                f"window_overlap is {self.window_overlap} but pooling is {self.pooling}, which has no windows; omit "
                "window_overlap, or set pooling to windows"
            )
        return self
