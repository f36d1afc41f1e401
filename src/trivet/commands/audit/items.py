"""The labelled items of an audit: those of a file, of texts, or of a run, embedded out of fold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.commands.audit.options import AuditOptions
from trivet.commands.inputs import default_distance
from trivet.config.base import nearest
from trivet.datasets import Dataset, Splits, load
from trivet.datasets.equal_items import content_keys, row_keys
from trivet.datasets.preview import Preview
from trivet.io.embedding_table import Vectors
from trivet.io.formats import holds_vectors, is_table
from trivet.io.overwrite_guard import is_run_folder
from trivet.io.read_embeddings import read_texts, read_vectors
from trivet.io.tag_cells import PAIRS
from trivet.label_noise import estimate_noise
from trivet.metrics.folds import stratified_folds
from trivet.metrics.points import Metric
from trivet.models import Embedder, encoder_vectors, ngram_vectors, tokenize_of
from trivet.runtime.arrays import Integers
from trivet.runtime.progress import reporter
from trivet.runtime.text import counted, noun
from trivet.training.class_sample import class_sample
from trivet.training.embed_dataset import embed, label_names, raw_inputs
from trivet.training.run_folder import RunFolder, trained_model

FOLDS, FEWER = 3, 2  # where none are asked for
TYPICAL = 10  # items of the median class from which on a label can be judged by its neighbours
FEW = 20  # items of the median class in a fold: where there are less, fewer folds are made, and a note says so
MEMORISED = (
    "If the network that made these embeddings was trained on these labels, it may have memorised wrong ones, which "
    "then stay hidden. An audit of its run judges each item by a network that has not seen its label."
)
TEXT = "text"  # the column that is shown of each row of a file, if it is there
RAW, SAMPLED = 4096, 5000  # numbers of an input, and items, on which the raw inputs are compared with the networks


@dataclass(frozen=True, eq=False)
class Items:
    """Labelled items, and embeddings to judge them by.

    Attributes:
        name: of the file or the run.
        split: the split that the items are of, or None.
        level: the label level that is audited.
        ids: N texts.
        labels: `(N,)` class names; of tags, each set of them joined by ";".
        embeddings: `(N, d)` floating point.
        fold: `(N,)` which network made each row, one that was not trained on the fold; None if one made all.
        distance: how the embeddings are compared, within a fold.
        show: position of an item -> what a page shows of it; None where there is nothing to show.
        texts: N texts, where the items are texts or have one.
        content: N values, equal for exact duplicates.
        notes: what a reader must know.
        doubt: why an estimate may be too high; empty if nothing speaks for that.
        tagged: whether the labels are sets of tags.
    """

    name: str
    split: str | None
    level: str
    ids: Sequence[str]
    labels: npt.NDArray[np.str_]
    embeddings: npt.NDArray[Any]
    fold: Integers | None
    distance: Metric
    show: Callable[[int], Preview] | None = None
    texts: Sequence[str] | None = None
    content: Sequence[Hashable] | None = None
    notes: tuple[str, ...] = ()
    doubt: str = ""
    tagged: bool = False


def read_items(request: AuditOptions) -> Items:
    """The items of a file of embeddings or texts, or of a run.

    A network that was trained on wrong labels may have learned them by heart, and puts the items where their labels
    say. So a run is embedded out of fold: the training items are dealt into folds, each class evenly, and for each fold
    a network is trained anew by the settings of the run on the items of the others. It embeds those of the fold, whose
    labels it has not seen, and they are judged by each other. Nothing in the run folder changes.
    """
    path, level, text, encoder = request.embeddings, request.level, request.text, request.encoder
    if is_run_folder(path):
        if request.split is not None or text is not None or encoder is not None:
            raise ValueError("an audit of a run covers its training items: leave out --split, --text and --encoder.")
        return _run_items(request)
    if request.folds:
        raise ValueError(f"only a run is audited out of fold: {path} is a file, so leave out --folds.")
    levels = None if level is None else [level]
    if encoder is not None and not is_table(path):
        raise ValueError(f"--encoder is for the texts of a table: {path} holds embeddings; leave it out.")
    if encoder is not None or not holds_vectors(path, request.choice):
        vectors, note = _encode_texts(request, levels)
    else:
        vectors = read_vectors(
            path,
            levels=levels,
            choice=request.choice,
            split=request.split,
            text=text,
            skip_empty=request.skip_empty,
            tags=request.tags,
        )
        note = MEMORISED
    level = level or next(iter(vectors.tags), None) or first_level(vectors, _text_column(request))
    if vectors.tags.get(level) == PAIRS:
        raise ValueError(
            f"an audit of pairs needs what lists them: {path} holds their embeddings; audit the table or the folder of "
            "BEIR itself, with --pairs."
        )
    return items_of_vectors(vectors, level, note, split=request.split, distance=request.distance)


def items_of_vectors(
    vectors: Vectors, level: str, note: str = MEMORISED, *, split: str | None = None, distance: Metric | None = None
) -> Items:
    """The rows of a file, which one embedding made, at a level of classes or tags.

    Args:
        note: how they are compared.
        split: the one that was read, if not all.
        distance: by default that of the file.
    """
    texts, notes = vectors.texts, [note, *vectors.notes]
    typical = float(np.median(np.unique(vectors.labels[level], return_counts=True)[1]))
    doubt = ""
    if typical < TYPICAL:
        few = f"{typical:g} {noun(typical, 'item')}"
        doubt = f"The median class has only {few}, too few to judge labels by their neighbours"
    if vectors.ids is None:
        notes.append("The rows have no ids, so they are identified by their number, counted from 0.")
    return Items(
        name=vectors.name,
        split=split,
        level=level,
        ids=vectors.names(),
        labels=vectors.labels[level],
        embeddings=vectors.embeddings,
        fold=None,
        distance=distance or default_distance(vectors),
        show=None if texts is None else lambda i: texts[i],
        texts=texts,
        content=row_keys(vectors.embeddings) if texts is None else _wordings(texts),
        notes=tuple(notes),
        doubt=doubt,
        tagged=level in vectors.tags,
    )


def first_level(vectors: Vectors, text: str) -> str:
    """The label level that is meant where none is named: the first but the column of texts."""
    level = next((level for level in vectors.labels if level != text), None)
    if level is None:
        raise ValueError(
            f"an audit needs a label for each row: {vectors.name} has no label column{vectors.why_none()}; add one, or "
            "name it with --level."
        )
    return level


def _wordings(texts: Sequence[str]) -> list[Hashable]:
    """Equal for texts that differ in white space and capitals only, but never for blank ones."""
    return [" ".join(text.split()).casefold() or i for i, text in enumerate(texts)]


def _text_column(request: AuditOptions) -> str:
    return TEXT if request.text is None else request.text


def _encode_texts(request: AuditOptions, levels: Sequence[str] | None) -> tuple[Vectors, str]:
    """The vectors of the texts of a file, and a note on how they were compared."""
    vectors = read_texts(
        request.embeddings,
        text=_text_column(request),
        levels=levels,
        split=request.split,
        skip_empty=request.skip_empty,
        tags=request.tags,
    )
    texts = list(vectors.texts or ())
    embeddings, note = encoded_texts(texts, request.encoder, request.seed)
    return replace(vectors, embeddings=embeddings, texts=texts), note


def encoded_texts(texts: list[str], encoder: str | None, seed: int) -> tuple[npt.NDArray[Any], str]:
    """Vectors of texts by an encoder, or without one by n-grams, and a note on how they are compared."""
    if encoder is not None:
        vectors = encoder_vectors(texts, encoder, reporter("embedding texts"))
        return vectors, f"The texts were compared by their embeddings from {encoder}."
    return ngram_vectors(texts, seed=seed), (
        "The texts were compared by their character n-grams (2 to 5 characters), which ignore meaning; a "
        "sentence-transformers model (--encoder) does not."
    )


def _run_items(request: AuditOptions) -> Items:
    run = RunFolder.open(request.embeddings)
    config, folds, seed = run.config(), request.folds, request.seed
    if folds != 0:
        from trivet.training.components import check_before_data  # here: it loads what trains

        check_before_data(config)
    splits = load(config.data, request.data_root, reporter("reading images"), tokenize=tokenize_of(config.model))
    train = splits.train
    level = request.level or splits.level
    if level not in train.labels:
        raise ValueError(
            f"each label level must be one of the data: {run.name} has no {level!r}; {nearest(level, train.labels)}"
        )
    distance = request.distance or config.evaluation.distance
    notes, doubt, tagged = [], "", level in train.tag_matches
    fold: Integers | None = None
    typical = int(np.median(np.unique(train.labels[level], return_counts=True)[1]))
    if folds is None:
        folds = FEWER if typical < FOLDS * FEW and not tagged else FOLDS
    if folds:
        if typical < folds * FEW and not tagged:
            few = counted(typical // folds, "item")
            doubt = f"The median class has only {few} per fold, and the networks were trained on few items"
        from trivet.training.components import begun, trained_on
        from trivet.training.features import uses_features

        items = begun(config, splits)[1] if uses_features(config) else splits  # features are the same in each fold
        network = partial(trained_on, config, items)
        embeddings, fold = out_of_fold(items, network, folds, needed_classes=config.batch.needed_classes, seed=seed)
        if not tagged:
            raw, note = _raw_if_better(train, level, embeddings, fold, distance, seed=seed)
            if raw is not None:
                embeddings, fold = raw, None
            notes += note
    else:
        model = trained_model(run)
        embeddings = embed(model, train.inputs, reporter("embedding"))
        notes.append(
            "The items were judged by the network that was trained on them, which may have memorised wrong labels and "
            "hide them. Leave out --folds 0 to judge each item by a network that has not seen its label."
        )
    if level != splits.level:
        notes.append(
            f"The run was trained on {splits.level}, and trivet train --labels accepts decisions on that level only."
        )
    texts = None if config.data.text_column is None else train.columns.get(config.data.text_column)
    return Items(
        name=run.name,
        split="train",
        level=level,
        ids=train.ids,
        labels=np.array(label_names(train)[level]),
        embeddings=embeddings,
        fold=fold,
        distance=distance,
        show=train.show,
        texts=texts,
        content=content_keys([train]) if texts is None else _wordings(texts),
        notes=tuple(notes),
        doubt=doubt,
        tagged=tagged,
    )


def _raw_if_better(
    items: Dataset, level: str, embeddings: npt.NDArray[Any], fold: Integers, distance: Metric, *, seed: int
) -> tuple[npt.NDArray[Any] | None, list[str]]:
    """The raw inputs and a note, if the labels agree with them at least as often as with the embeddings.

    An embedding that knows hardly more of the labels than the raw inputs is no judge of them. The agreement of both is
    that of `estimate_noise`, on at most 5,000 items. Inputs of over 4,096 numbers are not tried.
    """
    if items.inputs.batch(np.arange(1)).numel() > RAW:
        return None, []
    labels = items.labels[level]
    some = class_sample(labels, SAMPLED, least=FEW, seed=seed)
    raw = raw_inputs(items.inputs)
    if len(np.unique(labels[some])) < 2 or np.bincount(fold[some]).min() < 2:
        return None, []
    ours = estimate_noise(embeddings[some], labels[some], folds=fold[some], seed=seed, distance=distance).agreement
    theirs = estimate_noise(raw[some], labels[some], seed=seed, distance=distance).agreement
    if theirs < ours:
        return None, []
    return raw, [
        f"The networks of this run know the labels no better than the raw inputs do: {100 * ours:.1f} % of the labels "
        f"agree with the networks, {100 * theirs:.1f} % with the raw inputs, which judge the labels here. Vectors of a "
        "pretrained encoder may judge better."
    ]


def out_of_fold(
    splits: Splits, trained: Callable[[Dataset, str], Embedder], folds: int, *, needed_classes: int, seed: int = 0
) -> tuple[npt.NDArray[Any], Integers]:
    """Embeddings of the training items, each by a network that was trained without the fold the item is in.

    Items of a class that the other folds have less than two of are left out of the training, too: alone they have no
    positive.

    Args:
        trained: the network that is trained on some items, with a title of the progress.
        folds: at least 2.
        needed_classes: of two items, for a batch.
        seed: of the folds.

    Returns:
        The embeddings `(N, d)`, of which those of different folds cannot be compared, and the fold of each item `(N,)`.

    Raises:
        ValueError: if there are fewer folds than two or more than pairs of items, if too few classes are left to train
            on, or if embeddings are not finite.
    """
    train, labels = splits.train, splits.train.labels[splits.level]
    most = len(train) // 2
    if not 2 <= folds <= most:
        raise ValueError(
            f"folds must be from 2 to half the number of items, {most}, or 0 for none: got {folds}; with {FOLDS} each "
            "network is trained on two thirds of the items."
        )
    fold = stratified_folds(labels, folds, np.random.default_rng(seed))
    embedded: list[npt.NDArray[Any]] = []
    for number in range(folds):
        counts = np.bincount(labels[fold != number], minlength=len(train.names[splits.level]))
        tagged = splits.level in train.tag_matches  # then a set of tags need not come twice
        training_rows = np.flatnonzero((fold != number) & (tagged | (counts[labels] > 1)))
        enough = int((counts > 1).sum())
        if enough < needed_classes and not tagged:
            raise ValueError(
                f"a network trained without a fold needs {needed_classes} classes of two items, as many as a batch "
                f"has: without fold {number + 1} of {folds} there are {enough}; use more folds, or --folds 0."
            )
        model = trained(train.subset(training_rows), f"network {number + 1} of {folds}")
        embedded.append(embed(model, train.subset(np.flatnonzero(fold == number)).inputs))
        if not np.isfinite(embedded[-1]).all():
            raise ValueError(
                f"embeddings must be finite: those of network {number + 1} of {folds} are not; train with a lower "
                "training.learning_rate, or audit with --folds 0."
            )
    embeddings = np.empty((len(train), embedded[0].shape[1]), np.float32)
    embeddings[np.argsort(fold, kind="stable")] = np.concatenate(embedded)
    return embeddings, fold
