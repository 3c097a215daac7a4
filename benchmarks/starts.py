"""Starts of a mixture around a cosine: how much each gains, and how alike its components stay. Markdown.

python benchmarks/starts.py exp/insuranceqa --seeds 0 1

The folder is one that `frozen_embeddings.py` wrote. All starts have 4 x 4 components as large as the embeddings:

tied        every component is the embedding, and the gate is random: exactly the cosine (`MixtureOfLogits.around`)
noise       every component is the embedding plus noise of a tenth of its length, and the gate is even
first pair  the first pair of components is the embedding and the gate stays on it; the others are random maps

Test and validation have 500 queries each. "alike" is the mean cosine between the components of an item after training,
"heaviest" the mean weight of the heaviest component pair.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from paying.embeddings import Part, split_by_query
from torch import Tensor

from railsearch import DotProduct, MixtureOfLogits, evaluate, fit_similarity
from railsearch.similarity import Similarity

NOISE = 0.1
FIRST_PAIR_LOGIT = 6.0
STARTS = ("frozen cosine", "tuned cosine", "tied", "noise", "first pair")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()

    parts = list(split_by_query(options.folder, num_splits=len(options.seeds), num_held_out=500))
    print("| start | seed | validation MRR: start, best | best epoch | test HR@1 | test MRR | alike | heaviest |")
    print("|---" * 8 + "|")
    for seed, part in zip(options.seeds, parts, strict=True):
        for start in STARTS:
            print(f"| {start} | {seed} | {measure(start, seed, part)} |", flush=True)


def measure(start: str, seed: int, part: Part) -> str:
    """Train from one start and return the rest of its row."""
    similarity = build(start, part.queries.shape[1], seed)
    report = fit_similarity(
        similarity,
        part.queries,
        part.items,
        part.pairs,
        validation_pairs=part.validation_pairs,
        seed=seed,
        show_progress=False,
    )
    found = evaluate(similarity, part.queries, part.items, part.test_pairs, seen_pairs=part.pairs).metrics
    validated = [epoch.validation["MRR"] for epoch in (report.epochs[0], report.best) if epoch.validation]
    cells = [
        f"{validated[0]:.4f}, {validated[1]:.4f}",
        str(report.best_epoch),
        f"{found['HR@1']:.3f}",
        f"{found['MRR']:.4f}",
        *(("", "") if similarity.num_item_components == 1 else describe(similarity, part.queries, part.items)),
    ]
    return " | ".join(cells)


def build(start: str, dim: int, seed: int) -> Similarity:
    """Return the similarity before training."""
    if start == "frozen cosine":
        return DotProduct(dim=dim, cosine=True)
    if start == "tuned cosine":
        return MixtureOfLogits.around(dim=dim, cosine=True, num_query_components=1, num_item_components=1, seed=seed)
    similarity = MixtureOfLogits.around(dim=dim, cosine=True, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for network in (similarity.query_network, similarity.item_network):
            change = network.output.change.weight  # (components * D, D)
            if start == "noise":
                change.copy_(torch.randn(change.shape, generator=generator) * NOISE / dim**0.5)
            elif start == "first pair":
                others = torch.randn(change[dim:].shape, generator=generator) / dim**0.5
                change[dim:] = others - torch.eye(dim).repeat(len(others) // dim, 1)  # without the embedding itself
        if start == "noise":
            for gate in (similarity.gate.query, similarity.gate.pair):
                gate.output.weight.zero_()
        elif start == "first pair":
            similarity.gate.pair.output.bias[0] = FIRST_PAIR_LOGIT
    return similarity


@torch.no_grad()
def describe(similarity: Similarity, queries: Tensor, items: Tensor) -> tuple[str, str]:
    """Return how alike the components of an item are, and the weight of the heaviest pair."""
    components = F.normalize(similarity.item_parts(items[:1000]).components, dim=-1)  # (n, Px, d)
    count = components.shape[1]
    cosines = components @ components.transpose(1, 2)  # (n, Px, Px)
    alike = (cosines.sum(dim=(1, 2)) - count).mean() / (count * (count - 1))
    compared = similarity.compare(similarity.query_parts(queries[:64]), similarity.item_parts(items[:256]))
    return f"{float(alike):.2f}", f"{float(compared.gate_weights.amax(dim=-1).mean()):.2f}"


if __name__ == "__main__":
    main()
