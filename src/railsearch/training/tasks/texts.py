"""Training on questions and their passages: the negatives of a question are the other passages of the batch."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from railsearch.data import QuestionPassages, Questions
from railsearch.encoders import Side
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.metrics import summarize
from railsearch.foundation.progress import beside_a_bar
from railsearch.models.ranking import PASSAGE_CUTOFFS, rank_questions
from railsearch.models.text import TextModel
from railsearch.training.cached import CachedEncoding
from railsearch.training.config import TextTrainingConfig
from railsearch.training.losses import StepLosses, backward_sampled_softmax
from railsearch.training.mining import NegativeMiner
from railsearch.training.negatives import Contrast, RightPairs
from railsearch.training.processes import Processes
from railsearch.training.seeds import derive_generator, seed_torch
from railsearch.training.similar import batch_similar
from railsearch.training.task import Batch, check_metric, check_weights
from railsearch.training.windows import WindowedEncoding, encode_for_training


class TextTask:
    """The task of a text model: (question, passage) pairs are the examples.

    Every process encodes its share of the batch's texts, and computes the loss of the complete batch, including load
    balance, from the components of all processes; this costs little beside the encoder. So the gradient does not depend
    on the number of processes, except for the dropout of the encoder.
    """

    def __init__(
        self,
        model: TextModel,
        data: QuestionPassages,
        config: TextTrainingConfig,
        processes: Processes | None = None,
        miner: NegativeMiner | None = None,
        *,
        show_progress: bool | None = False,
    ) -> None:
        self.model: nn.Module = model
        self._model = model
        self._data = data
        self._config = config
        self._processes = processes or Processes()
        self._miner = miner
        self._show_progress = show_progress
        self._pairs = data.train.pairs  # (M, 2)
        self._device = next(model.parameters()).device
        num_passages = len(data.passages)
        if not len(self._pairs):
            raise InvalidInputError(f"{data.source} has no training questions; give some.")
        if len(torch.unique(self._pairs[:, 1])) < 2:
            raise InvalidInputError(
                "all training pairs name the same passage, so there are no negatives; give at least 2 passages."
            )
        check_metric(config.metric, summarize([1], ks=PASSAGE_CUTOFFS))
        if config.num_hard_negatives and not len(data.train.hard_negatives):
            raise InvalidInputError(
                f"num_hard_negatives is {config.num_hard_negatives} but the data name no hard negatives; set it to 0."
            )
        self._right = RightPairs(self._pairs, num_items=num_passages)
        self.ranked = validation_rows(data, config)  # (n,) passages that validation ranks
        # From the initial weights, so that a run which resumes has the same batches.
        self._similar = None
        if config.similar_questions > 1 and config.epochs:
            self._similar = batch_similar(
                model.encoder,
                data.train.texts,
                self._pairs[:, 0],
                size=config.similar_questions,
                generator=derive_generator(config.seed, "similar questions"),
                processes=self._processes,
                show_progress=beside_a_bar(show_progress),
            )

    @property
    def num_examples(self) -> int:
        """Number of training pairs."""
        return len(self._pairs)

    def order(self, generator: Generator) -> Tensor:
        """Return the pairs (M,) in random order, or with similar questions together."""
        if self._similar is not None:
            return self._similar.order(generator)
        return torch.randperm(self.num_examples, generator=generator)

    def step(self, batch: Batch) -> StepLosses:
        """Run one forward and backward pass, which adds the gradient to the weights."""
        data, similarity, processes = self._data, self._model.similarity, self._processes
        questions, positives = self._pairs[batch.examples].t().contiguous()  # (E,)
        generator = Generator().manual_seed(batch.seed)
        hard = draw_hard_negatives(data.train, questions, self._config.num_hard_negatives, generator)  # (h,)
        if self._miner is not None:
            mined = self._miner.negatives_of(batch.epoch)
            drawn = draw_hard_negatives(mined, questions, self._config.mine_negatives, generator)
            hard = torch.cat([hard, drawn])
        passages = torch.unique(torch.cat([positives, hard]))  # (U,) each once
        contrast = Contrast(
            positives=torch.searchsorted(passages, positives).to(self._device),
            negatives=torch.arange(len(passages), device=self._device)[None],
            group_sizes=(len(questions),),
            excluded=self._right.among(questions, passages[None]).to(self._device),
        )
        query_encoding = self._encode(data.train.texts, questions, Side.QUERY, batch.generator)
        passage_encoding = self._encode(data.passages, passages, Side.PASSAGE, batch.generator)
        queries = self._gathered(query_encoding, len(questions), Side.QUERY)  # (E, Pq, d)
        items = self._gathered(passage_encoding, len(passages), Side.PASSAGE)  # (U, Px, d)
        seed_torch(batch.seed)  # the same gate dropout in every process
        losses = backward_sampled_softmax(
            similarity,
            similarity.query_parts(queries.view(-1, *similarity.query_shape)),
            similarity.item_parts(items.view(-1, *similarity.item_shape)),
            contrast,
            balance_weight=self._config.balance_weight,
            decorrelation_weight=self._config.decorrelation_weight,
            num_examples=len(questions) * processes.count,  # every process has the complete loss, and they add up
        )
        for encoding, components in ((query_encoding, queries), (passage_encoding, items)):
            if encoding is not None:
                assert components.grad is not None
                encoding.backward(processes.own(components.grad) * processes.count)
        return losses

    def validate(self) -> dict[str, float] | None:
        """Rank the right passages of the validation questions."""
        if self._data.validation is None:
            return None
        passages = [self._data.passages[row] for row in self.ranked.tolist()]
        item_parts = self._model.item_parts(passages, show_progress=beside_a_bar(self._show_progress))
        return summarize(
            rank_questions(self._model, self._data.validation, item_parts, rows=self.ranked), ks=PASSAGE_CUTOFFS
        )

    def check_alive(self) -> None:
        """Raise a TrainingError if a weight is not finite."""
        check_weights(self.model, self._config)

    def _encode(
        self, texts: Sequence[str], rows: Tensor, side: Side, generator: Generator
    ) -> CachedEncoding | WindowedEncoding | None:
        """Encode this process's share of the rows; return None if it is empty."""
        own = [texts[row] for row in self._processes.own(rows).tolist()]
        if not own:
            return None
        return encode_for_training(
            self._model.encoder,
            own,
            side,
            most_windows=self._config.training_windows,
            rows_per_pass=self._config.micro_batch_size,
            generator=generator,
        )

    def _gathered(self, encoding: CachedEncoding | WindowedEncoding | None, count: int, side: Side) -> Tensor:
        """Return the components of the texts of all processes, as leaves of the graph."""
        encoder = self._model.encoder
        if encoding is None:
            num_components = encoder.num_query_components if side is Side.QUERY else encoder.num_item_components
            like = next(encoder.parameters())
            own = like.new_zeros(0, num_components, encoder.dim)
        else:
            own = encoding.embeddings
        return self._processes.gather(own, count).requires_grad_()


