"""A plan for a sharded search, and a simulation of its latency: shards, stragglers, replicas and hedged requests.

python benchmarks/scale_simulation.py                            one billion items, constants of docs/how-to/scale.md
python benchmarks/scale_simulation.py --items 2e8 --items-per-shard 5e6 --rate 40 --service-ms 90
python benchmarks/scale_simulation.py --help                             every number can be replaced by your own

A search is sent to every shard and is done when the slowest shard has answered. Each shard has one or more replicas,
and each replica answers one request after the other, in the order of their arrival. A request goes to the replica that
is free first, or to one drawn at random (`--routing`). If hedged, it is sent to another replica too when it has waited
for longer than most do; the first answer counts, and the other is thrown away but still takes its time.

The time that a replica needs for a request is `service * (1 - jitter)` plus an exponential time with the mean
`service * jitter`; a straggler (a page that is not in memory, a neighbour on the same machine) takes `factor` times as
long. Arrivals are a Poisson process. One simplification: a hedged request takes its place in the queue of the other
replica when it is decided, also before requests that arrive until it is sent.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The corpus, and how it is spread."""

    items: float
    items_per_shard: float
    query_components: int
    item_components: int
    dim: int
    bytes_per_value: int

    @property
    def num_shards(self) -> int:
        """The number of shards."""
        return math.ceil(self.items / self.items_per_shard)

    @property
    def bytes_per_item(self) -> int:
        """Components and gate in the precision of the index, sums in fp32, and an id in int64."""
        num_pairs = self.query_components * self.item_components
        return (self.item_components * self.dim + num_pairs) * self.bytes_per_value + 4 * self.dim + 8

    @property
    def bytes_per_query(self) -> int:
        """Query components and gate in fp32."""
        return 4 * self.query_components * (self.dim + self.item_components)

    def bytes_per_answer(self, k: int) -> int:
        """k ids and scores, and the ceiling."""
        return 12 * k + 4


