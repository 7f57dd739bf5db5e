"""A module that pickle can find by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class Encoder(torch.nn.Module):
    """Attributes:
    during: Called in the middle of `forward`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(4, 4)
        self.during: Callable[[], Any] | None = None

    def forward(self, rows: torch.Tensor, *, fail: bool = False) -> torch.Tensor:
        if fail:
            raise ValueError("empty")
        if self.during is not None:
            self.during()
        return self.dense(rows)
