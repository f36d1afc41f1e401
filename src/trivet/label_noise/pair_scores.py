"""Scores of pairs by views of the other pairs: how much a left and a right content belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from trivet.metrics.points import spans
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import steps

NEIGHBOURS, BAND = 20, 10  # the distance to the tenth neighbour is the width of the weights
FOLDS = 5
FITTED = 20_000  # pairs that a fold is fitted to, and contents that are neighbours, at most
SHRINKAGE = 0.1  # of each variance towards their mean
MOST_CORRELATED = 0.98
ROWS, COLUMNS = 512, 8192  # contents compared at once
SCORED = 4096  # pairs scored at once
TINY = 1e-12


class Space(NamedTuple):
    """Vectors `(C, d)` with what is needed to see a similarity to them in relation: their mean and covariance."""

    vectors: Tensor
    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, vectors: Tensor) -> Space:
        mean = vectors.mean(dim=0)
        centred = vectors - mean
        return cls(vectors, mean, centred.T @ centred / max(1, len(vectors) - 1))

    def standardised(self, similarities: Tensor, others: Tensor) -> Tensor:
        """Similarities `(Q,)` of others `(Q, d)`, less the mean over all vectors, in standard deviations."""
        variance = torch.einsum("qd,qd->q", others @ self.covariance, others)
        return (similarities - others @ self.mean) / variance.clamp_min(TINY).sqrt()


class Around(NamedTuple):
    """The nearest others of C contents `(C, K)` of a side, and their weights."""

    indices: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class Correlated:
    """Canonical correlations `(k,)` of the pairs outside of a fold, and the maps that both sides take to them."""

    means: tuple[Tensor, Tensor]
    maps: tuple[Tensor, Tensor]
    weights: Tensor

    @classmethod
    def of(cls, left: Tensor, right: Tensor) -> Correlated:
        means = left.mean(dim=0), right.mean(dim=0)
        centred = (left - means[0]).double(), (right - means[1]).double()
        whitened = [_whitening(rows.T @ rows / len(rows)) for rows in centred]
        cross = whitened[0].T @ (centred[0].T @ centred[1] / len(left)) @ whitened[1]
        squares, second = torch.linalg.eigh(cross.T @ cross)
        correlations = squares.clamp_min(0).sqrt()
        first = cross @ second / correlations.clamp_min(TINY)
        correlations = correlations.clamp_max(MOST_CORRELATED)
        maps = (whitened[0] @ first).float(), (whitened[1] @ second).float()
        return cls(means, maps, (correlations / (1 - correlations.square())).float())

    def scores(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum over x_k y_k r_k / (1 - r_k^2), seen from either side; unit variance of x and y is taken for true."""
        x, y = (
            (rows - mean) @ to_common
            for rows, mean, to_common in zip((left, right), self.means, self.maps, strict=True)
        )
        weighted = x * self.weights
        total = (weighted * y).sum(dim=1)
        ends = (torch.linalg.vector_norm(side * self.weights, dim=1).clamp_min(TINY) for side in (x, y))
        return sum((total / end for end in ends), torch.zeros_like(total)) / 2


