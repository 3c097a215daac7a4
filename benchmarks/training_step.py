"""Time and memory of the loss of a training step, forward and backward: in blocks, and in plain autograd.

python benchmarks/training_step.py                       MoL 8 x 4 x 64, 16 histories of 200 positions, 128 negatives
python benchmarks/training_step.py --full                and the memory of a complete batch of 128 histories, in blocks

Both compute the same loss from the same query and item parts, with dropout on; plain autograd holds all pairs at once.
The networks of each side are omitted: they are the same for both.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812

from railsearch import MixtureOfLogits
from railsearch.benchmark.machine import describe_machine, measure_peak, watch_others
from railsearch.similarity import ItemParts, QueryParts, load_balance_loss
from railsearch.training import Negatives
from railsearch.training.losses import backward_sampled_softmax
from railsearch.training.negatives import Contrast, draw_contrast

NUM_ITEMS = 3_883
BALANCE_WEIGHT = 0.001
KINDS = (Negatives.UNIFORM, Negatives.PER_HISTORY, Negatives.PER_EXAMPLE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=16, help="of the step that is timed both ways")
    parser.add_argument("--positions", type=int, default=200)
    parser.add_argument("--negatives", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="measure the memory of 128 histories too, in blocks")
    options = parser.parse_args()

    print(f"{describe_machine()}; {options.histories} x {options.positions} positions, {options.negatives} negatives")
    print(
        f"{'negatives':<12} {'in blocks':>10} {'MiB':>6} {'plain':>10} {'MiB':>6} {'ratio':>6} {'loss differs by':>16}"
    )
    with watch_others() as other_cores:
        for kind in KINDS:
            compare(kind, options)
    print(f"other work kept {other_cores() or 0:.1f} cores busy")
    if options.full:
        for kind in KINDS:
            step = make_step(kind, 128, options.positions, options.negatives, is_blocked=True)
            started = time.perf_counter()
            _, peak = measure_peak(step)
            seconds = time.perf_counter() - started
            print(f"{kind:<12} 128 histories in blocks: {seconds:.1f} s, {(peak or 0) / 2**30:.2f} GiB")


def compare(kind: Negatives, options: argparse.Namespace) -> None:
    """Print one row; both ways take turns, so that noise affects both equally, and the first round warms up."""
    steps = {
        is_blocked: make_step(kind, options.histories, options.positions, options.negatives, is_blocked=is_blocked)
        for is_blocked in (True, False)
    }
    seconds: dict[bool, list[float]] = {True: [], False: []}
    losses, peaks = {}, {}
    for is_blocked, step in steps.items():
        losses[is_blocked], peaks[is_blocked] = measure_peak(step)
    for _ in range(options.repeats):
        for is_blocked, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[is_blocked].append(time.perf_counter() - started)
    blocked, plain = (statistics.median(seconds[is_blocked]) for is_blocked in (True, False))
    memory = {is_blocked: (peak or 0) / 2**20 for is_blocked, peak in peaks.items()}
    print(
        f"{kind:<12} {blocked:>8.2f} s {memory[True]:>6.0f} {plain:>8.2f} s {memory[False]:>6.0f} "
        f"{plain / blocked:>5.2f}x {abs(losses[True] - losses[False]):>16.1e}"
    )


def make_step(
    kind: Negatives, num_histories: int, num_positions: int, num_negatives: int, *, is_blocked: bool
) -> Callable[[], float]:
    """Return a function that computes loss and gradient once, and returns the loss."""
    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(query_dim=50, item_dim=50, component_dim=64, seed=0).train()
    queries = torch.randn(num_histories * num_positions, 50, generator=generator)
    items = torch.randn(NUM_ITEMS, 50, generator=generator)
    contrast = draw_contrast(
        kind,
        torch.randint(NUM_ITEMS, (len(queries),), generator=generator),
        torch.full((num_histories,), num_positions),
        pool=torch.empty(0, dtype=torch.int64),
        num_items=NUM_ITEMS,
        num_negatives=num_negatives,
        generator=generator,
    )
    with torch.no_grad():
        made = mol.query_parts(queries), mol.item_parts(items)

    def step() -> float:
        mol.zero_grad()
        query_parts = QueryParts(*(part.clone().requires_grad_() for part in (made[0].components, made[0].gate)))
        item_parts = ItemParts(*(part.clone().requires_grad_() for part in (made[1].components, made[1].gate)))
        torch.manual_seed(0)
        if is_blocked:
            return backward_sampled_softmax(
                mol, query_parts, item_parts, contrast, balance_weight=BALANCE_WEIGHT
            ).softmax
        return backward_plainly(mol, query_parts, item_parts, contrast)

    return step


def backward_plainly(mol: MixtureOfLogits, query_parts: QueryParts, item_parts: ItemParts, contrast: Contrast) -> float:
    """Compute the same loss for all pairs at once, with plain autograd."""
    positive = mol.compare_candidates(query_parts, item_parts[contrast.positives[:, None]])
    if len(contrast.group_sizes) == 1:
        negative_scores = mol.compare(query_parts, item_parts[contrast.negatives[0]]).scores  # (E, n)
        negatives = contrast.negatives  # (1, n)
    elif len(contrast.group_sizes) == len(contrast.positives):
        negative_scores = mol.compare_candidates(query_parts, item_parts[contrast.negatives]).scores  # (E, n)
        negatives = contrast.negatives  # (E, n)
    else:
        rows = torch.arange(len(contrast.positives)).split(contrast.group_sizes)
        negative_scores = torch.cat(
            [
                mol.compare(query_parts[own], item_parts[shared]).scores
                for own, shared in zip(rows, contrast.negatives, strict=True)
            ]
        )  # (E, n)
        negatives = contrast.negatives.repeat_interleave(torch.tensor(contrast.group_sizes), dim=0)  # (E, n)
    negative_scores = negative_scores.masked_fill(negatives == contrast.positives[:, None], -torch.inf)
    logits = torch.cat([positive.scores, negative_scores], dim=1)  # (E, 1 + n)
    loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))
    (loss + BALANCE_WEIGHT * load_balance_loss(positive.gate_weights)).backward()
    return loss.item()


if __name__ == "__main__":
    main()
