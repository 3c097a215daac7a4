"""Analysis of a recommender on its test items: accuracy by segment of users, and what is recommended to whom."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from railsearch.data import Split
from railsearch.evaluation.beyond import check_popular, coverage, diversity, gini, novelty, popularity_share
from railsearch.evaluation.report import Evaluation
from railsearch.evaluation.segments import Segment, by_acquaintance, by_length, by_popularity, make_segments
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count
from railsearch.models import ITEM_CUTOFFS, SequentialModel, recommend_held_out

if TYPE_CHECKING:
    from polars import DataFrame

DEFAULT_K = 10
DEFAULT_POPULAR = 0.1


@dataclass(frozen=True, slots=True)
class Analysis:
    """The evaluation of a recommender, the same metrics by segment of users, and metrics beyond accuracy."""

    evaluation: Evaluation
    """Accuracy over all test users."""
    k: int
    """The length of the lists that are analysed."""
    popular: float
    """The share of all items that counts as popular."""
    beyond: dict[str, float]
    """Coverage, Gini index, novelty, popularity share and diversity of the lists; see `railsearch.evaluation`.

    The names that start with "held-out" are the same metrics of the test items themselves, for comparison.
    """
    segments: tuple[Segment, ...]
    """By history length, by popularity of the test item, and, if there are new users, by known and new ones."""

    def to_frame(self) -> "DataFrame":
        """Return one row for each segment: by, segment, users, and each metric with its interval."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        rows = []
        for segment in self.segments:
            row: dict[str, object] = {"by": segment.by, "segment": segment.name, "users": segment.num_queries}
            for name, value in segment.metrics.items():
                bounds = segment.intervals[name]
                row |= {name: value, f"{name} low": bounds.low, f"{name} high": bounds.high}
            rows.append(row)
        return pl.DataFrame(rows)

    def to_dict(self) -> dict[str, object]:
        """Return everything except ranks as JSON values."""
        return {
            **self.evaluation.to_dict(),
            "k": self.k,
            "popular": self.popular,
            "beyond": dict(self.beyond),
            "segments": [segment.to_dict() for segment in self.segments],
        }

    def __str__(self) -> str:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in self.beyond.items())
        return "\n".join([str(self.evaluation), figures, *map(str, self.segments)])


def analyze_test(
    model: SequentialModel,
    split: Split,
    *,
    k: int = DEFAULT_K,
    popular: float = DEFAULT_POPULAR,
    item_counts: Tensor | None = None,
    user_rows: Tensor | None = None,
) -> Analysis:
    """Recommend k items to every test user, rank the test items, and analyse both.

    Memory holds the scores of one block of users, and the k rows of every user.

    Args:
        model: the model to analyse.
        split: a split of interactions with the items of the model.
        k: the length of the lists, and the cutoff of HR and NDCG of the segments.
        popular: the share of all items, the most popular first, that counts as popular.
        item_counts: (N,) training events of each item; by default those of the split.
        user_rows: as in `rank_held_out`; users with a negative row are new. By default, users without training events.
    """
    events, test = split.interactions, split.test
    check_analysis(k, popular, num_items=events.num_items)
    counts = split.count_items() if item_counts is None else item_counts  # (N,)
    ranks, rows = recommend_held_out(model, events, test, k, user_rows=user_rows)  # (n,), (n, K)
    lengths = test.history_ends - events.offsets[test.users]  # (n,)
    num_trained = split.train_ends[test.users] - events.offsets[test.users]  # (n,)
    is_known = num_trained > 0 if user_rows is None else user_rows[test.users] >= 0  # (n,)
    segments = {
        "history length": by_length(lengths),
        "item popularity": by_popularity(test.items, counts),
    }
    if not bool(is_known.all()):
        segments["user"] = by_acquaintance(is_known)
    return Analysis(
        evaluation=Evaluation.of_ranks(ranks, cutoffs=ITEM_CUTOFFS, protocol=split.protocol, query_rows=test.users),
        k=k,
        popular=popular,
        beyond=_beyond(rows, test.items, counts, model.encoder.embed_items(), popular=popular),
        segments=tuple(
            segment
            for by, (names, places) in segments.items()
            for segment in make_segments(by, names, places, ranks, k=k)
        ),
    )


def check_analysis(k: int, popular: float, *, num_items: int) -> None:
    """Check the settings of an analysis before any work."""
    if check_count(k, name="k") > num_items:
        raise InvalidInputError(f"k is {k} but there are {num_items} items; ask for k <= {num_items}.")
    check_popular(popular)


def _beyond(rows: Tensor, targets: Tensor, counts: Tensor, embeddings: Tensor, *, popular: float) -> dict[str, float]:
    k, num_items = rows.shape[1], len(counts)
    figures = {
        f"coverage@{k}": coverage(rows, num_items),
        f"gini@{k}": gini(rows, num_items),
        f"novelty@{k}": novelty(rows, counts),
        "held-out novelty": novelty(targets, counts),
        f"popularity_share@{k}": popularity_share(rows, counts, popular=popular),
        "held-out popularity_share": popularity_share(targets, counts, popular=popular),
    }
    spread = diversity(rows, embeddings)
    return figures if spread is None else {**figures, f"diversity@{k}": spread}