class PairViews:
    """Views of how much the left content of a listed pair and the right content of another belong together.

    Each view is a similarity, less the mean of what the same content has to all of the other side, in standard
    deviations; that from either side, in the mean. A pair, and all that hangs together with it or with the other one,
    has no say in its own score. The views are:

    - neighbours: the mean of the partners of the contents that are nearest to the left one, compared with the right
      one, and likewise from the right;
    - correlation: the canonical correlations of both sides, fitted to other folds of the pairs;
    - direct: the cosine similarity, if both sides are of a space;
    - siblings, if some content comes in several pairs: the other contents that are paired with the same one.

    Args:
        left, right: `(L, d)` and `(R, d')` unit rows, float32.
        pairs: `(P, 2)` positions of both, each once.
        shared: whether both are of a space.
        seed: of the folds and samples.
    """

    def __init__(self, left: Tensor, right: Tensor, pairs: Integers, *, shared: bool, seed: int) -> None:
        self.pairs, self._shared = pairs, shared
        self._sides = Space.of(left), Space.of(right)
        self.counts = counts = len(left), len(right)
        random = np.random.default_rng(seed)
        self.groups = _groups(pairs, counts)
        group = self.groups[pairs[:, 0]]
        self.fold: Integers = (random.permutation(len(np.unique(self.groups))) % FOLDS)[group]
        listed = torch.from_numpy(pairs)
        self._around = tuple(_nearest(side.vectors, pairs[:, of], random) for of, side in enumerate(self._sides))
        incidence = sparse.csr_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=counts)
        self._degrees = tuple(
            torch.from_numpy(np.asarray(incidence.sum(axis=axis), np.float32)) for axis in (1, 0)
        )  # how many pairs each content has
        self._totals = (
            torch.from_numpy(incidence.T @ left.numpy()),  # (R, d) of the lefts of each right
            torch.from_numpy(incidence @ right.numpy()),  # (L, d') of the rights of each left
        )
        partners = (
            self._totals[1] / self._degrees[0][:, None].clamp_min(1),
            self._totals[0] / self._degrees[1][:, None].clamp_min(1),
        )
        self._partners = partners
        self._of_group = tuple(
            torch.from_numpy(self.groups[offset : offset + count]) for offset, count in ((0, counts[0]), counts)
        )
        self._expected = tuple(self._predicted(side) for side in (0, 1))
        self._expected_spaces = tuple(Space.of(_unit(expected)) for expected in self._expected)
        self._correlated = []
        for fold in steps(range(FOLDS), "correlations of the pairs, folds"):
            others = np.flatnonzero(self.fold != fold)
            if len(others) > FITTED:
                others = np.sort(random.permutation(others)[:FITTED])
            some = listed[torch.from_numpy(others)]
            self._correlated.append(Correlated.of(left[some[:, 0]], right[some[:, 1]]))

    def scores(self, first: Integers, second: Integers) -> Floats:
        """Scores `(Q, V)` of the left contents of listed pairs `first` and the right ones of `second`, `(Q,)` each."""
        blocks = [self._block(first[start:stop], second[start:stop]) for start, stop in spans(len(first), SCORED)]
        return np.concatenate(blocks) if blocks else np.empty((0, 0))

    def _block(self, first: Integers, second: Integers) -> Floats:
        a, b = torch.from_numpy(self.pairs[first]), torch.from_numpy(self.pairs[second])
        ends = a[:, 0], b[:, 1]
        left, right = (side.vectors[end] for side, end in zip(self._sides, ends, strict=True))
        columns = [self._neighbours(ends, left, right), self._correlations(first, left, right)]
        if self._shared:
            similarity = (left * right).sum(dim=1)
            from_left, from_right = (
                side.standardised(similarity, rows) for side, rows in zip(self._sides, (right, left), strict=True)
            )
            columns.append((from_left + from_right) / 2)
        if max(int(degrees.max()) for degrees in self._degrees) > 1:
            columns += [
                self._siblings(0, b[:, 1], b[:, 0], left),
                self._siblings(1, a[:, 0], a[:, 1], right),
            ]
        return torch.stack(columns, dim=1).double().numpy()

    def _neighbours(self, ends: tuple[Tensor, Tensor], left: Tensor, right: Tensor) -> Tensor:
        """Similarity of the partners of the neighbours of each end to the other end."""
        values = []
        for side, other in ((0, right), (1, left)):
            expected = _unit(self._without(side, ends[side], self._of_group[1 - side][ends[1 - side]]))
            similarity = (expected * other).sum(dim=1)
            values.append(self._sides[1 - side].standardised(similarity, expected))
            values.append(self._expected_spaces[side].standardised(similarity, other))
        return torch.stack(values).mean(dim=0)

    def _correlations(self, first: Integers, left: Tensor, right: Tensor) -> Tensor:
        values = torch.empty(len(first))
        fold = torch.from_numpy(self.fold[first])
        for number, correlated in enumerate(self._correlated):
            rows = (fold == number).nonzero()[:, 0]
            values[rows] = correlated.scores(left[rows], right[rows])
        return values

    def _siblings(self, side: int, ends: Tensor, without: Tensor, compared: Tensor) -> Tensor:
        """Similarity to the contents of a side that are paired with the ends, but for those `without`; 0 if none is."""
        space = self._sides[side]
        siblings = self._totals[side][ends] - space.vectors[without]
        siblings[self._degrees[1 - side][ends] < 2] = 0
        return space.standardised((siblings * compared).sum(dim=1), siblings).nan_to_num(0.0)

    def _predicted(self, side: int) -> Tensor:
        """The weighted sum of the partners of the neighbours of each content of a side, but for its group."""
        near, groups = self._around[side], self._of_group[side]
        weights = near.weights.masked_fill(groups[near.indices] == groups[:, None], 0.0)
        sums = torch.empty(len(groups), self._partners[side].shape[1])
        for start, stop in spans(len(groups), ROWS):
            partners = self._partners[side][near.indices[start:stop]]
            sums[start:stop] = torch.einsum("bk,bkd->bd", weights[start:stop], partners)
        return sums

    def _without(self, side: int, ends: Tensor, groups: Tensor) -> Tensor:
        """`_predicted` of contents `(Q,)`, but for the neighbours that are of groups `(Q,)`, too."""
        sums = self._expected[side][ends]
        near = self._around[side].indices[ends]
        speaks = (self._of_group[side][near] == groups[:, None]) & (groups != self._of_group[side][ends])[:, None]
        rows, columns = speaks.nonzero(as_tuple=True)
        weights = self._around[side].weights[ends[rows], columns]
        return sums.index_add_(0, rows, -weights[:, None] * self._partners[side][near[rows, columns]])

    def is_listed(self, lefts: Integers, rights: Integers) -> Booleans:
        """Test whether contents `(Q,)` of both sides are a listed pair."""
        width = self.counts[1]
        return np.isin(lefts * width + rights, self.pairs[:, 0] * width + self.pairs[:, 1])

    def candidates(self, count: int) -> Integers:
        """Pairs `(M, 2)` that are not listed, of contents that are in pairs, and most alike to what either expects."""
        some = [np.unique(self.pairs[:, side]) for side in (0, 1)]
        listed: list[Integers] = []
        for side in (0, 1):
            rows = self._sides[side].vectors if self._shared else _unit(self._expected[side])
            others = self._sides[1 - side].vectors[torch.from_numpy(some[1 - side])]
            most = min(count, len(others))
            _, columns = nearest_contents(rows[torch.from_numpy(some[side])], others, most)
            ends = np.repeat(some[side], most), some[1 - side][columns.numpy().ravel()]
            listed.append(np.stack(ends if side == 0 else ends[::-1], axis=1))
        different = np.unique(np.concatenate(listed), axis=0)
        return different[~self.is_listed(*different.T)]

    def local_means(self, side: int, values: Floats) -> Floats:
        """The mean of values `(P,)` of the pairs over those of the neighbours of each content `(C,)`, but its group."""
        of_content = torch.zeros(len(self._of_group[side]), dtype=torch.float64)
        of_content.index_add_(0, torch.from_numpy(self.pairs[:, side]), torch.from_numpy(values))
        of_content /= self._degrees[side].clamp_min(1)
        near, groups = self._around[side].indices, self._of_group[side]
        counts = (groups[near] != groups[:, None]).double()
        means = (of_content[near] * counts).sum(dim=1) / counts.sum(dim=1)
        return means.nan_to_num(float(values.mean())).numpy()


