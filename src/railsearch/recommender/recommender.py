"""Recommender: from interactions to recommendations, as one object that can be saved and loaded."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from torch import Tensor

from railsearch.data import Interactions, Split, Time
from railsearch.evaluation import Analysis, Evaluation, analyze_test, evaluate_test
from railsearch.folders import ModelCard, check_target, register_opener
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrowTable, as_choice, as_path, check_count
from railsearch.foundation.results import SearchResult
from railsearch.index import Allow, Engine, Index, ModelSource, Precision, ScanPrecision, Strategy
from railsearch.index.rules import MaxPer, Rules
from railsearch.models import SequentialModel
from railsearch.recommender.adding import AddedItems, add_items, save
from railsearch.recommender.cold_start import ColdStart
from railsearch.recommender.events import InteractionsLike, as_interactions
from railsearch.recommender.exporting import ExportedQuery, export_query
from railsearch.recommender.fitted import fit_recommender
from railsearch.recommender.folder import FORMAT, Ancestor, SavedRecommender, fingerprint_of, read_recommender
from railsearch.recommender.indexing import build_index, open_index, source_of
from railsearch.recommender.recipe import Recipe
from railsearch.recommender.recommending import ExcludedItems, Options, encode_requests, recommend
from railsearch.recommender.requests import HistoriesLike, Requests, UnknownItems
from railsearch.recommender.similar import find_similar
from railsearch.recommender.updating import TrainedModel, as_tested
from railsearch.training import FitReport, TeacherLike
from railsearch.training.processes import Processes

if TYPE_CHECKING:
    from polars import DataFrame, Series


class Recommender:
    """A trained sequence model, its items, and the histories of users if they are available.

    >>> import polars as pl
    >>> events = pl.DataFrame({"user": [u for u in range(8) for _ in range(5)], "item": [i % 7 for i in range(40)]})
    >>> interactions = Interactions.from_frame(events, timestamp=None)
    >>> recommender = Recommender.fit(interactions, Recipe(training={"epochs": 1}))
    >>> recommender
    Recommender(sasrec with mixture_of_logits, 7 items)
    >>> recommender.recommend(histories=[[1, 2, 3]], k=2).columns
    ['user', 'item', 'score', 'rank']
    """

    def __init__(
        self, *, model: SequentialModel, recipe: Recipe, card: ModelCard, items: "DataFrame",
        user_ids: "Series | None" = None, item_counts: Tensor | None = None, interactions: Interactions | None = None,
        report: FitReport | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.recipe = recipe
        self.card = card
        self.items = items
        """One row for each item: its id in the column `item`, and its other columns."""
        self.user_ids = user_ids
        """Users for whom the model has learned a component; None if it has no user table."""
        self.item_counts = item_counts  # (N,)
        """The number of training events of each item; None if it is unknown."""
        self.interactions = interactions
        self.report = report
        """The report of training; None for a model that was loaded."""
        self.index: Index | None = None
        """The index that `search` and `recommend` use; built in memory when it is first needed."""
        self._folder: Path | None = None
        self._ancestors: tuple[Ancestor, ...] = ()

    def __repr__(self) -> str:
        return f"Recommender({self.recipe.encoder.kind} with {self.recipe.similarity.kind}, {len(self.items):,} items)"

    @classmethod
    def fit(
        cls, interactions: InteractionsLike, recipe: Recipe | None = None, *, split: Split | None = None,
        start: "Recommender | None" = None, teacher: TeacherLike | None = None, since: Time | None = None,
        folder: str | Path | None = None, save_to: str | Path | None = None, overwrite: bool = False,
        processes: Processes | None = None, show_progress: bool | None = None,
    ) -> Self:  # fmt: skip
        """Train a recommender, and measure it on the test items of the split.

        Args:
            interactions: `Interactions`, or a table with the columns user, item and timestamp.
            recipe: settings; by default SASRec with a Mixture of Logits, or for a start `recipes.update_recipe`.
            split: the events to train on and to hold out; by default as the recipe states: each user's last item for
                the test, and the one before it to pick the epoch.
            start: a recommender that training continues with new events, items and users, or a cosine that a mixture
                continues; it is not changed. Its items keep their rows, and stay even if the data omits them.
            teacher: a scorer to follow: a function of users and items, or a table or a file of user, item, score.
            since: train only on events later than this time, in seconds or as a date; earlier ones are histories only.
            folder: folder for checkpoints and the log; an interrupted run in it continues.
            save_to: save the model there when training is done; checked before training starts.
            overwrite: replace a recommender that is in `save_to`.
            processes: the processes that train together, if `torchrun` started several; the first one saves.
            show_progress: draw a progress bar; by default only on a terminal.
        """
        if start is not None and not isinstance(start, Recommender):
            raise InvalidInputError(f"start is {start!r:.200}; give a Recommender: Recommender.load reads a folder.")
        if save_to is not None:
            check_target(FORMAT, as_path(save_to), overwrite=overwrite)
        processes = processes or Processes()
        done = fit_recommender(
            interactions, recipe, split=split, start=None if start is None else start._trained(), since=since,
            folder=None if folder is None else as_path(folder), processes=processes, teacher=teacher,
            show_progress=show_progress,
        )  # fmt: skip
        recommender = cls(
            model=done.model, recipe=done.recipe, card=done.card, items=done.items, user_ids=done.user_ids,
            item_counts=done.item_counts, interactions=done.interactions, report=done.report,
        )  # fmt: skip
        if save_to is not None and processes.is_first:
            recommender.save(save_to, overwrite=overwrite)
        return recommender

    @property
    def fingerprint(self) -> str:
        """The name of the model's content; an index stores the name of the model that built it."""
        return fingerprint_of(self.model, self.items)

    @property
    def source(self) -> ModelSource:
        """The model as the source of an index: its fingerprint, its folder, and the same model with fewer items."""
        return source_of(self._saved(), self._folder)

    def evaluate(self, data: Split | InteractionsLike | str | Path, *, depth: int = 0) -> Evaluation:
        """Rank the test items among all items of the model: HR, NDCG and MRR, with the protocol.

        Args:
            data: a split; or interactions, a table or a folder of prepared data, which are split as the recipe states.
                Their items must be items of this model; those that were added to it count too.
            depth: best items of each user to keep in `run` of the result, which can be saved as a TREC run; 0 for none.
        """
        split, users = as_tested(data, self.recipe, self.items, self.user_ids)
        return evaluate_test(self.model, split, user_rows=users, depth=depth)

    def analyze(self, data: Split | InteractionsLike | str | Path, *, k: int = 10, popular: float = 0.1) -> Analysis:
        """Evaluate as `evaluate` does, also by segment of users, and measure what is recommended beyond accuracy.

        Args:
            data: as in `evaluate`. Popularity is counted on the training events of this model.
            k: items that are recommended to each test user, and the cutoff of HR and NDCG by segment.
            popular: share of all items, those with the most training events, that counts as popular.
        """
        split, users = as_tested(data, self.recipe, self.items, self.user_ids)
        return analyze_test(self.model, split, k=k, popular=popular, item_counts=self.item_counts, user_rows=users)

    def recommend(
        self, users: Iterable[object] | None = None, k: int = 10, *, histories: HistoriesLike | None = None,
        filter_viewed: bool = True, at: int | None = None, unknown_items: UnknownItems | str = UnknownItems.REFUSE,
        cold_start: ColdStart | str = ColdStart.REFUSE, strategy: Strategy | None = None, allow: Allow = None,
        exclude: ExcludedItems = None, max_per: Mapping[str, int | MaxPer] | None = None, diversity: float = 0.0,
        pool: int | None = None, pad: bool = False,
    ) -> "DataFrame":  # fmt: skip
        """Return the k best items of each user, best first, as a table: user, item, score, rank.

        Args:
            users: ids of users whose histories are available: those of `interactions`.
            k: the number of items for each user.
            histories: histories instead of users: lists of item ids, oldest first; a mapping from users
                to such lists; `Interactions`; or a table with the columns user, item and timestamp. Their users may be
                new; a user of the training data keeps the component that a user table has learned. Lists carry no
                times: an encoder that uses times treats all their events as simultaneous. If a history is longer
                than the model was trained on, the last events count, and all are filtered.
            filter_viewed: omit items that are in the history.
            at: the time of the request in seconds; by default the time of the last event. Only with times.
            unknown_items: "refuse" a history with an item that the model does not know, or "ignore" the item.
            cold_start: "refuse" an unknown user and a history without known items, or recommend "popular" items: those
                with the most training events, whose number is the score. Scores of other users have another scale.
            strategy: how to search; by default the one that the index was tuned to, or brute force.
            allow: recommend only these items, as in `Index.search`: index ids, a mask, or a condition over the columns
                of `items`, such as "year >= 2000".
            exclude: items that are never recommended, or a mapping from users to such items; unknown items are ignored.
            max_per: the most items of one value of a column of `items`, such as {"genre": 2}. A list column has several
                values, as has a text with a separator: {"genres": MaxPer(2, separator="|")}.
            diversity: from 0 to 1; re-rank the best by maximal marginal relevance. Scores stay those of the model.
            pool: the number of best items that `max_per` and `diversity` choose from, by default 4 k and at least 100;
                twice as many while `max_per` leaves fewer than k.
            pad: return fewer than k items for a user who has fewer left; by default, this raises an error.
        """
        check_count(k, name="k")
        cold = as_choice(ColdStart, cold_start, name="cold_start")
        rules = Rules.of(max_per, diversity, pool)
        requests = self._requests(users, histories, at=at, unknown_items=unknown_items, remedy=cold.remedy)
        options = Options(
            filter_viewed=filter_viewed, cold_start=cold, strategy=strategy, allow=allow, exclude=exclude, rules=rules,
            pad=pad,
        )  # fmt: skip
        return recommend(
            requests, k, options, model=self.model, index=self._searched(), items=self.items,
            item_counts=self.item_counts,
        )  # fmt: skip

    def similar_items(
        self, item_ids: int | str | Iterable[object], k: int = 10, *, exclude: Iterable[object] | None = None,
        allow: Allow = None, pad: bool = False,
    ) -> "DataFrame":  # fmt: skip
        """Return the k items that are most similar to each item, as a table: item, similar, score, rank.

        The score is the mean cosine of the items' components; one scan of the index finds the exact top K.

        Args:
            item_ids: an item of the index, or a list of them.
            k: the number of similar items for each; an item is never similar to itself.
            exclude: items that are never returned; unknown ones are ignored.
            allow: as in `recommend`.
            pad: return fewer than k items if `exclude` and `allow` leave fewer; by default, this raises an error.
        """
        return find_similar(self._searched(), self.items, item_ids, k, exclude=exclude, allow=allow, pad=pad)

    def search(
        self, histories: HistoriesLike, k: int = 10, strategy: Strategy | None = None,
        exclude: Sequence[Sequence[int]] | None = None, allow: Allow = None, *, at: int | None = None,
        unknown_items: UnknownItems | str = UnknownItems.REFUSE, pad: bool = False,
    ) -> SearchResult:  # fmt: skip
        """Find the k best items for each history, with scores, gap and certificate; `to_frame()` has the item columns.

        Items of a history are not excluded; `recommend` does that. Ids are those of the index (see `build_index`).

        Args:
            histories: as in `recommend`.
            k: the number of items for each history.
            strategy: how to search; by default the one that the index was tuned to, or brute force.
            exclude: as in `Index.search`.
            allow: as in `Index.search`.
            at: as in `recommend`.
            unknown_items: as in `recommend`.
            pad: as in `Index.search`.
        """
        check_count(k, name="k")
        requests = self._requests(None, histories, at=at, unknown_items=unknown_items)
        users = requests.users if self.model.similarity.takes_user_ids else None
        queries = encode_requests(self.model, requests)  # (B, D)
        return self._searched().search(queries, k, strategy, exclude, allow, user_ids=users, pad=pad)

    def encode(
        self, histories: HistoriesLike, *, at: int | None = None,
        unknown_items: UnknownItems | str = UnknownItems.REFUSE,
    ) -> Tensor:  # fmt: skip
        """Return query embeddings (B, D) of histories, for an index that `build_index` built; see `recommend`."""
        requests = self._requests(None, histories, at=at, unknown_items=unknown_items)
        return encode_requests(self.model, requests)  # (B, D)

    def build_index(
        self, path: str | Path | None = None, *, precision: Precision | str = Precision.FP32,
        scan: ScanPrecision | str = ScanPrecision.FULL, engine: Engine | None = None, show_progress: bool | None = None,
    ) -> Index:  # fmt: skip
        """Index every item, in memory or as a folder; `search` and `recommend` use it from now on.

        The index keeps item ids that are integers from 0; otherwise it numbers the items by row. In both cases its
        metadata are the columns of `items`, except for columns called query, rank, id or score.

        Args:
            path: a folder to create, which must not exist.
            precision: precision of the item components: fp32, fp16 or bf16.
            scan: "int8" for faster scans with the same results, as in `Index.build`.
            engine: engine of the first stage, as in `Index.build`.
            show_progress: draw a progress bar; by default only on a terminal.
        """
        self.index = build_index(
            self._saved(), self._folder, path, precision=precision, scan=scan, engine=engine,
            show_progress=show_progress,
        )  # fmt: skip
        return self.index

    def open_index(self, path: str | Path, *, version: int | None = None, engine: Engine | None = None) -> Index:
        """Open an index that this model built, for `search` and `recommend`; refuse one of another model.

        Args:
            path: a folder that `build_index` created.
            version: as in `Index.open`.
            engine: as in `Index.open`.
        """
        self.index = open_index(self._saved(), self._folder, path, version=version, engine=engine)
        return self.index

    def add_items(self, items: ArrowTable, *, show_progress: bool | None = None) -> AddedItems:
        """Add items that were not there in training; from now on they are recommended, and histories may hold them.

        The model needs `encoder.item_features`. Its folder, if it has one, is replaced. The index, if one is open, gets
        the items by one commit. If the process is killed, the same call again completes it.

        Args:
            items: a table with new ids in the column `item`, the features, and the other columns of `items`.
            show_progress: draw a progress bar; by default only on a terminal.
        """
        return add_items(
            self._saved(), items, folder=self._folder, index=self.index, on_grown=self._take,
            show_progress=show_progress,
        )  # fmt: skip

    def export(self, path: str | Path, *, overwrite: bool = False) -> ExportedQuery:
        """Write the query side as ONNX, and the rows of items as JSON beside it; see `docs/how-to/exporting.md`."""
        return export_query(self._saved(), as_path(path), overwrite=overwrite)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a model folder: config.json, model.safetensors, items.parquet, and a model card, README.md.

        Histories and the index are not written. If the process is killed, the old or the new folder remains.
        """
        self._folder = save(self._saved(), as_path(path), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, interactions: InteractionsLike | None = None) -> Self:
        """Read a model folder that `save` wrote; with interactions, as in `fit`, `recommend` accepts their users."""
        saved = read_recommender(as_path(path))
        recommender = cls(
            model=saved.model, recipe=saved.recipe, card=saved.card, items=saved.items, user_ids=saved.user_ids,
            item_counts=saved.item_counts, interactions=None if interactions is None else as_interactions(interactions),
        )  # fmt: skip
        recommender._folder, recommender._ancestors = as_path(path).resolve(), saved.ancestors
        return recommender

    def _saved(self) -> SavedRecommender:
        known = (self.items, self.user_ids, self.item_counts, self.fingerprint, self._ancestors)
        return SavedRecommender(self.model, self.recipe, self.card, *known)

    def _take(self, grown: SavedRecommender) -> None:
        self.model, self.items, self._ancestors = grown.model, grown.items, grown.ancestors
        self.item_counts = grown.item_counts

    def _requests(
        self, users: Iterable[object] | None, histories: HistoriesLike | None, *, at: int | None,
        unknown_items: UnknownItems | str, remedy: str | None = ColdStart.REFUSE.remedy,
    ) -> Requests:  # fmt: skip
        return Requests.gather(
            users, histories, item_ids=self.items["item"], user_ids=self.user_ids, interactions=self.interactions,
            unknown_items=unknown_items, at=at, remedy=remedy,
        )  # fmt: skip

    def _trained(self) -> TrainedModel:
        return TrainedModel(self.model, self.recipe, self.items, self.user_ids, self.fingerprint, self.item_counts)

    def _searched(self) -> Index:
        return self.build_index(show_progress=False) if self.index is None else self.index


register_opener(FORMAT.name, Recommender.load)