def draw_hard_negatives(questions: Questions, rows: Tensor, count: int, generator: Generator) -> Tensor:
    """Draw up to `count` hard negatives of each of these questions: passage rows (h,)."""
    named, asked = questions.hard_negatives, torch.unique(rows)  # (H, 2) by question, (q,)
    bounds = torch.searchsorted(named[:, 0].contiguous(), torch.stack([asked, asked + 1]))  # (2, q)
    drawn = [torch.empty(0, dtype=torch.int64)]  # rows of `named`
    for first, last in zip(*bounds.tolist(), strict=True):
        drawn.append(first + torch.randperm(last - first, generator=generator)[:count])
    hard: Tensor = named[torch.cat(drawn), 1]  # (h,)
    return hard


def validation_rows(data: QuestionPassages, config: TextTrainingConfig) -> Tensor:
    """Return the passages that validation ranks, ascending (n,): all, or a fixed draw and the right ones."""
    count = len(data.passages)
    if data.validation is None or config.validation_passages is None or config.validation_passages >= count:
        return torch.arange(count)
    drawn = torch.randperm(count, generator=Generator().manual_seed(config.seed))[: config.validation_passages]
    ranked: Tensor = torch.unique(torch.cat([drawn, data.validation.pairs[:, 1]]))
    return ranked
