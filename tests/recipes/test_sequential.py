"""Next-item training and full ranking, against plain loops over users and positions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from railsearch.data import Split, leave_last_out
from railsearch.errors import InvalidInputError
from railsearch.models import SequentialModel, rank_held_out
from railsearch.recommender.recipe import build_encoder, build_similarity
from railsearch.similarity import load_balance_loss
from railsearch.training import TrainingConfig
from railsearch.training.negatives import Contrast, Negatives
from railsearch.training.task import Batch
from railsearch.training.tasks import histories as sequential
from railsearch.training.tasks.histories import NextItemTask, draw_positions
from tests.support.naive_ranking import compare_alone, encode_alone, events_of, naive_ranks
from tests.support.training_worlds import ENCODERS, SIMILARITIES, random_walks, small_recipe

NUM_ITEMS = 20
SPLIT = leave_last_out(random_walks(num_users=9, num_items=NUM_ITEMS, lengths=(3, 14)))  # max_length is 8
BATCH = torch.tensor([4, 0, 7, 2, 8])
BALANCE, PENALTY = 0.3, 0.7


def make_model(encoder: str, similarity: str, *, num_items: int = NUM_ITEMS) -> SequentialModel:
    """A model whose weights are far enough from zero for every part of it to matter."""
    recipe = small_recipe(encoder, similarity)
    encoder_module = build_encoder(recipe, num_items=num_items, seed=0)
    model = SequentialModel(encoder=encoder_module, similarity=build_similarity(recipe, seed=0))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
        if similarity == "mixture-user":
            model.similarity.user_table.rows.weight[0].zero_()
    return model


def examples_of(split: Split, user: int, max_length: int) -> list[tuple[list[int], list[int], int, int]]:
    """(items, times, time of the request, right item) of every position of a user's training events."""
    items, times = events_of(split.interactions, user)
    num_train = int(split.train_ends[user] - split.interactions.offsets[user])
    items, times = items[:num_train], times[:num_train]
    first = max(0, num_train - 1 - max_length)
    return [
        (items[first : last + 1], times[first : last + 1], times[last + 1], items[last + 1])
        for last in range(first, num_train - 1)
    ]


def draw_naively(
    kind: str, targets: list[list[int]], pool: list[int], generator: torch.Generator, count: int
) -> list[list[int]]:
    """The negatives of each example, in order, from the same generator as the task's."""
    flat = [target for own in targets for target in own]

    def draw(high: int, rows: int, count: int = count) -> list[list[int]]:
        return torch.randint(high, (rows, count), generator=generator).tolist()

    if kind == "per_example":
        return draw(NUM_ITEMS, len(flat))
    if kind == "all":
        return [list(range(NUM_ITEMS))] * len(flat)
    if kind == "mixed":
        (uniform,), (places,) = draw(NUM_ITEMS, 1, count - count // 2), draw(len(pool), 1, count // 2)
        return [uniform + [pool[place] for place in places]] * len(flat)
    if kind == "uniform":
        return draw(NUM_ITEMS, 1) * len(flat)
    if kind == "per_history":
        return [row for row, own in zip(draw(NUM_ITEMS, len(targets)), targets, strict=True) for _ in own]
    rows = draw(len(pool), len(targets))
    return [[pool[place] for place in row] for row, own in zip(rows, targets, strict=True) for _ in own]


def naive_offset(item: int, max_length: int) -> float:
    """The log of the chance of an item under uniform negatives over that under mixed ones."""
    users = [user for user in range(9) if int(SPLIT.train_ends[user] - SPLIT.interactions.offsets[user]) > 1]
    targets = [each[3] for user in users for each in examples_of(SPLIT, user, max_length)]
    uniform = 1 / NUM_ITEMS
    return math.log(uniform / ((uniform + targets.count(item) / len(targets)) / 2))


@pytest.mark.parametrize("positions", [None, 2])
@pytest.mark.parametrize("kind", [kind.value for kind in Negatives if kind is not Negatives.HARD])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_loss_and_gradient_are_those_of_a_plain_loop(
    encoder: str, similarity: str, kind: str, positions: int | None
) -> None:
    config = TrainingConfig(
        negatives=kind, num_negatives=6, balance_weight=BALANCE, user_penalty_weight=PENALTY,
        positions_per_history=positions,
    )  # fmt: skip
    model = make_model(encoder, similarity).double().eval()
    task = NextItemTask(model, SPLIT, config)
    trained = [user for user in range(9) if int(SPLIT.train_ends[user] - SPLIT.interactions.offsets[user]) > 1]
    users = [trained[row] for row in BATCH]
    examples = [examples_of(SPLIT, user, model.encoder.max_length) for user in users]
    assert any(len(own) == model.encoder.max_length for own in examples)

    generator = torch.Generator().manual_seed(5)
    pool = [each[3] for own in examples for each in own]  # also of positions that are not drawn
    if positions is not None:
        lengths = [len(own) for own in examples]
        chosen = set(draw_positions(torch.tensor(lengths), positions, generator).tolist())
        starts = [sum(lengths[:row]) for row in range(len(lengths))]
        examples = [
            [each for place, each in enumerate(own) if start + place in chosen]
            for start, own in zip(starts, examples, strict=True)
        ]
    negatives = iter(draw_naively(kind, [[each[3] for each in own] for own in examples], pool, generator, 6))
    losses, weights = [], []
    for user, own in zip(users, examples, strict=True):
        for items, times, asked_at, right in own:
            candidates = [right, *(item for item in next(negatives) if item != right)]
            scores, gate_weights = compare_alone(model, encode_alone(model, items, times, asked_at), user, candidates)
            if kind == "mixed":
                offsets = [0.0, *(naive_offset(item, model.encoder.max_length) for item in candidates[1:])]
                scores = scores + torch.tensor(offsets, dtype=torch.float64)
            losses.append(scores.logsumexp(dim=0) - scores[0])
            weights.append(gate_weights[0])
    softmax, balance = torch.stack(losses).mean(), load_balance_loss(torch.stack(weights))
    total = softmax + BALANCE * balance
    if similarity == "mixture-user":
        rows = model.similarity.user_table.rows.weight[torch.tensor(users) + 1]
        total = total + PENALTY * sum((row**2).sum() for row in rows) / len(users)
    total.backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()

    model.train()
    found = task.step(Batch(BATCH, BATCH, torch.Generator().manual_seed(5)))
    assert found.softmax == pytest.approx(softmax.item(), rel=1e-10)
    assert found.balance == pytest.approx(balance.item(), abs=1e-10)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-8, atol=1e-10, msg=name)
        assert bool((expected[name] != 0).any()), f"{name} gets no gradient, so that nothing was compared"


