"""Inputs of pairs whose sides are read in two ways, such as images and texts, or the tokens of two networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trivet.datasets.dataset import Inputs
from trivet.datasets.preview import Preview
from trivet.models import SidedBatch
from trivet.runtime.arrays import Integers


@dataclass(frozen=True, eq=False)
class SidedInputs:
    """N inputs of two sides, of which a batch is a `SidedBatch`.

    Attributes:
        sides: the inputs of the L items of the left side and of the N - L of the right one, in their order.
        right: `(N,)` bool, True for an item of the right side.
    """

    sides: tuple[Inputs, Inputs]
    right: npt.NDArray[np.bool_]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of an input of the left side, and of one of the right side."""
        return (self.sides[0].shape, self.sides[1].shape)

    def __len__(self) -> int:
        return len(self.right)

    @cached_property
    def _positions(self) -> Integers:
        """The position `(N,)` of each item in the inputs of its side."""
        positions: Integers = np.where(self.right, self.right.cumsum(), (~self.right).cumsum()) - 1
        return positions

    def batch(self, index: np.ndarray) -> Any:
        """The items at the positions `index (B,)` as a `SidedBatch`."""
        left, right = (
            side.batch(positions) if len(positions) else torch.empty(0)
            for side, (positions, _) in zip(self.sides, self.divided(index, slice(None)), strict=True)
        )
        return SidedBatch(torch.from_numpy(self.right[index]), (left, right))

    def divided(self, index: np.ndarray, rows: slice) -> list[tuple[Integers, slice]]:
        """The positions of items `index (B,)` in the inputs of each side, and which of these are of consecutive rows.

        Args:
            rows: of the B.
        """
        right, positions = self.right[index], self._positions[index]
        start, stop, _ = rows.indices(len(index))
        return [
            (positions[of_side], slice(int(of_side[:start].sum()), int(of_side[:stop].sum())))
            for of_side in (~right, right)
        ]

    def show(self, index: int) -> Preview:
        return self.sides[int(self.right[index])].show(int(self._positions[index]))

    def subset(self, index: np.ndarray) -> SidedInputs:
        left, right = (
            side.subset(positions)
            for side, (positions, _) in zip(self.sides, self.divided(index, slice(None)), strict=True)
        )
        return SidedInputs((left, right), self.right[index])


def sides_of(inputs: Inputs) -> tuple[Inputs, ...]:
    """The inputs of each side, or those that have no sides alone."""
    return inputs.sides if isinstance(inputs, SidedInputs) else (inputs,)


def positions_of_sides(inputs: Inputs) -> tuple[Integers, ...]:
    """The positions of the items of each side, or of all where they have no sides."""
    if isinstance(inputs, SidedInputs):
        return np.flatnonzero(~inputs.right), np.flatnonzero(inputs.right)
    return (np.arange(len(inputs)),)


def with_sides(inputs: Inputs, sides: Sequence[Inputs]) -> Inputs:
    """The inputs with others in place of those of each side."""
    if isinstance(inputs, SidedInputs):
        return replace(inputs, sides=(sides[0], sides[1]))
    return sides[0]
