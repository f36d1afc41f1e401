"""Held-out items watched as a guest: in each trainer, and in a bare loop, with losses that give no batches."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integrations.trainers import LIGHTNING_WARNINGS, lightning_trainer, trainer_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate
from transformers import Trainer

import trivet
from trivet.collapse.monitor import CollapseMonitor
from trivet.integrations.lightning import EmbeddingModule, MonitorCallback
from trivet.integrations.sentence_transformers import SentenceLoss
from trivet.integrations.transformers import MonitorTrainerCallback

pytestmark = [
    *LIGHTNING_WARNINGS,
    pytest.mark.filterwarnings("ignore:harm detected at step"),
    pytest.mark.usefixtures("few_permutations"),
]
STEPS, CLASSES, WIDTH = 60, 12, 4


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points `(count, 8)` whose first four numbers depend on their class, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    means = 2 * torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count) % CLASSES
    points = torch.randn(count, 2 * WIDTH, generator=generator)
    points[:, :WIDTH] = means[labels] + points[:, :WIDTH] / 2
    return points, labels


HELD_OUT, HELD_OUT_LABELS = drawn(240, seed=1)
TEXTS = [" ".join(str(value) for value in row) for row in HELD_OUT.tolist()]
TABLE = {"intent": [f"class {label}" for label in HELD_OUT_LABELS.tolist()], "text": TEXTS, "length": [8] * 240}


class Sentences(nn.Module):
    """A model of sentence-transformers, as far as it is called; a text is eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.dropout = nn.Linear(2 * WIDTH, 2 * WIDTH, bias=False), nn.Dropout(0.1)
        nn.init.eye_(self.matrix.weight)

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**features, "sentence_embedding": self.dropout(self.matrix(features["points"]))}

    def embed(self, points: Tensor) -> Tensor:
        assert not self.dropout.training
        assert not torch.is_grad_enabled()
        embeddings: Tensor = self.matrix(points)
        return embeddings

    def encode(self, texts: list[str], **options: bool) -> Tensor:
        assert options == {"convert_to_tensor": True, "normalize_embeddings": True, "show_progress_bar": False}
        return nn.functional.normalize(self.embed(torch.tensor([[float(n) for n in text.split()] for text in texts])))


class Shrink(nn.Module):
    """A loss of sentence-transformers, called with features, that shrinks what tells classes apart, or the rest."""

    def __init__(self, model: nn.Module, *, harms: bool) -> None:
        super().__init__()
        self.model, self.columns = model, slice(0, WIDTH) if harms else slice(WIDTH, None)

    def forward(self, sentence_features: list[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        rows = torch.cat([self.model(features)["sentence_embedding"] for features in sentence_features])
        return rows[:, self.columns].square().mean()


class Rows(Dataset[dict[str, Tensor]]):
    column_names: list[str] | None = None

    def __init__(self) -> None:
        self.points, self.labels = drawn(STEPS * 16, seed=2)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"points": self.points[row], "labels": self.labels[row]}


class SentenceTrainer(Trainer):
    loss: Callable[..., Tensor]

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **others: Any) -> Tensor:
        return self.loss([{"points": inputs["points"]}], inputs["labels"])


def trainer_with(model: nn.Module, loss: Callable[..., Tensor], folder: Path, **options: Any) -> SentenceTrainer:
    settings = {"max_steps": STEPS, "learning_rate": 0.05, "remove_unused_columns": False, "logging_steps": 10}
    trainer = trainer_of(model, folder, Rows(), of=SentenceTrainer, batch=16, options={**settings, **options})
    assert isinstance(trainer, SentenceTrainer)
    trainer.loss = loss
    return trainer


def in_texts(model: Sentences, loss: Shrink, folder: Path, **end: Any) -> tuple[CollapseMonitor, str | None]:
    trainer = trainer_with(model, loss, folder)
    watch = trivet.watch(trainer, TABLE, labels="intent", **end)
    trainer.train()
    logged = trainer.state.log_history
    recalls = [row["collapse/probe_recall"] for row in logged if "collapse/probe_recall" in row]
    assert recalls[-1] == watch.monitor.probing.series["recall"][-1]
    return watch.monitor, watch.summary()


