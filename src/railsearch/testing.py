"""Contract tests that come with the package: hold an engine of your own to what strategies rely on."""

import torch
from torch import Tensor

from railsearch.index.engines import NO_ROW, Engine, Nearest
from railsearch.scoring import Hidden

TOLERANCE = 1e-4
LEAST_RECALL = 0.5
"""An approximate engine that finds less than this of what is to be found, in tables this small, is broken."""


def check_engine(engine: Engine, *, seed: int = 0) -> None:
    """Compare an engine with brute force, on tables that make life hard, with and without hidden rows.

    An exact engine must give the best rows and their dot products; an approximate one may miss some, but must not
    give a row twice, a hidden one, or one that does not exist, and must find most of the best. Raises an
    AssertionError that says what is wrong.

    >>> from railsearch.index.engines import Flat
    >>> check_engine(Flat())
    """
    generator = torch.Generator().manual_seed(seed)
    for num_rows in (1, 40, 700):
        for table in _tables(num_rows, generator):
            vectors = torch.randn(3, 2, table.shape[1], generator=generator)  # (B, V, d)
            for hidden in _filters(num_rows, generator):
                _check_best(engine, table, vectors, hidden)
                if engine.supports_threshold:
                    _check_above(engine, table, vectors, hidden)


def _tables(num_rows: int, generator: torch.Generator) -> list[Tensor]:
    """Vectors (N, d): scattered, many of them equal, near each other, and of one dimension."""
    scattered = torch.randn(num_rows, 8, generator=generator)
    repeated = scattered[torch.randint(max(1, num_rows // 5), (num_rows,), generator=generator)]
    near = scattered[:1] + 1e-3 * torch.randn(num_rows, 8, generator=generator)
    return [scattered, repeated, near, torch.randn(num_rows, 1, generator=generator)]


def _filters(num_rows: int, generator: torch.Generator) -> list[Hidden | None]:
    device = torch.device("cpu")
    lists = [torch.randperm(num_rows, generator=generator)[: num_rows * query // 4] for query in range(3)]
    mask = torch.rand(num_rows, generator=generator) < 0.5
    return [
        None,
        Hidden.from_lists(lists, device=device),
        Hidden.from_lists([], device=device, is_allowed=mask),
        Hidden.from_lists(lists, device=device, is_allowed=mask),
        Hidden.from_lists([], device=device, is_allowed=torch.zeros(num_rows, dtype=torch.bool)),
    ]


def _truth(table: Tensor, vectors: Tensor, hidden: Hidden | None) -> Tensor:
    """Dot products (B, V, N), minus infinity where a row is hidden."""
    products = (vectors.double() @ table.double().T).float()
    if hidden is not None:
        hidden.hide(products, 0)
    return products


def _check_best(engine: Engine, table: Tensor, vectors: Tensor, hidden: Hidden | None) -> None:
    truth = _truth(table, vectors, hidden)  # (B, V, N)
    num_rows = len(table)
    for n in (1, 10, num_rows):
        if engine.max_n is not None and n > engine.max_n:
            continue
        found = engine.build(table).best(vectors, n, hidden)
        width = min(n, num_rows)
        expected_shape = (*vectors.shape[:2], width)
        assert tuple(found.rows.shape) == tuple(found.scores.shape) == expected_shape, (
            f"best of n = {n} in {num_rows} rows has shape {tuple(found.rows.shape)}, not {expected_shape}"
        )
        _check_sound(found, truth)
        expected = truth.topk(width, dim=2).values  # (B, V, n)
        if engine.is_exact:
            assert torch.allclose(found.scores, expected, atol=TOLERANCE), f"{engine} is not exact: it missed rows"
        elif n == 10 and hidden is None:
            is_hit = _own(truth, found) >= expected[:, :, -1:] - TOLERANCE  # (B, V, n)
            assert float(is_hit.float().mean()) >= LEAST_RECALL, f"{engine} finds too little: {is_hit.float().mean()}"


def _check_sound(found: Nearest, truth: Tensor) -> None:
    is_real = found.rows != NO_ROW  # (B, V, n)
    assert int(found.rows.max()) < truth.shape[2], "a row that does not exist"
    assert torch.equal(is_real, found.scores > -torch.inf), "NO_ROW and minus infinity must stand together"
    assert bool((found.scores[..., 1:] <= found.scores[..., :-1]).all()), "scores are not in descending order"
    assert bool((_own(truth, found)[is_real] > -torch.inf).all()), "a hidden row was given"
    for rows in found.rows.flatten(0, 1).tolist():
        real = [row for row in rows if row != NO_ROW]
        assert len(real) == len(set(real)), "a row was given twice"


def _check_above(engine: Engine, table: Tensor, vectors: Tensor, hidden: Hidden | None) -> None:
    best = _truth(table, vectors, hidden).amax(dim=1)  # (B, N)
    for thresholds in (torch.zeros(3), torch.full((3,), -torch.inf), torch.tensor([1.0, 0.5, 1e9])):
        found = engine.build(table).above(vectors, thresholds, hidden)  # (B, N)
        assert found.dtype == torch.bool, "above must give true or false for each query and row"
        assert tuple(found.shape) == tuple(best.shape), f"above has shape {tuple(found.shape)}, not {tuple(best.shape)}"
        is_clear = ((best - thresholds[:, None]).abs() > TOLERANCE) | (best == -torch.inf)  # (B, N)
        expected = (best >= thresholds[:, None]) & (best > -torch.inf)  # (B, N)
        assert torch.equal(found & is_clear, expected & is_clear), f"{engine} is wrong about a threshold"


def _own(truth: Tensor, found: Nearest) -> Tensor:
    """The true dot product (B, V, n) of each row that was found."""
    return truth.gather(2, found.rows.clamp_min(0)).masked_fill(found.rows == NO_ROW, -torch.inf)
