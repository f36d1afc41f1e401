"""`trivet diagnose`: did embeddings, from files or runs, collapse, how and why; with its page."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import trivet
from trivet.collapse import THRESHOLDS, Diagnosis, Strategy, diagnose, singular_values
from trivet.data import Dataset, Splits, load
from trivet.data.shown import Shown, as_json
from trivet.evaluation import neighbours
from trivet.evaluation.inputs import Metric, as_points, spans
from trivet.geometry.arrays import Floats, Integers
from trivet.models import build
from trivet.records import DiagnosisRecord, complete
from trivet.tables import Vectors, class_numbers, read_vectors
from trivet.tasks.measure import plane_coordinates
from trivet.training.checkpoint import load_loss
from trivet.training.config import RunConfig
from trivet.training.embedding import embed, label_names
from trivet.training.run_folder import RunFolder
from trivet.training.sample import class_sample

ITEMS = 5000  # of a split that a run record diagnoses
DRAWN = 2000  # items whose distances, and whose nearest positives and negatives, a page shows
ENTRIES = 2**22  # of a block of queries that are compared with all items: 32 MiB, and a few copies of it
BINS = 60
LONGEST = 0.999  # quantile of the distances at which the last bin ends; what is longer counts there
SINGULAR_VALUES, CLASSES, QUERIES, NEIGHBOURS = 64, 5000, 6, 6  # at most so many are shown
MAP_POINTS = 1000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Subject:
    """An embedding to diagnose, with all that is known of it.

    Attributes:
        name: of the file or the run.
        split: the split that the items are of, or None.
        level: the label level that is diagnosed, a key of `labels`.
        embeddings: `(N, d)` floating point.
        labels: level -> `(N,)` class names.
        ids: N texts.
        distance: how the embedding is compared.
        reference: what it is, and `(N, d')` another embedding of the same items; or None.
        strategy: how training chooses.
        fine: levels inside `level`; None for all that are.
        show: position of an item -> what a page shows of it; None where there is nothing to show.
        notes: what a reader must know beside the verdicts.
    """

    name: str
    split: str | None
    level: str
    embeddings: npt.NDArray[Any]
    labels: Mapping[str, npt.NDArray[np.str_]]
    ids: Sequence[str]
    distance: Metric
    reference: tuple[str, npt.NDArray[Any]] | None = None
    strategy: Strategy | None = None
    fine: Sequence[str] | None = None
    show: Callable[[int], Shown] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """What is asked of each file or run.

    Attributes:
        level: the label level that is diagnosed; None for the first, or that a run was trained on.
        fine: levels inside it; None for all that are.
        reference: a file or run with another embedding of the same items; None for the untrained network of a run.
        distance: None for that of the run, "cosine" for a file, "euclidean" for one of a single dimension.
        split: of a file, the rows of that split only; of a run, the split whose embeddings are read.
        seed: of every sample.
        data_root: where data sets lie, see `trivet.data.find_root`.
    """

    level: str | None = None
    fine: tuple[str, ...] | None = None
    reference: Path | None = None
    distance: Metric | None = None
    split: str | None = None
    seed: int = 0
    data_root: Path | None = None


def diagnose_paths(
    paths: Sequence[Path],
    request: Request,
    *,
    report: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Diagnose files and runs, and write a page of them if `report` names one.

    Returns:
        The `summary` of one embedding, or of several {"results": [summary, ...]}, with "report" if one was written;
        and whether a verdict is a collapse of the network or of the classes.

    Raises:
        ValueError: as `subjects` and `summary`.
        OSError: if the report cannot be written.
    """
    if report is not None:
        from trivet.reports import write_diagnosis_report  # here: few diagnoses have a report

    diagnosed = [subject for path in paths for subject in subjects(path, request, progress)]
    results, sections, collapsed = [], [], False
    for number, subject in enumerate(diagnosed):
        if progress is not None:
            progress("diagnosis", number, len(diagnosed))
        section, diagnosis = summary(subject, seed=request.seed)
        results.append(section)
        collapsed |= diagnosis.collapsed
        if report is not None:
            sections.append(section | _shown(subject, diagnosis, seed=request.seed, map_points=MAP_POINTS))
    if progress is not None:
        progress("diagnosis", len(diagnosed), len(diagnosed))
    result: dict[str, Any] = results[0] if len(results) == 1 else {"results": results}
    if report is not None:
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        run = RunFolder(paths[0]).record() if len(paths) == 1 and paths[0].is_dir() else None
        page = {"sections": sections, "history": run and run["history"], "command": command, "created": created}
        write_diagnosis_report(complete(DiagnosisRecord, page | {"trivet": trivet.__version__}), report)
        result = result | {"report": str(report)}
    return result, collapsed


