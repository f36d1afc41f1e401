"""Statistics by which items of two sets are compared as a whole: means of random Fourier features, and neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from trivet.distances.threads import share
from trivet.drift.permutation import Units, mean_differences, standardised
from trivet.runtime.arrays import Booleans, Floats, Integers

SCALES = 0.005, 0.5  # quantiles of the distances between items: those of a class, and those of any
FREQUENCIES = 256  # of a scale, each a cosine and a sine
SAMPLED = 1000  # items whose distances give the scales
NEIGHBOURS = 5
COMPARED = 20_000  # items, at random, whose neighbours are sought among each other
ROWS = 512  # of a block of products
ASSIGNMENTS = 256  # that are counted at once


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """Cosines and sines of projections at random, whose products are Gaussian kernels of several scales.

    Of each scale s the mean over the frequencies of the product of two rows is about exp(-d^2 / s^2), d their distance.

    Attributes:
        frequencies: `(d, S * FREQUENCIES)` float32, scale by scale.
    """

    frequencies: Tensor

    @classmethod
    def of(cls, points: Tensor, generator: np.random.Generator) -> FourierFeatures:
        """Features whose scales are quantiles of the distances between points `(N, d)`, whichever their set."""
        some = points[torch.from_numpy(generator.permutation(len(points))[:SAMPLED])]
        distances = torch.pdist(some) if len(some) > 1 else torch.zeros(1)
        scales = torch.quantile(distances[: 2**24], torch.tensor(SCALES, dtype=distances.dtype)).tolist()
        normal = torch.from_numpy(generator.standard_normal((points.shape[1], len(scales) * FREQUENCIES))).float()
        # Where items coincide any scale tells them from others.
        factors = [math.sqrt(2) / (scale or float(distances.max()) or 1.0) for scale in scales]
        return cls(normal * torch.tensor(factors).repeat_interleave(FREQUENCIES))

    def __call__(self, points: Tensor) -> Tensor:
        """Features `(B, S * 2 * FREQUENCIES)` of points `(B, d)`, scale by scale."""
        angles = (points @ self.frequencies).reshape(len(points), -1, FREQUENCIES)
        return torch.cat([angles.cos(), angles.sin()], dim=2).flatten(1) / math.sqrt(FREQUENCIES)


def mean_distances(points: Tensor, units: Units, assignments: Booleans, features: FourierFeatures) -> Floats:
    """Squared distances `(R, S)` of the mean features of both sets under each assignment, for each scale.

    Source:
        Gretton et al., "A Kernel Two-Sample Test", JMLR 2012 (the squared distance of mean embeddings); Rahimi, Recht,
        "Random Features for Large-Scale Kernel Machines", NIPS 2007; several scales and one test of the largest, as
        Schrab et al., "MMD Aggregated Two-Sample Test", JMLR 2023, there by quantiles.
    """
    differences = mean_differences(units, assignments, lambda rows: features(points[rows]))
    return np.asarray(np.square(differences).reshape(len(assignments), -1, 2 * FREQUENCIES).sum(axis=2))


def nearest(items: Tensor, anchors: Tensor, k: int, *, same: bool = False) -> tuple[Floats, Integers]:
    """Distances and positions `(Q, k)` of the nearest anchors of each item, nearest first, by float32 products.

    Args:
        items: `(Q, d)` float32.
        anchors: `(M, d)` float32, M >= k, and one more where they are the items.
        same: whether the anchors are the items, of which none finds itself.
    """
    centre = anchors.mean(dim=0)
    right = anchors - centre
    squares = right.square().sum(dim=1)
    distances, indices = np.empty((len(items), k)), np.empty((len(items), k), np.int64)

    def block(start: int) -> tuple[Tensor, Tensor]:
        left = items[start : start + ROWS] - centre
        scores = torch.addmm(squares, left, right.T, alpha=-2)
        if same:
            scores[torch.arange(len(left)), torch.arange(start, start + len(left))] = torch.inf
        if k == 1:  # as topk, and faster
            values, columns = scores.min(dim=1, keepdim=True)
        else:
            values, columns = scores.topk(k, dim=1, largest=False)
        return (values + left.square().sum(dim=1, keepdim=True)).clamp_min(0).sqrt(), columns

    def take(start: int, result: tuple[Tensor, Tensor]) -> None:
        distances[start : start + ROWS], indices[start : start + ROWS] = (each.numpy() for each in result)

    share(range(0, len(items), ROWS), block, take)
    return distances, indices


def neighbour_counts(neighbours: Integers, is_now: Booleans) -> Floats:
    """Neighbours of the same set under each assignment: `(R, 2)`.

    The first is the mean number of neighbours of an item of the new set that are of it, plus that of the reference; the
    second that of the reference alone, which grows where new items lie far from all others.

    Args:
        neighbours: `(N, k)` positions of the neighbours of each item.
        is_now: `(R, N)` whether an item is of the new set.

    Source:
        Schilling, "Multivariate Two-Sample Tests Based on Nearest Neighbors", JASA 1986; Henze, "A Multivariate
        Two-Sample Test Based on the Number of Nearest Neighbor Type Coincidences", Annals of Statistics 1988.
    """
    count, k = neighbours.shape
    edges = csr_array((np.ones(count * k, np.float32), (neighbours.ravel(), np.repeat(np.arange(count), k))))
    edges.resize((count, count))
    incoming = np.bincount(neighbours.ravel(), minlength=count).astype(np.float32)
    result = np.empty((len(is_now), 2))
    for start in range(0, len(is_now), ASSIGNMENTS):
        now = is_now[start : start + ASSIGNMENTS].astype(np.float32)
        both = np.einsum("nr,rn->r", edges @ now.T, now, dtype=np.float64)
        members = now.sum(axis=1, dtype=np.float64)
        neither = k * (count - members) - now @ incoming + both
        reference = neither / np.maximum(count - members, 1)
        result[start : start + ASSIGNMENTS, 0] = both / np.maximum(members, 1) + reference
        result[start : start + ASSIGNMENTS, 1] = reference
    return result


def largest_statistics(
    points: Tensor,
    units: Units,
    assignments: Booleans,
    features: FourierFeatures,
    *,
    permutations: int,
    generator: np.random.Generator,
) -> Floats:
    """The largest standardised statistic `(R,)` of two sets under each assignment.

    Statistics are the squared distance of the mean features at each scale, and of at most 20,000 items the neighbours
    of the same set. Each is standardised by its mean and deviation over the actual assignment and the permutations.

    Args:
        points: `(N, d)` float32.
        assignments: `(R, U)`: the actual one, so many permutations, and others.
        generator: of the items whose neighbours are sought.
    """
    statistics = [mean_distances(points, units, assignments, features)]
    rows = np.arange(len(points))
    if len(rows) > COMPARED:
        rows = np.sort(generator.permutation(rows)[:COMPARED])
    if len(rows) > NEIGHBOURS:
        some = points[torch.from_numpy(rows)]
        _, neighbours = nearest(some, some, NEIGHBOURS, same=True)
        statistics.append(neighbour_counts(neighbours, assignments[:, units.unit[rows]]))
    return np.asarray(standardised(np.concatenate(statistics, axis=1), permutations).max(axis=1))
