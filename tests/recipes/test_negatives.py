"""Negatives that a batch shares: mixed, hard and all items, against plain definitions, and runs that resume."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor

from railsearch import DotProduct, MixtureOfLogits, fit_similarity
from railsearch.data import Split, leave_last_out
from railsearch.models import SequentialModel
from railsearch.recommender.recipe import build_encoder, build_similarity
from railsearch.similarity import load_balance_loss
from railsearch.training import TrainingConfig
from railsearch.training.hard import MOST_QUERIES, find_hard_items
from railsearch.training.loop import train
from railsearch.training.losses import StepLosses, backward_sampled_softmax
from railsearch.training.negatives import Contrast, Negatives, RightPairs, mixed_offsets
from railsearch.training.task import Batch
from railsearch.training.tasks import histories
from railsearch.training.tasks.histories import NextItemTask
from tests.support.training_worlds import random_walks, small_recipe

NUM_ITEMS = 30
NEW_KINDS = ["all", "mixed", "hard"]


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_last_out(random_walks(num_users=20, num_items=NUM_ITEMS, lengths=(4, 10)))


def make_model(similarity: str = "cosine") -> SequentialModel:
    recipe = small_recipe("sasrec", similarity)
    encoder = build_encoder(recipe, num_items=NUM_ITEMS, seed=0)
    return SequentialModel(encoder=encoder, similarity=build_similarity(recipe, seed=0))


def find(similarity: DotProduct, queries: Tensor, items: Tensor, right: list[list[int]], count: int) -> list[int]:
    pairs = torch.tensor([[row, item] for row, own in enumerate(right) for item in own])
    found = find_hard_items(
        similarity, queries, items, count=count, right=RightPairs(pairs, num_items=len(items)),
        owners=torch.arange(len(queries)), user_ids=None, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    return found.tolist()  # type: ignore[no-any-return]


def test_hard_items_are_the_best_ones_that_are_not_right() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(4, 8, generator=generator), torch.randn(25, 8, generator=generator)
    similarity = DotProduct(dim=8).train()
    order = (queries @ items.T).argsort(dim=1, descending=True).tolist()
    right = [own[:2] for own in order]  # the two best ones of each query are right
    assert find(similarity, queries, items, right, 12) == sorted({item for own in order for item in own[2:5]})
    assert similarity.training
    assert find(similarity, queries, items, right, 0) == []
    everything = [list(range(24))] * 4  # only one item is left
    assert find(similarity, queries, items, everything, 12) == [24]


def test_there_are_no_more_hard_items_than_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(200, 8, generator=generator), torch.randn(300, 8, generator=generator)
    for count in (1, 7, MOST_QUERIES, 150):
        assert 0 < len(find(DotProduct(dim=8), queries, items, [[0]] * 200, count)) <= count


def test_items_of_the_own_history_do_not_count(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Contrast] = []

    def keep(*arguments: object, **options: object) -> StepLosses:
        assert isinstance(arguments[3], Contrast)
        seen.append(arguments[3])
        return backward_sampled_softmax(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(histories, "backward_sampled_softmax", keep)
    rows_of: list[Tensor] = []
    distinct = Contrast.distinct_items

    def note(contrast: Contrast) -> tuple[Tensor, Contrast]:
        rows, placed = distinct(contrast)
        rows_of.append(rows)
        return rows, placed

    monkeypatch.setattr(Contrast, "distinct_items", note)
    task = NextItemTask(make_model(), split, TrainingConfig(negatives="hard", num_negatives=20))
    batch = torch.tensor([3, 0, 5])
    task.step(Batch(batch, batch, torch.Generator().manual_seed(1)))
    (contrast,), (rows,) = seen, rows_of
    assert contrast.excluded is not None
    assert contrast.excluded_rows is not None
    negatives = rows[contrast.negatives[0]].tolist()
    users = [user for user in range(20) if int(split.train_ends[user] - split.interactions.offsets[user]) > 1]
    for place, row in enumerate(batch.tolist()):
        start, end = int(split.interactions.offsets[users[row]]), int(split.train_ends[users[row]])
        own = set(split.interactions.items[start:end].tolist())
        assert contrast.excluded[place].tolist() == [item in own for item in negatives]
        assert int((contrast.excluded_rows == place).sum()) == end - start - 1
    assert len(negatives) <= 20


@pytest.mark.parametrize("similarity", ["cosine", "mixture"])
def test_all_items_are_the_full_softmax(split: Split, similarity: str) -> None:
    model = make_model(similarity)
    task = NextItemTask(model, split, TrainingConfig(negatives="all", num_negatives=1))
    batch = torch.arange(task.num_examples)
    found = task.step(Batch(batch, batch, torch.Generator()))
    with torch.no_grad():
        inputs, targets = task._histories(task._users)
        scores = model.similarity(model.encoder(inputs), model.encoder.embed_items())  # type: ignore[operator]
        expected = float(torch.nn.functional.cross_entropy(scores, targets))
    assert found.softmax == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("num_negatives", [1, 2, 3, 5, 128])
def test_mixed_negatives_estimate_the_sum_over_all_items(num_negatives: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(12, generator=generator).double()
    positives = torch.randint(4, 12, (1000,), generator=generator)
    offsets = mixed_offsets(positives, num_items=12, num_negatives=num_negatives)
    shares = torch.bincount(positives, minlength=12) / 1000
    num_popular = num_negatives // 2  # one more is drawn uniformly if the number is odd
    chances = (num_popular * shares.double() + (num_negatives - num_popular) / 12) / num_negatives
    assert float((chances * (scores + offsets).exp()).sum()) == pytest.approx(float(scores.exp().mean()))


def test_examples_can_share_rows_of_excluded() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = (torch.randn(count, 4, generator=generator) for count in (6, 9))
    similarity = DotProduct(dim=4)
    excluded, rows = torch.rand(2, 5, generator=generator) < 0.5, torch.tensor([0, 0, 1, 1, 1, 0])
    negatives, positives = torch.tensor([[1, 8, 3, 5, 2]]), torch.tensor([0, 1, 2, 3, 4, 5])
    found = [
        backward_sampled_softmax(
            similarity, similarity.query_parts(queries.requires_grad_()), similarity.item_parts(items), contrast,
            balance_weight=0.0,
        ).softmax
        for contrast in (
            Contrast(positives, negatives, (6,), excluded=excluded[rows]),
            Contrast(positives, negatives, (6,), excluded=excluded, excluded_rows=rows),
        )
    ]  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.parametrize("has_offsets", [False, True], ids=["", "offsets"])
def test_negatives_drawn_twice_count_twice_in_a_mixture(has_offsets: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    similarity = MixtureOfLogits(
        query_dim=4, item_dim=4, num_query_components=2, num_item_components=2, component_dim=3, projection_dim=8,
        gate_dim=8, temperature=0.5, gate_dropout=0.0, item_dropout=0.0, learns_temperature=True, seed=0,
    ).double()  # fmt: skip
    queries, items = (torch.randn(count, 4, generator=generator, dtype=torch.float64) for count in (6, 9))
    positives, drawn = torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([7, 1, 7, 3, 8, 7, 1])
    rows, by_item = torch.tensor([0, 0, 1, 1, 1, 0]), torch.randn(9, generator=generator, dtype=torch.float64)
    excluded = (torch.rand(2, 9, generator=generator) < 0.3)[:, drawn]  # (2, n)
    offsets = by_item[drawn] if has_offsets else torch.zeros(7, dtype=torch.float64)  # (n,)
    found = backward_sampled_softmax(
        similarity, similarity.query_parts(queries), similarity.item_parts(items),
        Contrast(positives, drawn[None], (6,), excluded, rows, offsets[None] if has_offsets else None),
        balance_weight=0.1,
    )  # fmt: skip
    gradients = [weight.grad.clone() for weight in similarity.parameters()]
    similarity.zero_grad()

    compared = similarity.compare(similarity.query_parts(queries), similarity.item_parts(items))
    own = torch.arange(6), positives
    balance = load_balance_loss(compared.gate_weights[own][:, None])
    is_out = (drawn == positives[:, None]) | excluded[rows]  # (6, n)
    negative = (compared.scores[:, drawn] + offsets).masked_fill(is_out, -torch.inf)  # (6, n)
    right = compared.scores[own][:, None]  # (6, 1)
    softmax = (torch.cat([right, negative], dim=1).logsumexp(dim=1) - right[:, 0]).mean()
    (softmax + 0.1 * balance).backward()
    assert (found.softmax, found.balance) == (pytest.approx(softmax.item()), pytest.approx(balance.item()))
    for weight, gradient in zip(similarity.parameters(), gradients, strict=True):
        torch.testing.assert_close(gradient, weight.grad)


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_a_run_that_was_cut_short_resumes_bit_for_bit(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    config = TrainingConfig(
        negatives=kind, num_negatives=12, epochs=2, batch_size=8, learning_rate=0.01, checkpoint_minutes=0.0
    )
    whole = make_model()
    report = train(NextItemTask(whole, split, config), config, show_progress=False)
    step, steps = NextItemTask.step, itertools.count()

    def cut_short(task: NextItemTask, batch: Batch) -> StepLosses:
        if next(steps) == 4:
            raise KeyboardInterrupt
        return step(task, batch)

    with monkeypatch.context() as patched:
        patched.setattr(NextItemTask, "step", cut_short)
        with pytest.raises(KeyboardInterrupt):
            train(NextItemTask(make_model(), split, config), config, folder=tmp_path, show_progress=False)
    resumed = make_model()
    again = train(NextItemTask(resumed, split, config), config, folder=tmp_path, show_progress=False)
    assert [epoch.loss for epoch in again.epochs] == [epoch.loss for epoch in report.epochs]
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_a_similarity_can_be_fitted_with_them(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(40, 6, generator=generator)
    queries = items + 0.5 * torch.randn(40, 6, generator=generator)
    pairs = torch.arange(40)[:, None].expand(-1, 2)
    mol = MixtureOfLogits.around(dim=6, cosine=True, seed=0)
    report = fit_similarity(
        mol, queries, items, pairs, epochs=4, negatives=kind, num_negatives=20, learning_rate=0.02,
        show_progress=False,
    )  # fmt: skip
    losses = [epoch.loss for epoch in report.epochs if epoch.loss is not None]
    assert losses[-1] < losses[0]
    assert kind in list(Negatives)
