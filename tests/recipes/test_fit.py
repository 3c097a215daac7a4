"""fit_similarity: the loss is the paper's, training finds the planted truth, and is repeatable bit for bit."""

import copy
import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from railsearch import DotProduct, MixtureOfLogits, fit_similarity
from railsearch.data import World, make_world
from railsearch.errors import InvalidInputError, TrainingError
from railsearch.similarity import Similarity, load_balance_loss
from railsearch.training import FitReport, LoopConfig, TrainingConfig, progress
from railsearch.training.losses import StepLosses, backward_sampled_softmax
from railsearch.training.negatives import Contrast, Negatives, RightPairs, draw_contrast, popularity_offsets
from railsearch.training.task import Batch
from railsearch.training.tasks.pairs import PairTask, as_pair_data
from tests.support.similarities import make_similarity


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(
        num_users=300, num_items=200, num_interests=2, num_aspects=1, taste_dim=3, likes_per_user=10, temperature=0.02
    )


def small(seed: int = 0, **options: object) -> MixtureOfLogits:
    mol = MixtureOfLogits(
        query_dim=6, item_dim=3, num_query_components=4, num_item_components=2, component_dim=4, projection_dim=32,
        gate_dim=16, temperature=0.1, **options,
    )  # fmt: skip
    mol.reset_parameters(torch.Generator().manual_seed(seed))
    return mol


def fit(world: World, mol: Similarity, **options: object) -> FitReport:
    settings = {
        "epochs": 2,
        "batch_size": 64,
        "num_negatives": 32,
        "validation_pairs": world.validation_pairs,
    } | options
    return fit_similarity(mol, world.query_embeddings, world.item_embeddings, world.train_pairs, **settings)


GROUPS = {"shared": (5,), "two histories": (2, 3), "each its own": (1,) * 5}
"""How five examples share their negatives."""


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("kind", ["mixture", "mixture-1x1", "mixture-uniform", "mixture-pair"])
@pytest.mark.parametrize("pairs_per_block", [1, 7, 10_000])
def test_blocked_gradient_is_the_plain_gradient(kind: str, pairs_per_block: int, groups: str) -> None:
    mol = make_similarity(kind)
    assert isinstance(mol, MixtureOfLogits)
    mol.double()
    generator = torch.Generator().manual_seed(0)
    queries, items = (torch.randn(count, 6, generator=generator, dtype=torch.float64) for count in (5, 8))
    sizes = GROUPS[groups]
    positives = torch.tensor([0, 1, 2, 3, 1])
    negatives = torch.randint(8, (len(sizes), 4), generator=generator)
    offsets = torch.randn(len(sizes), 4, generator=generator, dtype=torch.float64)
    negatives[0, 1] = 0  # the first example's own right item, which must not count

    losses, weights = [], []
    example = 0
    for size, row, added in zip(sizes, negatives.tolist(), offsets, strict=True):
        for _ in range(size):
            own = int(positives[example])
            candidates = [own, *(item for item in row if item != own)]
            shifts = torch.cat([torch.zeros(1), added[[item != own for item in row]]])
            compared = mol.compare(mol.query_parts(queries[example : example + 1]), mol.item_parts(items[candidates]))
            losses.append(F.cross_entropy(compared.scores + shifts, torch.zeros(1, dtype=torch.int64)))
            weights.append(compared.gate_weights[0, 0])
            example += 1
    loss, balance = torch.stack(losses).mean(), load_balance_loss(torch.stack(weights))
    (loss + 0.3 * balance).backward()
    expected = {
        name: parameter.grad.clone() for name, parameter in mol.named_parameters() if parameter.grad is not None
    }
    mol.zero_grad()

    found = backward_sampled_softmax(
        mol, mol.query_parts(queries), mol.item_parts(items), Contrast(positives, negatives, sizes, offsets=offsets),
        balance_weight=0.3, pairs_per_block=pairs_per_block,
    )  # fmt: skip
    assert found.softmax == pytest.approx(loss.item(), abs=1e-12)
    assert found.balance == pytest.approx(balance.item(), abs=1e-12)
    for name, parameter in mol.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], msg=name)
    assert any(bool((gradient != 0).any()) for gradient in expected.values())


