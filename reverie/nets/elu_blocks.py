"""Networks of TD-MPC: two layers with ELU and a linear output, orthogonal initial weights (Hansen et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from reverie.nets.layers import Linear, linear_shared, orthogonal_init


class EluMLP(nn.Module):
    """Two layers of ``units`` and a linear output layer. ``zero`` makes its first outputs zero."""

    __call__: Callable[..., Tensor]  # torch says Any

    def __init__(self, inputs: int, units: int, outputs: int, *, zero: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.output = Linear(inputs, units), Linear(units, units), Linear(units, outputs)
        orthogonal_init(self, 1.0)
        if zero:
            nn.init.zeros_(self.output.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self._finish(self.first(x))

    def forward_shared(self, shared: Tensor, own: Tensor) -> Tensor:
        """Like ``forward`` for inputs whose first columns ``shared`` (N, S) are equal within groups of C rows."""
        return self._finish(linear_shared(self.first, shared, own))

    def _finish(self, first: Tensor) -> Tensor:
        return self.output(F.elu(self.second(F.elu(first))))
