"""Codes of an ivf-pq index: some bytes of each row, by which candidates are found, which the row itself ranks.

Product quantization (Jegou, Douze, Schmid, "Product quantization for nearest neighbor search", TPAMI 2011): a row less
the centre of its list is cut into groups of coordinates, and each is replaced by the nearest of 256 that were learned.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

# From so many dimensions on, so many share a byte.
GROUPS = {256: 8, 32: 4, 16: 2, 1: 1}
LEAST_ROWS = 10_000  # 39 for each of 256 values, as faiss asks for
BITS = 8
CANDIDATES = 20  # for each of the first neighbours, at first
MORE = 4  # for each of many
MOST_CANDIDATES = 640


def code_bytes(dimension: int) -> int:
    """Number of bytes in the code of a row: 32 for 128 dimensions, 96 for 768, 10 for 10."""
    return math.ceil(dimension / _group(dimension))


def coded_width(dimension: int) -> int:
    """Number of coded numbers: the dimensions, and zeros that fill the last group."""
    return code_bytes(dimension) * _group(dimension)


def coded(rows: npt.NDArray[np.float32], dimension: int) -> npt.NDArray[np.float32]:
    """Numbers of rows `(n, width)` that are coded: the first `dimension` `(n, coded_width)`.

    For cosine, a last one tells rows of zeros from others. The code can do without it: it only finds candidates.
    """
    numbers = np.zeros((len(rows), coded_width(dimension)), np.float32)
    numbers[:, :dimension] = rows[:, :dimension]
    return numbers


def candidates(k: int, each: int, first: int) -> int:
    """Number of rows to rank for the k nearest: `each` for each of up to `first` of them, in all at least 4 k.

    Example:
        >>> [candidates(k, 20, 10) for k in (1, 10, 50, 1000)]
        [20, 200, 200, 4000]
    """
    return max(each * min(k, first), MORE * k)


def check_rows(items: int) -> None:
    """Raise ValueError unless there are enough rows to learn the codes from."""
    if items < LEAST_ROWS:
        raise ValueError(
            f"an ivf-pq index needs at least {LEAST_ROWS} rows, of which its codes are learned: got {items}; use exact "
            "or hnsw."
        )


def map_rows(path: Path, items: int, width: int) -> npt.NDArray[np.float32]:
    """The rows `(items, width)` float32 of a file, memory-mapped.

    Raises:
        OSError, ValueError: if it is missing, or holds something else.
    """
    if not path.is_file() or not path.stat().st_size:
        raise ValueError(f"{path.name} beside it is missing or empty")
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(rows, np.memmap) or rows.shape != (items, width) or rows.dtype != np.float32:
        raise ValueError(f"{path.name} does not hold {items} rows of {width} numbers in float32")
    return rows


def _group(dimension: int) -> int:
    return next(group for least, group in GROUPS.items() if dimension >= least)
