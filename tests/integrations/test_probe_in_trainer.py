"""A small BERT under the callback: what its batches suggest while it learns, and what sentences held out decide.

In training mode, dropout moves an embedding more than the classes do at first. The first-order loss draws everything
together before it draws classes apart: the batches of such a run look as those of a collapse do.
"""

from __future__ import annotations

import random
from pathlib import Path

import lightning
import pytest
import torch
from tests.integrations.trainers import LIGHTNING_WARNINGS, lightning_trainer, trainer_of
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertModel

import trivet
from trivet.collapse.monitor import CollapseMonitor
from trivet.integrations.lightning import EmbeddingModule, MonitorCallback
from trivet.integrations.transformers import MonitorTrainerCallback
from trivet.losses.engine import EmbeddingLoss
from trivet.metrics import recall_at_k

pytestmark = [
    *LIGHTNING_WARNINGS,
    pytest.mark.filterwarnings("ignore:(network collapse|harm) (suspected|detected) at step"),
]
TOPICS, WORDS, FILLERS, HELD_OUT = 12, 6, 30, 240


def sentences(count: int) -> list[dict[str, Tensor]]:
    """Sentences of 4 to 8 words, two of them of the topic, as numbers of words; 0 is padding."""
    draw, rows = random.Random(0), []
    for i in range(count):
        topic, first = i % TOPICS, 1 + TOPICS * WORDS
        words = [1 + topic * WORDS + word for word in draw.sample(range(WORDS), 2)]
        words += [first + draw.randrange(FILLERS) for _ in range(draw.randint(2, 6))]
        draw.shuffle(words)
        rows.append({"words": torch.tensor(words + [0] * (8 - len(words))), "topic": torch.tensor(topic)})
    return rows


class Learner(nn.Module):
    def __init__(self, loss: EmbeddingLoss) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=1 + TOPICS * WORDS + FILLERS,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
        )
        self.bert, self.loss = BertModel(config, add_pooling_layer=False), loss

    def embed(self, words: Tensor) -> Tensor:
        mask = words != 0
        states = self.bert(words, attention_mask=mask.long()).last_hidden_state
        return normalize((states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))

    def forward(self, words: Tensor, topic: Tensor) -> dict[str, Tensor]:
        return {"loss": self.loss(self.embed(words), topic)}


def trained(
    loss: EmbeddingLoss, rate: float, folder: Path, *, probed: bool, steps: int
) -> tuple[CollapseMonitor, float]:
    """What the monitor saw, and recall@1 of sentences held out at the end."""
    torch.manual_seed(0)
    model, monitor, rows = Learner(loss), CollapseMonitor(), sentences(1200)
    held_out = {name: torch.stack([row[name] for row in rows[:HELD_OUT]]) for name in ("words", "topic")}

    def probe(model: nn.Module) -> tuple[Tensor, Tensor]:
        assert not model.training
        assert not torch.is_grad_enabled()
        return model.embed(held_out["words"]), held_out["topic"]

    options = {"max_steps": steps, "learning_rate": rate, "lr_scheduler_type": "constant"}
    trainer = trainer_of(model, folder, rows[HELD_OUT:], batch=48, options=options)
    MonitorTrainerCallback(monitor, loss, probe=probe if probed else None).add_to(trainer)
    trainer.train()
    assert model.training
    model.eval()
    with torch.no_grad():
        embeddings, labels = probe(model)
    return monitor, recall_at_k(embeddings.numpy(), labels.numpy(), (1,))[1]


def test_batches_alone_accuse_a_run_that_learns_and_held_out_sentences_do_not(tmp_path: Path) -> None:
    alone, recall = trained(trivet.NCATripletLoss(), 3e-3, tmp_path, probed=False, steps=50)
    assert [(event.kind, event.suspected) for event in alone.events] == [("network-collapse", True)]
    assert recall > 0.8
    monitor, same = trained(trivet.NCATripletLoss(), 3e-3, tmp_path, probed=True, steps=50)
    assert monitor.events == []
    assert same == recall  # the probe changed nothing
    seen = monitor.probing.series
    assert seen["step"] == [0, 5, 19, 39, 50]
    assert seen["recall"] == sorted(seen["recall"])


def test_a_run_that_loses_what_it_began_with_is_called(tmp_path: Path) -> None:
    loss = trivet.MarginLoss(generator=torch.Generator().manual_seed(0))
    monitor, recall = trained(loss, 0.05, tmp_path, probed=True, steps=40)
    assert recall < 0.6 * monitor.probing.series["recall"][0]
    assert monitor.events
    assert monitor.events[0].kind in ("network-collapse", "harm")
    assert monitor.events[0].evidence["recall"] < monitor.events[0].evidence["recall_at_step_0"]


def test_a_probe_of_a_lightning_module_leaves_every_mode_as_it_was() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    network[1].eval()  # as one that keeps its statistics
    module = EmbeddingModule(network, trivet.TripletLoss())
    points, labels = torch.randn(48, 4), torch.arange(48) % 3
    seen: list[tuple[bool, ...]] = []

    class Kept(lightning.Callback):
        def on_train_batch_end(self, *_: object) -> None:
            seen.append(tuple(part.training for part in network))

    def probe(asked: lightning.LightningModule) -> tuple[Tensor, Tensor]:
        assert asked is module
        assert not any(part.training for part in network)
        return asked(points), labels

    monitor = CollapseMonitor()
    trainer = lightning_trainer(max_steps=8, callbacks=[MonitorCallback(monitor, probe=probe), Kept()])
    network.train()
    network[1].eval()
    loader = DataLoader(TensorDataset(points, labels), batch_size=12)
    trainer.fit(module, loader, loader)
    assert len(set(seen)) == 1
    assert monitor.probing.series["step"][0] == 0
    assert monitor.probing.items == 48
