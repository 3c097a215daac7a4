"""A query component of the user: one learned row for each user id, hashed into a table."""

import torch
from torch import Generator, Tensor, nn

NO_USER = -1
"""A negative user id stands for an unknown user, whose component is zero and scores zero."""


class UserTable(nn.Module):
    """A table with row `user_id mod size + 1` for each user; row 0 is for unknown users and stays zero."""

    def __init__(self, *, size: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.rows = nn.Embedding(size + 1, dim, padding_idx=0)
        self.dropout = nn.Dropout(dropout)

    def forward(self, user_ids: Tensor) -> Tensor:
        """Return one component (B, d) for each user id (B,)."""
        rows: Tensor = self.dropout(self._look_up(user_ids))  # (B, d)
        return rows

    def penalty(self, user_ids: Tensor) -> Tensor:
        """Return the mean squared length of these users' rows, to be added to a training loss."""
        return self._look_up(user_ids).square().sum(dim=-1).mean()  # ()

    def initialize(self, generator: Generator | None) -> None:
        """Initialize the table."""
        nn.init.normal_(self.rows.weight, std=0.02, generator=generator)
        with torch.no_grad():
            self.rows.weight[0].zero_()

    def _look_up(self, user_ids: Tensor) -> Tensor:
        places = torch.where(user_ids < 0, 0, user_ids % self.size + 1)  # (B,)
        rows: Tensor = self.rows(places)  # (B, d)
        return rows
