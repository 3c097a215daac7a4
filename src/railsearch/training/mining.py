"""Mined negatives of text training: before each epoch, the model's own search finds passages that it takes for right.

A passage that scores almost as high as the right one is often right as well, only not labelled. So passages above
the best right score less a margin are skipped (positive-aware mining, Moreira et al. 2024).
"""

import logging
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Generator, Tensor

from railsearch.data import QuestionPassages, Questions
from railsearch.foundation.files import new_file
from railsearch.foundation.progress import beside_a_bar
from railsearch.models.text import TextModel
from railsearch.similarity import ItemParts, QueryParts, Similarity
from railsearch.training.asking import find_best
from railsearch.training.config import TextTrainingConfig
from railsearch.training.negatives import RightPairs
from railsearch.training.seeds import derive_generator

logger = logging.getLogger(__name__)

FILE = "mined-{epoch:06d}.safetensors"
NAME = "negatives"
PAIRS_PER_BLOCK = 1024


class NegativeMiner:
    """The mined negatives of a run, one set for each epoch.

    With a folder, each set is also a file, so that a run which resumes within an epoch has the negatives of that epoch.
    """

    def __init__(
        self,
        model: TextModel,
        data: QuestionPassages,
        config: TextTrainingConfig,
        folder: Path | None = None,
        *,
        show_progress: bool | None = False,
    ) -> None:
        self._model = model
        self._data = data
        self._config = config
        self._folder = folder
        self._show_progress = show_progress
        self._epoch = -1
        self._mined = data.train

    def negatives_of(self, epoch: int) -> Questions:
        """Return the training questions with the mined passages of an epoch as their hard negatives."""
        if epoch != self._epoch:
            self._mined = replace(self._data.train, hard_negatives=self._read(epoch))
            self._epoch = epoch
        return self._mined

    def _read(self, epoch: int) -> Tensor:
        """Return the pairs of an epoch: those of its file if it has one, or else new ones."""
        file = None if self._folder is None else self._folder / FILE.format(epoch=epoch)
        if file is not None and file.is_file():
            try:
                return safetensors.torch.load(file.read_bytes())[NAME]
            except (OSError, KeyError, SafetensorError) as error:
                logger.warning("%s is damaged (%s); its negatives are mined again", file, error)
                file.unlink()
        generator = derive_generator(self._config.seed, "mining", epoch)
        pairs = mine_negatives(
            self._model, self._data, self._config, generator, show_progress=beside_a_bar(self._show_progress)
        )
        logger.info("epoch %d: mined %d negatives for %d questions", epoch, len(pairs), len(self._data.train))
        if file is not None and self._folder is not None:
            with new_file(file) as written:
                written.write_bytes(safetensors.torch.save({NAME: pairs}))
            for old in sorted(self._folder.glob(FILE.replace("{epoch:06d}", "[0-9]*")))[:-2]:
                old.unlink(missing_ok=True)
        return pairs


@torch.no_grad()
def mine_negatives(
    model: TextModel,
    data: QuestionPassages,
    config: TextTrainingConfig,
    generator: Generator,
    *,
    show_progress: bool | None = False,
) -> Tensor:
    """Return hard negatives (H, 2) of the training questions: question row, passage row; sorted.

    They are those of the `mine_depth` best passages of a question that are not right, and whose score is not above
    best - mine_margin * |best|, where best is the score of the best right passage.

    Args:
        model: searches in eval mode; left in the mode that it has.
        data: questions and passages.
        config: depth, margin, and the number of passages to search.
        generator: draws the passages, on the CPU.
        show_progress: draw a progress bar of the encoding; None draws it only on a terminal.
    """
    questions, similarity = data.train, model.similarity
    rows = _searched_rows(data, config, generator)  # (n,)
    own, right = questions.pairs.t().contiguous()  # (M,)
    was_training = model.training
    model.train(False)
    try:
        query_parts = model.query_parts(questions.texts)
        item_parts = model.item_parts([data.passages[row] for row in rows.tolist()], show_progress=show_progress)
        scores, places = find_best(similarity, query_parts, item_parts, min(config.mine_depth, len(rows)))  # (Q, k)
        right_scores = _pair_scores(similarity, query_parts, item_parts, own, torch.searchsorted(rows, right))  # (M,)
    finally:
        model.train(was_training)
    found = rows[places.cpu()]  # (Q, k)
    best = torch.full((len(questions),), -torch.inf).scatter_reduce(0, own, right_scores, "amax")  # (Q,)
    most = best - config.mine_margin * best.abs()  # (Q,)
    is_right = RightPairs(questions.pairs, num_items=len(data.passages)).among(torch.arange(len(questions)), found)
    is_kept = ~is_right & (scores.cpu() <= most[:, None])  # (Q, k)
    owners = torch.arange(len(questions))[:, None].expand_as(found)  # (Q, k)
    keys = (owners[is_kept] * len(data.passages) + found[is_kept]).sort().values  # (H,)
    return torch.stack([keys // len(data.passages), keys % len(data.passages)], dim=1)


def _pair_scores(
    similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts, queries: Tensor, items: Tensor
) -> Tensor:
    """Return the scores (M,) of some query-item pairs, on the CPU."""
    device = query_parts.components.device
    scores = [
        similarity.score_candidates(query_parts[query.to(device)], item_parts[item[:, None].to(device)])[:, 0].cpu()
        for query, item in zip(torch.split(queries, PAIRS_PER_BLOCK), torch.split(items, PAIRS_PER_BLOCK), strict=True)
    ]
    return torch.cat(scores)


def _searched_rows(data: QuestionPassages, config: TextTrainingConfig, generator: Generator) -> Tensor:
    """Return the passages to search, ascending (n,): all, or random ones and the right ones."""
    count = len(data.passages)
    if config.mine_passages is None or config.mine_passages >= count:
        return torch.arange(count)
    drawn = torch.randperm(count, generator=generator)[: config.mine_passages]
    rows: Tensor = torch.unique(torch.cat([drawn, data.train.pairs[:, 1]]))
    return rows
