"""A training with the Trainer of transformers and a monitor, which says how held-out items end.

A small BERT, randomly initialised, learns to tell topics apart; nothing is downloaded. Batches raise the suspicion, and
240 sentences that are not trained on decide.

python examples/monitor_transformers.py
"""

import argparse
import random
import tempfile

import torch
from torch import nn
from torch.nn.functional import normalize
from transformers import BertConfig, BertModel, PrinterCallback, Trainer, TrainingArguments

import trivet
from trivet.collapse import CollapseMonitor
from trivet.integrations.transformers import MonitorTrainerCallback

TOPICS = (
    "boat sail harbour wave anchor captain",
    "oven flour bread butter salt spoon",
    "piano chord singer violin melody drum",
    "goal referee team stadium coach ball",
    "planet comet orbit telescope star moon",
    "seed garden rose soil rain root",
)
FILLERS = ["the", "a", "and", "with", "under", "near", "old", "new", "small", "big", "one", "my"]
WORDS = ["", *FILLERS, *" ".join(TOPICS).split()]  # number 0 is padding


def sentences(count: int) -> list[dict[str, list[int] | int]]:
    """Sentences of 4 to 8 words, two of them of the topic, as numbers of words."""
    draw = random.Random(0)
    rows: list[dict[str, list[int] | int]] = []
    for i in range(count):
        topic = i % len(TOPICS)
        words = draw.sample(TOPICS[topic].split(), 2) + draw.sample(FILLERS, draw.randint(2, 6))
        draw.shuffle(words)
        rows.append({"words": [WORDS.index(word) for word in words], "topic": topic})
    return rows


def collate(rows: list[dict[str, list[int] | int]]) -> dict[str, torch.Tensor]:
    """A batch, padded with 0."""
    words = nn.utils.rnn.pad_sequence([torch.tensor(row["words"]) for row in rows], batch_first=True)
    return {"words": words, "topic": torch.tensor([row["topic"] for row in rows])}


class Learner(nn.Module):
    """BERT, the mean over the words, and batch-hard triplets; the learning rate is too high for them."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.loss = trivet.TripletLoss(positives="hard", negatives="hard")

    def embed(self, words: torch.Tensor) -> torch.Tensor:
        """Embeddings of length 1."""
        mask = words != 0
        states = self.bert(words, attention_mask=mask.long()).last_hidden_state
        means = (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return normalize(means)

    def forward(self, words: torch.Tensor, topic: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.loss(self.embed(words), topic)}


def main(steps: int = 200) -> CollapseMonitor:
    """Train, and print what the monitor saw."""
    monitor = CollapseMonitor(steps=steps)
    torch.manual_seed(0)
    model = Learner()
    rows = sentences(1200)
    held_out = collate(rows[960:])

    def probe(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings of the sentences held out, asked for at the first step and where batches are suspicious."""
        return model.embed(held_out["words"]), held_out["topic"]

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=48,
            learning_rate=0.03,
            lr_scheduler_type="constant",
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            log_level="error",
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows[:960], data_collator=collate)
        trainer.remove_callback(PrinterCallback)
        # The one line a training needs:
        MonitorTrainerCallback(monitor, model.loss, probe=probe).add_to(trainer)
        trainer.train()
    print(f"{trainer.state.global_step} steps")
    logged = [row for row in trainer.state.log_history if "collapse/relative_spread" in row]
    for row in logged[:: max(1, len(logged) // 5)]:
        print(f"logged at step {row['step']}: relative spread {row['collapse/relative_spread']:.4f}")
    for event in monitor.events:
        print(f"{event.title}: {event.rule}", *event.changes, sep="\n  ")
    return monitor


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    main(**vars(parser.parse_args()))
