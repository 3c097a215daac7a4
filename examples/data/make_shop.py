"""Write the events and products of an invented shop, for the example of a recommender.

python examples/data/make_shop.py        # events.csv and products.csv, the same at each run

A customer has two interests. In each, half of the customers buy one product after the other, and the others skip ahead,
always by the same number; now and then they buy a gift. So the next product follows from the order of a whole history.
"""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
STEPS = ("starter kit", "guide", "basic set", "storage box", "second set", "repair kit", "course", "fine set",
         "travel case", "yearbook", "master set", "display case")  # fmt: skip
INTERESTS = ("garden", "camping", "painting", "chess", "cycling", "baking")
NUM_CUSTOMERS = 500


def main() -> None:
    """Write both files."""
    rng = np.random.default_rng(7)
    products = [(f"{interest[:3]}-{step:02}", f"{interest} {name}", interest)
                for interest in INTERESTS for step, name in enumerate(STEPS)]  # fmt: skip
    events = []
    for number in range(NUM_CUSTOMERS):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=int(rng.integers(24 * 90)))
        step = int(rng.choice([1, 5]))
        reached = {int(interest): int(rng.integers(len(STEPS))) for interest in rng.permutation(len(INTERESTS))[:2]}
        for _ in range(int(rng.integers(7, 15))):
            interest = list(reached)[int(rng.integers(2))]
            product = interest * len(STEPS) + reached[interest] % len(STEPS)
            if rng.random() < 0.05:
                product = int(rng.integers(len(products)))  # a gift
            else:
                reached[interest] += step
            at += timedelta(hours=int(rng.integers(1, 24 * 14)))
            events.append((at, f"c{number:03}", products[product][0]))
    _write("products.csv", ("product", "title", "interest"), products)
    rows = [(customer, product, at.strftime("%Y-%m-%dT%H:%M")) for at, customer, product in sorted(events)]
    _write("events.csv", ("customer", "product", "when"), rows)


def _write(name: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with (HERE / name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    print(f"{name}: {len(rows)} rows")


if __name__ == "__main__":
    main()
