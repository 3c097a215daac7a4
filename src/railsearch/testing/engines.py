"""Contract test of an engine: compare it with brute force on small tables that are hard to search."""

import copy
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError, RailsearchError
from railsearch.index.engines import NO_ROW, Engine, Nearest, Table, as_collection_engine, check_choice
from railsearch.kernels import RowFilter
from railsearch.testing.collections import check_collection, check_is_free, drop_collection, fill_collection

ROUNDOFF = 2.0**-24
LEAST_RECALL = 0.5
"""An approximate engine that finds less than this share of the best rows, in tables this small, is broken."""
LONGEST_KEY = 500
MOST_ROWS = 700


def check_engine(engine: Engine, *, seed: int = 0) -> None:
    """Check that an engine keeps the contract of `railsearch.index.engines.Engine`.

    An exact engine must return the best rows and their dot products. An approximate engine may miss rows, but must
    find most of the best ones. No engine may return a row twice, a row that a filter hides, or a row that does not
    exist. The properties that an engine states must hold: its key, its limit, bounds,
    thresholds, and tables that can be stored and opened again.

    An engine that keeps a collection on a server, such as `Milvus`, is checked in that collection, which must not exist
    before: it is created, changed and dropped many times.

    Raises:
        AssertionError: the engine breaks the contract; the message says how.

    >>> from railsearch import Flat
    >>> check_engine(Flat())
    """
    _check_description(engine)
    engine.check_available()
    engine.check_available(8)
    check_is_free(engine)
    try:
        _check_searches(engine, torch.Generator().manual_seed(seed))
    finally:
        drop_collection(engine)


def _check_searches(engine: Engine, generator: torch.Generator) -> None:
    _check_edges(engine)
    recalls = []
    for num_rows in (1, 40, MOST_ROWS):
        is_whole = as_collection_engine(engine) is not None
        for place, rows in enumerate(_rows(num_rows, generator, has_forms=not is_whole)):
            table = _build(engine, _name(place), rows)
            vectors = torch.randn(3, 2, rows.shape[1], generator=generator)  # (B, V, d)
            for row_filter in _filters(num_rows, generator):
                recalls += _check_table(engine, table, rows, vectors, row_filter)
            if engine.is_persistent:
                _check_round_trip(engine, table, rows, vectors)
            _check_threads(table, vectors, _tolerance(rows, vectors))
            table.close()
    if (keeper := as_collection_engine(engine)) is not None:
        check_collection(keeper)
    recall = sum(recalls) / len(recalls)
    assert recall >= LEAST_RECALL, f"{engine.key} finds {recall:.0%} of the best rows, less than {LEAST_RECALL:.0%}"


def _check_description(engine: Engine) -> None:
    try:
        check_choice(engine)
    except InvalidInputError as error:
        raise AssertionError(str(error)) from error
    twin = copy.deepcopy(engine)
    assert twin == engine, "a copy of the engine does not equal it, so that its tables would be built twice"
    assert hash(twin) == hash(engine), "a copy of the engine has another hash"
    for name, key in (("key", engine.key), ("table_key", engine.table_key)):
        assert isinstance(key, str), f"{name} is {key!r}, not text"
        assert 0 < len(key) <= LONGEST_KEY, f"{name} has {len(key)} characters, not 1 to {LONGEST_KEY}"
        assert key.isprintable(), f"{name} is {key!r}, which is not one line of plain text"
        assert getattr(twin, name) == key, f"{name} of a copy of the engine differs"
        assert hex(id(engine)) not in key, f"{name} is {key!r}, which changes from process to process"
    for name in ("is_exact", "sees_every_row", "supports_threshold", "is_persistent"):
        assert isinstance(getattr(engine, name), bool), f"{name} is not True or False"
    assert engine.is_exact or not engine.sees_every_row, "an engine that sees every row must be exact"
    assert engine.max_n is None or engine.max_n >= 1, f"max_n is {engine.max_n}, less than 1"


