"""`trivet evaluate` for files: one set, queries against a gallery, or several embeddings side by side."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import trivet
from trivet.commands.evaluate.page import write_evaluation_report
from trivet.commands.evaluate.same_items import check_same_items, self_rows
from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_text
from trivet.io.embedding_table import Vectors, class_numbers
from trivet.io.overwrite_guard import PER_CLASS, is_run_folder
from trivet.io.read_embeddings import read_vectors
from trivet.knn.approximate import retrieve_approximately
from trivet.metrics import ALL, LevelResult, evaluate
from trivet.metrics.folds import class_folds
from trivet.metrics.intervals import across_folds, interval_json, intervals_json
from trivet.metrics.label_levels import CLUSTERING, VERIFICATION, void
from trivet.metrics.points import Metric
from trivet.metrics.rejection import Rejection, rejection
from trivet.metrics.retrieval import Average, Retrieval, WithoutPositive
from trivet.metrics.tie_expectations import FULL_RANKING
from trivet.reports.evaluation_record import ComparisonRecord
from trivet.reports.from_json import complete
from trivet.runtime.progress import steps
from trivet.runtime.text import distinct_names
from trivet.training.run_folder import RunFolder


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of the evaluation of each file.

    Attributes:
        levels: label levels; None for all there are.
        table: the csv file of an npy file.
        split: the rows of that split only; of a run, the split whose embeddings are read.
        query, gallery: names of two splits of one file: the first is asked, the second retrieved.
        cameras: leave out items of the query's class and camera.
        junk: class of the first level whose gallery items are neither right nor wrong.
        out_of_scope: class of the first level whose queries belong to no class of the gallery.
        measures: see `trivet.metrics.evaluate`.
        distance: None for that of the run the embeddings are of, "cosine" for a file, and for prefixes.
        folds: evaluate retrieval within each of so many class-disjoint parts too; 0 for none.
        sample: ask so many random items only; 0 for all.
        prefixes: evaluate the first so many numbers of each embedding, for each of these side by side; none for whole
            embeddings.
        approximate: rank by an approximate index.
        resamples: of the bootstrap; 0 for no intervals.
    """

    levels: tuple[str, ...] | None = None
    table: Path | None = None
    split: str | None = None
    query: str | None = None
    gallery: str | None = None
    cameras: bool = False
    junk: str | None = None
    out_of_scope: str | None = None
    measures: tuple[str, ...] = ALL
    distance: Metric | None = None
    without_positive: WithoutPositive = "miss"
    nmi_plus: int = 10
    folds: int = 0
    sample: int = 0
    prefixes: tuple[int, ...] = ()
    approximate: Literal["hnsw", "ivf", "ivf-pq"] | None = None
    resamples: int = 1000
    seed: int = 0
    distributed: bool = False


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A record, as JSON, and the values of each query behind it."""

    record: dict[str, Any]
    retrieval: dict[str, Retrieval]
    ids: np.ndarray | None  # of the queries
    levels: dict[str, LevelResult]  # with the names of the classes as labels
    names: dict[str, np.ndarray]  # (N,) the class of each item
    item_ids: np.ndarray | None  # of what is clustered and verified, also where only a sample is asked
    rejected: Rejection | None  # at the first level


@dataclass(frozen=True, eq=False)
class _Sets:
    name: str
    queries: Vectors
    gallery: Vectors | None
    rejected: Vectors | None  # queries out of scope
    junk: int | None = None  # gallery items that were left out, as the file marks them


def evaluate_file(path: Path, request: EvaluationOptions) -> Evaluation:
    """Evaluate the embeddings of a file or a run folder.

    Raises:
        ValueError: if the file cannot be used, or what is asked does not fit it.
    """
    (evaluated,) = evaluate_files([path], request)
    return evaluated


def evaluate_files(paths: Sequence[Path], request: EvaluationOptions) -> list[Evaluation]:
    """Evaluate the embeddings of files or run folders side by side, after checking that they are of the same items.

    Raises:
        ValueError: if a file cannot be used, what is asked does not fit it, or the files cannot be compared.
    """
    sets = [_sets(path, request) for path in paths]
    names = _distinct_names(paths, [sets_of.name for sets_of, _ in sets])
    named = [(replace(sets_of, name=name), each) for (sets_of, each), name in zip(sets, names, strict=True)]
    requested = [cut for sets_of, each in named for cut in _cut(sets_of, each)]
    if len(requested) > 1:
        first, *others = ((sets_of.name, _scoped(sets_of, each).queries) for sets_of, each in requested)
        for other in others:
            check_same_items(first, other)
    return [_evaluate(sets_of, each) for sets_of, each in requested]


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


def _cut(sets: _Sets, request: EvaluationOptions) -> Iterator[tuple[_Sets, EvaluationOptions]]:
    """Whole embeddings, or each prefix of them that is asked for."""
    length = sets.queries.embeddings.shape[1]
    for prefix in request.prefixes:
        if not 1 <= prefix <= length:
            raise ValueError(
                f"--prefixes must lie between 1 and {length}, the length of an embedding of {sets.name}: got {prefix}."
            )
        queries, gallery = (
            None if vectors is None else replace(vectors, embeddings=vectors.embeddings[:, :prefix])
            for vectors in (sets.queries, sets.gallery)
        )
        assert queries is not None
        yield replace(sets, name=f"{sets.name}, first {prefix}", queries=queries, gallery=gallery), request
    if not request.prefixes:
        yield sets, request


def _sets(path: Path, request: EvaluationOptions) -> tuple[_Sets, EvaluationOptions]:
    distance = request.distance or ("cosine" if request.prefixes else _distance_of(path))  # a prefix has no unit length
    request = replace(request, distance=distance)
    if (request.query is None) != (request.gallery is None):
        raise ValueError("--query and --gallery go together: got one of them; give both.")
    if request.query is None:
        vectors = read_vectors(path, levels=request.levels, table=request.table, split=request.split)
        if vectors.protocol is None:
            return _Sets(vectors.name, vectors, None, None), request
        return _as_marked(vectors, request)
    if request.split is not None:
        raise ValueError("--split uses the rows of one split: leave it out with --query and --gallery.")
    queries = read_vectors(path, levels=request.levels, table=request.table, split=request.query)
    gallery = read_vectors(path, levels=request.levels, table=request.table, split=request.gallery)
    return _Sets(path.name, queries, gallery, None), request


def _as_marked(vectors: Vectors, request: EvaluationOptions) -> tuple[_Sets, EvaluationOptions]:
    """The queries and the gallery that the file marks, without junk; cameras count if the file names them."""
    protocol = vectors.protocol
    assert protocol is not None
    queries, gallery = vectors.select(protocol.query), vectors.select(protocol.retrieved)
    if vectors.ids is None:  # then the row tells that a query is in the gallery itself
        queries, gallery = (
            replace(vectors_of, ids=vectors_of.rows.astype(np.str_)) for vectors_of in (queries, gallery)
        )
    junk = protocol.counts()["junk"] or None
    return _Sets(vectors.name, queries, gallery, None, junk), replace(request, cameras=protocol.cameras is not None)


def evaluate_pair(query: Path, gallery: Path, request: EvaluationOptions) -> Evaluation:
    """Evaluate the embeddings of one file against those of another; a query does not retrieve the item of its id.

    Raises:
        ValueError: as `evaluate_file`.
    """
    if request.prefixes:
        raise ValueError("--prefixes is for embeddings named as arguments: got two files; name one with both splits.")
    request = replace(request, distance=request.distance or _distance_of(query))
    queries = read_vectors(query, levels=request.levels, table=request.table, split=request.split)
    others = read_vectors(gallery, levels=request.levels)
    if request.levels is None:
        # With one item for each class of a gallery, its labels look like ids; those of the queries tell.
        levels = [*queries.labels, *(level for level in others.labels if level in queries.passed_over)]
        if lacking := [level for level in levels if level in queries.passed_over]:
            queries = read_vectors(query, levels=levels, table=request.table, split=request.split)
        if lacking or any(level in others.passed_over for level in levels):
            others = read_vectors(gallery, levels=levels)
    return _evaluate(_Sets(f"{query.name} in {gallery.name}", queries, others, None), request)


def per_class_csv(evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write `embeddings,level,class,queries,MEASURE,...`, a row for each class of each level.

    Raises:
        OSError: if the file cannot be written.
    """
    rows = [
        (evaluated.record["embeddings"], level, row)
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


def class_rows(evaluated: Evaluation, level: str) -> list[dict[str, Any]]:
    """The class, the number of its queries and its measures, for each class that has a value.

    The queries are those of retrieval that count; without retrieval all items of the class. The AUROC of rejection is
    at the first level, "rejection-auroc".
    """
    result, retrieval = evaluated.levels[level], evaluated.retrieval.get(level)
    if retrieval is not None:
        counted = retrieval.labels[retrieval.classes[~np.isnan(retrieval.values[:, 0])]]
    else:
        counted = evaluated.names[level]
    counts = dict(zip(*(side.tolist() for side in np.unique(counted, return_counts=True)), strict=True))
    means = replace(result, retrieval=retrieval).per_class()
    if evaluated.rejected is not None and level == next(iter(evaluated.levels)):
        for label, area in evaluated.rejected.per_class().items():
            means.setdefault(label, {})["rejection-auroc"] = area
    return [
        {"class": str(label), "queries": counts.get(label, 0), **means[label]}
        for label in result.labels.tolist()
        if label in means
    ]


def _evaluate(sets: _Sets, request: EvaluationOptions) -> Evaluation:
    began = time.perf_counter()
    assert request.distance is not None
    sets = _scoped(sets, request)
    queries, gallery = sets.queries, sets.gallery
    if not queries.labels:
        raise ValueError(
            f"evaluation needs a label for each row: {sets.name} has no label column{queries.why_none()}; name one "
            "with --labels."
        )
    if gallery is not None and list(gallery.labels) != list(queries.labels):
        raise ValueError(
            f"queries and gallery must have the same label levels: got {list(queries.labels)} and "
            f"{list(gallery.labels)}; name them with --labels."
        )
    labels, gallery_labels, names = {}, {}, {}
    for level, column in queries.labels.items():
        columns = [column] if gallery is None else [column, gallery.labels[level]]
        numbers, names[level] = class_numbers(*columns)
        labels[level] = numbers[0]
        if gallery is not None:
            gallery_labels[level] = numbers[1]
    too_few = {level: len(names[level]) for level in labels if len(names[level]) < request.folds}
    if request.folds and len(too_few) == len(labels):
        level, count = max(too_few.items(), key=lambda pair: pair[1])
        raise ValueError(
            f"--folds must be at most the number of classes: got {request.folds} for {count} at level {level}; use "
            "fewer."
        )
    protocol: dict[str, Any] = {
        "kind": "self-retrieval" if gallery is None else "query-gallery",
        "queries": request.sample or len(queries),
        "gallery": len(queries if gallery is None else gallery),
        "without_positive": request.without_positive,
        "same_camera_left_out": request.cameras,
    }
    options: dict[str, Any] = {}
    if gallery is not None:
        options |= {"gallery": gallery.embeddings, "gallery_labels": gallery_labels}
        rows_of_queries = self_rows(queries, gallery)
        options |= {} if rows_of_queries is None else {"self_rows": rows_of_queries}
        protocol["queries_in_gallery"] = 0 if rows_of_queries is None else int((rows_of_queries >= 0).sum())
        protocol["junk"] = sets.junk
    if request.cameras:
        options |= _cameras(sets)
    if request.junk is not None:
        options["junk"] = _junk(sets, request.junk)
        protocol["junk"] = int(options["junk"].sum())
    if request.sample:
        options["sample"] = _sampled(sets, request)
    searched = gallery_labels or labels
    warnings = void(
        {level: len(np.unique(numbers)) for level, numbers in searched.items()},
        len(queries) - 1 if gallery is None else len(gallery),
        request.measures,
    )
    record: dict[str, Any] = {
        "warnings": warnings,
        "trivet": trivet.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "embeddings": sets.name,
        "items": len(queries),
        "dimension": int(queries.embeddings.shape[1]),
        "distance": request.distance,
        "protocol": protocol,
        "resamples": request.resamples,
        "seed": request.seed,
    }
    measures = request.measures
    approximate: dict[str, Retrieval] = {}
    if request.approximate is not None:
        ranking = [name for name in measures if name not in (*CLUSTERING, *VERIFICATION)]
        done = retrieve_approximately(
            queries.embeddings,
            labels,
            kind=request.approximate,
            measures=[name for name in ranking if name not in FULL_RANKING],
            distance=request.distance,
            without_positive=request.without_positive,
            seed=request.seed,
            **options,
        )
        approximate = done.levels
        protocol["approximate"] = {
            "kind": done.index.kind,
            "parameters": dict(done.index.parameters),
            "neighbours": done.listed,
            "recall": done.index.recall,
            "recall_at": done.index.recall_at,
            "recall_queries": done.index.recall_queries,
        }
        measures = tuple(name for name in measures if name not in ranking)
    results: dict[str, LevelResult] = {}
    if measures:
        results = evaluate(
            queries.embeddings,
            labels,
            measures=measures,
            nmi_plus_multiple=request.nmi_plus,
            distance=request.distance,
            without_positive=request.without_positive,
            seed=request.seed,
            distributed=request.distributed,
            **options,
        )
    else:
        results = {
            level: LevelResult(len(numbers), len(names[level]), None, None, None, None)
            for level, numbers in labels.items()
        }
    results = {
        level: replace(
            result,
            retrieval=approximate.get(level, result.retrieval),
            labels=np.array(names[level])[np.unique(labels[level])],
        )
        for level, result in results.items()
    }
    retrieval = {
        level: replace(result.retrieval, labels=np.array(names[level])[result.retrieval.labels])
        for level, result in results.items()
        if result.retrieval is not None
    }
    record["evaluation"] = {level: result.as_json() for level, result in results.items()}
    if any(result.mean() for result in results.values()):
        record["macro"] = {level: result.mean("macro") for level, result in results.items()}
        if request.resamples:
            averages: dict[str, Average] = {"intervals": "micro", "macro_intervals": "macro"}
            for key, average in steps(averages.items(), "intervals"):
                record[key] = {
                    level: intervals_json(result.intervals(average, resamples=request.resamples, seed=request.seed))
                    for level, result in results.items()
                }
    record["clustering"] = {
        level: {
            "clusters": result_of.clusters,
            "clusters_in_use": result_of.clusters_in_use,
            "inertia": result_of.inertia,
            "restarts": result_of.restarts,
            "seconds": round(result_of.seconds, 3),
        }
        for level, result in results.items()
        if (result_of := result.clustering) is not None
    }
    if request.folds:
        enough = {level: classes for level, classes in labels.items() if level not in too_few}
        record["folds"] = _folds(queries, enough, request)
        reasons = {level: f"{request.folds} folds need as many classes: there are {n}." for level, n in too_few.items()}
        record |= {"folds_missing": reasons} if reasons else {}
    rejected = None
    if sets.rejected is not None and gallery is not None:
        level = next(iter(labels))
        outside = np.arange(len(queries) + len(sets.rejected)) >= len(queries)
        known = gallery.select(~options["junk"]) if request.junk is not None else gallery
        of_queries, of_rejected = (self_rows(vectors, known) for vectors in (queries, sets.rejected))
        rejected = rejection(
            np.concatenate([queries.embeddings, sets.rejected.embeddings]),
            outside,
            known.embeddings,
            labels=np.concatenate([labels[level], np.zeros(len(sets.rejected), np.int64)]),
            self_rows=None if of_queries is None or of_rejected is None else np.concatenate([of_queries, of_rejected]),
            distance=request.distance,
        )
        assert rejected.scores is not None
        assert rejected.scores.labels is not None
        named = replace(rejected.scores, labels=np.array(names[level])[rejected.scores.labels])
        rejected = replace(rejected, scores=named)
        record["rejection"] = _rejection(rejected, request)
    record["seconds"] = round(time.perf_counter() - began, 3)
    ids = queries.ids
    if request.sample and ids is not None:
        ids = ids[options["sample"]]
    classes = {level: np.array(names[level])[numbers] for level, numbers in labels.items()}
    return Evaluation(record, retrieval, ids, results, classes, queries.ids, rejected)


def _rejection(measured: Rejection, request: EvaluationOptions) -> dict[str, Any]:
    record: dict[str, Any] = {
        "auroc": measured.auroc,
        "fpr_at_95_tpr": measured.fpr_at_95_tpr,
        "in_scope": measured.in_scope,
        "out_of_scope": measured.out_of_scope,
        "macro": {"auroc": measured.macro},
    }
    if request.resamples:
        averages: dict[str, Average] = {"intervals": "micro", "macro_intervals": "macro"}
        for key, average in steps(averages.items(), "intervals"):
            record[key] = intervals_json(measured.intervals(average, resamples=request.resamples, seed=request.seed))
    return record


def _distance_of(path: Path) -> Metric:
    return RunFolder.open(path).config().evaluation.distance if is_run_folder(path) else "cosine"


def _scoped(sets: _Sets, request: EvaluationOptions) -> _Sets:
    """Separate the queries that are out of scope, and remove such items from the gallery."""
    if request.out_of_scope is None:
        return sets
    if sets.gallery is None:
        raise ValueError("--out-of-scope needs a gallery of the known classes: give --query and --gallery.")
    level = next(iter(sets.queries.labels))
    outside = sets.queries.labels[level] == request.out_of_scope
    if outside.all() or not outside.any():
        raise ValueError(
            f"--out-of-scope must be the {level} of some queries, but not of all: {int(outside.sum())} of "
            f"{len(outside)} have {request.out_of_scope!r}."
        )
    known = sets.gallery.labels[level] != request.out_of_scope
    queries, rejected = sets.queries.select(~outside), sets.queries.select(outside)
    return replace(sets, queries=queries, gallery=sets.gallery.select(known), rejected=rejected)


def _cameras(sets: _Sets) -> dict[str, np.ndarray]:
    columns = [vectors.cameras for vectors in (sets.queries, sets.gallery) if vectors is not None]
    if any(column is None for column in columns):
        raise ValueError(
            f"--cameras needs a column camera in each file: {sets.name} has none; add it, or leave out --cameras."
        )
    numbers, _ = class_numbers(*[column for column in columns if column is not None])
    return dict(zip(("cameras", "gallery_cameras"), numbers, strict=False))


def _junk(sets: _Sets, name: str) -> np.ndarray:
    if sets.gallery is None:
        raise ValueError("--junk excludes gallery items: give --query and --gallery.")
    level = next(iter(sets.gallery.labels))
    junk: np.ndarray = sets.gallery.labels[level] == name
    if not junk.any():
        raise ValueError(f"--junk must be the {level} of some gallery items: no item has {name!r}.")
    return junk


def _sampled(sets: _Sets, request: EvaluationOptions) -> np.ndarray:
    if sets.gallery is not None:
        raise ValueError("--sample draws queries from one set: leave it out with --query and --gallery.")
    if request.sample > len(sets.queries):
        raise ValueError(f"--sample must be at most the {len(sets.queries)} items: got {request.sample}.")
    rows = np.random.default_rng(request.seed).permutation(len(sets.queries))[: request.sample]
    return np.sort(rows)


def _folds(queries: Vectors, labels: Mapping[str, np.ndarray], request: EvaluationOptions) -> dict[str, Any]:
    """Retrieval within each of the class-disjoint parts, their mean and its Student-t interval."""
    names = [name for name in request.measures if name not in (*CLUSTERING, *VERIFICATION)]
    by_level: dict[str, Any] = {}
    for level, classes in labels.items():
        values = []
        for rows in class_folds(classes, request.folds, seed=request.seed):
            result = evaluate(
                queries.embeddings[rows],
                {level: classes[rows]},
                measures=names,
                distance=request.distance or "cosine",
                without_positive=request.without_positive,
            )[level]
            assert result.retrieval is not None
            values.append(result.retrieval.mean())
        by_level[level] = {}
        for name in names:
            shares = [value[name] for value in values]
            mean, interval = across_folds(shares)
            by_level[level][name] = {"mean": mean, "interval": interval_json(interval), "values": shares}
    return by_level


@contextmanager
def processes() -> Iterator[tuple[int, int]]:
    """Meet the other processes of torchrun, if it started this one: rank and number of processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield 0, 1
        return
    torch.distributed.init_process_group("gloo")
    try:
        yield torch.distributed.get_rank(), torch.distributed.get_world_size()
    finally:
        torch.distributed.destroy_process_group()


def write_report(result: Mapping[str, Any], evaluations: Sequence[Evaluation], path: Path) -> None:
    """Write the page of what `differences.summary` returned, with the classes one by one.

    Raises:
        OSError: if the file cannot be written.
    """
    classes = [{level: class_rows(each, level) for level in each.levels} for each in evaluations]
    page = {"results": [each.record for each in evaluations], **result, "per_class": classes}
    write_evaluation_report(complete(ComparisonRecord, page), path)


def only_retrieval(request: EvaluationOptions) -> EvaluationOptions:
    """Options of a helper process, which only retrieves."""
    ranking = tuple(name for name in request.measures if name not in (*CLUSTERING, *VERIFICATION))
    return replace(request, measures=ranking, folds=0, resamples=0)