def subjects(path: Path, request: Request, progress: Progress | None = None) -> list[Subject]:
    """What there is to diagnose in a file, which is one embedding, or in a run.

    Of a run it is the training items if their embeddings are stored, else each split that is stored.

    Raises:
        ValueError: if the file, the run or the reference cannot be used, or what is asked does not fit it.
    """
    if path.is_dir():
        return _of_run(path, request, progress)
    vectors = _read(path, request, request.split)
    level = request.level or next(iter(vectors.labels))
    of_file = Subject(
        name=path.name,
        split=request.split,
        level=level,
        embeddings=vectors.embeddings,
        labels=vectors.labels,
        ids=_ids(vectors),
        distance=request.distance or ("cosine" if vectors.embeddings.shape[1] > 1 else "euclidean"),
        fine=request.fine,
        notes=vectors.notes,
    )
    return [_with_reference_file(of_file, vectors, request)]


def summary(subject: Subject, *, seed: int = 0) -> tuple[dict[str, Any], Diagnosis]:
    """The verdicts, measures and notes of an embedding as JSON, with what was diagnosed; and the diagnosis itself.

    Raises:
        ValueError: as `trivet.collapse.diagnose`.
    """
    (classes,), _ = class_numbers(subject.labels[subject.level])
    levels = finer_levels(subject.labels, subject.level) if subject.fine is None else subject.fine
    strategy, notes = _usable(subject.strategy, classes), subject.notes
    if strategy is None and subject.strategy is not None:
        notes += ("The sampling strategy was not tried: a batch needs two classes of two items.",)
    diagnosis = diagnose(
        subject.embeddings,
        classes,
        reference=None if subject.reference is None else subject.reference[1],
        strategy=strategy,
        fine={level: class_numbers(subject.labels[level])[0][0] for level in levels},
        distance=subject.distance,
        seed=seed,
    )
    said = diagnosis.as_json()
    return {
        "verdicts": said["verdicts"],
        "measures": said["measures"],
        "notes": [*said["notes"], *notes],
        "name": subject.name,
        "split": subject.split,
        "level": subject.level,
        "distance": subject.distance,
        "items": len(classes),
        "dimension": int(subject.embeddings.shape[1]),
        "reference": None if subject.reference is None else subject.reference[0],
    }, diagnosis


def diagnosis_section(subject: Subject, *, seed: int = 0, map_points: int = MAP_POINTS) -> dict[str, Any]:
    """`summary` with all that a page shows of it.

    {"name", "split", "level", "distance", "items", "dimension", "reference", "verdicts", "measures", "notes",
    "thresholds", "histograms", "spectrum", "classes", "scatter", "map", "queries"}; plain JSON without NaN.

    Args:
        map_points: items in the map; without any it is None.

    Raises:
        ValueError: as `trivet.collapse.diagnose`.
    """
    section, diagnosis = summary(subject, seed=seed)
    return section | _shown(subject, diagnosis, seed=seed, map_points=map_points)


