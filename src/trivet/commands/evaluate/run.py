"""`trivet evaluate` for files: one set, queries against a gallery, or several embeddings side by side."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trivet
from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.page import write_evaluation_report
from trivet.commands.evaluate.record import (
    Approximation,
    ClassRow,
    ClusteringRecord,
    ComparisonRecord,
    DifferenceRecord,
    Differences,
    EvaluationRecord,
    FoldsRecord,
    ProtocolRecord,
    RejectionRecord,
)
from trivet.commands.evaluate.sets import (
    QueriesAndGallery,
    camera_options,
    check_same_items,
    cut_prefixes,
    junk_items,
    number_classes,
    read_pair,
    read_sets,
    same_queries,
    sample_queries,
    self_rows,
    separate_scope,
)
from trivet.commands.printing import command_line
from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_text
from trivet.io.embedding_table import Vectors
from trivet.io.overwrite_guard import PER_CLASS
from trivet.knn.approximate import retrieve_approximately
from trivet.metrics import ALL, LevelResult, evaluate
from trivet.metrics.folds import class_folds
from trivet.metrics.intervals import Difference, Over, interval_json, intervals_json, paired_difference
from trivet.metrics.label_levels import CLUSTERING, VERIFICATION, void
from trivet.metrics.rejection import Rejection, rejection
from trivet.metrics.retrieval import Average, Retrieval
from trivet.metrics.tie_expectations import FULL_RANKING
from trivet.reports.measures import OVERS, finite
from trivet.runtime.progress import steps
from trivet.runtime.text import distinct_names

AVERAGES: tuple[Average, Average] = ("micro", "macro")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A record, and the values of each query behind it."""

    record: EvaluationRecord
    ids: np.ndarray | None  # of the queries
    levels: dict[str, LevelResult]  # with the names of the classes as labels
    names: dict[str, np.ndarray]  # (N,) the class of each item
    item_ids: np.ndarray | None  # of what is clustered and verified, also where only a sample is asked
    rejected: Rejection | None  # at the first level


def evaluate_files(request: EvaluateOptions, *, rank: int = 0, processes: int = 1) -> list[Evaluation]:
    """Evaluate the embeddings of files or run folders side by side, after checking that they are of the same items.

    Args:
        rank, processes: of torchrun; a process of another rank than 0 only retrieves.
    """
    paths, prefixes = request.embeddings or [], request.lengths
    if (request.query is None) != (request.gallery is None):
        raise ValueError("--query and --gallery go together: got one of them; give both.")
    if not paths and prefixes:
        raise ValueError("--prefixes is for embeddings named as arguments: got two files; name one with both splits.")
    if not paths:
        read = [read_pair(request)]
    else:
        read = [read_sets(path, request) for path in paths]
        names = _distinct_names(paths, [sets.name for sets in read])
        read = [replace(sets, name=name) for sets, name in zip(read, names, strict=True)]
    all_sets = [separate_scope(cut, request.out_of_scope) for sets in read for cut in cut_prefixes(sets, prefixes)]
    for other in all_sets[1:]:
        check_same_items((all_sets[0].name, all_sets[0].queries), (other.name, other.queries))
    measures = request.named_measures or list(ALL)
    if rank:
        request, measures = replace(request, folds=0, resamples=0), _ranking(measures)
    return [_evaluate(sets, request, measures, distributed=processes > 1) for sets in all_sets]


def _ranking(measures: Iterable[str]) -> list[str]:
    return [name for name in measures if name not in (*CLUSTERING, *VERIFICATION)]


def _distinct_names(paths: Sequence[Path], names: Sequence[str]) -> list[str]:
    """The names of files, or of runs with a split; with their folders where two have one name."""
    absolute = [Path(os.path.abspath(path)) for path in paths]
    different = list(dict.fromkeys(absolute))
    if len({folder.name for folder in different}) == len(different):
        return list(names)
    called = dict(zip(different, distinct_names(different), strict=True))
    return [  # a run that is named by a link has another name than its place
        called[folder] + name.removeprefix(folder.name) if name.startswith(folder.name) else name
        for folder, name in zip(absolute, names, strict=True)
    ]