def _check_edges(engine: Engine) -> None:
    """Check tables without rows and searches without queries."""
    table = _build(engine, _name(), torch.empty(0, 8))
    n = _limited(engine, 3)
    empty = table.best(torch.ones(2, 1, 8), n, None)
    assert tuple(empty.rows.shape) == tuple(empty.scores.shape) == (2, 1, 0), "a table without rows returned rows"
    if engine.is_persistent:
        opened = engine.open(_name(), torch.empty(0, 8), table.to_bytes())
        assert tuple(opened.best(torch.ones(2, 1, 8), n, None).rows.shape) == (2, 1, 0), "it returned rows once opened"
    table.close()
    table = _build(engine, _name(), torch.ones(5, 8))
    nothing = table.best(torch.empty(0, 2, 8), n, None)
    assert tuple(nothing.rows.shape) == (0, 2, n), "a search without queries has the wrong shape"
    table.close()


def _build(engine: Engine, name: str, rows: Tensor) -> Table:
    keeper = as_collection_engine(engine)
    return engine.build(name, rows) if keeper is None else fill_collection(keeper, name, rows)


def _rows(num_rows: int, generator: torch.Generator, *, has_forms: bool) -> Iterator[Tensor]:
    """Yield vectors (N, d): scattered and repeated; in a large table also near each other and in every form.

    A collection is written in one form only.
    """
    scattered = torch.randn(num_rows, 8, generator=generator)
    components = torch.randn(num_rows, 3, 8, generator=generator)
    yield scattered
    yield scattered[torch.randint(max(1, num_rows // 5), (num_rows,), generator=generator)]
    if num_rows < MOST_ROWS:
        return
    yield scattered[:1] + 1e-3 * torch.randn(num_rows, 8, generator=generator)
    yield torch.randn(num_rows, 1, generator=generator)
    if not has_forms:
        return
    yield components[:, 1]  # one component of every item: not contiguous in memory
    yield components[:, 2].to(torch.float16)
    yield components[:, 0].to(torch.bfloat16)
    yield scattered.double()


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


def _check_table(
    engine: Engine, table: Table, rows: Tensor, vectors: Tensor, row_filter: RowFilter | None
) -> list[float]:
    """Check every way to search a table; return the recall of each search without a filter."""
    truth = (vectors.double() @ rows.double().T).float()  # (B, V, N)
    if row_filter is not None:
        row_filter.hide(truth, 0)
    tolerance = _tolerance(rows, vectors)
    recalls = []
    for n in sorted({_limited(engine, n) for n in (1, 10, len(rows))}):
        found = table.best(vectors, n, row_filter)
        _check_sound(found, truth, n)
        expected = truth.topk(min(n, len(rows)), dim=2).values  # (B, V, n)
        if engine.is_exact:
            assert _is_near(found.scores, expected, tolerance), f"{engine.key} is not exact: rows or scores are off"
            own = _own(truth, found)  # (B, V, n)
            assert _is_near(own, found.scores, tolerance), f"{engine.key} is not exact: scores of other rows"
        if row_filter is None:
            is_hit = _own(truth, found) >= expected[:, :, -1:] - tolerance  # (B, V, n)
            recalls.append(float(is_hit.float().mean()))
        if engine.sees_every_row:
            _check_bounds(table, vectors, row_filter, found, truth=truth, tolerance=tolerance)
    if engine.supports_threshold:
        _check_above(table, vectors, row_filter, truth, tolerance)
    return recalls


def _check_sound(found: Nearest, truth: Tensor, n: int) -> None:
    """Check the rules that exact and approximate engines share."""
    shape = (*truth.shape[:2], min(n, truth.shape[2]))
    assert tuple(found.rows.shape) == tuple(found.scores.shape) == shape, (
        f"best of n = {n} in {truth.shape[2]} rows has shape {tuple(found.rows.shape)}, not {shape}"
    )
    assert found.rows.dtype == torch.int64, f"rows are {found.rows.dtype}, not torch.int64"
    assert found.scores.dtype == truth.dtype, f"scores are {found.scores.dtype}, not {truth.dtype} like the vectors"
    is_real = found.rows != NO_ROW  # (B, V, n)
    assert int(found.rows.min()) >= NO_ROW, "a row is below NO_ROW"
    assert int(found.rows.max()) < truth.shape[2], "a row does not exist"
    assert torch.equal(is_real, found.scores > -torch.inf), "NO_ROW and minus infinity must go together"
    assert bool((found.scores[..., 1:] <= found.scores[..., :-1]).all()), "scores are not in descending order"
    assert bool((_own(truth, found)[is_real] > -torch.inf).all()), "a row was returned that the filter hides"
    for rows in found.rows.flatten(0, 1).tolist():
        real = [row for row in rows if row != NO_ROW]
        assert len(real) == len(set(real)), "a row was returned twice"


def _check_bounds(
    table: Table, vectors: Tensor, row_filter: RowFilter | None, plain: Nearest, *, truth: Tensor, tolerance: float
) -> None:
    n = plain.rows.shape[2]
    before = torch.linspace(-1, 1, truth.shape[2]).expand(len(truth), -1)  # (B, N)
    bounds = before.clone()
    found = table.best_with_bounds(vectors, n, row_filter, bounds)
    _check_sound(found, truth, n)
    assert _is_near(found.scores, plain.scores, tolerance), "best_with_bounds and best differ"
    expected = torch.maximum(before, truth.amax(dim=1))  # (B, N)
    assert _is_near(bounds, expected, tolerance), "best_with_bounds left wrong bounds"


def _check_above(table: Table, vectors: Tensor, row_filter: RowFilter | None, truth: Tensor, tolerance: float) -> None:
    best = truth.amax(dim=1)  # (B, N)
    for thresholds in (torch.zeros(3), torch.full((3,), -torch.inf), torch.tensor([1.0, 0.5, 1e9])):
        found = table.above(vectors, thresholds, row_filter)  # (B, N)
        assert found.dtype == torch.bool, f"above returned {found.dtype}, not True or False for each query and row"
        assert tuple(found.shape) == tuple(best.shape), f"above has shape {tuple(found.shape)}, not {tuple(best.shape)}"
        is_clear = ((best - thresholds[:, None]).abs() > tolerance) | (best == -torch.inf)  # (B, N)
        expected = (best >= thresholds[:, None]) & (best > -torch.inf)  # (B, N)
        assert torch.equal(found & is_clear, expected & is_clear), "above is wrong about a threshold"


def _check_round_trip(engine: Engine, table: Table, rows: Tensor, vectors: Tensor) -> None:
    """Check that a table that was stored answers as before, and that damaged bytes are noticed or harmless."""
    name, n = _name(), _limited(engine, 10)
    truth = (vectors.double() @ rows.double().T).float()  # (B, V, N)
    tolerance = _tolerance(rows, vectors)
    stored = table.to_bytes()
    assert isinstance(stored, bytes), f"to_bytes returned {type(stored).__name__}, not bytes"
    opened = copy.deepcopy(engine).open(name, rows, stored)
    for row_filter in (None, RowFilter.from_lists([], device=rows.device, is_allowed=torch.arange(len(rows)) % 2 == 0)):
        before, after = table.best(vectors, n, row_filter), opened.best(vectors, n, row_filter)
        assert _is_near(before.scores, after.scores, tolerance), (
            "a table that was stored and opened answers differently"
        )
    opened.close()
    for damaged in (b"", stored[: len(stored) // 2], stored[:-1], b"\xff" * len(stored)):
        try:
            found = engine.open(name, rows, damaged).best(vectors, n, None)
        except RailsearchError:
            continue
        except Exception as error:
            raise AssertionError(f"damaged bytes raise {type(error).__name__}, not EngineError: {error}") from error
        _check_sound(found, truth, n)


def _check_threads(table: Table, vectors: Tensor, tolerance: float) -> None:
    expected = table.best(vectors, 1, None)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda _: table.best(vectors, 1, None), range(4)):
            assert _is_near(found.scores, expected.scores, tolerance), "searches at the same time disturb each other"


def _limited(engine: Engine, n: int) -> int:
    return n if engine.max_n is None else min(n, engine.max_n)


def _name(place: int = 0) -> str:
    return f"{uuid.uuid4().hex}.component-{place}"


def _tolerance(rows: Tensor, vectors: Tensor) -> float:
    """Return how far a dot product may be off by rounding, as certificates allow for."""
    largest = float(rows.double().norm(dim=-1).max() * vectors.double().norm(dim=-1).max())
    return largest * ROUNDOFF * (rows.shape[1] + 8)


def _is_near(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Return whether all values are equal up to rounding; minus infinity equals itself."""
    return bool((((found - expected).abs() <= tolerance) | (found == expected)).all())


def _own(truth: Tensor, found: Nearest) -> Tensor:
    """Return the true dot product (B, V, n) of each row that was found."""
    return truth.gather(2, found.rows.clamp_min(0)).masked_fill(found.rows == NO_ROW, -torch.inf)
