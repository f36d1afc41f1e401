"""One of two processes of a `SentenceLoss` with gathered negatives; compares with one process that has all texts."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trivet
from trivet.integrations.sentence_transformers import SentenceLoss

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


SIZE = 8


def gradient(model: torch.nn.Module) -> Tensor:
    (weight,) = model.parameters()
    assert weight.grad is not None
    return weight.grad


def main(rank: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    part = slice(rank * SIZE // 2, (rank + 1) * SIZE // 2)
    softmax = trivet.NPairLoss(**SOFTMAX)
    triplets = trivet.TripletLoss(positives="all", negatives="all", normalize=True)
    for loss, columns, both in [(softmax, 2, False), (softmax, 3, True), (triplets, 1, False)]:
        labels = torch.arange(SIZE) % 3 if columns == 1 else None
        alone = Encoder()
        expected = SentenceLoss(alone, loss, both_directions=both)(texts(columns, SIZE), labels)
        expected.backward()

        model = DistributedDataParallel(Encoder())
        own = [{"input_ids": column["input_ids"][part]} for column in texts(columns, SIZE)]
        shared = SentenceLoss(model, loss, gather=True, both_directions=both)
        value = shared(own, None if labels is None else labels[part])
        value.backward()
        mean = value.detach().clone()
        dist.all_reduce(mean)
        torch.testing.assert_close(mean / 2, expected.detach())
        torch.testing.assert_close(gradient(model), gradient(alone), rtol=1e-4, atol=1e-6)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)  # threads of gloo may abort a process that leaves in the usual way