def in_transformers(model: Sentences, loss: Shrink, folder: Path, **end: Any) -> tuple[CollapseMonitor, str | None]:
    trainer = trainer_with(model, loss, folder)
    watch = trivet.watch(trainer, HELD_OUT, HELD_OUT_LABELS, embed=model.embed, **end)
    trainer.train()
    last = trainer.state.log_history[-1]
    return watch.monitor, f"{last['collapse/closing']} {last['collapse/restored']}"


def in_lists(model: Sentences, loss: Shrink, folder: Path, **end: Any) -> tuple[CollapseMonitor, str | None]:
    """The callback on a loss whose batches are lists: the probe judges nevertheless."""
    trainer, monitor = trainer_with(model, loss, folder), CollapseMonitor()
    callback = MonitorTrainerCallback(monitor, loss, probe=lambda _: (model.embed(HELD_OUT), HELD_OUT_LABELS), **end)
    callback.add_to(trainer)
    with (
        pytest.warns(UserWarning, match="the loss was never called as loss.* or watch without it"),
        pytest.warns(UserWarning, match="got list; this batch is skipped"),
    ):
        trainer.train()
    return monitor, callback.summary()


def in_lightning(model: Sentences, loss: Shrink, folder: Path, **end: Any) -> tuple[CollapseMonitor, str | None]:
    import lightning

    class Task(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
            value: Tensor = loss([batch])
            return value

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    trainer = lightning_trainer(max_steps=STEPS)
    watch = trivet.watch(trainer, HELD_OUT, HELD_OUT_LABELS, embed=model.embed, **end)
    trainer.fit(Task(), DataLoader(Rows(), batch_size=16))
    return watch.monitor, watch.summary()


def in_a_loop(model: Sentences, loss: Shrink, folder: Path, **end: Any) -> tuple[CollapseMonitor, str | None]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    watch = trivet.Watch(model.embed, HELD_OUT, HELD_OUT_LABELS, **end)
    for batch in DataLoader(Rows(), batch_size=16):
        optimizer.zero_grad()
        loss([batch]).backward()
        optimizer.step()
        watch.step()
    return watch.monitor, watch.close()


@pytest.mark.parametrize("harms", [True, False], ids=["harmed", "healthy"])
@pytest.mark.parametrize("run", [in_texts, in_transformers, in_lists, in_lightning, in_a_loop])
def test_harm_by_any_loss_is_called(run: Any, harms: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Sentences().train()
    page = tmp_path / "watch.html"
    monitor, closing = run(model, Shrink(model, harms=harms), tmp_path, report=page, restore_best=True)
    assert [event.kind for event in monitor.events] == ["harm"] * harms
    assert closing is not None
    assert ("below its start" in closing) == harms
    assert f"% at step {STEPS}" in closing
    assert ("The network of step 0 is the result: " in closing) == harms
    assert bool(torch.equal(model.matrix.weight, torch.eye(2 * WIDTH))) == harms
    assert str(monitor.closing()) in page.read_text()
    steps = monitor.probing.series["step"]
    assert steps[0] == 0
    assert 3 <= len(steps) <= 9
    assert bool({11.0, 12.0} & set(steps)) == harms  # asked again soon after a call that was worse
    assert monitor.series["step"] == []
    assert model.dropout.training


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (0, "Held-out items were not judged: the probe failed, RuntimeError at step 0: no memory."),
        (6, "Held-out items were not judged: the probe failed, RuntimeError at step 6: no memory."),
        (21, "Later steps were not judged: the probe failed, RuntimeError at step 21: no memory."),
    ],
)
def test_a_probe_that_fails_is_named_at_the_end(fails: int, said: str, tmp_path: Path) -> None:
    model, calls = Sentences(), [0, 6, 21]

    def embed(points: Tensor) -> Tensor:
        if calls.pop(0) == fails:
            raise RuntimeError("no memory.")
        return model.embed(points)

    trainer = trainer_with(model, Shrink(model, harms=False), tmp_path)
    watch = trivet.watch(
        trainer, HELD_OUT, HELD_OUT_LABELS, embed=embed, report=tmp_path / "page.html", restore_best=True
    )
    with pytest.warns(UserWarning, match="the probe could not be used: RuntimeError"):
        trainer.train()
    assert trainer.state.log_history[-1]["collapse/closing"].endswith(said)
    assert said in watch.summary()
    assert ("no event" in watch.summary()) == (fails == 21)
    assert "The network of step 60 is the result, as held-out items were not judged there" in watch.summary()
    assert said in (tmp_path / "page.html").read_text()


