"""A small transformer on sequences of word numbers, as a network of one's own, for `guard.py`."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SmallTransformer(nn.Module):
    """Word numbers `(B, L)` as floats, 0 for padding, to the mean state of the words, `(B, embedding_dim)`.

    Args:
        input_shape: `(L,)`.
        embedding_dim: width of the states.
        words: how many there are, with the padding.
        layers, dropout: as in `torch.nn.TransformerEncoder`.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        words: int = 200,
        layers: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, embedding_dim, padding_idx=0)
        self.places = nn.Embedding(input_shape[0], embedding_dim)
        layer = nn.TransformerEncoderLayer(
            embedding_dim, 2, 2 * embedding_dim, dropout, batch_first=True, activation="gelu"
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, inputs: Tensor) -> Tensor:
        numbers = inputs.round().long()
        there = numbers > 0
        there = there | (~there.any(dim=1, keepdim=True))  # of an empty sequence all places count
        states = self.words(numbers) + self.places(torch.arange(numbers.shape[1], device=numbers.device))
        states = self.layers(states, src_key_padding_mask=~there)
        return (states * there[:, :, None]).sum(dim=1) / there.sum(dim=1, keepdim=True)
