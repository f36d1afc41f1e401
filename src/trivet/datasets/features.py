"""Inputs with their features: what a frozen encoder makes of each, computed once, is read in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from trivet.datasets.dataset import Inputs, RowInputs, Splits
from trivet.datasets.preview import Preview


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
    features: np.ndarray
    rows: np.ndarray
    encoder: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input, not of its features."""
        return self.inputs.shape

    def batch(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.features[self.rows[index]], np.float32))

    def show(self, index: int) -> Preview:
        return self.inputs.show(index)

    def subset(self, index: np.ndarray) -> Self:
        return replace(self, inputs=self.inputs.subset(index), rows=self.rows[index])


def loaded_inputs(inputs: Inputs) -> Inputs:
    """The inputs without features."""
    return inputs.inputs if isinstance(inputs, FeatureInputs) else inputs


def without_features(splits: Splits) -> Splits:
    """The splits with their inputs as they were loaded."""
    evaluation = {name: replace(items, inputs=loaded_inputs(items.inputs)) for name, items in splits.evaluation.items()}
    return replace(
        splits, train=replace(splits.train, inputs=loaded_inputs(splits.train.inputs)), evaluation=evaluation
    )
