"""The elements of a mat file, compared with what the file holds before scipy reads it.

scipy trusts the sizes that a file says, and some damaged files end the process. The format: "MAT-File Format", The
MathWorks, chapter 1, level 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

from trivet.runtime.safe_read import DEEPEST, EXPANDED, RATIO

HEADER = 128  # bytes
INT8, INT32, UINT32, MATRIX, COMPRESSED, UTF8 = 1, 5, 6, 14, 15, 16  # kinds of elements
SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, UTF8: 1, 17: 2, 18: 4}  # bytes of a value
CELLS, STRUCTURE, TEXT, NUMBERS = 1, 2, 4, range(6, 16)  # classes of matrices
COMPLEX = 0x0800  # of the flags of a matrix


def check_elements(data: bytes) -> None:
    """Check that every element lies in the one that holds it, and has as many values as its shape says.

    Raises:
        ValueError: if it does not, or the file holds something else than numbers, texts, cells and structures; the
            sentence is without its beginning.
        zlib.error: if a compressed element is broken.
    """
    order = {b"IM": "<", b"MI": ">"}.get(data[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("it is none of version 5 to 7")
    elements, expanded = _Elements(data, order, HEADER, len(data)), len(data)
    while elements.start < elements.stop:
        kind, inside = elements.take(padded=False)
        if kind == COMPRESSED:
            packed = data[inside.start : inside.stop]
            begun = zlib.decompressobj().decompress(packed, 8)
            size = 8 + struct.unpack(f"{order}II", begun)[1]
            expanded += size
            if expanded > EXPANDED and expanded > RATIO * len(data):
                raise ValueError(f"it has {len(data)} bytes and expands to {expanded:.3g}, far more than it holds")
            unpacked = zlib.decompressobj().decompress(packed, size)
            kind, inside = _Elements(unpacked, order, 0, len(unpacked)).take()
        _check_matrix(kind, inside, 0)


@dataclass
class _Elements:
    """The elements between two positions of some bytes, taken in order."""

    data: bytes
    order: str
    start: int
    stop: int

    def take(self, *, padded: bool = True) -> tuple[int, _Elements]:
        """The kind of the next element, and what lies in it."""
        if self.start + 8 > self.stop:
            raise ValueError("it ends too early")
        kind, size = struct.unpack_from(f"{self.order}II", self.data, self.start)
        if kind >> 16:  # a small one, whose values lie in its tag
            kind, size, start, end = kind & 0xFFFF, kind >> 16, self.start + 4, self.start + 8
        else:
            start = self.start + 8
            end = start + (-(-size // 8) * 8 if padded and kind != COMPRESSED else size)
        if start + size > min(end, self.stop):
            raise ValueError("an element is larger than what holds it")
        inside = _Elements(self.data, self.order, start, start + size)
        self.start = min(end, self.stop)
        return kind, inside

    def numbers(self, *kinds: int) -> tuple[int, ...]:
        """The values of the next element, which must be whole numbers of 4 bytes."""
        kind, inside = self.take()
        if kind not in kinds or inside.size % 4:
            raise ValueError("an element is of another kind")
        return struct.unpack_from(f"{self.order}{inside.size // 4}i", self.data, inside.start)

    @property
    def size(self) -> int:
        """In bytes."""
        return self.stop - self.start


def _check_matrix(kind: int, inside: _Elements, depth: int) -> None:
    if kind != MATRIX:
        raise ValueError("an element is of another kind")
    if not inside.size:  # an empty matrix
        return
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    flags, shape = inside.numbers(UINT32), inside.numbers(INT32)
    name, _ = inside.take()
    if len(flags) != 2 or len(shape) < 2 or min(shape) < 0 or name != INT8:
        raise ValueError("an element is of another kind")
    count, matrix_class = math.prod(shape), flags[0] & 0xFF
    if matrix_class == STRUCTURE:
        length = inside.numbers(INT32)
        name, names = inside.take()
        if name != INT8 or len(length) != 1 or length[0] < 1 or names.size % length[0]:
            raise ValueError("an element is of another kind")
        count *= names.size // length[0]
    if matrix_class in (CELLS, STRUCTURE):
        if count > inside.size // 8:
            raise ValueError("it has fewer elements than it says")
        for _ in range(count):
            _check_matrix(*inside.take(), depth + 1)
    elif matrix_class == TEXT or matrix_class in NUMBERS:
        for _ in range(2 if flags[0] & COMPLEX else 1):
            values, content = inside.take()
            if values not in SIZES or content.size % SIZES[values]:
                raise ValueError("an element is of another kind")
            if content.size // SIZES[values] != count and not (values == UTF8 and content.size > count):
                raise ValueError(f"it holds {content.size} bytes for values of shape {shape}")
    else:
        raise ValueError("it holds something else than numbers, texts, cells and structures")
