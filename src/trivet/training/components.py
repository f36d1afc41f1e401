"""Builds network, loss, batches and data from the settings of a run, of which each component gets its section."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trivet.collapse.monitor import CollapseMonitor
from trivet.collapse.strategy import SamplingStrategy
from trivet.datasets import Dataset, Inputs, Splits, augmentation, load
from trivet.datasets.dataset import check_classes
from trivet.datasets.equal_items import distinct_texts, with_positive
from trivet.datasets.features import FeatureInputs
from trivet.datasets.holdout import folds_advice, holdout_unit, holds_items_out
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.datasets.sides import positions_of_sides, sides_of
from trivet.distances import unit_rows
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.matryoshka import of_batch
from trivet.mining import Relation
from trivet.models import Embedder, ModelConfig, Tokenize, build, in_unit_range, tokenize_of
from trivet.runtime.arguments import check_name, nearest
from trivet.runtime.arrays import Integers
from trivet.runtime.cache import cache_limit
from trivet.runtime.fingerprint import fingerprint
from trivet.runtime.progress import report
from trivet.runtime.text import noun
from trivet.samplers import BatchPlan, PKBatches, RelationBatches, ShuffledBatches, SubsetBatches
from trivet.training.checkpoint import TrainState
from trivet.training.checkpoint_selection import make_selection, monitored_split, selection_split
from trivet.training.config import TO_THE_END, RunConfig
from trivet.training.distributed.process_group import ProcessGroup
from trivet.training.embed_dataset import embed
from trivet.training.features import with_features
from trivet.training.guard import Guard
from trivet.training.history import History, motion_of
from trivet.training.label_cleaning import LabelCleaning
from trivet.training.loop import Batches, Learner, fit, step_seed
from trivet.training.loss_config import LossConfig
from trivet.training.mined_batches import check_mined, mined_batches, mined_triplets
from trivet.training.pair_batches import pair_batches
from trivet.training.precision import check_precision, device_of
from trivet.training.probe import no_probe_reason, probe_items
from trivet.training.sampling_log import SamplingLog

LOSS_STREAM = 3  # of the random numbers of step 0, beside those of the batches
FITTED = 20_000  # training items from which a projection is found
EMBEDDED = 5_000  # where a backbone must embed them first


def load_splits(
    config: RunConfig,
    data_root: Path | None,
    progress: Callable[[int, int], None] | None = None,
    *,
    tokenize: Tokenize | tuple[Tokenize | None, ...] | None = None,
) -> Splits:
    """The data of a run; what a step is chosen by comes last, so that the main evaluation split is one that is not.

    Args:
        tokenize: of a network of texts that was trained already; the default is that of the settings.

    Raises:
        ValueError: as `trivet.datasets.load`; also if there is nothing to choose by, or to evaluate beside it.
    """
    splits = load(config.data, data_root, progress, tokenize=tokenize or tokenize_of(config.model))
    choosing = config.choosing
    if choosing.counted_measure is None:
        return splits
    split = selection_split(splits)
    if split is None or len(splits.evaluation) < 2:
        available = ", ".join(splits.evaluation)
        setting, remedy = 'keep = "best"', 'choosing.keep = "last"'
        if choosing.keep != "best":
            setting, remedy = f"patience = {choosing.patience}", "no choosing.patience"
        raise ValueError(
            f"choosing.{setting} needs items to choose by beside those that are evaluated: there is only {available}; "
            f"set {remedy}{folds_advice(splits)}."
        )
    of_classes = holdout_unit(splits.train, splits.level) == "classes"
    if config.data.folds and "folds_of" not in config.data.model_fields_set and of_classes and holds_items_out(splits):
        units = noun(2, splits.train.unit(splits.level))
        note = (
            f"The step is chosen by {units} that are held out, but most of what is evaluated is of {units} that are "
            'trained on: data.folds_of = "items" chooses by items of these.'
        )
        splits = replace(splits, warnings=(*splits.warnings, note))
    others = {name: dataset for name, dataset in splits.evaluation.items() if name != split}
    evaluation = {**others, split: splits.evaluation[split]}
    return replace(splits, evaluation=evaluation)


def new_network(config: RunConfig, input_shape: tuple[Any, ...]) -> Embedder:
    """The network of the settings for inputs of a shape, without what follows from the items, see `fit_last_layer`.

    Raises:
        ValueError: if the settings do not fit the inputs.
    """
    network = build(config.model, input_shape, config.seed)
    for each in network.networks:
        each.resize = getattr(config.data, "resize", None) if len(each.input_shape) == 3 else None
    return network


def begun(config: RunConfig, splits: Splits) -> tuple[Embedder, Splits]:
    """The network of a run before its first step, the same each time, and the splits that it trains on.

    Returns:
        also the splits, with features where the network has an encoder that stays as it is, see `with_features`.

    Raises:
        ValueError: if the settings do not fit the inputs.
    """
    network = new_network(config, splits.train.inputs.shape)
    splits = with_features(config, splits, network)
    fit_last_layer(network, splits.train, splits.level, seed=config.seed)
    return network, splits


def fit_last_layer(network: Embedder, train: Dataset, level: str, *, seed: int) -> None:
    """Fit what the last layer of a new network begins as, where that follows from the items.

    A residual head, or a linear one on pretrained features, of fewer dimensions than its input begins as a projection;
    whitening is fitted. They take at most 20,000 random training items, 5,000 where a backbone must embed them;
    these are of length 1 where embeddings are.

    Args:
        train: the training items, without those that are held out.
        level: the label level to train on.
    """
    labels = train.labels[level]
    for each, inputs, positions in zip(
        network.networks, sides_of(train.inputs), positions_of_sides(train.inputs), strict=True
    ):
        _fit_last_layer(each, inputs, labels[positions], seed=seed)


def _fit_last_layer(network: Embedder, inputs: Inputs, labels: Integers, *, seed: int) -> None:
    """See `fit_last_layer`, of a single network, of all its inputs with a class `(N,)` each."""
    head = network.unfitted
    if head is None:
        return
    backbone = network.backbone
    slow = backbone is not None and not isinstance(inputs, FeatureInputs)
    rows = np.sort(np.random.default_rng(seed).permutation(len(inputs))[: EMBEDDED if slow else FITTED])
    some = inputs.subset(rows)
    if backbone is not None:
        features = torch.from_numpy(embed(backbone, some))  # of length 1 if embeddings are
    else:
        features = in_unit_range(some.batch(np.arange(len(some)))).flatten(1)
        features = unit_rows(features) if network.normalize else features
    head.fit_base(features, torch.from_numpy(labels[rows]))


def make_loss(loss: LossConfig, model: ModelConfig, classes: int, *, seed: int) -> EmbeddingLoss | MatryoshkaLoss:
    """The loss of the settings for so many training classes, its random choices seeded."""
    return loss.build_at_prefixes(
        num_classes=classes,
        embedding_dim=model.embedding_dim,
        normalize=model.normalize,
        generator=torch.Generator().manual_seed(step_seed(seed, 0, LOSS_STREAM)),
    )


def make_batches(config: RunConfig, items: Dataset, level: str) -> BatchPlan:
    """The batches of the settings over the items, in classes of a level; of equal texts over one, see `distinct_texts`.

    Pairs are drawn as such, see `pair_batches`.

    Raises:
        ValueError: if there are too few items or classes, a class needs a positive and has one item, or `balance` is
            no coarser level.
    """
    batch = config.batch
    if isinstance(pairs := items.relations.get(level), JudgedPairs):
        return pair_batches(pairs, items.numbers[level], size=batch.batch_size, seed=config.seed)
    if batch.balance is not None:
        coarser = list(items.labels)[: list(items.labels).index(level)]
        if batch.balance not in coarser:
            known = nearest(batch.balance, coarser) if coarser else "there is none; remove it."
            raise ValueError(
                f"batch.balance must be a label level coarser than {level!r}: got {batch.balance!r}; {known}"
            )
    labels, batched, rows, related = items.labels[level], items, np.arange(len(items)), level in items.relations
    needs_positives = config.needs_positives and not related  # else an item without one is no anchor
    if needs_positives:
        _check_positives(items, level)
    if config.data.item_kind == "texts":
        rows = distinct_texts(items, level).rows
        rows = with_positive(rows, labels) if needs_positives else rows
        batched = items.subset(rows)
    plan: BatchPlan
    if batch.mined is not None:
        assert batch.size is not None
        plan = mined_batches(batch.mined, batched, level, size=batch.size, seed=config.seed)
    elif batch.size is not None:
        plan = ShuffledBatches(len(batched), size=batch.size, seed=config.seed)
    elif isinstance(relation := batched.relation(level), Relation):
        plan = RelationBatches(
            relation,
            num_anchors=batch.num_classes,
            samples_per_anchor=batch.samples_per_class,
            seed=config.seed,
        )
    else:
        plan = PKBatches(
            batched.labels[level],
            num_classes=batch.num_classes,
            samples_per_class=batch.samples_per_class,
            seed=config.seed,
            groups=None if batch.balance is None else batched.labels[batch.balance],
            positives=config.needs_positives,
        )
    return plan if len(rows) == len(items) else SubsetBatches(plan, rows, labels)


def class_sizes(config: RunConfig, items: Dataset, level: str) -> list[int]:
    """Items of each class that batches may hold: equal texts are one, and such a class alone is in none.

    Where other classes have one item, too, it counts: batches that need positives are then not to be had.
    """
    labels, rows = items.labels[level], np.arange(len(items))
    if items.has_tags(level):
        return [len(items)] * items.num_classes(level)
    if config.data.item_kind == "texts":
        rows = distinct_texts(items, level).rows
        if np.unique(labels, return_counts=True)[1].min() > 1:
            rows = with_positive(rows, labels)
    sizes: list[int] = np.unique(labels[rows], return_counts=True)[1].tolist()
    return sizes


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
    network, splits = begun(config, Splits(items, {}, level))
    learner, items = _learner(config, network, splits.train, level), splits.train
    learner.after_step, learner.monitor = after_step, monitor
    return learner, _batches(config, items, level, make_batches(config, items, level), start=0, steps=steps)


def trained_on(
    config: RunConfig,
    splits: Splits,
    items: Dataset,
    title: str,
    *,
    monitor: CollapseMonitor | None = None,
    after_step: Callable[[int], None] = lambda step: None,
) -> Embedder:
    """A network trained on some of the training items for as many steps as a run, in evaluation mode on the CPU.

    Args:
        title: of the progress.
        monitor: see `Learner`.
        after_step: gets the number of steps done; what it raises ends the training.

    Raises:
        KeyboardInterrupt: if it was asked to end.
    """
    config = in_steps(config, splits)
    steps = config.training.num_steps

    def report_step() -> None:
        report(title, learner.step, steps)
        after_step(learner.step)

    learner, batches = first_task(config, items, splits.level, steps=steps, after_step=report_step, monitor=monitor)
    if not fit(learner, batches, workers=config.training.workers):
        raise KeyboardInterrupt
    return learner.measured.eval()


def _learner(
    config: RunConfig, network: Embedder, train: Dataset, level: str, world: ProcessGroup | None = None
) -> Learner:
    loss = make_loss(config.loss, config.model, train.num_classes(level), seed=config.seed)
    return Learner(
        network,
        loss,
        config.training,
        seed=config.seed,
        micro=config.batch.micro,
        world=world,
        relation=train.relations.get(level),
    )


def _batches(
    config: RunConfig,
    items: Dataset,
    level: str,
    plan: BatchPlan,
    *,
    start: int,
    steps: int,
    world: ProcessGroup | None = None,
) -> Batches:
    """Batches with the labels of the level, and of the finest where that is another and both are of classes."""
    finest = list(items.labels)[-1]
    alone = finest == level or not items.relations.keys().isdisjoint((level, finest))
    return Batches(
        items,
        level,
        plan,
        augmentation(config.data),
        seed=config.seed,
        start=start,
        steps=steps,
        fine=None if alone else finest,
        world=world,
    )


def check_before_data(config: RunConfig) -> None:
    """Check what settings alone can tell, before any data are read.

    Raises:
        ValueError: if they ask for a GPU where torch sees none, for a precision that the device lacks, for measures at
            label levels that are not there, for mined triplets that are not there, or for a network that does not fit
            the inputs or whose published weights cannot be had; also as `cache_limit`.
    """
    mined = config.batch.mined
    if mined is not None and not mined.is_file():
        raise ValueError(f"batch.mined must be a file of triplets: {mined} does not exist; check the path.")
    cache_limit()
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
        splits: the data, with features where an encoder stays as it is, see `with_features`.
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
        self.config = config = in_steps(config, splits)
        check_levels(config, splits.train.labels)
        network, splits = begun(config, splits)
        self.splits, train, level = splits, splits.train, splits.level
        mined = config.batch.mined
        for setting in ("cleaning", "batch.balance", "batch.mined"):
            section, _, key = setting.partition(".")
            if (getattr(getattr(config, section), key) if key else config.cleaning) is not None:
                check_classes(train, level, setting)
        self.mined_note = "" if mined is None else check_mined(mined, train, level)
        self.probe_items = probe_items(config.guard, splits, batch_size=config.batch.batch_size, seed=config.seed)
        learner = _learner(config, network, train, level, world)
        loss, batch = of_batch(learner.loss), config.batch
        chooses = batch.in_classes and batch.num_classes > 1 and level not in train.relations
        strategy = SamplingStrategy(loss, batch.num_classes, batch.samples_per_class) if chooses else None
        guard = Guard(config.guard, steps=config.training.num_steps, strategy=strategy)
        if main := world is None or world.main:  # it sees the whole batch, as all do
            learner.monitor = guard.monitor
            guard.follow(learner.model)
            if self.probe_items is not None:
                cosine = config.evaluation.distance == "cosine"
                learner.probe = self.probe_items.probe_of(learner.model, cosine=cosine)
        self.state = TrainState(
            learner,
            guard,
            LabelCleaning(config.cleaning, train.labels[level], batch_size=config.batch.batch_size),
            make_selection(config.choosing, config.evaluation, splits, seed=config.seed),
            History(
                train,
                level,
                steps=config.training.num_steps,
                distance=config.evaluation.distance,
                motion=motion_of(loss, normalize=config.model.normalize),
                seed=config.seed,
            ),
            SamplingLog(splits, loss, steps=config.training.num_steps),
        )
        self.take_items()
        self.split = monitored_split(splits)
        self.state.selection.shared = None if world is None else world.embed
        if main:
            self.state.sampling.watch(learner.loss, lambda: learner.step, self._truth)

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

    def measures_at(self, step: int) -> bool:
        """True if held-out items are measured after so many steps."""
        return step % self.config.evaluation.every == 0 or step == self.config.training.num_steps

    def batches_from(self, step: int) -> Batches:
        """The batches from a step to the last, as `fit` takes them."""
        steps = self.config.training.num_steps
        return _batches(
            self.config, self.items, self.splits.level, self.batches, start=step, steps=steps, world=self.world
        )

    def _truth(self, step: int) -> Integers | None:
        """The true labels of the batch that follows so many steps; None where they are not known."""
        if self.splits.noise is None:
            return None
        index = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
        truth: Integers = self.splits.noise.true_labels[self.rows[index]]
        return truth


def run_fingerprint(config: RunConfig, splits: Splits) -> str:
    """The fingerprint of the items, and of the settings that a checkpoint depends on.

    Of decisions on labels, and of mined triplets, it is what they say of these, and not where their file lies.
    """
    changes_nothing = {"log_every", "checkpoint_every", "workers", "loggers", "mlflow_uri", "devices"}
    if config.training.schedule not in TO_THE_END:
        changes_nothing.add("steps")
    settings = config.model_dump(
        mode="json",
        exclude={
            "evaluation": True,
            "guard": True,
            "training": changes_nothing,
            "data": {"decisions"},
            "batch": {"mined"},
            "choosing": True if config.choosing.keep == "last" else {"patience"},
        },
    )
    values: list[object] = [json.dumps(settings, sort_keys=True), splits.train.ids]
    if splits.decisions is not None:
        values.append(splits.train.labels[splits.level])
    probe = probe_items(config.guard, splits, batch_size=config.batch.batch_size, seed=config.seed)
    if probe is not None and probe.split is None:
        values.append(probe.rows)  # left out of training
    if config.batch.mined is not None:
        values.append(mined_triplets(config.batch.mined, splits.train)[0])
    return fingerprint(values)