def test_in_batch_negatives_are_the_other_positives() -> None:
    mol = make_similarity("mixture")
    assert isinstance(mol, MixtureOfLogits)
    mol.double()
    generator = torch.Generator().manual_seed(1)
    queries, items = (torch.randn(5, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    F.cross_entropy(mol(queries, items), torch.arange(5)).backward()
    expected = {name: parameter.grad.clone() for name, parameter in mol.named_parameters()}
    mol.zero_grad()
    contrast = draw_contrast(
        Negatives.IN_BATCH,
        torch.arange(5),
        None,
        pool=torch.arange(5),
        num_items=5,
        num_negatives=1,
        generator=generator,
    )
    backward_sampled_softmax(
        mol, mol.query_parts(queries), mol.item_parts(items), contrast, balance_weight=0.0, pairs_per_block=10
    )
    for name, parameter in mol.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)


def test_distinct_items_keep_what_is_compared() -> None:
    contrast = Contrast(torch.tensor([7, 3]), torch.tensor([[9, 3, 9]]), (2,))
    rows, placed = contrast.distinct_items()
    assert rows.tolist() == [3, 7, 9]
    assert rows[placed.positives].tolist() == [7, 3]
    assert rows[placed.negatives].tolist() == [[9, 3, 9]]


@pytest.mark.parametrize("negatives", [pytest.param("uniform", marks=pytest.mark.slow), "in_batch"])
def test_finds_the_planted_truth(world: World, negatives: str) -> None:
    mol = small()
    report = fit(world, mol, negatives=negatives, epochs=12, batch_size=128, learning_rate=0.03, patience=10)
    losses = [epoch.loss for epoch in report.epochs[1:]]
    assert losses[-1] < 0.75 * losses[0]
    assert report.best.validation is not None
    assert report.best.validation["MRR"] == max(epoch.validation["MRR"] for epoch in report.epochs)
    assert report.best.validation["HR@10"] > 0.45  # chance: 0.05
    assert not mol.training


@pytest.mark.parametrize("negatives", [pytest.param("uniform", marks=pytest.mark.slow), "in_batch"])
def test_same_seed_same_weights(world: World, negatives: str) -> None:
    first, second, other = small(), small(), small()
    torch.manual_seed(1)
    reports = [fit(world, first, seed=3, negatives=negatives)]
    torch.manual_seed(2)  # the caller's own randomness does not matter
    reports.append(fit(world, second, seed=3, negatives=negatives))
    fit(world, other, seed=4, negatives=negatives)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
    assert [epoch.loss for epoch in reports[0].epochs] == [epoch.loss for epoch in reports[1].epochs]
    assert any(not torch.equal(tensor, other.state_dict()[name]) for name, tensor in first.state_dict().items())


def test_leaves_the_caller_s_randomness_alone(world: World) -> None:
    mol = small()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(world, mol, epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_keeps_the_best_epoch(world: World) -> None:
    mol = small()
    report = fit(world, mol, epochs=6, learning_rate=0.05)
    again = small()
    fit(world, again, epochs=report.best_epoch, learning_rate=0.05)
    for name, tensor in mol.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_without_validation_the_last_epoch_is_kept(world: World) -> None:
    report = fit(world, small(), validation_pairs=None, epochs=3)
    assert report.best_epoch == 3
    assert [epoch.epoch for epoch in report.epochs] == [0, 1, 2, 3]
    assert [epoch.validation for epoch in report.epochs] == [None] * 4


@pytest.mark.slow
def test_patience_stops_early(world: World) -> None:
    report = fit(world, small(), epochs=50, learning_rate=1e-9, patience=2)
    assert report.num_epochs == report.best_epoch + 2 < 50


def test_validation_leaves_out_training_items(world: World) -> None:
    # One query, whose training items are all but one of the corpus: the held-out one can only be first.
    pairs = torch.tensor([[0, item] for item in range(1, 200)])
    report = fit_similarity(
        small(), world.query_embeddings[:1], world.item_embeddings, pairs, validation_pairs=[[0, 0]], epochs=1
    )
    assert report.best.validation["MRR"] == 1.0


@pytest.mark.slow
def test_user_table_learns(world: World) -> None:
    mol = small(user_table_size=300, user_dropout=0.0)
    before = mol.user_table.rows.weight.detach().clone()
    fit(world, mol, user_ids=torch.arange(300), user_penalty_weight=0.0, learning_rate=0.01, epochs=4)
    assert not torch.equal(before[1:], mol.user_table.rows.weight[1:])
    assert bool((mol.user_table.rows.weight[0] == 0).all())
    light = mol.user_table.rows.weight.norm()
    heavy = small(user_table_size=300, user_dropout=0.0)
    fit(world, heavy, user_ids=torch.arange(300), user_penalty_weight=100.0, learning_rate=0.01, epochs=4)
    assert heavy.user_table.rows.weight.norm() < 0.5 * light


def test_the_shares_of_processes_sum_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(6, 6, generator=generator), torch.randn(7, 3, generator=generator)
    pairs = torch.stack([torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 2])], dim=1)
    config = TrainingConfig(negatives="in_batch", balance_weight=0.0, user_penalty_weight=3.0)
    batch = torch.arange(6)
    gradients = []
    for shares in ([batch], [batch[0::2], batch[1::2], batch[:0]]):
        mol = small(user_table_size=6, user_dropout=0.0, item_dropout=0.0, gate_dropout=0.0).double()
        data = as_pair_data(mol, queries, items, pairs, user_ids=torch.arange(6), like=next(mol.parameters()))
        for own in shares:
            PairTask(mol, data, config).step(Batch(batch, own, torch.Generator()))
        gradients.append([parameter.grad for parameter in mol.parameters()])
    for whole, summed in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, summed)


