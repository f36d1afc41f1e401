"""Inputs with their features: what a frozen encoder makes of each, computed once, is read in its place."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from trivet.datasets.dataset import Inputs, RowInputs
from trivet.datasets.inputs import FileInputs
from trivet.datasets.preview import Preview
from trivet.datasets.sides import SidedInputs, with_sides
from trivet.datasets.texts import TextInputs

KEYED = 2**24  # bytes of inputs whose keys are computed at once


class Rows(Protocol):
    """Rows `(M, F)` of which an index `(B,)` gives `(B, F)` float32."""

    def __getitem__(self, index: np.ndarray, /) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class FeatureInputs(RowInputs):
    """Inputs of which a batch is their features `(B, F)` float32; all else is that of the inputs themselves.

    Attributes:
        inputs: the N inputs that are pictured, and from which the features are.
        features: `(M, F)`, shared by all subsets.
        rows: `(N,)` the rows of `features` that these inputs are.
        encoder: the fingerprint of the encoder, with all that is done to an input before it.
    """

    inputs: Inputs
    features: Rows
    rows: np.ndarray
    encoder: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input, not of its features."""
        return self.inputs.shape

    def batch(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.features[self.rows[index]])

    def show(self, index: int) -> Preview:
        return self.inputs.show(index)

    def subset(self, index: np.ndarray) -> Self:
        return replace(self, inputs=self.inputs.subset(index), rows=self.rows[index])


def loaded_inputs(inputs: Inputs) -> Inputs:
    """The inputs without features."""
    if isinstance(inputs, SidedInputs):
        return with_sides(inputs, [loaded_inputs(side) for side in inputs.sides])
    return inputs.inputs if isinstance(inputs, FeatureInputs) else inputs


def item_keys(inputs: Inputs) -> list[bytes]:
    """A value of 16 bytes for each input, which inputs share if they are equal, in any data set.

    It is of the bytes of an image file and how it is brought to its size, of the tokens of a text, or of what a batch
    has of the input. A file that cannot be read any more shares it with none.
    """
    if isinstance(inputs, TextInputs):
        starts, ids = inputs.tokens.starts, inputs.tokens.ids
        return [key_of(ids[starts[row] : starts[row + 1]].tobytes()) for row in inputs.rows.tolist()]
    if isinstance(inputs, FileInputs) and inputs.decoded is None:
        return [_file_key(inputs, row) for row in inputs.rows.tolist()]
    if not len(inputs):
        return []
    first = inputs.batch(np.arange(1))
    step = max(1, KEYED // max(1, first.numel() * first.element_size()))
    batches = (inputs.batch(np.arange(start, min(start + step, len(inputs)))) for start in range(0, len(inputs), step))
    return [key_of(row.tobytes()) for batch in batches for row in batch.numpy()]


def _file_key(inputs: FileInputs, row: int) -> bytes:
    source, box = inputs.sources[row], None if inputs.boxes is None else inputs.boxes[row].tolist()
    try:
        content = source.read_bytes() if isinstance(source, Path) else source.read()  # type: ignore[union-attr]  # else: as broken
    except Exception:  # a damaged archive makes zipfile and zlib raise many kinds
        return os.urandom(16)
    return key_of(content, repr((inputs.frame, inputs.full_size, box)).encode())


def key_of(*values: bytes) -> bytes:
    """The first 16 bytes of the digest of values, and of their lengths."""
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        digest.update(len(value).to_bytes(8, "little"))
        digest.update(value)
    return digest.digest()