def test_a_warning_shows_no_line_of_code(tmp_path: Path) -> None:
    model = Sentences()
    trainer = trainer_with(model, Shrink(model, harms=True), tmp_path)
    trivet.watch(trainer, TEXTS, TABLE["intent"], action="stop")
    with pytest.warns(UserWarning, match="harm detected") as caught:
        trainer.train()
    text = warnings.formatwarning(caught[0].message, caught[0].category, caught[0].filename, caught[0].lineno)
    assert re.fullmatch(r"trivet:0: UserWarning: harm detected at step .* Training stops\.\n", text)


@pytest.mark.parametrize("steps", [2, STEPS])
def test_both_texts_of_a_pair_count_in_the_cost(steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Collator:
        valid_label_columns = ("label", "score")

        def __call__(self, rows: list[dict[str, Tensor]]) -> Any:
            return default_collate(rows)

    model, rows = Sentences(), Rows()
    rows.column_names = ["anchor", "positive", "score"]
    trainer = trainer_with(model, Shrink(model, harms=False), tmp_path, max_steps=steps)
    trainer.train_dataset, trainer.data_collator = rows, Collator()
    watch = trivet.watch(trainer, TEXTS, TABLE["intent"])
    trainer.train()
    probing = watch.monitor.probing
    assert probing.cost == len(probing.series["step"]) * 240 / (3 * steps * 2 * 16)
    said = "Held-out items will cost about 2.5 times as much as the steps: 240 are embedded 2 times or more in 2 steps"
    assert (said in caplog.text) == (steps == 2)


def test_harm_stops_a_training_if_asked(tmp_path: Path) -> None:
    model = Sentences()
    trainer = trainer_with(model, Shrink(model, harms=True), tmp_path)
    trivet.watch(trainer, TEXTS, TABLE["intent"], action="stop", restore_best=True)
    trainer.train()
    assert 6 < trainer.state.global_step < STEPS
    assert torch.equal(model.matrix.weight, torch.eye(2 * WIDTH))


def test_one_of_two_choices_of_the_network_is_an_error(tmp_path: Path) -> None:
    model = Sentences()
    trainer = trainer_with(model, Shrink(model, harms=True), tmp_path)
    trainer.args.load_best_model_at_end = True
    trivet.watch(trainer, TEXTS, TABLE["intent"], restore_best=True)
    with pytest.raises(ValueError, match="restore_best and load_best_model_at_end"):
        trainer.train()


@pytest.mark.parametrize("from_file", [True, False])
def test_a_resumed_training_keeps_its_start(tmp_path: Path, from_file: bool) -> None:
    model = Sentences()
    loss = Shrink(model, harms=True)
    trainer = trainer_with(model, loss, tmp_path, save_strategy="steps", save_steps=20, max_steps=20)
    start = trivet.watch(trainer, TEXTS, TABLE["intent"])
    trainer.train()
    resumed = trainer_with(model, loss, tmp_path)
    watch = trivet.watch(resumed, TEXTS, TABLE["intent"], restore_best=True)
    if not from_file:
        (tmp_path / "checkpoint-20" / "collapse_monitor-0.json").unlink()
        watch.monitor.load_state_dict(start.monitor.state_dict())
    resumed.train(resume_from_checkpoint=True)
    assert watch.monitor.probing.series["step"][0] == 0
    assert watch.monitor.probing.series["recall"][0] == start.monitor.probing.series["recall"][0]
    assert "The network of step 0 was better, but there is no copy of it, as training was resumed" in watch.summary()


def test_a_step_is_one_of_the_optimiser(tmp_path: Path) -> None:
    model = Sentences()
    trainer = lightning_trainer(max_steps=7, accumulate_grad_batches=3)
    module = EmbeddingModule(model.matrix, trivet.TripletLoss())
    watch = trivet.watch(trainer, HELD_OUT, HELD_OUT_LABELS, embed=model.matrix)
    rows = [(row["points"], row["labels"]) for row in Rows()]
    trainer.fit(module, DataLoader(rows, batch_size=16), DataLoader(rows[:16], batch_size=16))
    assert watch.monitor.state_dict()["updates"] == 7
    assert watch.monitor.steps == 7


def test_batches_are_used_where_they_can_be_had(tmp_path: Path) -> None:
    model = Sentences()
    trainer = trainer_with(model, SentenceLoss(model, trivet.TripletLoss()), tmp_path, max_steps=8)
    watch = trivet.watch(trainer, TEXTS, TABLE["intent"])
    trainer.train()
    assert len(watch.monitor.series["step"]) == 8
    loop = trivet.Watch(model.eval().embed, HELD_OUT, HELD_OUT_LABELS)
    loop.step(*drawn(24, seed=3), loss=0.5)
    assert loop.monitor.series["loss"] == [0.5]


def test_held_out_items_may_follow_any_relation(tmp_path: Path) -> None:
    model = Sentences()
    tags = trivet.Tags([[f"intent {number}"] for number in HELD_OUT_LABELS])
    classes, related = (trivet.Watch(model.eval().embed, HELD_OUT, labels) for labels in (HELD_OUT_LABELS, tags))
    assert related.monitor.probing.series["recall"] == pytest.approx(classes.monitor.probing.series["recall"])
    assert related.monitor.probing.items == len(HELD_OUT_LABELS)
    batch = drawn(24, seed=3)[0]
    related.step(batch, trivet.Pairs(12, 12), 0.5)
    assert math.isfinite(related.monitor.series["within"][0])
    trainer = trainer_with(model, SentenceLoss(model, trivet.TripletLoss()), tmp_path, max_steps=1)
    with pytest.raises(ValueError, match=r"got 3 for \d+; take relation"):
        trivet.watch(trainer, TEXTS, tags[:3])
    watch = trivet.watch(trainer, TEXTS, tags)
    trainer.train()
    assert str(watch.summary()).startswith("Recall@1 by the labels of")


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (lambda t: trivet.watch(nn.Linear(2, 2), TEXTS, HELD_OUT_LABELS), "trainer must be one of .* got Linear"),
        (lambda t: trivet.watch(lightning_trainer(), TEXTS, HELD_OUT_LABELS), "embed must be a function"),
        (lambda t: trivet.watch(t, HELD_OUT, HELD_OUT_LABELS), "items must be texts"),
        (
            lambda t: trivet.watch(t, TEXTS[1:], HELD_OUT_LABELS),
            "labels must hold one class per embedding: got shape .240",
        ),
        (lambda t: trivet.watch(t, TEXTS, HELD_OUT_LABELS, loss="loss"), "loss must be the module"),
        (lambda t: trivet.watch(t, {**TABLE, "other": TEXTS}, "intent"), "one column of texts .* got text, other"),
        (lambda t: trivet.watch(t, TEXTS, HELD_OUT_LABELS / 2), "labels must be integers"),
        (
            lambda t: trivet.watch(lightning_trainer(), HELD_OUT, HELD_OUT_LABELS, embed=len, loss=nn.Identity()),
            "loss must be the name of a submodule",
        ),
        (lambda t: MonitorTrainerCallback(CollapseMonitor(), None), "or None with a probe"),
        (lambda t: MonitorTrainerCallback(CollapseMonitor(), t.model, restore_best=True), "got no probe; give one"),
        (lambda t: trivet.Watch(Sentences().embed, HELD_OUT, HELD_OUT_LABELS, report=__file__), "only a file that it"),
        (lambda t: trivet.Watch(lambda x: x, HELD_OUT, HELD_OUT_LABELS, restore_best=True), "give model="),
        (lambda t: MonitorCallback(CollapseMonitor(), None), "without a loss there must be a probe"),
    ],
)
def test_what_cannot_be_watched_is_an_error(error: Callable[[Trainer], Any], match: str, tmp_path: Path) -> None:
    model = Sentences()
    with pytest.raises(ValueError, match=match):
        error(trainer_with(model, Shrink(model, harms=False), tmp_path))
