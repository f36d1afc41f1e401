"""Callbacks for the Trainer of transformers or sentence-transformers: watch for collapse, train and save the loss."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trivet.collapse.monitor import CollapseMonitor
from trivet.distances import Array
from trivet.integrations.watch import LOGGED, Action, LossWatch
from trivet.io.atomic_files import clear_left, write_atomic
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.runtime.training_warning import warn

CALLBACKS = "trivet_callbacks"  # the attribute of the state of a training that lists those of this file


class MonitorTrainerCallback(TrainerCallback):
    """Watch a network for collapse and harm while a `transformers.Trainer` trains it.

    The measures of the last look join each row that the Trainer logs, as "collapse/recall" and so on, with the step of
    the look as "collapse/step", counted from 0; measures that are not finite are left out. With a probe, its recall@1
    at the last call joins the next row, as "collapse/probe_recall" with "collapse/probe_step". The last row, with the
    times of the training, says how many events there were ("collapse/events") and calls ("collapse/probe_calls"), and
    with a probe, in a sentence each, how held-out items ended ("collapse/closing") and what `restore_best` did
    ("collapse/restored"). All are in `state.log_history`, too.
    Each event becomes a warning; `summary()` says in a line what was found, which the logger "trivet" also gets, at
    level INFO. Each checkpoint folder gets the state of the monitor as `collapse_monitor-0.json`, and a resumed
    training goes on from it; that of a second callback of this kind is `collapse_monitor2-0.json`, in the order in
    which the trainer calls them.

    The checkpoint that is resumed is sought in `output_dir`. With several processes each one keeps its own state. The
    Trainer tells callbacks nothing of an exception: after one, the loss is watched until the next training.

    Args:
        monitor, action, measures, probe, report, restore_best: see `trivet.integrations.watch.LossWatch`; the probe is
            of the model. `restore_best` excludes `load_best_model_at_end`.
        loss: the module that is called as loss(embeddings, labels), in the model or outside of it. None if there is no
            such module: the probe alone judges, of each optimiser step.

    Raises:
        ValueError: as `LossWatch`; without a loss and a probe; when the training begins, if both choose the network of
            its end, or if the loss has parameters that are neither in the model nor in the optimiser, and so would
            stay as they are: see `LossTrainerCallback`.

    Example:
        >>> MonitorTrainerCallback(CollapseMonitor(), model.loss).add_to(trainer)  # doctest: +SKIP
    """

    def __init__(
        self,
        monitor: CollapseMonitor,
        loss: nn.Module | None,
        *,
        action: Action = "warn",
        measures: Sequence[str] = LOGGED,
        probe: Callable[[nn.Module], Sequence[Array]] | None = None,
        report: Path | str | None = None,
        restore_best: bool = False,
    ) -> None:
        if not isinstance(loss, nn.Module) and (loss is not None or probe is None):
            raise ValueError(
                f"loss must be the module called as loss(embeddings, labels): got {loss!r}; pass the module, such as "
                "model.loss, or None with a probe."
            )
        self.monitor, self.loss = monitor, loss
        self._watch = LossWatch(monitor, action, measures, probe, report=report, restore_best=restore_best)
        self._name = "collapse_monitor"

    def add_to(self, trainer: Trainer) -> None:
        """Become the first callback of the trainer.

        One given as `Trainer(callbacks=[...])` comes after the loggers (TensorBoard and so on), and they would get the
        rows without the measures.
        """
        trainer.callback_handler.callbacks.insert(0, self)

    def summary(self) -> str:
        """A line on the monitor: how held-out items ended, its events, and how often it asked the probe."""
        return self._watch.summary()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._watch.end(main=False, finished=False)
        self._name = f"collapse_monitor{_number(self, state)}"
        if self._watch.restore_best and args.load_best_model_at_end:
            raise ValueError(
                "one of restore_best and load_best_model_at_end may choose the network of the end: got both; leave one "
                "out."
            )
        if self.loss is not None:
            _check_trained(self.loss, others.get("model"), others.get("optimizer"))
        if state.global_step > 0:
            self._restore(args, state)
        rows = args.train_batch_size * args.gradient_accumulation_steps
        items = rows * _items_per_row(others.get("train_dataloader"))
        network = others.get("model")
        self._watch.begin(self.loss, lambda: state.global_step, network, steps=state.max_steps, items=items)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        if self._watch.active and self._watch.stops(main=state.is_world_process_zero, device=args.device):
            control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        if not self._watch.active:
            return
        last = logs is not None and "train_runtime" in logs
        if last:  # here: a row that comes after it would not be logged
            self._watch.end(main=state.is_world_process_zero)
        checks, calls = self._watch.checks(), self._watch.calls()
        measures: dict[str, Any] = {f"collapse/{name}": value for name, value in (checks or [{}])[-1].items()}
        if calls:
            measures["collapse/probe_step"] = calls[-1].pop("step")
            measures |= {f"collapse/{name}": value for name, value in calls[-1].items()}
        if last:
            measures["collapse/events"] = len(self.monitor.events)
            measures["collapse/probe_calls"] = len(self.monitor.probing.series["step"])
            sentences = {"closing": self.monitor.closing(), "restored": self._watch.restored}
            measures |= {f"collapse/{name}": text for name, text in sentences.items() if text is not None}
        if logs is not None:
            logs.update(measures)
        if state.log_history:  # holds a copy of `logs`
            state.log_history[-1].update(measures)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        path = _path(args, state, self._name, "json")
        try:
            _write(path, json.dumps(self.monitor.state_dict()).encode())
        except OSError as error:
            warn(f"the checkpoint holds no state of the monitor: {error}.")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._watch.end(main=state.is_world_process_zero)

    def _restore(self, args: TrainingArguments, state: TrainerState) -> None:
        path = _path(args, state, self._name, "json")
        clear_left(path)
        if not path.exists() and (
            self.monitor.series["step"] or self.monitor.probing.items
        ):  # its state came from elsewhere
            return
        try:
            self.monitor.load_state_dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            warn(
                f"the monitor starts over at step {state.global_step}: its state cannot be read ({error!r}). To "
                "resume from another folder, call monitor.load_state_dict with the contents of that file before "
                "training."
            )


class LossTrainerCallback(TrainerCallback):
    """Train and save the parameters of a loss, such as beta or proxies, while a `transformers.Trainer` trains.

    They join the optimiser at the learning rates of the loss, also where the Trainer has them at another one, and
    follow its schedule. Each checkpoint folder gets the state of the loss as `loss-0.safetensors`, one for each
    process; a resumed training goes on from it, and with `load_best_model_at_end` the loss is that of the best model.
    The loss is moved to the device of the training. That of a second callback is `loss2-0.safetensors`, and so on, in
    the order in which they were added: a resumed training must add them in the same one.

    With several processes, gradients of parameters that are not in the model become their mean over the processes, as
    those of the model do.

    The checkpoint that is resumed is sought in `output_dir`.

    Args:
        loss: the loss, in the model or outside of it.

    Raises:
        ValueError: if `loss` is no loss of Trivet.

    Example:
        >>> LossTrainerCallback(loss).add_to(trainer)  # doctest: +SKIP
    """

    def __init__(self, loss: EmbeddingLoss | MatryoshkaLoss) -> None:
        if not isinstance(loss, EmbeddingLoss | MatryoshkaLoss):
            raise ValueError(f"loss must be a loss of Trivet: got {loss!r}; pass the loss itself.")
        self.loss = loss
        self._name = "loss"

    def add_to(self, trainer: Trainer) -> None:
        """Join the trainer, before it trains.

        Raises:
            ValueError: if it already has its optimiser.
        """
        if trainer.optimizer is not None:
            raise ValueError(
                "the trainer must make its optimiser after this: got one that is there; give it the groups of "
                "loss.optimizer_groups() yourself, or call add_to before training."
            )
        make = trainer.create_optimizer

        def create(*arguments: Any) -> Any:
            self.loss.to(trainer.args.device)
            optimizer = make(*arguments)
            _add_groups(optimizer, self.loss)
            return optimizer

        trainer.create_optimizer = create
        trainer.add_callback(self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._name = f"loss{_number(self, state)}"
        _check_trained(self.loss, others.get("model"), others.get("optimizer"))
        if state.global_step > 0:
            self._load(args, _path(args, state, self._name, "safetensors"))
        self.loss.zero_grad()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        self.loss.zero_grad()  # the Trainer clears the gradients of the model alone

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        inside = {id(parameter) for parameter in others["model"].parameters()}
        for parameter in self.loss.parameters():
            if parameter.requires_grad and id(parameter) not in inside:
                if parameter.grad is None:  # the others wait for this process
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        path = _path(args, state, self._name, "safetensors")
        try:
            _write(path, serialised({name: value.contiguous() for name, value in self.loss.state_dict().items()}))
        except OSError as error:
            warn(f"the checkpoint holds no state of the loss: {error}.")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._load(args, Path(state.best_model_checkpoint, f"{self._name}-{args.process_index}.safetensors"))

    def _load(self, args: TrainingArguments, path: Path) -> None:
        clear_left(path)
        try:
            self.loss.load_state_dict(load_file(path, device=str(args.device)))
        except (OSError, SafetensorError) as error:
            warn(
                f"the loss keeps the parameters it has: its state cannot be read ({error!r}). To resume from another "
                "folder, call loss.load_state_dict with the contents of that file before training."
            )


def _items_per_row(loader: Any) -> int:
    """Texts of a row of the Trainer of sentence-transformers, all columns but that of labels; of others 1."""
    labels = getattr(getattr(loader, "collate_fn", None), "valid_label_columns", None)
    columns = getattr(getattr(loader, "dataset", None), "column_names", None)
    if not labels or not isinstance(columns, list):
        return 1
    return len(columns) - ("dataset_name" in columns) - any(label in columns for label in labels) or 1


def _number(callback: TrainerCallback, state: TrainerState) -> str:
    """Empty for the first callback of its kind in a training, "2" for the second, and so on."""
    there: list[TrainerCallback] = vars(state).setdefault(CALLBACKS, [])  # callbacks have nothing else in common
    if callback not in there:
        there.append(callback)
    index = [value for value in there if type(value) is type(callback)].index(callback)
    return str(index + 1) if index else ""


def _add_groups(optimizer: Any, loss: EmbeddingLoss | MatryoshkaLoss) -> None:
    """Put the parameters of a loss into groups of their own, once."""
    for group in loss.optimizer_groups():
        groups = {id(parameter) for parameter in group["params"]}
        if any({id(parameter) for parameter in there["params"]} == groups for there in optimizer.param_groups):
            continue
        for there in optimizer.param_groups:
            there["params"] = [parameter for parameter in there["params"] if id(parameter) not in groups]
        optimizer.add_param_group(group)


def _check_trained(loss: nn.Module, model: nn.Module | None, optimizer: Any) -> None:
    """Raise ValueError if parameters of a loss would stay as they are."""
    groups = getattr(optimizer, "param_groups", None)
    if model is None or groups is None:
        return
    known = {id(parameter) for group in groups for parameter in group["params"]}
    known |= {id(parameter) for parameter in model.parameters()}
    left = [name for name, value in loss.named_parameters() if value.requires_grad and id(value) not in known]
    if left:
        raise ValueError(
            f"the parameters of the loss must be trained: {', '.join(left)} of {type(loss).__name__} lies outside of "
            "the model, and not in the optimiser; call LossTrainerCallback(loss).add_to(trainer), store the loss in "
            "the model, or freeze it with loss.requires_grad_(False)."
        )


def _write(path: Path, content: bytes) -> None:
    """Write a file of a checkpoint whole or not at all; OSError where the Trainer of this process wrote none."""
    os.stat(path.parent)
    write_atomic(path, content)


def _path(args: TrainingArguments, state: TrainerState, name: str, ending: str) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}", f"{name}-{args.process_index}.{ending}")
