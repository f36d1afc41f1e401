"""A callback that watches the Trainer of transformers, or of sentence-transformers, for collapse."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trivet.collapse.monitor import CollapseMonitor
from trivet.integrations.watch import Action, Watch, check_action, warn_of


class MonitorTrainerCallback(TrainerCallback):
    """Watch a loss for collapse while a `transformers.Trainer` trains.

    The measures of the last look join each row that the Trainer logs, as "collapse/recall" and so on, with the step of
    the look as "collapse/step"; measures that are not finite are left out. They are in `state.log_history`, too. Each
    event becomes a warning. Each checkpoint folder gets the state of the monitor as `collapse_monitor-0.json`, and a
    resumed training goes on from it.

    With several processes each one watches its own part of the batch, also for a loss with gather=True, which it is
    called with, and keeps its own state. Warnings are those of the first process; with "stop", an event of any process
    ends the training of all within `monitor.every` steps.

    The checkpoint that is resumed is sought in `output_dir`. The Trainer tells callbacks nothing of an exception: after
    one, the loss is watched until the next training.

    Args:
        monitor: of this training alone.
        loss: the module that is called as loss(embeddings, labels), in the model or outside of it.
        action: what an event does: "warn", or "stop" to end the training after the step, too.

    Raises:
        ValueError: if `action` is not known.

    Example:
        >>> MonitorTrainerCallback(CollapseMonitor(), model.loss).add_to(trainer)  # doctest: +SKIP
    """

    def __init__(self, monitor: CollapseMonitor, loss: nn.Module, *, action: Action = "warn") -> None:
        check_action(action)
        if not isinstance(loss, nn.Module):
            raise ValueError(
                f"loss must be the module called as loss(embeddings, labels): got {loss!r}; pass the module, such as "
                "model.loss."
            )
        self.monitor, self.loss, self.action = monitor, loss, action
        self._watch: Watch | None = None

    def add_to(self, trainer: Trainer) -> None:
        """Become the first callback of the trainer.

        One given as `Trainer(callbacks=[...])` comes after the loggers (TensorBoard and so on), and they would get the
        rows without the measures.
        """
        trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._end(warn=False)
        if state.global_step > 0:
            self._restore(args, state)
        self._watch = Watch(self.monitor, self.loss, lambda: state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        if self._watch is None:
            return
        stopping = self.action == "stop"
        events = self._watch.events()
        if state.is_world_process_zero:
            for event in events:
                warn_of(event, stopping=stopping)
        if stopping and self._watch.agree(bool(events), args.device):
            if state.is_world_process_zero and not self.monitor.events:
                warnings.warn("Training stops: another process reported an event.", stacklevel=1)
            control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **others: Any,
    ) -> None:
        looks = self._watch.looks() if self._watch is not None else []
        if not looks:
            return
        measures = {f"collapse/{name}": value for name, value in looks[-1].items()}
        if logs is not None:
            logs.update(measures)
        if state.log_history:  # holds a copy of `logs`
            state.log_history[-1].update(measures)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        path = _path(args, state)
        try:
            path.write_text(json.dumps(self.monitor.state_dict()), encoding="utf-8")
        except OSError as error:
            warnings.warn(f"the checkpoint holds no state of the monitor: {error}.", stacklevel=1)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._end(warn=state.is_world_process_zero)

    def _restore(self, args: TrainingArguments, state: TrainerState) -> None:
        path = _path(args, state)
        if not path.exists() and self.monitor.series["step"]:  # its state came from elsewhere
            return
        try:
            self.monitor.load_state_dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"the monitor starts over at step {state.global_step}: its state cannot be read ({error!r}). To "
                "resume from another folder, call monitor.load_state_dict with the contents of that file before "
                "training.",
                stacklevel=1,
            )

    def _end(self, *, warn: bool) -> None:
        if self._watch is not None:
            self._watch.end(warn=warn)
            self._watch = None


def _path(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}", f"collapse_monitor-{args.process_index}.json")
