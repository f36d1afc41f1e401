"""Embeddings, texts and decisions on labels in files: npz, npy with csv, parquet, csv."""

from trivet.tables.cleaned import write_cleaned
from trivet.tables.decisions import Decision, read_decisions, write_decisions
from trivet.tables.parquet import write_embeddings
from trivet.tables.read import read_vectors
from trivet.tables.texts import read_texts
from trivet.tables.vectors import Vectors, class_numbers

__all__ = [
    "Decision",
    "Vectors",
    "class_numbers",
    "read_decisions",
    "read_texts",
    "read_vectors",
    "write_cleaned",
    "write_decisions",
    "write_embeddings",
]
