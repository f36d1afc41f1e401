"""Texts that need no library of texts, and a network of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SOFTMAX = {"normalize": True, "temperature": 0.05}


class Encoder(nn.Module):
    """Embeds the mean of the rows that a text's numbers name, as a model of sentence-transformers gives it."""

    def __init__(self, embedding_dim: int = 6) -> None:
        super().__init__()
        self.rows = nn.EmbeddingBag(40, embedding_dim)
        nn.init.normal_(self.rows.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**features, "sentence_embedding": self.rows(features["input_ids"])}


def texts(columns: int, size: int = 7, seed: int = 1) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [{"input_ids": torch.randint(40, (size, 3), generator=generator)} for _ in range(columns)]
