"""Builds network, loss and batches from settings and data: for a probe, or for a whole run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from trivet.collapse.monitor import CollapseMonitor
from trivet.collapse.probe import Probe
from trivet.datasets import Dataset, Splits, augmentation
from trivet.datasets.duplicate_texts import distinct_texts, with_positive
from trivet.datasets.texts import TextsConfig
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.matryoshka import of_batch
from trivet.models import Embedder, build
from trivet.runtime.arguments import check_name, nearest
from trivet.runtime.arrays import Integers
from trivet.samplers import BatchPlan, PKBatches, ShuffledBatches, SubsetBatches
from trivet.training.checkpoint import TrainState
from trivet.training.checkpoint_selection import make_selection, monitored_split
from trivet.training.config import RunConfig
from trivet.training.distributed.process_group import ProcessGroup
from trivet.training.guard import Guard
from trivet.training.history import History, motion_of
from trivet.training.initial_network import untrained
from trivet.training.label_cleaning import LabelCleaning
from trivet.training.loop import Batches, Learner, step_seed
from trivet.training.mined_batches import check_mined, mined_batches
from trivet.training.optimizer import parameter_groups
from trivet.training.precision import check_precision, device_of
from trivet.training.probe import no_probe_reason, probe_items
from trivet.training.sampling_log import SamplingLog

LOSS_STREAM = 3  # of the random numbers of step 0, beside those of the batches


def make_loss(config: RunConfig, classes: int) -> EmbeddingLoss | MatryoshkaLoss:
    """The loss of the settings for so many training classes, its random choices seeded by them."""
    return config.loss.build_at_prefixes(
        num_classes=classes,
        embedding_dim=config.model.embedding_dim,
        normalize=config.model.normalize,
        generator=torch.Generator().manual_seed(step_seed(config.seed, 0, LOSS_STREAM)),
    )


def make_batches(config: RunConfig, items: Dataset, level: str) -> BatchPlan:
    """The batches of the settings over the items, in classes of a level; of equal texts over one, see `distinct_texts`.

    Raises:
        ValueError: if there are too few items or classes, a class needs a positive and has one item, or `balance` is
            no coarser level.
    """
    batch = config.batch
    if batch.balance is not None:
        coarser = list(items.labels)[: list(items.labels).index(level)]
        if batch.balance not in coarser:
            known = nearest(batch.balance, coarser) if coarser else "there is none; remove it."
            raise ValueError(
                f"batch.balance must be a label level coarser than {level!r}: got {batch.balance!r}; {known}"
            )
    labels = items.labels[level]
    if config.needs_positives:
        _check_positives(items, level)
    if not isinstance(config.data, TextsConfig):
        return _plan(config, items, level)
    rows = distinct_texts(items, level).rows
    if config.needs_positives:
        rows = with_positive(rows, labels)
    plan = _plan(config, items.subset(rows), level)
    return plan if len(rows) == len(items) else SubsetBatches(plan, rows, labels)


def class_sizes(config: RunConfig, items: Dataset, level: str) -> list[int]:
    """Items of each class that batches may hold: equal texts are one, and such a class alone is in none.

    Where other classes have one item, too, it counts: batches that need positives are then not to be had.
    """
    labels, rows = items.labels[level], np.arange(len(items))
    if isinstance(config.data, TextsConfig):
        rows = distinct_texts(items, level).rows
        if np.unique(labels, return_counts=True)[1].min() > 1:
            rows = with_positive(rows, labels)
    sizes: list[int] = np.unique(labels[rows], return_counts=True)[1].tolist()
    return sizes


def _plan(config: RunConfig, items: Dataset, level: str) -> BatchPlan:
    batch = config.batch
    if batch.mined is not None:
        assert batch.size is not None
        return mined_batches(batch.mined, items, level, size=batch.size, seed=config.seed)
    if batch.size is not None:
        return ShuffledBatches(len(items), size=batch.size, seed=config.seed)
    return PKBatches(
        items.labels[level],
        num_classes=batch.num_classes,
        samples_per_class=batch.samples_per_class,
        seed=config.seed,
        groups=None if batch.balance is None else items.labels[batch.balance],
        positives=config.needs_positives,
    )


def _check_positives(items: Dataset, level: str) -> None:
    """Raise ValueError unless each class has two items or more."""
    counts = np.bincount(items.labels[level])
    single = np.flatnonzero(counts == 1)
    if len(single):
        listed = ", ".join(repr(items.names[level][i]) for i in single[:5]) + (", ..." if len(single) > 5 else "")
        raise ValueError(
            f"a training class needs at least two items, so that it has a positive: {listed} ({len(single)} of "
            f"{int((counts > 0).sum())} classes at level {level!r}) has one; add items, remove the class, shuffle with "
            'batch.size, or set loss.name = "proxy-nca".'
        )


def first_task(
    config: RunConfig,
    items: Dataset,
    level: str,
    *,
    steps: int,
    after_step: Callable[[], None] = lambda: None,
    monitor: CollapseMonitor | None = None,
) -> tuple[Learner, Batches]:
    """A network and a loss before their first step, and the batches of the first `steps`, to be given to `fit`.

    Args:
        items: to train on.
        level: the label level to train on.
        after_step, monitor: see `Learner`.
    """
    model = untrained(config, items)
    task = Learner(
        model,
        make_loss(config, len(items.names[level])),
        config.training,
        seed=config.seed,
        after_step=after_step,
        monitor=monitor,
        average=copy.deepcopy(model) if config.training.ema is not None else None,
        micro=config.batch.micro,
    )
    fine = None if monitor is None else finer_level(items, level)
    batches = make_batches(config, items, level)
    augment = augmentation(config.data)
    return task, Batches(items, level, batches, augment, seed=config.seed, start=0, steps=steps, fine=fine)


def finer_level(items: Dataset, level: str) -> str | None:
    """The finest label level; None if it is the one that is trained on."""
    finest = list(items.labels)[-1]
    return None if finest == level else finest


def check_before_data(config: RunConfig) -> None:
    """Check what settings alone can tell, before any data are read.

    Raises:
        ValueError: if they ask for a GPU where torch sees none, for a precision that the device lacks, for measures at
            label levels that are not there, for mined triplets that are not there, or for a network that does not fit
            the inputs or whose published weights cannot be had.
    """
    mined = config.batch.mined
    if mined is not None and not mined.is_file():
        raise ValueError(f"batch.mined must be a file of triplets: {mined} does not exist; check the path.")
    check_precision(config.training.precision, device_of(config.training.accelerator))
    if config.data.label_levels is not None:
        check_levels(config, config.data.label_levels)
    if config.data.input_shape is not None:
        build(config.model, config.data.input_shape, config.seed)


def check_levels(config: RunConfig, levels: Iterable[str]) -> None:
    """Raises ValueError if the settings have measures at label levels that are not there."""
    if not isinstance(config.evaluation.nmi_plus, int):
        for level in config.evaluation.nmi_plus:
            check_name(level, levels, name="the level of evaluation.nmi_plus")
    if config.choosing.level is not None:
        check_name(config.choosing.level, levels, name="choosing.level")


def in_steps(config: RunConfig, splits: Splits) -> RunConfig:
    """The settings with steps in place of epochs: as many as there are batches of all training items in these.

    Raises:
        ValueError: if there are too few items or classes, or the schedule reaches past the last step.
    """
    training = config.training
    if training.epochs is None:
        return config
    steps = training.epochs * make_batches(config, splits.train, splits.level).steps_per_epoch
    values = training.model_dump(exclude={"epochs"}) | {"steps": steps}
    return config.model_copy(update={"training": type(training).parse(values, source="training")})


class Components:
    """Everything that trains, as the settings make it of the data.

    Attributes:
        config: the settings, epochs counted in steps.
        probe_items: the items that the guard measures, see `training.probe`; None for none.
        items, rows, batches: what is trained on, and which training items these are: without what cleaning and the
            probe leave out, with the labels that cleaning gives.
        split: the name of the evaluation split that is measured during training.
        state: network, loss, optimiser, and what was measured of them so far.
        mined_note: how many mined triplets are left out, in a sentence; empty where none is.

    Raises:
        ValueError: if the settings do not fit the data.
    """

    def __init__(self, config: RunConfig, splits: Splits, world: ProcessGroup | None = None) -> None:
        self.world = world
        self.config, self.splits = (config := in_steps(config, splits)), splits
        train, level = splits.train, splits.level
        check_levels(config, train.labels)
        mined = config.batch.mined
        self.mined_note = "" if mined is None else check_mined(mined, train, level)
        model = untrained(config, train)
        loss = make_loss(config, len(train.names[level]))
        parameter_groups(model, config.training)  # here, as it may refuse the settings
        self.probe_items = probe_items(config.guard, splits, batch_size=config.batch.batch_size, seed=config.seed)
        guard = Guard(config.guard, steps=config.training.num_steps)
        main = world is None or world.main  # it sees the whole batch, as all do
        learner = Learner(
            model,
            loss,
            config.training,
            seed=config.seed,
            monitor=guard.monitor if main else None,
            probe=self._probe(guard, model) if main else None,
            average=copy.deepcopy(model) if config.training.ema is not None else None,
            world=world,
            micro=config.batch.micro,
        )
        self.state = TrainState(
            learner,
            guard,
            LabelCleaning(config.cleaning, train.labels[level], batch_size=config.batch.batch_size),
            make_selection(config, splits),
            History(
                train,
                level,
                steps=config.training.num_steps,
                distance=config.evaluation.distance,
                motion=motion_of(of_batch(loss), normalize=config.model.normalize),
                seed=config.seed,
            ),
            SamplingLog(splits, of_batch(loss), steps=config.training.num_steps),
        )
        self.take_items()
        self.split = monitored_split(splits)
        self.state.selection.shared = None if world is None else world.embed
        if main:
            self.state.sampling.watch(loss, lambda: learner.step, self._truth)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the user should know of the network, and of the pieces that it gets."""
        return (*self.state.learner.model.notes, *filter(None, [self.piece_note, self.probe_note, self.mined_note]))

    @property
    def probe_note(self) -> str:
        """That training items are left out for the guard, or no probe is asked though one was wanted; else empty."""
        if self.probe_items is None:
            return no_probe_reason(self.config.guard, self.splits)
        return self.probe_items.sentence if self.probe_items.split is None else ""

    @property
    def piece_note(self) -> str:
        """A sentence on what batch norm is computed over where a batch is embedded in pieces; empty where it is not."""
        batch = self.config.batch
        modules = self.state.learner.model.modules()
        norms = [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        if batch.piece_size == batch.batch_size or not any(module.training for module in norms):
            return ""
        return (
            f"Batch norm normalises each piece of {batch.piece_size} items over itself (batch.micro = {batch.micro}), "
            f"not the whole batch of {batch.batch_size}. The gradient is that of the whole batch for a network without "
            'batch norm, or a backbone with model.batch_norm = "frozen".'
        )

    def take_items(self) -> None:
        """Make batches of the items and labels that cleaning leaves."""
        train, level, cleaning = self.splits.train, self.splits.level, self.state.cleaning
        self.rows = cleaning.rows
        if self.probe_items is not None:
            self.rows = self._without(self.probe_items.rows)
        self.items = train
        if cleaning.changed or len(self.rows) < len(train):
            self.items = replace(train, labels={**train.labels, level: cleaning.labels}).subset(self.rows)
        self.batches = make_batches(self.config, self.items, level)

    def _without(self, left_out: Integers) -> Integers:
        """The rows that cleaning leaves without others, and without classes that have no second item then."""
        cleaning = self.state.cleaning
        rows, labels = np.setdiff1d(cleaning.rows, left_out), cleaning.labels
        if cleaning.changed:
            rows = rows[np.bincount(labels[rows])[labels[rows]] > 1]
            if len(np.unique(labels[rows])) < self.config.batch.needed_classes:
                cleaning.reset()
                return self._without(left_out)
        return rows

    def _probe(self, guard: Guard, model: Embedder) -> Probe | None:
        if self.probe_items is None:
            return None
        cosine = self.config.evaluation.distance == "cosine"
        return guard.watching(self.probe_items.probe_of(model, cosine=cosine), model)

    def measures_at(self, step: int) -> bool:
        """True if held-out items are measured after so many steps."""
        return step % self.config.evaluation.every == 0 or step == self.config.training.num_steps

    def batches_from(self, step: int) -> Batches:
        """The batches from a step to the last, as `fit` takes them."""
        return Batches(
            self.items,
            self.splits.level,
            self.batches,
            augmentation(self.config.data),
            seed=self.config.seed,
            start=step,
            steps=self.config.training.num_steps,
            fine=finer_level(self.splits.train, self.splits.level),
            world=self.world,
        )

    def _truth(self, step: int) -> Integers | None:
        """The true labels of the batch that follows so many steps; None where they are not known."""
        if self.splits.noise is None:
            return None
        index = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
        truth: Integers = self.splits.noise.true_labels[self.rows[index]]
        return truth
