"""Recommend to every user of prepared data, and write the recommendations in parts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from railsearch.data.interactions.user_parts import UserParts
from railsearch.distributed.batch.index_version import IndexVersion
from railsearch.distributed.batch.job import ROWS_PER_PART, Compute, InputFile, Stated
from railsearch.distributed.batch.parts import as_output, check_output
from railsearch.distributed.batch.runners import Runner
from railsearch.distributed.batch.running import JobReport, run_job
from railsearch.foundation.errors import FingerprintError
from railsearch.foundation.inputs import as_choice, as_path
from railsearch.index import Engine, Strategy
from railsearch.index.rules import MaxPer, Rules
from railsearch.recommender import ColdStart, Recommender
from railsearch.recommender.requests import UnknownItems

if TYPE_CHECKING:
    from polars import DataFrame


@dataclass(frozen=True, slots=True)
class RecommendJob:
    """Recommendations for every user of prepared data."""

    kind: ClassVar[str] = "recommend"
    users: UserParts
    file: InputFile
    model: Path
    fingerprint: str
    index: IndexVersion | None
    k: int
    filter_viewed: bool
    unknown_items: UnknownItems
    cold_start: ColdStart
    strategy: Strategy | None
    allow: str | None
    exclude: tuple[int | str, ...] | None
    rules: Rules
    pad: bool
    users_per_part: int

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return self.users.num_parts

    def stated(self) -> Stated:
        """Return everything that determines the output."""
        return {
            **self.file.stated("events"),
            "items_checksum": self.users.items.checksum,
            "model": self.fingerprint,
            **({} if self.index is None else self.index.stated()),
            "k": self.k,
            "filter_viewed": self.filter_viewed,
            "unknown_items": self.unknown_items.value,
            "cold_start": self.cold_start.value,
            "strategy": None if self.strategy is None else repr(self.strategy),
            "allow": self.allow,
            **self._stated_rules(),
            "pad": self.pad,
            "users_per_part": self.users_per_part,
        }

    def _stated_rules(self) -> Stated:
        """Return the rules by name; nothing if there are none, as in the jobs of earlier versions."""
        rules = {
            "exclude": None if self.exclude is None else json.dumps(self.exclude),
            "max_per": repr(self.rules.max_per) if self.rules.max_per else None,
            "diversity": str(self.rules.diversity) if self.rules.diversity else None,
            "pool": self.rules.pool,
        }
        return {name: value for name, value in rules.items() if value is not None}

    def places(self) -> dict[str, str]:
        """Return the paths of data, model and index."""
        own = {} if self.index is None else {"index": str(self.index.path)}
        return {"data": str(self.users.folder), "model": str(self.model), **own}

    def open(self) -> Compute:
        """Load the model, and return the function that recommends to the users of a part."""
        recommender, items = self.load(), self.users.read_items()

        def compute(part: int) -> "DataFrame":
            histories = self.users.read(part, items)
            self.file.check()
            return recommender.recommend(
                k=self.k,
                histories=histories,
                filter_viewed=self.filter_viewed,
                unknown_items=self.unknown_items,
                cold_start=self.cold_start,
                strategy=self.strategy,
                allow=self.allow,
                exclude=self.exclude,
                max_per=dict(self.rules.max_per),
                diversity=self.rules.diversity,
                pool=self.rules.pool,
                pad=self.pad,
            )

        return compute

    def load(self) -> Recommender:
        """Load the model with its index, and refuse another model than the one that the job started with."""
        recommender = Recommender.load(self.model)
        if recommender.fingerprint != self.fingerprint:
            raise FingerprintError(
                f"{self.model} holds {recommender.fingerprint} but the job started with {self.fingerprint}; put the "
                "model back, or start the job again with another output."
            )
        if self.index is not None:
            recommender.open_index(self.index.path, version=self.index.version, engine=self.index.engine)
            self.index.check()
        return recommender


def recommend_all(
    model: str | Path,
    data: str | Path,
    output: str | Path,
    k: int = 10,
    *,
    index: str | Path | None = None,
    filter_viewed: bool = True,
    unknown_items: UnknownItems | str = UnknownItems.REFUSE,
    cold_start: ColdStart | str = ColdStart.REFUSE,
    strategy: Strategy | None = None,
    allow: str | None = None,
    exclude: Sequence[int] | Sequence[str] | None = None,
    max_per: Mapping[str, int | MaxPer] | None = None,
    diversity: float = 0.0,
    pool: int | None = None,
    pad: bool = False,
    engine: Engine | None = None,
    users_per_part: int = ROWS_PER_PART,
    runner: Runner | None = None,
    show_progress: bool | None = None,
) -> JobReport:
    """Recommend the k best items to every user of prepared data, as Parquet files: user, item, score, rank.

    The rows are those of `Recommender.recommend`. Memory holds the histories of one part at a time. A second call
    continues a job that was interrupted.

    Args:
        model: folder of a recommender.
        data: folder of prepared data with the histories.
        output: a new folder, or one of the same job.
        k: the number of items for each user.
        index: an index that the model built; in memory if omitted.
        filter_viewed: as in `Recommender.recommend`.
        unknown_items: as in `Recommender.recommend`.
        cold_start: as in `Recommender.recommend`.
        strategy: as in `Recommender.recommend`.
        allow: a condition over the columns of the items.
        exclude: items that are never recommended.
        max_per: as in `Recommender.recommend`.
        diversity: as in `Recommender.recommend`.
        pool: as in `Recommender.recommend`.
        pad: as in `Recommender.recommend`.
        engine: engine of the first stage, if an index is given.
        users_per_part: users in each part.
        runner: computes the parts, such as `RayRunner()`; by default this process, one after the other.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    check_output(as_output(output))
    recommender = Recommender.load(model)
    opened = None if index is None else recommender.open_index(index, engine=engine)
    known = recommender.items["item"][:1].to_list()
    recommender.recommend(  # the arguments fit, or this raises
        k=k, histories=[known], filter_viewed=False, strategy=strategy, cold_start=cold_start, allow=allow,
        exclude=exclude, max_per=max_per, diversity=diversity, pool=pool, pad=pad,
    )  # fmt: skip
    users = UserParts.cut(data, users_per_part=users_per_part)
    job = RecommendJob(
        users=users,
        file=InputFile.known(users.events_file, users.events),
        model=as_path(model),
        fingerprint=recommender.fingerprint,
        index=None if opened is None else IndexVersion.of(opened, engine),
        k=k,
        filter_viewed=filter_viewed,
        unknown_items=as_choice(UnknownItems, unknown_items, name="unknown_items"),
        cold_start=as_choice(ColdStart, cold_start, name="cold_start"),
        strategy=strategy,
        allow=allow,
        exclude=None if exclude is None else tuple(exclude),
        rules=Rules.of(max_per, diversity, pool),
        pad=pad,
        users_per_part=users_per_part,
    )
    return run_job(job, output, runner=runner, show_progress=show_progress)
