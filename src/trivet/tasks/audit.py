"""`trivet audit`: which labels are probably wrong and what they should be; writes its files and page."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import trivet
from trivet.config import nearest
from trivet.data import Dataset, Splits, load
from trivet.data.shown import Shown, as_json
from trivet.evaluation.inputs import Metric, as_points
from trivet.files import write_whole
from trivet.geometry.arrays import Integers
from trivet.label_noise import Suspects, find_suspects
from trivet.models import Embedder, encoder_vectors, ngram_vectors
from trivet.records import AuditRecord, complete
from trivet.tables import Vectors, class_numbers, read_texts, read_vectors, write_decisions
from trivet.tables.csv import csv_text
from trivet.training.config import RunConfig
from trivet.training.embedding import embed, label_names
from trivet.training.picks import TYPICAL
from trivet.training.run_folder import RunFolder, trained_model

FOLDS, FEWER = 3, 2  # where none are asked for
FEW = 20  # items of the median class in a fold: where there are less, fewer folds are made, and a note says so
TEXT = "text"  # the column that is shown of each row of a file, if it is there
PAGE_ITEMS, PAGE_NEIGHBOURS = 200, 8  # at most so many are shown
MOST_CLASSES = 50  # of a transition matrix that is told entry by entry
COLUMNS = ("id", "label", "proposed_label", "probability_wrong", "evidence")

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """What is asked of a file or run.

    Attributes:
        level: the label level that is audited; None for the first of a file, and for that a run was trained on.
        split: of a file, the rows of that split only.
        text: of a file, the column that is shown of each row; None for "text", if it is there. Of a csv file of texts,
            the column that is judged.
        encoder: of a csv file, the sentence-transformers model that makes vectors of the texts, by name or folder; None
            for `trivet.models.ngram_vectors`.
        distance: None for that of the run, "cosine" for a file, "euclidean" for one of a single dimension.
        neighbours: by which an item is judged; None for the default of `trivet.label_noise.find_suspects`.
        folds: of a run, see `audit_path`; 0 to judge by the model of the run itself; None for 3,
            or 2 where the median class has less than 60 items.
        seed: of the folds, and of what the estimate draws.
        data_root: where data sets lie, see `trivet.data.find_root`.
    """

    level: str | None = None
    split: str | None = None
    text: str | None = None
    encoder: str | None = None
    distance: Metric | None = None
    neighbours: int | None = None
    folds: int | None = None
    seed: int = 0
    data_root: Path | None = None


@dataclass(frozen=True)
class Outputs:
    """The files that an audit writes; None for those that are not asked for.

    Attributes:
        out: a csv file of all items, most suspect first: `id,label,proposed_label,probability_wrong,evidence`.
        decisions: a csv file `id,decision,label` to be filled in, the label being the proposed one.
        relabel_above: in it, items with a higher probability are to be relabelled, if another label is proposed, and
            the others kept; None leaves all decisions empty.
        report: a page.
        force: replace files that an earlier audit wrote.
    """

    out: Path | None = None
    decisions: Path | None = None
    relabel_above: float | None = None
    report: Path | None = None
    force: bool = False


@dataclass(frozen=True, eq=False)
class Items:
    """Labelled items, and embeddings to judge them by.

    Attributes:
        name: of the file or the run.
        split: the split that the items are of, or None.
        level: the label level that is audited.
        ids: N texts.
        labels: `(N,)` class names.
        embeddings: `(N, d)` floating point.
        fold: `(N,)` which network made each row, one that was not trained on the fold; None if one made all.
        distance: how the embeddings are compared, within a fold.
        show: position of an item -> what a page shows of it; None where there is nothing to show.
        notes: what a reader must know.
    """

    name: str
    split: str | None
    level: str
    ids: Sequence[str]
    labels: npt.NDArray[np.str_]
    embeddings: npt.NDArray[Any]
    fold: Integers | None
    distance: Metric
    show: Callable[[int], Shown] | None = None
    notes: tuple[str, ...] = ()


def audit_path(
    path: Path,
    request: Request,
    outputs: Outputs,
    *,
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Audit the labels of a file of embeddings or texts, or of the training items of a run; write what is asked for.

    A network that was trained on wrong labels may have learned them by heart, and puts the items where their labels
    say. So a run is audited out of fold: the training items are dealt into folds, each class evenly, and for each fold
    a network is trained anew by the settings of the run on the items of the others. It embeds those of the fold, whose
    labels it has not seen, and they are judged by each other. Nothing in the run folder changes.

    Returns:
        {"noise_rate": {"estimate", "interval" (95 %)}, "suspects": [{"id", "label", "proposed_label",
        "probability_wrong", "evidence", "neighbour_agreement", "positive_margin", "mode_share"}], most suspect first,
        "above_half": how many have a probability above 1/2, "name", "split", "level", "items", "classes", "distance",
        "folds", "neighbours", "method", "transition": {"classes", "matrix", "low", "high"}, None for more than 50
        classes, "notes"}, and of what was written the names, under "out", "decisions" and "report". Numbers that
        cannot be measured are None. The proposed label is the item's own where that is the most probable one.

    Raises:
        ValueError: if the file, the run or an output cannot be used, or what is asked does not fit.
        OSError: if an output cannot be written.
    """
    check_outputs(path, outputs)
    items = _of_run(path, request, progress) if path.is_dir() else _of_file(path, request)
    if progress is not None:
        progress("judging", 0, 1)
    judged = judge(items, neighbours=request.neighbours, seed=request.seed)
    if progress is not None:
        progress("judging", 1, 1)
    result = summary(items, judged)
    if outputs.out is not None:
        rows = ([one[column] for column in COLUMNS] for one in result["suspects"])
        write_whole(outputs.out, csv_text([COLUMNS, *rows]).encode())
        result["out"] = str(outputs.out)
    if outputs.decisions is not None:
        decided = _decided(result["suspects"], outputs.relabel_above)
        write_whole(outputs.decisions, write_decisions(decided).encode())
        result["decisions"] = str(outputs.decisions)
    if outputs.report is not None:
        from trivet.reports import write_audit_report  # here: few audits have a report

        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        page = {name: part for name, part in result.items() if name != "suspects"} | {
            "shown": _shown(items, judged, result["suspects"]),
            "class_names": class_numbers(items.labels)[1],
            "command": command,
            "created": created,
            "trivet": trivet.__version__,
        }
        write_audit_report(complete(AuditRecord, page), outputs.report)
        result["report"] = str(outputs.report)
    return result


