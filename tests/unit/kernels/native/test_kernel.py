"""The native kernel: errors before any pointer is passed, what it leaves to torch, and how it is chosen."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from railsearch import Average, BruteForce, Combined, DotProduct, Index, MixtureOfLogits, TwoPass
from railsearch.errors import InvalidInputError
from railsearch.kernels import (
    Kernel,
    KernelName,
    RowFilter,
    TorchKernel,
    choose_kernel,
    choose_scan,
    native,
    torch_scan,
    use_kernel,
)
from railsearch.kernels.native import NativeKernel
from railsearch.similarity import ItemParts, QueryParts
from tests.support.native import Pieces, bits, forced, make_mixture, make_parts, needs_native

pytestmark = needs_native

CPU = torch.device("cpu")


def test_it_keeps_the_contract() -> None:
    kernel = NativeKernel(DotProduct(dim=2))
    assert isinstance(kernel, Kernel)
    assert kernel.is_bit_stable
    assert (kernel.roundoff.relative, kernel.roundoff.underflow) == (2.0**-24, 2.0**-149)
    assert kernel.name == f"native ({native.chosen_isa()})"


def test_it_is_chosen_for_our_own_similarities_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(MixtureOfLogits):
        pass

    mixture = make_mixture(2, 2, 4, 3, ["pair"])
    assert isinstance(choose_kernel(mixture, CPU), NativeKernel)
    assert isinstance(choose_kernel(DotProduct(dim=2), CPU), NativeKernel)
    assert choose_scan(CPU) is native.scan
    assert isinstance(choose_kernel(Mine(num_query_components=2).eval(), CPU), TorchKernel)
    assert isinstance(choose_kernel(make_mixture(2, 2, 4, 3, ["pair"]).double(), CPU), TorchKernel)
    hooked = make_mixture(2, 2, 4, 3, ["pair"])
    hooked.gate.register_forward_hook(lambda module, arguments, result: result)
    assert isinstance(choose_kernel(hooked, CPU), TorchKernel)
    with use_kernel(KernelName.TORCH):
        assert isinstance(choose_kernel(mixture, CPU), TorchKernel)
        assert choose_scan(CPU) is torch_scan.scan
    with (
        use_kernel(KernelName.NATIVE),
        pytest.raises(InvalidInputError, match=r"kernel is 'native' but the similarity is Mine on cpu"),
    ):
        choose_kernel(Mine(num_query_components=2), CPU)
    monkeypatch.setenv("RAILSEARCH_KERNEL", "torch")
    assert isinstance(choose_kernel(mixture, CPU), TorchKernel)
    assert choose_scan(CPU) is torch_scan.scan
    monkeypatch.setenv("RAILSEARCH_KERNEL", "fast")
    with pytest.raises(InvalidInputError, match=r"RAILSEARCH_KERNEL is 'fast'"):
        choose_kernel(mixture, CPU)


def test_an_unusable_instruction_set_is_refused() -> None:
    mixture = make_mixture(2, 2, 4, 3, ["pair"])
    queries, items = make_parts(mixture, 1, 3)
    with forced("neon"), pytest.raises(InvalidInputError, match=r"RAILSEARCH_ISA is 'neon'.*one of those"):
        NativeKernel(mixture).score(queries, items, 0, 3)


@pytest.mark.parametrize("strategy", [BruteForce(), TwoPass(), Average(60), Combined(2, 60)])
def test_an_index_searches_with_the_kernel_that_was_asked_for(strategy: object, tmp_path: Path) -> None:
    mixture = make_mixture(3, 2, 8, 6, ["query", "item", "pair"])
    items, queries = torch.randn(300, 6, generator=torch.Generator().manual_seed(0)), torch.randn(4, 6)
    fast = Index.build(mixture, items, path=tmp_path / "index")
    slow = Index.open(tmp_path / "index", kernel="torch")
    assert fast.describe()["kernel"] == f"native ({native.chosen_isa()})"
    assert slow.describe()["kernel"] == "torch"
    mine, theirs = fast.search(queries, 5, strategy), slow.search(queries, 5, strategy)
    torch.testing.assert_close(mine.scores, theirs.scores, rtol=1e-5, atol=1e-4)
    slow.add(items[:3], ids=[1000, 1001, 1002])
    assert slow.describe()["kernel"] == "torch"
    with pytest.raises(InvalidInputError, match="kernel is 'cuda'"):
        Index.open(tmp_path / "index", kernel="cuda")


def test_segments_do_not_change_bits(tmp_path: Path) -> None:
    mixture = make_mixture(3, 2, 8, 6, ["query", "item", "pair"])
    items = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    items[150:] = items[:150]  # every item twice: ties are everywhere
    # Query parts are computed once: the query's own networks are torch's, and round by the size of the batch.
    queries = mixture.query_parts(torch.randn(5, 6, generator=torch.Generator().manual_seed(1)))
    parts = mixture.item_parts(items)
    one, many = Index.build(mixture, parts), Index.build(mixture, parts[:100], path=tmp_path / "many")
    many.add(parts[100:130], ids=range(100, 130))
    many.add(parts[130:], ids=range(130, 300))
    for strategy in (BruteForce(), TwoPass(), Average(80), Combined(3, 80)):
        whole, cut = one.search(queries, 20, strategy), many.search(queries, 20, strategy)
        assert torch.equal(bits(whole.scores), bits(cut.scores))
        assert torch.equal(whole.ids, cut.ids)
        for row in range(5):
            alone = many.search(queries[row : row + 1], 20, strategy)
            assert torch.equal(bits(alone.scores[0]), bits(whole.scores[row]))


def test_changed_weights_are_seen() -> None:
    mixture = make_mixture(2, 2, 4, 3, ["pair"])
    queries, items = make_parts(mixture, 2, 5)
    kernel = NativeKernel(mixture)
    before = kernel.score(queries, items, 0, 5)
    with torch.no_grad():
        mixture.gate.pair.output.bias.add_(torch.tensor([0.0, 5.0, 0.0, 0.0]))
    after = kernel.score(queries, items, 0, 5)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, TorchKernel(mixture).score(queries, items, 0, 5), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("is_learned", [True, False], ids=["learned", "set"])
def test_a_changed_temperature_is_seen(is_learned: bool) -> None:
    cosine = DotProduct(dim=4, cosine=True, temperature=0.5, learns_temperature=is_learned).eval()
    queries, items = (cosine.query_parts(torch.randn(2, 4)), cosine.item_parts(torch.randn(5, 4)))
    kernel = NativeKernel(cosine)
    before = kernel.score(queries, items, 0, 5)
    if is_learned:
        with torch.no_grad():
            cosine.own_temperature.change.fill_(math.log(2.0))
    else:
        cosine.temperature = 1.0
    torch.testing.assert_close(kernel.score(queries, items, 0, 5), before / 2)


def test_tensors_that_it_does_not_read_are_left_to_torch() -> None:
    dot = DotProduct(dim=3)
    queries, items = QueryParts(torch.ones(2, 1, 3).double(), None), ItemParts(torch.ones(4, 1, 3).double(), None)
    assert NativeKernel(dot).score(queries, items, 0, 4).dtype == torch.float64
    assert NativeKernel(dot).top_k(queries, items, 2)[0].dtype == torch.float64
    assert NativeKernel(dot).bounds(queries, items).dtype == torch.float64
    assert NativeKernel(dot).scan(queries.components, items.components[:, 0], 2, None).scores.dtype == torch.float64


def test_strides_of_any_kind() -> None:
    mixture = make_mixture(2, 3, 8, 3, ["query", "item"])
    queries, items = make_parts(mixture, 3, 20)
    whole = NativeKernel(mixture).score(queries, items, 0, 20)
    turned = ItemParts(items.components.transpose(1, 2).contiguous().transpose(1, 2), items.gate.T.contiguous().T)
    assert torch.equal(bits(NativeKernel(mixture).score(queries, turned, 0, 20)), bits(whole))
    every_second = NativeKernel(mixture).score(queries, ItemParts(items.components[::2], items.gate[::2]), 0, 10)
    assert torch.equal(bits(every_second), bits(whole[:, ::2]))
    odd = QueryParts(queries.components.transpose(0, 1).contiguous().transpose(0, 1), queries.gate)
    assert torch.equal(bits(NativeKernel(mixture).score(odd, items, 0, 20)), bits(whole))


def test_wrong_inputs_are_refused() -> None:
    mixture = make_mixture(2, 2, 4, 3, ["query", "item", "pair"])
    queries, items = make_parts(mixture, 2, 5)
    kernel = NativeKernel(mixture)
    with pytest.raises(InvalidInputError, match="query and item components are"):
        kernel.score(queries, ItemParts(items.components[:, :1], items.gate), 0, 5)
    with pytest.raises(InvalidInputError, match="has a item gate but the item parts have none"):
        kernel.score(queries, ItemParts(items.components, None), 0, 5)
    with pytest.raises(InvalidInputError, match="candidates holds rows from 0 to 5 but there are 5 items"):
        kernel.score_candidates(queries, items, torch.tensor([[0], [5]]))
    with pytest.raises(InvalidInputError, match="k is 6 but there are 5 items"):
        kernel.top_k(queries, items, 6)
    with pytest.raises(InvalidInputError, match="training mode"):
        NativeKernel(make_mixture(2, 2, 4, 3, ["query", "item", "pair"]).train()).score(queries, items, 0, 5)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", ["components", "gate"])
def test_scores_that_are_not_finite_are_refused(value: float, place: str) -> None:
    mixture = make_mixture(2, 2, 4, 3, ["query", "item", "pair"])
    queries, items = make_parts(mixture, 2, 50)
    getattr(items, place)[33].fill_(value)
    kernel = NativeKernel(mixture)
    for compute in (
        lambda: kernel.score(queries, items, 0, 50),
        lambda: kernel.top_k(queries, items, 3),
        lambda: kernel.score_candidates(queries, items, torch.tensor([[33], [0]])),
    ):
        with pytest.raises(InvalidInputError, match="NaN or infinite"):
            compute()
    assert kernel.score(queries, items, 0, 33).isfinite().all()


def test_candidates_of_items_without_pieces_are_gathered() -> None:
    mixture = make_mixture(2, 2, 4, 3, ["query", "item", "pair"])
    queries, items = make_parts(mixture, 2, 9)

    class Rows:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, rows: torch.Tensor) -> ItemParts:
            return items[rows]

    rows = torch.tensor([[8, 0, 3], [1, 1, 2]])
    own = NativeKernel(mixture).score_candidates(queries, Rows(), rows)
    assert torch.equal(bits(own), bits(NativeKernel(mixture).score_candidates(queries, Pieces([items]), rows)))


def test_rows_that_wait_for_a_full_panel_still_win_ties() -> None:
    """Rows of a sparse panel are scored after the rows of later, dense ones."""
    mixture = make_mixture(3, 2, 9, 5, ["query", "pair"], seed=0)
    queries, items = make_parts(mixture, 2, 1, dtype=torch.float32, seed=0)
    gate = None if items.gate is None else items.gate.expand(2000, -1).clone()
    same = ItemParts(items.components.expand(2000, -1, -1).clone(), gate)
    is_allowed = torch.ones(2000, dtype=torch.bool)
    is_allowed[3:64] = False
    found = NativeKernel(mixture).top_k_above(
        queries, same, 5, torch.full((2,), -100.0), RowFilter.from_lists([], device=CPU, is_allowed=is_allowed)
    )
    assert found.rows.tolist() == [[0, 1, 2, 64, 65]] * 2


def test_denormal_numbers_are_kept() -> None:
    dot = DotProduct(dim=1)
    queries, items = QueryParts(torch.full((1, 1, 1), 1e-20), None), ItemParts(torch.full((1, 1, 1), 1e-20), None)
    exact = NativeKernel(dot).score(queries, items, 0, 1)
    assert 0.9e-40 < float(exact) < 1.1e-40
    if torch.set_flush_denormal(True):
        try:
            flushed = NativeKernel(dot).score(queries, items, 0, 1)
        finally:
            torch.set_flush_denormal(False)
        assert torch.equal(bits(flushed), bits(exact))


def test_more_than_two_to_the_31_elements(tmp_path: Path) -> None:
    dim, num_rows = 1 << 15, (1 << 16) + 40  # 2^31 elements and some more, in a file with holes
    path = tmp_path / "table"
    with path.open("wb") as file:
        file.truncate(dim * num_rows * 2)
    table = torch.from_numpy(np.memmap(path, dtype=np.float16, mode="r+", shape=(num_rows, dim)))
    table[-2, 0], table[-1, 1] = 3.0, 5.0
    last = table[-60:]
    found = native.scan(torch.eye(2, dim)[None], last, 1, None)
    assert found.rows.tolist() == [[[58], [59]]]
    dot = DotProduct(dim=dim)
    rows = torch.tensor([[num_rows - 2, num_rows - 1, 0]])
    own = NativeKernel(dot).score_candidates(
        QueryParts(torch.ones(1, 1, dim), None), ItemParts(table[:, None], None), rows
    )
    assert own.tolist() == [[3.0, 5.0, 0.0]]
