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
from trivet.models import Embedder, build
from trivet.runtime.arguments import check_name, nearest
from trivet.runtime.arrays import Integers
from trivet.samplers import BatchPlan, PKBatches, ShuffledBatches, SubsetBatches
from trivet.training.checkpoint_selection import make_selection, monitored_split
from trivet.training.config import RunConfig
from trivet.training.distributed.process_group import ProcessGroup
from trivet.training.guard import Guard
from trivet.training.history import History
from trivet.training.initial_network import untrained
from trivet.training.label_cleaning import LabelCleaning
from trivet.training.loop import Batches, TrainState, step_seed
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
    """How many items of each class batches may hold: equal texts are one, and such a class alone is in none.

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
) -> tuple[TrainState, Batches]:
    """A network and a loss before their first step, and the batches of the first `steps`, to be given to `fit`.

    Args:
        items: to train on.
        level: the label level to train on.
        after_step, monitor: see `TrainState`.
    """
    model = untrained(config, items)
    task = TrainState(
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
    """What settings alone can tell, before any data are read.

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
    """The parts of a run while it trains, as the settings in force make them.

    Attributes:
        config: the settings of the user, epochs counted in steps.
        settings: those in force, which repairs change.
        model: a repair loads weights into it; one that widens the embedding builds another, whose last layer is new.
        average: of its weights, if the settings ask for one.
        guard: what was seen, and done about it.
        held_out: the items that the guard asks, see `training.probe`; None for none.
        items, rows, batches: what is trained on, and which training items these are: without what cleaning and the
            probe leave out, with the labels that cleaning gives.
        split, sample: the name of the evaluation split that is followed, and the items of it that are measured during
            training.
        choosing: the best step so far, by these items.
        mined_note: how many mined triplets are left out, in a sentence; empty where none is.

    Raises:
        ValueError: if the settings do not fit the data.
    """

    def __init__(self, config: RunConfig, splits: Splits, world: ProcessGroup | None = None) -> None:
        self.world = world
        self.config, self.splits = (config := in_steps(config, splits)), splits
        check_levels(config, splits.train.labels)
        mined = config.batch.mined
        self.mined_note = "" if mined is None else check_mined(mined, splits.train, splits.level)
        self.guard = Guard(config, class_sizes(config, splits.train, splits.level))
        self.fine = finer_level(splits.train, splits.level)
        self.model = untrained(config, splits.train)
        parameter_groups(self.model, config.training)  # here, as it may refuse the settings
        self.settings = config
        self.cleaning = self._cleaning_of(config)
        self.probe_items = probe_items(config, splits)
        self.put_in_force(config)
        self.split = monitored_split(splits)
        self.choosing = make_selection(config, splits)
        self.choosing.shared = None if world is None else world.embed
        self.sample = self.choosing.items

    @property
    def measured(self) -> Embedder:
        """The network that is looked at, chosen and saved: the average of the weights, where there is one."""
        return self.model if self.average is None else self.average

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of the network, and of the pieces that it gets, in sentences."""
        return (*self.model.notes, *filter(None, [self.piece_note, self.probe_note, self.mined_note]))

    @property
    def probe_note(self) -> str:
        """That training items are left out for the guard, or no probe is asked though one was wanted; else empty."""
        if self.probe_items is None:
            return no_probe_reason(self.config, self.splits)
        return self.probe_items.sentence if self.probe_items.split is None else ""

    @property
    def piece_note(self) -> str:
        """What batch norm is computed over where a batch is embedded in pieces; empty where it is not."""
        batch = self.config.batch
        norms = [module for module in self.model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        if batch.piece_size == batch.batch_size or not any(module.training for module in norms):
            return ""
        return (
            f"Batch norm normalises each piece of {batch.piece_size} items over itself (batch.micro = {batch.micro}), "
            f"not the whole batch of {batch.batch_size}. The gradient is that of the whole batch for a network without "
            'batch norm, or a backbone with model.batch_norm = "frozen".'
        )

    def clean_as(self, settings: RunConfig) -> None:
        """Begin to clean labels as the settings say, with all labels as given, if that is not done already."""
        if self.cleaning.config != settings.cleaning:
            self.cleaning = self._cleaning_of(settings)

    def _cleaning_of(self, settings: RunConfig) -> LabelCleaning:
        labels = self.splits.train.labels[self.splits.level]
        # The size that the user gave: a repair may change it, and after a kill the first check is at the same step.
        return LabelCleaning(settings.cleaning, labels, batch_size=self.config.batch.batch_size)

    def put_in_force(self, settings: RunConfig) -> None:
        """Build what depends on the settings that repairs change."""
        train, level = self.splits.train, self.splits.level
        made = [of.model.model_copy(update={"normalize": False}) for of in (settings, self.settings, self.config)]
        if any(made[0] != other for other in made):  # a repair widened it, or made batch norm keep its statistics
            self.model = untrained(settings, train)
        self.settings = settings
        if len(np.unique(self.cleaning.labels[self.cleaning.rows])) < settings.batch.needed_classes:
            self.cleaning.reset()  # a repair took more classes than were left
        self.take_items()
        self.model.normalize = settings.model.normalize
        self.average = copy.deepcopy(self.model) if settings.training.ema is not None else None
        self.loss = make_loss(settings, len(train.names[level]))
        self.history = History(train, level, settings)
        self.picks = SamplingLog(self.splits, settings)

    def take_items(self) -> None:
        """Make batches of the items and labels that cleaning leaves."""
        train, level = self.splits.train, self.splits.level
        self.rows = self.cleaning.rows
        if self.probe_items is not None:
            self.rows = self._without(self.probe_items.rows)
        self.items = train
        if self.cleaning.changed or len(self.rows) < len(train):
            labels = {**train.labels, level: self.cleaning.labels}
            self.items = replace(train, labels=labels).subset(self.rows)
        self.batches = make_batches(self.settings, self.items, level)

    def _without(self, left_out: Integers) -> Integers:
        """The rows that cleaning leaves without others, and without classes that have no second item then."""
        rows, labels = np.setdiff1d(self.cleaning.rows, left_out), self.cleaning.labels
        if self.cleaning.changed:
            rows = rows[np.bincount(labels[rows])[labels[rows]] > 1]
            if len(np.unique(labels[rows])) < self.settings.batch.needed_classes:
                self.cleaning.reset()
                return self._without(left_out)
        return rows

    def task(self, after_step: Callable[[], None]) -> TrainState:
        """An optimiser that has done nothing yet; the monitor of the guard and the log of picks see its batches.

        Those of the main process: it sees the whole batch, as all do.
        """
        main = self.world is None or self.world.main
        task = TrainState(
            self.model,
            self.loss,
            self.settings.training,
            seed=self.settings.seed,
            after_step=after_step,
            monitor=self.guard.monitor if main else None,
            probe=self._probe() if main else None,
            average=self.average,
            since=self.guard.since,
            world=self.world,
            micro=self.settings.batch.micro,
        )
        if main:
            self.picks.watch(self.loss, lambda: task.step, self._truth)
        return task

    def _probe(self) -> Probe | None:
        if self.probe_items is None:
            return None
        cosine = self.settings.evaluation.distance == "cosine"
        return self.guard.watching(self.probe_items.probe_of(self.model, cosine=cosine), self.model)

    def looks_at(self, step: int) -> bool:
        """Whether held-out items are looked at after so many steps."""
        return step % self.settings.evaluation.every == 0 or step == self.settings.training.num_steps

    def batches_from(self, step: int) -> Batches:
        """The batches from a step to the last, as `fit` takes them."""
        settings = self.settings
        return Batches(
            self.items,
            self.splits.level,
            self.batches,
            augmentation(settings.data),
            seed=settings.seed,
            start=step,
            steps=settings.training.num_steps,
            fine=self.fine,
            world=self.world,
        )

    def _truth(self, step: int) -> Integers | None:
        """The true labels of the batch that follows so many steps; None where they are not known."""
        if self.splits.noise is None:
            return None
        index = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
        truth: Integers = self.splits.noise.true_labels[self.rows[index]]
        return truth
