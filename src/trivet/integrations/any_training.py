"""Watch any training in three lines: a trainer of another library, or a loop of your own, by held-out items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.distances import Array, as_classes
from trivet.integrations.sentence_transformers import SentenceLoss
from trivet.integrations.watch import Action, LossWatch
from trivet.mining.batch import Labels
from trivet.mining.relations import Relation
from trivet.runtime.arrays import Integers

if TYPE_CHECKING:
    from trivet.integrations.lightning import MonitorCallback
    from trivet.integrations.transformers import MonitorTrainerCallback


class Watch:
    """Watch held-out items while a training loop of your own goes on, with any loss of any library.

    They are embedded now, ever more rarely during training, and at its end: network collapse, class collapse and harm
    are judged by them alone, as docs/collapse_method.md says. Each event becomes a warning. Over many steps that costs
    at most 2 % of them, by an estimate; a short run of known length embeds them about five times all the same.

    Args:
        embed: gives embeddings `(M, d)` of `items`: a function, module, or method of one, such as `model.encode`. It is
            called without gradients, and a module in evaluation mode, of which each part is left in the mode it was in;
            a function does that itself. Distances are Euclidean: normalise what you compare by cosine.
        items: some hundred that are not trained on, several of each class.
        labels: M, integers or texts, or a relation of M items, such as `trivet.Tags`; of `trivet.Pairs` the items are
            the left side and then the right one.
        fine: finer classes inside the labels, if there are any, as `labels`.
        steps: optimiser steps of the run, if known: items are embedded no less often than at each quarter.
        model: the network that `embed` uses, where that is a function: it is put in evaluation mode as a module is.
        report, restore_best: see `trivet.watch`.

    Attributes:
        monitor: what was measured and found.

    Raises:
        ValueError: if labels are neither integers nor texts; if a `model` is needed and there is none.

    Example:
        >>> import torch
        >>> network, points = torch.nn.Linear(2, 2), torch.eye(2).repeat(20, 1)
        >>> watch = Watch(network, points, ["a", "b"] * 20)
        >>> for _ in range(6):  # a step of any optimiser on any loss
        ...     _ = torch.nn.init.zeros_(network.weight)
        ...     events = watch.step()
        >>> watch.close().partition(":")[0]
        'Recall@1 by the labels of 40 held-out items ends 51.3 points (99 % interval 42.0 to 60.6) below its start'
    """

    def __init__(
        self,
        embed: Callable[[Any], Array],
        items: Any,
        labels: Sequence[int | str] | Array | Relation,
        *,
        fine: Sequence[int | str] | Array | None = None,
        steps: int | None = None,
        model: nn.Module | None = None,
        report: Path | str | None = None,
        restore_best: bool = False,
    ) -> None:
        levels = [_classes(values) for values in (labels, fine) if values is not None]
        candidates = (model, embed, getattr(embed, "__self__", None))
        network = next((value for value in candidates if isinstance(value, nn.Module)), None)
        if restore_best and network is None:
            raise ValueError("restore_best needs the network, as `embed` is a function: got none; give model=.")
        self.monitor = CollapseMonitor(steps=steps)
        self._watch: LossWatch[nn.Module] = LossWatch(
            self.monitor, probe=lambda _: (embed(items), *levels), report=report, restore_best=restore_best
        )
        self._steps = 0
        self._watch.begin(None, lambda: self._steps, network or nn.Module())

    def step(
        self, embeddings: Tensor | None = None, labels: Labels | None = None, loss: Tensor | float | None = None
    ) -> list[Event]:
        """Note an optimiser step that was made; returns the events it brought.

        Args:
            embeddings: `(N, d)` of the batch, if they can be had: held-out items are then embedded when it is
                suspicious, too, which is earlier.
            labels: `(N,)` integer, or a relation of N items.
            loss: of the batch.
        """
        self._steps += 1
        self._watch.update(embeddings, labels, loss)
        return self._watch.warn_of_events()

    def close(self) -> str | None:
        """Embed held-out items for the last time; returns one sentence on how they ended, as `CollapseMonitor.close`.

        With `restore_best` another one follows. It is None if nothing was trained.
        """
        self._watch.end(main=True)
        sentences = [text for text in (self.monitor.closing(), self._watch.restored) if text is not None]
        return " ".join(sentences) or None


def watch(
    trainer: Any,
    items: Any,
    labels: str | Sequence[int | str] | Array | Relation,
    *,
    fine: str | Sequence[int | str] | Array | None = None,
    embed: Callable[[Any], Array] | None = None,
    loss: nn.Module | str | None = None,
    action: Action = "warn",
    report: Path | str | None = None,
    restore_best: bool = False,
) -> MonitorTrainerCallback | MonitorCallback:
    """Watch held-out items while a trainer of another library trains, with any loss; call it before the training.

    What is found joins what the trainer logs, as the callback that is returned says, and the sentence with which it
    closes: "Recall@1 by the labels of 300 held-out items ends 7.9 points (99 % interval 5.1 to 10.8) below its start".

    Args:
        trainer: a `SentenceTransformerTrainer`, a `Trainer` of transformers, or one of Lightning.
        items: some hundred that are not trained on, several of each class: what `embed` takes; without it a list of
            texts, or a table of columns with one of texts, such as a `datasets.Dataset`.
        labels: name of a column of `items`, or one for each item, integers or texts, or a relation of the items; see
            `Watch`.
        fine: finer classes inside the labels, if there are any, likewise.
        embed: gives embeddings `(M, d)` of `items`, with the network of the trainer, which is in evaluation mode
            meanwhile, without gradients. Distances between them are Euclidean. A model of sentence-transformers needs
            none: its `encode` is called, and rows are normalised if it compares by cosine.
        loss: what is called as loss(embeddings, labels), if there is such a thing: its batches tell earlier when to
            embed held-out items. For Lightning the name of a submodule. Default: a `SentenceLoss` of the trainer.
        action: what an event does, beside a warning: nothing, or with "stop" end the training after the step.
        report: html page that is written at the end: how held-out items ended, their curve, and the events.
        restore_best: whether the network gets the weights that held-out items did best with, where it ends a point or
            more below that, beyond chance. A copy of it stays in the memory of the CPU.

    Raises:
        ValueError: if the trainer is none of these, `embed` is missing, `items` and `labels` do not fit, or there is a
            file that is no such report.

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
        levels = [_labels_of(values, len(items)) for values in levels]

    def probe(_: nn.Module) -> Sequence[Any]:
        return embed(items), *levels

    if "lightning" in libraries:
        from trivet.integrations.lightning import MonitorCallback  # here: it loads Lightning

        if isinstance(loss, nn.Module):
            raise ValueError(f"loss must be the name of a submodule of the LightningModule: got {loss!r}.")
        lightning_callback = MonitorCallback(
            CollapseMonitor(), loss, action=action, probe=probe, report=report, restore_best=restore_best
        )
        trainer.callbacks.insert(0, lightning_callback)
        return lightning_callback
    from trivet.integrations.transformers import MonitorTrainerCallback  # here: it loads transformers

    if isinstance(loss, str):
        raise ValueError(f"loss must be the module that is called as loss(embeddings, labels): got {loss!r}.")
    if loss is None and isinstance(trainer_loss := getattr(trainer, "loss", None), SentenceLoss):
        loss = trainer_loss.batch
    callback = MonitorTrainerCallback(
        CollapseMonitor(), loss, action=action, probe=probe, report=report, restore_best=restore_best
    )
    callback.add_to(trainer)
    return callback


def _classes(labels: Any) -> Integers | Relation:
    """Class numbers `(M,)` of integers or texts; a relation as it is."""
    if isinstance(labels, Relation):
        return labels
    if isinstance(labels, Tensor):
        labels = labels.cpu()
    values = np.asarray(labels if hasattr(labels, "__array__") else list(labels))
    if values.dtype.kind == "U":
        values = np.unique(values, return_inverse=True)[1]
    return as_classes(values, count=len(values)).numpy()


def _labels_of(labels: Integers | Relation, count: int) -> Integers | Relation:
    """The labels, one for each of so many items."""
    if not isinstance(labels, Relation):
        return as_classes(labels, count=count).numpy()
    if len(labels) != count:
        raise ValueError(f"labels must hold one for each item: got {len(labels)} for {count}; take relation[rows].")
    return labels


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
