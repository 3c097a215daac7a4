"""A dry run estimates and writes nothing; the target of a run is checked before any work."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from railsearch import Recommender
from railsearch.data import Interactions, write_prepared
from railsearch.errors import InvalidInputError, StorageError
from railsearch.recipes import Recipe, dry_run
from railsearch.training.checkpoints import checkpoint_size
from tests.support.commands import run
from tests.support.training_worlds import ENCODERS, random_walks

MIXTURE = {"kind": "mixture_of_logits", "num_query_components": 2, "num_item_components": 2, "gate_dim": 8}
TOML = "[encoder]\nkind = 'sasrec'\ndim = 16\nmax_length = 8\n[training]\nepochs = 3\nbatch_size = 5\n"


class Usage(NamedTuple):
    """The answer of shutil.disk_usage."""

    total: int
    used: int
    free: int


def recipe(similarity: dict[str, object] | None = None, **training: object) -> Recipe:
    settings = {"epochs": 3, "batch_size": 5, "num_negatives": 8}
    return Recipe(
        encoder={**ENCODERS["sasrec"], "dim": 16}, similarity=similarity or MIXTURE, training=settings | training
    )


@pytest.fixture(scope="module")
def events() -> Interactions:
    return random_walks(num_users=12, num_items=20, lengths=(5, 8))


def test_an_estimate_adds_up(events: Interactions) -> None:
    found = dry_run(events, recipe(validate_every=2))
    assert (found.epochs, found.cosine_epochs, found.steps_per_epoch) == (3, 2, 3)
    expected = 2 * found.cosine_seconds_per_epoch + found.seconds_per_epoch + 2 * found.validation_seconds
    assert found.total_seconds == pytest.approx(expected)
    assert found.peak_memory_bytes > 2**20
    plain = dry_run(events, recipe({"kind": "cosine"}))
    assert (plain.cosine_epochs, plain.cosine_seconds_per_epoch) == (0, None)


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_the_size_of_a_checkpoint_is_known_before(
    events: Interactions, tmp_path: Path, ema_decay: float | None
) -> None:
    chosen = recipe(epochs=1, cosine_epochs=0, ema_decay=ema_decay)
    trained = Recommender.fit(events, chosen, folder=tmp_path)
    written = sum(file.stat().st_size for file in max((tmp_path / "checkpoints").iterdir()).glob("*.safetensors"))
    size = checkpoint_size(trained.model, has_averages=ema_decay is not None)
    assert size == dry_run(events, chosen).checkpoint_bytes
    assert size < written < size + 40_000  # names and shapes


def test_a_dry_run_writes_nothing(events: Interactions, tmp_path: Path) -> None:
    write_prepared(events, tmp_path / "data", name="walks")
    (tmp_path / "small.toml").write_text(TOML)
    before = sorted(tmp_path.rglob("*"))
    command = ("train", tmp_path / "small.toml", "--data", tmp_path / "data", "--out", tmp_path / "run", "--dry-run")
    out = run(*command)
    assert "an epoch as a cosine (the first 2)" in out
    assert "all 3 epochs" in out
    assert json.loads(run(*command, "--json"))["cosine_epochs"] == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_target_that_is_something_else_is_refused_before_the_data_are_read(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TOML)
    (tmp_path / "file").write_text("here")
    write_prepared(random_walks(num_users=3), tmp_path / "data", name="walks")
    command = ("train", tmp_path / "small.toml", "--data", tmp_path / "no data", "--out")
    with pytest.raises(StorageError, match=r"run cannot be written \(.*file is a file\); nothing was changed"):
        run(*command, tmp_path / "file" / "run")
    with pytest.raises(InvalidInputError, match=r"is a railsearch folder of another kind \(interactions\)"):
        run(*command, tmp_path / "data")


def test_a_target_without_permission_is_refused(
    events: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(StorageError, match=r"cannot be written \(no permission in"):
        Recommender.fit(events, recipe(), folder=tmp_path / "run")
    with pytest.raises(StorageError, match=r"cannot be written \(no permission in"):
        Recommender.fit(events, recipe(), save_to=tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_refused_before_the_first_step(
    events: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**30, 2**30 - 1000, 1000))
    with pytest.raises(StorageError, match=r"the checkpoints of this run need .* KiB but the disk of .* has 1000\.0 B"):
        Recommender.fit(events, recipe(), folder=tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