def check_outputs(path: Path, outputs: Outputs) -> None:
    """Check that writing what is asked for can change nobody's file.

    Raises:
        ValueError: if two outputs are one file, a folder is not there, or a file is and may not be replaced: without
            `force`, or if an audit does not write such files.
    """
    if outputs.relabel_above is not None:
        if outputs.decisions is None:
            raise ValueError("--relabel-above fills in a decision file: name one with --decisions FILE.")
        if not 0 <= outputs.relabel_above <= 1:
            raise ValueError(f"--relabel-above must be a probability from 0 to 1: got {outputs.relabel_above}.")
    marks = {
        "out": (outputs.out, ",".join(COLUMNS)),
        "decisions": (outputs.decisions, "id,decision,label"),
        "report": (outputs.report, "<!DOCTYPE html>"),
    }
    given = {option: (file, mark) for option, (file, mark) in marks.items() if file is not None}
    if len({file.resolve() for file, _ in given.values()}) < len(given):
        raise ValueError(f"outputs must be different files: got {', '.join(str(file) for file, _ in given.values())}.")
    for option, (file, mark) in given.items():
        if file.is_dir() or not file.parent.is_dir():
            raise ValueError(f"an output must be a file in a folder that exists: got {file}; make the folder first.")
        if not file.exists():
            continue
        if not outputs.force:
            raise ValueError(
                f"an audit does not overwrite files: {file} exists; choose another --{option}, or add --force."
            )
        with file.open("rb") as start:
            if not start.read(len(mark)) == mark.encode():
                raise ValueError(
                    f"an audit overwrites only files written by an audit: {file} does not begin with {mark!r}; choose "
                    f"another --{option}."
                )