def _shown(subject: Subject, diagnosis: Diagnosis, *, seed: int, map_points: int) -> dict[str, Any]:
    """The parts of a section that `summary` lacks."""
    (classes,), names = class_numbers(subject.labels[subject.level])
    points = as_points(subject.embeddings, distance=subject.distance)
    reference = None if subject.reference is None else as_points(subject.reference[1], distance=subject.distance)
    drawn = class_sample(classes, DRAWN, least=8, seed=seed)
    near = _nearest(subject.embeddings, classes, drawn)
    return {
        "thresholds": [{"name": name, **asdict(threshold)} for name, threshold in THRESHOLDS.items()],
        "histograms": _histograms(points, reference, classes, drawn),
        "spectrum": {"values": _spectrum(points), "reference": None if reference is None else _spectrum(reference)},
        "classes": _class_table(diagnosis, names),
        "scatter": _scatter(subject, near),
        "map": _map(subject, map_points, seed) if map_points else None,
        "queries": _queries(subject, near, seed),
    }


def finer_levels(labels: Mapping[str, npt.NDArray[np.str_]], level: str) -> list[str]:
    """The levels each class of which lies in one class of `level`, and some of which split one.

    A level whose classes have a single item each, such as a column of file names, is none.
    """
    (coarse,), _ = class_numbers(labels[level])
    finer = []
    for other, column in labels.items():
        (fine,), names = class_numbers(column)
        pairs = len(np.unique(np.stack([coarse, fine], axis=1), axis=0))
        if other != level and pairs == len(names) and int(coarse.max()) + 1 < len(names) < len(fine):
            finer.append(other)
    return finer


def run_strategy(run: RunFolder, config: RunConfig, names: Sequence[str]) -> Strategy:
    """How a run chooses, its loss as the last checkpoint left it; `names` are those of the classes trained on."""
    loss = config.loss.build(
        num_classes=len(names), embedding_dim=config.model.embedding_dim, generator=torch.Generator().manual_seed(0)
    )
    checkpoints = run.checkpoints()
    if checkpoints and any(True for _ in loss.parameters()):
        load_loss(checkpoints[-1], loss)
    return Strategy(loss, config.batch.num_classes, config.batch.samples_per_class)


def of_dataset(
    run: RunFolder,
    config: RunConfig,
    split: str,
    dataset: Dataset,
    level: str,
    embeddings: npt.NDArray[Any],
    untrained: npt.NDArray[Any],
) -> Subject:
    """The embeddings of a split of a run, beside those of its untrained network.

    Raises:
        ValueError: if the last checkpoint is broken.
    """
    labels = {name: np.array(column) for name, column in label_names(dataset).items()}
    strategy: Strategy | None = run_strategy(run, config, dataset.names[level])
    notes: tuple[str, ...] = ()
    assert strategy is not None
    if strategy.loss.parameters_per == "class" and class_numbers(labels[level])[1] != dataset.names[level]:
        strategy = None
        notes = ("The sampling strategy was not tried: its loss has parameters for other classes.",)
    return Subject(
        name=run.name,
        split=split,
        level=level,
        embeddings=embeddings,
        labels=labels,
        ids=dataset.ids,
        distance=config.evaluation.distance,
        reference=("untrained network", untrained),
        strategy=strategy,
        show=dataset.show,
        notes=notes,
    )


def some_items(dataset: Dataset, *, seed: int) -> npt.NDArray[Any]:
    """Positions of at most 5,000 items, at least 20 of each finest class that is there if it has so many."""
    return class_sample(list(dataset.labels.values())[-1], ITEMS, least=20, seed=seed)


def _read(path: Path, request: Request, split: str | None) -> Vectors:
    """The rows with the levels that are asked for, or with all there are."""
    named = [] if request.level is None else [request.level]
    if request.level is not None and request.fine is not None:
        vectors = read_vectors(path, levels=list(dict.fromkeys([*named, *request.fine])), split=split)
    else:
        try:
            vectors = read_vectors(path, split=split)
        except ValueError:
            if not named:
                raise
            vectors = read_vectors(path, levels=named, split=split)  # a column that nobody named may be at fault
        lacking = [level for level in (*named, *(request.fine or ())) if level not in vectors.labels]
        if lacking:  # a column of numbers, which is a level only if named
            vectors = read_vectors(path, levels=[*vectors.labels, *lacking], split=split)
    if not vectors.labels:
        raise ValueError(
            f"a diagnosis needs a label for each row: {vectors.name} has no label column{vectors.why_none()}; add one, "
            "or name it with --labels."
        )
    return vectors


