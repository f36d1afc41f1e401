"""The idx file format of MNIST."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from trivet.runtime.safe_read import check_regular

MOST = 1040  # bytes for each that is compressed: the most that gzip can do


def read_idx(path: Path, *, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes, gzip-compressed if its name ends in .gz, with that many dimensions.

    Raises:
        ValueError: if the file is not of this format, or is shorter or longer than its header says.

    Source:
        LeCun, Cortes, Burges, "The MNIST database": magic number 0, 0, 8 (unsigned byte), number of dimensions; then
        the sizes as big-endian 32-bit integers; then the values, last dimension fastest.
    """
    check_regular(path, "an idx file")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * dimensions)
            if header[:4] != bytes((0, 0, 8, dimensions)) or len(header) < 4 + 4 * dimensions:
                raise ValueError(
                    f"{path} must be an idx file of bytes with {dimensions} dimensions: "
                    f"it begins with {header[:4].hex(' ')}; download it again."
                )
            shape = struct.unpack(f">{dimensions}I", header[4:])
            expected = math.prod(shape)
            if expected > MOST * path.stat().st_size:
                raise ValueError(
                    f"{path} must hold {expected} values after its header: its {path.stat().st_size} bytes cannot; "
                    "download it again."
                )
            values = file.read(expected + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must be a complete gzip file: {error}; download it again.") from None
    if len(values) != expected:
        got = f"only {len(values)}" if len(values) < expected else "more"
        raise ValueError(f"{path} must hold {expected} values after its header: it has {got}; download it again.")
    return np.frombuffer(values, np.uint8).reshape(shape)
