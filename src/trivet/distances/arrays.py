"""Arrays from anywhere, numpy or torch, as the float64 rows and class numbers of measures."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trivet.distances.device import precise
from trivet.distances.pairwise import check_dense, check_embeddings
from trivet.runtime.arrays import Array, how_to_align, how_to_float, how_to_number


def as_rows(embeddings: Array) -> Tensor:
    """Embeddings as a detached float64 tensor `(N, d)`, on their device, or on the CPU if that has no float64.

    Raises:
        ValueError: if they are not a finite floating-point `(N, d)` array.
    """
    if isinstance(embeddings, np.ndarray):
        if embeddings.dtype.kind != "f":
            raise ValueError(f"embeddings must be floating point: got {embeddings.dtype}; {how_to_float(embeddings)}.")
        embeddings = torch.from_numpy(embeddings.astype(np.float64, order="C"))
    check_embeddings(embeddings)
    return precise(embeddings.detach()).to(torch.float64)


def as_classes(labels: Array, *, count: int, name: str = "labels") -> Tensor:
    """Labels of any integer dtype as class numbers 0 .. C - 1 `(N,)` int64, exact for every 64-bit value.

    Raises:
        ValueError: if they are not integers (bool counts as not), or not one per embedding.
    """
    if isinstance(labels, Tensor):
        check_dense(labels, name=name)
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (count,):
        raise ValueError(
            f"{name} must hold one class per embedding: got shape {values.shape} for {count} embeddings; "
            f"{how_to_align(labels, name, count)}."
        )
    if values.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers: got {values.dtype}; {how_to_number(labels, name)}.")
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))
