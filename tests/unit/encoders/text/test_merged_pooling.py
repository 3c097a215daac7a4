"""Merged pooling: clusters are those of a naive search, components begin as the mean, and batches do not matter."""

import itertools
import tracemalloc
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch.encoders import Side, TextEncoderConfig
from railsearch.encoders.text import merging
from railsearch.encoders.text.merged_pooling import MergedPooling
from railsearch.encoders.text.merging import cluster_alike, group_neighbours
from railsearch.encoders.text.pooling import pool_mean
from tests.support.tiny_text import make_base, make_retriever

DIM = 8


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def make_pooling(num_components: int = 4, *, noise: float = 0.0, spread: float = 0.0) -> MergedPooling:
    pooling = MergedPooling(dim=DIM, num_components=num_components, spread=spread)
    with torch.no_grad():
        pooling.change.weight.add_(draw(DIM, DIM, seed=3), alpha=noise)
    return pooling


def make_outputs() -> tuple[Tensor, Tensor]:
    return draw(4, 12, DIM, seed=1), torch.arange(12) < torch.tensor([[12], [7], [3], [1]])


def naive_clusters(vectors: Tensor, starts: list[list[int]], count: int) -> list[int]:
    """Merge the two clusters whose union adds the least to the squared distances from the means, again and again."""
    unit, clusters = F.normalize(vectors, dim=-1).double(), [list(each) for each in starts]

    def spread(rows: list[int]) -> float:
        return float((unit[rows] - unit[rows].mean(dim=0)).square().sum())

    while len(clusters) > count:
        losses = {
            (one, other): spread(clusters[one] + clusters[other]) - spread(clusters[one]) - spread(clusters[other])
            for one, other in itertools.combinations(range(len(clusters)), 2)
        }
        one, other = min(losses, key=lambda each: losses[each])
        clusters[one] += clusters.pop(other)
    clusters.sort(key=min)
    return [next(number for number, own in enumerate(clusters) if row in own) for row in range(len(vectors))]


class TestClusters:
    @pytest.mark.parametrize("count", [1, 2, 5, 11, 12, 20])
    @pytest.mark.parametrize("seed", range(3))
    def test_they_are_those_of_a_naive_search(self, count: int, seed: int) -> None:
        vectors = draw(12, 4, seed=seed) * (1 + torch.arange(12.0))[:, None]  # only directions matter
        assert cluster_alike(vectors, count) == naive_clusters(vectors, [[row] for row in range(12)], count)

    def test_alike_tokens_are_merged_wherever_they_are(self) -> None:
        assert cluster_alike(torch.eye(3)[[0, 1, 0, 2, 1, 0]], 3) == [0, 1, 0, 2, 1, 0]

    def test_long_texts_merge_neighbours_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(merging, "MOST_CLUSTERED", 8)
        vectors = draw(30, 4)
        groups = [list(range(*group)) for group in group_neighbours(vectors, 8)]
        assert cluster_alike(vectors, 3) == naive_clusters(vectors, groups, 3)

    def test_memory_of_a_long_text_is_bounded(self) -> None:
        vectors = draw(5000, 4)
        tracemalloc.start()
        try:
            clusters = cluster_alike(vectors, 8)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(set(clusters)) == 8
        assert most < 64 * 2**20  # the costs of all pairs of tokens would take 200 MB


class TestComponents:
    def test_every_component_begins_as_the_mean(self) -> None:
        outputs, is_real = make_outputs()
        assert torch.equal(make_pooling()(outputs, is_real), pool_mean(outputs, is_real).expand(-1, 4, -1))

    def test_with_spread_1_every_component_begins_as_the_mean_of_its_cluster(self) -> None:
        outputs, is_real = draw(1, 6, DIM), torch.ones(1, 6, dtype=torch.bool)
        clusters = cluster_alike(outputs[0], 4)
        expected = torch.stack([outputs[0, torch.tensor(clusters) == number].mean(dim=0) for number in range(4)])
        torch.testing.assert_close(make_pooling(spread=1.0)(outputs, is_real), expected[None])

    @torch.no_grad()
    def test_components_are_those_of_a_naive_loop(self) -> None:
        pooling, (outputs, is_real) = make_pooling(noise=0.5), make_outputs()
        found = pooling(outputs, is_real)  # (B, 4, D)
        for text in range(4):
            tokens = outputs[text, is_real[text]].double()
            mean = tokens.mean(dim=0)
            clusters = naive_clusters(tokens, [[row] for row in range(len(tokens))], 4)
            for component in range(4):
                own = [token for token, cluster in zip(tokens, clusters, strict=True) if cluster == component]
                pool = torch.stack(own).mean(dim=0) if own else mean  # a short text has fewer clusters
                expected = mean + pooling.change.weight.double() @ (pool - mean)
                torch.testing.assert_close(found[text, component].double(), expected, rtol=1e-4, atol=1e-4)

    @torch.no_grad()
    def test_they_do_not_depend_on_the_batch_or_on_padding(self) -> None:
        pooling, (outputs, is_real) = make_pooling(noise=0.5), make_outputs()
        found = pooling(outputs, is_real)
        for text, length in enumerate(is_real.sum(dim=1).tolist()):
            alone = pooling(outputs[text : text + 1, :length], is_real[text : text + 1, :length])
            torch.testing.assert_close(found[text : text + 1], alone, rtol=1e-5, atol=1e-5)

    def test_gradients_reach_the_weights_and_every_token_but_no_padding(self) -> None:
        pooling, (outputs, is_real) = make_pooling(noise=0.5), make_outputs()
        outputs.requires_grad_()
        (pooling(outputs, is_real) * draw(4, 4, DIM, seed=5)).sum().backward()
        assert outputs.grad is not None
        assert torch.equal(outputs.grad.abs().amax(dim=-1) > 0, is_real)
        assert pooling.change.weight.grad is not None
        assert float(pooling.change.weight.grad.abs().max()) > 0
        assert torch.autograd.gradcheck(  # the clusters stay the same under a small change
            lambda given: pooling.double()(given, is_real[:1, :6]), draw(1, 6, DIM).double().requires_grad_()
        )


class TestFirstSpread:
    @torch.no_grad()
    @pytest.mark.parametrize("pooling", ["merged", "multi"])
    def test_an_encoder_begins_between_the_mean_and_its_pools(self, pooling: str, tmp_path: Path) -> None:
        base = make_base(tmp_path)

        def encode(spread: float) -> Tensor:
            options = {"pooling": pooling, "num_query_components": 2, "num_item_components": 3, "first_spread": spread}
            return make_retriever(base, **options).model.encoder.encode(["it is w3 w4 end", "w5 w6"], Side.PASSAGE)

        mean, half, whole = encode(0.0), encode(0.5), encode(1.0)  # (N, P, D) each
        assert float((whole - mean).abs().max()) > 0.1
        torch.testing.assert_close(half, (mean + whole) / 2)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"pooling": "mean", "first_spread": 0.5}, "first_spread is 0.5 but pooling is mean"),
            ({"pooling": "windows", "first_spread": 0.5}, "or window_components to 2 or more"),
            ({"pooling": "merged", "first_spread": 1.5}, "first_spread"),
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TextEncoderConfig(base="models/minilm", **options)  # type: ignore[arg-type]
