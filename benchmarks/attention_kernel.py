"""Time of training sequence encoders on a CPU: the attention of HSTU with torch and in C++, and complete steps.

python benchmarks/attention_kernel.py                          128 made histories, about as long as those of ML-1M
python benchmarks/attention_kernel.py --data data/ml-1m        histories of a folder of `railsearch data prepare`
python benchmarks/attention_kernel.py --threads 2 --repeats 3

The first table is forward and backward of one block's gated attention. The second is a complete step (encoder, cosine
with 128 uniform negatives, gradient, AdamW) of the paper's encoders. All ways take turns, so that noise affects all
equally. One thread is measured in CPU time, several in wall time. RAILSEARCH_ISA=avx2 measures another instruction set.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import polars as pl
import torch
from torch import Generator

from railsearch.benchmark.machine import describe_machine, watch_others
from railsearch.data import Interactions, leave_last_out, read_prepared
from railsearch.encoders import HSTU, Histories, SASRec
from railsearch.encoders.sequence.gated_attention import gated_attention, plan_gated_attention
from railsearch.kernels import KernelName, use_kernel
from railsearch.kernels.native import chosen_isa
from railsearch.models import SequentialModel
from railsearch.models.sequential import histories_between
from railsearch.similarity import DotProduct
from railsearch.training import TrainingConfig
from railsearch.training.task import Batch
from railsearch.training.tasks.histories import NextItemTask

Name = TypeVar("Name")

NUM_HISTORIES, MAX_LENGTH, DIM = 128, 200, 50
SHAPES = ((1, 8), (2, 25), (1, 64))
"""Heads, and the size of each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of prepared interactions; by default, histories are made up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    interactions = read_prepared(options.data) if options.data else make_interactions()
    clock = time.process_time if options.threads == 1 else time.perf_counter
    print(f"{describe_machine()}; C++ with {chosen_isa()}; {options.threads} threads, median of {options.repeats}")
    with watch_others() as other_cores:
        compare_attention(interactions, options.repeats, clock)
        compare_steps(interactions, options.repeats, clock)
    print(f"other work kept {other_cores() or 0:.1f} cores busy")


def compare_attention(interactions: Interactions, repeats: int, clock: Callable[[], float]) -> None:
    """Print a row for each number and size of heads."""
    users = torch.randperm(interactions.num_users, generator=Generator().manual_seed(0))[:NUM_HISTORIES]
    starts, ends = interactions.offsets[users], interactions.offsets[users + 1] - 1  # (128,) each
    histories = histories_between(interactions, starts, ends, max_length=MAX_LENGTH)
    pairs = int((histories.lengths * (histories.lengths + 1) // 2).sum())
    print(f"\n{len(histories.items):,} events, {pairs:,} pairs of events; forward and backward of one block")
    print(f"{'heads':<10} {'torch':>9} {'C++':>9} {'ratio':>6}")
    for num_heads, head_dim in SHAPES:
        steps = {kernel: attention_step(histories, num_heads, head_dim, kernel) for kernel in KernelName}
        print_row(f"{num_heads} x {head_dim}", time_in_turns(steps, repeats, clock))


def attention_step(histories: Histories, num_heads: int, head_dim: int, kernel: KernelName) -> Callable[[], None]:
    """Return a function that computes the attention of a block and its gradient once."""
    generator = Generator().manual_seed(0)
    width = num_heads * head_dim
    inputs = torch.randn(len(histories.items), 4 * width, generator=generator).requires_grad_()
    biases = [(0.02 * torch.randn(size, generator=generator)).requires_grad_() for size in (MAX_LENGTH, 129)]
    upstream = torch.randn(len(histories.items), width, generator=generator)
    with use_kernel(kernel):
        plan = plan_gated_attention(histories, num_heads=num_heads, weights=inputs)

    def step() -> None:
        outputs = gated_attention(
            inputs, *biases, num_heads=num_heads, divisor=MAX_LENGTH + 11, dropout=0.2, plan=plan
        )  # fmt: skip
        torch.autograd.grad(outputs, [inputs, *biases], upstream)

    return step


def compare_steps(interactions: Interactions, repeats: int, clock: Callable[[], float]) -> None:
    """Print a row for each encoder."""
    print(f"\n{'step of':<10} {'torch':>9} {'C++':>9} {'ratio':>6}")
    for name in ("HSTU", "SASRec"):
        steps = {kernel: training_step(name, interactions, kernel) for kernel in KernelName}
        print_row(name, time_in_turns(steps, repeats, clock))


def training_step(name: str, interactions: Interactions, kernel: KernelName) -> Callable[[], None]:
    """Return a function that trains one batch."""
    maker = HSTU if name == "HSTU" else SASRec
    encoder = maker(num_items=interactions.num_items, dim=DIM, max_length=MAX_LENGTH, seed=0)
    model = SequentialModel(encoder=encoder, similarity=DotProduct(dim=DIM, cosine=True, temperature=0.05))
    task = NextItemTask(model, leave_last_out(interactions), TrainingConfig(negatives="uniform", num_negatives=128))
    optimizer = torch.optim.AdamW(model.parameters())
    model.train()
    batch = torch.randperm(task.num_examples, generator=Generator().manual_seed(0))[:NUM_HISTORIES]

    def step() -> None:
        with use_kernel(kernel):
            optimizer.zero_grad()
            task.step(Batch(batch, batch, Generator().manual_seed(0)))
            optimizer.step()

    return step


def make_interactions() -> Interactions:
    """Return random histories of 20 to 300 events, half of them longer than 96, over 3,883 items."""
    generator = Generator().manual_seed(1)
    lengths = (96 * torch.randn(200, generator=generator).mul(0.9).exp()).long().clamp(20, 300)  # (200,)
    users = torch.arange(200).repeat_interleave(lengths)
    items = torch.randint(3_883, (len(users),), generator=generator)
    times = torch.randn(len(users), generator=generator).mul(3).add(3).exp().long().cumsum(dim=0)
    frame = pl.DataFrame({"user": users.numpy(), "item": items.numpy(), "timestamp": times.numpy()})
    return Interactions.from_frame(frame, user="user", item="item", timestamp="timestamp")


def time_in_turns(
    steps: Mapping[Name, Callable[[], None]], repeats: int, clock: Callable[[], float]
) -> dict[Name, float]:
    """Return the median seconds of each function; the first round warms up."""
    seconds: dict[Name, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 1):
        for name, step in steps.items():
            started = clock()
            step()
            seconds[name].append(clock() - started)
    return {name: statistics.median(own[1:]) for name, own in seconds.items()}


def print_row(name: str, seconds: Mapping[KernelName, float]) -> None:
    own, native = (1000 * seconds[kernel] for kernel in (KernelName.TORCH, KernelName.NATIVE))
    print(f"{name:<10} {own:>6.0f} ms {native:>6.0f} ms {own / native:>5.1f}x")


if __name__ == "__main__":
    main()
