"""Two processes train one model on batches that they share.

torchrun --nproc-per-node 2 examples/many_devices.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trivet
from trivet.samplers import CrossBatchMemory


class Learner(nn.Module):
    """Model and loss in one module, so that the gradient of beta, too, is averaged over the processes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.loss = trivet.MarginLoss(positives="easy", negatives="semihard-hardest", reduction="mean")
        self.memory = CrossBatchMemory(size=256, embedding_dim=8)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.memory(self.loss, self.model(inputs), labels, ids, gather=True)


def train(steps: int) -> list[float]:
    """The loss of each step, the same on every process."""
    rank, processes = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(0)  # the same data on every process
    labels = torch.arange(512) % 8
    inputs = torch.randn(8, 16, generator=generator)[labels] + torch.randn(512, 16, generator=generator)

    torch.manual_seed(0)
    learner = DistributedDataParallel(Learner())
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.5)
    values = []
    for _ in range(steps):
        ids = torch.randperm(512, generator=generator)[:64][rank::processes]  # this process's share of the batch
        value = learner(inputs[ids], labels[ids], ids)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    return values


if __name__ == "__main__":
    dist.init_process_group("gloo")  # "nccl" for GPUs
    values = train(steps=40)
    if dist.get_rank() == 0:
        print(f"loss {values[0]:.3f} at first, {values[-1]:.3f} after {len(values)} steps")
    dist.destroy_process_group()
