"""`compare` on interactions: every system on the same users, with the figures of its own evaluation."""

from pathlib import Path

import pytest
import torch

from railsearch import Recommender, compare
from railsearch.baselines import ItemKNN, Popularity
from railsearch.comparison import Comparison
from railsearch.comparison.recommenders import cosine_for
from railsearch.data import Interactions, leave_last_out
from railsearch.errors import InvalidInputError
from railsearch.recipes import CosineConfig, MixtureConfig, Recipe
from tests.support.cycles import cycles
from tests.support.training_worlds import random_walks, small_recipe


@pytest.fixture(scope="module")
def events() -> Interactions:
    return random_walks(num_users=70, num_items=25, lengths=(5, 8))


@pytest.fixture(scope="module")
def found(events: Interactions, tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    folder = tmp_path_factory.mktemp("compare") / "run"
    recipe = small_recipe(epochs=1, seed=5)
    return compare(interactions=events, recipe=recipe, seeds=2, folder=folder, show_progress=False), folder


def test_systems(found: tuple[Comparison, Path], events: Interactions) -> None:
    report, folder = found
    assert [system.name for system in report.systems] == ["popularity", "ItemKNN", "cosine", "MoL"]
    assert [len(system.evaluations) for system in report.systems] == [1, 1, 2, 2]
    assert report.protocol == leave_last_out(events).protocol
    assert report.system("popularity").metrics == Popularity.fit(events).evaluate(events).metrics
    assert report.system("ItemKNN").metrics == ItemKNN.fit(events).evaluate(events).metrics
    assert sorted(path.name for path in folder.iterdir()) == ["cosine-5", "cosine-6", "mol-5", "mol-6"]
    for name in ("cosine", "MoL"):
        saved = Recommender.load(folder / f"{name.lower()}-6" / "model")
        assert torch.equal(saved.evaluate(events).ranks, report.system(name).evaluations[1].ranks)
    for system in report.systems:
        assert system.search_milliseconds is not None
        assert system.bytes_per_item is not None
        assert system.training_seconds is not None
    assert report.system("popularity").bytes_per_item == 8
    assert report.system("cosine").bytes_per_item == 4 * 16
    assert len(report.pairings) == 6
    assert "sasrec is trained 2 times (seeds 5 to 6) with each similarity: at most 1 epochs" in str(report)
    assert "70 users" in report.protocol


def test_both_similarities_have_the_same_temperature(found: tuple[Comparison, Path]) -> None:
    _, folder = found
    recipes = [Recommender.load(folder / name / "model").recipe for name in ("cosine-5", "mol-5")]
    assert isinstance(recipes[0].similarity, CosineConfig)
    assert isinstance(recipes[1].similarity, MixtureConfig)
    assert recipes[0].similarity.temperature == recipes[1].similarity.temperature
    assert recipes[0].encoder == recipes[1].encoder
    assert recipes[0].training == recipes[1].training


def test_the_cosine_learns_its_temperature_if_the_mixture_does() -> None:
    mixture = MixtureConfig(temperature=0.1, learns_temperature=True)
    assert cosine_for(Recipe(similarity=mixture)) == CosineConfig(temperature=0.1, learns_temperature=True)
    own = CosineConfig(temperature=0.3)
    assert cosine_for(Recipe(similarity=own)) is own


def test_a_recipe_with_a_cosine_and_a_table(tmp_path: Path) -> None:
    events = cycles()
    recipe = small_recipe(similarity="cosine", epochs=5)
    report = compare(interactions=events, recipe=recipe, epochs=1, batch_size=8, show_progress=False)
    assert [len(system.evaluations) for system in report.systems] == [1, 1, 1, 1]
    assert "at most 1 epochs with batches of 8 users" in str(report)


def test_a_user_table(events: Interactions) -> None:
    recipe = small_recipe(similarity="mixture-user", epochs=1)
    sized = recipe.model_copy(update={"similarity": recipe.similarity.model_copy(update={"user_table_size": 70})})
    report = compare(interactions=events, recipe=sized, show_progress=False)
    assert report.system("MoL").search_milliseconds is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interactions": None}, "there is nothing to compare; give query_embeddings"),
        ({"model": "bert"}, "interactions and model do not go together"),
        ({"dot_product": True}, "dot_product was given but interactions too; dot_product belongs to query_embeddings"),
        ({"allow_download": True}, "allow_download was given but interactions too"),
        ({"recipe": {"epochs": 3}}, "recipe is a dict; give the recipe of a recommender"),
        ({"epochs": 0}, "epochs is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"recipe": small_recipe(similarity="cosine"), "num_components": 2}, "the recipe's similarity is cosine"),
    ],
)
def test_wrong_input(events: Interactions, change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        compare(**({"interactions": events} | change))


def test_a_split_without_validation(events: Interactions) -> None:
    with pytest.raises(InvalidInputError, match="the split has no validation items"):
        compare(interactions=leave_last_out(events, has_validation=False))