def judge(items: Items, *, neighbours: int | None = None, seed: int = 0) -> Suspects:
    """What `trivet.label_noise.find_suspects` says; `proposed` indexes the class names of `class_numbers`.

    Raises:
        ValueError: as `find_suspects`.
    """
    (classes,), _ = class_numbers(items.labels)
    return find_suspects(
        items.embeddings, classes, neighbours=neighbours, folds=items.fold, seed=seed, distance=items.distance
    )


def summary(items: Items, judged: Suspects) -> dict[str, Any]:
    """The result of `audit_path` without the names of files."""
    (classes,), names = class_numbers(items.labels)
    noise = judged.noise
    evidence = _evidence(judged, classes, names)
    suspects = [
        {
            "id": items.ids[i],
            "label": names[classes[i]],
            "proposed_label": names[judged.proposed[i]],
            "probability_wrong": round(float(judged.probability_wrong[i]), 6),
            "evidence": "; ".join(evidence(i)),
            "neighbour_agreement": _short(judged.neighbour_agreement[i]),
            "positive_margin": _short(judged.positive_margin[i]),
            "mode_share": _short(judged.mode_share[i]),
        }
        for i in judged.order.tolist()
    ]
    few = len(names) <= MOST_CLASSES
    matrices = {"matrix": noise.transition, "low": noise.transition_low, "high": noise.transition_high}
    return {
        "noise_rate": {"estimate": noise.rate, "interval": list(noise.interval)},
        "suspects": suspects,
        "above_half": int((judged.probability_wrong > 0.5).sum()),
        "name": items.name,
        "split": items.split,
        "level": items.level,
        "items": len(classes),
        "classes": len(names),
        "distance": items.distance,
        "folds": 0 if items.fold is None else int(items.fold.max()) + 1,
        "neighbours": judged.neighbours.shape[1],
        "method": noise.method,
        "transition": {
            "classes": list(names),
            **{name: [[_short(entry) for entry in row] for row in matrix] for name, matrix in matrices.items()},
        }
        if few
        else None,
        "notes": list(items.notes),
    }


def _evidence(judged: Suspects, classes: Integers, names: Sequence[str]) -> Callable[[int], list[str]]:
    """Position of an item -> what speaks for its label and against it."""
    beside = classes[judged.neighbours]  # (N, k)

    def words(i: int) -> list[str]:
        counts = Counter(beside[i].tolist())
        own = counts.pop(int(classes[i]), 0)
        near = f"{own} of {beside.shape[1]} neighbours {'has' if own == 1 else 'have'} its label"
        if counts:
            other, count = counts.most_common(1)[0]
            near += f", {count} {'has' if count == 1 else 'have'} {names[other]}"
        gap, share = float(judged.positive_margin[i]), float(judged.mode_share[i])
        if not np.isfinite(gap):
            margin = "no other item has its label"
        else:
            nearest_is = (
                "another label is closer"
                if gap < 0
                else "both are equally close"
                if gap == 0
                else "its own label is closer"
            )
            margin = f"positive margin {gap:.3f}: {nearest_is}"
        return [near, margin, f"its mode contains {100 * share:.0f} % of the items with its label"]

    return words


def _decided(suspects: Sequence[Mapping[str, Any]], above: float | None) -> Iterable[tuple[str, str, str]]:
    for one in suspects:
        wrong = above is not None and one["probability_wrong"] > above and one["proposed_label"] != one["label"]
        yield one["id"], "" if above is None else "relabel" if wrong else "keep", one["proposed_label"]


