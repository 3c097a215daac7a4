"""Multi and merged pooling: with spread 0 they start as the frozen mean, learn, and are saved, indexed, searched."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from railsearch import TextRetriever, TwoPass
from railsearch.encoders import Side, TextEncoderConfig
from railsearch.encoders.text.merged_pooling import MergedPooling
from railsearch.errors import InvalidInputError
from railsearch.recipes import TextRecipe, TextTrainingConfig
from railsearch.similarity import LateInteraction, MixtureOfLogits
from tests.support.tiny_text import PAIRS, make_base, make_data

pytest.importorskip("transformers")

POOLINGS = ["multi", "merged"]
QUESTIONS, PASSAGES = [question for question, _ in PAIRS], [passage for _, passage in PAIRS]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "bert")


def make_recipe(base: Path, *, pooling: str = "multi", **sections: object) -> TextRecipe:
    own = {"num_query_components": 2, "num_item_components": 3, "first_spread": 0.0} if pooling in POOLINGS else {}
    encoder = {"base": str(base), "pooling": pooling, "max_query_length": 12, "max_passage_length": 12, **own}
    return TextRecipe(encoder=encoder, **sections)  # type: ignore[arg-type]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("similarity", [None, {"kind": "mixture_of_logits"}])
@torch.no_grad()
def test_it_starts_as_the_cosine_of_the_frozen_mean(
    base: Path, similarity: dict[str, str] | None, pooling: str
) -> None:
    mean = TextRetriever(make_recipe(base, pooling="mean")).model.encoder
    queries, passages = mean.encode(QUESTIONS, Side.QUERY), mean.encode(PASSAGES, Side.PASSAGE)  # (B, 1, D), (N, 1, D)
    sections = {} if similarity is None else {"similarity": similarity}
    model = TextRetriever(make_recipe(base, pooling=pooling, **sections)).model
    assert isinstance(model.similarity, LateInteraction if similarity is None else MixtureOfLogits)
    scores = model.similarity.score(model.query_parts(QUESTIONS), model.item_parts(PASSAGES))
    expected = F.cosine_similarity(queries, passages[:, 0][None], dim=-1) / 0.05
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


def test_several_components_are_pooled_so_unless_the_recipe_says_otherwise(base: Path) -> None:
    encoder = {"base": str(base), "num_query_components": 2, "num_item_components": 3}
    for given in (encoder, TextEncoderConfig(**encoder)):
        recipe = TextRecipe(encoder=given)
        assert (recipe.encoder.pooling, recipe.similarity.kind) == ("multi", "late_interaction")
    assert TextRecipe(encoder={"base": str(base)}).similarity.kind == "mixture_of_logits"


@pytest.mark.parametrize(("pooling", "projects"), [("multi", False), ("multi", True), ("merged", False)])
def test_it_is_trained_saved_indexed_and_searched(base: Path, tmp_path: Path, pooling: str, projects: bool) -> None:
    training = TextTrainingConfig(
        epochs=2, batch_size=10, learning_rate=0.01, new_learning_rate=0.05, decorrelation_weight=0.1
    )
    similarity = {"kind": "late_interaction", "component_dropout": 0.2, "sharpness": 2.0}
    similarity |= {"projects_components": True} if projects else {}
    recipe = make_recipe(base, pooling=pooling, training=training, similarity=similarity)
    retriever = TextRetriever.fit(make_data(), recipe, save_to=tmp_path / "model", show_progress=False)
    components = retriever.model.item_parts(PASSAGES).components.detach()  # (N, 3, D)
    assert float((components[:, 0] * components[:, 1]).sum(dim=-1).mean()) < 0.999  # no longer all the mean
    loaded = TextRetriever.load(tmp_path / "model")
    assert loaded.fingerprint == retriever.fingerprint
    loaded.build_index(PASSAGES, tmp_path / "index", precision="fp16")
    result = loaded.search(QUESTIONS, k=3, strategy=TwoPass())
    assert result.is_exact.all()
    expected = retriever.model.similarity.score(
        retriever.model.query_parts(QUESTIONS), retriever.model.item_parts(PASSAGES)
    )
    torch.testing.assert_close(result.scores, expected.detach().topk(3).values, rtol=0.01, atol=0.05)


@pytest.mark.parametrize(
    ("pooling", "similarity"), [("merged", {}), ("multi", {"projects_components": True})], ids=["merged", "projections"]
)
def test_the_loss_falls_and_resuming_equals_an_uninterrupted_run(
    base: Path, tmp_path: Path, pooling: str, similarity: dict[str, bool]
) -> None:
    def fit(folder: Path, epochs: int) -> TextRetriever:
        training = TextTrainingConfig(
            epochs=epochs, batch_size=10, learning_rate=0.01, new_learning_rate=0.02, schedule="constant"
        )
        chosen = {"kind": "late_interaction", **similarity}
        recipe = make_recipe(base, pooling=pooling, training=training, similarity=chosen)
        return TextRetriever.fit(make_data(), recipe, folder=folder, show_progress=False)

    whole = fit(tmp_path / "whole", 4)
    losses = [epoch.loss for epoch in whole.report.epochs if epoch.loss is not None]
    assert losses[-1] < 0.8 * losses[0]
    fit(tmp_path / "run", 2)
    resumed = fit(tmp_path / "run", 4).model.state_dict()
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(resumed[name], weight), name


def test_merged_components_of_a_passage_do_not_depend_on_its_batch(base: Path) -> None:
    encoder = TextRetriever(make_recipe(base, pooling="merged")).model.encoder
    pooling = encoder.poolings["passage"]
    assert isinstance(pooling, MergedPooling)
    torch.nn.init.eye_(pooling.change.weight)  # components are the clusters themselves
    texts = [*PASSAGES, "it", " ".join(PASSAGES)]
    together = encoder.encode(texts, Side.PASSAGE, show_progress=False)
    alone = encoder.encode(texts, Side.PASSAGE, tokens_per_batch=1, show_progress=False)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert float((together[:, 0] - together[:, 1]).abs().max()) > 0.1


@pytest.mark.parametrize("pooling", POOLINGS)
def test_it_can_follow_a_tuned_cosine(base: Path, pooling: str) -> None:
    training = TextTrainingConfig(epochs=1, batch_size=10, learning_rate=0.01)
    cosine = TextRetriever.fit(
        make_data(), make_recipe(base, pooling="mean", similarity={"kind": "cosine"}, training=training)
    )
    start = make_recipe(base, pooling=pooling, training=TextTrainingConfig(epochs=0))
    multi = TextRetriever.fit(make_data(), start, start=cosine, show_progress=False)
    with torch.no_grad():
        scores, expected = (
            each.similarity.score(each.query_parts(QUESTIONS), each.item_parts(PASSAGES))
            for each in (multi.model, cosine.model)
        )
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)
    two = start.model_copy(update={"encoder": start.encoder.model_copy(update={"shares_backbone": False})})
    with pytest.raises(InvalidInputError, match="shares_backbone is False but True in the encoder to start from"):
        TextRetriever.fit(make_data(), two, start=cosine)


def test_dropout_of_components_reaches_a_mixture_of_texts(base: Path) -> None:
    recipe = make_recipe(base, similarity={"kind": "mixture_of_logits", "component_dropout": 0.3})
    similarity = TextRetriever(recipe).model.similarity
    assert isinstance(similarity, MixtureOfLogits)
    assert similarity.component_dropout == 0.3


def test_a_cosine_has_no_components_to_keep_apart(base: Path) -> None:
    sections = {"similarity": {"kind": "cosine"}, "training": TextTrainingConfig(decorrelation_weight=0.1)}
    with pytest.raises(InvalidInputError, match=r"decorrelation_weight is 0\.1 but a cosine has one component"):
        make_recipe(base, pooling="mean", **sections)
