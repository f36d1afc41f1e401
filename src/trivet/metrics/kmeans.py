"""Iterations of k-means that compare each row with the centres that moved, and end where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.runtime.arrays import Booleans, Integers
from trivet.runtime.extras import load

Rows = npt.NDArray[np.float32]


def train(rows: Rows, centres: Rows, iterations: int) -> Any:
    """A `faiss.Kmeans` after iterations from these centres `(k, d)`: its `centroids`, and `obj` before each."""
    means = load("faiss").Kmeans(
        rows.shape[1],
        len(centres),
        niter=iterations,
        min_points_per_centroid=1,  # no warning
        max_points_per_centroid=len(rows),  # no subsample
    )
    means.train(rows, init_centroids=centres)
    return means


def lloyd(
    rows: Rows, centres: Rows, iterations: int, progress: Callable[[int], None] = lambda done: None
) -> tuple[float, Rows, Integers]:
    """The inertia before the last iteration, and each row's squared distance to its centre after it, and which it is.

    They are those of `train` up to rounding. A row whose centre stays where it is can only change to one that moved.
    One whose centre moved is compared with all centres, but where some centre that moved is nearer than its own was:
    the others are no nearer. After a few iterations hardly any moves, and when none does nothing changes any more.

    Args:
        rows: `(N, d)`.
        centres: `(k, d)` to begin from, k < N.
        progress: called with the number of iterations done, after each but the last.

    Source:
        The idea of a bound on what cannot have changed: Elkan, "Using the triangle inequality to accelerate k-means",
        ICML 2003; here without the inequality.
    """
    squared, nearest = search(rows, centres)
    for done in range(iterations):
        if done:
            progress(done)
        inertia = float(np.cumsum(squared)[-1])
        means = _means(rows, nearest, centres)
        moved = (means != centres).any(axis=1)
        if not moved.any():
            break
        centres = means
        squared, nearest = _again(rows, centres, moved, squared, nearest)
    return inertia, squared, nearest


def _again(rows: Rows, centres: Rows, moved: Booleans, squared: Rows, nearest: Integers) -> tuple[Rows, Integers]:
    """Squared distance `(N,)` of each row to its nearest centre, and which it is, from what they were before a move."""
    numbers = np.flatnonzero(moved)
    if 2 * len(numbers) > len(centres):
        return search(rows, centres)
    distances, which = search(rows, centres[numbers])
    which = numbers[which]
    better = (distances < squared) | (~moved[nearest] & (distances == squared) & (which < nearest))
    open_ = np.flatnonzero(moved[nearest] & ~better)
    squared, nearest = np.where(better, distances, squared), np.where(better, which, nearest)
    if len(open_):
        squared[open_], nearest[open_] = search(rows[open_], centres)
    return squared, nearest


def search(rows: Rows, centres: Rows) -> tuple[Rows, Integers]:
    """Squared distance `(N,)` of each row to its nearest centre, and which it is."""
    index = load("faiss").IndexFlatL2(rows.shape[1])
    index.add(centres)
    squared, nearest = index.search(rows, 1)
    return squared[:, 0], nearest[:, 0]


def _means(rows: Rows, nearest: Integers, centres: Rows) -> Rows:
    """The mean `(k, d)` of the rows of each centre, added up in their order, as faiss does.

    Where a centre has none, faiss splits another.
    """
    from scipy import sparse  # here: `import trivet.evaluation` does without

    counts = np.bincount(nearest, minlength=len(centres))
    if not counts.all():
        means: Rows = train(rows, centres, 1).centroids
        return means
    members = sparse.csr_array(
        (
            np.ones(len(rows), np.float32),
            np.argsort(nearest, kind="stable"),
            np.concatenate([[0], np.cumsum(counts)]),
        ),
        shape=(len(centres), len(rows)),
    )
    inverse = (np.float32(1) / counts.astype(np.float32))[:, None]
    return np.asarray(members @ rows * inverse, np.float32)