def test_the_shares_of_processes_sum_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def fixed(_kind: Negatives, positives: Tensor, *_: object, **__: object) -> Contrast:
        return Contrast(positives, torch.tensor([[3, 1, 4, 1, 5, 9]]), (len(positives),))

    monkeypatch.setattr(sequential, "draw_contrast", fixed)
    config = TrainingConfig(balance_weight=0.0, user_penalty_weight=PENALTY)
    gradients, losses = [], []
    for shares in ([BATCH], [BATCH[0::3], BATCH[1::3], BATCH[2::3], BATCH[:0]]):
        model = make_model("sasrec", "mixture-user").double()
        task = NextItemTask(model, SPLIT, config)
        losses.append(sum(task.step(Batch(BATCH, own, torch.Generator())).softmax for own in shares))
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert losses[0] == pytest.approx(losses[1])
    for whole, summed in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, summed)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), count=st.integers(1, 10), seed=st.integers(0, 99))
def test_drawn_positions(lengths: list[int], count: int, seed: int) -> None:
    drawn = draw_positions(torch.tensor(lengths), count, torch.Generator().manual_seed(seed)).tolist()
    assert drawn == sorted(set(drawn))
    start = 0
    for length in lengths:
        own = [place for place in drawn if start <= place < start + length]
        assert len(own) == min(length, count)
        start += length
    assert len(drawn) == sum(min(length, count) for length in lengths)
    assert drawn == draw_positions(torch.tensor(lengths), count, torch.Generator().manual_seed(seed)).tolist()


def test_every_position_is_drawn_equally_often() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(7)
    for _ in range(2000):
        counts[draw_positions(torch.tensor([5, 2]), 2, generator)] += 1
    assert counts[5:].tolist() == [2000, 2000]
    assert bool(((counts[:5] - 800).abs() < 100).all())  # 2 of 5; the standard deviation is 22


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_ranks_are_those_of_a_plain_loop(encoder: str, similarity: str) -> None:
    interactions = random_walks(num_users=40, num_items=25, lengths=(1, 15))  # some too short, some beyond max_length
    model = make_model(encoder, similarity, num_items=25).eval()
    with torch.no_grad():  # items that tie, with each other and with held-out ones
        model.encoder.item_table.weight[5:15] = model.encoder.item_table.weight[15:25]
    for has_validation in (True, False):
        split = leave_last_out(interactions, has_validation=has_validation)
        assert interactions.num_users - len(split.test.users) > 0
        counted = set(split.test.users.tolist())
        for held_out, num_held_out in ((split.test, 1), (split.validation, 2)):
            if held_out is None:
                continue
            with torch.no_grad():
                answers = naive_ranks(model, interactions, num_held_out)
            enough = [user for user in range(40) if len(events_of(interactions, user)[0]) > num_held_out]
            expected = [
                answer[1:].index(answer[0]) + 1 for user, answer in zip(enough, answers, strict=True) if user in counted
            ]
            assert rank_held_out(model, interactions, held_out).tolist() == expected


def test_nothing_to_train_on() -> None:
    split = leave_last_out(random_walks(num_users=4, lengths=(3, 3), num_items=20))
    with pytest.raises(InvalidInputError, match="no user has two events to train on; give longer histories"):
        NextItemTask(make_model("sasrec", "cosine"), split, TrainingConfig())