def test_ready_components() -> None:
    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(
        num_query_components=2, num_item_components=2, component_dim=4, gate_inputs=["pair"], gate_dim=8,
        query_projection="ready", item_projection="ready",
    )  # fmt: skip
    mol.reset_parameters(generator)
    queries, items = torch.randn(20, 2, 4, generator=generator), torch.randn(30, 2, 4, generator=generator)
    pairs = list(itertools.product(range(20), range(2)))
    report = fit_similarity(
        mol, queries, items, pairs, epochs=10, learning_rate=0.05, negatives="uniform", num_negatives=8
    )
    assert report.epochs[-1].loss < report.epochs[1].loss


def test_the_start_is_validated_and_can_be_the_best_epoch(world: World) -> None:
    mol = small()
    before = {name: tensor.clone() for name, tensor in mol.state_dict().items()}
    report = fit(world, mol, epochs=2, learning_rate=3.0)
    assert report.epochs[0].loss is None
    assert report.best.validation["MRR"] == max(epoch.validation["MRR"] for epoch in report.epochs)
    only = fit(world, small(), epochs=0)
    assert [epoch.epoch for epoch in only.epochs] == [0]
    assert only.epochs[0].validation == report.epochs[0].validation
    if report.best_epoch == 0:
        assert all(torch.equal(tensor, before[name]) for name, tensor in mol.state_dict().items())


def test_a_start_that_training_only_harms_is_kept(world: World) -> None:
    truth = copy.deepcopy(world.truth).requires_grad_()
    before = {name: tensor.clone() for name, tensor in truth.state_dict().items()}
    report = fit(world, truth, epochs=2, learning_rate=1.0)
    assert report.best_epoch == 0
    assert report.num_epochs == 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in truth.state_dict().items())


