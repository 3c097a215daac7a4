"""The registry: a similarity of one's own is saved, loaded, indexed, trained by a recipe, and refused when unknown."""

from pathlib import Path

import pytest
import torch
from torch import nn

import railsearch
from railsearch import DotProduct, Index, Recipe, Recommender, TwoPass, register_similarity
from railsearch.errors import InvalidInputError, ModelFolderError
from railsearch.folders.similarity_folder import FORMAT
from railsearch.recipes import RegisteredConfig
from railsearch.similarity import fingerprint, registered_kinds
from tests.support.own_similarity import Halves
from tests.support.training_worlds import ENCODERS, random_walks


def test_it_is_saved_loaded_and_indexed(tmp_path: Path) -> None:
    similarity = Halves(dim=6, seed=3)
    name = railsearch.save_similarity(similarity, tmp_path / "model")
    loaded = railsearch.load(tmp_path / "model")
    assert isinstance(loaded, Halves)
    assert fingerprint(loaded) == fingerprint(similarity) == name
    items = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    Index.build(similarity, items, path=tmp_path / "index")
    result = Index.open(tmp_path / "index").search(items[:4], 3, TwoPass())
    expected = similarity.score(similarity.query_parts(items[:4]), similarity.item_parts(items)).topk(3)
    assert torch.equal(result.ids, expected.indices)
    assert result.is_exact.all()


def test_a_recipe_names_it(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        '[encoder]\nkind = "sasrec"\ndim = 16\nmax_length = 8\n[similarity]\nkind = "halves"\ntemperature = 0.1\n'
        "[training]\nepochs = 1\nbatch_size = 16\n"
    )
    recipe = Recipe.read(tmp_path / "recipe.toml")
    assert recipe.similarity == RegisteredConfig(kind="halves", temperature=0.1)
    assert Recipe(**recipe.model_dump(mode="json")) == recipe
    recommender = Recommender.fit(random_walks(), recipe, save_to=tmp_path / "model")
    similarity = recommender.model.similarity
    assert isinstance(similarity, Halves)
    assert (similarity.query_shape, similarity.temperature) == ((16,), 0.1)
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.fingerprint == recommender.fingerprint
    assert loaded.recommend(histories=[[1, 2]], k=3).equals(recommender.recommend(histories=[[1, 2]], k=3))


def test_a_plain_dot_product_can_be_named_too() -> None:
    recipe = Recipe(encoder=ENCODERS["sasrec"], similarity={"kind": "dot_product", "cosine": True, "epsilon": 1e-4})
    assert recipe.similarity.settings == {"cosine": True, "epsilon": 1e-4}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "thirds"},
            "kind is .thirds.; choose from: .*cosine, dot_product, .*mixture_of_log",
        ),
        ({"kind": "halves", "weight": 1}, "weight is not a setting; choose from: dim, seed, temperature"),
        ({"kind": "needy"}, "depth is missing"),
        ({"temperature": 0.1}, r"similarity\.kind is missing; name one, such as 'mixture_of_logits', 'cosine'"),
        ({"kind": 5}, r"similarity\.kind is missing"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Recipe(similarity=settings)


@register_similarity
class Needy(Halves):
    """A constructor with an argument that no recipe can fill in."""

    kind = "needy"

    def __init__(self, *, dim: int, depth: int) -> None:
        super().__init__(dim=dim)
        self.depth = depth


def test_a_folder_of_an_unknown_kind_says_what_to_do(tmp_path: Path) -> None:
    railsearch.save_similarity(DotProduct(dim=2), tmp_path / "model")
    FORMAT.write(tmp_path / "model", {**FORMAT.read(tmp_path / "model"), "kind": "thirds"})
    with pytest.raises(ModelFolderError, match=r"has kind 'thirds' but only .* are registered; import the module"):
        railsearch.load_similarity(tmp_path / "model")


class NoKind(nn.Module):
    """A module without a kind."""


class BadKind(DotProduct):
    """A kind that no recipe could spell."""

    kind = "Bad kind"


class Taken(DotProduct):
    """A kind that another class has."""

    kind = "halves"


class TakenByRecipes(DotProduct):
    """A name that recipes use."""

    kind = "cosine"


class Positional(DotProduct):
    """A constructor with a positional argument."""

    kind = "positional"

    def __init__(self, dim: int) -> None:
        super().__init__(dim=dim)


class NoConfig(nn.Module):
    """A module without a config."""

    kind = "no_config"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (NoKind, "NoKind.kind is None; give it its own kind"),
        (BadKind, "BadKind.kind is 'Bad kind'"),
        (Taken, "kind 'halves' of Taken belongs to Halves; choose another"),
        (TakenByRecipes, "kind 'cosine' of TakenByRecipes belongs to the recipes' cosine"),
        (Positional, "argument dim of Positional is not keyword-only"),
        (NoConfig, "NoConfig has no property `config`"),
        (DotProduct(dim=2), "is not a class of torch modules; register the class itself"),
        (int, "is not a class of torch modules"),
    ],
)
def test_what_cannot_be_registered(given: object, message: str) -> None:
    before = registered_kinds()
    with pytest.raises(InvalidInputError, match=message):
        register_similarity(given)
    assert registered_kinds() == before


def test_a_notebook_cell_may_run_again() -> None:
    assert register_similarity(Halves) is Halves
