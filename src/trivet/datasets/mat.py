"""Matlab's mat files, as data sets are published in."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from trivet.datasets.archives import Tree
from trivet.datasets.mat_elements import check_elements


class Mat:
    """The variables of a mat file.

    Raises:
        ValueError: if the file is broken, or of version 7.3.
    """

    def __init__(self, tree: Tree, name: str) -> None:
        from scipy.io import loadmat

        self.path = tree.source(name)
        data = tree.read(name)
        if data[:10] == b"MATLAB 7.3" or data[:8] == b"\x89HDF\r\n\x1a\n":
            raise ValueError(
                f"{self.path} must be a mat file of version 5 to 7: it is of 7.3; save it again in Matlab with "
                "save(..., '-v7')."
            )
        try:
            check_elements(data)
            self._variables = loadmat(io.BytesIO(data), squeeze_me=True)
        except Exception as error:  # broken bytes make scipy raise anything
            raise ValueError(f"{self.path} must be a complete mat file: {error}; get it again.") from None

    def column(self, name: str) -> np.ndarray:
        """A variable as `(N,)`, or a field "annotations.fname" of each element of one; ValueError if it is missing."""
        variable, _, field = name.partition(".")
        try:
            values = np.atleast_1d(self._variables[variable])
            return values[field] if field else values
        except (KeyError, ValueError, IndexError):
            raise ValueError(f"{self.path} must hold {name!r}: it does not; get it again.") from None

    def has_field(self, name: str) -> bool:
        """True if the elements of a variable have a field, "annotations.class"."""
        variable, _, field = name.partition(".")
        return field in (np.atleast_1d(self._variables.get(variable, 0)).dtype.names or ())

    def integers(self, name: str) -> np.ndarray:
        """A column as int64; ValueError if it holds something else."""
        return self._as(name, np.int64, "whole numbers")

    def floats(self, name: str) -> np.ndarray:
        """A column as float64; ValueError if it holds something else."""
        return self._as(name, np.float64, "numbers")

    def texts(self, name: str) -> list[str]:
        """A column as texts."""
        return [str(value) for value in self.column(name).tolist()]

    def positions(self, name: str, count: int) -> np.ndarray:
        """A column of numbers from 1 to `count` as positions from 0; ValueError if it holds none, or others."""
        positions = self.integers(name) - 1
        if not len(positions) or positions.min() < 0 or positions.max() >= count:
            raise ValueError(f"{name} of {self.path} must hold numbers from 1 to {count}; get it again.")
        return positions

    def _as(self, name: str, dtype: Any, kind: str) -> np.ndarray:
        column = self.column(name)
        try:
            values: np.ndarray = column.astype(dtype)
        except (TypeError, ValueError):
            raise ValueError(f"{name!r} of {self.path} must hold {kind}; get it again.") from None
        return values
