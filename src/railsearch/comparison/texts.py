"""A comparison on texts: BM25, and the similarities of a text encoder whose embeddings are computed once."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import xxhash
from torch import Tensor

from railsearch.comparison.embeddings import Budget, compare_embeddings
from railsearch.comparison.report import Comparison, System
from railsearch.comparison.splitting import TEST_SHARE, VALIDATION_SHARE, PairSplit
from railsearch.data import QuestionPassages, Questions, split_questions
from railsearch.encoders import Pooling, Side, TextEncoder, TextEncoderConfig
from railsearch.encoders.text.backbone import count_positions, load_backbone
from railsearch.encoders.text.base import find_base
from railsearch.evaluation import Evaluation, rank_with_bm25
from railsearch.evaluation.similarity import CUTOFFS, describe_protocol
from railsearch.foundation.progress import announce
from railsearch.similarity.fingerprints import compute_fingerprint


def compare_texts(
    data: QuestionPassages, model: str | Path, budget: Budget, *, split_seed: int, allow_download: bool
) -> Comparison:
    """Encode all texts once, and compare similarities of these embeddings; the language model is not trained.

    Args:
        data: passages, and questions with their right passages. Questions for validation and test are held out if the
            data have none.
        model: a folder with a Hugging Face model; see `TextEncoderConfig.base`.
        budget: the training that every similarity gets.
        split_seed: seed of the choice of held-out questions.
        allow_download: download the model by its name if it is not in the local cache.
    """
    held_out = _held_out(data, split_seed)
    encoder = TextEncoder.from_pretrained(_settings(model, allow_download), allow_download=allow_download)
    train, validation, test = held_out.train, held_out.validation, held_out.test
    assert validation is not None
    assert test is not None
    first_test = len(train) + len(validation)
    split = PairSplit(
        train.pairs,
        _moved(validation, len(train)),
        _moved(test, first_test),
        hides_seen=False,
        description=f"{len(train):,} questions to train on, {len(validation):,} for validation and {len(test):,} for "
        "the test" + ("" if held_out is data else f", drawn with seed {split_seed}"),
    )
    announce("ranking with BM25", is_shown=budget.show_progress)
    by_words = Evaluation.of_ranks(
        rank_with_bm25(held_out, test, show_progress=budget.show_progress),
        cutoffs=CUTOFFS,
        protocol=describe_protocol(len(test), len(held_out.passages), hides_seen=False),
        query_rows=first_test + torch.arange(len(test)),
    )
    texts = (*train.texts, *validation.texts, *test.texts)
    queries, items = _encode(encoder, texts, held_out.passages, budget)  # (Q, D), (N, D)
    return compare_embeddings(
        queries,
        items,
        split,
        budget,
        is_cosine=True,
        unit="questions",
        before=[System("BM25", (by_words,))],
        notes=(
            f"embeddings: the mean over the outputs of {Path(model).name}, computed once; only the similarities are "
            "trained, not the language model (`railsearch train` does that)",
        ),
    )


def _settings(model: str | Path, allow_download: bool) -> TextEncoderConfig:
    """Return the settings of an encoder with mean pooling; texts are cut to what the model takes."""
    settings = TextEncoderConfig(base=str(model), pooling=Pooling.OWN, num_query_components=1, num_item_components=1)
    most = count_positions(load_backbone(find_base(settings.base, allow_download=allow_download)))
    if most is None:
        return settings
    return settings.model_copy(
        update={
            "max_query_length": min(settings.max_query_length, most),
            "max_passage_length": min(settings.max_passage_length, most),
        }
    )


def _encode(
    encoder: TextEncoder, questions: Sequence[str], passages: Sequence[str], budget: Budget
) -> tuple[Tensor, Tensor]:
    """Return the embeddings of questions and passages; those of an earlier run on the same texts are used again."""
    digest = xxhash.xxh3_128(json.dumps([questions, passages]).encode())
    digest.update(compute_fingerprint("text", encoder.identity, encoder.state_dict()).encode())
    folder = None if budget.folder is None else budget.folder / "embeddings"
    key = digest.hexdigest()
    if folder is not None and (folder / "key").is_file() and (folder / "key").read_text() == key:
        announce("using the embeddings of an earlier run", is_shown=budget.show_progress)
        arrays = [np.load(folder / name, allow_pickle=False) for name in ("queries.npy", "items.npy")]
        return torch.from_numpy(arrays[0]), torch.from_numpy(arrays[1])
    announce(f"encoding {len(questions):,} questions and {len(passages):,} passages", is_shown=budget.show_progress)
    queries = encoder.encode(questions, Side.QUERY, show_progress=budget.show_progress)[:, 0].contiguous()  # (Q, D)
    items = encoder.encode(passages, Side.PASSAGE, show_progress=budget.show_progress)[:, 0].contiguous()  # (N, D)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "key").unlink(missing_ok=True)
        np.save(folder / "queries.npy", queries.numpy())
        np.save(folder / "items.npy", items.numpy())
        (folder / "key").write_text(key)  # last, so that arrays of an interrupted run are not used
    return queries, items


def _held_out(data: QuestionPassages, seed: int) -> QuestionPassages:
    validation_share = VALIDATION_SHARE if data.validation is None else 0.0
    test_share = TEST_SHARE if data.test is None else 0.0
    if not (validation_share or test_share):
        return data
    return split_questions(data, validation_share=validation_share, test_share=test_share, seed=seed)


def _moved(questions: Questions, first: int) -> Tensor:
    """Return the pairs of questions whose rows count from `first`."""
    return questions.pairs + torch.tensor([first, 0])  # (M, 2)
