"""User and item factors of matrix factorisation (implicit ALS), for `when_it_pays.py factors`.

railsearch data prepare ml-1m --from ml-1m/ --to exp/ml-1m
python benchmarks/matrix_factors.py exp/ml-1m --to exp/factors
python benchmarks/matrix_factors.py exp/ml-1m --weights 0.2 0.5 1 --regularizations 0.003 0.01   # search only

The score is a plain dot product of two factors, without biases. The objective is that of Rendle et al. (2022),
"Revisiting the Performance of iALS": squared errors of the seen pairs, `weight` times the squared scores of all pairs,
and an l2 penalty that grows with the number of pairs of a user or item. Each user's last item is held out for the test
and the one before it for validation; a sweep solves for all users and then for all items. Validation HR@10 picks the
setting.

The folder holds queries.npy (users) and items.npy, (U, 64) and (N, 64) in fp32, and pairs.npy, validation_pairs.npy and
test_pairs.npy, (user, item) each. With --recent R, row U + u is a second factor of user u, solved without its last R
training items; pairs.npy pairs these rows with those items, and seen_pairs.npy holds what each row has seen. A model
then learns from items that the factor has not seen, as in the test, and from fewer pairs.
"""

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from railsearch import DotProduct, evaluate
from railsearch.data import leave_last_out, read_prepared

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Objective:
    """Settings of implicit ALS."""

    dim: int
    weight: float
    """Weight of every pair, seen or not, whose score should be 0."""
    regularization: float
    sweeps: int
    seed: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder that railsearch data prepare wrote")
    parser.add_argument("--to", type=Path, help="folder for the factors of the best setting")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--weights", type=float, nargs="+", default=[1.0], help="of all pairs; several are compared")
    parser.add_argument("--regularizations", type=float, nargs="+", default=[0.003], help="several are compared")
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--recent", type=int, default=0, help="training items that a second factor has not seen")
    options = parser.parse_args()

    split = leave_last_out(read_prepared(options.data))
    assert split.validation is not None
    events = split.interactions
    print(split.protocol)
    is_training = torch.arange(len(events)) < split.train_ends[events.users]  # (E,)
    pairs = torch.stack([events.users, events.items], dim=1)[is_training]  # (M, 2) by user, then time
    validation = torch.stack([split.validation.users, split.validation.items], dim=1)  # (n, 2)
    test = torch.stack([split.test.users, split.test.items], dim=1)  # (n, 2)
    shape = (events.num_users, events.num_items)

    best = None
    print("| weight | regularization | validation HR@1 | HR@10 | HR@50 | MRR | seconds |")
    print("|---|---|---|---|---|---|---|")
    for weight, regularization in itertools.product(options.weights, options.regularizations):
        objective = Objective(options.dim, weight, regularization, options.sweeps)
        started = time.perf_counter()
        users, items = factorize(pairs.numpy(), shape, objective)
        figures = measure(users, items, validation, pairs)
        shown = " | ".join(f"{figures[name]:.4f}" for name in ("HR@1", "HR@10", "HR@50", "MRR"))
        print(f"| {weight} | {regularization} | {shown} | {time.perf_counter() - started:.0f} |", flush=True)
        if best is None or figures["HR@10"] > best[0]:
            best = (figures["HR@10"], objective, users, items)
    if options.to is None:
        return
    assert best is not None
    _, objective, users, items = best
    figures = measure(users, items, test, torch.cat([pairs, validation]))
    print("test: " + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    arrays = {"queries": users, "items": items, "pairs": pairs, "validation_pairs": validation, "test_pairs": test}
    if options.recent:
        places = torch.arange(len(events))[is_training]  # (M,)
        is_recent = places >= split.train_ends[pairs[:, 0]] - options.recent  # (M,)
        others = torch.tensor([len(users), 0])
        earlier = solve_side(pairs[~is_recent].numpy(), items, len(users), objective)  # (U, D)
        has_factor = torch.from_numpy(earlier).any(dim=1)[pairs[:, 0]]  # (M,) False if all items are recent
        arrays["queries"] = np.concatenate([users, earlier])  # (2 U, D)
        arrays["pairs"] = pairs[is_recent & has_factor] + others
        arrays["seen_pairs"] = torch.cat([pairs, pairs[~is_recent] + others])
    options.to.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(options.to / f"{name}.npy", np.asarray(array))
    print(f"saved: {options.to} with {objective}, {len(arrays['pairs']):,} pairs")


def factorize(pairs: np.ndarray, shape: tuple[int, int], objective: Objective) -> tuple[Array, Array]:  # type: ignore[type-arg]
    """Return user factors (U, D) and item factors (N, D)."""
    generator = np.random.default_rng(objective.seed)
    scale = 0.1 / np.sqrt(objective.dim)
    items = (generator.standard_normal((shape[1], objective.dim)) * scale).astype(np.float32)
    for _ in range(objective.sweeps):
        users = solve_side(pairs, items, shape[0], objective)
        items = solve_side(pairs[:, ::-1], users, shape[1], objective)
    return solve_side(pairs, items, shape[0], objective), items


def solve_side(pairs: np.ndarray, others: Array, count: int, objective: Objective) -> Array:  # type: ignore[type-arg]
    """Return the factors (count, D) of one side that are best for those of the other side.

    Args:
        pairs: (M, 2) row of this side, row of the other side.
        others: (N, D) factors of the other side.
        count: rows of this side; a row without pairs gets zeros.
        objective: settings.
    """
    order = np.argsort(pairs[:, 0], kind="stable")
    rows = pairs[order, 1]  # (M,)
    ends = np.searchsorted(pairs[order, 0], np.arange(count + 1))  # (count + 1,)
    everything = objective.weight * others.T @ others  # (D, D)
    factors = np.zeros((count, objective.dim), dtype=np.float32)
    for row in range(count):
        seen = others[rows[ends[row] : ends[row + 1]]]  # (m, D)
        if len(seen):
            penalty = objective.regularization * (len(seen) + objective.weight * len(others))
            matrix = seen.T @ seen + everything + penalty * np.eye(objective.dim, dtype=np.float32)  # (D, D)
            factors[row] = np.linalg.solve(matrix, seen.sum(axis=0))
    return factors


def measure(users: Array, items: Array, held_out: torch.Tensor, seen: torch.Tensor) -> dict[str, float]:
    """Rank each held-out item by the dot product among all items except those that the user has seen."""
    return evaluate(DotProduct(dim=users.shape[1]), users, items, held_out, seen_pairs=seen).metrics


if __name__ == "__main__":
    main()