def test_a_dot_product_is_evaluated() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(30, 6, generator=generator), torch.randn(50, 6, generator=generator)
    pairs = torch.stack([torch.arange(30), torch.randint(50, (30,), generator=generator)], dim=1)
    for cosine in (False, True):
        plain = DotProduct(dim=6, cosine=cosine)
        around = MixtureOfLogits.around(dim=6, cosine=cosine, dot_product=not cosine, seed=0)
        report = fit_similarity(plain, queries, items, pairs[:20], validation_pairs=pairs[20:])
        start = fit_similarity(around, queries, items, pairs[:20], validation_pairs=pairs[20:], epochs=0)
        assert report.best_epoch == report.num_epochs == 0
        assert report.best.validation == start.best.validation


def test_other_right_items_of_a_query_are_neither_negatives_nor_ahead() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(6, 4, generator=generator), torch.randn(9, 4, generator=generator)
    # Every item of the corpus is right for query 0: it has no negatives, so its loss and gradient are zero.
    everything = [[0, item] for item in range(9)]
    mol = MixtureOfLogits.around(dim=4, cosine=True, seed=0, gate_dropout=0.0, item_dropout=0.0)
    for negatives in ("in_batch", "uniform", "per_example"):
        report = fit_similarity(
            mol, queries, items, everything, epochs=1, negatives=negatives, balance_weight=0.0, weight_decay=0.0
        )
        assert report.epochs[1].loss == 0.0
    validation = [[1, 2], [1, 5], [1, 7], [2, 3]]
    report = fit_similarity(mol, queries, items, everything, validation_pairs=validation, epochs=0)
    scores = mol(queries, items)
    places = [1 + int((scores[1] > scores[1, [2, 5, 7]].max()).sum()), 1 + int((scores[2] > scores[2, 3]).sum())]
    assert report.best.validation["MRR"] == pytest.approx(sum(1 / place for place in places) / 2)


def test_divergence_is_an_error_that_keeps_the_weights(world: World) -> None:
    mol = small()
    before = {name: tensor.clone() for name, tensor in mol.state_dict().items()}
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf); lower learning_rate \(it is 1e\+30\)"):
        fit(world, mol, learning_rate=1e30)
    for name, tensor in mol.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert not mol.training


@pytest.mark.parametrize("validation_pairs", [None, [[0, 3]]])
def test_divergence_in_the_last_step_is_noticed(validation_pairs: list | None) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(9, 4, generator=generator), torch.randn(30, 4, generator=generator)
    mol = MixtureOfLogits(query_dim=4, item_dim=4, seed=0)
    before = {name: tensor.clone() for name, tensor in mol.state_dict().items()}
    with pytest.raises(TrainingError, match="scores are NaN or infinite; lower learning_rate"):
        fit_similarity(
            mol, queries, items, [[0, 0], [1, 1]], epochs=1, learning_rate=1e30, validation_pairs=validation_pairs
        )
    assert all(torch.equal(tensor, before[name]) for name, tensor in mol.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**70}, "ask for seed <="),
        ({"seed": None}, "seed is None"),
        ({"learning_rate": "1"}, "learning_rate is '1'; give a number"),
        ({"epochs": -1}, "epochs is -1; ask for epochs >= 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"num_negatives": 0}, "num_negatives is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"balance_weight": -1.0}, "balance_weight is -1.0; give a finite number of 0 or more"),
        (
            {"negatives": "best"},
            "negatives is 'best'; choose from: uniform, per_history, per_example, in_batch, all",
        ),
        ({"negatives": "in_batch", "batch_size": 1}, "in-batch negatives need at least 2 pairs"),
        ({"patience": 0}, "patience is 0; ask for patience >= 1"),
        ({"warmup_share": 1.0}, "warmup_share is 1.0"),
        ({"schedule": "step"}, "schedule is 'step'; choose from: constant, linear, cosine"),
        (
            {"validation_pairs": [[0, 200]]},
            r"validation_pairs\[0\] names item row 200 but there are 200 item embeddings",
        ),
        ({"validation_pairs": [0, 1]}, r"validation_pairs has shape \(2,\)"),
        ({"user_ids": [1, 2]}, "user_ids was given but the similarity has no user table"),
    ],
)
def test_bad_options(world: World, options: dict, message: str) -> None:
    mol = small()
    before = {name: tensor.clone() for name, tensor in mol.state_dict().items()}
    with pytest.raises(InvalidInputError, match=message):
        fit(world, mol, **options)
    assert all(torch.equal(tensor, before[name]) for name, tensor in mol.state_dict().items())


