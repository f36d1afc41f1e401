"""Last layers on features: linear, residual, of two layers, or none. The first two can begin as their features."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

HeadName = Literal["linear", "none", "residual", "mlp"]


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
        base = features if self.base is None else features @ self.base.T
        changed: Tensor = base + self.change(features)
        return changed

    @property
    def fitted(self) -> bool:
        """True if the base follows from features, by `fit_base`."""
        return self.base is not None and len(self.base) < self.base.shape[1]

    def fit_base(self, features: Tensor) -> None:
        """Begin as the `principal_directions` of `features (N, d_in)`."""
        assert self.base is not None
        self.base = principal_directions(features, len(self.base)).to(self.base).contiguous()


class Projection(nn.Linear):
    """A learned linear map of features `(B, d_in)` to `(B, d_out)` that begins as the base of `Residual` does.

    Unlike there, what it begins as can be unlearned by weight decay, and there is a bias, at first 0.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        nn.init.eye_(self.weight)
        nn.init.zeros_(self.bias)

    @property
    def fitted(self) -> bool:
        """True if its first weights follow from features, by `fit_base`."""
        return self.out_features < self.in_features

    def fit_base(self, features: Tensor) -> None:
        """Begin as the `principal_directions` of `features (N, d_in)`."""
        with torch.no_grad():
            self.weight.copy_(principal_directions(features, self.out_features))


def principal_directions(features: Tensor, count: int) -> Tensor:
    """The `count` directions `(count, d)` that hold most of the second moment of `features (N, d)`, in float64.

    They are orthonormal, the largest first; each points to where its largest number is positive. With fewer rows than
    directions, those that no row has are any that are left.
    """
    rows = features.double()
    _, directions = torch.linalg.eigh(rows.T @ rows)  # smallest first
    chosen = directions.flip(1)[:, :count].T
    largest = chosen.gather(1, chosen.abs().argmax(dim=1, keepdim=True))
    pointed: Tensor = chosen * largest.sign()
    return pointed


def make_head(kind: HeadName, features: int, embedding_dim: int, *, as_features: bool) -> nn.Module:
    """The last layer from features `(B, features)` to embeddings `(B, embedding_dim)`.

    Args:
        kind: "linear"; "none", the features themselves; "residual", see `Residual`; "mlp", two layers with a rectifier
            between, with as many hidden units as features.
        as_features: a linear one begins as `Projection` does, not at random. For features worth keeping.

    Raises:
        ValueError: if there is no last layer, and embeddings are to be of another length than features.
    """
    if kind == "none":
        if embedding_dim != features:
            raise ValueError(
                f'embedding_dim must be the number of features, {features}, with head = "none": got {embedding_dim}; '
                f'set embedding_dim = {features}, or use head = "linear".'
            )
        return nn.Identity()
    if kind == "residual":
        return Residual(features, embedding_dim)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, embedding_dim))
    return Projection(features, embedding_dim) if as_features else nn.Linear(features, embedding_dim)
