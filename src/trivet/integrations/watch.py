"""Watch a training of any library: by held-out items, and by the batches of its loss where they can be had."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from trivet.collapse.monitor import SERIES, CollapseMonitor, Event
from trivet.collapse.probe import Probe
from trivet.distances import Array, as_classes
from trivet.integrations.sentence_transformers import SentenceLoss
from trivet.runtime.arguments import check_name
from trivet.runtime.arrays import Integers

if TYPE_CHECKING:
    from trivet.integrations.lightning import MonitorCallback
    from trivet.integrations.transformers import MonitorTrainerCallback

Action = Literal["warn", "stop"]
Network = TypeVar("Network", bound=nn.Module)
log = logging.getLogger("trivet")
LOGGED = ("recall", "relative_spread", "hard", "active", "risk")
"""The measures that are logged unless others are asked for."""
PROBED = {"step": "step", "recall": "probe_recall", "fine_recall": "probe_fine_recall"}


class WatchedTraining(NamedTuple):
    """Functions of the training that a `LossWatch` is in, and the items of each of its steps, 0 if not known."""

    step: Callable[[], int]
    probe: Probe | None
    items: int


class LossWatch(Generic[Network]):
    """Common half of the callbacks: a monitor from `begin` to `end`; what the monitor saw before is not new.

    With several processes each one watches its own part of the batch, also for a loss with gather=True, which it is
    called with.

    Args:
        monitor: of this training alone.
        action: what an event does, beside a warning of the first process: nothing, or with "stop" end the training
            after the step; an event of any process ends that of all within `monitor.every` steps.
        measures: names of those to log, of `trivet.collapse.monitor.SERIES`.
        probe: gives, of the network, the embeddings and labels of some hundred held-out items, and finer labels if
            there are any: the same items each time, of which nothing is trained on. The network is in evaluation mode
            meanwhile, without gradients. See `CollapseMonitor.update`. Each process asks its own.

    Raises:
        ValueError: if `action` or a measure is not known.
    """

    def __init__(
        self,
        monitor: CollapseMonitor,
        action: Action = "warn",
        measures: Sequence[str] = LOGGED,
        probe: Callable[[Network], Sequence[Array]] | None = None,
    ) -> None:
        if action not in ("warn", "stop"):
            raise ValueError(f'action must be "warn" or "stop": got {action!r}.')
        for name in measures:
            check_name(name, SERIES[1:], name="measures")
        self.monitor, self.action, self._probe = monitor, action, probe
        self._measures = {name: name for name in ("step", *measures)}
        self.active = False
        self._handle: RemovableHandle | None = None
        self._training: WatchedTraining | None = None

    def begin(
        self,
        loss: nn.Module | None,
        step: Callable[[], int],
        network: Network | None = None,
        *,
        steps: int | None = None,
        items: int = 0,
    ) -> None:
        """Watch a loss from now on, and ask the probe for the first time.

        Args:
            loss: called as loss(embeddings, labels). Without one the probe alone judges, and the updates are the
                optimiser steps.
            step: gives the optimiser steps done.
            network: what the probe is of.
            steps, items: optimiser steps of the whole run, and items of each, if known; for a watch without a loss.
        """
        probe: Probe | None = None
        if self._probe is not None and network is not None:
            probe = partial(_evaluated, network, partial(self._probe, network))
        self._training, self._last_step = WatchedTraining(step, probe, items), step()
        self._calls = len(self.monitor.probing.series["step"])
        if loss is not None:
            self._handle = self.monitor.watch(loss, step=step, probe=probe)
        else:
            self.monitor.steps = self.monitor.steps or steps
        self.active = True
        if probe is not None:
            self.monitor.begin(probe, step=step())
        self._checks, self._events = len(self.monitor.series["step"]), len(self.monitor.events)
        self._agreements = 0
        self._event_occurred = False

    def __getstate__(self) -> dict[str, Any]:
        """All but the training that goes on, of which a copy has none."""
        return {**vars(self), "_training": None}

    def checks(self) -> list[dict[str, float]]:
        """The looks since the last call: "step" and the measures, those that are finite numbers."""
        count = len(self.monitor.series["step"])
        first = self._checks if self._checks <= count else 0  # fewer: the monitor began anew
        self._checks = count
        return _rows(self.monitor.series, self._measures, first)

    def calls(self) -> list[dict[str, float]]:
        """The calls of the probe since the last time: "step", "probe_recall", for finer classes "probe_fine_recall"."""
        series = self.monitor.probing.series
        first, self._calls = self._calls, len(series["step"])
        return _rows(series, PROBED, first)

    def stops(self, *, main: bool, device: torch.device) -> bool:
        """True if the training is to stop; to be called after each step, by all processes.

        Args:
            main: whether this process warns of the events since the last call.
            device: where processes exchange whether they have seen one.
        """
        training = self._training
        if self._handle is None and training is not None and training.step() != self._last_step:
            self._last_step = training.step()
            self.monitor.update(None, items=training.items, step=self._last_step, probe=training.probe)
        stopping = self.action == "stop"
        events = self._warn_of_events(stopping=stopping, main=main)
        certain = any(not event.suspected for event in events)
        if not stopping or not self.agree(certain, device):
            return False
        if main and all(event.suspected for event in self.monitor.events):
            warnings.warn("Training stops: another process reported an event.", stacklevel=1)
        return True

    def _warn_of_events(self, *, stopping: bool, main: bool) -> list[Event]:
        """The events since the last time, of which the first process warns."""
        first, self._events = self._events, len(self.monitor.events)
        events = self.monitor.events[first:]
        for event in events if main else ():
            stops = " Training stops." if stopping and not event.suspected else ""
            warnings.warn(_sentences(event) + stops, stacklevel=4)
        return events

    def agree(self, event: bool, device: torch.device) -> bool:
        """True if any process has seen an event; to be called after each step, by all processes.

        Several processes exchange it at every `monitor.every`-th call alone, so that steps do not wait for each other.
        """
        self._event_occurred |= event
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return self._event_occurred
        self._agreements += 1
        if self._agreements % self.monitor.every:
            return False
        processes = torch.tensor(float(self._event_occurred), device=device)
        dist.all_reduce(processes)
        return processes.item() > 0

    def end(self, *, main: bool, finished: bool = True) -> None:
        """Ask the probe for the last time, leave the loss alone and log what was found.

        Args:
            main: whether this process warns of the events of the last call, and if no batch of the loss was seen.
            finished: whether the training came to its end: after an exception nothing is asked or warned of.
        """
        if not self.active:
            return
        self.active, needs_batches = False, self._handle is not None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if finished and self._training is not None:
            self.monitor.close(self._training.probe, step=self._training.step())
            self._warn_of_events(stopping=False, main=main)
        log.info(self.summary())
        if finished and main and needs_batches and not self.monitor.series["step"]:
            warnings.warn(
                "the monitor needs batches: the loss was never called as loss(embeddings, labels) during training; "
                "pass the module that is called, and call it rather than its forward, or watch without it.",
                stacklevel=3,
            )

    def summary(self) -> str:
        """A line on the monitor: how held-out items ended, what it found, and how often it asked."""
        steps, probed = self.monitor.series["step"], self.monitor.probing.series
        if not steps and len(probed["step"]) < 2:
            return "The monitor saw no batch."
        events = ", ".join(event.title for event in self.monitor.events) or "no event"
        text = f"The monitor found {events}"
        if steps:
            text += f" in {len(steps)} looks, the last at step {steps[-1]:.0f}"
        if not probed["step"]:
            return f"{text}; it had no probe."
        closing = self.monitor.probing.closing()
        if closing is None:
            recall = f"{100 * probed['recall'][0]:.1f} %"
            return f"{text}; it asked the probe once, before training: recall@1 {recall}."
        return f"{closing} {text}; it asked the probe {len(probed['step'])} times."


class Watch:
    """Watch held-out items while a training loop of your own goes on, with any loss of any library.

    They are embedded now, ever more rarely during training, and at its end: network collapse, class collapse and harm
    are judged by them alone, as docs/collapse.md says. Each event becomes a warning.

    Args:
        embed: gives embeddings `(M, d)` of `items`: a function, module, or method of one, such as `model.encode`. It is
            called without gradients, and a module in evaluation mode, of which each part is left in the mode it was in;
            a function does that itself. Distances are Euclidean: normalise what you compare by cosine.
        items: some hundred that are not trained on, several of each class.
        labels: M, integers or texts.
        fine: finer classes inside the labels, if there are any, as `labels`.
        steps: optimiser steps of the run, if known: items are embedded no less often than at each quarter.

    Attributes:
        monitor: what was measured and found.

    Raises:
        ValueError: if labels are neither integers nor texts.

    Example:
        >>> network, points = torch.nn.Linear(2, 2), torch.eye(2).repeat(20, 1)
        >>> watch = Watch(network, points, ["a", "b"] * 20)
        >>> for _ in range(6):  # a step of any optimiser on any loss
        ...     _ = torch.nn.init.zeros_(network.weight)
        ...     events = watch.step()
        >>> watch.close().partition(":")[0]
        'Recall@1 by the labels of 40 held-out items ends 51.3 points (41.1 to 56.5) below its start'
    """

    def __init__(
        self,
        embed: Callable[[Any], Array],
        items: Any,
        labels: Sequence[int | str] | Array,
        *,
        fine: Sequence[int | str] | Array | None = None,
        steps: int | None = None,
    ) -> None:
        levels = [_classes(values) for values in (labels, fine) if values is not None]
        modules = [value for value in (embed, getattr(embed, "__self__", None)) if isinstance(value, nn.Module)]
        self.monitor = CollapseMonitor(steps=steps)
        self._probe = partial(_evaluated, modules[0] if modules else nn.Module(), lambda: (embed(items), *levels))
        self._steps = 0
        self.monitor.begin(self._probe)

    def step(
        self, embeddings: Tensor | None = None, labels: Tensor | None = None, loss: Tensor | float | None = None
    ) -> list[Event]:
        """Note an optimiser step that was made; returns the events it brought.

        Args:
            embeddings: `(N, d)` of the batch, if they can be had: held-out items are then embedded when it is
                suspicious, too, which is earlier.
            labels: `(N,)` integer.
            loss: of the batch.
        """
        self._steps += 1
        events = self.monitor.update(embeddings, labels, loss, step=self._steps, probe=self._probe)
        for event in events:
            warnings.warn(_sentences(event), stacklevel=2)
        return events

    def close(self) -> str | None:
        """Embed held-out items for the last time; returns one sentence on how they ended, as `CollapseMonitor.close`.

        It is None if nothing was trained.
        """
        count = len(self.monitor.events)
        sentence = self.monitor.close(self._probe, step=self._steps)
        for event in self.monitor.events[count:]:
            warnings.warn(_sentences(event), stacklevel=2)
        return sentence


def watch(
    trainer: Any,
    items: Any,
    labels: str | Sequence[int | str] | Array,
    *,
    fine: str | Sequence[int | str] | Array | None = None,
    embed: Callable[[Any], Array] | None = None,
    loss: nn.Module | str | None = None,
    action: Action = "warn",
) -> MonitorTrainerCallback | MonitorCallback:
    """Watch held-out items while a trainer of another library trains, with any loss; call it before the training.

    What is found joins what the trainer logs, as the callback that is returned says, and the sentence with which it
    closes: "Recall@1 by the labels of 300 held-out items ends 7.9 points (5.1 to 10.8) below its start: ...".

    Args:
        trainer: a `SentenceTransformerTrainer`, a `Trainer` of transformers, or one of Lightning.
        items: some hundred that are not trained on, several of each class: what `embed` takes; without it a list of
            texts, or a table of columns with one of texts, such as a `datasets.Dataset`.
        labels: name of a column of `items`, or one for each item, integers or texts.
        fine: finer classes inside the labels, if there are any, likewise.
        embed: gives embeddings `(M, d)` of `items`, with the network of the trainer, which is in evaluation mode
            meanwhile, without gradients. Distances between them are Euclidean. A model of sentence-transformers needs
            none: its `encode` is called, and rows are normalised if it compares by cosine.
        loss: what is called as loss(embeddings, labels), if there is such a thing: its batches tell earlier when to
            embed held-out items. For Lightning the name of a submodule. Default: a `SentenceLoss` of the trainer.
        action: see `LossWatch`.

    Raises:
        ValueError: if the trainer is none of these, `embed` is missing, or `items` and `labels` do not fit.

    Example:
        >>> watch = trivet.watch(trainer, held_out, labels="intent")  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
        >>> print(watch.summary())  # doctest: +SKIP
    """
    libraries = {base.__module__.partition(".")[0] for base in type(trainer).__mro__}
    if not libraries & {"lightning", "transformers"}:
        raise ValueError(
            "trainer must be one of sentence-transformers, transformers or lightning: got "
            f"{type(trainer).__name__}; for another loop use trivet.Watch."
        )
    names = [name for name in (labels, fine) if isinstance(name, str)]
    columns = [items[values] if isinstance(values, str) else values for values in (labels, fine) if values is not None]
    levels = [_classes(values) for values in columns]
    if embed is None:
        if "lightning" in libraries or not hasattr(trainer.model, "encode"):
            raise ValueError("embed must be a function that embeds items, as there is no `model.encode`: got None.")
        embed = partial(_encode, lambda: trainer.model)
        items = _texts(items, names)
        levels = [as_classes(values, count=len(items)).numpy() for values in levels]

    def probe(_: nn.Module) -> Sequence[Array]:
        return embed(items), *levels

    if "lightning" in libraries:
        from trivet.integrations.lightning import MonitorCallback  # here: it loads Lightning

        if isinstance(loss, nn.Module):
            raise ValueError(f"loss must be the name of a submodule of the LightningModule: got {loss!r}.")
        lightning_callback = MonitorCallback(CollapseMonitor(), loss, action=action, probe=probe)
        trainer.callbacks.insert(0, lightning_callback)
        return lightning_callback
    from trivet.integrations.transformers import MonitorTrainerCallback  # here: it loads transformers

    if isinstance(loss, str):
        raise ValueError(f"loss must be the module that is called as loss(embeddings, labels): got {loss!r}.")
    if loss is None and isinstance(trainer_loss := getattr(trainer, "loss", None), SentenceLoss):
        loss = trainer_loss.batch
    callback = MonitorTrainerCallback(CollapseMonitor(), loss, action=action, probe=probe)
    callback.add_to(trainer)
    return callback


def _classes(labels: Any) -> Integers:
    """Class numbers `(M,)` of integers or texts."""
    values = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(list(labels))
    if values.dtype.kind == "U":
        values = np.unique(values, return_inverse=True)[1]
    return as_classes(values, count=len(values)).numpy()


def _encode(model: Callable[[], Any], texts: list[str]) -> Array:
    """Embeddings of texts by a model of sentence-transformers, whose Euclidean distances rank as it compares."""
    cosine = getattr(model(), "similarity_fn_name", "cosine") == "cosine"
    embeddings: Array = model().encode(
        texts, convert_to_tensor=True, normalize_embeddings=cosine, show_progress_bar=False
    )
    return embeddings


def _texts(items: Any, levels: Sequence[str]) -> list[str]:
    """The texts of a list, or of the only other column of a table that has texts."""
    if not levels:
        if not all(isinstance(text, str) for text in items):
            raise ValueError("items must be texts, or a table whose column of labels is named: got others.")
        return list(items)
    columns = [name for name in getattr(items, "column_names", None) or list(items) if name not in levels]
    columns = [name for name in columns if isinstance(next(iter(items[name]), None), str)]
    if len(columns) != 1:
        raise ValueError(
            f"items must have one column of texts besides {' and '.join(levels)}: got {', '.join(columns) or 'none'}; "
            "pass texts and labels as two lists."
        )
    return list(items[columns[0]])


def _sentences(event: Event) -> str:
    return f"{event.title}: {event.rule}. {' '.join(event.changes)} Last healthy step: {event.healthy}."


def _rows(series: Mapping[str, Sequence[float]], names: Mapping[str, str], first: int) -> list[dict[str, float]]:
    """The finite values of some series, by new names, from a row on."""
    return [
        {new: series[name][row] for name, new in names.items() if math.isfinite(series[name][row])}
        for row in range(first, len(series["step"]))
    ]


@torch.no_grad()
def _evaluated(network: nn.Module, embed: Probe) -> Sequence[Array]:
    """The embeddings and labels of a probe in evaluation mode; each module is left in the mode it was in."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        return embed()
    finally:
        for module, training in modes.items():
            module.training = training
