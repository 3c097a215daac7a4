"""Plots of a model card: drawn if they can be, sealed with the folder, and never in the way."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from railsearch import Recommender
from railsearch.errors import ModelFolderError
from railsearch.recommender import plots
from tests.support.training_worlds import random_walks, small_recipe

NAMES = ["segments.png", "training.png"]


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit(random_walks(), small_recipe("sasrec", "cosine", epochs=2))


@pytest.fixture(scope="module")
def drawn(recommender: Recommender, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("card") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "FEWEST_USERS", 1)
        recommender.save(folder)
    return folder


@pytest.fixture
def saved(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plots, "FEWEST_USERS", 1)
    return Path(shutil.copytree(drawn, tmp_path / "model"))


def test_the_card_shows_its_plots(saved: Path) -> None:
    card = (saved / "README.md").read_text()
    for name in NAMES:
        assert f"]({name})" in card
        content = (saved / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < 100_000


def test_plots_are_drawn_again_from_the_card(recommender: Recommender, saved: Path) -> None:
    loaded = Recommender.load(saved)
    assert loaded.card == recommender.card
    before = (saved / "segments.png").read_bytes()
    loaded.save(saved, overwrite=True)  # a folder with plots is replaced like any other
    assert (saved / "segments.png").read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_checksums_cover_plots(saved: Path, name: str) -> None:
    (saved / name).write_bytes((saved / name).read_bytes()[:-1] + b"x")
    with pytest.raises(ModelFolderError, match=f"{name} was changed or damaged after saving"):
        Recommender.load(saved)


def test_without_matplotlib(recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "FEWEST_USERS", 1)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    recommender.save(tmp_path / "model")
    assert not set(NAMES) & {file.name for file in (tmp_path / "model").iterdir()}
    assert ".png" not in (tmp_path / "model" / "README.md").read_text()
    assert Recommender.load(tmp_path / "model").card == recommender.card


def test_few_users_and_old_cards_have_no_plots(recommender: Recommender, tmp_path: Path) -> None:
    assert plots.draw_plots(recommender.card, tmp_path) == []
    old = dataclasses.replace(recommender.card, segments=[], beyond={}, epochs=[])
    assert plots.draw_plots(old, tmp_path) == []
    assert "segment" not in old.to_markdown(recommender.recipe)


def test_the_card_has_figures_by_segment(recommender: Recommender) -> None:
    card = recommender.card.to_markdown(recommender.recipe)
    analysis = recommender.analyze(random_walks())
    assert recommender.card.beyond == pytest.approx(analysis.beyond)
    for segment in analysis.segments:
        assert f"| {segment.by} | {segment.name} | {segment.num_queries} | {segment.metrics['HR@10']:.4f} +- " in card
    assert f"| coverage@10 | {analysis.beyond['coverage@10']:.4f} |" in card
