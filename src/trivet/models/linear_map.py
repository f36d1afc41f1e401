"""Linear maps from one embedding to another of the same items: orthogonal Procrustes and ridge regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # times the mean variance of a coordinate
INNER = 5  # a fifth of the items chooses the map
NEAREST = 10  # by whose agreement it is chosen
MOST = 2000  # items that choose
FEWEST = 2 * INNER  # items, so that each inner one has another


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A map x -> (x - source_mean) matrix + target_mean.

    Attributes:
        name: "rotation", or "ridge" with its penalty.
        matrix: `(d, e)` float64.
        source_mean, target_mean: `(d,)` and `(e,)`.
    """

    name: str
    matrix: Tensor
    source_mean: Tensor
    target_mean: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows `(n, d)` to `(n, e)`, float64."""
        return (rows.double() - self.source_mean) @ self.matrix + self.target_mean


def rotation_map(source: Tensor, target: Tensor) -> LinearMap:
    """The rotation with a scale and a shift that brings `source (N, d)` nearest to `target (N, e)`, by squares.

    With d != e it is a rotation into, or of a projection on, the smaller space.

    Source:
        Schönemann, Carroll, "Fitting one matrix to another under choice of a central dilation and a rigid motion",
        Psychometrika 35, 1970.
    """
    x, y, means = _centred(source, target)
    left, values, right = torch.linalg.svd(x.T @ y, full_matrices=False)
    rotation = left @ right
    spread = (x @ rotation).square().sum()  # that of x where d <= e
    scale = values.sum() / spread if spread > 0 else torch.zeros_like(spread)
    return LinearMap("rotation", scale * rotation, *means)


def ridge_maps(source: Tensor, target: Tensor) -> Iterator[LinearMap]:
    """The maps of least squares from `source (N, d)` to `target (N, e)`, one for each penalty of `RIDGES`.

    matrix = (X'X + r t I)^(-1) X'Y for centred rows, t the mean of the diagonal of X'X.

    Source:
        Hoerl, Kennard, "Ridge regression: biased estimation for nonorthogonal problems", Technometrics 12, 1970.
    """
    x, y, means = _centred(source, target)
    values, directions = torch.linalg.eigh(x.T @ x)
    values, projected = values.clamp_min(0), directions.T @ (x.T @ y)
    for ridge in RIDGES:
        penalty = ridge * values.mean()
        inverse = (values + penalty).reciprocal() if penalty > 0 else torch.zeros_like(values)
        yield LinearMap(f"ridge {ridge:g}", directions @ (inverse[:, None] * projected), *means)


def fit_map(source: Tensor, target: Tensor, *, generator: torch.Generator) -> LinearMap:
    """The map that serves a search best: fitted on four fifths of the items, chosen on the others, and fitted anew.

    It is chosen by how many of the 10 nearest of an item are the same for its mapped row as for its own; of equal ones
    the rotation, then the least penalty. No labels are used.

    Args:
        source, target: `(N, d)` and `(N, e)` of the same items, N >= 10; for cosine distance rows of length 1.
        generator: draws the fifth.

    Raises:
        ValueError: if there are fewer items, or not as many of both.
    """
    if len(source) != len(target) or len(source) < FEWEST:
        raise ValueError(
            f"a map is fitted on {FEWEST} items or more, the same in both: got {len(source)} and {len(target)}."
        )
    order = torch.randperm(len(source), generator=generator)
    inner, outer = order[: max(2, len(order) // INNER)][:MOST], order[len(order) // INNER :]
    agreements = {
        each.name: _agreement(each(source[inner]), target[inner].double())
        for each in candidate_maps(source[outer], target[outer])
    }
    best = max(agreements, key=lambda name: agreements[name])
    return next(each for each in candidate_maps(source, target) if each.name == best)


def candidate_maps(source: Tensor, target: Tensor) -> Iterator[LinearMap]:
    """Every map that `fit_map` chooses from."""
    yield rotation_map(source, target)
    yield from ridge_maps(source, target)


def _centred(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    source, target = source.double(), target.double()
    means = source.mean(dim=0), target.mean(dim=0)
    return source - means[0], target - means[1], means


def _agreement(mapped: Tensor, target: Tensor) -> float:
    """The share of the nearest items of rows `(n, e)` that the mapped rows find, each but itself."""
    k = min(NEAREST, len(target) - 1)
    nearest = []
    for queries in (mapped, target):
        distances = torch.cdist(queries, target).fill_diagonal_(torch.inf)
        nearest.append(distances.topk(k, largest=False).indices)
    return float((nearest[0][:, :, None] == nearest[1][:, None, :]).any(dim=2).double().mean())
