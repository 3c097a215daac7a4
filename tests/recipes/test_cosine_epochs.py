"""A mixture that starts as a cosine is first trained as that cosine, then as the mixture."""

import json
from pathlib import Path

import pytest
import torch

from railsearch import Recommender
from railsearch.data import Interactions, leave_last_out
from railsearch.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.recommender import Recipe
from railsearch.recommender.recipe import build_encoder, build_similarity
from railsearch.similarity import DotProduct, MixtureOfLogits
from railsearch.training import FitReport, TrainingConfig
from railsearch.training.cosine_first import CosineFirstTask, plain_similarity
from railsearch.training.loop import train
from railsearch.training.losses import StepLosses
from railsearch.training.schedule import learning_rate
from railsearch.training.task import Batch, FirstPhase
from tests.support.training_worlds import ENCODERS, random_walks

MIXTURE = {"kind": "mixture_of_logits", "num_query_components": 2, "num_item_components": 2, "gate_dim": 8}
RISING = [0.1, 0.2, 0.3]


class CutError(Exception):
    """Stands for a kill."""


def recipe(similarity: dict[str, object] | None = None, **training: object) -> Recipe:
    settings = {"epochs": 3, "batch_size": 5, "learning_rate": 0.01, "num_negatives": 8, "checkpoint_minutes": 0}
    return Recipe(
        encoder={**ENCODERS["sasrec"], "dim": 16, "dropout": 0.2},
        similarity=similarity or MIXTURE,
        training=settings | training,
    )


@pytest.fixture(scope="module")
def events() -> Interactions:
    return random_walks(num_users=12, num_items=20, lengths=(5, 8))


class Task(CosineFirstTask):
    """A recommender that notes the phase of each step, with figures of validation that a test decides."""

    def __init__(
        self,
        events: Interactions,
        config: TrainingConfig,
        *,
        cut: int | None = None,
        figures: list[float] | None = None,
    ) -> None:
        chosen = recipe()
        similarity = build_similarity(chosen, seed=0)
        plain = plain_similarity(similarity)
        assert plain is not None
        model = SequentialModel(
            encoder=build_encoder(chosen, num_items=events.num_items, seed=0), similarity=similarity
        )
        super().__init__(model, plain, leave_last_out(events), config)
        self.phases: list[bool] = []
        self.cut = cut
        self.figures = figures

    def step(self, batch: Batch) -> StepLosses:
        if len(self.phases) == self.cut:
            raise CutError
        self.phases.append(batch.is_first_phase)
        return super().step(batch)

    def validate(self) -> dict[str, float] | None:
        measured = super().validate()
        assert measured is not None
        if self.figures is not None:
            epoch = -(-len(self.phases) // 3)
            return {**measured, "MRR": self.figures[epoch - 1]}
        return measured

    def train(self, config: TrainingConfig, folder: Path | None = None) -> FitReport:
        fixed = frozenset(name for name, _ in self.model.named_parameters() if name.startswith("similarity."))
        return train(self, config, folder=folder, first_phase=FirstPhase(config.cosine_epochs or 0, fixed))


def config(**changes: object) -> TrainingConfig:
    return recipe(**changes).training


def test_the_cosine_phase_trains_the_weights_of_a_plain_cosine(events: Interactions) -> None:
    mixture = Recommender.fit(events, recipe(epochs=2, cosine_epochs=2, weight_decay=0.1))
    cosine = Recommender.fit(events, recipe({"kind": "cosine"}, epochs=2, weight_decay=0.1))
    assert [epoch.loss for epoch in mixture.report.epochs] == [epoch.loss for epoch in cosine.report.epochs]
    for name, weight in cosine.model.encoder.state_dict().items():
        assert torch.equal(weight, mixture.model.encoder.state_dict()[name]), name
    for name, weight in build_similarity(recipe(), seed=0).state_dict().items():
        assert torch.equal(weight, mixture.model.similarity.state_dict()[name]), name
    assert [epoch.validation for epoch in mixture.report.epochs] == [
        pytest.approx(epoch.validation) for epoch in cosine.report.epochs
    ]


def test_the_mixture_moves_after_the_switch_and_only_then(events: Interactions) -> None:
    done = Task(events, config(cosine_epochs=1), figures=RISING)
    done.train(config(cosine_epochs=1))
    assert done.phases == [True] * 3 + [False] * 6
    start = build_similarity(recipe(), seed=0).state_dict()
    weights = done.model.similarity.state_dict()
    moved = [name for name, weight in weights.items() if not torch.equal(weight, start[name])]
    assert set(moved) >= {"gate.pair.hidden.weight", "query_network.output.change.weight"}


@pytest.mark.parametrize("cut", [1, 3, 5, 8])
def test_a_run_resumes_bit_for_bit_in_either_phase(events: Interactions, tmp_path: Path, cut: int) -> None:
    chosen = config(cosine_epochs=2, schedule="cosine", warmup_share=0.2, weight_decay=0.01)
    whole = Task(events, chosen, figures=RISING)
    report = whole.train(chosen)
    with pytest.raises(CutError):
        Task(events, chosen, cut=cut, figures=RISING).train(chosen, tmp_path)
    rest = Task(events, chosen, figures=RISING)
    rest.phases = whole.phases[:cut]
    resumed = rest.train(chosen, tmp_path)
    assert rest.phases == whole.phases
    assert [epoch.loss for epoch in resumed.epochs] == [epoch.loss for epoch in report.epochs]
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, rest.model.state_dict()[name]), name


