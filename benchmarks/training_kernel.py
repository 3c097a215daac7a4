"""CPU time of training a mixture on one thread: the fused function of torch against C++, and complete steps.

python benchmarks/training_kernel.py                     all tables
python benchmarks/training_kernel.py --repeats 3 --only mixture
python benchmarks/training_kernel.py --only softmax      the loss of a cosine over shared negatives

The first table is forward and backward of the mixture for 770 queries x 512 items, in the blocks of training. The
second is a complete step (SASRec, loss, gradient, AdamW) of 128 histories with about 770 positions and 512 shared
negatives, as on Amazon Beauty: 12,101 items, dim 50. The third is the loss of a cosine and its gradient for about 128
histories of MovieLens-1M (13,700 positions, 3,883 items, dim 50) over shared negatives, and over 128 for each example,
which both compute with torch. All ways take turns, so that noise affects all equally.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import polars as pl
import torch
from torch import Generator, Tensor

from railsearch.benchmark.machine import describe_machine, watch_others
from railsearch.data import Interactions, leave_last_out
from railsearch.encoders import SASRec
from railsearch.kernels import KernelName, use_kernel
from railsearch.kernels.fused_mixture import fused_mixture
from railsearch.kernels.native import native_mixture
from railsearch.models import SequentialModel
from railsearch.similarity import DotProduct, MixtureOfLogits, Similarity
from railsearch.similarity.parts import by_pair
from railsearch.training import Negatives, TrainingConfig
from railsearch.training.losses import backward_sampled_softmax
from railsearch.training.negatives import draw_contrast
from railsearch.training.task import Batch
from railsearch.training.tasks.histories import NextItemTask

Name = TypeVar("Name")

TABLES = ("mixture", "steps", "softmax")
NUM_POSITIONS, NUM_MOVIES = 13_700, 3_883
SHAPES = ((4, 2, 32), (4, 4, 64), (8, 4, 128))
"""Query components, item components, hidden size of the gate."""
NUM_QUERIES, NUM_NEGATIVES, DIM = 770, 512, 50
NUM_ITEMS, NUM_HISTORIES, MEAN_LENGTH = 12_101, 128, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", choices=TABLES, nargs="+", default=TABLES, help="tables to print; all by default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{describe_machine()}; one thread, CPU time, median of {options.repeats}")
    with watch_others() as other_cores:
        if "mixture" in options.only:
            compare_mixtures(options.repeats)
        if "steps" in options.only:
            compare_steps(options.repeats)
        if "softmax" in options.only:
            compare_softmax(options.repeats)
    print(f"other work kept {other_cores() or 0:.1f} cores busy")


def compare_mixtures(repeats: int) -> None:
    """Print a row for each shape."""
    print(f"\n{'mixture':<18} {'torch':>9} {'C++':>9} {'ratio':>6}   forward and backward of 770 x 512 pairs")
    for num_query_components, num_item_components, gate_dim in SHAPES:
        mol = make_mixture(num_query_components, num_item_components, gate_dim)
        generator = Generator().manual_seed(0)
        num_pairs = num_query_components * num_item_components
        queries = max(1, min(2**14, 2**20 // max(num_pairs, gate_dim)) // NUM_NEGATIVES)  # of a block of training
        products = 3 * torch.randn(
            queries, num_query_components, NUM_NEGATIVES, num_item_components, generator=generator
        )
        query_gate = torch.randn(queries, num_pairs, generator=generator)
        item_gate = torch.randn(NUM_NEGATIVES, num_pairs, generator=generator)
        upstream = torch.randn(queries, NUM_NEGATIVES, generator=generator)
        given = (products, query_gate, item_gate)
        seconds = time_in_turns(
            {"torch": mixture_step(mol, given, upstream, is_native=False),
             "native": mixture_step(mol, given, upstream, is_native=True)},
            repeats,
        )  # fmt: skip
        torch_ms, native_ms = (1000 * seconds[name] * NUM_QUERIES / queries for name in ("torch", "native"))
        name = f"{num_query_components} x {num_item_components}, gate {gate_dim}"
        print(f"{name:<18} {torch_ms:>6.0f} ms {native_ms:>6.0f} ms {torch_ms / native_ms:>5.1f}x")


def mixture_step(
    mol: MixtureOfLogits, given: tuple[Tensor, Tensor, Tensor], upstream: Tensor, *, is_native: bool
) -> Callable[[], None]:
    """Return a function that computes the mixture and its gradient once."""

    def step() -> None:
        products, query_gate, item_gate = (each.detach().requires_grad_() for each in given)
        if is_native:
            scores = native_mixture(mol.gate, products, query_gate, item_gate)
        else:
            scores = fused_mixture(mol.gate, by_pair(products), query_gate[:, None], item_gate)
        scores.backward(upstream)  # type: ignore[no-untyped-call]

    return step


def compare_steps(repeats: int) -> None:
    """Print a row for each similarity."""
    print(f"\n{'similarity':<18} {'torch':>9} {'C++':>9}   of a complete step; in brackets: times the cosine")
    similarities: dict[str, Similarity] = {"cosine": DotProduct(dim=DIM, cosine=True, temperature=0.05)}
    for num_query_components, num_item_components, gate_dim in SHAPES:
        mol = make_mixture(num_query_components, num_item_components, gate_dim)
        similarities[f"{num_query_components} x {num_item_components}, gate {gate_dim}"] = mol
    steps = {
        (name, kernel): training_step(similarity, kernel)
        for name, similarity in similarities.items()
        for kernel in KernelName
    }
    seconds = time_in_turns(steps, repeats)
    for name in similarities:
        cells = [
            f"{1000 * seconds[name, kernel]:>6.0f} ms ({seconds[name, kernel] / seconds['cosine', kernel]:.1f})"
            for kernel in KernelName
        ]
        print(f"{name:<18} {'  '.join(cells)}")


def compare_softmax(repeats: int) -> None:
    """Print a row for each number of shared negatives, and one for negatives of each example."""
    print(
        f"\n{'negatives':<18} {'torch':>9} {'C++':>9} {'ratio':>6}   loss of a cosine and its gradient, 13,700 examples"
    )
    cases: dict[str, tuple[Negatives, int]] = {
        f"uniform {count:,}": (Negatives.UNIFORM, count) for count in (128, 512, 2048, 4096)
    }
    cases["all 3,883"] = (Negatives.ALL, 1)
    cases["per_example 128"] = (Negatives.PER_EXAMPLE, 128)
    for name, (kind, count) in cases.items():
        seconds = time_in_turns({kernel: softmax_step(kind, count, kernel) for kernel in KernelName}, repeats)
        torch_ms, native_ms = (1000 * seconds[kernel] for kernel in (KernelName.TORCH, KernelName.NATIVE))
        print(f"{name:<18} {torch_ms:>6.0f} ms {native_ms:>6.0f} ms {torch_ms / native_ms:>5.1f}x", flush=True)


def softmax_step(kind: Negatives, count: int, kernel: KernelName) -> Callable[[], None]:
    """Return a function that computes the loss of a batch and adds its gradient to queries and items."""
    generator = Generator().manual_seed(0)
    queries, items = (torch.randn(rows, DIM, generator=generator) for rows in (NUM_POSITIONS, NUM_MOVIES))
    queries.requires_grad_()
    items.requires_grad_()
    similarity = DotProduct(dim=DIM, cosine=True, temperature=0.05)
    positives = torch.randint(NUM_MOVIES, (NUM_POSITIONS,), generator=generator)
    contrast = draw_contrast(
        kind, positives, None, pool=positives, num_items=NUM_MOVIES, num_negatives=count, generator=generator
    )

    def step() -> None:
        with use_kernel(kernel):
            rows, own = contrast.distinct_items()
            backward_sampled_softmax(
                similarity, similarity.query_parts(queries), similarity.item_parts(items[rows]), own, balance_weight=0.0
            )

    return step


def training_step(similarity: Similarity, kernel: KernelName) -> Callable[[], None]:
    """Return a function that trains one batch."""
    model = SequentialModel(encoder=SASRec(num_items=NUM_ITEMS, dim=DIM, max_length=50, seed=0), similarity=similarity)
    config = TrainingConfig(negatives="uniform", num_negatives=NUM_NEGATIVES)
    task = NextItemTask(model, leave_last_out(make_interactions()), config)
    optimizer = torch.optim.AdamW(model.parameters())
    model.train()
    everyone = torch.arange(task.num_examples)

    def step() -> None:
        with use_kernel(kernel):
            optimizer.zero_grad()
            task.step(Batch(everyone, everyone, Generator().manual_seed(0)))
            optimizer.step()

    return step


def make_interactions() -> Interactions:
    """Return random histories; every item occurs, so that the table has all of them."""
    generator = Generator().manual_seed(1)
    lengths = 3 + torch.empty(NUM_HISTORIES).exponential_(1 / MEAN_LENGTH, generator=generator).long()  # (128,)
    users = torch.arange(NUM_HISTORIES).repeat_interleave(lengths)
    items = torch.randint(NUM_ITEMS, (len(users),), generator=generator)
    users = torch.cat([users, torch.arange(NUM_HISTORIES, NUM_HISTORIES + NUM_ITEMS)])  # and users of one event
    items = torch.cat([items, torch.arange(NUM_ITEMS)])
    frame = pl.DataFrame({"user": users.numpy(), "item": items.numpy(), "timestamp": range(len(users))})
    return Interactions.from_frame(frame, user="user", item="item", timestamp="timestamp")


def make_mixture(num_query_components: int, num_item_components: int, gate_dim: int) -> MixtureOfLogits:
    """Return a mixture for embeddings of SASRec, in training mode."""
    return MixtureOfLogits.around(
        dim=DIM, cosine=True, num_query_components=num_query_components, num_item_components=num_item_components,
        gate_dim=gate_dim, seed=0,
    ).train()  # fmt: skip


def time_in_turns(steps: Mapping[Name, Callable[[], None]], repeats: int) -> dict[Name, float]:
    """Return the median CPU seconds of each function; the first round warms up."""
    seconds: dict[Name, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 1):
        for name, step in steps.items():
            started = time.process_time()
            step()
            seconds[name].append(time.process_time() - started)
    return {name: statistics.median(own[1:]) for name, own in seconds.items()}


if __name__ == "__main__":
    main()
