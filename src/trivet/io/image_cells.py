"""Images in the cells of a table, as parquet files and Hugging Face data sets hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trivet.io.formats import open_rows
from trivet.io.table import is_text


@dataclass(frozen=True, eq=False)
class ImageCell:
    """The image in a cell of a column of bytes."""

    column: pa.ChunkedArray
    row: int

    def __str__(self) -> str:
        return f"the image of row {self.row}"

    def read(self) -> bytes:
        """The bytes of the image."""
        data: bytes = self.column[self.row].as_py()
        return data


class NamedImages(NamedTuple):
    """Names of the images in the cells of a table, one for equal images.

    Attributes:
        names: column of images -> the name in each row; "" where there is no image.
        cells: name -> its image; a name that is not there is the path of a file.
    """

    names: Mapping[str, Sequence[str]]
    cells: Mapping[str, ImageCell]


def holds_images(kind: pa.DataType) -> bool:
    """Test whether a column of this type holds images: their bytes, or those and a path as Hugging Face keeps them."""
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and holds_images(kind.field("bytes").type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def image_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The bytes in a column that holds images."""
    return pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column


def named_images(path: Path) -> NamedImages:
    """The images in the cells of a table, named by their paths where these tell them apart, else by column and row.

    Raises:
        ValueError: if the file is broken.
    """
    return _named_images(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)  # a ladder reads the pairs again for each encoder
def _named_images(path: Path, modified: int) -> NamedImages:
    table = open_rows(path)
    images: dict[bytes | str, tuple[str, str, ImageCell | None]] = {}  # its path, another name, and the image
    keys: dict[str, list[bytes | str]] = {}
    for name, kind in table.types.items():
        if not holds_images(kind):
            continue
        column = table.column(name, "the images")
        data, paths = image_bytes(column), [""] * table.count
        if pa.types.is_struct(kind) and kind.get_field_index("path") >= 0 and is_text(kind.field("path").type):
            paths = [path or "" for path in pc.struct_field(column, "path").to_pylist()]
        keys[name] = []
        for row, file in enumerate(paths):
            content = data[row].as_py()
            key = file if content is None else sha256(content).digest()
            keys[name].append(key)
            if key:
                cell = None if content is None else ImageCell(data, row)
                images.setdefault(key, (file, f"{name}-{row}", cell))
    files = [file for file, _, _ in images.values()]
    once = {file for file in files if file} if len(set(files)) == len(files) else set()
    names = {key: file if file in once or cell is None else other for key, (file, other, cell) in images.items()}
    cells = {names[key]: cell for key, (_, _, cell) in images.items() if cell is not None}
    return NamedImages({name: [names.get(key, "") for key in each] for name, each in keys.items()}, cells)
