"""A warm start: a mixture continues a trained cosine, as that cosine, and is never below it on validation."""

from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Recommender
from railsearch.data import Interactions
from railsearch.errors import InvalidInputError
from railsearch.recommender import Recipe
from tests.support.commands import run
from tests.support.training_worlds import ENCODERS, random_walks, small_recipe


def events_table(events: Interactions) -> pl.DataFrame:
    return pl.DataFrame(
        {"user": events.users.numpy(), "item": events.items.numpy(), "timestamp": events.timestamps.numpy()}
    )


def continuing(similarity: dict[str, object] | None = None, **training: object) -> Recipe:
    settings = {"epochs": 2, "batch_size": 16, "learning_rate": 0.01, "num_negatives": 16} | training
    return Recipe(encoder={**ENCODERS["sasrec"], "dim": 16}, similarity=similarity or MIXTURE, training=settings)


MIXTURE = {"kind": "mixture_of_logits", "num_query_components": 2, "num_item_components": 2, "gate_dim": 8}


@pytest.fixture(scope="module")
def events() -> Interactions:
    return random_walks()


@pytest.fixture(scope="module")
def cosine(events: Interactions) -> Recommender:
    return Recommender.fit(events, small_recipe(similarity="cosine"))


def test_a_mixture_begins_as_the_trained_cosine(events: Interactions, cosine: Recommender) -> None:
    before = cosine.fingerprint
    start = Recommender.fit(events, continuing(epochs=0), start=cosine)
    assert start.card.metrics == cosine.card.metrics
    assert start.report.best_epoch == start.card.best_epoch == start.card.num_epochs == 0
    trained = Recommender.fit(events, continuing(metric="MRR"), start=cosine)
    assert [epoch.epoch for epoch in trained.report.epochs] == [0, 1, 2]
    assert trained.report.epochs[0].validation == start.report.best.validation
    assert trained.report.best.validation["MRR"] >= start.report.best.validation["MRR"]
    assert cosine.fingerprint == before


def test_untrained_too_the_mixture_is_the_cosine(events: Interactions) -> None:
    first, second = (
        Recommender.fit(events, continuing(similarity, epochs=0)) for similarity in ({"kind": "cosine"}, MIXTURE)
    )
    assert first.card.metrics == second.card.metrics
    scores = [each.search([[1, 2, 3]], k=40).scores for each in (first, second)]
    assert torch.allclose(*scores, atol=1e-4)


def test_items_are_matched_by_id_and_new_ones_are_learned(events: Interactions, cosine: Recommender) -> None:
    table = events_table(events).with_columns(pl.col("item") + 5)  # items 5 to 44: 35 are known, 5 are new
    shifted = Interactions.from_frame(table, catalogue=list(range(5, 45)))
    start = Recommender.fit(shifted, continuing(epochs=0), start=cosine)
    ours, theirs = (each.model.encoder.embed_items() for each in (start, cosine))
    assert start.items["item"].to_list() == list(range(45))  # items that the data does not mention stay
    assert torch.equal(ours[:40], theirs)
    rarest = cosine.item_counts.argsort(stable=True)[:4]
    assert (ours[40:] - theirs[rarest].mean(dim=0)).abs().max() < 0.1  # new items start around those with few events


def test_the_same_similarity_is_continued_with_its_weights(events: Interactions, cosine: Recommender) -> None:
    trained = Recommender.fit(events, continuing(), start=cosine)
    again = Recommender.fit(events, continuing(epochs=0), start=trained)
    assert again.fingerprint == trained.fingerprint


def test_a_user_table_is_continued_and_grows(events: Interactions) -> None:
    recipe = continuing({**MIXTURE, "user_table_size": 50}, epochs=1)
    trained = Recommender.fit(events, recipe)
    again = Recommender.fit(events, continuing({**MIXTURE, "user_table_size": 50}, epochs=0), start=trained)
    assert again.fingerprint == trained.fingerprint
    others = random_walks(user_name=lambda user: user + 1000)
    grown = Recommender.fit(others, continuing({**MIXTURE, "user_table_size": 50}, epochs=0), start=trained)
    assert grown.user_ids.to_list() == [*range(50), *range(1000, 1050)]
    assert grown.recipe.similarity.user_table_size == 100
    ours, theirs = (each.model.similarity.user_table.rows.weight for each in (grown, trained))
    assert torch.equal(ours[:51], theirs)
    assert len(ours) == 101


def test_a_start_that_does_not_fit_is_refused(events: Interactions, cosine: Recommender, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"encoder\.num_blocks is 1 but the start has 2"):
        Recommender.fit(events, Recipe(encoder={**ENCODERS["sasrec"], "dim": 16, "num_blocks": 1}), start=cosine)
    with pytest.raises(InvalidInputError, match=r"encoder\.kind is 'hstu' but the start has 'sasrec'"):
        Recommender.fit(events, small_recipe("hstu", "cosine"), start=cosine)
    random = {**MIXTURE, "start": "random"}
    with pytest.raises(InvalidInputError, match="normalizes_output is True but the start has False"):
        Recommender.fit(events, continuing(random), start=cosine)
    activation = {**MIXTURE, "gate_activation": "identity"}  # the same weights in another formula
    with pytest.raises(InvalidInputError, match="does not continue"):
        Recommender.fit(events, continuing(activation), start=Recommender.fit(events, continuing(), start=cosine))
    others = random_walks(item_name=lambda item: item + 1000)
    with pytest.raises(InvalidInputError, match="the start knows none of the 40 items"):
        Recommender.fit(others, continuing(), start=cosine)
    run = tmp_path / "run"
    Recommender.fit(events, continuing(epochs=1), start=cosine, folder=run)
    other = Recommender.fit(events, small_recipe(similarity="cosine", seed=1))
    with pytest.raises(InvalidInputError, match="holds a run with start"):
        Recommender.fit(events, continuing(epochs=1), start=other, folder=run)
    with pytest.raises(InvalidInputError, match=r"holds a run with start = '.*' but None was asked for"):
        Recommender.fit(events, continuing(epochs=1, cosine_epochs=0), folder=run)
    fresh = tmp_path / "fresh"  # a run without a start is not taken for one with it
    Recommender.fit(events, continuing(epochs=1, cosine_epochs=0), folder=fresh)
    with pytest.raises(InvalidInputError, match=r"holds a run with start = None but '.*' was asked for"):
        Recommender.fit(events, continuing(epochs=1, cosine_epochs=0), start=cosine, folder=fresh)


def test_on_the_command_line(events: Interactions, cosine: Recommender, tmp_path: Path) -> None:
    cosine.save(tmp_path / "cosine")
    events_table(events).write_csv(tmp_path / "events.csv")
    recipe = tmp_path / "mol.toml"
    recipe.write_text(
        "[encoder]\nkind = 'sasrec'\ndim = 16\nnum_blocks = 2\nmax_length = 8\ndropout = 0.0\n[training]\nepochs = 0\n"
    )
    run("data", "prepare", "own", "--from", tmp_path / "events.csv", "--to", tmp_path / "data")
    folder = tmp_path / "run"
    out = run("train", recipe, "--data", tmp_path / "data", "--from", tmp_path / "cosine", "--out", folder)
    assert "epoch 0 of 0" in out
    trained = Recommender.load(folder / "model")
    assert trained.card.best_epoch == 0
    assert trained.recipe.data.folder == str(tmp_path / "data")  # and an update without --data reads it
