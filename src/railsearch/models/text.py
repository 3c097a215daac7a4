"""The text model: a text encoder turns questions and passages into components, and a similarity compares them."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from railsearch.encoders import Side, TextEncoder
from railsearch.foundation.errors import InvalidInputError
from railsearch.kernels import compute_item_parts, compute_query_parts
from railsearch.similarity import ItemParts, QueryParts, Similarity


class TextModel(nn.Module):
    """A text encoder that turns texts into components, and the similarity that compares the components."""

    def __init__(self, *, encoder: TextEncoder, similarity: Similarity) -> None:
        super().__init__()
        assert isinstance(similarity, nn.Module)
        sides = (
            ("query", encoder.num_query_components, similarity.query_shape),
            ("passage", encoder.num_item_components, similarity.item_shape),
        )
        for side, count, shape in sides:
            if math.prod(shape) != count * encoder.dim:
                raise InvalidInputError(
                    f"the encoder returns {count} {side} components of {encoder.dim} values but the similarity takes "
                    f"{side} inputs of shape {shape}; use the same numbers for both."
                )
        self.encoder = encoder
        self.similarity: Similarity = similarity

    def encode_queries(self, texts: Sequence[str], *, show_progress: bool | None = False) -> Tensor:
        """Return one query embedding for each text, in the shape that the similarity takes."""
        components = self.encoder.encode(texts, Side.QUERY, show_progress=show_progress)  # (B, Pq, d)
        return components.view(len(components), *self.similarity.query_shape)

    def encode_passages(self, texts: Sequence[str], *, show_progress: bool | None = False) -> Tensor:
        """Return one item embedding for each text, in the shape that the similarity takes."""
        components = self.encoder.encode(texts, Side.PASSAGE, show_progress=show_progress)  # (N, Px, d)
        return components.view(len(components), *self.similarity.item_shape)

    def locate_passages(
        self, texts: Sequence[str], on_texts: Callable[[float], None] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return what `encode_passages` returns, and where each component is (N, Px, 2): its characters in the text.

        The places are None if passages are not cut into windows. `on_texts` is told how many more texts are encoded.
        """
        shape = self.similarity.item_shape
        if not self.encoder.has_windows:
            components = self.encoder.encode(texts, Side.PASSAGE, show_progress=False, on_texts=on_texts)  # (N, Px, d)
            return components.view(len(components), *shape), None
        found = self.encoder.encode_windows(texts, show_progress=False, on_texts=on_texts)
        return found.components.view(len(found.components), *shape), found.spans

    def query_parts(self, texts: Sequence[str]) -> QueryParts:
        """Return the query side of each text."""
        return compute_query_parts(self.similarity, self.encode_queries(texts))

    def item_parts(self, texts: Sequence[str], *, show_progress: bool | None = False) -> ItemParts:
        """Return the item side of each text."""
        return compute_item_parts(self.similarity, self.encode_passages(texts, show_progress=show_progress))

    def new_names(self) -> set[str]:
        """Return the names of the weights that are not pretrained."""
        pretrained = {f"encoder.{name}" for name in self.encoder.pretrained_names()}
        return {name for name, _ in self.named_parameters()} - pretrained
