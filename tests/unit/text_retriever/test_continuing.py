"""Training that starts with another retriever: what the recipe leaves open is the start's, what differs is refused."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from railsearch import TextRetriever
from railsearch.encoders import Pooling, Side, TextEncoderConfig
from railsearch.errors import InvalidInputError
from railsearch.recipes import TextRecipe
from tests.support.tiny_text import WORDS, make_base, make_data

LENGTHS = {"max_query_length": 12, "max_passage_length": 12}
WINDOWS = {**LENGTHS, "pooling": "windows", "window_components": 2, "num_query_components": 2, "num_item_components": 4}
COSINE = {"kind": "cosine"}
TEXTS = ["w1 w2", " ".join(WORDS)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


def make_recipe(base: Path, *, similarity: object = None, **encoder: object) -> TextRecipe:
    sections = {} if similarity is None else {"similarity": similarity}
    return TextRecipe(encoder={"base": str(base), **encoder}, training={"epochs": 0}, **sections)


def follow(start: TextRetriever, recipe: TextRecipe) -> TextRetriever:
    return TextRetriever.fit(make_data(), recipe, start=start, show_progress=False)


@pytest.mark.parametrize(
    ("start", "change", "message"),
    [
        (LENGTHS, {"max_passage_length": 20}, "max_passage_length is 20 in the recipe but 12 in the start"),
        (WINDOWS, {"window_context": 4}, "window_context is 4 in the recipe but 0 in the start"),
        (WINDOWS, {"window_overlap": 0}, "window_overlap is 0 in the recipe but None in the start"),
        (
            {**WINDOWS, "num_item_components": 12},
            {"window_components": 3, "num_query_components": 2},
            "window_components is 3 in the recipe but 2 in the start",
        ),
        (
            {**LENGTHS, "pooling": "multi", "num_query_components": 2, "num_item_components": 3},
            {"pooling": "merged"},
            "pooling is merged in the recipe but multi in the start",
        ),
    ],
    ids=str,
)
def test_a_setting_that_training_does_not_change_is_refused(
    base: Path, start: dict[str, object], change: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        follow(TextRetriever(make_recipe(base, **start)), make_recipe(base, **{**start, **change}))


MULTI = {"pooling": "multi", "num_query_components": 2, "num_item_components": 3}
MERGED = {**MULTI, "pooling": "merged"}


@pytest.mark.parametrize(
    ("start", "recipe"),
    [
        ({}, {}),
        ({"similarity": COSINE}, {"similarity": COSINE}),
        ({"similarity": COSINE}, {}),
        (WINDOWS, {"similarity": {"kind": "late_interaction"}}),
        (WINDOWS, {"pooling": "windows", "window_components": 2}),
        (MULTI, {"pooling": "multi"}),
        (MERGED, {"similarity": {"kind": "late_interaction"}, "num_item_components": 3}),
        ({"similarity": COSINE}, MULTI),
        ({"similarity": COSINE, "shares_backbone": False}, MERGED),
    ],
    ids=str,
)
def test_what_the_recipe_leaves_open_is_the_starts_and_the_saved_recipe_is_true(
    base: Path, tmp_path: Path, start: dict[str, object], recipe: dict[str, object]
) -> None:
    trained = TextRetriever(make_recipe(base, **{**LENGTHS, "pooling": "mean", "query_prompt": "who ", **start}))
    follow(trained, make_recipe(base, **recipe)).save(tmp_path / "model")
    saved = TextRetriever.load(tmp_path / "model")
    settings = TextEncoderConfig(**saved.model.encoder.settings)
    assert saved.recipe.encoder == settings
    assert (settings.max_query_length, settings.max_passage_length, settings.query_prompt) == (12, 12, "who ")
    shape = recipe if recipe in (MULTI, MERGED) else start
    for name, value in shape.items():
        assert name == "similarity" or getattr(settings, name) == value


def test_pooled_again_a_text_may_have_another_length(base: Path) -> None:
    cosine = TextRetriever(make_recipe(base, **LENGTHS, pooling="mean", similarity=COSINE))
    longer = follow(cosine, make_recipe(base, **MULTI, max_passage_length=20))
    assert (longer.model.encoder.max_passage_length, longer.model.encoder.max_query_length) == (20, 12)


def test_only_stated_settings_count_as_stated() -> None:
    stated = {"base": "b", "pooling": "merged", "num_query_components": 4}
    assert TextEncoderConfig(**stated).model_fields_set == set(stated)
    assert TextEncoderConfig(base="b", num_item_components=4).model_fields_set == {"base", "num_item_components"}


@pytest.mark.parametrize("similarity", [None, {"kind": "mixture_of_logits"}], ids=["late", "mixture"])
def test_a_cosine_of_windows_can_become_late_interaction_of_windows(base: Path, similarity: object) -> None:
    single = {"pooling": "windows", "num_item_components": 1, **LENGTHS}
    cosine = TextRetriever(make_recipe(base, **single, similarity=COSINE))
    own = {"window_components": 2, "num_query_components": 2} if similarity is None else {}
    settings = {**single, **own, "num_item_components": 4, "window_context": 3}
    late = follow(
        cosine, make_recipe(base, **settings, **({"first_spread": 0.0} if own else {}), similarity=similarity)
    )
    assert late.model.encoder.pooling is Pooling.WINDOWS
    assert late.recipe.encoder.window_context == 3
    queries = cosine.model.encoder.encode(["who w3"], Side.QUERY)  # (1, 1, D)
    items = cosine.model.encoder.encode(TEXTS[:1], Side.PASSAGE)  # (1, 1, D) one window
    scores = late.model.similarity.score(late.model.query_parts(["who w3"]), late.model.item_parts(TEXTS[:1]))
    expected = F.cosine_similarity(queries[:, 0], items[:, 0]) / 0.05
    torch.testing.assert_close(scores[0], expected, rtol=1e-4, atol=1e-3)
