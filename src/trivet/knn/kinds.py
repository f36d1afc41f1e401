"""The kinds of index, by name; without anything that is slow to load."""

from __future__ import annotations

from typing import Literal

Code = Literal["int8", "binary", "pq"]
Stored = Literal["float16", Code]
Coded = Literal[Code, "ivf-pq"]
Approximate = Literal["hnsw", "ivf", Coded]
Kind = Literal["exact", Approximate]
IndexKind = Literal["auto", Kind]
