"""A query component that belongs to the user alone: one learned row a user id, hashed into a table."""

import torch
from torch import Generator, Tensor, nn

NO_USER = -1
"""Any negative user id means a user that is not known: its component is zero and scores zero."""


class UserTable(nn.Module):
    """Looks up row `user_id mod size + 1`; row 0 is for users that are not known and stays zero."""

    def __init__(self, *, size: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.rows = nn.Embedding(size + 1, dim, padding_idx=0)
        self.dropout = nn.Dropout(dropout)

    def forward(self, user_ids: Tensor) -> Tensor:
        """Give one component (B, d) for each user id (B,)."""
        rows: Tensor = self.dropout(self._look_up(user_ids))  # (B, d)
        return rows

    def penalty(self, user_ids: Tensor) -> Tensor:
        """Mean squared length of the rows that were looked up, to be added to a training loss."""
        return self._look_up(user_ids).square().sum(dim=-1).mean()  # ()

    def initialize(self, generator: Generator | None) -> None:
        """Give the table its first weights."""
        nn.init.normal_(self.rows.weight, std=0.02, generator=generator)
        with torch.no_grad():
            self.rows.weight[0].zero_()

    def _look_up(self, user_ids: Tensor) -> Tensor:
        places = torch.where(user_ids < 0, 0, user_ids % self.size + 1)  # (B,)
        rows: Tensor = self.rows(places)  # (B, d)
        return rows
