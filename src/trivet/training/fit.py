"""The training loop."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from trivet.batching import PKBatches
from trivet.data import Augment, Dataset
from trivet.models import Embedder
from trivet.rows import RowLoss
from trivet.training.config import TrainingConfig


class Batches(IterableDataset[tuple[Tensor, Tensor]]):
    """Images and labels of step after step, from `start` on; a batch is a pure function of the seed and the step."""

    def __init__(
        self,
        dataset: Dataset,
        level: str,
        batches: PKBatches,
        augment: Augment | None,
        *,
        seed: int,
        start: int,
        steps: int,
    ) -> None:
        self.dataset, self.level, self.batches, self.augment = dataset, level, batches, augment
        self.seed, self.start, self.steps = seed, start, steps

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for step in range(self.start + first, self.steps, stride):
            index = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
            images = self.dataset.inputs.batch(index)
            if self.augment is not None:
                images = self.augment(images, torch.Generator().manual_seed(step_seed(self.seed, step, 1)))
            yield images, torch.from_numpy(self.dataset.labels[self.level][index])


def step_seed(seed: int, step: int, stream: int) -> int:
    """A number for the random choices of one step, different for each seed, step and stream."""
    return int(np.random.SeedSequence((seed, step, stream)).generate_state(1, np.uint64)[0] >> 1)


class Task(lightning.LightningModule):
    """A model, a loss and an optimiser, at a step of a run.

    Attributes:
        step: optimiser steps done, those before a resume included.
        value: the loss of the last step.
        after_step: called between two steps.
    """

    def __init__(
        self,
        model: Embedder,
        loss: RowLoss,
        config: TrainingConfig,
        *,
        seed: int,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.model, self.loss, self.config, self.seed = model, loss, config, seed
        self.after_step = after_step
        self.on_start: Callable[[], None] = lambda: None
        self.step = 0
        self.optimizer = make_optimizer(model, loss, config)

    @property
    def value(self) -> float:
        return float(self._value)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer

    def on_train_start(self) -> None:
        self.on_start()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout and the like draw from the global generator: seeded by the step, they are the same after a resume.
        torch.manual_seed(step_seed(self.seed, self.step, 2))
        factor = rate_factor(self.step, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        value: Tensor = self.loss(self.model(images), labels)
        self._value = value.detach()
        return value

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.step += 1
        self.after_step()


def make_optimizer(model: Embedder, loss: RowLoss, config: TrainingConfig) -> torch.optim.Optimizer:
    """The optimiser of the settings, with the loss's own parameter groups; each group keeps its "initial_lr"."""
    groups = [{"params": list(model.parameters())}, *loss.optimizer_groups()]
    lr, weight_decay = config.learning_rate, config.weight_decay
    optimizer: torch.optim.Optimizer
    if config.optimizer == "adam":
        optimizer = torch.optim.Adam(groups, lr=lr, weight_decay=weight_decay)
    elif config.optimizer == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay)
    elif config.optimizer == "sgd":
        optimizer = torch.optim.SGD(groups, lr=lr, weight_decay=weight_decay, momentum=config.momentum)
    else:
        optimizer = torch.optim.RMSprop(groups, lr=lr, weight_decay=weight_decay, momentum=config.momentum)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def rate_factor(step: int, config: TrainingConfig) -> float:
    """What the learning rate is multiplied with at a step: a linear rise, then constant or half a cosine to 0."""
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    if config.schedule == "constant":
        return 1.0
    done = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return float(0.5 * (1 + np.cos(np.pi * done)))


def fit(task: Task, batches: Batches, *, workers: int = 0) -> bool:
    """Train to the last step of `batches`; returns False if Ctrl-C or a termination signal stopped it before.

    The step in progress is finished, so the model is left between two steps. A second Ctrl-C ends at once.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    loader = DataLoader(batches, batch_size=None, num_workers=workers)
    trainer = lightning.Trainer(
        max_steps=batches.steps - batches.start,
        accelerator=task.config.accelerator,
        devices=1,
        precision="bf16-mixed" if task.config.precision == "bf16" else "32-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings(), _Signals(trainer) as signals:
        task.on_start = signals.listen
        # The number of workers is a setting, and 0 is right for images in memory.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        # Lightning 2.6 uses a name that torch 2.15 has deprecated.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        trainer.fit(task, loader)
    return task.step >= batches.steps


class _Signals:
    """Lets SIGINT and SIGTERM end the training after the step in progress."""

    def __init__(self, trainer: lightning.Trainer) -> None:
        self._trainer = trainer
        self._came = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def listen(self) -> None:
        """Take the signals over; called once Lightning has set up handlers of its own."""
        for number in self._before:
            signal.signal(number, self._stop)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True
        self._trainer.should_stop = True
