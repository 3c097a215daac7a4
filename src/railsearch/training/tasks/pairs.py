"""Training on (query, right item) pairs of fixed embeddings."""

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_embeddings, as_user_ids, is_finite
from railsearch.foundation.metrics import summarize
from railsearch.foundation.pairs import as_pairs
from railsearch.models import rank_pairs
from railsearch.similarity import Similarity
from railsearch.training.config import TrainingConfig
from railsearch.training.hard import find_hard_items
from railsearch.training.losses import StepLosses, backward_sampled_softmax, backward_user_penalty
from railsearch.training.negatives import Negatives, RightPairs, draw_contrast, num_other_negatives, score_offsets
from railsearch.training.task import Batch, diverged

PAIRS_PER_CHECK = 256
"""Training pairs that are scored after each epoch to check that scores are finite."""


@dataclass(frozen=True, slots=True, eq=False)
class PairData:
    """Checked embeddings and pairs, on the similarity's device and in its precision."""

    queries: Tensor  # (Q, D)
    items: Tensor  # (N, D)
    user_ids: Tensor | None  # (Q,)
    pairs: Tensor  # (M, 2) query row, item row
    validation_pairs: Tensor | None = None  # (V, 2) held out
    seen_pairs: Tensor | None = None  # (S, 2) right, but neither trained on nor ranked

    def users_of(self, rows: Tensor) -> Tensor | None:
        """Return the user ids of these query rows."""
        return None if self.user_ids is None else self.user_ids[rows]

    def known_pairs(self) -> Tensor:
        """Return the pairs that are trained on and those that were seen (M + S, 2)."""
        return self.pairs if self.seen_pairs is None else torch.cat([self.pairs, self.seen_pairs])

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that a training run depends on, by name."""
        named = {
            "queries": self.queries,
            "items": self.items,
            "user_ids": self.user_ids,
            "pairs": self.pairs,
            "validation_pairs": self.validation_pairs,
            "seen_pairs": self.seen_pairs,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}


class PairTask:
    """The task of `fit_similarity`: pairs are the examples, and only the similarity is trained."""

    def __init__(self, similarity: Similarity, data: PairData, config: TrainingConfig) -> None:
        assert isinstance(similarity, nn.Module)
        self.model: nn.Module = similarity
        self._similarity = similarity
        self._data = data
        self._config = config
        offsets = score_offsets(
            config.negatives, data.pairs[:, 1], num_items=len(data.items), num_negatives=config.num_negatives
        )
        self._offsets = None if offsets is None else offsets.to(data.items.device)
        self._right = RightPairs(data.known_pairs(), num_items=len(data.items))

    @property
    def num_examples(self) -> int:
        """Number of training pairs."""
        return len(self._data.pairs)

    def order(self, generator: Generator) -> Tensor:
        """Return the examples (M,) in random order."""
        return torch.randperm(self.num_examples, generator=generator)

    def step(self, batch: Batch) -> StepLosses:
        """Run one forward and backward pass, which adds the gradient to the weights."""
        data, config = self._data, self._config
        if not len(batch.own):
            return StepLosses(0.0, 0.0)
        queries, positives = data.pairs[batch.own.to(data.pairs.device)].unbind(dim=1)  # (E,)
        users = data.users_of(queries)
        contrast = draw_contrast(
            config.negatives,
            positives,
            None,
            pool=data.pairs[batch.examples.to(data.pairs.device), 1],
            num_items=len(data.items),
            num_negatives=config.num_negatives,
            generator=batch.generator,
        )
        if config.negatives is Negatives.HARD:
            hard = find_hard_items(
                self._similarity, data.queries[queries], data.items,
                count=num_other_negatives(config.negatives, config.num_negatives), right=self._right, owners=queries,
                user_ids=users, generator=batch.generator,
            )  # fmt: skip
            contrast = replace(contrast, negatives=torch.cat([contrast.negatives, hard[None]], dim=1))
        excluded = self._right.among(queries, contrast.negatives)  # (E, n)
        offsets = None if self._offsets is None else self._offsets[contrast.negatives]  # (G, n)
        rows, contrast = replace(contrast, excluded=excluded, offsets=offsets).distinct_items()
        losses = backward_sampled_softmax(
            self._similarity,
            self._similarity.query_parts(data.queries[queries], user_ids=users),
            self._similarity.item_parts(data.items[rows]),
            contrast,
            balance_weight=config.balance_weight,
            decorrelation_weight=config.decorrelation_weight,
            num_examples=len(batch.examples),
        )
        if users is not None:
            share = len(batch.own) / len(batch.examples)
            backward_user_penalty(self._similarity, users, weight=config.user_penalty_weight * share)
        return losses

    @torch.no_grad()
    def validate(self) -> dict[str, float] | None:
        """Rank the best-placed right item of each validation query among all items, except its training items."""
        data = self._data
        if data.validation_pairs is None:
            return None
        return summarize(
            rank_pairs(
                self._similarity,
                data.queries,
                data.items,
                data.validation_pairs,
                seen=data.known_pairs(),
                user_ids=data.user_ids,
            )
        )

    @torch.no_grad()
    def check_alive(self) -> None:
        """Raise a TrainingError if the scores of some training pairs are not finite."""
        data = self._data
        queries, items = data.pairs[:PAIRS_PER_CHECK].unbind(dim=1)  # (E,)
        scores = self._similarity.score(
            self._similarity.query_parts(data.queries[queries], user_ids=data.users_of(queries)),
            self._similarity.item_parts(data.items[items]),
        )  # (E, E)
        if not is_finite(scores):
            raise diverged("scores are NaN or infinite", self._config)


def as_pair_data(
    similarity: Similarity,
    query_embeddings: ArrayLike,
    item_embeddings: ArrayLike,
    pairs: ArrayLike | None,
    *,
    validation_pairs: ArrayLike | None = None,
    seen_pairs: ArrayLike | None = None,
    user_ids: ArrayLike | None = None,
    like: Tensor,
) -> PairData:
    """Check embeddings and pairs, and move them to the device and precision of `like`; None are no pairs yet."""
    queries = as_embeddings(query_embeddings, name="query_embeddings", shape=similarity.query_shape).to(like)
    items = as_embeddings(item_embeddings, name="item_embeddings", shape=similarity.item_shape).to(like)
    size = (len(queries), len(items))
    none = torch.empty(0, 2, dtype=torch.int64)
    training = (none if pairs is None else as_pairs(pairs, name="pairs", size=size)).to(like.device)
    if similarity.takes_user_ids and user_ids is None:
        raise InvalidInputError("the similarity has a user table but user_ids is None; give one id for each query.")
    if user_ids is not None and not similarity.takes_user_ids:
        raise InvalidInputError("user_ids was given but the similarity has no user table; omit user_ids.")
    users = None if user_ids is None else as_user_ids(user_ids, count=len(queries)).to(like.device)
    given = {"validation_pairs": validation_pairs, "seen_pairs": seen_pairs}
    others = {
        name: None if rows is None else as_pairs(rows, name=name, size=size).to(like.device)
        for name, rows in given.items()
    }
    return PairData(queries, items, users, training, **others)
