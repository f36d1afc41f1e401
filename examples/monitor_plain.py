"""A plain PyTorch loop with a monitor. Batch-hard triplets at a high learning rate draw all items to one point.

Batches raise the suspicion, and 300 digits that are not trained on decide: they are told apart still, so it stays one.

python examples/monitor_plain.py
python examples/monitor_plain.py --loss foreign      a loss and a miner of pytorch-metric-learning
python examples/monitor_plain.py --positives easy    what the monitor proposes does not collapse
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import normalize

import trivet
from trivet.collapse import CollapseMonitor


class BatchHard(nn.Module):
    """A loss that Trivet knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        from pytorch_metric_learning import distances, losses, miners

        squared = distances.LpDistance(power=2)
        self.miner = miners.BatchHardMiner(distance=squared)
        self.loss = losses.TripletMarginLoss(margin=0.2, distance=squared)

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.loss(embeddings, labels, self.miner(embeddings, labels))


def train(loss: nn.Module, monitor: CollapseMonitor, *, steps: int = 200) -> None:
    """Train on the digits of scikit-learn, and print how held-out ones ended."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    images, labels, held_out, held_out_labels = images[300:], labels[300:], images[:300], labels[:300]

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 32),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    @torch.no_grad()
    def probe() -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings of the digits held out, asked for at the first step and where batches are suspicious."""
        model.eval()
        embeddings = normalize(model(held_out))
        model.train()
        return embeddings, held_out_labels

    for step in range(steps):
        batch = torch.randint(len(images), (64,))
        embeddings = normalize(model(images[batch]))
        value = loss(embeddings, labels[batch])
        monitor.update(embeddings, labels[batch], value, step=step, probe=probe)  # the one line a loop needs
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    print(monitor.close(probe))


def main(loss: str = "trivet", positives: str = "hard", steps: int = 200) -> CollapseMonitor:
    """Train, and print what the monitor saw."""
    monitor = CollapseMonitor(steps=steps)
    module = BatchHard() if loss == "foreign" else trivet.TripletLoss(positives=positives, negatives="hard")
    train(module, monitor, steps=steps)
    spread = monitor.series["relative_spread"]
    print(f"{steps} steps; relative spread {spread[0]:.4f} at first, {spread[-1]:.4f} at last")
    for event in monitor.events:
        print(f"{event.title}: {event.rule}", *event.changes, sep="\n  ")
    if not monitor.events:
        print("no event")
    return monitor


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=["trivet", "foreign"], default="trivet")
    parser.add_argument("--positives", choices=["hard", "easy"], default="hard", help="of the loss of Trivet")
    parser.add_argument("--steps", type=int, default=200)
    main(**vars(parser.parse_args()))
