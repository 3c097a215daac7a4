"""The contract test of a similarity: everything that training, folders, indexes and certificates rely on."""

import copy
import json
import tempfile
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from railsearch.folders import load_similarity, save_similarity
from railsearch.index import BruteForce, Combined, Index, Strategy, TwoPass
from railsearch.similarity import ItemParts, QueryParts, Similarity, fingerprint
from railsearch.similarity.registry import build_similarity, kind_of

NUM_QUERIES = 6
NUM_ITEMS = 90
K = 7
ROUNDING = 1e-9
"""How far fp64 results may be apart, relative to the largest component score."""
FP32_ROUNDING = 1e-5


def check_similarity_contract(similarity: Similarity, *, seed: int = 0) -> None:
    """Check that a similarity keeps the contract; raise an AssertionError that says what is wrong.

    The class must be registered with `railsearch.register_similarity`. The checks are: shapes and types of both sides;
    each row is computed alone; `score`, `score_candidates` and `compare` agree with each other and with the dot
    products of the components; no score is above its bound if `is_certifiable`; `config` builds the same module again;
    saving and loading changes nothing; an index on disk returns what scoring every item returns, and certifies only
    true answers.

    Args:
        similarity: a similarity with random weights, not zeros. It is not changed.
        seed: seed of the inputs.

    >>> from railsearch import DotProduct
    >>> check_similarity_contract(DotProduct(dim=8, cosine=True))
    """
    assert isinstance(similarity, Similarity), f"{type(similarity).__name__} lacks {_missing(similarity)}"
    assert isinstance(similarity, nn.Module), f"{type(similarity).__name__} is not a torch module"
    kind_of(similarity)
    generator = Generator().manual_seed(seed)
    exact = copy.deepcopy(similarity).double().train(False)
    assert isinstance(exact, Similarity)
    for scale in (1.0, 0.05, 20.0):
        queries, items, users = _inputs(exact, scale, generator)
        _check_sides(exact, queries, items, users)
        _check_rows_alone(exact, queries, items, users)
        query_parts, item_parts = _parts(exact, queries, items, users)
        _check_scores(exact, query_parts, item_parts)
        _check_candidates(exact, query_parts, item_parts, generator)
        _check_bounds(exact, query_parts, item_parts)
    _check_training(similarity, generator)
    queries, items, users = _inputs(exact, 1.0, generator)
    queries, items = queries.float(), items.float()
    single = copy.deepcopy(similarity).float().train(False)
    assert isinstance(single, Similarity)
    _check_config(single, queries, items, users)
    with tempfile.TemporaryDirectory() as folder:
        _check_folder(single, Path(folder), queries, items, users)
        _check_index(single, Path(folder), queries, items, users)


