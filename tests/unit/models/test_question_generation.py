"""Questions written by a T5 model: a tiny random one, with a tokenizer of a few words."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from railsearch.data import QuestionPassages, add_generated
from railsearch.errors import InvalidInputError, ModelFolderError
from railsearch.models.question_generation import generate_questions

WORDS = ["what", "who", "is", "a", "cat", "dog", "red", "blue", "fish", "bird", "rain", "sun", "sea", "sky", "?", "."]
PASSAGES = ["a cat is red .", "the sea is blue .", "rain .", "a bird is a bird in the sky .", "who is a fish ?"]
SETTINGS = {"per_passage": 3, "max_question_length": 6, "batch_size": 2}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    folder = tmp_path_factory.mktemp("t5")
    vocabulary = {word: row for row, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    config = T5Config(vocab_size=len(vocabulary), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
                      decoder_start_token_id=0)  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_questions_for_every_passage(base: Path) -> None:
    state = torch.random.get_rng_state()
    found = generate_questions(PASSAGES, base, **SETTINGS)
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's draws are not touched
    assert len(found) == len(PASSAGES)
    for questions in found:
        assert 1 <= len(questions) <= 3
        assert len(set(questions)) == len(questions)
        assert all(question == question.strip() != "" for question in questions)
        assert all(len(question.split()) <= 6 for question in questions)
    assert {word for questions in found for question in questions for word in question.split()} <= set(WORDS)
    assert generate_questions(PASSAGES, base, **SETTINGS) == found
    assert generate_questions(PASSAGES, base, **SETTINGS, seed=1) != found


def test_a_stopped_run_goes_on_where_it_was(base: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    expected = generate_questions(PASSAGES, base, **SETTINGS, path=whole)
    assert expected == generate_questions(PASSAGES, base, **SETTINGS)
    content = whole.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    assert len(ends) == len(PASSAGES)
    stopped = tmp_path / "stopped.jsonl"
    for size in (1, ends[0], ends[0] + 3, ends[2] + 12, ends[4] - 1):
        stopped.write_bytes(content[:size])
        assert generate_questions(PASSAGES, base, **SETTINGS, path=stopped) == expected
        assert stopped.read_bytes() == content


def test_what_is_done_needs_no_model(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "done.jsonl"
    expected = generate_questions(PASSAGES, base, **SETTINGS, path=path)
    written = path.stat().st_mtime_ns
    assert generate_questions(PASSAGES, tmp_path / "no model", **SETTINGS, path=path) == expected
    assert path.stat().st_mtime_ns == written


def test_what_was_written_joins_the_training(base: Path, tmp_path: Path) -> None:
    collection = QuestionPassages.from_pairs([("what ?", PASSAGES[0])], passages=PASSAGES)
    path = tmp_path / "generated.jsonl"
    found = generate_questions(collection.passages, base, path=path, passage_ids=collection.passage_ids, **SETTINGS)
    more = add_generated(collection, path)
    asked = {(text, row) for row, questions in enumerate(found) for text in questions}
    pairs = {(more.train.texts[question], passage) for question, passage in more.train.pairs.tolist()}
    assert pairs == asked | {("what ?", 0)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": "9", "queries": []}\n', "line 1 of .*x.jsonl is for the passage '9', which is not among the 5"),
        (b'{"id": "0"}\n', "x.jsonl has no field 'queries' in line 1"),
        (b"a letter\n", "x.jsonl holds no JSON in line 1"),
        (b"a letter without an end of line", "x.jsonl ends with a line that railsearch did not write"),
    ],
)
def test_a_foreign_file_stays_as_it_was(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        generate_questions(PASSAGES, tmp_path, path=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_passage": 0}, "per_passage is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"passage_ids": ["a"]}, "passage_ids holds 1 ids, 1 of them different, but there are 5 passages"),
        ({"passage_ids": ["a", "a", "b", "c", "d"]}, "5 ids, 4 of them different"),
        ({"path": Path(__file__) / "x.jsonl"}, "x.jsonl cannot be read or created"),
        ({"path": "generated.jsonl.gz"}, "generated.jsonl.gz is not a .jsonl file"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        generate_questions(PASSAGES, tmp_path, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="passage in row 1 of passages is empty"):
        generate_questions(["a", " "], tmp_path)


def test_folders_that_write_nothing(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"has no config.json"):
        generate_questions(PASSAGES, tmp_path)
    pickled = tmp_path / "pickled"
    shutil.copytree(base, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(ModelFolderError, match="has no safetensors weights"):
        generate_questions(PASSAGES, pickled)
    damaged = tmp_path / "damaged"
    shutil.copytree(base, damaged)
    (damaged / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelFolderError, match="cannot be read as a model that writes queries"):
        generate_questions(PASSAGES, damaged)
    other = tmp_path / "other"
    shutil.copytree(base, other)
    (other / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ModelFolderError, match="cannot be read as a model that writes queries"):
        generate_questions(PASSAGES, other)


def test_an_encoder_alone_is_refused(base: Path, tmp_path: Path) -> None:
    from transformers import T5EncoderModel

    folder = tmp_path / "encoder"
    shutil.copytree(base, folder)
    T5EncoderModel.from_pretrained(base).save_pretrained(folder)
    with pytest.raises(ModelFolderError, match=r"lacks \d+ weights, such as decoder"):
        generate_questions(PASSAGES, folder)
