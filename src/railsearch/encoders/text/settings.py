"""What a text encoder is made of: the closed choices, and settings that are checked when they are made."""

from enum import StrEnum

from pydantic import Field

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import Config


class Side(StrEnum):
    """Which of the two kinds of text is encoded."""

    QUERY = "query"
    PASSAGE = "passage"


class Pooling(StrEnum):
    """How components come from the outputs of a model.

    tokens: the output of each aggregation token is one; parameterised: each is a weighted sum over positions, with
    weights that a small network gives (the paper's A.2); mean: the mean over positions is the only one.
    """

    TOKENS = "tokens"
    PARAMETERISED = "parameterised"
    MEAN = "mean"


class TokenPlace(StrEnum):
    """Where a model can sum a text up: in front if every position sees all others, at the end if only earlier ones."""

    FRONT = "front"
    END = "end"


class TextSettings(Config):
    """What `TextEncoder.from_pretrained` was given."""

    base: str = Field(min_length=1)
    num_query_components: int = Field(default=4, ge=1)
    num_item_components: int = Field(default=4, ge=1)
    pooling: Pooling = Pooling.TOKENS
    token_place: TokenPlace | None = None
    shares_backbone: bool = True
    max_query_length: int = Field(default=64, ge=1)
    max_passage_length: int = Field(default=256, ge=1)
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED, description="of the first weights that are new")

    def num_components(self, side: Side) -> int:
        """How many vectors a text of this side becomes."""
        return self.num_query_components if side is Side.QUERY else self.num_item_components

    def max_length(self, side: Side) -> int:
        """How many tokens a text of this side has at most, the model's own and aggregation tokens counted."""
        return self.max_query_length if side is Side.QUERY else self.max_passage_length

    def check_pooling(self) -> None:
        """Check that the pooling can give as many components as are asked for."""
        asked = (self.num_query_components, self.num_item_components)
        if self.pooling is Pooling.MEAN and asked != (1, 1):
            raise InvalidInputError(
                f"pooling is mean, which gives one component, but num_query_components is {asked[0]} and "
                f"num_item_components is {asked[1]}; set both to 1 or choose another pooling."
            )