def _shown(items: Items, judged: Suspects, suspects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The most suspect items with their nearest neighbours, as a page shows them."""
    (classes,), names = class_numbers(items.labels)
    evidence = _evidence(judged, classes, names)
    shown: dict[int, dict[str, str | None]] = {}
    points = as_points(items.embeddings, distance=items.distance)

    def item(i: int) -> dict[str, Any]:
        if i not in shown:
            shown[i] = as_json(items.show and items.show(i))
        return {"id": items.ids[i], "label": str(items.labels[i]), **shown[i]}

    def beside(i: int) -> list[dict[str, Any]]:
        near = judged.neighbours[i, :PAGE_NEIGHBOURS]
        apart = torch.linalg.vector_norm(points[torch.from_numpy(near)] - points[i], dim=1).tolist()
        cosine = items.distance == "cosine"  # between unit rows D^2 = 2 - 2 S
        return [
            item(j) | ({"similarity": round(1 - gap**2 / 2, 4)} if cosine else {"distance": round(gap, 4)})
            for j, gap in zip(near.tolist(), apart, strict=True)
        ]

    return [
        item(i)
        | {
            "proposed": one["proposed_label"],
            "probability": one["probability_wrong"],
            "evidence": evidence(i),
            "neighbours": beside(i),
        }
        for i, one in zip(judged.order[:PAGE_ITEMS].tolist(), suspects, strict=False)
    ]


def _of_file(path: Path, request: Request) -> Items:
    if request.folds:
        raise ValueError(f"only a run is audited out of fold: {path} is a file, so leave out --folds.")
    text: str | None
    texts: Sequence[str] | None
    if path.suffix.lower() == ".csv":
        vectors, text, texts, note = _of_texts(path, request)
    else:
        if request.encoder is not None:
            raise ValueError(f"--encoder is for the texts of a csv file: {path} holds embeddings; leave it out.")
        vectors = _read(path, request)
        text = request.text if request.text is not None else TEXT if TEXT in vectors.labels else None
        texts = None if text is None else vectors.labels[text].tolist()
        note = (
            "If the network that made these embeddings was trained on these labels, it may have memorised wrong ones, "
            "which then stay hidden. An audit of its run judges each item by a network that has not seen its label."
        )
    level = request.level or next((level for level in vectors.labels if level != text), None)
    if level is None:
        raise ValueError(
            f"an audit needs a label for each row: {vectors.name} has no label column; add one, or name it with "
            "--level."
        )
    notes = [note]
    typical = np.median(np.unique(vectors.labels[level], return_counts=True)[1])
    if typical < TYPICAL:
        notes.append(
            f"The median class has only {typical:g} items, too few to judge labels by their neighbours: the estimate "
            "may be too high."
        )
    if vectors.ids is None:
        notes.append("The file has no column id, so rows are identified by their number, counted from 0.")
    return Items(
        name=vectors.name,
        split=request.split,
        level=level,
        ids=list(map(str, range(len(vectors)))) if vectors.ids is None else vectors.ids.tolist(),
        labels=vectors.labels[level],
        embeddings=vectors.embeddings,
        fold=None,
        distance=request.distance or ("cosine" if vectors.embeddings.shape[1] > 1 else "euclidean"),
        show=None if texts is None else lambda i: texts[i],
        notes=tuple(notes),
    )


def _of_texts(path: Path, request: Request) -> tuple[Vectors, str, list[str], str]:
    """The vectors of a csv file, the column of its texts, the texts, and a note that says how they were compared."""
    encoder, text = request.encoder, TEXT if request.text is None else request.text
    if encoder is None:
        note = (
            "The texts were compared by their character n-grams (2 to 5 characters), which ignore meaning; a "
            "sentence-transformers model (--encoder) does not."
        )
    else:
        note = f"The texts were compared by their embeddings from {encoder}."

    def encode(texts: list[str]) -> npt.NDArray[Any]:
        return ngram_vectors(texts, seed=request.seed) if encoder is None else encoder_vectors(texts, encoder)

    levels = None if request.level is None else [request.level]
    vectors, texts = read_texts(path, encode, text=text, levels=levels, split=request.split)
    return vectors, text, texts, note


def _read(path: Path, request: Request) -> Vectors:
    """The rows with all columns that may be levels, or with those that are named if others are at fault."""
    named = [column for column in (request.level, request.text) if column is not None]
    try:
        vectors = read_vectors(path, split=request.split)
    except ValueError:
        if request.level is None:
            raise
        return read_vectors(path, levels=named, split=request.split)
    lacking = [column for column in named if column not in vectors.labels]
    return read_vectors(path, levels=[*vectors.labels, *lacking], split=request.split) if lacking else vectors


def _of_run(path: Path, request: Request, progress: Progress | None) -> Items:
    if request.split is not None or request.text is not None or request.encoder is not None:
        raise ValueError("an audit of a run covers its training images: leave out --split, --text and --encoder.")
    run = RunFolder.open(path)
    config = run.config()
    if request.folds != 0:
        from trivet.training.parts import check_before_data  # here: it loads what trains

        check_before_data(config)
    splits = load(
        config.data,
        request.data_root,
        None if progress is None else lambda done, total: progress("reading images", done, total),
    )
    train = splits.train
    level = request.level or splits.level
    if level not in train.labels:
        raise ValueError(
            f"each label level must be one of the data: {run.name} has no {level!r}; {nearest(level, train.labels)}"
        )
    notes = []
    fold: Integers | None = None
    typical = int(np.median(np.unique(train.labels[level], return_counts=True)[1]))
    folds = request.folds
    if folds is None:
        folds = FEWER if typical < FOLDS * FEW else FOLDS
    if folds:
        if typical < folds * FEW:
            notes.append(
                f"The median class has only {typical // folds} items per fold, and the networks were trained on few "
                "items: the estimate may be too high."
            )
        embeddings, fold = out_of_fold(config, splits, folds, seed=request.seed, progress=progress)
    else:
        model = trained_model(run)
        embeddings = embed(
            model, train.inputs, None if progress is None else lambda done, total: progress("embedding", done, total)
        )
        notes.append(
            "The items were judged by the network that was trained on them, which may have memorised wrong labels and "
            "hide them. Leave out --folds 0 to judge each item by a network that has not seen its label."
        )
    if level != splits.level:
        notes.append(
            f"The run was trained on {splits.level}, and trivet train --labels accepts decisions on that level only."
        )
    return Items(
        name=run.name,
        split="train",
        level=level,
        ids=train.ids,
        labels=np.array(label_names(train)[level]),
        embeddings=embeddings,
        fold=fold,
        distance=request.distance or config.evaluation.distance,
        show=train.show,
        notes=tuple(notes),
    )


def out_of_fold(
    config: RunConfig, splits: Splits, folds: int, *, seed: int = 0, progress: Progress | None = None
) -> tuple[npt.NDArray[Any], Integers]:
    """Embeddings of the training items, each by a network that was trained without the fold the item is in.

    Items of a class that the other folds have less than two of are left out of the training, too: alone they have no
    positive.

    Args:
        folds: at least 2.
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
    fold = stratified_folds(labels, folds, seed=seed)
    embeddings = np.empty((len(train), config.model.embedding_dim), np.float32)
    for number in range(folds):
        counts = np.bincount(labels[fold != number], minlength=len(train.names[splits.level]))
        kept = np.flatnonzero((fold != number) & (counts[labels] > 1))
        enough, needed = int((counts > 1).sum()), config.batch.num_classes
        if enough < needed:
            raise ValueError(
                f"a network trained without a fold needs {needed} classes of two items, as many as a batch has: "
                f"without fold {number + 1} of {folds} there are {enough}; use more folds, or --folds 0."
            )
        model = _trained(config, splits, train.subset(kept), f"network {number + 1} of {folds}", progress)
        held_out = np.flatnonzero(fold == number)
        embeddings[held_out] = embed(model, train.subset(held_out).inputs)
        if not np.isfinite(embeddings[held_out]).all():
            raise ValueError(
                f"embeddings must be finite: those of network {number + 1} of {folds} are not; train with a lower "
                "training.learning_rate, or audit with --folds 0."
            )
    return embeddings, fold


def stratified_folds(labels: npt.NDArray[Any], folds: int, *, seed: int) -> Integers:
    """The fold 0 .. folds - 1 of each item `(N,)`, at random: sizes differ by at most one, in all and in each class."""
    order = np.lexsort((np.random.default_rng(seed).random(len(labels)), labels))
    fold = np.empty(len(labels), np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold


def _trained(config: RunConfig, splits: Splits, items: Dataset, title: str, progress: Progress | None) -> Embedder:
    """A network trained by the settings on some of the items, in evaluation mode on the CPU."""
    from trivet.training.fit import fit  # here: an audit of a file does without Lightning
    from trivet.training.parts import first_task

    steps = config.training.steps

    def say() -> None:
        if progress is not None:
            progress(title, task.step, steps)

    task, batches = first_task(config, items, splits.level, steps=steps, after_step=say)
    if not fit(task, batches, workers=config.training.workers):
        raise KeyboardInterrupt
    return task.model.cpu().eval()


def _short(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
