"""The three models that a teacher can teach: a similarity over embeddings, a recommender, and a text model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from railsearch.data import QuestionPassages, Split
from railsearch.encoders import Histories, Side
from railsearch.models import SequentialModel, TextModel
from railsearch.models.sequential import consecutive_rows
from railsearch.similarity import DotProduct, Similarity
from railsearch.training.cached import CachedEncoding
from railsearch.training.config import TextTrainingConfig
from railsearch.training.task import Batch
from railsearch.training.tasks.distilled import Embedded
from railsearch.training.tasks.pairs import PairData
from railsearch.training.windows import WindowedEncoding, encode_for_training


class PairStudent:
    """A similarity over fixed embeddings: queries and items are rows of embeddings."""

    def __init__(self, similarity: Similarity, data: PairData) -> None:
        self._similarity = similarity
        self._data = data

    def embed(self, queries: Tensor, items: Tensor, _batch: Batch) -> Embedded:
        """Look up the embeddings."""
        data = self._data
        queries = queries.to(data.queries.device)
        return Embedded(
            self._similarity, data.queries[queries], data.items[items.to(data.items.device)], data.users_of(queries)
        )


class HistoryStudent:
    """A recommender: a query is a user with the complete training history."""

    def __init__(self, model: SequentialModel, split: Split, plain: DotProduct | None = None) -> None:
        """Store the model; `plain` is the cosine as which a mixture is trained in the first phase."""
        self._model = model
        self._split = split
        self._plain = plain

    def embed(self, queries: Tensor, items: Tensor, batch: Batch) -> Embedded:
        """Encode the histories of these users, and look up the items."""
        is_plain = self._plain is not None and batch.is_first_phase
        similarity = self._plain if is_plain and self._plain is not None else self._model.similarity
        histories = training_histories(self._split, queries, max_length=self._model.encoder.max_length)
        histories = histories.to(self._model.device)
        outputs = self._model.encoder(histories)  # (T, D)
        users = queries.to(self._model.device) if similarity.takes_user_ids else None
        embedded = self._model.encoder.embed_items(items.to(self._model.device))  # (U, D)
        return Embedded(similarity, outputs[histories.last_positions], embedded, users)


def training_histories(split: Split, users: Tensor, *, max_length: int) -> Histories:
    """Return the complete training histories of these users (B,); the time of the query is that of the last event."""
    events = split.interactions
    starts, ends = events.offsets[:-1][users], split.train_ends[users]  # (B,)
    lengths = (ends - starts).clamp(max=max_length)  # (B,)
    rows = consecutive_rows(ends - lengths, lengths)  # (T,)
    if not events.has_times:
        zeros = torch.zeros_like(rows)
        return Histories(events.items[rows], zeros, zeros, lengths)
    following = torch.minimum(rows + 1, (ends - 1).repeat_interleave(lengths))  # (T,)
    return Histories(events.items[rows], events.timestamps[rows], events.timestamps[following], lengths)


class TextStudent:
    """A text model: queries are training questions, and items are passages."""

    def __init__(self, model: TextModel, data: QuestionPassages, config: TextTrainingConfig) -> None:
        self._model = model
        self._data = data
        self._config = config

    def embed(self, queries: Tensor, items: Tensor, batch: Batch) -> Embedded:
        """Encode the texts in small passes, whose graph is built again after the loss."""
        similarity = self._model.similarity
        sides = (
            (self._data.train.texts, queries, Side.QUERY, similarity.query_shape),
            (self._data.passages, items, Side.PASSAGE, similarity.item_shape),
        )
        encodings = [self._encode(texts, rows, side, batch) for texts, rows, side, _ in sides]
        leaves = [encoding.embeddings.requires_grad_() for encoding in encodings]  # (n, P, d)
        inputs = [leaf.view(-1, *shape) for leaf, (_, _, _, shape) in zip(leaves, sides, strict=True)]

        def finish() -> None:
            for encoding, leaf in zip(encodings, leaves, strict=True):
                assert leaf.grad is not None
                encoding.backward(leaf.grad)

        return Embedded(similarity, inputs[0], inputs[1], finish=finish)

    def _encode(
        self, texts: Sequence[str], rows: Tensor, side: Side, batch: Batch
    ) -> CachedEncoding | WindowedEncoding:
        return encode_for_training(
            self._model.encoder,
            [texts[row] for row in rows.tolist()],
            side,
            most_windows=self._config.training_windows,
            rows_per_pass=self._config.micro_batch_size,
            generator=batch.generator,
        )
