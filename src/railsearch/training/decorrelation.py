"""The decorrelation loss: it keeps the components of one text, query or item apart."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def decorrelation_loss(components: Tensor) -> Tensor:
    """Return the mean squared cosine of two different components of one row; 0 if each row has one component.

    It is 1 if all components of a row are equal, and 0 if they are orthogonal. A component of zeros is orthogonal to
    all others.

    >>> import torch
    >>> decorrelation_loss(torch.eye(3)[None]).item()
    0.0
    >>> decorrelation_loss(torch.ones(1, 3, 4)).item()
    1.0

    Args:
        components: (rows, P, d), of any length.
    """
    num_components = components.shape[1]
    if num_components < 2 or not len(components):
        return components.new_zeros(())
    unit = F.normalize(components, dim=-1)  # (rows, P, d)
    squares = (unit @ unit.mT).square()  # (rows, P, P)
    others = squares.sum(dim=(1, 2)) - squares.diagonal(dim1=1, dim2=2).sum(dim=1)  # (rows,)
    return others.mean() / (num_components * (num_components - 1))  # ()
