"""The training loop itself: optimiser steps by Lightning, until the last one, an event or a signal."""

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

from trivet.batching import BatchPlan
from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.data import Augment, Dataset
from trivet.models import Embedder
from trivet.rows import RowLoss
from trivet.signals import ending_signals
from trivet.training.config import TrainingConfig


class Batches(IterableDataset[tuple[Tensor, ...]]):
    """Images and labels of step after step, from `start` on; a batch is a pure function of the seed and the step.

    Args:
        fine: a level inside the classes of `level`; its labels then follow as a third tensor.
    """

    def __init__(
        self,
        dataset: Dataset,
        level: str,
        batches: BatchPlan,
        augment: Augment | None,
        *,
        seed: int,
        start: int,
        steps: int,
        fine: str | None = None,
    ) -> None:
        self.dataset, self.batches, self.augment = dataset, batches, augment
        self.levels = (level,) if fine is None else (level, fine)
        self.seed, self.start, self.steps = seed, start, steps

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for step in range(self.start + first, self.steps, stride):
            index = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
            if self.augment is None:
                images = self.dataset.inputs.batch(index)
            else:
                generator = torch.Generator().manual_seed(step_seed(self.seed, step, 1))
                images = self.augment(self.dataset.inputs, index, generator)
            yield images, *(torch.from_numpy(self.dataset.labels[level][index]) for level in self.levels)


class NotFiniteError(ValueError):
    """Embeddings that are not finite, which no loss takes."""


def step_seed(seed: int, step: int, stream: int) -> int:
    """A number for the random choices of one step, different for each seed, step and stream."""
    return int(np.random.SeedSequence((seed, step, stream)).generate_state(1, np.uint64)[0] >> 1)


class Task(lightning.LightningModule):
    """A model, a loss and an optimiser, at a step of a run.

    Attributes:
        step: optimiser steps done, those before a resume included.
        value: the loss of the last step.
        after_step: called between two steps.
        events: what the monitor said of the last batch.

    Args:
        monitor: sees each batch; None for none.
        since: the step at which the optimiser began, from which the warm-up counts.
    """

    def __init__(
        self,
        model: Embedder,
        loss: RowLoss,
        config: TrainingConfig,
        *,
        seed: int,
        after_step: Callable[[], None] = lambda: None,
        monitor: CollapseMonitor | None = None,
        since: int = 0,
    ) -> None:
        super().__init__()
        self.model, self.loss, self.config, self.seed = model, loss, config, seed
        self.after_step, self.monitor, self.since = after_step, monitor, since
        self.on_start: Callable[[], None] = lambda: None
        self.step = since
        self.events: list[Event] = []
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
        factor = rate_factor(self.step, self.config, since=self.since)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> Tensor:
        images, labels, *fine = batch
        embeddings: Tensor = self.model(images)
        try:
            value: Tensor = self.loss(embeddings, labels)
        except ValueError as error:
            if torch.isfinite(embeddings).all():
                raise
            raise NotFiniteError(*error.args) from None
        self._value = value.detach()
        if self.monitor is not None:
            with torch.autocast(device_type=embeddings.device.type, enabled=False):
                self.events = self.monitor.update(
                    embeddings.detach(),
                    labels,
                    self._value,
                    fine=fine[0] if fine else None,
                    active=self._active,
                    step=self.step,
                )
        return value

    def _active(self) -> float:
        assert self.loss.last is not None
        return self.loss.last.active_fraction

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


def rate_factor(step: int, config: TrainingConfig, *, since: int = 0) -> float:
    """What the learning rate is multiplied with at a step: a linear rise, then constant or half a cosine to 0.

    Args:
        since: the step from which the rise counts; the cosine counts from the first in any case.
    """
    rise = min(1.0, (step - since + 1) / (config.warmup_steps + 1))
    if config.schedule == "constant":
        return rise
    done = max(0, step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return rise * float(0.5 * (1 + np.cos(np.pi * done)))


def fit(task: Task, batches: Batches, *, workers: int = 0) -> bool:
    """Train to the last step of `batches`, or until `after_step` sets `task.trainer.should_stop`.

    Returns False if Ctrl-C, a termination or a hang-up came. The step in progress is then finished, so the model is
    left between two steps. A second one ends at once.

    Raises:
        NotFiniteError: if the loss refused embeddings that are not finite.
        KeyboardInterrupt: at a second signal.
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
        # Batch norm that keeps its statistics, and frozen stages.
        warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")
        # Lightning 2.6 uses a name that torch 2.15 has deprecated.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        try:
            trainer.fit(task, loader)
        except SystemExit:  # what Lightning makes of a signal
            if signals.again or not signals.came:
                raise KeyboardInterrupt from None
    return not signals.came


class _Signals:
    """Lets Ctrl-C, a termination and a hang-up end the training after the step in progress.

    Attributes:
        came: whether one has come.
        again: whether a second one has, which ends at once.
    """

    def __init__(self, trainer: lightning.Trainer) -> None:
        self._trainer = trainer
        self.came = self.again = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in ending_signals()}
            self._take_over()
        return self

    def listen(self) -> None:
        """Take the signals over again, called once Lightning has set up handlers of its own and forgotten a stop."""
        self._take_over()
        self._trainer.should_stop = self._trainer.should_stop or self.came

    def _take_over(self) -> None:
        for number in self._before:
            signal.signal(number, self._stop)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            self.again = True
            raise KeyboardInterrupt
        self.came = True
        self._trainer.should_stop = True