def test_patience_ends_the_cosine_phase_early_at_its_best_weights(events: Interactions, tmp_path: Path) -> None:
    chosen = config(epochs=7, cosine_epochs=6, patience=2)
    figures = [0.3, 0.2, 0.1, 0.0, 0.4, 0.1, 0.1]
    whole = Task(events, chosen, figures=figures)
    report = whole.train(chosen)
    assert whole.phases == [True] * 9 + [False] * 12
    assert report.best_epoch == 5
    with pytest.raises(CutError):
        Task(events, chosen, cut=10, figures=figures).train(chosen, tmp_path)
    rest = Task(events, chosen, figures=figures)
    rest.phases = [True] * 9 + [False]
    rest.train(chosen, tmp_path)
    assert rest.phases == whole.phases
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, rest.model.state_dict()[name]), name
    stopped = Task(events, chosen, figures=[0.3, 0.2, 0.1, 0.0, 0.1])
    assert len(stopped.train(chosen).epochs) == 5  # two more in the phase of the mixture, then it is over


def test_the_default_is_recorded_and_kept_when_a_run_gets_more_epochs(events: Interactions, tmp_path: Path) -> None:
    def recorded() -> object:
        return json.loads((tmp_path / "run.json").read_text())["cosine_epochs"]

    Recommender.fit(events, recipe(epochs=3), folder=tmp_path)
    assert recorded() == 2
    more = Recommender.fit(events, recipe(epochs=5), folder=tmp_path)
    assert (len(more.report.epochs), recorded()) == (5, 2)
    expected = Recommender.fit(events, recipe(epochs=5, cosine_epochs=2))
    assert [epoch.loss for epoch in more.report.epochs] == [epoch.loss for epoch in expected.report.epochs]
    with pytest.raises(InvalidInputError, match="holds a run with cosine_epochs = 2 but 1 was asked for"):
        Recommender.fit(events, recipe(epochs=5, cosine_epochs=1), folder=tmp_path)


def test_a_run_from_before_the_setting_has_no_cosine_epochs(events: Interactions, tmp_path: Path) -> None:
    first = Recommender.fit(events, recipe(epochs=1, cosine_epochs=0), folder=tmp_path)
    settings = json.loads((tmp_path / "run.json").read_text())
    del settings["cosine_epochs"]
    (tmp_path / "run.json").write_text(json.dumps(settings))
    more = Recommender.fit(events, recipe(epochs=3), folder=tmp_path)
    assert more.report.epochs[0].loss == first.report.epochs[0].loss
    expected = Recommender.fit(events, recipe(epochs=3, cosine_epochs=0))
    assert more.report.epochs[2].loss == expected.report.epochs[2].loss


def test_other_similarities_have_no_cosine_epochs(events: Interactions, tmp_path: Path) -> None:
    for number, similarity in enumerate(({"kind": "cosine"}, {**MIXTURE, "start": "random"})):
        folder = tmp_path / str(number)
        Recommender.fit(events, recipe(similarity, epochs=1), folder=folder)
        assert json.loads((folder / "run.json").read_text())["cosine_epochs"] == 0
        with pytest.raises(InvalidInputError, match="cosine_epochs is 1 but the similarity does not start as a cosine"):
            Recommender.fit(events, recipe(similarity, cosine_epochs=1))
    with pytest.raises(InvalidInputError, match="a user table"):
        Recommender.fit(events, recipe({**MIXTURE, "user_table_size": 12}, cosine_epochs=1))


def test_a_start_is_continued_as_a_mixture_at_once(events: Interactions, tmp_path: Path) -> None:
    cosine = Recommender.fit(events, recipe({"kind": "cosine"}, epochs=0))
    Recommender.fit(events, recipe(epochs=0), start=cosine, folder=tmp_path)
    assert json.loads((tmp_path / "run.json").read_text())["cosine_epochs"] == 0
    trained = Recommender.fit(events, recipe(epochs=0), start=cosine)
    with torch.no_grad():
        trained.model.similarity.query_network.output.change.weight += 0.01
    with pytest.raises(InvalidInputError, match="a trained mixture to start from"):
        Recommender.fit(events, recipe(cosine_epochs=1), start=trained)


def test_the_plain_similarity_scores_as_the_mixture() -> None:
    queries, items = torch.randn(4, 8), torch.randn(6, 8)
    for scale in ({"cosine": True}, {"dot_product": True}):
        mixture = MixtureOfLogits.around(dim=8, temperature=0.2, seed=0, **scale).eval()
        plain = plain_similarity(mixture)
        assert isinstance(plain, DotProduct)
        torch.testing.assert_close(plain(queries, items), mixture(queries, items), atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        next(mixture.query_network.parameters())[0, 0] = 0.1
    assert plain_similarity(mixture) is None
    assert plain_similarity(DotProduct(dim=8)) is None


def test_late_weights_have_their_own_course_of_the_rate() -> None:
    config = TrainingConfig(epochs=3, learning_rate=1.0, schedule="linear", warmup_share=0.5)
    alone = TrainingConfig(epochs=1, learning_rate=1.0, schedule="linear", warmup_share=0.5)
    late = [learning_rate(config, step, 4, first_epoch=2) for step in range(8, 12)]
    assert late == [learning_rate(alone, step, 4) for step in range(4)] == [0.5, 1.0, 1.0, 0.5]