def _groups(pairs: Integers, counts: tuple[int, int]) -> Integers:
    """Groups `(L + R,)` of the contents that pairs connect; each content by itself if a group has half of the pairs."""
    size = sum(counts)
    links = sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1] + counts[0])), shape=(size, size))
    groups: Integers = csgraph.connected_components(links, directed=False)[1].astype(np.int64)
    if 2 * np.bincount(groups[pairs[:, 0]]).max() > len(pairs):
        return np.arange(size)
    return groups


def _whitening(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    whitening: Tensor = vectors / (values.clamp_min(0) + SHRINKAGE * values.mean() + TINY).sqrt()
    return whitening


def _unit(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / norms.clamp_min(TINY)


def nearest_contents(queries: Tensor, contents: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Similarities and positions `(Q, count)` of the most similar contents, in blocks."""
    values, columns = torch.empty(len(queries), count), torch.empty(len(queries), count, dtype=torch.int64)
    for start, stop in steps(list(spans(len(queries), ROWS)), "nearest contents"):
        best = torch.empty(stop - start, 0), torch.empty(stop - start, 0, dtype=torch.int64)
        for first, end in spans(len(contents), COLUMNS):
            block, which = (queries[start:stop] @ contents[first:end].T).topk(min(count, end - first), dim=1)
            block, which = torch.cat([best[0], block], dim=1), torch.cat([best[1], which + first], dim=1)
            chosen = block.topk(min(count, block.shape[1]), dim=1)
            best = chosen.values, which.gather(1, chosen.indices)
        values[start:stop], columns[start:stop] = best
    return values, columns


def _nearest(vectors: Tensor, paired: Integers, random: np.random.Generator) -> Around:
    """The nearest others of each content among those in pairs, at most 20,000 of them."""
    some = np.unique(paired)
    if len(some) > FITTED:
        some = np.sort(random.permutation(some)[:FITTED])
    chosen = torch.from_numpy(some)
    count = min(NEIGHBOURS + 1, len(some))
    similarities, columns = nearest_contents(vectors, vectors[chosen], count)
    indices = chosen[columns]
    itself = indices == torch.arange(len(vectors))[:, None]
    distances = (2 - 2 * similarities).clamp_min(0).sqrt()
    band = distances.sort(dim=1).values[:, [min(BAND, count - 1)]].clamp_min(TINY)
    weights = torch.exp(-(distances / band).square()).masked_fill(itself, 0.0)
    return Around(indices, weights)
