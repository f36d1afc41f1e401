"""Lightning: a module that trains embeddings, and a callback that watches a training for collapse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from trivet.collapse.monitor import CollapseMonitor
from trivet.distances import Array
from trivet.integrations.watch import LOGGED, Action, LossWatch
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.metrics import recall_at_k


class EmbeddingModule(lightning.LightningModule):
    """Train a network with a loss of Trivet on batches `(inputs, labels)`; subclass it and replace what differs.

    Logs "train/loss", and after each epoch of validation "val/recall_at_1": over all items that the process has seen in
    it, each against all others, mean over the processes. The optimiser is AdamW, with the loss's own groups.

    Args:
        model: gives embeddings `(N, d)` of inputs.
        loss: any; its parameters are in checkpoints, as it is a submodule.
        learning_rate: of the model, > 0.
        weight_decay: of the model's parameters with two dimensions or more, >= 0.
        gather: compare with the items of all processes, see `EmbeddingLoss.forward`.

    Example:
        >>> module = EmbeddingModule(network, TripletLoss())  # doctest: +SKIP
        >>> lightning.Trainer(callbacks=[MonitorCallback(CollapseMonitor())]).fit(module, train, val)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        loss: EmbeddingLoss | MatryoshkaLoss,
        *,
        learning_rate: float = 1e-4,
        weight_decay: float = 0.0,
        gather: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.learning_rate, self.weight_decay, self.gather = learning_rate, weight_decay, gather
        self._outputs: list[tuple[Tensor, Tensor]] = []

    def forward(self, inputs: Any) -> Tensor:
        """Embeddings `(N, d)` of a batch."""
        embeddings: Tensor = self.model(inputs)
        return embeddings

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch, a scalar."""
        inputs, labels = batch
        value: Tensor = self.loss(self(inputs), labels, gather=self.gather)
        self.log("train/loss", value, batch_size=len(labels))
        return value

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Keep the embeddings of a batch until the end of the epoch."""
        inputs, labels = batch
        self._outputs.append((self(inputs).detach().float().cpu(), labels.cpu()))

    def on_validation_epoch_end(self) -> None:
        """Log Recall@1 of the items kept; in a check before training, of the few batches it has."""
        embeddings, labels = (torch.cat(outputs) for outputs in zip(*self._outputs, strict=True))
        self._outputs.clear()
        if len(torch.unique(labels)) < len(labels):
            self.log("val/recall_at_1", recall_at_k(embeddings, labels, ks=(1,))[1], sync_dist=True)

    def configure_optimizers(self) -> Any:
        """AdamW: matrices of the model with weight decay, vectors without, and the loss at its own rates."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in trained if parameter.ndim > 1]
        vectors = [parameter for parameter in trained if parameter.ndim < 2]
        groups = [{"params": matrices, "weight_decay": self.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.AdamW([*groups, *self.loss.optimizer_groups()], lr=self.learning_rate)


class MonitorCallback(lightning.Callback):
    """Watch a LightningModule for collapse and harm, while Lightning trains it.

    Each look of the monitor goes to all loggers of the trainer as "collapse/recall" and so on, with the step it was
    made at, counted from 0; measures that are not finite are left out. So does each call of the probe, as
    "collapse/probe_recall", the first from before training. Each event becomes a warning; `summary()` says in a line
    what was found, which Lightning prints at the end, and the logger "trivet" gets at level INFO. A checkpoint holds
    the state of the monitor, and `trainer.fit(..., ckpt_path=...)` goes on from it.

    With several processes loggers and checkpoints are those of the first one.

    Args:
        monitor, action, measures, probe, report, restore_best: see `trivet.integrations.watch.LossWatch`; the probe is
            of the module.
        loss: name of the submodule of the LightningModule that is called as loss(embeddings, labels), such as "loss"
            or "criterion.triplet". None if there is none: the probe alone judges, of each optimiser step.

    Raises:
        ValueError: as `LossWatch`; without a loss and a probe; when the training begins, if there is no such
            submodule.

    Example:
        >>> monitor = CollapseMonitor()
        >>> trainer = lightning.Trainer(callbacks=[MonitorCallback(monitor, "loss")])  # doctest: +SKIP
    """

    def __init__(
        self,
        monitor: CollapseMonitor,
        loss: str | None = "loss",
        *,
        action: Action = "warn",
        measures: Sequence[str] = LOGGED,
        probe: Callable[[lightning.LightningModule], Sequence[Array]] | None = None,
        report: Path | str | None = None,
        restore_best: bool = False,
    ) -> None:
        if loss is None and probe is None:
            raise ValueError("without a loss there must be a probe: got neither; give one, or name the submodule.")
        self.monitor, self.loss = monitor, loss
        self._watch = LossWatch(monitor, action, measures, probe, report=report, restore_best=restore_best)

    @property
    def state_key(self) -> str:
        """Name of the state of the monitor in a checkpoint: there may be one for each loss."""
        return self._generate_state_key(loss=self.loss)

    def summary(self) -> str:
        """A line on the monitor: how held-out items ended, its events, and how often it asked the probe."""
        return self._watch.summary()

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if self.loss is not None:
            _submodule(pl_module, self.loss)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        # Not at the start of the fit: a search for the learning rate comes between, and its batches are no training.
        loss = None if self.loss is None else _submodule(pl_module, self.loss)
        steps = trainer.estimated_stepping_batches
        items = (getattr(trainer.train_dataloader, "batch_size", None) or 0) * trainer.accumulate_grad_batches
        planned = int(steps) if 0 < steps < math.inf else None
        self._watch.begin(loss, lambda: trainer.global_step, pl_module, steps=planned, items=items)

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self._watch.active:
            return
        self._log(trainer)
        if self._watch.stops(main=trainer.is_global_zero, device=pl_module.device):
            trainer.should_stop = True

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if self._watch.active:
            self._watch.end(main=trainer.is_global_zero)
            self._log(trainer)
            rank_zero_info(self.summary())

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        self._watch.end(main=False, finished=False)

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        self._watch.end(main=trainer.is_global_zero)

    def _log(self, trainer: lightning.Trainer) -> None:
        """Give the loggers the looks and the calls of the probe since the last time."""
        for row in (*self._watch.calls(), *self._watch.checks()):
            step = int(row.pop("step"))
            for logger in trainer.loggers:
                logger.log_metrics({f"collapse/{name}": value for name, value in row.items()}, step=step)

    def state_dict(self) -> dict[str, Any]:
        return self.monitor.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.monitor.load_state_dict(state_dict)


def _submodule(module: nn.Module, name: str) -> nn.Module:
    parent, path = module, ""
    for child_name in name.split("."):
        children = dict(parent.named_children())
        if child_name not in children:
            known = ", ".join(f"{path}{child}" for child in children) or "none"
            raise ValueError(
                f"loss must name a submodule of {type(module).__name__}: got {name!r}, and its submodules are "
                f"{known}; store the loss as a module, self.loss = ..., and give its name."
            )
        parent, path = children[child_name], f"{path}{child_name}."
    return parent
