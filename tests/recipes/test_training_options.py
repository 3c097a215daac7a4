"""Options of training: each resumes bit for bit; averages, rates and temperatures do what they say."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from railsearch import Recommender
from railsearch.data import Interactions
from railsearch.errors import InvalidInputError
from railsearch.recommender import Recipe
from railsearch.training.averaging import WeightAverage
from railsearch.training.losses import StepLosses
from railsearch.training.task import Batch
from railsearch.training.tasks.histories import NextItemTask
from tests.support.training_worlds import ENCODERS, random_walks

MIXTURE = {"kind": "mixture_of_logits", "num_query_components": 2, "num_item_components": 2, "gate_dim": 8}
STEPS = 6
OPTIONS = {
    "ema": ({}, {"ema_decay": 0.9}),
    "ema after a cosine": ({}, {"ema_decay": 0.9, "cosine_epochs": 1}),
    "temperature": ({"learns_temperature": True}, {}),
    "temperature after a cosine": ({"learns_temperature": True}, {"cosine_epochs": 1}),
    "annealed temperature": ({}, {"temperature_start": 0.3, "temperature_share": 0.9}),
    "annealed temperature after a cosine": ({}, {"temperature_start": 0.3, "cosine_epochs": 1}),
    "components": ({"component_dropout": 0.4}, {}),
    "rates": ({}, {"gate_rate": 0.5, "projection_rate": 2.0}),
}


class CutError(Exception):
    """Stands for a kill."""


@pytest.fixture(scope="module")
def events() -> Interactions:
    return random_walks(num_users=12, num_items=20, lengths=(5, 8))


def recipe(similarity: dict[str, object] | None = None, **training: object) -> Recipe:
    settings = {
        "epochs": 2, "batch_size": 5, "learning_rate": 0.01, "num_negatives": 8, "checkpoint_minutes": 0,
        "cosine_epochs": 0, "schedule": "linear", "warmup_share": 0.2,
    }  # fmt: skip
    return Recipe(
        encoder={**ENCODERS["sasrec"], "dim": 16, "dropout": 0.2},
        similarity={**MIXTURE, **(similarity or {})},
        training=settings | training,
    )


@pytest.fixture
def cutting(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the steps after which training is cut: {"left": steps}."""
    left: dict[str, int] = {}
    step = NextItemTask.step

    def counted(task: NextItemTask, batch: Batch) -> StepLosses:
        if left and left["left"] == 0:
            raise CutError
        if left:
            left["left"] -= 1
        return step(task, batch)

    monkeypatch.setattr(NextItemTask, "step", counted)
    return left


@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_resumes_bit_for_bit(events: Interactions, tmp_path: Path, name: str, cutting: dict[str, int]) -> None:
    similarity, training = OPTIONS[name]
    chosen = recipe(similarity, **training)
    whole = Recommender.fit(events, chosen)
    for cut in (2, 2):
        cutting["left"] = cut
        with pytest.raises(CutError):
            Recommender.fit(events, chosen, folder=tmp_path)
    cutting.clear()
    resumed = Recommender.fit(events, chosen, folder=tmp_path)
    assert [each.loss for each in resumed.report.epochs] == [each.loss for each in whole.report.epochs]
    assert [each.validation for each in resumed.report.epochs] == [each.validation for each in whole.report.epochs]
    assert resumed.fingerprint == whole.fingerprint


def test_the_average_is_that_of_a_naive_loop() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    average = WeightAverage(model, decay=0.6)
    expected = {name: weight.detach().double() for name, weight in model.named_parameters()}
    for step in range(12):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight))
        average.update(step)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = {
            name: decay * expected[name] + (1 - decay) * weight.detach().double()
            for name, weight in model.named_parameters()
        }
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with average.applied():
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight.detach().double(), expected[name], atol=1e-5, rtol=1e-5)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_averages_are_validated_and_saved(events: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[dict[str, Tensor]] = []
    update = WeightAverage.update

    def seen(average: WeightAverage, num_steps: int) -> None:
        update(average, num_steps)
        steps.append({name: weight.clone() for name, weight in average.weights.items()})

    monkeypatch.setattr(WeightAverage, "update", seen)
    plain = Recommender.fit(events, recipe())
    averaged = Recommender.fit(events, recipe(ema_decay=0.99))
    assert len(steps) == STEPS
    # The weights that are trained do not depend on their average.
    assert [each.loss for each in averaged.report.epochs] == [each.loss for each in plain.report.epochs]
    saved = dict(averaged.model.named_parameters())
    expected = steps[3 * averaged.report.best_epoch - 1]
    assert all(torch.equal(saved[name], weight) for name, weight in expected.items())
    assert averaged.evaluate(events).metrics == averaged.card.metrics


def test_rates_move_gate_and_projections_apart(events: Interactions) -> None:
    start = Recommender.fit(events, recipe(epochs=0)).model.similarity.state_dict()

    def moved(**rates: float) -> dict[str, float]:
        # One step of AdamW moves every weight with a gradient by its learning rate.
        trained = Recommender.fit(events, recipe(epochs=1, batch_size=12, warmup_share=0.0, **rates))
        now = trained.model.similarity.state_dict()
        return {name: float((now[name] - start[name]).abs().max()) for name in now}

    both = moved(similarity_rate=1.0)
    apart = moved(gate_rate=0.5, projection_rate=2.0)
    for name, distance in apart.items():
        factor = 0.5 if name.startswith("gate.") else 2.0
        assert distance == pytest.approx(factor * both[name], rel=1e-2), name


def test_a_rate_of_nothing_is_refused(events: Interactions) -> None:
    cosine = Recipe(similarity={"kind": "cosine"}, training={"gate_rate": 2.0})
    with pytest.raises(InvalidInputError, match=r"training\.gate_rate is 2 but cosine has no such weights"):
        Recommender.fit(events, cosine)


def test_a_learned_temperature_moves_in_both_phases_and_is_saved(events: Interactions, tmp_path: Path) -> None:
    def temperature(**training: object) -> float:
        trained = Recommender.fit(events, recipe({"learns_temperature": True}, **training))
        trained.save(tmp_path / "model", overwrite=True)
        loaded = Recommender.load(tmp_path / "model")
        assert loaded.model.similarity.temperature == trained.model.similarity.temperature
        return loaded.model.similarity.temperature

    assert temperature(epochs=1, cosine_epochs=1) != 0.05
    assert temperature(epochs=1) != 0.05
    cosine = recipe({"learns_temperature": True}, epochs=1).model_copy(
        update={"similarity": Recipe(similarity={"kind": "cosine", "learns_temperature": True}).similarity}
    )
    assert Recommender.fit(events, cosine).model.similarity.temperature == temperature(epochs=1, cosine_epochs=1)
