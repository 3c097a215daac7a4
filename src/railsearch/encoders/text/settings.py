"""Settings of a text encoder, defined only here, and the closed choices in them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, model_validator

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
    and learns to see its own tokens by attention; merged: each component begins between the mean and the mean of a
    cluster of alike tokens; mean: the mean over positions is the only component; own: the only component is the
    embedding of a sentence-transformers folder, by its own pooling and layers, or else the mean; windows: a passage of
    any length is cut into overlapping windows, and each is encoded as with own, or as with merged if a window has
    several components.
    """

    TOKENS = "tokens"
    PARAMETERISED = "parameterised"
    MULTI = "multi"
    MERGED = "merged"
    MEAN = "mean"
    OWN = "own"
    WINDOWS = "windows"


LATE_POOLINGS = (Pooling.MULTI, Pooling.MERGED)
"""Poolings with many components that begin at or near the mean, which late interaction compares by default."""
WINDOW_COMPONENTS = 8
"""Windows, or groups of them, that a passage keeps, unless the settings say otherwise."""
MERGED_WINDOWS = 2
"""The same if each has several components."""
MULTI_DEFAULTS: dict[str, object] = {"num_query_components": 8, "num_item_components": 16}
"""Settings of multi pooling that are not stated."""
MERGED_DEFAULTS: dict[str, object] = {"num_query_components": 16, "num_item_components": 32, "first_spread": 0.5}
"""The same of merged tokens: MiniLM ranks better with them than by its cosine, benchmarks/results/late-starts.md."""


def in_windows(given: Mapping[str, object]) -> dict[str, object]:
    """Return settings of windows, with the numbers of components that they leave open.

    >>> in_windows({"window_components": 16})
    {'num_query_components': 16, 'num_item_components': 32, 'first_spread': 0.5, 'window_components': 16}
    """
    per_window = given.get("window_components", 1)
    if not isinstance(per_window, int) or isinstance(per_window, bool) or per_window == 1:
        return {"num_item_components": WINDOW_COMPONENTS, **given}
    return {**MERGED_DEFAULTS, "num_item_components": MERGED_WINDOWS * per_window, **given}


def default_pooling(given: Mapping[str, object]) -> Pooling:
    """Return the pooling of settings that state none: both start as the cosine of the frozen encoder.

    >>> default_pooling({"num_item_components": 4}).value
    'multi'
    """
    return Pooling.OWN if all(given.get(name, 1) == 1 for name in MULTI_DEFAULTS) else Pooling.MULTI


def filled(given: Mapping[str, object]) -> dict[str, object]:
    """Return settings with the pooling that they leave open, and what follows from the pooling.

    >>> filled({"pooling": "merged", "first_spread": 0.0})
    {'num_query_components': 16, 'num_item_components': 32, 'first_spread': 0.0, 'pooling': 'merged'}
    """
    match given.get("pooling"):
        case Pooling.MULTI:
            return {**MULTI_DEFAULTS, **given}
        case Pooling.MERGED:
            return {**MERGED_DEFAULTS, **given}
        case Pooling.WINDOWS:
            return in_windows(given)
    return {"pooling": default_pooling(given), **given}


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
        "query and 16 of a passage; merged: late interaction, components that begin between the mean and a cluster of "
        "alike tokens, by default 16 and 32; mean: one component; "
        "own: one component, as the base's sentence-transformers folder makes it, or else the mean; "
        "windows: window_components for each part of a passage of any length, by default 8 parts. By default own if "
        "both sides have one component, else multi",
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
    first_spread: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="how far the components of multi, merged or window_components begin from the mean: 0 starts as the "
        "cosine of the means, 1 as attention pools or means of alike tokens; by default 0 with multi, else 0.5",
    )
    window_components: int = Field(
        default=1,
        ge=1,
        le=LARGEST_SIZE,
        description="components of each window: 1, as with own, and a query has one as well; or several that are "
        "pooled as with merged, by default 16 of a query, for late interaction with passages of any length. "
        "num_item_components is a multiple of it, by default twice as many",
    )
    window_context: int = Field(
        default=0,
        ge=0,
        le=LARGEST_SIZE,
        description="most tokens of a passage's beginning, to the end of a sentence, that every later window repeats "
        "in front of its own: a title or first sentence, so that a window says what its document is about",
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

    @property
    def pools_late(self) -> bool:
        """Whether a text, or a window, has several components that begin at or near the mean, for late interaction."""
        return self.pooling in LATE_POOLINGS or self.window_components > 1

    def num_components(self, side: Side) -> int:
        """Return how many components a text of this side has."""
        return self.num_query_components if side is Side.QUERY else self.num_item_components

    def components_per_row(self, side: Side) -> int:
        """Return how many components a row of token ids has: those of a text, or of one window of a passage."""
        is_window = self.pooling is Pooling.WINDOWS and side is Side.PASSAGE
        return self.window_components if is_window else self.num_components(side)

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

    @model_validator(mode="wrap")
    @classmethod
    def _fill(cls, given: object, build: ModelWrapValidatorHandler[Self]) -> Self:
        """Choose what depends on other settings; `model_fields_set` has only those that were stated."""
        if not isinstance(given, dict):
            return build(given)
        config = build(filled(given))
        config.__pydantic_fields_set__.intersection_update(given)
        return config

    @model_validator(mode="after")
    def _check_pooling(self) -> Self:
        for name, unset in {"window_overlap": None, "window_components": 1, "window_context": 0}.items():
            if (value := getattr(self, name)) != unset and self.pooling is not Pooling.WINDOWS:
                raise InvalidInputError(
                    f"{name} is {value} but pooling is {self.pooling}, which has no windows; omit {name}, or set "
                    "pooling to windows"
                )
        asked = (self.num_query_components, self.num_item_components)
        if self.pooling in {Pooling.MEAN, Pooling.OWN} and asked != (1, 1):
            raise InvalidInputError(
                f"pooling is {self.pooling}, which returns one component, but num_query_components is {asked[0]} and "
                f"num_item_components is {asked[1]}; set both to 1 or choose another pooling"
            )
        if self.pooling is Pooling.WINDOWS and self.window_components == 1 and asked[0] != 1:
            raise InvalidInputError(
                f"pooling is windows and window_components is 1, which returns one component for a query, but "
                f"num_query_components is {asked[0]}; set window_components to 2 or more, or num_query_components to 1 "
                "(the similarity has a num_query_components of its own)"
            )
        if self.first_spread and not self.pools_late:
            raise InvalidInputError(
                f"first_spread is {self.first_spread:g} but pooling is {self.pooling}, which has no spread; omit "
                "first_spread, or set pooling to multi or merged, or window_components to 2 or more"
            )
        if asked[1] % self.window_components:
            raise InvalidInputError(
                f"num_item_components is {asked[1]}, which is not a multiple of window_components = "
                f"{self.window_components}; set it to window_components times the windows that a passage keeps"
            )
        if self.window_overlap is not None and self.window_overlap > self.max_passage_length // 2:
            raise InvalidInputError(
                f"window_overlap is {self.window_overlap} but a window has max_passage_length = "
                f"{self.max_passage_length} tokens; repeat at most half of a window"
            )
        if self.window_context > self.max_passage_length // 2:
            raise InvalidInputError(
                f"window_context is {self.window_context} but a window has max_passage_length = "
                f"{self.max_passage_length} tokens; let the beginning of a passage take at most half of a window"
            )
        return self
