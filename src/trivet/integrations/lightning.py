"""A callback that watches a Lightning training for collapse."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import lightning
from torch import nn

from trivet.collapse.monitor import CollapseMonitor
from trivet.integrations.watch import LOGGED, Action, Watch, check_action, check_measures, warn_of


class MonitorCallback(lightning.Callback):
    """Watch a loss of a LightningModule for collapse, while Lightning trains it.

    Each look of the monitor goes to all loggers of the trainer as "collapse/recall" and so on, with the step it was
    made at; measures that are not finite are left out. Each event becomes a warning. A checkpoint holds the state of
    the monitor, and `trainer.fit(..., ckpt_path=...)` goes on from it.

    With several processes each one watches its own part of the batch, also for a loss with gather=True, which it is
    called with. Warnings, loggers and checkpoints are those of the first process; with "stop", an event of any process
    ends the training of all within `monitor.every` batches.

    Args:
        monitor: of this training alone.
        loss: name of the submodule of the LightningModule that is called as loss(embeddings, labels), such as "loss"
            or "criterion.triplet".
        action: what an event does: "warn", or "stop" to end the training after the step, too.
        measures: names of those to log, of `trivet.collapse.monitor.SERIES`.

    Raises:
        ValueError: if `action` or a measure is not known; when the training begins, if there is no such submodule.

    Example:
        >>> monitor = CollapseMonitor()
        >>> trainer = lightning.Trainer(callbacks=[MonitorCallback(monitor, "loss")])  # doctest: +SKIP
    """

    def __init__(
        self,
        monitor: CollapseMonitor,
        loss: str = "loss",
        *,
        action: Action = "warn",
        measures: Sequence[str] = LOGGED,
    ) -> None:
        check_action(action)
        check_measures(measures)
        self.monitor, self.loss, self.action, self.measures = monitor, loss, action, measures
        self._watch: Watch | None = None

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        _submodule(pl_module, self.loss)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        # Not at the start of the fit: a search for the learning rate comes between, and its batches are no training.
        loss = _submodule(pl_module, self.loss)
        self._watch = Watch(self.monitor, loss, lambda: trainer.global_step, self.measures)

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._watch is None:
            return
        for look in self._watch.looks():
            step = int(look.pop("step"))
            for logger in trainer.loggers:
                logger.log_metrics({f"collapse/{name}": value for name, value in look.items()}, step=step)
        stopping = self.action == "stop"
        events = self._watch.events()
        if trainer.is_global_zero:
            for event in events:
                warn_of(event, stopping=stopping)
        if stopping and self._watch.agree(bool(events), pl_module.device):
            if trainer.is_global_zero and not self.monitor.events:
                warnings.warn("Training stops: another process reported an event.", stacklevel=1)
            trainer.should_stop = True

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        self._end(warn=False)

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        self._end(warn=trainer.is_global_zero)

    def state_dict(self) -> dict[str, Any]:
        return self.monitor.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.monitor.load_state_dict(state_dict)

    def _end(self, *, warn: bool) -> None:
        if self._watch is not None:
            self._watch.end(warn=warn)
            self._watch = None


def _submodule(module: nn.Module, name: str) -> nn.Module:
    parent, path = module, ""
    for part in name.split("."):
        children = dict(parent.named_children())
        if part not in children:
            known = ", ".join(f"{path}{child}" for child in children) or "none"
            raise ValueError(
                f"loss must name a submodule of {type(module).__name__}: got {name!r}, and its submodules are "
                f"{known}; store the loss as a module, self.loss = ..., and give its name."
            )
        parent, path = children[part], f"{path}{part}."
    return parent
