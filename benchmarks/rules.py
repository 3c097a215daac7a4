"""The cost of each rule of `Recommender.recommend`, and of similar items: the table of results/rules.md. Markdown.

python benchmarks/rules.py --items 24186

A recommender is trained for one epoch on random histories: the cost of a rule does not depend on what was learned.
Times are CPU milliseconds of one thread for a user, medians; the calls take turns in one run.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import polars as pl
import torch

from railsearch import MaxPer, Recipe, Recommender
from railsearch.benchmark.machine import describe_machine
from railsearch.data import Interactions

GENRES = [f"genre {number}" for number in range(18)]  # as many as MovieLens has
Call = Callable[[list[int]], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=24_186)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()

    torch.set_num_threads(1)
    recommender = make_recommender(options.items)
    index = recommender.build_index(show_progress=False)
    print(f"{describe_machine()}, kernel {index.describe()['kernel']}; {index.similarity!r}, {options.items:,} items, ")
    print(f"k = {options.k}, CPU milliseconds of one thread for a user\n")
    calls = make_calls(recommender, options.k)
    print("| call | one user | batches of 32 |\n|---|---|---|")
    single, batched = (measure(calls, users, options.repeats) for users in ([3], list(range(32))))
    for name in calls:
        print(f"| {name} | {single[name]:.2f} | {batched[name]:.2f} |")
    print("\n| similar items | one item | 32 items |\n|---|---|---|")
    for precision in ("fp32", "fp16"):
        index = recommender.build_index(precision=precision, show_progress=False)
        call = {f"`similar_items`, {precision}": lambda items: recommender.similar_items(items, options.k)}
        call[next(iter(call))]([0])  # the first call reads all components once
        for name in call:
            one, many = (measure(call, items, options.repeats)[name] for items in ([3], list(range(32))))
            print(f"| {name} | {one:.2f} | {many:.2f} |")


def make_recommender(num_items: int) -> Recommender:
    """Return a recommender of random histories, whose items have one genre in one column and two in another."""
    generator = torch.Generator().manual_seed(0)
    items = torch.randint(num_items, (64 * 20,), generator=generator).tolist()
    first, second = (torch.randint(18, (num_items,), generator=generator).tolist() for _ in range(2))
    catalogue = pl.DataFrame(
        {
            "item": range(num_items),
            "year": [1950 + item % 70 for item in range(num_items)],
            "genre": [GENRES[own] for own in first],
            "genres": [f"{GENRES[own]}|{GENRES[other]}" for own, other in zip(first, second, strict=True)],
        }
    )
    events = pl.DataFrame({"user": [row // 20 for row in range(len(items))], "item": items})
    interactions = Interactions.from_frame(events, timestamp=None, catalogue=catalogue)
    return Recommender.fit(interactions, Recipe(training={"epochs": 1}), show_progress=False)


def make_calls(recommender: Recommender, k: int) -> dict[str, Call]:
    """Return one call for each rule, by name."""
    everybody = list(range(1000))
    rules: dict[str, dict[str, object]] = {
        "no rule": {},
        '`allow="year >= 2000"`': {"allow": "year >= 2000"},
        "`exclude`: 1,000 items for everybody": {"exclude": everybody},
        "`exclude`: 100 items for each user": {"exclude": dict.fromkeys(range(32), everybody[:100])},
        '`max_per={"genre": 2}`': {"max_per": {"genre": 2}},
        '`max_per={"genres": MaxPer(2, separator="\\|")}`': {"max_per": {"genres": MaxPer(2, separator="|")}},
        "`diversity=0.3`, pool 100": {"diversity": 0.3, "pool": 100},
        "`diversity=0.3`, pool 400": {"diversity": 0.3, "pool": 400},
        '`max_per={"genre": 2}, diversity=0.3`': {"max_per": {"genre": 2}, "diversity": 0.3},
    }

    def make(options: dict[str, object]) -> Call:
        return lambda users: recommender.recommend(users, k, **options)  # type: ignore[arg-type]

    return {name: make(options) for name, options in rules.items()}


def measure(calls: dict[str, Call], users: list[int], repeats: int) -> dict[str, float]:
    """Return the median CPU milliseconds of each call for a user; the calls take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats + 1):  # the first turn warms up
        for name, call in calls.items():
            start = time.process_time()
            call(users)
            seconds[name].append(time.process_time() - start)
    return {name: 1000 * statistics.median(own[1:]) / len(users) for name, own in seconds.items()}


if __name__ == "__main__":
    main()
