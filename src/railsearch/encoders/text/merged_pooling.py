"""Merged pooling: the components of a text are means of alike token outputs, as late interaction shrinks indexes."""

import torch
from torch import Tensor, nn

from railsearch.encoders.text.merging import cluster_alike
from railsearch.encoders.text.multi_pooling import first_change, move_from_mean


class MergedPooling(nn.Module):
    """Component p of a text is m + A (c_p - m): the mean output m, moved towards the mean c_p of a cluster of outputs.

    The outputs of each text are clustered by Ward's criterion on their cosines, into as many clusters as there are
    components, in the order of their first tokens. The choice of clusters has no gradient and no weights; the means
    have a gradient. A text with fewer tokens than components has a cluster for each token, and its other components are
    m. A starts as `spread` times the identity: with 0, every component begins as the mean, as with `MultiPooling`, and
    with 1 as the mean of its cluster. Texts are clustered one by one, so their batch does not matter.

    Args:
        dim: D, the size of outputs.
        num_components: P.
        spread: how far components begin from the mean.
    """

    def __init__(self, *, dim: int, num_components: int, spread: float) -> None:
        super().__init__()
        self.num_components = num_components
        self.change = first_change(dim, spread)

    def forward(self, outputs: Tensor, is_real: Tensor) -> Tensor:
        """Return components (B, P, D) of outputs (B, n, D)."""
        return move_from_mean(self.change, self.weights(outputs, is_real), outputs, is_real)  # (B, P, D)

    @torch.no_grad()
    def weights(self, outputs: Tensor, is_real: Tensor) -> Tensor:
        """Return the weight of each position for each component (B, P, n); they sum to 1, and padding has 0."""
        clusters = torch.full(is_real.shape, -1)  # (B, n)
        for own, text, is_token in zip(clusters, outputs.cpu(), is_real.cpu(), strict=True):
            own[is_token] = torch.tensor(cluster_alike(text[is_token], self.num_components))
        numbers = torch.arange(self.num_components)[:, None]  # (P, 1)
        is_member = (clusters[:, None] == numbers).to(is_real.device)  # (B, P, n)
        is_member |= ~is_member.any(dim=-1, keepdim=True) & is_real[:, None]  # without a cluster: the whole text
        return (is_member / is_member.sum(dim=-1, keepdim=True)).to(outputs)