def _ids(vectors: Vectors) -> Sequence[str]:
    if vectors.ids is None:
        return [str(row) for row in range(len(vectors))]
    ids: list[str] = vectors.ids.tolist()
    return ids


def _with_reference_file(subject: Subject, vectors: Vectors, request: Request) -> Subject:
    if request.reference is None:
        return subject
    other = read_vectors(request.reference, levels=(), split=subject.split if request.reference.is_dir() else None)
    if other.ids is None or vectors.ids is None:
        if subject.split is not None and other.splits is not None:
            other = other.select(other.splits == subject.split)
        if len(other) != len(vectors):
            raise ValueError(
                f"a reference must embed the same items in the same order: {other.name} has {len(other)} rows and "
                f"{subject.name} {len(vectors)}; give one row for each, or an id column in both."
            )
        return replace(subject, reference=(other.name, other.embeddings))
    order = np.argsort(other.ids)
    place = np.searchsorted(other.ids, vectors.ids, sorter=order).clip(max=len(order) - 1)
    lacking = np.flatnonzero(other.ids[order[place]] != vectors.ids)
    if len(lacking):
        raise ValueError(
            f"a reference must embed the same items: {other.name} has no {str(vectors.ids[lacking[0]])!r} "
            f"({len(lacking)} of {len(vectors)} ids are not in it); give a file made from the same data."
        )
    return replace(subject, reference=(other.name, other.embeddings[order[place]]))


def _of_run(path: Path, request: Request, progress: Progress | None) -> list[Subject]:
    stored = sorted(file.stem for file in (path / "embeddings").glob("*.parquet"))
    if request.split is not None:
        splits: list[str | None] = [request.split]
    else:
        splits = ["train"] if "train" in stored else [*stored] or [None]
    parts = [(split, _read(path, request, split)) for split in splits]
    run = RunFolder.open(path)
    config = run.config()
    levels = list(parts[0][1].labels)
    record = run.record()
    trained = (record and record["level"]) or str(config.data.level)
    trained = trained if trained in levels else levels[0]
    level = request.level or trained
    data: Splits | None = None
    notes: tuple[str, ...] = ()
    try:
        data = load(
            config.data,
            request.data_root,
            None if progress is None else lambda done, total: progress("reading images", done, total),
        )
    except (ValueError, OSError) as error:  # moved or deleted: the stored embeddings can be diagnosed all the same
        reason = " ".join(str(error).split())
        notes = (f"The untrained network and the pictures are missing, as the data cannot be loaded: {reason}",)
    of_run = []
    for split, vectors in parts:
        assert split is not None
        subject = Subject(
            name=run.name,
            split=split,
            level=level,
            embeddings=vectors.embeddings,
            labels=vectors.labels,
            ids=_ids(vectors),
            distance=config.evaluation.distance,
            notes=notes,
        )
        dataset = None if data is None else _items(data, split, subject.ids)
        if dataset is not None and level in dataset.labels:
            untrained = embed(
                build(config.model, dataset.inputs.shape, config.seed),
                dataset.inputs,
                None if progress is None else lambda done, total: progress("untrained network", done, total),
            )
            subject = of_dataset(run, config, split, dataset, level, vectors.embeddings, untrained)
            subject = replace(subject, labels=vectors.labels)
        elif data is not None:
            subject = replace(
                subject, notes=("There is no untrained network: the data no longer contain these items.",)
            )
        if level != trained:
            subject = replace(subject, strategy=None)
        elif subject.strategy is None:
            strategy = run_strategy(run, config, ["0", "1"])
            subject = replace(subject, strategy=None if strategy.loss.parameters_per == "class" else strategy)
        subject = replace(subject, fine=request.fine, distance=request.distance or subject.distance)
        of_run.append(_with_reference_file(subject, vectors, request))
    return of_run