@dataclass(frozen=True, slots=True)
class Replica:
    """The time that one replica of a shard needs for one request, in milliseconds."""

    service: float
    jitter: float
    straggler_share: float
    straggler_factor: float

    @property
    def mean(self) -> float:
        """The mean time."""
        return self.service * (1 + self.straggler_share * (self.straggler_factor - 1))

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Return the times of `count` requests."""
        times = self.service * (1 - self.jitter + self.jitter * rng.exponential(size=count))
        return np.where(rng.random(count) < self.straggler_share, times * self.straggler_factor, times)


@dataclass(frozen=True, slots=True)
class Latencies:
    """The times of simulated searches in milliseconds, and what they cost."""

    searches: Array  # (searches,)
    utilisation: float
    """The share of its time that a replica works."""
    extra_share: float
    """Hedged requests for each request."""

    def quantile(self, share: float) -> float:
        """Return the time that this share of searches does not exceed."""
        return float(np.quantile(self.searches, share))


def simulate(
    *,
    num_shards: int,
    num_replicas: int,
    replica: Replica,
    rate: float,
    num_searches: int,
    hedge_after: float | None = None,
    routing: str = "random",
    seed: int = 0,
) -> Latencies:
    """Simulate searches that arrive at `rate` a second; those of the first tenth, while queues fill, are not counted.

    Args:
        num_shards: every search asks all of them.
        num_replicas: of each shard.
        replica: the time of one request.
        rate: searches per second.
        num_searches: the number of simulated searches.
        hedge_after: milliseconds after which a request is sent to a second replica; None for never.
        routing: "random", or "idle" for the replica that is free first.
        seed: of all random numbers.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1000 / rate, num_searches))  # (searches,) ms
    is_free_at = np.zeros((num_shards, num_replicas))  # (shards, replicas) ms
    shards = np.arange(num_shards)
    slowest, busy, num_hedged = np.empty(num_searches), 0.0, 0
    for number, arrival in enumerate(arrivals):
        chosen = is_free_at.argmin(axis=1) if routing == "idle" else rng.integers(num_replicas, size=num_shards)
        times = replica.draw(rng, num_shards)  # (shards,)
        done = np.maximum(is_free_at[shards, chosen], arrival) + times  # (shards,)
        is_free_at[shards, chosen] = done
        busy += float(times.sum())
        if hedge_after is not None and num_replicas > 1:
            late = np.flatnonzero(done > arrival + hedge_after)  # (late,)
            others = (chosen[late] + rng.integers(1, num_replicas, size=len(late))) % num_replicas  # (late,)
            times = replica.draw(rng, len(late))  # (late,)
            second = np.maximum(is_free_at[late, others], arrival + hedge_after) + times  # (late,)
            is_free_at[late, others] = second
            done[late] = np.minimum(done[late], second)
            busy += float(times.sum())
            num_hedged += len(late)
        slowest[number] = done.max() - arrival
    duration = float(max(arrivals[-1], is_free_at.max()))
    return Latencies(
        searches=slowest[num_searches // 10 :],
        utilisation=busy / (duration * num_shards * num_replicas),
        extra_share=num_hedged / (num_searches * num_shards),
    )


def harmonic(count: int) -> float:
    """Return 1 + 1/2 + ... + 1/count: the mean of the greatest of `count` exponential times of mean 1."""
    return sum(1 / number for number in range(1, count + 1))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    corpus = parser.add_argument_group("the corpus")
    corpus.add_argument("--items", type=float, default=1e9)
    corpus.add_argument("--items-per-shard", type=float, default=1e7)
    corpus.add_argument("--query-components", type=int, default=8)
    corpus.add_argument("--item-components", type=int, default=4)
    corpus.add_argument("--dim", type=int, default=64)
    corpus.add_argument("--bytes-per-value", type=int, default=2, help="2 for fp16 and bf16, 4 for fp32")
    corpus.add_argument("--k", type=int, default=100)
    measured = parser.add_argument_group("measured constants; see docs/how-to/scale.md for the commands")
    measured.add_argument("--service-ms", type=float, default=SERVICE_MS, help="one search of one shard")
    measured.add_argument("--jitter", type=float, default=0.1, help="share of the service time that varies")
    measured.add_argument("--straggler-share", type=float, default=0.01)
    measured.add_argument("--straggler-factor", type=float, default=5.0)
    measured.add_argument("--network-ms", type=float, default=0.5, help="one round trip within the data centre")
    measured.add_argument("--gigabits", type=float, default=10.0, help="network of the machine that merges")
    measured.add_argument("--build-rate", type=float, default=BUILD_RATE, help="items per second and process")
    load = parser.add_argument_group("the load")
    load.add_argument("--rate", type=float, default=2.0, help="searches per second")
    load.add_argument("--routing", choices=("idle", "random"), default="idle", help="the replica of a request")
    load.add_argument("--searches", type=int, default=20_000, help="simulated searches")
    load.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    sizes = Sizes(
        options.items, options.items_per_shard, options.query_components, options.item_components, options.dim,
        options.bytes_per_value,
    )  # fmt: skip
    replica = Replica(options.service_ms, options.jitter, options.straggler_share, options.straggler_factor)
    wire_ms = print_plan(sizes, options)
    print_simulation(sizes.num_shards, replica, options, wire_ms + options.network_ms)


def print_plan(sizes: Sizes, options: argparse.Namespace) -> float:
    """Print the arithmetic of memory, network and building; return the milliseconds of all bytes on the wire."""
    outgoing = sizes.num_shards * sizes.bytes_per_query
    incoming = sizes.num_shards * sizes.bytes_per_answer(options.k)
    wire_ms = 8e3 * (outgoing + incoming) / (options.gigabits * 1e9)
    rows = [
        ("shards", f"{sizes.num_shards:,}"),
        ("bytes per item", f"{sizes.bytes_per_item:,}"),
        ("memory of a shard, GB", f"{sizes.bytes_per_item * sizes.items_per_shard / 1e9:,.1f}"),
        ("memory of one replica of all shards, GB", f"{sizes.bytes_per_item * sizes.items / 1e9:,.0f}"),
        ("memory that Average reads in a shard, GB", f"{4 * sizes.dim * sizes.items_per_shard / 1e9:,.2f}"),
        ("query to all shards, KB", f"{outgoing / 1e3:,.0f}"),
        ("answers of all shards, KB", f"{incoming / 1e3:,.0f}"),
        (f"both at {options.gigabits:g} Gbit/s, ms", f"{wire_ms:,.2f}"),
        ("building a shard, minutes", f"{sizes.items_per_shard / options.build_rate / 60:,.1f}"),
        ("building all shards, process hours", f"{sizes.items / options.build_rate / 3600:,.1f}"),
    ]  # fmt: skip
    print(f"\n{sizes.items:,.0f} items\n\n| | |\n|---|---:|")
    for name, value in rows:
        print(f"| {name} | {value} |")
    return wire_ms


def print_simulation(num_shards: int, replica: Replica, options: argparse.Namespace, fixed_ms: float) -> None:
    """Print the latency of several ways to answer."""
    print(
        f"\n{num_shards} shards, {options.rate:g} searches per second, {replica.mean:.0f} ms of work for a request on "
        f"average, {fixed_ms:.2f} ms of network in every search\n\n"
        "| replicas | hedged after | p50 ms | p99 ms | p99.9 ms | replicas busy | more requests |\n"
        "|---:|---|---:|---:|---:|---:|---:|"
    )
    for num_replicas, hedging in ((1, None), (2, None), (3, None), (2, 0.95), (2, 0.99), (3, 0.95)):
        after = None if hedging is None else hedge_time(replica, hedging, seed=options.seed)
        found = simulate(
            num_shards=num_shards, num_replicas=num_replicas, replica=replica, rate=options.rate,
            num_searches=options.searches, hedge_after=after, routing=options.routing, seed=options.seed,
        )  # fmt: skip
        shown = "never" if after is None else f"{after:.0f} ms (p{100 * (hedging or 0):g})"
        times = " | ".join(f"{fixed_ms + found.quantile(share):,.0f}" for share in (0.5, 0.99, 0.999))
        print(f"| {num_replicas} | {shown} | {times} | {found.utilisation:.0%} | {found.extra_share:.1%} |")


def hedge_time(replica: Replica, share: float, *, seed: int) -> float:
    """Return the milliseconds within which this share of requests is answered if no other is waiting."""
    return float(np.quantile(replica.draw(np.random.default_rng(seed), 200_000), share))


SERVICE_MS = 137.0
"""The p50 of Average(500) over 10 million items with two threads; benchmarks/results/scale.md."""
BUILD_RATE = 140_000
"""Items per second that a process with two threads writes; benchmarks/results/scale.md."""

if __name__ == "__main__":
    main()
