"""Checkpoints of a training run: each is complete or missing, two are kept, and every byte is checked when read."""

import dataclasses
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import xxhash
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim import Optimizer

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.files import new_file, new_folder
from railsearch.foundation.targets import check_space
from railsearch.training.config import LoopConfig
from railsearch.training.report import EpochReport

logger = logging.getLogger(__name__)

FORMAT = "railsearch.checkpoint"
FORMAT_VERSION = 1
NUM_KEPT = 2
RUN_FILE = "run.json"
STATE_FILE = "state.json"
TENSOR_FILES = ("model", "best", "optimizer")
AVERAGES = "averages"
"""The file of a run that averages its weights."""
FREE_SETTINGS = {"epochs", "patience", "checkpoint_minutes", "validate_every", "tensorboard", "teacher"}
"""Settings of a run's length and its monitoring, which may change when the run resumes. The file of a teacher's
scores may move, but the scores may not change."""


@dataclass(frozen=True, slots=True)
class State:
    """The position of a run in its data, without its tensors."""

    epoch: int = 0
    """Number of finished epochs."""
    step: int = 0
    """Number of finished steps in the current epoch."""
    softmax: float = 0.0
    """Part of the epoch's mean losses that these steps contribute."""
    balance: float = 0.0
    seconds: float = 0.0
    reports: list[EpochReport] = field(default_factory=list)
    best_epoch: int = 0
    num_log_lines: int = 0
    first_phase_end: int | None = None
    """Number of epochs of the first phase, if it ended early."""
    best: dict[str, Tensor] | None = None
    """Weights of the best epoch; only in a state that was read from disk."""

    @property
    def last_validation(self) -> dict[str, float] | None:
        """Latest validation figures, if there are any."""
        return next((report.validation for report in reversed(self.reports) if report.validation is not None), None)


