"""Codes of rows: some bytes of each, by which candidates are found, which the row itself ranks.

- int8: each number in 255 steps between two of its quantiles among the rows that it was learned from.
- binary: a bit of each number, whether it is above its mean.
- pq, and ivf-pq, where the row is taken less the centre of its list: product quantization (Jegou, Douze, Schmid,
  "Product quantization for nearest neighbor search", TPAMI 2011). A row is cut into groups of coordinates, and each is
  replaced by the nearest of 256 that were learned.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from trivet.knn.kinds import Coded
from trivet.runtime.extras import load

KINDS = get_args(Coded)
# From so many dimensions on, so many share a byte.
GROUPS = {256: 8, 32: 4, 16: 2, 1: 1}
LEAST_ROWS = 10_000  # 39 for each of 256 values, as faiss asks for
BITS = 8
CANDIDATES = 20  # for each of the first neighbours, at first
MORE = 4  # for each of many
MOST_CANDIDATES = 640
CLIPPED = 0.005  # share of the rows that int8 clips at either end of a number
LEARNED = 65536  # rows, at most, that a code is learned from


def code_bytes(kind: str, dimension: int) -> int:
    """Number of bytes of a stored row: of pq 32 for 128 dimensions, 96 for 768, 10 for 10.

    Example:
        >>> [code_bytes(kind, 100) for kind in ("float32", "float16", "int8", "binary", "pq")]
        [400, 200, 100, 13, 25]
    """
    if kind in ("pq", "ivf-pq"):
        return math.ceil(dimension / _group(dimension))
    return math.ceil(dimension * {"float32": 32, "float16": 16, "int8": 8, "binary": 1}[kind] / 8)


def coded_width(kind: str, dimension: int) -> int:
    """Number of coded numbers: the dimensions, and zeros that fill the last group or byte."""
    return math.ceil(dimension / (group := _group(dimension))) * group if kind in ("pq", "ivf-pq") else dimension


def coded(rows: npt.NDArray[np.float32], kind: str, dimension: int) -> npt.NDArray[Any]:
    """Numbers of centred rows `(n, width)` that are coded: the first `dimension`, of binary packed into bytes.

    For cosine, a last one tells rows of zeros from others. The code can do without it: it only finds candidates.
    """
    numbers = np.zeros((len(rows), coded_width(kind, dimension)), np.float32)
    numbers[:, :dimension] = rows[:, :dimension]
    return np.packbits(numbers > 0, axis=1) if kind == "binary" else numbers


def quantized(rows: npt.NDArray[np.float32], learned: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.float32]:
    """Rows `(N, d)` as they are after being stored as numbers or codes of a kind, which alone then rank them.

    Between rows of bits, of which each number is 1 or -1, squared Euclidean distance is 4 times Hamming's.

    Args:
        learned: `(M, d)` rows that ranges, means and groups follow from.

    Raises:
        ValueError: if these are too few for pq.
    """
    if kind == "float16":
        return rows.astype(np.float16).astype(np.float32)
    if kind == "int8":
        low, high = np.quantile(learned, (CLIPPED, 1 - CLIPPED), axis=0).astype(np.float32)
        step = np.where(high > low, high - low, 1) / np.float32(255)
        return np.asarray(low + np.clip(np.rint((rows - low) / step), 0, 255) * step)
    if kind == "binary":
        return np.where(rows > learned.mean(axis=0), 1, -1).astype(np.float32)
    if kind == "pq":
        check_rows(kind, len(learned))
        centre, width = learned.mean(axis=0), rows.shape[1]
        quantizer = load("faiss").ProductQuantizer(coded_width(kind, width), code_bytes(kind, width), BITS)
        quantizer.cp.min_points_per_centroid = 1  # no warning
        quantizer.train(coded(learned - centre, kind, width))
        decoded = quantizer.decode(quantizer.compute_codes(coded(rows - centre, kind, width)))
        return np.asarray(decoded[:, :width] + centre)
    return rows


def candidates(k: int, each: int, first: int) -> int:
    """Number of rows to rank for the k nearest: `each` for each of up to `first` of them, in all at least 4 k.

    Example:
        >>> [candidates(k, 20, 10) for k in (1, 10, 50, 1000)]
        [20, 200, 200, 4000]
    """
    return max(each * min(k, first), MORE * k)


def check_rows(kind: str, items: int) -> None:
    """Raise ValueError unless there are enough rows to learn codes of this kind from."""
    if kind in ("pq", "ivf-pq") and items < LEAST_ROWS:
        raise ValueError(
            f"codes of kind {kind} are learned from at least {LEAST_ROWS} rows: got {items}; use int8 or binary, which "
            "need fewer."
        )


def read_rows(path: Path, items: int, width: int, *, mapped: bool) -> npt.NDArray[np.float32]:
    """The rows `(items, width)` float32 of a file, in memory or mapped.

    Raises:
        OSError, ValueError: if it is missing, or holds something else.
    """
    if not path.is_file() or not path.stat().st_size:
        raise ValueError(f"{path.name} beside it is missing or empty")
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(rows, np.memmap) or rows.shape != (items, width) or rows.dtype != np.float32:
        raise ValueError(f"{path.name} does not hold {items} rows of {width} numbers in float32")
    return rows if mapped else np.array(rows)


def _group(dimension: int) -> int:
    return next(group for least, group in GROUPS.items() if dimension >= least)