@pytest.mark.parametrize(
    ("queries", "items", "pairs", "message"),
    [
        (torch.zeros(3, 5), torch.zeros(2, 3), [[0, 0]], r"query_embeddings has shape \(3, 5\) but \(rows, 6\)"),
        (torch.zeros(3, 6), torch.full((2, 3), torch.nan), [[0, 0]], "item_embeddings has NaN"),
        (torch.zeros(3, 6), torch.zeros(2, 3), torch.empty(0, 2), r"pairs has shape \(0, 2\)"),
        (torch.zeros(3, 6), torch.zeros(2, 3), [[0, 0], [3, 0]], r"pairs\[1\] names query row 3 but there are 3 query"),
        (torch.zeros(3, 6), torch.zeros(2, 3), [[0, -1]], r"pairs\[0\] names item row -1"),
        (torch.zeros(3, 6), torch.zeros(2, 3), [[0.0, 1.0]], "pairs holds torch.float64 values; give integers"),
    ],
)
def test_bad_data(queries: torch.Tensor, items: torch.Tensor, pairs: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        fit_similarity(small(), queries, items, pairs)


def test_nothing_to_train() -> None:
    frozen = MixtureOfLogits.around(dim=2, cosine=True, seed=0).requires_grad_(requires_grad=False)
    with pytest.raises(InvalidInputError, match="the weights of this MixtureOfLogits are frozen"):
        fit_similarity(frozen, torch.ones(1, 2), torch.ones(1, 2), [[0, 0]])
    assert fit_similarity(frozen, torch.ones(1, 2), torch.ones(1, 2), [[0, 0]], epochs=0).best_epoch == 0
    with pytest.raises(InvalidInputError, match="give a similarity such as"):
        fit_similarity(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2), [[0, 0]])


def test_nothing_to_tell_apart(world: World) -> None:
    with pytest.raises(InvalidInputError, match="there is only 1 item"):
        fit_similarity(
            small(), world.query_embeddings, world.item_embeddings[:1], [[0, 0], [1, 0]], negatives="uniform"
        )
    with pytest.raises(InvalidInputError, match="all pairs name the same item"):
        fit_similarity(small(), world.query_embeddings, world.item_embeddings, [[0, 3], [1, 3]], negatives="in_batch")


def test_user_ids_belong_to_a_user_table(world: World) -> None:
    with pytest.raises(InvalidInputError, match="has a user table but user_ids is None"):
        fit(world, small(user_table_size=5))
    with pytest.raises(InvalidInputError, match=r"user_ids has shape \(2,\) but there are 300 queries"):
        fit(world, small(user_table_size=5), user_ids=[1, 2])


def test_users_share_rows_of_the_table_only_if_that_is_asked_for(world: World) -> None:
    message = (
        "user_ids holds 299 but user_table_size is 299; give ids below 299, make the table larger, or pass user_tab"
    )
    with pytest.raises(InvalidInputError, match=message):
        fit(world, small(user_table_size=299), user_ids=torch.arange(300), epochs=0)
    fit(world, small(user_table_size=299), user_ids=torch.arange(300), epochs=0, user_table_hashing=True)
    fit(world, small(user_table_size=299), user_ids=torch.arange(300) - 1, epochs=0)  # -1 is an unknown user


