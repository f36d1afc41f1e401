"""Agreement of k-means clusters with classes: NMI, AMI, NMI+ with more clusters, and each item's part in them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from trivet.distances import Array, as_classes
from trivet.metrics.kmeans import lloyd, search, train
from trivet.metrics.points import as_points
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.extras import load
from trivet.runtime.progress import report, steps, work

Average = Literal["arithmetic", "geometric"]

ITERATIONS = 25
NEXT_START = 15486557  # between the seeds of two starts, as faiss has it
LONG = 10**9  # operations of an iteration that is worth sparing some of them


@dataclass(frozen=True)
class Clustering:
    """The best of the restarts of k-means."""

    assignment: Integers  # (N,) cluster of each item, 0 .. k - 1
    inertia: float  # sum of squared distances to the nearest centroid, in the squared unit of the embeddings
    seconds: float  # wall time
    restarts: npt.NDArray[np.int32]  # (S, N) cluster of each item after each of the better half of the restarts

    @property
    def clusters_in_use(self) -> int:
        """Clusters with at least one item, 1 .. k; 1 for a constant embedding."""
        return len(np.unique(self.assignment))


def nmi(labels: Array, clusters: Array, *, average: Average = "arithmetic") -> float:
    """Normalized mutual information of two labelings `(N,)`, in [0, 1].

    I / mean(H_y, H_c), the mean arithmetic or geometric. Both entropies 0 gives 1, exactly one 0 gives 0.

    Source:
        Manning, Raghavan, Schuetze, "Introduction to Information Retrieval", section 16.3 (arithmetic mean).

    Example:
        >>> nmi(np.array([5, 5, 9, 9]), np.array([1, 1, 0, 0]))
        1.0
    """
    measures = load("sklearn.metrics")
    classes, groups = _labelings(labels, clusters, average, "nmi")
    return float(measures.normalized_mutual_info_score(classes, groups, average_method=average))


def ami(labels: Array, clusters: Array, *, average: Average = "arithmetic") -> float:
    """Mutual information of two labelings `(N,)` adjusted for chance: 1 for equal ones, 0 on average for random ones.

    (I - E) / (mean(H_y, H_c) - E), where E is the mean of I over all permutations of the clusters; below 0 when they
    agree less than by chance. Unlike NMI it does not grow with the number of clusters. Both entropies 0 gives 1,
    exactly one 0 gives 0. The time grows with classes times clusters: seconds for thousands of each.

    Source:
        Vinh, Epps, Bailey, "Information Theoretic Measures for Clusterings Comparison", JMLR 2010.

    Example:
        >>> ami(np.array([5, 5, 9, 9]), np.array([1, 1, 0, 0]))
        1.0
        >>> ami(np.array([5, 5, 9, 9]), np.array([0, 1, 2, 3]))
        0.0
    """
    measures = load("sklearn.metrics")
    classes, groups = _labelings(labels, clusters, average, "ami")
    counts = int(classes.max()) + 1, int(groups.max()) + 1
    # Decided here, as the quotient would be one rounding error by another.
    if counts[0] == counts[1] == len(np.unique(classes * counts[1] + groups)):
        return 1.0
    if min(counts) == 1 or max(counts) == len(classes):
        return 0.0
    with work("adjusted mutual information"):
        return float(measures.adjusted_mutual_info_score(classes, groups, average_method=average))


def cluster(embeddings: Array, k: int, *, seed: int, restarts: int = 10) -> Clustering:
    """K-means of all rows: `restarts` random starts of at most 25 iterations, of which the least inertia wins.

    The points are centred and scaled before the float32 arithmetic, so a nearly collapsed embedding is clustered as
    finely as any other. The same seed on the same machine gives the same clusters. Equal rows share a cluster, so
    fewer than `k` clusters may be in use.

    Args:
        embeddings: `(N, d)` floating point.
        k: 1 .. N.
        seed: 0 .. 2^31 - 1.
        restarts: at least 1.
    """
    faiss = load("faiss")
    points = as_points(embeddings)
    if not 1 <= k <= len(points):
        raise ValueError(f"k must be between 1 and the {len(points)} items: got {k}; use fewer clusters.")
    if restarts < 1:
        raise ValueError(f"restarts must be at least 1: got {restarts}.")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be between 0 and 2^31 - 1: got {seed}.")
    started = time.perf_counter()
    points = points - points.mean(dim=0)
    scale = float(points.abs().max()) or 1.0
    rows = np.ascontiguousarray((points / scale).float().cpu().numpy())
    ends: list[tuple[float, float, npt.NDArray[np.int32]]] = []  # inertia as k-means has it, and of the assignment

    def progress(before: int, done: int) -> None:
        report(f"k-means, {k} clusters", before + done, restarts * ITERATIONS)

    for start in range(restarts):
        order = np.empty(len(rows), np.int32)
        faiss.rand_perm(faiss.swig_ptr(order), len(rows), seed + 1 + start * NEXT_START)
        centres = rows[order[:k]]
        before = start * ITERATIONS
        if rows.size * k > LONG:
            inertia, squared, nearest = lloyd(rows, centres, ITERATIONS, partial(progress, before))
        else:
            means = train(rows, centres, ITERATIONS)
            inertia, (squared, nearest) = float(means.obj[-1]), search(rows, means.centroids)
        progress(before, ITERATIONS)
        ends.append((inertia, float(squared.sum(dtype=np.float64)), nearest.astype(np.int32)))
    ends.sort(key=lambda end: end[0])
    return Clustering(
        assignment=ends[0][2].astype(np.int64),
        inertia=ends[0][1] * scale**2,
        restarts=np.stack([assignment for *_, assignment in ends[: max(2, restarts // 2)]]),
        seconds=time.perf_counter() - started,
    )


def nmi_plus(embeddings: Array, labels: Array, multiple: int = 10, *, seed: int = 0) -> float:
    """NMI of the labels with `multiple` times as many k-means clusters as classes: high when each class is a few modes.

    Source:
        Levi et al., ICCV 2021, section 5: 10 for Cars196 and CUB200, 30 for the languages of Omniglot.
    """
    if multiple < 1:
        raise ValueError(f"multiple must be at least 1: got {multiple}.")
    classes = as_classes(labels, count=len(embeddings))
    if not len(classes):
        raise ValueError("nmi_plus needs at least one item: got none.")
    k = multiple * (int(classes.max()) + 1)
    return nmi(classes, cluster(embeddings, k, seed=seed).assignment)


class Information:
    """Contributions of each item and each class to NMI and AMI of two labelings, the clusters held fixed.

    With p the shares of items, item i of class y in cluster c has the information p_i = log p(y, c) / (p(y) p(c)), and
    the entropies are means of -log p(y) and -log p(c). A class has the mean of p_i over its items, the relative entropy
    of its clusters to those of all (its specific information), over the same mean entropy as the measure. So the mean
    over the items is the measure itself, and the plain mean over the classes its "macro" value. A class rarer than most
    may exceed 1, and so may that mean; where classes are of one size neither does. In AMI the mean of the information
    of a class of this size over all permutations of the clusters is taken off first.

    Args:
        labels, clusters: `(N,)` integers, N >= 1.

    Source:
        DeWeese, Meister, "How to measure the information gained from one symbol", Network 1999 (specific information);
        Davison, Hinkley, "Bootstrap Methods and their Application", 1997, section 2.7 (influence values).

    Example:
        >>> information = Information(np.array([5, 5, 9, 9]), np.array([1, 1, 0, 2]))
        >>> information.per_class("nmi").round(3).tolist(), information.per_class("nmi").mean().round(3).item()
        ([0.8, 0.8], 0.8)
    """

    def __init__(self, labels: Array, clusters: Array) -> None:
        self.classes, groups = _labelings(labels, clusters, "arithmetic", "information")
        self.sizes, sizes = np.bincount(self.classes), np.bincount(groups)
        cells, cell, together = np.unique(self.classes * len(sizes) + groups, return_inverse=True, return_counts=True)
        self._cluster_sizes, self._groups, self._items = sizes, groups, len(groups)
        self._class_surprise = np.log(self._items / self.sizes)[self.classes]
        self._cluster_surprise = np.log(self._items / sizes)[groups]
        joint = np.log(self._items / together)[cell.ravel()]
        self._pointwise = self._class_surprise + self._cluster_surprise - joint
        self._cells, self._together = cells, together
        self._single = len(self.sizes) == 1, len(sizes) == 1
        self._equal = len(cells) == len(self.sizes) == len(sizes)
        self._singletons = max(len(self.sizes), len(sizes)) == self._items

    def per_class(self, measure: str) -> Floats:
        """`(C,)` the "nmi", "nmi-geometric" or "ami" of each class, in the order of the labels.

        Where the measure is 0 or 1 by rule (an entropy is 0; in AMI also equal labelings, or one item for each cluster
        or class), that of each class is the same.
        """
        if (fixed := self._fixed(measure)) is not None:
            return np.full(len(self.sizes), fixed)
        information, normaliser = self._terms(measure)
        return np.asarray(np.bincount(self.classes, information) / self.sizes / normaliser.mean())

    def values(self, measure: str, average: Literal["micro", "macro"] = "micro") -> Floats:
        """A value `(N,)` of each item whose mean is the measure, and whose spread is what the item could change.

        The value is the measure plus its influence value, the derivative by the weight of the item. Their variance,
        and that of the restarts, see `restart_variance`, is the variance of the measure to the first order.

        Args:
            average: "micro": the mean over the items is the measure; "macro": the mean over the means of the classes is
                the mean over the classes.
        """
        if (fixed := self._fixed(measure)) is not None:
            return np.full(self._items, fixed)
        information, normaliser = self._terms(measure)
        by_chance: dict[str, Floats | float] = {"micro": 0.0, "macro": 0.0}
        if measure == "ami":  # each item has the information by chance of its class; here is that of its cluster
            by_chance = {kind: self._chance_of_clusters(kind) for kind in by_chance}
        normaliser = normaliser - by_chance["micro"]
        mean = normaliser.mean()
        if average == "micro":
            mean_of_classes = information.mean() / mean
            change = information - by_chance["micro"] - mean_of_classes * normaliser
            return np.asarray(mean_of_classes + change / mean)
        mean_of_classes = self.per_class(measure).mean()
        # The clusters of a class are compared with those of all, which the item changes too; q would be 1 in "micro".
        rows, columns = np.divmod(self._cells, len(self._cluster_sizes))
        q = np.bincount(columns, self._together / self.sizes[rows], len(self._cluster_sizes)) / len(self.sizes)
        q *= self._items / self._cluster_sizes
        weight = len(self.sizes) * self.sizes[self.classes] / self._items
        change = 1 - q[self._groups] - by_chance["macro"] - mean_of_classes * (normaliser - mean)
        return np.asarray((information + weight * change) / mean)

    def _chance_of_clusters(self, average: str) -> Floats:
        """Change `(N,)` of the information by chance with an item more in the cluster of each, less the mean change.

        Half the change from a cluster of an item less to one of an item more. With "macro" classes count alike.
        """
        sizes, times = np.unique(self.sizes, return_counts=True)
        groups, which = np.unique(self._cluster_sizes, return_inverse=True)
        weights = times if average == "micro" else times * self._items / (len(self.sizes) * sizes)
        less, more = (_shared_by_chance(sizes, groups + step, self._items) for step in (-1, 1))
        changes = (weights @ (more - less) / 2)[which.ravel()][self._groups]
        return np.asarray(changes - changes.mean())

    def by_chance(self) -> float:
        """Mean information of all items over all permutations of the clusters."""
        return float(_by_chance(self.sizes, self._cluster_sizes)[self.classes].mean())

    def _fixed(self, measure: str) -> float | None:
        if measure not in ("nmi", "nmi-geometric", "ami"):
            raise ValueError(f"measure must be 'nmi', 'nmi-geometric' or 'ami': got {measure!r}.")
        if all(self._single) or (measure == "ami" and self._equal):
            return 1.0
        return 0.0 if any(self._single) or (measure == "ami" and self._singletons) else None

    def _terms(self, measure: str) -> tuple[Floats, Floats]:
        """Share of each item `(N,)` in the information, and in the entropy that it is divided by."""
        if measure == "nmi-geometric":
            both = self._class_surprise, self._cluster_surprise
            entropies = [surprise.mean() for surprise in both]
            scale = np.sqrt(entropies[0] * entropies[1]) / 2
            return self._pointwise, scale * (both[0] / entropies[0] + both[1] / entropies[1])
        normaliser = (self._class_surprise + self._cluster_surprise) / 2
        if measure == "nmi":
            return self._pointwise, normaliser
        by_chance = _by_chance(self.sizes, self._cluster_sizes)[self.classes]
        return self._pointwise - by_chance, normaliser - by_chance


def restart_variance(labels: Array, clustering: Clustering, measure: str) -> float:
    """Variance of "nmi", "nmi-geometric" or "ami" over the better half of the restarts of k-means.

    Another sample may end in another of these optima. In AMI the mean information by chance is that of the best. 0 with
    a single restart.
    """
    best = Information(labels, clustering.assignment)
    if len(clustering.restarts) < 2 or best._fixed(measure) is not None:
        return 0.0
    chance = best.by_chance() if measure == "ami" else 0.0
    plain = "nmi" if measure == "ami" else measure
    values = []
    for clusters in clustering.restarts:
        information = Information(labels, clusters)
        fixed = information._fixed(plain)
        if fixed is None:
            shares, normaliser = information._terms(plain)
            fixed = float((shares.mean() - chance) / (normaliser.mean() - chance))
        values.append(fixed)
    return float(np.var(values, ddof=1))


def _by_chance(sizes: Integers, clusters: Integers) -> Floats:
    """Mean information `(C,)` of a class of each size over all permutations of the clusters."""
    kinds, which = np.unique(sizes, return_inverse=True)
    groups, times = np.unique(clusters, return_counts=True)
    expected = _shared_by_chance(kinds, groups, int(sizes.sum())) @ times / kinds
    return np.asarray(expected[which.ravel()])


def _shared_by_chance(sizes: Integers, clusters: Integers, total: int) -> Floats:
    """Information `(S, G)` of all items that a class and a cluster share, the mean over permutations of `total` items.

    Args:
        sizes, clusters: `(S,)` and `(G,)` items of them; 0 has none.
    """
    from scipy.special import gammaln

    log_factorial = gammaln(np.arange(total + 1) + 1.0)
    expected = np.zeros((len(sizes), len(clusters)))
    group = clusters[:, None]
    for number, size in enumerate(steps(sizes.tolist(), "mutual information by chance, class sizes")):
        shared = np.arange(1, min(size, int(clusters[-1])) + 1)
        rest = total - size - group + shared  # items neither of the class nor of the cluster
        possible = (shared <= group) & (rest >= 0)
        # Hypergeometric: so many of the items of the class are among those of the cluster.
        chance = np.exp(
            log_factorial[size]
            - log_factorial[shared]
            - log_factorial[size - shared]
            + log_factorial[total - size]
            - log_factorial[np.maximum(group - shared, 0)]
            - log_factorial[np.maximum(rest, 0)]
            - log_factorial[total]
            + log_factorial[group]
            + log_factorial[total - group]
        )
        information = shared * np.log(total / np.maximum(group, 1) * (shared / size))
        expected[number] = np.where(possible, chance * information, 0).sum(axis=1)
    return expected


def _labelings(labels: Array, clusters: Array, average: str, measure: str) -> tuple[Integers, Integers]:
    """Both as numbers 0, 1, ... without gaps."""
    if average not in ("arithmetic", "geometric"):
        raise ValueError(f"average must be 'arithmetic' or 'geometric': got {average!r}.")
    if not len(labels):
        raise ValueError(f"{measure} needs at least one item: got none.")
    classes = as_classes(labels, count=len(labels)).numpy()
    return classes, as_classes(clusters, count=len(labels), name="clusters").numpy()
