"""Contract tests that come with the package: hold an engine of your own to what strategies rely on."""

from collections.abc import Hashable

import torch
from torch import Tensor

from railsearch.index.engines import NO_ROW, Engine, Nearest
from railsearch.kernels import RowFilter

ROUNDOFF = 2.0**-24
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
    assert isinstance(engine, Hashable), f"{engine} cannot be hashed, so that its tables cannot be kept"
    generator = torch.Generator().manual_seed(seed)
    empty = engine.build(torch.empty(0, 8)).best(torch.ones(2, 1, 8), 3, None)
    assert tuple(empty.rows.shape) == tuple(empty.scores.shape) == (2, 1, 0), "a table of no rows gives no rows"
    nobody = engine.build(torch.ones(5, 8)).best(torch.empty(0, 2, 8), 3, None)
    assert tuple(nobody.rows.shape) == (0, 2, 3), "no queries get no rows"
    for num_rows in (1, 40, 700):
        for table in _tables(num_rows, generator):
            vectors = torch.randn(3, 2, table.shape[1], generator=generator)  # (B, V, d)
            for row_filter in _filters(num_rows, generator):
                _check_best(engine, table, vectors, row_filter)
                if engine.supports_threshold:
                    _check_above(engine, table, vectors, row_filter)


def _tables(num_rows: int, generator: torch.Generator) -> list[Tensor]:
    """Vectors (N, d): scattered, many of them equal, near each other, and of all kinds that an index may keep."""
    scattered = torch.randn(num_rows, 8, generator=generator)
    repeated = scattered[torch.randint(max(1, num_rows // 5), (num_rows,), generator=generator)]
    near = scattered[:1] + 1e-3 * torch.randn(num_rows, 8, generator=generator)
    components = torch.randn(num_rows, 3, 8, generator=generator)
    return [
        scattered,
        repeated,
        near,
        torch.randn(num_rows, 1, generator=generator),
        components[:, 1],  # one component of every item, as an index keeps them
        components[:, 2].to(torch.float16),
        components[:, 0].to(torch.bfloat16),
        scattered.double(),
    ]


def _filters(num_rows: int, generator: torch.Generator) -> list[RowFilter | None]:
    device = torch.device("cpu")
    lists = [torch.randperm(num_rows, generator=generator)[: num_rows * query // 4] for query in range(3)]
    mask = torch.rand(num_rows, generator=generator) < 0.5
    return [
        None,
        RowFilter.from_lists(lists, device=device),
        RowFilter.from_lists([], device=device, is_allowed=mask),
        RowFilter.from_lists(lists, device=device, is_allowed=mask),
        RowFilter.from_lists([], device=device, is_allowed=torch.zeros(num_rows, dtype=torch.bool)),
    ]


def _truth(table: Tensor, vectors: Tensor, row_filter: RowFilter | None) -> Tensor:
    """Dot products (B, V, N), minus infinity where a row is hidden."""
    products = (vectors.double() @ table.double().T).float()
    if row_filter is not None:
        row_filter.hide(products, 0)
    return products


def _check_best(engine: Engine, table: Tensor, vectors: Tensor, row_filter: RowFilter | None) -> None:
    truth = _truth(table, vectors, row_filter)  # (B, V, N)
    num_rows = len(table)
    for n in (1, 10, num_rows):
        if engine.max_n is not None and n > engine.max_n:
            continue
        found = engine.build(table).best(vectors, n, row_filter)
        width = min(n, num_rows)
        expected_shape = (*vectors.shape[:2], width)
        assert tuple(found.rows.shape) == tuple(found.scores.shape) == expected_shape, (
            f"best of n = {n} in {num_rows} rows has shape {tuple(found.rows.shape)}, not {expected_shape}"
        )
        _check_sound(found, truth)
        expected = truth.topk(width, dim=2).values  # (B, V, n)
        if engine.is_exact:
            is_right = (found.scores - expected).abs() <= _tolerance(table, vectors)  # (B, V, n)
            assert bool((is_right | (found.scores == expected)).all()), f"{engine} is not exact: rows or scores are off"
        elif n == 10 and row_filter is None:
            is_hit = _own(truth, found) >= expected[:, :, -1:] - _tolerance(table, vectors)  # (B, V, n)
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


def _check_above(engine: Engine, table: Tensor, vectors: Tensor, row_filter: RowFilter | None) -> None:
    best = _truth(table, vectors, row_filter).amax(dim=1)  # (B, N)
    for thresholds in (torch.zeros(3), torch.full((3,), -torch.inf), torch.tensor([1.0, 0.5, 1e9])):
        found = engine.build(table).above(vectors, thresholds, row_filter)  # (B, N)
        assert found.dtype == torch.bool, "above must give true or false for each query and row"
        assert tuple(found.shape) == tuple(best.shape), f"above has shape {tuple(found.shape)}, not {tuple(best.shape)}"
        is_clear = ((best - thresholds[:, None]).abs() > _tolerance(table, vectors)) | (best == -torch.inf)  # (B, N)
        expected = (best >= thresholds[:, None]) & (best > -torch.inf)  # (B, N)
        assert torch.equal(found & is_clear, expected & is_clear), f"{engine} is wrong about a threshold"


def _tolerance(table: Tensor, vectors: Tensor) -> float:
    """How far a dot product may be off by rounding: what certificates allow an engine for."""
    largest = float(table.double().norm(dim=-1).max() * vectors.double().norm(dim=-1).max())
    return largest * ROUNDOFF * (table.shape[1] + 8)


def _own(truth: Tensor, found: Nearest) -> Tensor:
    """The true dot product (B, V, n) of each row that was found."""
    return truth.gather(2, found.rows.clamp_min(0)).masked_fill(found.rows == NO_ROW, -torch.inf)
