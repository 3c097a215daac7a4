"""Recommender: from interactions to recommendations, by one object that can be saved and loaded."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch
import xxhash
from torch import Tensor

from railsearch.data import Interactions, Split, leave_last_out
from railsearch.evaluation import Evaluation, evaluate_test
from railsearch.folders import ModelCard, register_opener
from railsearch.foundation.errors import FingerprintError, InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import as_path, check_count
from railsearch.index import Index, Strategy
from railsearch.models import SequentialModel
from railsearch.recommender.card import describe_recommender
from railsearch.recommender.folder import FORMAT, SavedRecommender, read_recommender, write_recommender
from railsearch.recommender.recipe import Recipe, build_encoder, build_similarity
from railsearch.recommender.requests import HistoriesLike, Requests, UnknownItems, find_rows
from railsearch.similarity import fingerprint
from railsearch.similarity.fingerprints import compute_fingerprint
from railsearch.training import FitReport
from railsearch.training.loop import train
from railsearch.training.processes import Processes
from railsearch.training.tasks.histories import NextItemTask

if TYPE_CHECKING:
    from polars import DataFrame, Series

QUERIES_PER_SEARCH = 1024


class Recommender:
    """A trained sequence model, the items that it knows, and the histories of users where they are at hand.

    >>> import polars as pl
    >>> events = pl.DataFrame({"user": [u for u in range(8) for _ in range(5)], "item": [i % 7 for i in range(40)]})
    >>> interactions = Interactions.from_frame(events, timestamp=None)
    >>> recommender = Recommender.fit(interactions, Recipe(training={"epochs": 1}))
    >>> recommender.recommend(histories=[[1, 2, 3]], k=2).columns
    ['user', 'item', 'score', 'rank']
    """

    def __init__(
        self,
        *,
        model: SequentialModel,
        recipe: Recipe,
        card: ModelCard,
        items: "DataFrame",
        user_ids: "Series | None" = None,
        interactions: Interactions | None = None,
        report: FitReport | None = None,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.card = card
        self.items = items
        """One row an item: its id in the column `item`, and what else is known of it."""
        self.user_ids = user_ids
        """Users that the model has a component of their own for; None where it has none."""
        self.interactions = interactions
        self.report = report
        """How training went; None for a model that was loaded."""
        self._index: Index | None = None

    @classmethod
    def fit(
        cls,
        interactions: object,
        recipe: Recipe | None = None,
        *,
        split: Split | None = None,
        folder: str | Path | None = None,
        processes: Processes | None = None,
        show_progress: bool | None = None,
    ) -> Self:
        """Train a recommender, and measure it on the test items of the split.

        Args:
            interactions: `Interactions`, or a table with the columns user, item and timestamp.
            recipe: what to train and how; SASRec with a Mixture of Logits if left out.
            split: what to train on and what to hold out; by the recipe if left out, each user's last item for the test
                and the one before it to pick the epoch.
            folder: where checkpoints and the log go; a run that was cut short goes on from there.
            processes: those that train together, where `torchrun` started several.
            show_progress: a progress bar; by default on a terminal only.
        """
        recipe = Recipe() if recipe is None else recipe
        known = _as_interactions(interactions)
        if split is None:
            split = leave_last_out(known, has_validation=recipe.split.has_validation)
        elif split.interactions is not known:
            raise InvalidInputError("the split is one of other interactions; split those that are given.")
        processes = processes or Processes()
        model = SequentialModel(
            encoder=build_encoder(recipe, num_items=known.num_items, seed=recipe.training.seed),
            similarity=build_similarity(recipe, seed=recipe.training.seed),
        )
        report = train(
            NextItemTask(model, split, recipe.training),
            recipe.training,
            folder=None if folder is None else as_path(folder),
            about=_about(recipe, split),
            processes=processes,
            unit="users",
            show_progress=show_progress,
        )
        evaluation = evaluate_test(model, split) if processes.is_first else None
        return cls(
            model=model,
            recipe=recipe,
            card=describe_recommender(split, recipe, report, evaluation),
            items=known.items_table(),
            user_ids=known.user_ids if model.similarity.takes_user_ids else None,
            interactions=known,
            report=report,
        )

    def recommend(
        self,
        users: Iterable[object] | None = None,
        k: int = 10,
        *,
        histories: HistoriesLike | None = None,
        filter_viewed: bool = True,
        at: int | None = None,
        unknown_items: UnknownItems | str = UnknownItems.REFUSE,
        strategy: Strategy | None = None,
    ) -> "DataFrame":
        """Give the k best items of each user, best first, as a table: user, item, score, rank.

        Args:
            users: ids of users whose histories are at hand: those of `interactions`.
            k: how many items each.
            histories: in place of users, histories themselves: lists of item ids, oldest first; a mapping from users
                to such lists; `Interactions`; or a table with the columns user, item and timestamp. Nobody in it needs
                to have been there in training; a user who was keeps the component that a user table has learned.
                Lists carry no times: to an encoder that looks at them all their events are of one moment. Of a history
                longer than the model was trained on the last events count; all are filtered.
            filter_viewed: leave out what is in the history.
            at: when it is asked, in seconds; by default at the time of the last event. Only with times.
            unknown_items: "refuse" a history with an item that the model does not know, or "ignore" the item.
            strategy: how to search; brute force if left out.
        """
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        check_count(k, name="k")
        requests = Requests.gather(
            users,
            histories,
            item_ids=self.items["item"],
            user_ids=self.user_ids,
            interactions=self.interactions,
            unknown_items=unknown_items,
            at=at,
        )
        self._check_enough(requests, k, filter_viewed=filter_viewed)
        similarity, index = self.model.similarity, self._memory_index()
        tables = []
        for batch in requests.batches(QUERIES_PER_SEARCH):
            queries = self.model.encode(batch.to_histories(max_length=self.model.encoder.max_length))  # (B, D)
            found = index.search(
                queries,
                k,
                strategy,
                exclude=list(batch.items) if filter_viewed else None,
                user_ids=batch.users if similarity.takes_user_ids else None,
            )
            tables.append(
                pl.DataFrame(
                    {
                        "user": batch.names.gather(pl.Series(range(len(batch))).repeat_by(k).explode()),
                        "item": self.items["item"].gather(pl.Series(found.ids.flatten().numpy(force=True))),
                        "score": found.scores.flatten().numpy(force=True),
                        "rank": list(range(1, k + 1)) * len(batch),
                    }
                )
            )
        return pl.concat(tables)

    def encode(
        self, histories: HistoriesLike, *, at: int | None = None, unknown_items: UnknownItems | str = "refuse"
    ) -> Tensor:
        """Query embeddings (B, D) of histories, for an index that `build_index` made; see `recommend`."""
        requests = Requests.gather(
            None,
            histories,
            item_ids=self.items["item"],
            user_ids=None,
            interactions=None,
            unknown_items=unknown_items,
            at=at,
        )
        return self.model.encode(requests.to_histories(max_length=self.model.encoder.max_length))

    def evaluate(self, split: Split) -> Evaluation:
        """Rank the test items of a split whose items are those of this model: HR, NDCG, MRR, with the protocol."""
        given, known = split.interactions, self.items["item"]
        if find_rows(given.item_ids, known).tolist() != list(range(len(known))):
            raise InvalidInputError(
                f"the split has {given.num_items} items and they are not the {len(known)} of this model; split the "
                "interactions that it was trained on, or ones with the same catalogue."
            )
        users = None if self.user_ids is None else find_rows(given.user_ids, self.user_ids)  # (U,)
        return evaluate_test(self.model, split, user_rows=users)

    def build_index(self, path: str | Path | None = None) -> Index:
        """Index every item under the similarity that was trained, in memory or as a folder.

        Ids of items are kept where they are whole numbers, else rows take their place; either way the column `item`
        of the metadata has them. Queries are what `encode` gives.
        """
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        ids = self.items["item"]
        is_whole = ids.dtype.is_integer() and bool(ids.is_between(0, 2**63 - 1).all())
        rows = ids.cast(pl.Int64).to_numpy() if is_whole else None
        return Index.build(
            self.model.similarity, self.model.encoder.embed_items().detach(), rows, path=path, metadata=self.items
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a model folder: config.json, model.safetensors, items.parquet, and a model card, README.md.

        Histories are not written. A kill at any moment leaves the old folder or the new one.
        """
        saved = SavedRecommender(self.model, self.recipe, self.card, self.items, self.user_ids, self.fingerprint)
        write_recommender(saved, as_path(path), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, interactions: object = None) -> Self:
        """Read a model folder; with interactions, as in `fit`, `recommend` knows their users."""
        saved = read_recommender(as_path(path))
        recommender = cls(
            model=saved.model,
            recipe=saved.recipe,
            card=saved.card,
            items=saved.items,
            user_ids=saved.user_ids,
            interactions=None if interactions is None else _as_interactions(interactions),
        )
        if recommender.fingerprint != saved.fingerprint:
            raise FingerprintError(
                f"{path} says that it holds model {saved.fingerprint} but holds {recommender.fingerprint}; restore it "
                "from a copy."
            )
        return recommender

    @property
    def fingerprint(self) -> str:
        """Return the name of the model's content; an index remembers which one it was built with."""
        encoder, similarity = self.model.encoder, self.model.similarity
        settings = {f"encoder.{name}": value for name, value in encoder.config.items()}
        settings |= {f"similarity.{name}": value for name, value in similarity.config.items()}
        settings |= {"encoder": encoder.kind, "similarity": fingerprint(similarity), "items": _items_digest(self.items)}
        return compute_fingerprint("recommender", settings, dict(self.model.state_dict()))

    def _check_enough(self, requests: Requests, k: int, *, filter_viewed: bool) -> None:
        """Check that everybody has k items left."""
        num_items = len(self.items)
        if k > num_items:
            raise NotEnoughItemsError(f"k is {k} but there are {num_items} items; ask for k <= {num_items}.")
        if not filter_viewed:
            return
        for name, items in zip(requests.names, requests.items, strict=True):
            num_left = num_items - len(torch.unique(items))
            if num_left < k:
                remedy = f"ask for k <= {num_left}, or pass" if num_left else "pass"
                raise NotEnoughItemsError(
                    f"k is {k} but the history of {name!r} leaves {num_left} of the {num_items} items; {remedy} "
                    "filter_viewed=False."
                )

    def _memory_index(self) -> Index:
        if self._index is None:
            self._index = Index.build(self.model.similarity, self.model.encoder.embed_items().detach())
        return self._index


def _about(recipe: Recipe, split: Split) -> dict[str, object]:
    """What makes a training run what it is, beside how it is trained: the model, and every event."""
    events = split.interactions
    digest = xxhash.xxh3_64()
    for values in (events.users, events.items, events.timestamps, split.train_ends):
        digest.update(values.numpy().tobytes())
    settings = {
        f"{section}.{name}": value
        for section in ("encoder", "similarity")
        for name, value in getattr(recipe, section).model_dump(mode="json").items()
    }
    return {**settings, "split": split.protocol, "data": f"{len(events):,} events with checksum {digest.hexdigest()}"}


def _items_digest(items: "DataFrame") -> str:
    """Return the checksum of the item ids in their order."""
    return xxhash.xxh3_128_hexdigest("\n".join(map(repr, items["item"])).encode())


def _as_interactions(given: object) -> Interactions:
    return given if isinstance(given, Interactions) else Interactions.from_frame(given)


register_opener(FORMAT.name, Recommender.load)
