"""Micro-batches in foreign trainings: Lightning, the Trainer of transformers, a sentence-transformers model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from tests.integrations.trainers import LIGHTNING_WARNINGS, lightning_trainer, trainer_of
from tests.small_texts import text_network
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel

import trivet
from trivet.collapse.monitor import CollapseMonitor
from trivet.integrations.lightning import MonitorCallback
from trivet.samplers import micro_batches

pytestmark = LIGHTNING_WARNINGS
STEPS, BATCH, SIZE = 3, 12, 5


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def count_passes(part: nn.Module) -> list[int]:
    seen: list[int] = []
    part.register_forward_hook(lambda _, __, out: seen.append(len(out)))
    return seen


class Points(lightning.LightningModule):
    def __init__(self, size: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.size = size
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        self.loss = trivet.TripletLoss(positives="hard", negatives="hard", margin=1.0)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        points, labels = batch
        return micro_batches(self.model, self.loss, points, labels, size=self.size)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_lightning_trains_the_same_network(precision: Any) -> None:
    points = torch.randn(STEPS * BATCH, 6, generator=torch.Generator().manual_seed(1))
    rows = [(point, torch.tensor(i % 3)) for i, point in enumerate(points)]
    found, monitor = [], CollapseMonitor(every=1)
    for size in (BATCH, SIZE):
        task = Points(size)
        passes = count_passes(task.model[0])
        watching = [MonitorCallback(monitor, "loss")] if size == SIZE else []
        trainer = lightning_trainer(max_steps=STEPS, precision=precision, callbacks=watching)
        trainer.fit(task, DataLoader(rows, batch_size=BATCH))
        found.append((weights(task), passes))
    (whole, once), (pieces, twice) = found
    moved = (whole - weights(Points(SIZE))).norm()
    assert (pieces - whole).norm() < {"32-true": 1e-5, "bf16-mixed": 2e-2}[precision] * moved
    assert (once, twice) == ([BATCH] * STEPS, [4] * 5 * STEPS)
    assert monitor.series["step"] == [0, 1, 2]


class Reader(nn.Module):
    """A small BERT, the mean over the words, and a loss."""

    def __init__(self, size: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.size = size
        shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        self.bert = BertModel(BertConfig(vocab_size=20, **shape), add_pooling_layer=False)  # with its dropout
        self.loss = trivet.MarginLoss(positives="easy", negatives="hard")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        return {"loss": micro_batches(self.embed, self.loss, inputs, labels, size=self.size)}

    def embed(self, inputs: dict[str, Tensor]) -> Tensor:
        states: Tensor = self.bert(**inputs).last_hidden_state
        mask = inputs["attention_mask"][:, :, None]
        return (states * mask).sum(1) / mask.sum(1)


def sentences() -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(2)
    rows = []
    for i in range(STEPS * BATCH):
        words = torch.randint(1, 20, (7,), generator=draw)
        mask = (torch.arange(7) < 3 + i % 5).long()
        rows.append({"input_ids": words * mask, "attention_mask": mask, "labels": torch.tensor(i % 3)})
    return rows


def test_the_trainer_of_transformers_trains_the_same_network(tmp_path: Path) -> None:
    found = []
    for size in (BATCH, SIZE):
        model = Reader(size)
        for part in model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        passes = count_passes(model.bert.embeddings)
        options = {"max_steps": STEPS, "learning_rate": 0.05, "optim": "sgd"}
        trainer = trainer_of(model, tmp_path, sentences(), batch=BATCH, options=options)
        trainer.train()
        found.append((weights(model), passes))
    (whole, once), (pieces, twice) = found
    moved = (whole - weights(Reader(SIZE))).norm()
    assert (pieces - whole).norm() < 1e-4 * moved
    assert (once, twice) == ([BATCH] * STEPS, [4] * 5 * STEPS)


class Sentences(nn.Module):
    """What a trainer of sentence-transformers calls as its loss."""

    def __init__(self, model: Any, size: int) -> None:
        super().__init__()
        self.model, self.size = model, size
        self.loss = trivet.TripletLoss(positives="hard", negatives="hard")

    def forward(self, sentence_features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        (features,) = sentence_features
        return micro_batches(self.embed, self.loss, features, labels, size=self.size)

    def embed(self, features: dict[str, Tensor]) -> Tensor:
        embeddings: Tensor = self.model(features)["sentence_embedding"]
        return embeddings


def test_a_loss_of_sentence_transformers_has_the_same_gradient(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = text_network(tmp_path / "model")
    texts = ["card lost", "lost card again", "where is my card", "top up failed", "top up", "pay rent", "rent due"]
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    found = []
    for size in (7, 2):
        model = library.SentenceTransformer(str(folder), device="cpu").eval()  # without dropout
        features = model.preprocess(texts) if hasattr(model, "preprocess") else model.tokenize(texts)
        Sentences(model, size)([dict(features)], labels).backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    whole, pieces = found
    assert (pieces - whole).norm() < 1e-5 * whole.norm()
