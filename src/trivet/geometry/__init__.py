"""Distances and similarities between rows of `(N, d)` tensors."""

from trivet.geometry.distances import (
    Distance,
    check_embeddings,
    distances_between,
    from_squared,
    squared_distances,
    to_squared,
    unit_rows,
)

__all__ = [
    "Distance",
    "check_embeddings",
    "distances_between",
    "from_squared",
    "squared_distances",
    "to_squared",
    "unit_rows",
]
