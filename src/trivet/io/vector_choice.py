"""Choice of the vectors of a file, where it leaves that open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Codes = Literal["bits", "int8", "uint8"]


@dataclass(frozen=True)
class VectorChoice:
    """Answers to what a file of vectors may leave open.

    Attributes:
        table: the file of the rows, of a file of numbers alone; by default the one beside it.
        embedding: the column of the vectors, or the first of numbered ones; by default the only one, or the only one
            with a usual name.
        codes: what whole numbers stand for, see `trivet.io.vector_columns.decoded`; None if they are floating point.
    """

    table: Path | None = None
    embedding: str | None = None
    codes: Codes | None = None


NO_CHOICE = VectorChoice()
