"""Full ranking by a plain loop over users, one history at a time."""

import torch
from torch import Tensor

from railsearch.data import Interactions
from railsearch.encoders import Histories
from railsearch.models import SequentialModel


def events_of(interactions: Interactions, user: int) -> tuple[list[int], list[int]]:
    """Return items and times of one user, oldest first."""
    is_own = interactions.users == user
    return interactions.items[is_own].tolist(), interactions.timestamps[is_own].tolist()


def encode_alone(model: SequentialModel, items: list[int], times: list[int], asked_at: int) -> Tensor:
    """Return the query (1, D) of one history by itself."""
    one = Histories(
        items=torch.tensor(items), times=torch.tensor(times), next_times=torch.tensor([*times[1:], asked_at]),
        lengths=torch.tensor([len(items)]),
    )  # fmt: skip
    return model.encoder(one)[-1:]


def compare_alone(model: SequentialModel, query: Tensor, user: int, items: list[int]) -> tuple[Tensor, Tensor]:
    """Return scores (n,) and gate weights (n, P) of one query with some items."""
    user_ids = torch.tensor([user]) if model.similarity.takes_user_ids else None
    compared = model.similarity.compare(
        model.similarity.query_parts(query, user_ids=user_ids),
        model.similarity.item_parts(model.encoder.item_table.weight[items]),
    )
    return compared.scores[0], compared.gate_weights[0]


def naive_ranks(model: SequentialModel, interactions: Interactions, num_held_out: int) -> list[list[int]]:
    """Return, for each user with enough events, the held-out item and then all candidates in the order of ranking.

    Items with the same row of the table tie: torch may give them scores that differ in the last bit, so all take
    the score of the first.
    """
    answers, table = [], model.encoder.item_table.weight
    first = [
        next(other for other in range(item + 1) if torch.equal(table[other], table[item])) for item in range(len(table))
    ]
    for user in range(interactions.num_users):
        items, times = events_of(interactions, user)
        place = len(items) - num_held_out
        if place < 1:
            continue
        history, target = items[:place], items[place]
        window = slice(max(0, place - model.encoder.max_length), place)
        query = encode_alone(model, items[window], times[window], times[place])
        scores = compare_alone(model, query, user, list(range(interactions.num_items)))[0]
        candidates = [item for item in range(len(scores)) if item == target or item not in history]
        answers.append([target, *sorted(candidates, key=lambda item: (-float(scores[first[item]]), item))])
    return answers
