"""Checks a stored index before faiss reads it, which trusts the sizes, the row numbers and the links in the file."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.runtime.safe_read import check_regular


def check_stored(path: Path, kind: str, items: int, width: int) -> None:
    """Check the file of an index of float32 vectors or of codes, as faiss 1.9 and later write it.

    Sizes are compared with what is there, and every number of a row, a list or a layer with how many there are. Only
    what says so is read, not the vectors.

    Args:
        path: the file.
        kind: of index, as `trivet.knn.index.IndexInfo` names it.
        items, width: how many vectors of how many numbers it must hold.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is another index, or broken; the sentence is without its end.
    """
    check_regular(path, "an index")
    if min(path.stat().st_size, items, width) < 1:
        raise ValueError("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        stored = _Stored(mapped, items, width)
        try:
            check = {
                "exact": stored.flat,
                "hnsw": stored.hnsw,
                "ivf": stored.ivf,
                "int8": stored.int8,
                "binary": stored.binary,
                "ivf-pq": stored.ivf_pq,
            }
            check[kind]()
        finally:
            rest = len(mapped) - stored.offset
            stored.close()
        if rest:
            raise ValueError(f"it has {rest} bytes too many")


class _Stored:
    """The bytes of a file, from a place on."""

    def __init__(self, mapped: mmap.mmap, items: int, width: int) -> None:
        self.data = memoryview(mapped)
        self.items, self.width = items, width
        self.offset = 0

    def close(self) -> None:
        self.data.release()

    def take(self, size: int) -> memoryview:
        if size < 0 or self.offset + size > len(self.data):
            raise ValueError("it is cut off, or a size in it is wrong")
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def values(self, form: str) -> Any:
        with self.take(struct.calcsize(form)) as data:
            numbers = struct.unpack(form, data)
        return numbers if len(numbers) > 1 else numbers[0]

    def array(self, dtype: str, count: int | None = None) -> npt.NDArray[Any]:
        """A copy of the values that follow; without `count` the file says how many there are."""
        count = self.values("<Q") if count is None else count
        with self.take(count * np.dtype(dtype).itemsize) as data:
            return np.frombuffer(data, dtype).copy()

    def skip(self, size: int, must: int) -> None:
        """Pass over the values of a vector that must have `must` of them, of `size` bytes each."""
        if (count := self.values("<Q")) != must:
            raise ValueError(f"it has {count} numbers where {must} belong")
        self.take(count * size).release()

    def header(self, code: bytes, items: int) -> None:
        actual = self.values("<4s")
        if actual != code:
            raise ValueError(f"it begins with {actual!r}, not {code!r}")
        width, total, _, _, trained, metric = self.values("<iqqqBi")
        if (width, total, trained, metric) != (self.width, items, 1, 1):
            raise ValueError(f"it holds {total} vectors of {width} numbers")

    def flat(self, items: int | None = None) -> None:
        items = self.items if items is None else items
        self.header(b"IxF2", items)
        self.skip(4, items * self.width)

    def hnsw(self) -> None:
        self.header(b"IHNf", self.items)
        self.array("<f8")
        counts = self.array("<i4")  # links of a row up to each layer
        layers = self.array("<i4", self.counted())
        offsets = self.array("<u8", self.values("<Q"))
        links = self.values("<Q")
        right = len(counts) > 1 and counts[0] == 0 and (np.diff(counts) >= 0).all() and counts[-1] < 2**16
        if not right or layers.min() < 1 or layers.max() >= len(counts):
            raise ValueError("its layers are broken")
        if len(offsets) != self.items + 1 or offsets[0] != 0 or offsets[-1] != links:
            raise ValueError("its links are broken")
        if not np.array_equal(np.diff(offsets.astype(np.int64)), counts[layers]):
            raise ValueError("its links are broken")
        self._check_rows(links, "<i4", least=-1)
        entry, highest, _, _, _ = self.values("<iiiii")
        if not 0 <= entry < self.items or highest != layers.max() - 1 or layers[entry] - 1 != highest:
            raise ValueError("its first row is broken")
        self.flat()

    def counted(self) -> int:
        """A number of rows that the file says, which must be that of all."""
        count: int = self.values("<Q")
        if count != self.items:
            raise ValueError(f"it has {count} rows where {self.items} belong")
        return count

    def ivf(self) -> None:
        lists = self._lists(b"IwFl")
        if self.values("<B") != 1:
            raise ValueError("it has no table of its rows")
        positions = self.array("<i8", self.counted())
        self._check_lists(lists, 4 * self.width, positions)

    def ivf_pq(self) -> None:
        lists = self._lists(b"IwPQ")
        if self.values("<BQ") != (0, 0):
            raise ValueError("it has a table of its rows")
        of_residuals, size, width, groups, bits = self.values("<BQQQQ")
        if of_residuals != 1 or width != self.width or bits != 8 or not size == groups or groups < 1 or width % groups:
            raise ValueError("its codes are broken")
        self.skip(4, 256 * self.width)
        self._check_lists(lists, size, None)

    def int8(self) -> None:
        self.header(b"IxSQ", self.items)
        numbers, _, _, width, size = self.values("<iifQQ")
        if (numbers, width, size) != (0, self.width, self.width):  # 0: eight bits, of a range for each dimension
            raise ValueError("its codes are broken")
        self.skip(4, 2 * self.width)
        self.skip(1, self.items * size)

    def binary(self) -> None:
        size = -(-self.width // 8)
        actual = self.values("<4s")
        if actual != b"IBxF":
            raise ValueError(f"it begins with {actual!r}, not b'IBxF'")
        bits, bytes_, total, trained, _ = self.values("<iiqBi")
        if (bits, bytes_, total, trained) != (8 * size, size, self.items, 1):
            raise ValueError(f"it holds {total} rows of {bits} bits")
        self.skip(1, self.items * size)

    def _lists(self, code: bytes) -> int:
        """The number of lists, after the header and the centres."""
        self.header(code, self.items)
        lists, probes = self.values("<QQ")
        if not 0 < lists <= self.items or not 0 < probes <= lists:
            raise ValueError("its number of lists is wrong")
        self.flat(lists)
        number: int = lists
        return number

    def _check_lists(self, lists: int, size: int, positions: npt.NDArray[Any] | None) -> None:
        """ValueError unless lists follow that hold all rows, of `size` bytes each, where the table of rows says."""
        if self.values("<4s") != b"ilar" or self.values("<QQ") != (lists, size):
            raise ValueError("its lists are broken")
        if self.values("<4s") == b"full":
            sizes = self.array("<u8", self.values("<Q"))
        else:
            pairs = self.array("<u8", self.values("<Q"))
            sizes = np.zeros(lists, np.uint64)
            if len(pairs) % 2 or (len(pairs) and pairs[::2].max() >= lists):
                raise ValueError("its lists are broken")
            sizes[pairs[::2].astype(np.int64)] = pairs[1::2]
        if len(sizes) != lists or sizes.max() > self.items or sizes.sum() != self.items:
            raise ValueError("the sizes of its lists are wrong")
        if positions is not None:
            numbers, inside = positions >> 32, positions & (2**32 - 1)
            if numbers.min() < 0 or numbers.max() >= lists or (inside >= sizes[numbers].astype(np.int64)).any():
                raise ValueError("its table of rows is broken")
        for count in sizes.tolist():
            self.take(count * size).release()
            self._check_rows(count, "<i8", least=0)

    def _check_rows(self, count: int, dtype: str, *, least: int) -> None:
        """ValueError unless so many numbers of rows follow."""
        rows = self.array(dtype, count)
        if len(rows) and (rows.min() < least or rows.max() >= self.items):
            raise ValueError("it names rows that there are not")
