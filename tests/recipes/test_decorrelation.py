"""The decorrelation loss: values by hand, its gradient in the loss of training, and components that move apart."""

import pytest
import torch
from torch import Generator, Tensor

from railsearch import MixtureOfLogits, fit_similarity
from railsearch.errors import InvalidInputError
from railsearch.training.decorrelation import decorrelation_loss
from railsearch.training.losses import backward_sampled_softmax
from railsearch.training.negatives import Contrast


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def test_values_by_hand() -> None:
    rows = torch.tensor([[[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]])
    # Row 1: one of three pairs is equal; row 2: one has a cosine of 1 / sqrt(2), a component of zeros counts 0.
    assert decorrelation_loss(rows).item() == pytest.approx((1 / 3 + 0.5 / 3) / 2)
    assert decorrelation_loss(rows[:, :1]).item() == 0.0
    assert decorrelation_loss(rows[:0]).item() == 0.0


def make_mixture() -> MixtureOfLogits:
    sizes = {"query_dim": 6, "item_dim": 6, "component_dim": 4, "projection_dim": 8, "gate_dim": 8}
    return MixtureOfLogits(
        num_query_components=2, num_item_components=3, item_dropout=0.0, gate_dropout=0.0, seed=0, **sizes
    )  # type: ignore[arg-type]


def test_the_gradient_of_training_has_it() -> None:
    gradients = []
    for weight in (0.0, 0.7):
        mol = make_mixture()
        contrast = Contrast(positives=torch.arange(4), negatives=torch.arange(5)[None], group_sizes=(4,))
        parts = mol.query_parts(draw(4, 6)), mol.item_parts(draw(5, 6, seed=1))
        backward_sampled_softmax(mol, *parts, contrast, balance_weight=0.1, decorrelation_weight=weight)
        gradients.append({name: p.grad.clone() for name, p in mol.named_parameters() if p.grad is not None})
    mol = make_mixture()
    parts = mol.query_parts(draw(4, 6)), mol.item_parts(draw(5, 6, seed=1))
    (0.7 * sum(decorrelation_loss(each.components) for each in parts)).backward()
    for name, parameter in mol.named_parameters():
        added = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradients[1][name], gradients[0][name] + added, rtol=1e-4, atol=1e-5)


def test_it_moves_components_apart() -> None:
    likeness = []
    for weight in (0.0, 10.0):
        mol = make_mixture()
        pairs = torch.arange(20)[:, None].expand(-1, 2)
        fit_similarity(
            mol, draw(20, 6), draw(20, 6, seed=1), pairs, epochs=25, batch_size=20, learning_rate=0.05,
            decorrelation_weight=weight, show_progress=False,
        )  # fmt: skip
        likeness.append(float(decorrelation_loss(mol.item_parts(draw(20, 6, seed=1)).components.detach())))
    assert likeness[1] < 0.8 * likeness[0]


def test_a_wrong_weight_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"decorrelation_weight is -1\.0; give a finite number of 0 or more"):
        fit_similarity(make_mixture(), draw(2, 6), draw(2, 6), [(0, 0), (1, 1)], decorrelation_weight=-1)
