"""Distances and similarities between rows of `(N, d)` tensors."""

from trivet.distances.arrays import as_classes, as_rows
from trivet.distances.pairwise import (
    Distance,
    ProductGradients,
    Products,
    RowNorms,
    check_dense,
    check_embeddings,
    distances_between,
    from_squared,
    row_sums,
    squared_beyond,
    squared_distances,
    unit_rows,
    unit_rows_of,
)
from trivet.runtime.arrays import Array
from trivet.runtime.counterparts import explain_missing

__all__ = [
    "Array",
    "Distance",
    "ProductGradients",
    "Products",
    "RowNorms",
    "as_classes",
    "as_rows",
    "check_dense",
    "check_embeddings",
    "distances_between",
    "from_squared",
    "row_sums",
    "squared_beyond",
    "squared_distances",
    "unit_rows",
    "unit_rows_of",
]

explain_missing(__name__, __all__)
