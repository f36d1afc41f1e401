"""A last layer that begins as what it stands on: the residual head, for vectors and for backbones."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """Features `(B, d_in)` and a learned linear change of them, which is 0 before the first step: `(B, d_out)`.

        base(x) + change(x)

    With d_out = d_in the base is x itself; with a larger d_out, x and zeros. With a smaller one it is the projection on
    the d_out directions that hold most of the features' second moment, which keeps their inner products as well as a
    linear map of that width can; `fit_base` finds these, and until then the first d_out features stand for them.

    So a network begins as good as its features, and what it loses by training is seen.

    Source:
        He et al., "Deep Residual Learning", CVPR 2016, for x + change(x); Eckart and Young, Psychometrika 1, 1936, for
        the projection.
    """

    base: Tensor | None

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.change = nn.Linear(d_in, d_out, bias=False)
        nn.init.zeros_(self.change.weight)
        self.register_buffer("base", None if d_in == d_out else torch.eye(d_out, d_in))

    def forward(self, features: Tensor) -> Tensor:
        kept = features if self.base is None else features @ self.base.T
        changed: Tensor = kept + self.change(features)
        return changed

    @property
    def fitted(self) -> bool:
        """Whether the base follows from features, which `fit_base` must see."""
        return self.base is not None and len(self.base) < self.base.shape[1]

    def fit_base(self, features: Tensor) -> None:
        """Find the directions of `features (N, d_in)`, in float64; each points to where its largest number is positive.

        With fewer rows than d_out the directions that no row has are any that are left.
        """
        assert self.base is not None
        rows = features.double()
        _, directions = torch.linalg.eigh(rows.T @ rows)  # smallest first
        chosen = directions.flip(1)[:, : len(self.base)].T
        largest = chosen.gather(1, chosen.abs().argmax(dim=1, keepdim=True))
        self.base = (chosen * largest.sign()).to(self.base).contiguous()
