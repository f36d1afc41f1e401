"""Inputs of a diagnosis: the embeddings of files and runs, with their references."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trivet.collapse import SamplingStrategy
from trivet.commands.diagnose.encoders import EmbeddingReader
from trivet.commands.diagnose.options import DiagnoseOptions
from trivet.commands.displayed_items import DisplayedItems, dataset_items
from trivet.commands.evaluate.baselines import run_references
from trivet.commands.evaluate.sets import check_same_texts, positions_of
from trivet.commands.inputs import default_distance
from trivet.datasets import Dataset, Splits, load
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.datasets.tags import column_relations
from trivet.io.embedding_table import Vectors, class_numbers
from trivet.io.overwrite_guard import is_run_folder
from trivet.io.tag_cells import PAIRS
from trivet.losses.matryoshka import of_batch
from trivet.metrics.points import Metric
from trivet.mining import Relation
from trivet.models import Embedder, tokenize_of
from trivet.runtime.progress import report, reporter
from trivet.training.checkpoint import load_loss
from trivet.training.class_sample import level_sample
from trivet.training.components import begun
from trivet.training.run_folder import RunFolder

ITEMS = 5000  # of a split that a run record diagnoses


@dataclass(frozen=True, eq=False, kw_only=True)
class DiagnosisInput(DisplayedItems):
    """An embedding to diagnose, with all that is known of it.

    Attributes:
        name: of the file or the run.
        split: the split that the items are of, or None.
        level: the label level that is diagnosed, a key of `labels`.
        embeddings: `(N, d)` floating point.
        distance: how the embedding is compared.
        references: what it is -> `(N, d')` another embedding of the same items; the shape is compared with the first.
        strategy: how training chooses.
        fine: levels inside `level`; None for all that are.
        relation: which items belong together at that level, by tags or pairs; None of classes, which the labels tell.
        trained_levels, trained_items: what of these items the embedding was trained on, see `diagnose`.
        notes: what a reader must know beside the verdicts.
    """

    name: str
    split: str | None
    level: str
    embeddings: npt.NDArray[Any]
    distance: Metric
    references: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    strategy: SamplingStrategy | None = None
    fine: Sequence[str] | None = None
    relation: Relation | None = None
    trained_levels: Collection[str] = ()
    trained_items: bool = False
    notes: tuple[str, ...] = ()


def read_inputs(path: Path, request: DiagnoseOptions, read: EmbeddingReader | None = None) -> list[DiagnosisInput]:
    """The embeddings of a path to diagnose: one of a file or an encoder, one for each split of a run.

    Of a run it is the training items if their embeddings are stored, else each split that is stored.

    Args:
        read: what reads the paths of the request; an encoder that several need is used once. Default: a new one.
    """
    references, read = request.reference or [], read or EmbeddingReader(request)
    if request.left_vectors:
        if len(references) % 2:
            raise ValueError(
                "--reference beside --left-vectors needs two files, that of the left side first: got "
                f"{len(references)}; give both."
            )
        references = read.of_sides(references[::2], references[1::2])
    if request.is_run(path):
        inputs = _run_inputs(path, request, read, every=all(map(request.is_run, references)))
    else:
        vectors = _read(path, request, read, request.split)
        of_file = input_of_vectors(vectors, request.labels or next(iter(vectors.labels)), split=request.split)
        inputs = [(of_file if vectors.texts is not None else replace(of_file, show=read.show), vectors)]
    return [
        _with_references(
            replace(subject, fine=request.fine or None, distance=request.distance or subject.distance),
            vectors,
            references,
            read,
        )
        for subject, vectors in inputs
    ]


def input_of_vectors(vectors: Vectors, level: str, *, split: str | None = None) -> DiagnosisInput:
    """The rows of a file at a level, by the distance of the file.

    Args:
        split: the one that was read, if not all.
    """
    return DiagnosisInput(
        name=vectors.name,
        split=split,
        level=level,
        embeddings=vectors.embeddings,
        **_related(vectors, level),
        ids=vectors.names(),
        distance=default_distance(vectors),
        show=None if vectors.texts is None else vectors.texts.__getitem__,
        notes=vectors.notes,
    )


def _related(vectors: Vectors, level: str) -> dict[str, Any]:
    """The relation of the rows at a level, and the labels of all; of pairs these are the first of their group."""
    match = vectors.tags.get(level)
    if match is None:
        return {"relation": None, "labels": vectors.labels}
    relation = column_relations(vectors.labels[level], match=match)[0][0]
    if not isinstance(relation, JudgedPairs):
        return {"relation": relation, "labels": vectors.labels}
    _, first, groups = np.unique(relation.groups[relation.items.numpy()], return_index=True, return_inverse=True)
    return {"relation": relation, "labels": {**vectors.labels, level: np.array(vectors.names())[first][groups]}}


def run_strategy(run: RunFolder, names: Sequence[str]) -> SamplingStrategy | None:
    """Sampling strategy of a run, its loss as in the last checkpoint; None where batches are not made by classes.

    Args:
        names: those of the classes trained on.
    """
    config = run.config()
    if not config.batch.in_classes:
        return None
    loss = config.loss.build_at_prefixes(
        num_classes=len(names),
        embedding_dim=config.model.embedding_dim,
        normalize=config.model.normalize,
        generator=torch.Generator().manual_seed(0),
    )
    checkpoints = run.checkpoints()
    if checkpoints and any(True for _ in loss.parameters()):
        load_loss(checkpoints[-1], loss)
    return SamplingStrategy(of_batch(loss), config.batch.num_classes, config.batch.samples_per_class)


def of_dataset(
    run: RunFolder,
    split: str,
    dataset: Dataset,
    level: str,
    embeddings: npt.NDArray[Any],
    references: Mapping[str, npt.NDArray[Any]],
    *,
    train: Dataset,
) -> DiagnosisInput:
    """The embeddings of a split of a run, beside what they are compared with.

    Args:
        train: what the run was trained on.
    """
    items = dataset_items(dataset)
    strategy = run_strategy(run, dataset.names[level])
    notes: tuple[str, ...] = ()
    of_classes = strategy is not None and strategy.loss.parameters_per == "class"
    if of_classes and class_numbers(items.labels[level])[1] != dataset.names[level]:
        strategy = None
        notes = ("The sampling strategy was not tried: its loss has parameters for other classes.",)
    return DiagnosisInput(
        name=run.name,
        split=split,
        level=level,
        embeddings=embeddings,
        **vars(items),
        distance=run.config().evaluation.distance,
        references=references,
        strategy=strategy,
        relation=relation if isinstance(relation := dataset.relation(level), Relation) else None,
        trained_levels=trained_levels(dataset, train),
        trained_items=split == "train",
        notes=notes,
    )


def class_names(dataset: Dataset, level: str) -> list[str]:
    """Names of the classes that are there."""
    return [dataset.names[level][label] for label in np.unique(dataset.labels[level]).tolist()]


def trained_levels(dataset: Dataset, train: Dataset) -> list[str]:
    """The levels of a data set if all its classes, the finest too, are among those trained on; else none."""
    known = all(
        level in train.labels and {*class_names(dataset, level)} <= {*class_names(train, level)}
        for level in dataset.labels
    )
    return list(dataset.labels) if known else []


def some_items(dataset: Dataset, *, seed: int) -> npt.NDArray[Any]:
    """Positions of at most 5,000 items, at least 20 of each finest class that is there if it has so many.

    Of a split with queries and a gallery, those of the finest classes that are asked for.
    """
    level = list(dataset.labels)[-1]
    rows = dataset.related(level)
    some: npt.NDArray[Any] = rows[level_sample(dataset.subset(rows), level, ITEMS, least=20, seed=seed)]
    return some


def _read(path: Path, request: DiagnoseOptions, read: EmbeddingReader, split: str | None) -> Vectors:
    """The rows with the requested levels, or with all there are."""
    level, fine = request.labels, request.fine or None
    named = [] if level is None else [level]
    if level is not None and fine is not None:
        vectors = read.items(path, levels=list(dict.fromkeys([level, *fine])), split=split)
    else:
        try:
            vectors = read.items(path, split=split)
        except ValueError:
            if not named:
                raise
            vectors = read.items(path, levels=named, split=split)  # a column that nobody named may be at fault
        lacking = [level for level in (*named, *(fine or ())) if level not in vectors.labels]
        if lacking:  # a column of numbers, which is a level only if named
            vectors = read.items(path, levels=[*vectors.labels, *lacking], split=split)
    if not vectors.labels:
        raise ValueError(
            f"a diagnosis needs a label for each row: {vectors.name} has no label column{vectors.why_none()}; add one, "
            "or name it with --labels."
        )
    return read.embedded(path, vectors, split)


def _with_references(
    subject: DiagnosisInput, vectors: Vectors, paths: Sequence[Path], read: EmbeddingReader
) -> DiagnosisInput:
    if not paths:
        return subject
    known: dict[str, npt.NDArray[Any]] = {}
    notes = subject.notes
    for path in paths:
        rows, how = _reference_file(path, subject, vectors, read)
        name = read.name(path)
        known[name if name not in (subject.name, *known) else str(path)] = rows
        notes += how
    return replace(subject, references=known, notes=notes)


def _reference_file(
    path: Path, subject: DiagnosisInput, vectors: Vectors, read: EmbeddingReader
) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """The rows of the items of the subject, and what must be said of how they were found."""
    encodes = read.encodes(path)
    split = subject.split if encodes or is_run_folder(path) else None
    try:
        other = read(path, levels=[subject.level], split=split)
    except ValueError:  # without that level, or broken
        other = read(path, levels=(), split=split)
    rows, notes = matched_reference(other, subject, vectors)
    return rows, () if encodes else notes


def matched_reference(
    other: Vectors, subject: DiagnosisInput, vectors: Vectors
) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """The rows of a reference that are of the items of the subject, and what must be said of how they were found.

    Args:
        vectors: the rows of the subject.

    Raises:
        ValueError: if they are not of the same items, or the very same rows.
    """
    notes: tuple[str, ...] = ()
    if other.ids is None or vectors.ids is None:
        if subject.split is not None and other.splits is not None:
            other = other.select(other.splits == subject.split)
        if len(other) != len(vectors):
            turned = ", or transpose it, if each column is an item" if other.embeddings.shape[1] == len(vectors) else ""
            raise ValueError(
                f"a reference must embed the same items in the same order: {other.name} has {len(other)} rows and "
                f"{subject.name} {len(vectors)}; give one row for each, or an id column in both{turned}."
            )
        notes = (f"Rows are compared with those of {other.name} in their order: not both have ids.",)
    else:
        rows = positions_of(vectors.ids, other.ids)
        lacking = np.flatnonzero(rows < 0)
        if len(lacking):
            raise ValueError(
                f"a reference must embed the same items: {other.name} has no {str(vectors.ids[lacking[0]])!r} "
                f"({len(lacking)} of {len(vectors)} ids are not in it); give a file made from the same data."
            )
        other = other.select(rows)
    check_same_texts((subject.name, vectors), (other.name, other), np.arange(len(vectors)))
    labels = vectors.labels[subject.level]
    wrong = np.flatnonzero(other.labels.get(subject.level, labels) != labels)
    if len(wrong):
        raise ValueError(
            f"a reference must embed the same items: {subject.level} differs in {len(wrong)} of {len(vectors)} rows of "
            f"{other.name}, first in row {wrong[0]}; give a file made from the same data."
        )
    if other.embeddings.shape == vectors.embeddings.shape and np.array_equal(other.embeddings, vectors.embeddings):
        raise ValueError(
            f"a reference must be another embedding of the same items: {other.name} holds the very rows of "
            f"{subject.name}; give the embedding before training, or the raw inputs."
        )
    return other.embeddings, notes


def unpaired(subjects: Sequence[DiagnosisInput]) -> list[str]:
    """Warnings about embeddings side by side that are not of the same items; different splits need none."""
    for other in subjects[1:]:
        first = next(
            subject for subject in subjects if subject.split == other.split or None in (subject.split, other.split)
        )
        same = first.level == other.level and sorted(first.ids) == sorted(other.ids)
        if not (same and sorted(first.labels[first.level]) == sorted(other.labels[first.level])):
            return [
                f"These embeddings are not of the same items ({first.name} and {other.name} differ in ids or labels): "
                "their numbers cannot be compared."
            ]
    return []


def _run_inputs(
    path: Path, request: DiagnoseOptions, read: EmbeddingReader, *, every: bool
) -> list[tuple[DiagnosisInput, Vectors]]:
    """The splits of a run with their stored embeddings.

    Args:
        every: False where a reference is a file, which may hold no other items than those of training.
    """
    split = request.split
    stored = sorted(file.stem for file in (path / "embeddings").glob("*.parquet"))
    if split is not None:
        splits: list[str | None] = [split]
    elif "train" in stored and not every:
        splits = ["train"]
    else:
        splits = sorted(stored, key=lambda name: name != "train") or [None]  # the training items first
    tables = [(split, _read(path, request, read, split)) for split in splits]
    run = RunFolder.open(path)
    config = run.config()
    levels = list(tables[0][1].labels)
    record = run.record()
    trained = (record and record.level) or str(config.data.level)
    trained = trained if trained in levels else levels[0]
    level = request.labels or trained
    data: Splits | None = None
    untrained: Embedder | None = None
    notes: tuple[str, ...] = ()
    try:
        data = load(config.data, request.data_root, reporter("reading images"), tokenize=tokenize_of(config.model))
    except (ValueError, OSError) as error:  # moved or deleted: the stored embeddings can be diagnosed all the same
        reason = " ".join(str(error).split())
        notes = (f"The untrained network and the pictures are missing, as the data cannot be loaded: {reason}",)
    if data is not None:
        untrained, data = begun(config, data)
    result: list[tuple[DiagnosisInput, Vectors]] = []
    searched: set[str] = set()
    for name, vectors in tables:
        assert name is not None
        others = split is None and name != "train"
        if others and len(np.unique(vectors.labels[level])) < 2:  # a single class has nothing to collapse into
            continue
        if others and vectors.tags.get(level) == PAIRS:
            if searched >= {*vectors.names()}:  # the same items the other way round
                continue
            searched |= {*vectors.names()}
        dataset = None if data is None else _items(data, name, vectors.names())
        left_out: tuple[str, ...] = ()
        if others and dataset is not None and len(rows := some_items(dataset, seed=config.seed)) < len(dataset):
            left_out = (f"{len(rows)} of {len(dataset)} items were diagnosed; --split {name} takes all.",)
            dataset, vectors = dataset.subset(rows), vectors.select(rows)
        if data is not None and dataset is not None and level in dataset.labels:
            report("references", len(result), len(tables))
            known = run_references(untrained, dataset)
            subject = of_dataset(run, name, dataset, level, vectors.embeddings, known, train=data.train)
            subject = replace(subject, labels=_related(vectors, level)["labels"])
        else:
            if data is not None:
                notes = ("There is no untrained network: the data no longer contain these items.",)
            subject = DiagnosisInput(
                name=run.name,
                split=name,
                level=level,
                embeddings=vectors.embeddings,
                **_related(vectors, level),
                ids=vectors.names(),
                distance=config.evaluation.distance,
                trained_items=name == "train",
                notes=notes,
            )
        if level != trained:
            subject = replace(subject, strategy=None)
        elif subject.strategy is None:
            strategy = run_strategy(run, ["0", "1"])
            of_classes = strategy is None or strategy.loss.parameters_per == "class"
            subject = replace(subject, strategy=None if of_classes else strategy)
        result.append((replace(subject, notes=(*subject.notes, *left_out)), vectors))
    return result


def _items(data: Splits, split: str, ids: Sequence[str]) -> Dataset | None:
    """The items of these ids, in their order; None if one is not there."""
    dataset = data.train if split == "train" else data.evaluation.get(split)
    if dataset is None:
        return None
    positions = {name: i for i, name in enumerate(dataset.ids)}
    if not all(name in positions for name in ids):
        return None
    return dataset.subset(np.array([positions[name] for name in ids]))