def _inputs(similarity: Similarity, scale: float, generator: Generator) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return random queries and items, some of them repeated, opposite or zero, and users if they are needed."""
    queries = scale * torch.randn(NUM_QUERIES, *similarity.query_shape, generator=generator, dtype=torch.float64)
    items = scale * torch.randn(NUM_ITEMS, *similarity.item_shape, generator=generator, dtype=torch.float64)
    items[10:20] = items[0]
    items[20] = -items[0]
    items[21] = 0
    if queries[0].numel() == items[0].numel():
        items[22:25] = queries[0].reshape(items[0].shape)
    users = torch.tensor([-1, 0, 1, 2, 10**9, 3]) if similarity.takes_user_ids else None
    return queries, items, users


def _parts(
    similarity: Similarity, queries: Tensor, items: Tensor, users: Tensor | None
) -> tuple[QueryParts, ItemParts]:
    with torch.no_grad():
        return similarity.query_parts(queries, user_ids=users), similarity.item_parts(items)


def _check_sides(similarity: Similarity, queries: Tensor, items: Tensor, users: Tensor | None) -> None:
    query_parts, item_parts = _parts(similarity, queries, items, users)
    for name, parts, given, count in (
        ("query", query_parts, queries, similarity.num_query_components),
        ("item", item_parts, items, similarity.num_item_components),
    ):
        shape, wanted = tuple(parts.components.shape), (len(given), count, similarity.component_dim)
        assert shape == wanted, f"{name}_parts(...).components has shape {shape} but {wanted} is expected"
        assert parts.components.dtype == given.dtype, f"{name}_parts changes {given.dtype} to {parts.components.dtype}"
        assert bool(parts.components.isfinite().all()), f"{name}_parts(...).components holds values that are not finite"
        if parts.gate is not None:
            assert parts.gate.ndim == 2, f"{name}_parts(...).gate has shape {tuple(parts.gate.shape)} but not two sizes"
            assert len(parts.gate) == len(given), f"{name}_parts(...).gate has {len(parts.gate)} of {len(given)} rows"
    assert len(similarity.item_parts(items[:0])) == 0, "item_parts of no items must return no rows"
    assert similarity.values_per_pair >= 1, f"values_per_pair is {similarity.values_per_pair} but at least 1 is needed"


def _check_rows_alone(similarity: Similarity, queries: Tensor, items: Tensor, users: Tensor | None) -> None:
    """Check that the parts of a row do not depend on the other rows of its batch."""
    query_parts, item_parts = _parts(similarity, queries, items, users)
    few_queries, few_items = _parts(similarity, queries[2:4], items[5:9], None if users is None else users[2:4])
    for name, whole, part in (("query", query_parts[2:4], few_queries), ("item", item_parts[5:9], few_items)):
        _check_close(whole.components, part.components, f"{name}_parts of some rows differ from those rows of all")
        if whole.gate is not None and part.gate is not None:
            _check_close(whole.gate, part.gate, f"the {name} gate of some rows differs from the rows of the gate")


@torch.no_grad()
def _check_scores(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> None:
    found = similarity.compare(query_parts, item_parts)
    expected = _component_scores(similarity, query_parts, item_parts)  # (B, N, P)
    scores = similarity.score(query_parts, item_parts)  # (B, N)
    assert tuple(scores.shape) == (len(query_parts), len(item_parts)), f"score has shape {tuple(scores.shape)}"
    _check_close(
        found.component_scores,
        expected,
        "component_scores of compare are not the dot products of the components divided by temperature",
    )
    _check_close(scores, found.scores, "score differs from compare(...).scores")
    mixed = torch.linalg.vecdot(found.gate_weights, found.component_scores)  # (B, N)
    _check_close(scores, mixed, "score differs from the sum of gate_weights * component_scores")
    _check_close(
        similarity.score(query_parts[1:3], item_parts[4:30]),
        scores[1:3, 4:30],
        "score of some rows differs from those rows of score",
    )


@torch.no_grad()
def _check_candidates(
    similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts, generator: Generator
) -> None:
    rows = torch.randint(len(item_parts), (len(query_parts), 11), generator=generator)  # (B, C)
    expected = similarity.score(query_parts, item_parts).gather(1, rows)  # (B, C)
    candidates = item_parts[rows]
    _check_close(similarity.score_candidates(query_parts, candidates), expected, "score_candidates differs from score")
    found = similarity.compare_candidates(query_parts, candidates)
    _check_close(found.scores, expected, "compare_candidates(...).scores differs from score")


@torch.no_grad()
def _check_bounds(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> None:
    best = _component_scores(similarity, query_parts, item_parts).amax(dim=-1)  # (B, N)
    bounds = similarity.bounds(query_parts, item_parts)  # (B, N)
    _check_close(bounds, best, "bounds are not the best component scores")
    if similarity.is_certifiable:
        excess = float((similarity.score(query_parts, item_parts) - best).max())
        assert excess <= _tolerance(best), (
            f"a score is {excess:.3g} above its best component score; set is_certifiable to False, or keep the promise"
        )


def _check_training(similarity: Similarity, generator: Generator) -> None:
    trained = copy.deepcopy(similarity).float().train(True)  # type: ignore[attr-defined]
    queries, items, users = _inputs(trained, 1.0, generator)
    scores = trained.score(trained.query_parts(queries.float(), user_ids=users), trained.item_parts(items.float()))
    if any(True for _ in trained.parameters()):
        assert scores.requires_grad, "no weight gets a gradient from score in training mode"
        scores.sum().backward()
        gradients = [parameter.grad for parameter in trained.parameters() if parameter.grad is not None]
        assert all(bool(gradient.isfinite().all()) for gradient in gradients), "a gradient is not finite"
    penalty = trained.user_penalty(torch.tensor([0, 1]))
    assert penalty.ndim == 0, f"user_penalty has shape {tuple(penalty.shape)} but a single value is expected"


def _check_config(similarity: Similarity, queries: Tensor, items: Tensor, users: Tensor | None) -> None:
    config = similarity.config
    assert json.loads(json.dumps(config)) == config, f"config does not survive JSON: {config}"
    again = build_similarity(kind_of(similarity), config)
    assert again.config == config, f"config is {again.config} after building from {config}"
    again.load_state_dict(similarity.state_dict())
    again.train(False)
    _check_same(similarity, again, queries, items, users, name="a module built from config and state_dict")
    with torch.device("meta"):
        build_similarity(kind_of(similarity), config)


def _check_folder(similarity: Similarity, folder: Path, queries: Tensor, items: Tensor, users: Tensor | None) -> None:
    name = save_similarity(similarity, folder / "similarity")
    loaded = load_similarity(folder / "similarity")
    assert name == fingerprint(similarity) == fingerprint(loaded), "the fingerprint changes when it is saved"
    _check_same(similarity, loaded, queries, items, users, name="a similarity that was saved and loaded")


def _check_index(similarity: Similarity, folder: Path, queries: Tensor, items: Tensor, users: Tensor | None) -> None:
    """Search an index on disk, and compare with the scores of every item."""
    ids = 3 * torch.arange(NUM_ITEMS) + 5  # (N,)
    Index.build(similarity, items, ids, path=folder / "index", show_progress=False)
    query_parts, item_parts = _parts(similarity, queries, items, users)
    with torch.no_grad():
        scores = similarity.score(query_parts, item_parts)  # (B, N)
    best = scores.topk(K).values  # (B, K)
    tolerance = FP32_ROUNDING * float(_component_scores(similarity, query_parts, item_parts).abs().max() + 1)
    strategies: tuple[Strategy, ...] = (BruteForce(), TwoPass(), Combined(2, 10))
    with Index.open(folder / "index") as index:
        for strategy in strategies:
            result = index.search(queries, K, strategy, user_ids=users)
            own = scores.gather(1, (result.ids - 5) // 3)  # (B, K)
            assert float((result.scores - own).abs().max()) <= tolerance, f"{strategy} returns other scores than score"
            is_best = ((result.scores - best).abs() <= tolerance).all(dim=1)  # (B,)
            assert bool(is_best[result.is_exact].all()), f"{strategy} calls an answer exact that is not the best"
            assert not isinstance(strategy, BruteForce) or bool(is_best.all()), "brute force misses the best items"


def _check_same(
    one: Similarity, other: Similarity, queries: Tensor, items: Tensor, users: Tensor | None, *, name: str
) -> None:
    with torch.no_grad():
        scores = [each.score(*_parts(each, queries, items, users)) for each in (one, other)]
    assert torch.equal(scores[0], scores[1]), f"{name} scores differently: a weight or an argument is not kept"


def _component_scores(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
    """Return the plain dot products (B, N, P); pair p = i * Px + j."""
    products = torch.einsum("bid,njd->bnij", query_parts.components, item_parts.components)  # (B, N, Pq, Px)
    return products.flatten(2) / similarity.temperature  # (B, N, P)


def _check_close(found: Tensor, expected: Tensor, message: str) -> None:
    assert found.shape == expected.shape, f"{message}: shapes are {tuple(found.shape)} and {tuple(expected.shape)}"
    difference = float((found - expected).abs().max()) if found.numel() else 0.0
    assert difference <= _tolerance(expected), f"{message}: by {difference:.3g}"


def _tolerance(values: Tensor) -> float:
    return ROUNDING * (1 + float(values.abs().max()))


def _missing(similarity: object) -> str:
    names = [name for name in dir(Similarity) if not name.startswith("_")] + list(Similarity.__annotations__)
    return ", ".join(sorted({name for name in names if not hasattr(similarity, name)})) or "the contract's methods"
