"""Distances and similarities between rows of `(N, d)` tensors."""

from typing import TYPE_CHECKING, Any

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
from trivet.runtime.counterparts import missing_attribute

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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise missing_attribute(__name__, name, __all__)
