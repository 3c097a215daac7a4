"""The training run of a text retriever: a text model, trained on questions and their passages."""

import contextlib
import json
from pathlib import Path

import xxhash

from railsearch.data import QuestionPassages
from railsearch.encoders import TextEncoder, training_top
from railsearch.foundation.errors import InvalidInputError
from railsearch.models import TextModel
from railsearch.text_retriever.recipe import TextRecipe
from railsearch.text_retriever.teaching import ask_about_texts
from railsearch.training import FitReport, TextTrainingConfig
from railsearch.training.loop import train
from railsearch.training.mining import NegativeMiner
from railsearch.training.processes import Processes
from railsearch.training.run_folder import check_run_folder
from railsearch.training.task import Task
from railsearch.training.tasks.distilled import DistilledTask
from railsearch.training.tasks.students import TextStudent
from railsearch.training.tasks.texts import TextTask
from railsearch.training.teacher import TeacherLike


def keeping_outputs(encoder: TextEncoder, config: TextTrainingConfig) -> contextlib.AbstractContextManager[None]:
    """Return a context that keeps the outputs of the layers that training freezes; texts are then encoded once."""
    return training_top(encoder, config.trained_layers, most_bytes=int(config.kept_outputs_gib * 2**30))


def train_model(
    model: TextModel,
    recipe: TextRecipe,
    data: QuestionPassages,
    *,
    first_weights: str,
    folder: Path | None,
    processes: Processes,
    show_progress: bool | None,
    teacher: TeacherLike | None = None,
) -> tuple[FitReport, int]:
    """Train a model in place; return the report, and how many passages each validation ranked.

    Args:
        model: left with the weights of the best epoch.
        recipe: its training settings.
        data: questions and passages.
        first_weights: fingerprint of the initial model; an interrupted run must have started with the same one.
        folder: folder for checkpoints and the log.
        processes: the processes that train together.
        show_progress: draw a progress bar; by default only on a terminal.
        teacher: a scorer to follow, in place of the file that the recipe names.
    """
    if folder is not None:
        check_run_folder(folder)
    config = recipe.training
    if config.epochs and not any(weight.requires_grad for weight in model.parameters()):
        raise InvalidInputError(
            "trained_layers is 0 and the similarity has no weights, so there is nothing to train; train at least one "
            "layer, or use a mixture."
        )
    teacher = config.teacher if teacher is None else teacher
    if teacher is not None and config.teacher_weight == 1 and config.similar_questions > 1:
        raise InvalidInputError(
            f"similar_questions is {config.similar_questions} but the teacher counts alone, so there are no batches of "
            "questions; set similar_questions to 1, or teacher_weight below 1."
        )
    shown = show_progress if processes.is_first else False
    miner = NegativeMiner(model, data, config, folder, show_progress=shown) if config.mine_negatives else None
    texts = TextTask(model, data, config, processes, miner, show_progress=shown)
    task: Task = texts
    about = {**describe_run(recipe, data), "first weights": first_weights}
    about["teacher scores"] = None
    if teacher is not None:
        scores = ask_about_texts(teacher, model, data, config, show_progress=show_progress)
        student = TextStudent(model, data, config)
        task, about["teacher scores"] = DistilledTask(texts, student, scores, config), scores.checksum()
    factor = config.new_learning_rate / config.learning_rate
    report = train(
        task,
        config,
        folder=folder,
        about=about,
        processes=processes,
        validates_start=True,
        rate_factors=dict.fromkeys(model.new_names(), factor),
        unit="pairs",
        show_progress=show_progress,
    )
    return report, len(texts.ranked)


def describe_run(recipe: TextRecipe, data: QuestionPassages) -> dict[str, object]:
    """Return everything that identifies a training run besides its training settings: the model, and every text."""
    digest = xxhash.xxh3_64()
    questions = [data.train] if data.validation is None else [data.train, data.validation]
    for texts in (data.passages, *(own.texts for own in questions)):
        digest.update(json.dumps(texts).encode())  # quoted, so that no text runs into the next
    for pairs in (rows for own in questions for rows in (own.pairs, own.hard_negatives)):
        digest.update(pairs.numpy().tobytes())
    settings = {
        f"{section}.{name}": value
        for section in ("encoder", "similarity")
        for name, value in getattr(recipe, section).model_dump(mode="json").items()
    }
    return {**settings, "data": f"{len(data.train.pairs):,} pairs with checksum {digest.hexdigest()}"}
