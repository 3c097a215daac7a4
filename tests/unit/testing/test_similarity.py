"""check_similarity_contract: it passes what keeps the contract, and names what a broken similarity does wrong."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch import DotProduct, MixtureOfLogits, register_similarity
from railsearch.errors import InvalidInputError
from railsearch.similarity import Comparison, ConfigValue, ItemParts, QueryParts
from railsearch.testing import check_similarity_contract
from tests.support.own_similarity import Halves
from tests.support.similarities import KINDS, make_similarity

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "own-similarity.md"


@pytest.mark.parametrize("kind", KINDS)
def test_ours_keep_the_contract(kind: str) -> None:
    check_similarity_contract(make_similarity(kind))


def test_ones_own_keeps_the_contract_and_is_not_changed() -> None:
    similarity = Halves(dim=8, seed=0)
    before = {name: value.clone() for name, value in similarity.state_dict().items()}
    check_similarity_contract(similarity)
    assert similarity.training
    assert all(torch.equal(value, before[name]) for name, value in similarity.state_dict().items())
    assert similarity.logit.grad is None


class Sum(Halves):
    """Weights that sum to 2 break the promise."""

    def mix(self, component_scores: Tensor) -> Comparison:
        weights = 2 * super().mix(component_scores).gate_weights
        return Comparison((weights * component_scores).sum(dim=-1), component_scores, weights)


class Wrong(Halves):
    """A score that is not what its parts say."""

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return super().score(query_parts, item_parts) + 0.01


class Candidates(Halves):
    """Candidates that are scored otherwise."""

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        return super().score_candidates(query_parts, candidate_parts).flip(1)


class Centred(Halves):
    """Items that depend on the other items of their batch."""

    def item_parts(self, items: Tensor) -> ItemParts:
        return super().item_parts(items - items.mean(dim=0) if len(items) else items)


class Hot(Halves):
    """Components that are not divided by the temperature."""

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        return super().compare(QueryParts(query_parts.components * self.temperature, None), item_parts)


class Loose(Halves):
    """Bounds that are below the best component score."""

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return super().bounds(query_parts, item_parts) - 1


class Forgetful(Halves):
    """A config that forgets an argument."""

    @property
    def config(self) -> dict[str, ConfigValue]:
        return {"dim": self.query_shape[0]}


class Hidden(Halves):
    """A weight that no state_dict holds."""

    def __init__(self, *, dim: int, temperature: float = 0.05, seed: int | None = None) -> None:
        super().__init__(dim=dim, temperature=temperature, seed=seed)
        self.secret = float(torch.rand(())) if seed is None else 0.5

    def halves(self, embeddings: Tensor) -> Tensor:
        return F.normalize(super().halves(embeddings) + self.secret, dim=-1)


class Single(Halves):
    """Parts of another precision than their input."""

    def item_parts(self, items: Tensor) -> ItemParts:
        return ItemParts(super().item_parts(items).components.float(), None)


class Flat(Halves):
    """Parts of another shape than it says."""

    num_item_components = 1


class Detached(Halves):
    """Scores that cannot be trained."""

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return super().score(query_parts, item_parts).detach() + 0 * next(self.parameters()).detach()


BROKEN: dict[type[Halves], str] = {
    Sum: "above its best component score; set is_certifiable to False",
    Wrong: "score differs from compare",
    Candidates: "score_candidates differs from score",
    Centred: "item_parts of some rows differ",
    Hot: "are not the dot products of the components divided by temperature",
    Loose: "bounds are not the best component scores",
    Forgetful: "scores differently: a weight or an argument is not kept",
    Hidden: "scores differently: a weight or an argument is not kept",
    Single: "item_parts changes torch.float64 to torch.float32",
    Flat: r"item_parts\(...\).components has shape \(90, 2, 4\) but \(90, 1, 4\) is expected",
    Detached: "no weight gets a gradient from score in training mode",
}
for _broken in BROKEN:
    _broken.kind = f"broken_{_broken.__name__.lower()}"
    register_similarity(_broken)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_one_is_named(broken: type[Halves]) -> None:
    with pytest.raises(AssertionError, match=BROKEN[broken]):
        check_similarity_contract(broken(dim=8, seed=0, temperature=0.1))


def test_without_the_promise_a_similarity_passes_uncertified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sum, "is_certifiable", False)
    check_similarity_contract(Sum(dim=8, seed=0))


def test_what_is_no_similarity() -> None:
    with pytest.raises(AssertionError, match="Linear lacks bounds, compare, compare_candidates, component_dim, co"):
        check_similarity_contract(torch.nn.Linear(2, 2))

    class Unregistered(DotProduct):
        pass

    with pytest.raises(InvalidInputError, match="Unregistered cannot be named or saved: it is not registered"):
        check_similarity_contract(Unregistered(dim=4))


def test_the_documented_example_is_short() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    lines = code[code.index("@register_similarity") : code.index("check_similarity_contract(TwoFields")].splitlines()
    assert len([line for line in lines if line.strip()]) <= 60


def test_dropout_does_not_disturb_the_check() -> None:
    mixture = MixtureOfLogits(query_dim=6, item_dim=6, component_dim=4, gate_dim=8, projection_dim=8, seed=0)
    assert mixture.training
    check_similarity_contract(mixture)
