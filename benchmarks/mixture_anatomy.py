"""Gate weights, component scores, time by stage and training curves of a trained recommender, as tables. Markdown.

python benchmarks/mixture_anatomy.py runs/ml-1m/hstu-mol/model --data data/ml-1m \
    --logs HSTU+cosine=runs/ml-1m/hstu/log.jsonl HSTU+mixture=runs/ml-1m/hstu-mol/log.jsonl

Queries are the test histories of a sample of users. Times are CPU milliseconds of one thread for a batch of 32 queries
(`time.process_time`), medians. `python -m tools.pages.figures` draws the figures from the tables.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from railsearch import BruteForce, Index, MixtureOfLogits
from railsearch.benchmark.machine import describe_machine
from railsearch.data import leave_last_out, read_prepared
from railsearch.index.first_stage import best_by_average
from railsearch.index.strategies.keeping import at_least_k, keep_ascending, score_rows
from railsearch.kernels import compute_query_parts
from railsearch.models import histories_between
from railsearch.recommender import Recommender

BATCH, K, NUM_CANDIDATES = 32, 100, 500
NUM_BINS = 24


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder that railsearch data prepare wrote")
    parser.add_argument("--logs", nargs="*", default=[], metavar="NAME=FILE", help="log.jsonl of training runs")
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()

    torch.set_num_threads(1)
    interactions = read_prepared(options.data)
    recommender = Recommender.load(options.model, interactions=interactions)
    model = recommender.model
    assert isinstance(model.similarity, MixtureOfLogits)
    split = leave_last_out(interactions, has_validation=recommender.recipe.split.has_validation)
    sample = torch.randperm(len(split.test.users), generator=torch.Generator().manual_seed(0))[: options.queries]
    users, ends = split.test.users[sample], split.test.history_ends[sample]

    def histories(count: int) -> object:
        return histories_between(
            interactions, interactions.offsets[users[:count]], ends[:count], max_length=model.encoder.max_length
        )

    index = Index.build(model.similarity, model.encoder.embed_items().detach(), show_progress=False)
    query_parts = model.query_parts(histories(len(users)), users)
    print(f"{describe_machine()}, kernel {index.describe()['kernel']}; {len(index):,} items, {len(users)} queries\n")
    found = index.search(query_parts, K, BruteForce()).ids[:, :10]  # (B, 10)
    chance = torch.randint(len(index), (len(users), 100), generator=torch.Generator().manual_seed(1))  # (B, 100)
    comparisons = {
        name: model.similarity.compare_candidates(query_parts, index._corpus[rows])
        for name, rows in (("top 10", found), ("random items", chance))
    }
    show_gate(model.similarity, {name: each.gate_weights for name, each in comparisons.items()})
    show_scores(
        {
            "random items: component score": comparisons["random items"].component_scores,
            "top 10: component score": comparisons["top 10"].component_scores,
            "top 10: score": comparisons["top 10"].scores,
        }
    )
    batch = histories(BATCH)
    encoded = model.encode(batch)
    parts = query_parts[:BATCH]
    corpus = index._corpus
    chosen = best_by_average(corpus, parts, NUM_CANDIDATES, None)
    rows, is_real = at_least_k(corpus, parts, [chosen], K, None)
    scores = score_rows(corpus, parts, rows, is_real)
    show_stages(
        {
            "encode the histories": lambda: model.encode(batch),
            "components and gate of the queries": lambda: compute_query_parts(model.similarity, encoded, None),
            f"choose {NUM_CANDIDATES} candidates by average": lambda: best_by_average(
                corpus, parts, NUM_CANDIDATES, None
            ),
            "sort the candidates": lambda: at_least_k(corpus, parts, [chosen], K, None),
            "score the candidates": lambda: score_rows(corpus, parts, rows, is_real),
            f"keep the best {K}": lambda: keep_ascending(corpus, scores, rows, K),
            "brute force instead: score all items, keep the best": lambda: index.search(parts, K, BruteForce()),
        },
        options.repeats,
    )
    show_curves(dict(each.split("=", 1) for each in options.logs))


def show_gate(similarity: MixtureOfLogits, weights: dict[str, torch.Tensor]) -> None:
    """Print the mean weight of every component pair."""
    print("## Gate weights\n\nMean weight of each component pair.\n")
    columns = [f"g_{j + 1}" for j in range(similarity.num_item_components)]
    print("| items | query component |", " | ".join(columns), "|")
    print("|---" * (2 + len(columns)) + "|")
    for name, of_pairs in weights.items():
        mean = of_pairs.flatten(0, -2).mean(dim=0).view(similarity.num_query_components, -1)  # (Pq, Px)
        for row, values in enumerate(mean.tolist()):
            print(f"| {name} | f_{row + 1} |", " | ".join(f"{value:.4f}" for value in values), "|")
    heaviest = ", ".join(f"{name} {of_pairs.amax(dim=-1).mean():.1%}" for name, of_pairs in weights.items())
    print(f"\nThe heaviest pair of a query-item pair has, on average: {heaviest}.\n")


def show_scores(values: dict[str, torch.Tensor]) -> None:
    """Print histograms with common bins."""
    low = min(float(each.min()) for each in values.values())
    high = max(float(each.max()) for each in values.values())
    edges = torch.linspace(low, high, NUM_BINS + 1)
    counts = {name: torch.histogram(each.flatten(), edges).hist / each.numel() for name, each in values.items()}
    print("## Component scores\n\nShare of the values from each edge to the next.\n")
    print("| from |", " | ".join(counts), "|")
    print("|---" * (1 + len(counts)) + "|")
    for row in range(NUM_BINS):
        print(f"| {edges[row]:.2f} |", " | ".join(f"{float(each[row]):.5f}" for each in counts.values()), "|")
    print()


def show_stages(stages: dict[str, Callable[[], object]], repeats: int) -> None:
    """Print the CPU time of every stage; stages take turns."""
    times: dict[str, list[float]] = {name: [] for name in stages}
    for turn in range(repeats + 1):  # the first warms up
        for name, run in stages.items():
            started = time.process_time()
            run()
            if turn:
                times[name].append((time.process_time() - started) * 1000)
    print(f"## Time of a search by stage\n\nCPU ms of one thread for {BATCH} queries, k = {K}, medians of {repeats}.\n")
    print("| stage | CPU ms |\n|---|---|")
    for name, measured in times.items():
        print(f"| {name} | {statistics.median(measured):.2f} |")
    print()


def show_curves(logs: dict[str, str]) -> None:
    """Print the validation figures of every epoch."""
    if not logs:
        return
    print("## Training curves\n\nValidation after each epoch; epoch 0 is the start of a run that has one.\n")
    print("| run | epoch | loss | HR@10 | MRR |\n|---|---|---|---|---|")
    for name, file in logs.items():
        for line in map(json.loads, Path(file).read_text().splitlines()):
            loss = "" if line["loss"] is None else f"{line['loss']:.4f}"
            if line["validation"]:
                measured = line["validation"]
                print(f"| {name} | {line['epoch']} | {loss} | {measured['HR@10']:.4f} | {measured['MRR']:.4f} |")


if __name__ == "__main__":
    main()
