"""Search strategies on a trained text model and the test questions of its data, as the paper's Table 3. Markdown.

python benchmarks/passage_search.py runs/insuranceqa/mol/model --data insuranceqa-en.tar.xz --index answers.index

The index is built first if it is missing. Hit rates are relative to those of brute force. Times are of batches of 32
encoded questions; strategies take turns in one run.
"""

import argparse
import time
from pathlib import Path

import torch
from strategy_table import describe_gate, print_strategies

from railsearch import MixtureOfLogits, TextRetriever
from railsearch.benchmark.machine import describe_machine
from railsearch.evaluation.questions import question_protocol
from railsearch.index import parse_strategies

DEPTHS = (1, 10, 100)
DEFAULT = (
    "TwoPass PerComponent(5) PerComponent(50) Average(200) Average(500) Average(2000) Combined(5,200) Combined(50,500)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--index", type=Path, required=True, help="an index folder; created if it is missing")
    parser.add_argument("--strategies", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()

    retriever = TextRetriever.load(options.model)
    data = retriever.test_data(options.data)
    assert data.test is not None
    started = time.perf_counter()
    if options.index.exists():
        index = retriever.open_index(options.index)
    else:
        index = retriever.build_index(data, options.index)
        print(f"encoded and indexed {len(index):,} passages in {time.perf_counter() - started:.0f} s\n")
    model, test = retriever.model, data.test
    query_parts = model.query_parts(test.texts)
    right = [test.pairs[test.pairs[:, 0] == row, 1] for row in range(len(test))]
    print(f"{describe_machine()}; {question_protocol(data)}\n")
    print_strategies(
        index, query_parts, right, parse_strategies(options.strategies), depths=DEPTHS, repeats=options.repeats
    )
    if isinstance(model.similarity, MixtureOfLogits):
        first = torch.stack([own[0] for own in right])  # (B,)
        passages = model.item_parts([data.passages[row] for row in first.tolist()])
        describe_gate(model.similarity, query_parts, passages[torch.arange(len(first))[:, None]])


if __name__ == "__main__":
    main()