def _items(data: Splits, split: str, ids: Sequence[str]) -> Dataset | None:
    """The items of these ids, in their order; None if one is not there."""
    dataset = data.train if split == "train" else data.evaluation.get(split)
    if dataset is None:
        return None
    place = {name: i for i, name in enumerate(dataset.ids)}
    if not all(name in place for name in ids):
        return None
    return dataset.subset(np.array([place[name] for name in ids]))


def _usable(strategy: Strategy | None, classes: Integers) -> Strategy | None:
    """The strategy, if the items give it a batch."""
    return strategy if int((np.bincount(classes) > 1).sum()) > 1 else None


@dataclass(frozen=True, eq=False)
class _Near:
    """Of some items; fields `(Q,)`.

    Attributes:
        rows: their positions; each has a positive and a negative.
        s_ap, s_an: cosine similarity to the nearest positive and to the nearest negative.
        nearer: items of other classes that are nearer than the nearest positive.
    """

    rows: Integers
    s_ap: Floats
    s_an: Floats
    nearer: Integers


def _nearest(embeddings: npt.NDArray[Any], classes: Integers, rows: npt.NDArray[Any]) -> _Near:
    """Like `trivet.evaluation.nearest_pairs`, for some of the items only, and with ranks."""
    points = as_points(embeddings, distance="cosine")
    points = points - points.mean(dim=0)  # a narrow cone keeps more digits
    squares = points.square().sum(dim=1)
    own, asked = torch.from_numpy(classes), torch.from_numpy(np.asarray(rows, np.int64))
    nearest = torch.empty(3, len(asked), dtype=torch.float64)
    for start, stop in spans(len(asked), max(1, ENTRIES // len(points))):
        block = asked[start:stop]
        squared = torch.addmm(squares, points[block], points.T, alpha=-2).add_(squares[block, None])
        same = own[block, None] == own
        negatives = squared.masked_fill(same, torch.inf)
        squared[torch.arange(len(block)), block] = torch.inf
        positive = squared.masked_fill_(~same, torch.inf).amin(dim=1)
        nearest[0, start:stop] = positive
        nearest[1, start:stop] = negatives.amin(dim=1)
        nearest[2, start:stop] = (negatives < positive[:, None]).sum(dim=1)
    usable = nearest[:2].isfinite().all(dim=0).numpy()
    # Between unit rows D = 2 - 2 S.
    s_ap, s_an = (1 - nearest[:2] / 2).clamp(-1, 1).numpy()
    nearer = nearest[2].long().numpy()
    return _Near(asked.numpy()[usable], s_ap[usable], s_an[usable], nearer[usable])


def _scatter(subject: Subject, near: _Near) -> dict[str, Any]:
    labels = subject.labels[subject.level]
    return {
        "s_ap": np.round(near.s_ap, 5).tolist(),
        "s_an": np.round(near.s_an, 5).tolist(),
        "ids": [subject.ids[row] for row in near.rows.tolist()],
        "labels": labels[near.rows].tolist(),
    }


def _histograms(points: Tensor, reference: Tensor | None, classes: Integers, rows: npt.NDArray[Any]) -> dict[str, Any]:
    """Shares of the distances inside and between classes, each over the mean of its own embedding."""
    left, right = np.triu_indices(len(rows), 1)
    same = classes[rows[left]] == classes[rows[right]]

    def scaled(embedding: Tensor) -> Floats:
        apart: Floats = torch.pdist(embedding[torch.from_numpy(rows)]).numpy()
        return apart / (float(apart.mean()) or 1.0)

    distances = [scaled(points)] + ([] if reference is None else [scaled(reference)])
    top = max(float(np.quantile(apart, LONGEST)) for apart in distances)
    edges = np.linspace(0, top or 1.0, BINS + 1)

    def shares(apart: Floats) -> list[float]:
        counts = np.histogram(np.minimum(apart, edges[-1]), edges)[0]
        return [round(share, 6) for share in (counts / max(1, len(apart))).tolist()]

    sides = {"within": same, "between": ~same}
    own = {side: shares(distances[0][pairs]) for side, pairs in sides.items()}
    before = {
        f"reference_{side}": shares(distances[1][pairs]) if distances[1:] else None for side, pairs in sides.items()
    }
    return {"edges": [_short(edge) for edge in edges], **own, **before}


def _spectrum(points: Tensor) -> list[float]:
    values = singular_values(points)
    return [round(value, 8) for value in (values[:SINGULAR_VALUES] / (values.sum() or 1.0)).tolist()]


def _class_table(diagnosis: Diagnosis, names: Sequence[str]) -> dict[str, Any]:
    """The table of classes; of too many, the largest."""
    measured = diagnosis.measures.per_class
    columns: dict[str, Sequence[Any]] = {
        "class": list(names),
        "items": measured.items.tolist(),
        "spread": [_short(value) for value in measured.spread],
        "effective_rank": [_short(value) for value in measured.effective_rank],
        "recall@1": [_short(value) for value in measured.recall],
        "modes": measured.modes.tolist(),
    }
    if measured.retention is not None:
        columns["retention"] = [_short(value) for value in measured.retention]
    shown = np.sort(np.argsort(-measured.items, kind="stable")[:CLASSES]).tolist()
    return {"columns": list(columns), "rows": [[column[c] for column in columns.values()] for c in shown]}


def _map(subject: Subject, most: int, seed: int) -> dict[str, Any]:
    (finest,), _ = class_numbers(_finest(subject.labels))
    sample = class_sample(finest, most, least=20, seed=seed)
    show = subject.show
    return {
        "coordinates": plane_coordinates(subject.embeddings[sample], seed=seed),
        "labels": {level: names[sample].tolist() for level, names in subject.labels.items()},
        "ids": [subject.ids[i] for i in sample.tolist()],
        "thumbnails": [] if show is None else [as_json(show(i))["thumbnail"] for i in sample.tolist()],
    }


def _finest(labels: Mapping[str, npt.NDArray[np.str_]]) -> npt.NDArray[np.str_]:
    """The level of the most classes."""
    return max(labels.values(), key=lambda names: len(class_numbers(names)[1]))


def _queries(subject: Subject, near: _Near, seed: int) -> dict[str, Any]:
    """The items whose nearest positive stands first and last among their neighbours, and random ones."""
    margin = near.s_ap - near.s_an
    best = np.lexsort((-margin, near.nearer))
    chosen = {
        "best": best[:QUERIES],
        "random": np.sort(np.random.default_rng(seed).permutation(len(best))[:QUERIES]),
        "worst": best[::-1][:QUERIES],
    }
    k = min(NEIGHBOURS, len(subject.embeddings) - 1)

    def item(i: int) -> dict[str, Any]:
        names = {level: str(column[i]) for level, column in subject.labels.items()}
        return {
            "id": subject.ids[i],
            **as_json(subject.show and subject.show(i)),
            "labels": names,
        }

    by_kind: dict[str, Any] = {}
    for kind, places in chosen.items():
        beside = neighbours(subject.embeddings, near.rows[places], k, distance="cosine")
        by_kind[kind] = [
            item(int(near.rows[place]))
            | {
                "why": _why(near, place),
                "neighbours": [
                    item(i) | {"similarity": round(1 - float(d), 4)}
                    for i, d in zip(beside.indices[number].tolist(), beside.distances[number], strict=True)
                ],
            }
            for number, place in enumerate(places.tolist())
        ]
    return by_kind


def _why(near: _Near, place: int) -> str:
    count = int(near.nearer[place])
    similar = f"similarity {near.s_ap[place]:.3f}, against {near.s_an[place]:.3f} for the nearest of another class"
    if not count:
        return f"The nearest item is of the same class: {similar}."
    items = "1 item of another class is" if count == 1 else f"{count} items of other classes are"
    return f"{items} closer than the nearest of the same class: {similar}."


def _short(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None
