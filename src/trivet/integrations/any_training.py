"""Watch any training in three lines: a trainer of another library, or a loop of your own, by held-out items."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.distances import Array, as_classes
from trivet.integrations.sentence_transformers import SentenceLoss
from trivet.integrations.watch import Action, evaluated, event_sentences
from trivet.runtime.arrays import Integers

if TYPE_CHECKING:
    from trivet.integrations.lightning import MonitorCallback
    from trivet.integrations.transformers import MonitorTrainerCallback


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
        >>> import torch
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
        self._probe = partial(evaluated, modules[0] if modules else nn.Module(), lambda: (embed(items), *levels))
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
            warnings.warn(event_sentences(event), stacklevel=2)
        return events

    def close(self) -> str | None:
        """Embed held-out items for the last time; returns one sentence on how they ended, as `CollapseMonitor.close`.

        It is None if nothing was trained.
        """
        count = len(self.monitor.events)
        sentence = self.monitor.close(self._probe, step=self._steps)
        for event in self.monitor.events[count:]:
            warnings.warn(event_sentences(event), stacklevel=2)
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