def test_a_fit_cut_short_anywhere_resumes_bit_for_bit(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = small(user_table_size=300)
    options = {"user_ids": torch.arange(300), "epochs": 3, "batch_size": 600, "learning_rate": 0.01}
    expected = fit(world, whole, **options)
    steps_per_epoch = -(-len(world.train_pairs) // 600)
    monkeypatch.setattr(LoopConfig.model_fields["checkpoint_minutes"], "default", 0.0)
    step = PairTask.step
    for cut in (0, 1, steps_per_epoch, steps_per_epoch + 2, 3 * steps_per_epoch - 1):
        folder, steps = tmp_path / str(cut), itertools.count()

        def cut_short(task: PairTask, batch: Batch) -> StepLosses:
            if next(steps) == cut:  # noqa: B023  (called before the next turn)
                raise KeyboardInterrupt
            return step(task, batch)

        with monkeypatch.context() as patched:
            patched.setattr(PairTask, "step", cut_short)
            with pytest.raises(KeyboardInterrupt):
                fit(world, small(user_table_size=300), folder=folder, **options)
        resumed = small(user_table_size=300)
        report = fit(world, resumed, folder=folder, **options)
        assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in resumed.state_dict().items())
        assert [epoch.loss for epoch in report.epochs] == [epoch.loss for epoch in expected.epochs]
        assert [epoch.validation for epoch in report.epochs] == [epoch.validation for epoch in expected.epochs]
        assert report.best_epoch == expected.best_epoch
        assert len((folder / "log.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("change", ["first weights", "data", "batch_size", "seed", "validation"])
def test_a_folder_with_another_run_is_refused(world: World, tmp_path: Path, change: str) -> None:
    fit(world, small(), epochs=1, folder=tmp_path)
    if change == "data":
        world = replace(world, item_embeddings=world.item_embeddings.flip(0))
    options = {"batch_size": {"batch_size": 65}, "seed": {"seed": 1}, "validation": {"validation_pairs": None}}
    with pytest.raises(InvalidInputError, match=f"holds a run with {'data' if change == 'validation' else change} = "):
        fit(world, small(seed=int(change == "first weights")), epochs=1, folder=tmp_path, **options.get(change, {}))


def test_a_finished_run_can_be_prolonged(world: World, tmp_path: Path) -> None:
    steady = {"schedule": "constant", "warmup_share": 0.0}  # the default rate depends on the number of epochs
    fit(world, small(), epochs=1, folder=tmp_path, **steady)
    longer, expected = small(), small()
    fit(world, longer, epochs=2, folder=tmp_path, **steady)
    fit(world, expected, epochs=2, **steady)
    assert all(torch.equal(tensor, expected.state_dict()[name]) for name, tensor in longer.state_dict().items())


def test_progress_bar_only_when_shown(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    fit(world, small(), epochs=1, show_progress=False)
    assert capfd.readouterr() == ("", "")
    fit(world, small(), epochs=1, show_progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "loss" in shown.err
    assert "epoch 1/1" in shown.err


def test_without_a_terminal_training_writes_a_line_for_each_epoch(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_STEP_LINES", math.inf)  # however long an epoch is
    report = fit(world, small(), epochs=2)
    out, lines = capfd.readouterr()
    assert out == ""
    for line, epoch in zip(lines.splitlines(), report.epochs, strict=True):
        assert epoch.validation is not None
        loss = "" if epoch.epoch == 0 else f"  loss {epoch.loss:.3f}"
        assert line.startswith(
            f"epoch {epoch.epoch}/2{loss}  HR@10 {epoch.validation['HR@10']:.4f}  MRR {epoch.validation['MRR']:.4f}  "
        )
    fit(world, small(), epochs=1, show_progress=False)
    assert capfd.readouterr() == ("", "")


def test_without_a_terminal_a_long_epoch_writes_lines_about_its_steps(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_STEP_LINES", 0.0)
    fit(world, small(), epochs=2, batch_size=1000)
    lines = capfd.readouterr().err.splitlines()
    places = [line.partition("  ")[0] for line in lines]
    steps = [place for place in places if "step" in place]
    count = math.ceil(len(world.train_pairs) / 1000)
    assert steps == [f"epoch {epoch}/2, step {step} of {count}" for epoch in (1, 2) for step in range(1, count + 1)]
    assert places.index("epoch 1/2") == 1 + places.index(steps[count - 1])
    assert all("loss " in line for line in lines if "step" in line)


@pytest.mark.parametrize("num_rows", [1, 7])
def test_right_items_are_found_among_negatives(num_rows: int) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    pairs = torch.stack(
        [torch.randint(9, (40,), generator=generator), torch.randint(30, (40,), generator=generator)], 1
    )
    queries, items = (
        torch.randint(12, (7,), generator=generator),
        torch.randint(30, (num_rows, 25), generator=generator),
    )
    known = {tuple(pair) for pair in pairs.tolist()}
    expected = [
        [(int(query), int(item)) in known for item in items[row % num_rows]] for row, query in enumerate(queries)
    ]
    assert RightPairs(pairs, num_items=30).among(queries, items).tolist() == expected


def test_seen_pairs_are_neither_negatives_nor_ranked() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(3, 4, generator=generator), torch.randn(9, 4, generator=generator)
    seen = [[query, item] for query in (0, 1) for item in range(1, 9)]
    report = fit_similarity(
        MixtureOfLogits.around(dim=4, dot_product=True, seed=0),
        queries,
        items,
        [[0, 0], [2, 1], [2, 3]],
        validation_pairs=[[1, 0]],
        seen_pairs=seen,
        epochs=0,
    )
    assert report.best.validation["MRR"] == 1.0  # every other item is seen
    only = fit_similarity(
        MixtureOfLogits.around(dim=4, dot_product=True, seed=0),
        queries,
        items,
        [[0, 0], [0, 1]],
        seen_pairs=seen,
        epochs=1,
        balance_weight=0.0,
    )
    assert only.epochs[1].loss == 0.0  # there is no item that could be a negative
    with pytest.raises(InvalidInputError, match=r"seen_pairs\[0\] names query row 3"):
        fit_similarity(DotProduct(dim=4), queries, items, [[0, 0]], seen_pairs=[[3, 0]])


def test_popular_items_are_no_worse_as_in_batch_negatives() -> None:
    """With offsets, the loss over many draws from the pairs estimates the softmax over all items, up to a constant."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(12, generator=generator)
    shares = torch.randn(12, generator=generator).exp()
    drawn = torch.multinomial(shares, 200_000, replacement=True, generator=generator)
    offsets = popularity_offsets(drawn, num_items=12)
    estimated = (scores[drawn] + offsets[drawn]).exp().mean() * 12
    assert float(estimated) == pytest.approx(float(scores.exp().sum()), rel=1e-4)


def test_the_scale_of_a_dot_product_is_found() -> None:
    """Embeddings of any scale lead to the same temperature, relative to that scale, and to the same order."""
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(60, 6, generator=generator)
    queries = items[:40] + 0.3 * torch.randn(40, 6, generator=generator)
    pairs = torch.arange(40)[:, None].expand(-1, 2)
    found = []
    for scale in (1 / 32, 1.0, 64.0):
        mol = MixtureOfLogits.around(dim=6, dot_product=True, seed=0)
        report = fit_similarity(mol, scale * queries, items, pairs, validation_pairs=pairs, epochs=0)
        found.append((mol.temperature / scale, report.best.validation))
    assert found[0] == found[1] == found[2]
    kept = MixtureOfLogits.around(dim=6, dot_product=True, temperature=0.3, seed=0)
    fit_similarity(kept, queries, items, pairs, epochs=0, calibrates=False)
    assert kept.temperature == 0.3
