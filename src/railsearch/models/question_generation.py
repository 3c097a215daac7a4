"""Generate questions about passages with a T5 model (docT5query), for training with few labels."""

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

NUM_LIKELIEST_TOKENS = 10
"""Each next token is drawn from this many of the likeliest ones, as in docT5query."""
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
    """Return questions about each passage, without empty ones and duplicates.

    With `path`, every batch is written to disk once it is done, and an interrupted run continues after its last batch
    with the same result as an uninterrupted one. `add_generated` reads the file.

    Args:
        passages: the passages to write questions about.
        base: a folder with a T5 model that was trained to write queries, and its tokenizer; only safetensors are read.
        per_passage: questions that are drawn for each passage.
        max_passage_length: tokens of a passage that the model reads.
        max_question_length: most tokens of a question.
        batch_size: passages in each batch.
        seed: seed of the random numbers; another batch size draws other questions.
        device: device of the model.
        path: a .jsonl file to append to, with {"id": ..., "queries": [...]} for each passage. Passages in it are not
            processed again, so use a new file for another model or other settings.
        passage_ids: ids of the passages in the file; by default their rows.
        show_progress: True draws a progress bar, False shows nothing; by default, a bar on a terminal, and an
            occasional line elsewhere.
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
                # Generate the complete batch even if a part of it is done: its questions depend on each other.
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
    """Return questions about a batch of passages."""
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=max_passage_length, return_tensors="pt")
    written = model.generate(  # type: ignore[operator]  # _load checks that it has a decoder
        input_ids=tokens["input_ids"].to(model.device),  # (B, L)
        attention_mask=tokens["attention_mask"].to(model.device),
        do_sample=True,
        top_k=NUM_LIKELIEST_TOKENS,
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
            "give every passage its own id."
        )
    return ids


def _read_done(file: Path, ids: set[str]) -> dict[str, list[str]]:
    """Return the questions in the file; a last line that was not completed is removed."""
    if file.suffix != ".jsonl":
        raise InvalidInputError(f"{file} is not a .jsonl file; give a file that ends in .jsonl.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        content = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read or created ({error}); give another file.") from error
    whole, newline, torn = content.rpartition(b"\n")
    done = {}
    for number, line in enumerate((whole + newline).splitlines(), start=1):
        record = parse_record(line.decode(errors="replace"), file, number)
        done[record.id("id")] = record.texts("queries")
        if record.id("id") not in ids:
            raise InvalidInputError(
                f"{record.place} is for the passage {record.id('id')!r}, which is not among the {len(ids)} "
                "passages; give a new file for other passages."
            )
    if torn:
        if not torn.startswith(LINE_START) and not LINE_START.startswith(torn):
            raise InvalidInputError(f"{file} ends with a line that railsearch did not write; give a new file.")
        os.truncate(file, len(whole + newline))
    return done


def _append(file: Path, questions: dict[str, list[str]]) -> None:
    with file.open("a", encoding="utf-8") as lines:
        for passage_id, queries in questions.items():
            lines.write(json.dumps({"id": passage_id, "queries": queries}, ensure_ascii=False) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def _load(folder: Path, device: torch.device | str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Load the model and its tokenizer, without running code of the folder."""
    if not (folder / "config.json").is_file():
        raise ModelFolderError(f"{folder} has no config.json; give the folder of a T5 model that writes queries.")
    if not any(folder.glob("*.safetensors")):
        raise ModelFolderError(
            f"{folder} has no safetensors weights; save the model again with save_pretrained of a recent transformers."
        )
    transformers = import_transformers()
    # Older versions of transformers draw initial weights, which must not advance the caller's generator.
    with quiet(transformers), torch.random.fork_rng(devices=[]):
        try:
            model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, use_safetensors=True, local_files_only=True, trust_remote_code=False, output_loading_info=True
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # transformers raises many kinds for a damaged folder
            reason = str(error).strip().partition("\n")[0]
            raise ModelFolderError(
                f"{folder} cannot be read as a model that writes queries ({reason}); give the folder of a T5 model."
            ) from error
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise ModelFolderError(
            f"{folder} lacks {len(lacking)} weights, such as {lacking[0]}; give a T5 model with its decoder."
        )
    return model.eval().to(device), tokenizer


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators, which transformers draws from, and restore their state afterwards."""
    others: Any = [] if device.type == "cpu" else range(torch.get_device_module(device.type).device_count())
    with torch.random.fork_rng(devices=others, device_type=device.type):
        torch.manual_seed(seed)
        yield
