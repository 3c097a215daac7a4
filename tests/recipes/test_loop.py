"""The training loop: a run that is cut short goes on as if nothing had happened; several processes train one model."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import MixtureOfLogits
from railsearch.data import leave_last_out
from railsearch.encoders import SASRec
from railsearch.errors import InvalidInputError, MissingExtraError, TrainingError
from railsearch.models import SequentialModel
from railsearch.training import FitReport, TrainingConfig
from railsearch.training.loop import train
from railsearch.training.losses import StepLosses
from railsearch.training.schedule import learning_rate
from railsearch.training.task import Batch
from railsearch.training.tasks.histories import NextItemTask
from tests.support.cycles import cycles

SPLIT = leave_last_out(cycles(num_users=12))
CONFIG = TrainingConfig(
    epochs=3, batch_size=5, num_negatives=8, learning_rate=0.01, max_gradient_norm=1.0, schedule="cosine",
    warmup_share=0.2, checkpoint_minutes=0,
)  # fmt: skip
STEPS = 3 * CONFIG.epochs


class CutError(Exception):
    """Stands for a kill: nothing is tidied up after it but what Python itself does."""


class Task(NextItemTask):
    """A small recommender that stops dead before a given step."""

    def __init__(self, config: TrainingConfig = CONFIG, *, cut_before: int | None = None) -> None:
        similarity = MixtureOfLogits(
            query_dim=8, item_dim=8, num_query_components=3, num_item_components=2, component_dim=4, projection_dim=8,
            gate_dim=8, user_table_size=12, seed=1,
        )  # fmt: skip
        encoder = SASRec(num_items=SPLIT.interactions.num_items, dim=8, max_length=10, seed=0)
        super().__init__(SequentialModel(encoder=encoder, similarity=similarity), SPLIT, config)
        self.cut_before = cut_before
        self.num_steps = 0

    def step(self, batch: Batch) -> StepLosses:
        if self.num_steps == self.cut_before:
            raise CutError
        self.num_steps += 1
        return super().step(batch)


def weights(task: Task) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in task.model.state_dict().items()}


def without_times(report: FitReport) -> list[tuple[object, ...]]:
    return [(epoch.epoch, epoch.loss, epoch.balance_loss, epoch.validation) for epoch in report.epochs]


@pytest.fixture(scope="module")
def uninterrupted() -> tuple[dict[str, Tensor], FitReport]:
    task = Task()
    report = train(task, CONFIG)
    return weights(task), report


@given(cuts=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=3))
@hypothesis_settings(max_examples=15)
def test_a_run_cut_short_anywhere_ends_bit_for_bit_the_same(
    uninterrupted: tuple[dict[str, Tensor], FitReport], tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for cut in cuts:
        task = Task(cut_before=cut)
        try:
            train(task, CONFIG, folder=folder)
        except CutError:
            assert task.num_steps == cut
    last = Task()
    report = train(last, CONFIG, folder=folder)
    expected, expected_report = uninterrupted
    for name, tensor in weights(last).items():
        assert torch.equal(tensor, expected[name]), name
    assert without_times(report) == without_times(expected_report)
    assert report.best_epoch == expected_report.best_epoch
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert [line["loss"] for line in lines] == [epoch.loss for epoch in expected_report.epochs]
    assert len(list((folder / "checkpoints").iterdir())) == 2


@pytest.mark.slow
def test_a_killed_process_goes_on_bit_for_bit(
    uninterrupted: tuple[dict[str, Tensor], FitReport], tmp_path: Path
) -> None:
    program = (
        "import os, signal, sys, pathlib\n"
        "from tests.recipes.test_loop import CONFIG, Task\n"
        "from railsearch.training.loop import train\n"
        "class Killed(Task):\n"
        "    def step(self, batch):\n"
        "        if self.num_steps == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().step(batch)\n"
        "train(Killed(), CONFIG, folder=pathlib.Path(sys.argv[1]))\n"
    )
    threads = f"import torch; torch.set_num_threads({torch.get_num_threads()})\n"
    killed = subprocess.run(
        [sys.executable, "-c", threads + program, str(tmp_path)], check=False, cwd=Path(__file__).parents[2]
    )
    assert killed.returncode == -9
    task = Task()
    train(task, CONFIG, folder=tmp_path)
    assert task.num_steps == STEPS - 4
    assert all(torch.equal(tensor, uninterrupted[0][name]) for name, tensor in weights(task).items())


@pytest.mark.parametrize("damaged", ["model.safetensors", "optimizer.safetensors", "best.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_checkpoint_is_passed_over(
    uninterrupted: tuple[dict[str, Tensor], FitReport], tmp_path: Path, damaged: str, damage: str
) -> None:
    with pytest.raises(CutError):
        train(Task(cut_before=5), CONFIG, folder=tmp_path)
    file = max((tmp_path / "checkpoints").iterdir()) / damaged
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[-20] ^= 1
        file.write_bytes(content)
    task = Task()
    train(task, CONFIG, folder=tmp_path)
    assert task.num_steps == STEPS - 4  # one step more than from the newest checkpoint
    assert all(torch.equal(tensor, uninterrupted[0][name]) for name, tensor in weights(task).items())


def test_more_epochs_go_on_from_a_run_that_was_done(tmp_path: Path) -> None:
    config = TrainingConfig(**{**CONFIG.model_dump(), "schedule": "constant", "warmup_share": 0.0})
    whole = Task(config)
    train(whole, config)
    shorter = TrainingConfig(**{**config.model_dump(), "epochs": 1})
    train(Task(shorter), shorter, folder=tmp_path)
    longer = Task(config)
    report = train(longer, config, folder=tmp_path)
    assert len(report.epochs) == 3
    assert longer.num_steps == STEPS - 3
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(longer).items())


def test_another_runs_folder_is_refused(tmp_path: Path) -> None:
    train(Task(), CONFIG, folder=tmp_path)
    other = TrainingConfig(**{**CONFIG.model_dump(), "learning_rate": 0.02})
    with pytest.raises(InvalidInputError, match=r"holds a run with learning_rate = 0\.01 but 0\.02 was asked for"):
        train(Task(other), other, folder=tmp_path)


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    class Nested(Task):
        def step(self, batch: Batch) -> StepLosses:
            with pytest.raises(InvalidInputError, match="another process is training in"):
                train(Task(), CONFIG, folder=tmp_path)
            raise CutError

    with pytest.raises(CutError):
        train(Nested(), CONFIG, folder=tmp_path)
    train(Task(), CONFIG, folder=tmp_path)  # nothing is left of the lock


def test_a_checkpoint_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file is in the way")
    task = Task()
    with pytest.raises(
        TrainingError, match=r"a checkpoint cannot be written .* free some space and start the run again"
    ):
        train(task, CONFIG, folder=tmp_path)
    assert task.num_steps == 1


def test_the_best_epoch_is_kept_and_patience_ends_the_run() -> None:
    figures = iter([0.1, 0.5, 0.4, 0.3, 0.9])

    class Judged(Task):
        def validate(self) -> dict[str, float]:
            return {"MRR": next(figures), "HR@10": 0.0}

    config = TrainingConfig(**{**CONFIG.model_dump(), "epochs": 5, "patience": 2})
    task = Judged(config)
    report = train(task, config)
    assert [epoch.epoch for epoch in report.epochs] == [1, 2, 3, 4]
    assert report.best_epoch == 2
    second = TrainingConfig(**{**config.model_dump(), "epochs": 5})

    class Stopped(Task):
        def validate(self) -> dict[str, float]:
            if self.num_steps > 6:
                raise CutError
            return {"MRR": float(self.num_steps), "HR@10": 0.0}

    stopped = Stopped(second)
    with pytest.raises(CutError):
        train(stopped, second)
    assert all(torch.equal(tensor, weights(task)[name]) for name, tensor in weights(stopped).items())


def test_the_callers_randomness_is_left_alone() -> None:
    task = Task()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    train(task, CONFIG)
    assert torch.equal(torch.rand(3), expected)


def test_a_loss_that_is_not_finite_restores_the_best_weights() -> None:
    class Broken(Task):
        def step(self, batch: Batch) -> StepLosses:
            losses = super().step(batch)
            return StepLosses(math.nan, 0.0) if self.num_steps > 4 else losses

    task = Broken()
    with pytest.raises(TrainingError, match=r"the loss is nan; lower learning_rate \(it is 0\.01\)"):
        train(task, CONFIG)
    assert not task.model.training
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(task).values())


def test_an_unknown_metric_is_named() -> None:
    config = TrainingConfig(**{**CONFIG.model_dump(), "metric": "HR@7"})
    with pytest.raises(InvalidInputError, match="metric is 'HR@7' but validation measures: HR@1, HR@10"):
        train(Task(config), config)


@given(
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.floats(0, 0.9),
    epochs=st.integers(1, 5),
    steps=st.integers(1, 50),
)
def test_schedules_rise_then_never_rise_again(schedule: str, warmup: float, epochs: int, steps: int) -> None:
    config = TrainingConfig(epochs=epochs, learning_rate=2.0, schedule=schedule, warmup_share=warmup)
    rates = [learning_rate(config, step, steps) for step in range(epochs * steps)]
    top = rates.index(max(rates))
    assert all(0 < rate <= 2.0 for rate in rates)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert max(rates) == pytest.approx(2.0)


@pytest.mark.slow
def test_two_processes_have_the_weights_of_one(tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "support" / "two_processes.py"
    for count in (1, 2):
        command = ["torch.distributed.run", "--standalone", f"--nproc-per-node={count}", program, tmp_path / str(count)]
        done = subprocess.run(
            [sys.executable, "-m", *map(str, command)], check=False, cwd=Path(__file__).parents[2],
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    alone = torch.tensor(json.loads((tmp_path / "1-0.json").read_text()))
    first, second = (torch.tensor(json.loads((tmp_path / f"2-{rank}.json").read_text())) for rank in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, alone, atol=1e-5, rtol=1e-4)
    shutil.rmtree(tmp_path)


def test_curves_for_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = TrainingConfig(**{**CONFIG.model_dump(), "tensorboard": True})
    with pytest.raises(CutError):
        train(Task(config, cut_before=5), config, folder=tmp_path)
    report = train(Task(), CONFIG, folder=tmp_path)  # that it is no longer asked for does not make it another run
    shutil.rmtree(tmp_path / "checkpoints")
    assert train(Task(config), config, folder=tmp_path).epochs[-1].loss == report.epochs[-1].loss
    curves = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for name, values in {
        "loss": [epoch.loss for epoch in report.epochs],
        "validation/MRR": [epoch.validation["MRR"] for epoch in report.epochs],
    }.items():
        assert [event.step for event in curves.Scalars(name)] == [1, 2, 3]
        assert [event.value for event in curves.Scalars(name)] == pytest.approx(values)


def test_tensorboard_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    config = TrainingConfig(**{**CONFIG.model_dump(), "tensorboard": True})
    with pytest.raises(MissingExtraError, match=r"tensorboard is not installed; from a .* pip install '\.\[train\]'"):
        train(Task(config, cut_before=0), config, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_curves_need_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railsearch.training.loop.import_tensorboard", lambda: None)
    config = TrainingConfig(**{**CONFIG.model_dump(), "tensorboard": True})
    with pytest.raises(InvalidInputError, match="tensorboard is true but folder is None; give a folder"):
        train(Task(config), config)
