"""Texts as they are, for a network that reads them: their tokens, once for the whole data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from trivet.datasets.dataset import RowInputs
from trivet.models import Tokens, fit_ngrams


@dataclass(frozen=True, eq=False)
class TextInputs(RowInputs):
    """Texts, of which a batch is the token ids `(B, L)` int64, L those of its longest text, -1 where one has ended.

    Attributes:
        texts: M texts, shared by all subsets, as are their tokens.
        tokens: of the M texts.
        rows: `(N,)` the texts that these inputs are.
        trained: the texts of the training part, of whose characters n-grams are made.
    """

    texts: Sequence[str]
    tokens: Tokens
    rows: np.ndarray
    trained: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The most tokens that a text may have."""
        return (self.tokens.longest,)

    def batch(self, index: np.ndarray) -> Tensor:
        return self.tokens.padded(self.rows[index])

    def show(self, index: int) -> str:
        return self.texts[int(self.rows[index])]

    def ngrams(self) -> np.ndarray:
        """Vectors `(N, d)` of the texts by their character n-grams, see `trivet.models.fit_ngrams`."""
        vectors = fit_ngrams([self.texts[row] for row in self.trained.tolist()])
        return vectors([self.texts[row] for row in self.rows.tolist()])
