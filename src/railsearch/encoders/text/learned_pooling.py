"""The pooling of each side that has weights of its own, as the settings ask for it."""

from torch import Generator, nn

from railsearch.encoders.text.merged_pooling import MergedPooling
from railsearch.encoders.text.multi_pooling import MultiPooling
from railsearch.encoders.text.pooling import ParameterisedPooling
from railsearch.encoders.text.settings import Pooling, Side, TextEncoderConfig, TokenPlace


def build_poolings(settings: TextEncoderConfig, dim: int, place: TokenPlace, generator: Generator) -> nn.ModuleDict:
    """Build the learned pooling of each side, if there is one, for outputs of `dim` values."""
    poolings = nn.ModuleDict()
    for side in Side:
        count = settings.components_per_row(side)
        if settings.pooling is Pooling.MULTI:
            poolings[side.value] = MultiPooling(
                dim=dim, num_components=count, spread=settings.first_spread, generator=generator
            )
        elif settings.pools_late:
            poolings[side.value] = MergedPooling(dim=dim, num_components=count, spread=settings.first_spread)
        elif settings.pooling is Pooling.PARAMETERISED:
            poolings[side.value] = ParameterisedPooling(
                dim=dim,
                num_components=count,
                max_length=settings.max_length(side),
                place=place,
                generator=generator,
            )
    return poolings
