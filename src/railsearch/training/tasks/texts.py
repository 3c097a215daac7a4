"""Trains a text model on questions and their passages, told apart from all other passages of the batch."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from railsearch.data import QuestionPassages, Questions
from railsearch.encoders import Side
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import is_finite
from railsearch.foundation.metrics import summarize
from railsearch.models.ranking import PASSAGE_CUTOFFS, rank_questions
from railsearch.models.text import TextModel
from railsearch.training.cached import CachedEncoding
from railsearch.training.config import TextTrainingConfig
from railsearch.training.loop import Batch, diverged
from railsearch.training.losses import StepLosses, backward_sampled_softmax
from railsearch.training.negatives import Contrast
from railsearch.training.processes import Processes


class TextTask:
    """What the training loop needs to train a text model on (question, passage) pairs.

    Every process encodes its share of a batch's texts and computes the loss of the whole batch, load balance and all,
    from the components of all, which costs little beside the encoder. So the gradient is that of one process, whatever
    their number, save for what the encoder's own dropout draws.
    """

    def __init__(
        self, model: TextModel, data: QuestionPassages, config: TextTrainingConfig, processes: Processes | None = None
    ) -> None:
        self.model: nn.Module = model
        self._model = model
        self._data = data
        self._config = config
        self._processes = processes or Processes()
        self._pairs = data.train.pairs  # (M, 2)
        self._device = next(model.parameters()).device
        num_passages = len(data.passages)
        if not len(self._pairs):
            raise InvalidInputError(f"{data.source} has no training questions; give some.")
        if len(torch.unique(self._pairs[:, 1])) < 2:
            raise InvalidInputError(
                "all training pairs name the same passage, so there is nothing to tell it from; give more passages."
            )
        measured = summarize([1], ks=PASSAGE_CUTOFFS)
        if config.metric not in measured:
            raise InvalidInputError(f"metric is {config.metric!r} but validation measures: {', '.join(measured)}.")
        if config.num_hard_negatives and not len(data.train.hard_negatives):
            raise InvalidInputError(
                f"num_hard_negatives is {config.num_hard_negatives} but the data name no hard negatives; set it to 0."
            )
        self._right_keys = (self._pairs[:, 0] * num_passages + self._pairs[:, 1]).sort().values  # (M,)
        self.ranked = validation_rows(data, config)  # (n,) passages that validation ranks among

    @property
    def num_examples(self) -> int:
        """One a pair."""
        return len(self._pairs)

    def step(self, batch: Batch) -> StepLosses:
        """One forward and backward pass; the gradient is left in the weights."""
        data, similarity, processes = self._data, self._model.similarity, self._processes
        questions, positives = self._pairs[batch.examples].t().contiguous()  # (E,)
        brought = draw_hard_negatives(
            data.train, questions, self._config.num_hard_negatives, Generator().manual_seed(batch.seed)
        )  # (h,)
        passages = torch.unique(torch.cat([positives, brought]))  # (U,) so none is its own twin's negative
        contrast = Contrast(
            positives=torch.searchsorted(passages, positives).to(self._device),
            negatives=torch.arange(len(passages), device=self._device)[None],
            group_sizes=(len(questions),),
            excluded=self._is_right(questions, passages).to(self._device),
        )
        query_encoding = self._encode(data.train.texts, questions, Side.QUERY, batch.generator)
        passage_encoding = self._encode(data.passages, passages, Side.PASSAGE, batch.generator)
        queries = self._gathered(query_encoding, len(questions), Side.QUERY)  # (E, Pq, d)
        items = self._gathered(passage_encoding, len(passages), Side.PASSAGE)  # (U, Px, d)
        torch.manual_seed(batch.seed)  # the gate drops the same pairs in every process
        losses = backward_sampled_softmax(
            similarity,
            similarity.query_parts(queries.view(-1, *similarity.query_shape)),
            similarity.item_parts(items.view(-1, *similarity.item_shape)),
            contrast,
            balance_weight=self._config.balance_weight,
            num_examples=len(questions) * processes.count,  # so that the processes' equal losses add up to one
        )
        for encoding, components in ((query_encoding, queries), (passage_encoding, items)):
            if encoding is not None:
                assert components.grad is not None
                encoding.backward(processes.own(components.grad) * processes.count)
        return losses

    def validate(self) -> dict[str, float] | None:
        """Rank the right passages of the questions held out for that."""
        if self._data.validation is None:
            return None
        passages = [self._data.passages[row] for row in self.ranked.tolist()]
        item_parts = self._model.item_parts(passages)
        return summarize(
            rank_questions(self._model, self._data.validation, item_parts, rows=self.ranked), ks=PASSAGE_CUTOFFS
        )

    def check_alive(self) -> None:
        """Stop before weights that can no longer score are kept: the last step's damage shows in no loss."""
        if not all(is_finite(parameter) for parameter in self._model.parameters()):
            raise diverged("weights are NaN or infinite", self._config)

    def _is_right(self, questions: Tensor, passages: Tensor) -> Tensor:
        """Which passages are labelled right for which questions (E, U)."""
        keys = questions[:, None] * len(self._data.passages) + passages  # (E, U)
        places = torch.searchsorted(self._right_keys, keys).clamp_max(len(self._right_keys) - 1)
        return self._right_keys[places] == keys

    def _encode(self, texts: Sequence[str], rows: Tensor, side: Side, generator: Generator) -> CachedEncoding | None:
        """This process's share of the rows; None where it has none."""
        own = self._processes.own(rows).tolist()
        if not own:
            return None
        tokens = self._model.encoder.tokenize([texts[row] for row in own], side)
        return CachedEncoding(
            lambda chosen: self._model.encoder(tokens[chosen], side),
            len(tokens),
            rows_per_pass=self._config.micro_batch_size,
            generator=generator,
        )

    def _gathered(self, encoding: CachedEncoding | None, count: int, side: Side) -> Tensor:
        """The components of all processes' texts, as leaves."""
        encoder = self._model.encoder
        if encoding is None:
            num_components = encoder.num_query_components if side is Side.QUERY else encoder.num_item_components
            like = next(encoder.parameters())
            own = like.new_zeros(0, num_components, encoder.dim)
        else:
            own = encoding.embeddings
        return self._processes.gather(own, count).requires_grad_()


def draw_hard_negatives(questions: Questions, rows: Tensor, count: int, generator: Generator) -> Tensor:
    """Passages that these questions bring along, up to so many each of those that the data name (h,)."""
    named, asked = questions.hard_negatives, torch.unique(rows)  # (H, 2) by question, (q,)
    bounds = torch.searchsorted(named[:, 0].contiguous(), torch.stack([asked, asked + 1]))  # (2, q)
    drawn = [torch.empty(0, dtype=torch.int64)]  # (h,) in all, rows of those named
    for first, last in zip(*bounds.tolist(), strict=True):
        drawn.append(first + torch.randperm(last - first, generator=generator)[:count])
    brought: Tensor = named[torch.cat(drawn), 1]
    return brought


def validation_rows(data: QuestionPassages, config: TextTrainingConfig) -> Tensor:
    """Which passages validation ranks among, ascending (n,): all, or the right ones and so many others, drawn once."""
    count = len(data.passages)
    if data.validation is None or config.validation_passages is None or config.validation_passages >= count:
        return torch.arange(count)
    drawn = torch.randperm(count, generator=Generator().manual_seed(config.seed))[: config.validation_passages]
    ranked: Tensor = torch.unique(torch.cat([drawn, data.validation.pairs[:, 1]]))
    return ranked
