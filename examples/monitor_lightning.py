"""A Lightning training with a monitor, which logs what it sees and says how held-out items end.

Batches raise the suspicion, and 300 digits that are not trained on decide.

python examples/monitor_lightning.py
"""

import argparse
import csv
import tempfile
from pathlib import Path

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, TensorDataset

import trivet
from trivet.collapse import CollapseMonitor
from trivet.integrations.lightning import MonitorCallback


class Learner(lightning.LightningModule):
    """A small network with batch-hard triplets; the learning rate is too high for them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(64, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, 32),
        )
        self.loss = trivet.TripletLoss(positives="hard", negatives="hard")

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels = batch
        value: torch.Tensor = self.loss(normalize(self.model(images)), labels)
        self.log("loss", value)
        return value

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(steps: int = 200) -> CollapseMonitor:
    """Train on the digits of scikit-learn, and print what the monitor saw."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    data = TensorDataset(images[300:], labels[300:])

    def probe(module: lightning.LightningModule) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings of the digits held out, asked for at the first step and where batches are suspicious."""
        return normalize(module.model(images[:300])), labels[:300]

    torch.manual_seed(0)
    monitor = CollapseMonitor(steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        logger = CSVLogger(folder)
        trainer = lightning.Trainer(
            max_steps=steps,
            accelerator="cpu",
            log_every_n_steps=10,
            logger=logger,
            callbacks=[MonitorCallback(monitor, "loss", probe=probe)],  # the one line a training needs
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Learner(), DataLoader(data, batch_size=64, shuffle=True, drop_last=True))
        with Path(logger.log_dir, "metrics.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["collapse/relative_spread"]]
    print(f"{trainer.global_step} steps")
    for row in rows[:: max(1, len(rows) // 5)]:
        print(f"logged at step {row['step']}: relative spread {float(row['collapse/relative_spread']):.4f}")
    for event in monitor.events:
        print(f"{event.title}: {event.rule}", *event.changes, sep="\n  ")
    return monitor


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    main(**vars(parser.parse_args()))
