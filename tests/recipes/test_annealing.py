"""The annealed temperature: every step has its own, validation and the saved model have the similarity's."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from railsearch import DotProduct, MixtureOfLogits, Recommender, TextRetriever, fit_similarity
from railsearch.data import Interactions
from railsearch.errors import InvalidInputError
from railsearch.recipes import TextTrainingConfig, dry_run
from railsearch.recommender import Recipe
from railsearch.training import TrainingConfig
from railsearch.training.annealing import make_annealing
from railsearch.training.losses import StepLosses
from railsearch.training.task import Batch
from railsearch.training.tasks.histories import NextItemTask
from railsearch.training.tasks.pairs import PairTask
from railsearch.training.tasks.texts import TextTask
from tests.support.tiny_text import PAIRS, make_base, make_recipe
from tests.support.training_worlds import random_walks, small_recipe

AnyTask = type[NextItemTask] | type[PairTask] | type[TextTask]


@pytest.fixture(scope="module")
def events() -> Interactions:
    return random_walks(num_users=12, num_items=20, lengths=(5, 8))


@pytest.fixture
def temperatures(monkeypatch: pytest.MonkeyPatch) -> Callable[[AnyTask], tuple[list[float], list[float]]]:
    """Return a function that notes the temperatures of the steps and of the validations of one kind of task."""

    def watch(kind: AnyTask) -> tuple[list[float], list[float]]:
        steps: list[float] = []
        validations: list[float] = []
        step, validate = kind.step, kind.validate

        def now(task: NextItemTask | PairTask | TextTask) -> float:
            return task._similarity.temperature if isinstance(task, PairTask) else task._model.similarity.temperature

        def noted(task: NextItemTask | PairTask | TextTask, batch: Batch) -> StepLosses:
            steps.append(now(task))
            return step(task, batch)  # type: ignore[arg-type]

        def noted_validation(task: NextItemTask | PairTask | TextTask) -> dict[str, float] | None:
            validations.append(now(task))
            return validate(task)  # type: ignore[arg-type]

        monkeypatch.setattr(kind, "step", noted)
        monkeypatch.setattr(kind, "validate", noted_validation)
        return steps, validations

    return watch


def check(steps: list[float], validations: list[float], *, start: float, own: float, share: float) -> None:
    num_annealed = share * len(steps)
    expected = [start * (own / start) ** min(1.0, number / num_annealed) for number in range(len(steps))]
    assert steps == pytest.approx(expected)
    assert steps[0] == start
    assert all(temperature == own for temperature in steps[round(num_annealed) :])
    assert validations
    assert set(validations) == {own}


@pytest.mark.parametrize("cosine_epochs", [0, 2])
def test_the_steps_of_a_recommender_are_annealed(
    events: Interactions,
    tmp_path: Path,
    temperatures: Callable[[AnyTask], tuple[list[float], list[float]]],
    cosine_epochs: int,
) -> None:
    steps, validations = temperatures(NextItemTask)
    recipe = Recipe(
        encoder=small_recipe().encoder,
        similarity={"kind": "mixture_of_logits", "num_query_components": 2, "num_item_components": 2, "gate_dim": 8},
        training={
            "epochs": 3, "batch_size": 5, "num_negatives": 8, "cosine_epochs": cosine_epochs, "temperature_start": 0.4,
            "temperature_share": 0.75,
        },
    )  # fmt: skip
    trained = Recommender.fit(events, recipe)
    check(steps, validations, start=0.4, own=0.05, share=0.75)
    assert len(steps) == 9
    trained.save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model").model.similarity.temperature == 0.05


def test_the_steps_of_a_similarity_are_annealed(
    temperatures: Callable[[AnyTask], tuple[list[float], list[float]]],
) -> None:
    steps, validations = temperatures(PairTask)
    items = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    pairs = torch.arange(12)[:, None].expand(-1, 2)
    similarity = MixtureOfLogits.around(dim=6, cosine=True, seed=0)
    fit_similarity(
        similarity, items, items, pairs, validation_pairs=pairs, epochs=2, batch_size=4, temperature_start=0.01,
        show_progress=False,
    )  # fmt: skip
    check(steps, validations, start=0.01, own=0.05, share=0.5)  # a lower start is allowed too
    assert similarity.temperature == 0.05
    with pytest.raises(InvalidInputError, match=r"temperature_share is 2; give a share above 0 and at most 1"):
        fit_similarity(similarity, items, items, pairs, temperature_share=2)


def test_the_steps_of_a_text_model_are_annealed(
    tmp_path: Path, temperatures: Callable[[AnyTask], tuple[list[float], list[float]]]
) -> None:
    pytest.importorskip("transformers")
    steps, _ = temperatures(TextTask)
    config = TextTrainingConfig(epochs=2, batch_size=4, temperature_start=0.2, temperature_share=1.0)
    base = make_base(tmp_path / "bert")
    trained = TextRetriever.fit(PAIRS, make_recipe(base, config), show_progress=False)
    check(steps, [trained.model.similarity.temperature], start=0.2, own=0.05, share=1.0)


def test_a_step_that_fails_leaves_the_own_temperature() -> None:
    similarity = DotProduct(dim=2, temperature=0.1)
    annealing = make_annealing(similarity, TrainingConfig(temperature_start=1.0))
    assert annealing is not None
    seen = []

    def fail() -> None:
        with annealing.applied(0, 4):
            seen.append(similarity.temperature)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert seen == [1.0]
    assert similarity.temperature == 0.1


def test_temperatures_that_cannot_be_annealed_are_refused(events: Interactions) -> None:
    learned = Recipe(
        similarity={"kind": "cosine", "learns_temperature": True}, training={"epochs": 1, "temperature_start": 0.2}
    )
    for call in (Recommender.fit, dry_run):
        with pytest.raises(InvalidInputError, match=r"temperature_start is 0\.2 but the similarity learns its"):
            call(events, learned)

    class Fixed(DotProduct):
        @property
        def temperature(self) -> float:
            return 1.0

    config = TrainingConfig(temperature_start=0.2)
    with pytest.raises(InvalidInputError, match="but the temperature of Fixed cannot be set; omit temperature_start"):
        make_annealing(Fixed(dim=2), config)
    with pytest.raises(InvalidInputError, match="but the model has no similarity"):
        make_annealing(torch.nn.Linear(2, 2), config)
    with pytest.raises(ValueError, match="greater than 0"):
        TrainingConfig(temperature_start=0)
