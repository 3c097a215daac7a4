"""The teacher of a recommender: its scores of users and items, and the task that follows them."""

import torch

from railsearch.data import Split
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.models.sequential import consecutive_rows
from railsearch.similarity import ItemParts, QueryParts
from railsearch.training import TrainingConfig
from railsearch.training.asking import CANDIDATES_PER_ITEM, Candidates, ask_teacher
from railsearch.training.tasks.students import training_histories
from railsearch.training.teacher import TeacherLike, TeacherScores
from railsearch.training.teacher_tables import Names


def ask_about_users(
    teacher: TeacherLike, model: SequentialModel, split: Split, config: TrainingConfig, *, show_progress: bool | None
) -> TeacherScores:
    """Return the scores of a teacher that names users and items by their ids.

    A user is one with the complete training history. A function scores every user who has one; a table must not name
    others.
    """
    events = split.interactions
    counts = split.train_ends - events.offsets[:-1]  # (U,)
    users = (counts > 0).nonzero().flatten()  # (u,)

    def parts() -> tuple[QueryParts, ItemParts]:
        model.train(False)
        histories = training_histories(split, users, max_length=model.encoder.max_length)
        return model.query_parts(histories, users.to(model.device)), model.item_parts()

    is_training = torch.zeros(len(events), dtype=torch.bool)
    is_training[consecutive_rows(events.offsets[:-1], counts)] = True
    candidates = Candidates(
        queries=users,
        right=torch.stack([events.users, events.items], dim=1)[is_training],
        num_items=events.num_items,
        count=CANDIDATES_PER_ITEM * config.teacher_items,
        seed=config.seed,
        similarity=model.similarity,
        parts=parts,
    )
    scores = ask_teacher(
        teacher, Names("user", events.user_ids), Names("item", events.item_ids), candidates, show_progress=show_progress
    )
    is_new = counts[scores.queries] <= 0  # (Q,)
    if bool(is_new.any()):
        user = events.user_ids[int(scores.queries[is_new][0])]
        raise InvalidInputError(
            f"{scores.source} scores {int(is_new.sum())} users without training events, such as {user!r}; drop them."
        )
    return scores
