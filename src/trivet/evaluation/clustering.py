"""Agreement of k-means clusters with classes: NMI, AMI, and NMI+ with more clusters than classes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trivet.evaluation.inputs import as_points
from trivet.geometry import Array, as_classes

Average = Literal["arithmetic", "geometric"]
Integers = npt.NDArray[np.int64]

ITERATIONS = 25


@dataclass(frozen=True)
class Clustering:
    """The best of the restarts of k-means."""

    assignment: Integers  # (N,) cluster of each item, 0 .. k - 1
    inertia: float  # sum of squared distances to the nearest centroid, in the squared unit of the embeddings
    seconds: float  # wall time

    @property
    def clusters_in_use(self) -> int:
        """Clusters with at least one item, 1 .. k; 1 for a constant embedding."""
        return len(np.unique(self.assignment))


def nmi(labels: Array, clusters: Array, *, average: Average = "arithmetic") -> float:
    """Normalized mutual information of two labelings `(N,)`, in [0, 1].

    I / mean(H_y, H_c), the mean arithmetic or geometric. Both entropies 0 gives 1, exactly one 0 gives 0.

    Raises:
        ValueError: if the two are not integers of the same length, N >= 1, or `average` is not known.

    Source:
        Manning, Raghavan, Schuetze, "Introduction to Information Retrieval", section 16.3 (arithmetic mean).

    Example:
        >>> nmi(np.array([5, 5, 9, 9]), np.array([1, 1, 0, 0]))
        1.0
    """
    from sklearn.metrics import normalized_mutual_info_score

    classes, groups = _labelings(labels, clusters, average, "nmi")
    return float(normalized_mutual_info_score(classes, groups, average_method=average))


def ami(labels: Array, clusters: Array, *, average: Average = "arithmetic") -> float:
    """Mutual information of two labelings `(N,)` adjusted for chance: 1 for equal ones, 0 on average for random ones.

    (I - E) / (mean(H_y, H_c) - E), where E is the mean of I over all permutations of the clusters; below 0 when they
    agree less than by chance. Unlike NMI it does not grow with the number of clusters. Both entropies 0 gives 1,
    exactly one 0 gives 0. The time grows with classes times clusters: seconds for thousands of each.

    Raises:
        ValueError: if the two are not integers of the same length, N >= 1, or `average` is not known.

    Source:
        Vinh, Epps, Bailey, "Information Theoretic Measures for Clusterings Comparison", JMLR 2010.

    Example:
        >>> ami(np.array([5, 5, 9, 9]), np.array([1, 1, 0, 0]))
        1.0
        >>> ami(np.array([5, 5, 9, 9]), np.array([0, 1, 2, 3]))
        0.0
    """
    from sklearn.metrics import adjusted_mutual_info_score

    classes, groups = _labelings(labels, clusters, average, "ami")
    counts = int(classes.max()) + 1, int(groups.max()) + 1
    # Decided here, as the quotient would be one rounding error by another.
    if counts[0] == counts[1] == len(np.unique(classes * counts[1] + groups)):
        return 1.0
    if min(counts) == 1 or max(counts) == len(classes):
        return 0.0
    return float(adjusted_mutual_info_score(classes, groups, average_method=average))


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

    Raises:
        ValueError: if a row is not finite, or `k`, `seed` or `restarts` is out of range.
    """
    import faiss

    points = as_points(embeddings)
    if not 1 <= k <= len(points):
        raise ValueError(f"k must be between 1 and the {len(points)} items: got {k}; ask for fewer clusters.")
    if restarts < 1:
        raise ValueError(f"restarts must be at least 1: got {restarts}.")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be between 0 and 2^31 - 1: got {seed}.")
    started = time.perf_counter()
    points = points - points.mean(dim=0)
    scale = float(points.abs().max()) or 1.0
    rows = np.ascontiguousarray((points / scale).float().cpu().numpy())
    means = faiss.Kmeans(
        rows.shape[1],
        k,
        niter=ITERATIONS,
        nredo=restarts,
        seed=seed,
        min_points_per_centroid=1,  # no warning
        max_points_per_centroid=len(rows),  # no subsample
    )
    means.train(rows)
    squared, nearest = means.index.search(rows, 1)
    return Clustering(
        assignment=nearest[:, 0].astype(np.int64),
        inertia=float(squared.sum(dtype=np.float64)) * scale**2,
        seconds=time.perf_counter() - started,
    )


def nmi_plus(embeddings: Array, labels: Array, multiple: int = 10, *, seed: int = 0) -> float:
    """NMI of the labels with `multiple` times as many k-means clusters as classes: high when each class is a few modes.

    Raises:
        ValueError: if the inputs disagree, `multiple` is below 1, or there are fewer items than clusters.

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


def _labelings(labels: Array, clusters: Array, average: str, measure: str) -> tuple[Integers, Integers]:
    """Both as numbers 0, 1, ... without gaps."""
    if average not in ("arithmetic", "geometric"):
        raise ValueError(f"average must be 'arithmetic' or 'geometric': got {average!r}.")
    if not len(labels):
        raise ValueError(f"{measure} needs at least one item: got none.")
    classes = as_classes(labels, count=len(labels)).numpy()
    return classes, as_classes(clusters, count=len(labels), name="clusters").numpy()
