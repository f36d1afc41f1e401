"""The kinds of index, by name; without anything that is slow to load."""

from __future__ import annotations

from typing import Literal

Stored = Literal["float16", "int8", "binary", "pq"]
Coded = Literal["int8", "binary", "ivf-pq"]
Approximate = Literal["hnsw", "ivf", Coded]
Kind = Literal["exact", Approximate]
IndexKind = Literal["auto", Kind]
Reranking = Literal["expansion", "reciprocal"]
Postprocessing = Literal["whitening", Reranking]
POSTPROCESSINGS: tuple[Postprocessing, ...] = ("whitening", "expansion", "reciprocal")