class Checkpoints:
    """The checkpoints in a run's folder."""

    def __init__(
        self,
        folder: Path,
        *,
        model: nn.Module,
        optimizer: Optimizer,
        names: list[str],
        averages: dict[str, Tensor] | None = None,
        config: LoopConfig,
        about: Mapping[str, object],
    ) -> None:
        self._folder = folder
        self._model = model
        self._optimizer = optimizer
        self._names = names  # names of the optimizer's parameters, in its order
        self._averages = averages  # averages of the weights by name, which `restore` changes in place
        self._settings = {**config.model_dump(mode="json", exclude=FREE_SETTINGS), **about}

    def check_space(self) -> None:
        """Refuse a folder whose disk cannot hold the checkpoints of this run; it has one more while it writes."""
        size = checkpoint_size(self._model, has_averages=self._averages is not None)
        missing = max(1, NUM_KEPT + 1 - len(self._found()))
        check_space(self._folder, missing * size, work="the checkpoints of this run")

    def save(self, state: State, best: dict[str, Tensor]) -> None:
        """Write a checkpoint, and remove all but the last two."""
        stated = {**dataclasses.asdict(dataclasses.replace(state, best=None)), "format": FORMAT}
        states = self._optimizer.state_dict()["state"]  # empty before the first step
        moments = {
            f"{name}/{key}": value
            for number, name in enumerate(self._names)
            for key, value in states.get(number, {}).items()
        }
        with new_folder(self._place(state), replaces=True) as written:  # a damaged checkpoint may have this name
            files = dict(zip(TENSOR_FILES, (self._model.state_dict(), best, moments), strict=True))
            if self._averages is not None:
                files[AVERAGES] = self._averages
            hashes = {name: _write(written / f"{name}.safetensors", tensors) for name, tensors in files.items()}
            text = json.dumps({**stated, "format_version": FORMAT_VERSION, "files": hashes}, indent=1)
            (written / STATE_FILE).write_text(f"{xxhash.xxh3_128_hexdigest(text.encode())}\n{text}\n")
        for old in self._found()[:-NUM_KEPT]:
            shutil.rmtree(old)

    def restore(self) -> State | None:
        """Load the newest intact checkpoint into model and optimizer; return None if the run is new."""
        self._check_run()
        for place in reversed(self._found()):
            try:
                return self._read(place)
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                logger.warning("%s is damaged (%s); trying the checkpoint before it", place, error)
        return None

    def _check_run(self) -> None:
        """Refuse a folder whose run has other settings, except for those in FREE_SETTINGS."""
        ours, theirs = self._settings, recorded_settings(self._folder)
        if theirs is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            with new_file(self._folder / RUN_FILE) as written:
                written.write_text(json.dumps(ours, indent=1) + "\n")
            return
        # A setting that the run did not record did not exist when the run started.
        differing = [key for key in theirs.keys() - FREE_SETTINGS if ours.get(key) != theirs[key]]
        if differing:
            key = min(differing, key=lambda name: (not name.endswith(".kind"), name))
            raise InvalidInputError(
                f"{self._folder} holds a run with {key} = {theirs[key]!r} but {ours.get(key)!r} was asked for; "
                "choose another folder, or remove this one to start again."
            )

    def _read(self, place: Path) -> State:
        digest, text = (place / STATE_FILE).read_text().split("\n", 1)
        if xxhash.xxh3_128_hexdigest(text.removesuffix("\n").encode()) != digest:
            raise ValueError(f"{STATE_FILE} was changed")
        stated = json.loads(text)
        if (stated.pop("format"), stated.pop("format_version")) != (FORMAT, FORMAT_VERSION):
            raise ValueError("another format")
        hashes = stated.pop("files")
        model, best, moments = (_read(place / f"{name}.safetensors", hashes[name]) for name in TENSOR_FILES)
        averages = _read(place / f"{AVERAGES}.safetensors", hashes[AVERAGES]) if AVERAGES in hashes else model
        reports = [EpochReport(**report) for report in stated.pop("reports")]
        self._model.load_state_dict(model)
        for name, average in (self._averages or {}).items():
            average.copy_(averages[name])
        by_place = {
            number: {key.rpartition("/")[2]: value for key, value in moments.items() if key.rpartition("/")[0] == name}
            for number, name in enumerate(self._names)
        }
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": by_place})
        return State(**{**stated, "reports": reports, "best": best})

    def _place(self, state: State) -> Path:
        return self._folder / "checkpoints" / f"{state.epoch:06d}-{state.step:08d}"

    def _found(self) -> list[Path]:
        """Return the folders of checkpoints, oldest first."""
        return sorted(path for path in (self._folder / "checkpoints").glob("[0-9]*-[0-9]*") if path.is_dir())


def checkpoint_size(model: nn.Module, *, has_averages: bool) -> int:
    """Return the bytes of a checkpoint: the weights, the best ones, two moments of each trained one, and averages."""
    tensors: list[Tensor] = list(model.state_dict().values())
    weights = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    trained = sum(weight.numel() * weight.element_size() for weight in model.parameters() if weight.requires_grad)
    return 2 * weights + (3 if has_averages else 2) * trained


def recorded_settings(folder: Path) -> dict[str, object] | None:
    """Return the settings of the run that a folder holds; None if it holds none."""
    file = folder / RUN_FILE
    if not file.is_file():
        return None
    try:
        settings = json.loads(file.read_text())
        if not isinstance(settings, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{file} cannot be read ({error}); choose another folder, or remove this one to start again."
        ) from error
    return settings


def _write(file: Path, tensors: dict[str, Tensor]) -> str:
    # Weights with two names are written twice: tensors in a safetensors file share no memory.
    content = safetensors.torch.save({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()})
    file.write_bytes(content)
    return xxhash.xxh3_128_hexdigest(content)


def _read(file: Path, digest: str) -> dict[str, Tensor]:
    content = file.read_bytes()
    if xxhash.xxh3_128_hexdigest(content) != digest:
        raise ValueError(f"{file.name} was changed")
    return safetensors.torch.load(content)
