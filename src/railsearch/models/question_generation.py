"""Questions that a T5 model writes for passages (docT5query): more to train on, where labels are few."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from railsearch.data.passages.json_lines import parse_record
from railsearch.data.passages.passages import checked_text
from railsearch.encoders.text.pretrained import import_transformers, quiet
from railsearch.foundation.errors import InvalidInputError, ModelFolderError
from railsearch.foundation.inputs import LARGEST_SEED, check_count, check_seed
from railsearch.foundation.progress import counting

if TYPE_CHECKING:
    from railsearch.encoders.text.pretrained import PreTrainedModel, PreTrainedTokenizerBase

WORDS_TO_CHOOSE_FROM = 10
"""Each next token is drawn from so many likeliest ones, as docT5query does."""
LINE_START = b'{"id": '


def generate_questions(
    passages: Sequence[str],
    base: str | Path,
    *,
    per_passage: int = 5,
    max_passage_length: int = 384,
    max_question_length: int = 48,
    batch_size: int = 8,
    seed: int = 0,
    device: torch.device | str = "cpu",
    path: str | Path | None = None,
    passage_ids: Sequence[str] | None = None,
    show_progress: bool | None = None,
) -> list[list[str]]:
    """Write questions for each of the passages; those that come out empty or twice are left out.

    With `path`, what is done is on disk after every batch, and a run that was stopped goes on where it was: what comes
    out is the same as without the stop. `add_generated` reads the file.

    Args:
        passages: what to ask about.
        base: a folder with a T5 model that was trained to write queries, and its tokenizer; only safetensors are read.
        per_passage: questions that are drawn for each passage.
        max_passage_length: tokens of a passage that are read.
        max_question_length: tokens of a question at most.
        batch_size: passages at once.
        seed: of the drawing; batches of another size draw other questions.
        device: where the model runs.
        path: a .jsonl file to append to, {"id": ..., "queries": [...]} for each passage; what it holds is not done
            again, so that a change of model or settings needs a new file.
        passage_ids: what the file calls the passages; their rows by default.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    for name, value in {
        "per_passage": per_passage,
        "max_passage_length": max_passage_length,
        "max_question_length": max_question_length,
        "batch_size": batch_size,
    }.items():
        check_count(value, name=name)
    check_seed(seed)
    texts = [checked_text(text, "passage", f"row {row} of passages") for row, text in enumerate(passages)]
    ids = _checked_ids(passage_ids, len(texts))
    file = None if path is None else Path(path)
    done = {} if file is None else _read_done(file, set(ids))
    if all(passage_id in done for passage_id in ids):
        return [done[passage_id] for passage_id in ids]
    model, tokenizer = _load(Path(base), device)
    with counting("generating questions", len(texts), is_shown=show_progress) as count:
        for first in range(0, len(texts), batch_size):
            batch = ids[first : first + batch_size]
            if not all(passage_id in done for passage_id in batch):
                # The whole batch even where a part of it is done: what is drawn depends on what is drawn with it.
                with _seeded((seed + first) % LARGEST_SEED, model.device):
                    found = _generate(
                        model,
                        tokenizer,
                        texts[first : first + batch_size],
                        per_passage=per_passage,
                        max_passage_length=max_passage_length,
                        max_question_length=max_question_length,
                    )
                new = {name: queries for name, queries in zip(batch, found, strict=True) if name not in done}
                done |= new
                if file is not None:
                    _append(file, new)
            count(len(batch))
    return [done[passage_id] for passage_id in ids]


def _generate(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    texts: list[str],
    *,
    per_passage: int,
    max_passage_length: int,
    max_question_length: int,
) -> list[list[str]]:
    """Questions for a batch of passages."""
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=max_passage_length, return_tensors="pt")
    written = model.generate(  # type: ignore[operator]  # it has a decoder, as _load made sure
        input_ids=tokens["input_ids"].to(model.device),  # (B, L)
        attention_mask=tokens["attention_mask"].to(model.device),
        do_sample=True,
        top_k=WORDS_TO_CHOOSE_FROM,
        top_p=1.0,
        temperature=1.0,
        num_beams=1,
        num_return_sequences=per_passage,
        max_length=None,
        max_new_tokens=max_question_length,
    )  # (B * per_passage, l)
    questions = [question.strip() for question in tokenizer.batch_decode(written, skip_special_tokens=True)]
    own = (questions[first : first + per_passage] for first in range(0, len(questions), per_passage))
    return [[question for question in dict.fromkeys(drawn) if question] for drawn in own]


def _checked_ids(passage_ids: Sequence[str] | None, count: int) -> list[str]:
    if passage_ids is None:
        return [str(row) for row in range(count)]
    ids = [checked_text(name, "id", f"row {row} of passage_ids") for row, name in enumerate(passage_ids)]
    if len(ids) != count or len(set(ids)) < count:
        raise InvalidInputError(
            f"passage_ids holds {len(ids)} ids, {len(set(ids))} of them different, but there are {count} passages; "
            "give every passage its own."
        )
    return ids


def _read_done(file: Path, ids: set[str]) -> dict[str, list[str]]:
    """What a file holds already; a last line that a kill tore is taken off."""
    if file.suffix != ".jsonl":
        raise InvalidInputError(f"{file} is no .jsonl file; give the name of one, which need not exist.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        content = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read or made ({error}); give another file.") from error
    whole, newline, torn = content.rpartition(b"\n")
    done = {}
    for number, line in enumerate((whole + newline).splitlines(), start=1):
        record = parse_record(line.decode(errors="replace"), file, number)
        done[record.id("id")] = record.texts("queries")
        if record.id("id") not in ids:
            raise InvalidInputError(
                f"{record.place} is for the passage {record.id('id')!r}, which is not among the {len(ids)} that are "
                "given; give a new file for other passages."
            )
    if torn:
        if not torn.startswith(LINE_START) and not LINE_START.startswith(torn):
            raise InvalidInputError(f"{file} ends with a line that was not written here; give a new file.")
        os.truncate(file, len(whole + newline))
    return done


def _append(file: Path, questions: dict[str, list[str]]) -> None:
    with file.open("a", encoding="utf-8") as lines:
        for passage_id, queries in questions.items():
            lines.write(json.dumps({"id": passage_id, "queries": queries}, ensure_ascii=False) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def _load(folder: Path, device: torch.device | str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The model and its tokenizer, whole; no code but that of transformers."""
    if not (folder / "config.json").is_file():
        raise ModelFolderError(f"{folder} holds no config.json; give the folder of a T5 model that writes queries.")
    if not any(folder.glob("*.safetensors")):
        raise ModelFolderError(
            f"{folder} holds no safetensors weights; save the model again with save_pretrained of a recent "
            "transformers."
        )
    transformers = import_transformers()
    with quiet(transformers):
        try:
            model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, use_safetensors=True, local_files_only=True, trust_remote_code=False, output_loading_info=True
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # whatever transformers makes of a folder that is damaged or of another kind
            reason = str(error).strip().partition("\n")[0]
            raise ModelFolderError(
                f"{folder} cannot be read as a model that writes queries ({reason}); give the folder of a T5 model."
            ) from error
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise ModelFolderError(
            f"{folder} lacks {len(lacking)} weights, such as {lacking[0]}, which would be random; give a T5 model with "
            "its decoder."
        )
    return model.eval().to(device), tokenizer


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed what transformers draws from, which is the global state, and put that back as it was."""
    others: Any = [] if device.type == "cpu" else range(torch.get_device_module(device.type).device_count())
    with torch.random.fork_rng(devices=others, device_type=device.type):
        torch.manual_seed(seed)
        yield
