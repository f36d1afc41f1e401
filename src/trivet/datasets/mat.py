"""Matlab's mat files of version 5 to 7, as data sets are published in.

Every size that a file says is compared with what holds it: scipy trusts them, and some damaged files end its process.
The format: "MAT-File Format", The MathWorks, chapter 1, level 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from trivet.datasets.archives import Tree
from trivet.runtime.safe_read import DEEPEST, EXPANDED, RATIO

Value = np.ndarray | str | list["Value"] | dict[str, list["Value"]]  # numbers, a text, cells, the fields of structures
HEADER = 128  # bytes
INT8, INT32, UINT32, MATRIX, COMPRESSED, UTF8 = 1, 5, 6, 14, 15, 16  # kinds of elements
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8", 17: "u2", 18: "u4"}
CELLS, STRUCTURE, TEXT, NUMBERS = 1, 2, 4, range(6, 16)  # classes of matrices
COMPLEX = 0x0800  # of the flags of a matrix


class Mat:
    """The variables of a mat file: real numbers, texts, cells and structures.

    Raises:
        ValueError: if the file is broken, of version 7.3, or holds anything else.
    """

    def __init__(self, tree: Tree, name: str) -> None:
        self.path = tree.source(name)
        data = tree.read(name)
        if data[:10] == b"MATLAB 7.3" or data[:8] == b"\x89HDF\r\n\x1a\n":
            raise ValueError(
                f"{self.path} must be a mat file of version 5 to 7: it is of 7.3; save it again in Matlab with "
                "save(..., '-v7')."
            )
        try:
            self._variables = dict(_variables(data))
        except (ValueError, struct.error, zlib.error) as error:
            raise ValueError(f"{self.path} must be a complete mat file: {error}; get it again.") from None

    def has_field(self, name: str) -> bool:
        """True if the elements of a variable have a field, "annotations.class"."""
        variable, _, field = name.partition(".")
        fields = self._variables.get(variable)
        return isinstance(fields, dict) and field in fields

    def texts(self, name: str) -> list[str]:
        """A column as texts."""
        return [str(value) for value in self._column(name)]

    def integers(self, name: str) -> np.ndarray:
        """A column as `(N,)` int64; ValueError if it holds something else."""
        return self._numbers(name, np.int64)

    def floats(self, name: str) -> np.ndarray:
        """A column as `(N,)` float64; ValueError if it holds something else."""
        return self._numbers(name, np.float64)

    def positions(self, name: str, count: int) -> np.ndarray:
        """A column of numbers from 1 to `count` as positions from 0; ValueError if it holds none, or others."""
        positions = self.integers(name) - 1
        if not len(positions) or positions.min() < 0 or positions.max() >= count:
            raise ValueError(f"{name} of {self.path} must hold numbers from 1 to {count}; get it again.")
        return positions

    def _column(self, name: str) -> list[object]:
        """The values of a variable, or of a field "annotations.fname" of each element of one."""
        variable, _, field = name.partition(".")
        values = self._variables.get(variable)
        if field:
            values = values.get(field) if isinstance(values, dict) else None
        if values is None or isinstance(values, dict):
            raise ValueError(f"{self.path} must hold {name!r}: it does not; get it again.")
        single = [values] if isinstance(values, str) else values
        return [value.item() if isinstance(value, np.ndarray) and value.size == 1 else value for value in single]

    def _numbers(self, name: str, dtype: type[np.generic]) -> np.ndarray:
        column = self._column(name)
        try:
            return np.array(column, dtype)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name!r} of {self.path} must hold numbers; get it again.") from None


class _Elements:
    """The elements in some bytes, taken in order."""

    def __init__(self, data: bytes | memoryview, order: str) -> None:
        self.left, self.order = memoryview(data), order

    def take(self, *, padded: bool = True) -> tuple[int, memoryview]:
        """Take the next element: its kind, and what lies in it."""
        if len(self.left) < 8:
            raise ValueError("it ends too early")
        kind, size = struct.unpack_from(f"{self.order}II", self.left)
        start, end = 8, 8 + (-(-size // 8) * 8 if padded and kind != COMPRESSED else size)
        if kind >> 16:  # a small one, whose values lie in its tag
            kind, size, start, end = kind & 0xFFFF, kind >> 16, 4, 8
        if start + size > min(end, len(self.left)):
            raise ValueError("an element is larger than what holds it")
        inside, self.left = self.left[start : start + size], self.left[end:]
        return kind, inside

    def take_kind(self, *kinds: int) -> memoryview:
        """Take the next element and return what lies in it; ValueError if it is of another kind."""
        kind, inside = self.take()
        if kind not in kinds:
            raise ValueError("an element is of another kind")
        return inside

    def integers(self) -> tuple[int, ...]:
        """The values of the next element, which must be whole numbers of 4 bytes."""
        inside = self.take_kind(INT32, UINT32)
        return struct.unpack(f"{self.order}{len(inside) // 4}i", inside)


def _variables(data: bytes) -> Iterator[tuple[str, Value]]:
    order = {b"IM": "<", b"MI": ">"}.get(data[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("it is none of version 5 to 7")
    elements, expanded = _Elements(data[HEADER:], order), len(data)
    while elements.left:
        kind, inside = elements.take(padded=False)
        if kind == COMPRESSED:
            size = 8 + struct.unpack(f"{order}II", zlib.decompressobj().decompress(inside, 8))[1]
            expanded += size
            if expanded > EXPANDED and expanded > RATIO * len(data):
                raise ValueError(f"it has {len(data)} bytes and expands to {expanded:.3g}, far more than it holds")
            kind, inside = _Elements(zlib.decompressobj().decompress(inside, size), order).take()
        yield _matrix(kind, inside, order, 0)


def _matrix(kind: int, content: memoryview, order: str, depth: int) -> tuple[str, Value]:
    """The name and the value of a matrix; of numbers in the order of the file, column after column."""
    if kind != MATRIX:
        raise ValueError("an element is of another kind")
    if not content:
        return "", np.empty(0)
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    inside = _Elements(content, order)
    flags, shape, name = inside.integers(), inside.integers(), bytes(inside.take_kind(INT8)).decode()
    if len(flags) != 2 or len(shape) < 2 or min(shape) < 0:
        raise ValueError("an element is of another kind")
    count, matrix_class = math.prod(shape), flags[0] & 0xFF
    if matrix_class in (CELLS, STRUCTURE):
        fields = _field_names(inside) if matrix_class == STRUCTURE else [""]
        if count * len(fields) > len(inside.left) // 8:
            raise ValueError("it has fewer elements than it says")
        values = [_matrix(*inside.take(), order, depth + 1)[1] for _ in range(count * len(fields))]
        columns = {field: values[i :: len(fields)] for i, field in enumerate(fields)}
        return name, columns if matrix_class == STRUCTURE else values
    if flags[0] & COMPLEX or (matrix_class != TEXT and matrix_class not in NUMBERS):
        raise ValueError("it holds something else than real numbers, texts, cells and structures")
    values_kind, content = inside.take()
    if values_kind == UTF8:
        text = bytes(content).decode()
    else:
        numbers = np.frombuffer(content, f"{order}{TYPES.get(values_kind, 'V0')}")
        if len(numbers) != count:
            raise ValueError(f"it holds {len(content)} bytes for values of shape {shape}")
        if matrix_class != TEXT:
            return name, numbers
        text = "".join(map(chr, numbers.tolist()))
    if shape[0] < 2:
        return name, text
    return name, ["".join(row).rstrip() for row in np.array(list(text)).reshape(shape, order="F").tolist()]


def _field_names(inside: _Elements) -> list[str]:
    """The names of the fields of a structure, each of which takes as many bytes."""
    length, names = inside.integers(), bytes(inside.take_kind(INT8))
    if len(length) != 1 or length[0] < 1 or len(names) % length[0]:
        raise ValueError("an element is of another kind")
    return [names[i : i + length[0]].split(b"\0")[0].decode() for i in range(0, len(names), length[0])]