def per_class_csv(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write `embeddings,level,class,queries,MEASURE,...`, a row for each class of each level."""
    rows = [
        (evaluated.record.embeddings, level, row)
        for evaluated in evaluations
        for level in evaluated.levels
        for row in class_rows(evaluated, level)
    ]
    measures = list(dict.fromkeys(name for _, _, row in rows for name in row if name not in ("class", "queries")))
    cells = (
        [name, level, row["class"], row["queries"], *(row.get(measure, "") for measure in measures)]
        for name, level, row in rows
    )
    write_atomic(path, csv_text([[*PER_CLASS, *measures], *cells]).encode())


def class_rows(evaluated: Evaluation, level: str) -> list[ClassRow]:
    """The class, the number of its queries and its measures, for each class that has a value.

    The queries are those of retrieval that count; without retrieval all items of the class. The AUROC of rejection is
    at the first level, "rejection-auroc".
    """
    result = evaluated.levels[level]
    retrieval = result.retrieval
    if retrieval is not None:
        counted = retrieval.labels[retrieval.classes[~np.isnan(retrieval.values[:, 0])]]
    else:
        counted = evaluated.names[level]
    counts = dict(zip(*(side.tolist() for side in np.unique(counted, return_counts=True)), strict=True))
    means = result.per_class()
    if evaluated.rejected is not None and level == next(iter(evaluated.levels)):
        for label, area in evaluated.rejected.per_class().items():
            means.setdefault(label, {})["rejection-auroc"] = area
    return [
        {"class": str(label), "queries": counts.get(label, 0), **means[label]}
        for label in result.labels.tolist()
        if label in means
    ]


def _evaluate(
    sets: QueriesAndGallery, request: EvaluateOptions, measures: Sequence[str], *, distributed: bool
) -> Evaluation:
    folds, sample, resamples, seed = request.folds, request.sample, request.resamples, request.seed
    began = time.perf_counter()
    queries, gallery = sets.queries, sets.gallery
    labels, gallery_labels, names = number_classes(sets)
    too_few = {level: len(names[level]) for level in labels if len(names[level]) < folds}
    if folds and len(too_few) == len(labels):
        level, count = max(too_few.items(), key=lambda pair: pair[1])
        raise ValueError(
            f"--folds must be at most the number of classes: got {folds} for {count} at level {level}; use fewer."
        )
    protocol = ProtocolRecord(
        kind="self-retrieval" if gallery is None else "query-gallery",
        queries=sample or len(queries),
        gallery=len(queries if gallery is None else gallery),
        without_positive=request.without_positive,
        same_camera_left_out=sets.cameras,
    )
    options: dict[str, Any] = {}
    if gallery is not None:
        rows = self_rows(queries, gallery)
        options |= {"gallery": gallery.embeddings, "gallery_labels": gallery_labels}
        options |= {} if rows is None else {"self_rows": rows}
        protocol.queries_in_gallery = 0 if rows is None else int((rows >= 0).sum())
        protocol.junk = sets.junk
    if sets.cameras:
        options |= camera_options(sets)
    if request.junk is not None:
        options["junk"] = junk_items(sets, request.junk)
        protocol.junk = int(options["junk"].sum())
    if sample:
        options["sample"] = sample_queries(sets, sample, seed)
    record = EvaluationRecord(
        warnings=void(
            {level: len(np.unique(numbers)) for level, numbers in (gallery_labels or labels).items()},
            len(queries) - 1 if gallery is None else len(gallery),
            measures,
        ),
        trivet=trivet.__version__,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        embeddings=sets.name,
        items=len(queries),
        dimension=int(queries.embeddings.shape[1]),
        distance=sets.distance,
        protocol=protocol,
        resamples=resamples,
        seed=seed,
    )
    options |= {"distance": sets.distance, "without_positive": request.without_positive, "seed": seed}
    approximated: dict[str, Retrieval] = {}
    exact = list(measures)
    if request.approximate is not None:
        ranking = [name for name in _ranking(measures) if name not in FULL_RANKING]
        done = retrieve_approximately(queries.embeddings, labels, kind=request.approximate, measures=ranking, **options)
        approximated, exact = done.levels, [name for name in measures if name in (*CLUSTERING, *VERIFICATION)]
        protocol.approximate = Approximation.model_validate(done.index, from_attributes=True)
        protocol.approximate.neighbours = done.listed
    if exact:
        results = evaluate(
            queries.embeddings, labels, measures=exact, nmi_plus_multiple=request.nmi_plus, distributed=distributed,
            **options,
        )  # fmt: skip
    else:
        results = {
            level: LevelResult(len(numbers), len(names[level]), None, None, None, None)
            for level, numbers in labels.items()
        }
    for level, result in results.items():
        classes, retrieval = np.array(names[level]), approximated.get(level, result.retrieval)
        if retrieval is not None:
            retrieval = replace(retrieval, labels=classes[retrieval.labels])
        results[level] = replace(result, retrieval=retrieval, labels=classes[np.unique(labels[level])])
    record.evaluation = {level: result.as_json() for level, result in results.items()}
    if any(result.mean() for result in results.values()):
        record.macro = {level: result.mean("macro") for level, result in results.items()}
        if resamples:
            record.intervals, record.macro_intervals = (
                {
                    level: intervals_json(result.intervals(average, resamples=resamples, seed=seed))
                    for level, result in results.items()
                }
                for average in steps(AVERAGES, "intervals")
            )
    record.clustering = {
        level: ClusteringRecord(
            clusters=means.clusters,
            clusters_in_use=means.clustering.clusters_in_use,
            inertia=means.clustering.inertia,
            restarts=means.restarts,
            seconds=round(means.clustering.seconds, 3),
        )
        for level, result in results.items()
        if (means := result.clustering) is not None
    }
    if folds:
        record.folds = {
            level: _folds(sets, level, classes, request, _ranking(measures))
            for level, classes in labels.items()
            if level not in too_few
        }
        record.folds_missing |= {
            level: f"{folds} folds need as many classes: there are {n}." for level, n in too_few.items()
        }
    rejected = None
    if sets.rejected is not None and gallery is not None:
        level = next(iter(labels))
        known = gallery.select(~options["junk"]) if request.junk is not None else gallery
        rejected = _reject(sets, known, labels[level], names[level])
        record.rejection = _rejection_record(rejected, resamples, seed)
    record.seconds = round(time.perf_counter() - began, 3)
    return Evaluation(
        record=record,
        ids=queries.ids[options["sample"]] if sample and queries.ids is not None else queries.ids,
        levels=results,
        names={level: np.array(names[level])[numbers] for level, numbers in labels.items()},
        item_ids=queries.ids,
        rejected=rejected,
    )


def _reject(sets: QueriesAndGallery, known: Vectors, labels: np.ndarray, names: Sequence[str]) -> Rejection:
    """The rejection of queries out of scope by their distance to the known items."""
    queries, rejected = sets.queries, sets.rejected
    assert rejected is not None
    of_queries, of_rejected = (self_rows(vectors, known) for vectors in (queries, rejected))
    result = rejection(
        np.concatenate([queries.embeddings, rejected.embeddings]),
        np.arange(len(queries) + len(rejected)) >= len(queries),
        known.embeddings,
        labels=np.concatenate([labels, np.zeros(len(rejected), np.int64)]),
        self_rows=None if of_queries is None or of_rejected is None else np.concatenate([of_queries, of_rejected]),
        distance=sets.distance,
    )
    assert result.scores is not None
    assert result.scores.labels is not None
    return replace(result, scores=replace(result.scores, labels=np.array(names)[result.scores.labels]))


def _rejection_record(measured: Rejection, resamples: int, seed: int) -> RejectionRecord:
    record = RejectionRecord(
        auroc=measured.auroc,
        fpr_at_95_tpr=measured.fpr_at_95_tpr,
        in_scope=measured.in_scope,
        out_of_scope=measured.out_of_scope,
        macro={"auroc": measured.macro},
    )
    if resamples:
        record.intervals, record.macro_intervals = (
            intervals_json(measured.intervals(average, resamples=resamples, seed=seed))
            for average in steps(AVERAGES, "intervals")
        )
    return record


def _folds(
    sets: QueriesAndGallery, level: str, classes: np.ndarray, request: EvaluateOptions, measures: Sequence[str]
) -> dict[str, FoldsRecord]:
    """Retrieval within each of the class-disjoint folds, their mean and its Student-t interval."""
    values: list[dict[str, float]] = []
    for rows in class_folds(classes, request.folds, seed=request.seed):
        result = evaluate(
            sets.queries.embeddings[rows],
            {level: classes[rows]},
            measures=measures,
            distance=sets.distance,
            without_positive=request.without_positive,
        )[level]
        assert result.retrieval is not None
        values.append(result.retrieval.mean())
    return {name: FoldsRecord.of([value[name] for value in values]) for name in measures}


def compare(evaluations: Sequence[Evaluation], request: EvaluateOptions) -> Differences:
    """Level -> measure -> for each embedding after the first, its mean less that of the first, with intervals.

    The same queries are drawn for both ("paired"), so what they find equally hard cancels; `evaluate_files` has checked
    that all embeddings are of the same items.
    """
    first, resamples = evaluations[0], request.resamples
    differences: Differences = {}
    for other in evaluations[1:]:
        for level in first.levels.keys() & other.levels.keys():
            rows = differences.setdefault(level, {})
            for name, by_over in _compared(first, other, level, resamples or 1, request.seed).items():
                rows.setdefault(name, []).append(_difference(first, other, by_over, with_intervals=bool(resamples)))
    return {level: differences[level] for level in first.levels if differences.get(level)}


def _compared(
    first: Evaluation, other: Evaluation, level: str, resamples: int, seed: int
) -> dict[str, dict[Over, Difference]]:
    """Measure -> over -> the mean of the other less that of the first, under the same draws; at least one."""
    differences: dict[str, dict[Over, Difference]] = {}

    def pair(names: Sequence[str], a: np.ndarray, b: np.ndarray, classes: np.ndarray, over: Over) -> None:
        paired = paired_difference(b, a, classes, over=over, average="micro", resamples=resamples, seed=seed)
        for name, result_of in zip(names, paired, strict=True):
            differences.setdefault(name, {})[over] = result_of

    results = first.levels[level], other.levels[level]
    a, b = results[0].retrieval, results[1].retrieval
    if a is not None and b is not None:
        rows = same_queries(_names_of(first, other), first.ids, other.ids, (len(a.classes), len(b.classes)))
        names = [name for name in a.measures if name in b.measures]
        columns = [[result_of.measures.index(name) for name in names] for result_of in (a, b)]
        for over in OVERS:
            pair(names, a.values[:, columns[0]], b.values[rows][:, columns[1]], a.classes, over)
    if not any(result.clustering or result.clustering_plus or result.verification for result in results):
        return differences
    rows = same_queries(_names_of(first, other), first.item_ids, other.item_ids, (results[0].items, results[1].items))
    agreed, others = (result.agreement_values() for result in results)
    for name in agreed.keys() & others.keys():
        values, classes = agreed[name]
        for over in OVERS:
            pair([name], values, others[name][0][rows], classes, over)
    pairs = [result.verification.pairs for result in results if result.verification is not None]
    if len(pairs) == 2 and pairs[0] is not None and pairs[1] is not None:
        pairs_of_first, its = pairs[0], pairs[1]
        for over in OVERS:
            mine, theirs = pairs_of_first.values(over, "micro"), its.values(over, "micro")
            for name in mine.keys() & theirs.keys():
                if over == "queries":
                    classes = pairs_of_first.in_order(pairs_of_first.classes)
                    pair([name], pairs_of_first.in_order(mine[name]), its.in_order(theirs[name])[rows], classes, over)
                else:
                    pair([name], mine[name], theirs[name], np.arange(len(pairs_of_first.sizes)), over)
            rates = pairs_of_first.rate_differences(its, rows, over, resamples=resamples, level=0.95, seed=seed)
            for name, result_of in rates.items():
                differences.setdefault(name, {})[over] = result_of
    return {name: differences[name] for name in results[0].mean() if name in differences}


def _names_of(first: Evaluation, other: Evaluation) -> tuple[str, str]:
    return first.record.embeddings, other.record.embeddings


def _difference(
    first: Evaluation, other: Evaluation, by_over: Mapping[Over, Difference], *, with_intervals: bool
) -> DifferenceRecord:
    queries, classes = (
        interval_json(by_over[over].interval) if with_intervals and over in by_over else None for over in OVERS
    )
    difference = finite(next(iter(by_over.values())).value)
    names = {"of": other.record.embeddings, "less": first.record.embeddings}
    return DifferenceRecord(**names, difference=difference, queries=queries, classes=classes)


@contextmanager
def meet_processes() -> Iterator[tuple[int, int]]:
    """Meet the other processes of torchrun, if it started this one: rank and number of processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield 0, 1
        return
    torch.distributed.init_process_group("gloo")
    try:
        yield torch.distributed.get_rank(), torch.distributed.get_world_size()
    finally:
        torch.distributed.destroy_process_group()


def write_report(evaluations: Sequence[Evaluation], differences: Differences, path: Path) -> None:
    """Write the page of evaluated embeddings and their differences, with the classes one by one."""
    record = ComparisonRecord(
        results=[each.record for each in evaluations],
        differences=differences,
        per_class=[{level: class_rows(each, level) for level in each.levels} for each in evaluations],
    )
    write_evaluation_report(record.stamped(command_line()), path)
