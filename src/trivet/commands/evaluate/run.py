"""`trivet evaluate` for files: one set, queries against a gallery, or several embeddings side by side."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trivet.commands.diagnose.encoders import EmbeddingReader
from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.postprocessing import judge_gain
from trivet.commands.evaluate.record import (
    Approximation,
    ClassRow,
    ClusteringRecord,
    DifferenceRecord,
    Differences,
    EvaluationRecord,
    FoldsRecord,
    ProtocolRecord,
    RejectionRecord,
)
from trivet.commands.evaluate.reranking_gains import gain_variances
from trivet.commands.evaluate.sets import (
    QueriesAndGallery,
    camera_options,
    check_same_items,
    copied_vectors,
    in_order,
    junk_items,
    num_classes,
    number_classes,
    read_pair,
    read_sets,
    related,
    sample_queries,
    self_rows,
    unlike_forms,
    variants,
)
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.datasets.preview import Preview
from trivet.datasets.tags import tag_relations
from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_text
from trivet.io.embedding_table import Vectors
from trivet.io.overwrite_guard import PER_CLASS
from trivet.io.tag_cells import JOINED
from trivet.knn.retrieval_by_index import retrieve_by_index
from trivet.metrics import ALL, LevelResult, evaluate
from trivet.metrics.folds import class_folds
from trivet.metrics.intervals import AVERAGES, OVERS, Variance, interval_json, intervals_json
from trivet.metrics.label_levels import CLUSTERING, VERIFICATION, unanswerable, void
from trivet.metrics.rejection import Rejection, rejection
from trivet.metrics.retrieval import Retrieval
from trivet.metrics.tie_expectations import FULL_RANKING
from trivet.mining import Relation
from trivet.reports.measures import finite
from trivet.runtime.progress import steps
from trivet.runtime.text import distinct_names
from trivet.runtime.version import __version__

WAYS = ("left to right", "right to left")  # the levels of pairs of one set


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A record, and the values of each query behind it."""

    record: EvaluationRecord
    levels: dict[str, LevelResult]  # with the names of the classes as labels
    names: dict[str, np.ndarray]  # (N,) the class of each item
    rejected: Rejection | None  # at the first level
    tags: Collection[str] = ()  # the levels of tags
    gains: Mapping[str, Variance] = field(default_factory=dict)  # of re-ranked ones, by level: beside the plain ranking


def evaluate_files(request: EvaluateOptions, *, rank: int = 0, processes: int = 1) -> list[Evaluation]:
    """Evaluate the embeddings of files or run folders side by side, see `evaluate_sets`."""
    return evaluate_sets(read_embeddings(request)[0], request, rank=rank, processes=processes)


def evaluate_sets(
    all_sets: Sequence[QueriesAndGallery], request: EvaluateOptions, *, rank: int = 0, processes: int = 1
) -> list[Evaluation]:
    """Evaluate embeddings side by side, after checking that they are of the same items.

    Args:
        rank, processes: of torchrun; a process of another rank than 0 only retrieves.
    """
    for other in all_sets[1:]:
        check_same_items((all_sets[0].name, all_sets[0].queries), (other.name, other.queries))
    measures = request.named_measures or list(ALL)
    if rank:
        request, measures = replace(request, folds=0), _ranking(measures)
    return [
        _evaluate(sets, request, measures, distributed=processes > 1, intervals=not rank)
        for sets in (in_order(all_sets[0], other) for other in all_sets)
    ]


def read_embeddings(
    request: EvaluateOptions,
) -> tuple[list[QueriesAndGallery], Callable[[int], Preview | None] | None]:
    """Read the embeddings of a request, or make them by encoders, and what shows an image of theirs."""
    paths: list[Path] = request.embeddings or []
    if (request.query is None) != (request.gallery is None):
        raise ValueError("--query and --gallery go together: got one of them; give both.")
    if not paths and request.lengths:
        raise ValueError("--prefixes is for embeddings named as arguments: got two files; name one with both splits.")
    if not paths:
        read, show = [read_pair(request)], None
    else:
        reader = EmbeddingReader(request, paths[0])
        if request.left_vectors:
            paths = reader.of_sides(request.left_vectors, request.right_vectors or ())
        read = [read_sets(path, request, reader) for path in paths]
        names = _distinct_names(paths, [sets.name for sets in read])
        read = [replace(sets, name=name) for sets, name in zip(read, names, strict=True)]
        show = reader.show
    sources = zip(read, paths or [Path(request.gallery or "")], strict=True)
    return [each for sets, path in sources for each in variants(sets, request, path)], show


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
    if level in evaluated.tags:
        names = evaluated.names[level]
        queries = retrieval.counted if retrieval is not None and len(retrieval.values) == len(names) else slice(None)
        counted = np.array([tag for cell in names[queries].tolist() for tag in cell.split(JOINED)])
    elif retrieval is not None:
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
    sets: QueriesAndGallery, request: EvaluateOptions, measures: Sequence[str], *, distributed: bool, intervals: bool
) -> Evaluation:
    folds, sample, seed = request.folds, request.sample, request.seed
    began = time.perf_counter()
    queries, gallery = sets.queries, sets.gallery
    labels, gallery_labels, names = number_classes(sets)
    rules = tag_relations(names, queries.tags)
    relations, gallery_relations = (related(of, rules) for of in (labels, gallery_labels))
    paired = {level for level, rule in rules.items() if isinstance(rule, JudgedPairs)}
    both_ways = paired if gallery is None else set[str]()
    if not request.named_measures and rules.keys() == labels.keys():
        measures = _ranking(measures)  # clusters and verification are of classes
    _check_options(request, sets, rules, both_ways)
    too_few = {level: len(names[level]) for level in labels if len(names[level]) < folds}
    if folds and len(too_few) == len(labels):
        level, count = max(too_few.items(), key=lambda pair: pair[1])
        raise ValueError(
            f"--folds must be at most the number of classes: got {folds} for {count} at level {level}; use fewer."
        )
    protocol = ProtocolRecord(
        kind="both-ways" if both_ways else "self-retrieval" if gallery is None else "query-gallery",
        queries=sample or len(queries),
        gallery=len(queries if gallery is None else gallery),
        without_positive=request.without_positive,
        same_camera_left_out=sets.cameras,
    )
    options: dict[str, Any] = {}
    notes: list[str] = []
    if gallery is not None:
        rows = self_rows(queries, gallery, by_id=sets.by_id)
        options |= {"gallery": gallery.embeddings, "gallery_labels": gallery_relations}
        if rows is not None:
            if (
                not sets.by_id
                and not rules
                and (rows >= 0).any()
                and _takes_every_positive(rows, labels, gallery_labels)
            ):
                rows = np.full(len(rows), -1)
                notes.append(
                    "Queries have the ids and vectors of gallery items, and without these none would have anything to "
                    "find: they were taken for other items. If they are the same, --same-items leaves each out."
                )
            options["self_rows"] = rows
            named = self_rows(queries, gallery, by_id=True)
            protocol.queries_in_gallery = int((rows >= 0).sum())
            protocol.ids_alike = int(np.count_nonzero(rows != named))
        protocol.junk = sets.junk
    if not both_ways and sets.form in ("", "float32"):  # codes may be equal though vectors are not
        notes += copied_vectors(sets, options.get("self_rows"))
    if sets.cameras:
        options |= camera_options(sets)
    if request.junk is not None:
        options["junk"] = junk_items(sets, request.junk)
        protocol.junk = int(options["junk"].sum())
    if sample:
        options["sample"] = sample_queries(sets, sample, seed)
    record = EvaluationRecord(
        warnings=[
            *dict.fromkeys((*queries.notes, *(() if gallery is None else gallery.notes))),
            *void(
                {
                    level: num_classes(relation)
                    for level, relation in (gallery_relations or relations).items()
                    if level not in paired
                },
                len(queries) - 1 if gallery is None else len(gallery),
                measures,
            ),
            *notes,
        ],
        trivet=__version__,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        embeddings=sets.name,
        items=len(queries),
        dimension=int(queries.embeddings.shape[1]),
        units={level: "group" if level in paired else "tag" for level in rules},
        distance=sets.distance,
        protocol=protocol,
        seed=seed,
        prefix=sets.prefix,
        form=sets.form,
        bytes=sets.bytes,
        postprocessing=sets.postprocessing,
    )
    options |= {"distance": sets.distance, "without_positive": request.without_positive, "seed": seed}
    approximated: dict[str, Retrieval] = {}
    gains: dict[str, Variance] = {}
    exact = list(measures)
    approximate = sets.approximate or request.approximate
    if approximate or sets.rerank:
        ranking = [name for name in _ranking(measures) if name not in FULL_RANKING]
        kind = approximate or "exact"
        done = retrieve_by_index(
            queries.embeddings, relations, kind=kind, rerank=sets.rerank, measures=ranking, **options
        )
        approximated = done.levels
        if sets.rerank and intervals:
            plain = retrieve_by_index(queries.embeddings, relations, kind=kind, measures=ranking, **options).levels
            gains = gain_variances(
                queries.embeddings, relations, approximated, plain, rerank=sets.rerank, options=options
            )
        exact = [] if sets.rerank else [name for name in measures if name in (*CLUSTERING, *VERIFICATION)]
    if approximate:
        protocol.approximate = Approximation.model_validate(done.index, from_attributes=True)
        protocol.approximate.neighbours = done.listed
    if exact:
        results = _measured(
            queries.embeddings,
            relations,
            measures=exact,
            nmi_plus_multiple=request.nmi_plus,
            distributed=distributed,
            **options,
        )
    else:
        results = {
            level: LevelResult(len(numbers), len(names[level]), None, None, None, None)
            for level, numbers in labels.items()
        }
    for level in paired & labels.keys():  # by class there is nothing to tell
        for way in WAYS if level in both_ways else (level,):
            if way in results:
                results[way] = _of_pairs(results[way])
                record.units[way] = "group"
    for level, result in results.items():
        if level in WAYS or level in paired:
            continue
        classes, retrieval = np.array(names[level]), approximated.get(level, result.retrieval)
        if level in rules:  # whose results name the tags, unless the search is approximate
            if level in approximated:
                count = num_classes(relations[level])
                result = replace(result, classes=count, measure_labels=lambda _: {})
            results[level] = replace(result, retrieval=retrieval)
            continue
        if retrieval is not None:
            retrieval = replace(retrieval, labels=classes[retrieval.labels])
            if gallery is not None or sets.cameras:
                cameras = "leave out --cameras" if request.cameras else "correct or remove its column camera"
                there = classes[np.unique(gallery_labels.get(level, labels[level]))].tolist()
                causes = unanswerable(level, retrieval, cameras, there, unlike_forms(sets, level))
                if causes and not retrieval.counted.any():
                    raise ValueError(f"--without-positive drop leaves out every query: {causes[0]}")
                record.warnings += causes
        results[level] = replace(result, retrieval=retrieval, labels=classes[np.unique(labels[level])])
    record.evaluation = {level: result.as_json() for level, result in results.items()}
    if any(result.mean() for result in results.values()):
        record.macro = {level: result.mean("macro") for level, result in results.items()}
        if intervals:
            record.intervals, record.macro_intervals = (
                {level: intervals_json(result.intervals(average)) for level, result in results.items()}
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
        record.rejection = _rejection_record(rejected)
    record.seconds = round(time.perf_counter() - began, 3)
    return Evaluation(
        record=record,
        levels=results,
        names={level: np.array(names[level])[numbers] for level, numbers in labels.items() if level in results},
        rejected=rejected,
        tags=[*rules],
        gains=gains,
    )


def _check_options(
    request: EvaluateOptions, sets: QueriesAndGallery, rules: Mapping[str, Relation], both_ways: Collection[str]
) -> None:
    """ValueError if an option needs classes, and the items have tags or pairs."""
    if request.folds and rules:
        level, rule = next(iter(rules.items()))
        what = "pairs" if isinstance(rule, JudgedPairs) else "tags"
        raise ValueError(
            f"--folds divides classes: the items of {sets.name} have {what} at level {level}; leave it out, or name a "
            "level of classes with --labels."
        )
    if request.per_class is not None and rules and all(isinstance(rule, JudgedPairs) for rule in rules.values()):
        raise ValueError(f"--per-class is by class or tag: the pairs of {sets.name} have none; leave it out.")
    if request.sample and sets.rerank:
        raise ValueError(
            f"--sample takes some items as queries: --postprocess {sets.rerank} ranks for all items; leave one of them "
            "out."
        )
    approximate = (
        ("--approximate", request.approximate),
        ("--rescore", sets.approximate),
        (f"--postprocess {sets.rerank}", sets.rerank),
    )
    for option, value in (("--sample", request.sample), *approximate):
        if value and both_ways:
            raise ValueError(f"{option} is for items of one side: the pairs of {sets.name} have two; leave it out.")


def _measured(
    embeddings: np.ndarray, relations: Mapping[str, np.ndarray | Relation], **options: Any
) -> dict[str, LevelResult]:
    """Measures of each level; of pairs of a single set from either side, as in `retrieve_both_ways`.

    Contents of pairs that nothing belongs to are retrieved, but are no queries, unless no content of their side is one.
    """
    pooled = {
        level: relation
        for level, relation in relations.items()
        if isinstance(relation, JudgedPairs) and "gallery" not in options
    }
    others = {level: relation for level, relation in relations.items() if level not in pooled}
    results = evaluate(embeddings, others, **options) if others else {}
    for level, relation in pooled.items():
        left = (relation.items < relation.first_of_right).numpy()
        paired = np.isin(np.arange(len(left)), relation.with_positives().numpy())
        for way, rows in zip(WAYS, (left, ~left), strict=True):
            queries = rows & paired if (rows & paired).any() else rows
            sampled = {**options, "sample": np.flatnonzero(queries)}
            results[way] = evaluate(embeddings, {level: relation}, **sampled)[level]
    return results


def _of_pairs(result: LevelResult) -> LevelResult:
    """The measures of pairs, with the number of groups that its queries are of."""
    retrieval = result.retrieval
    groups = result.classes if retrieval is None else len(np.unique(retrieval.classes))
    items = result.items if retrieval is None else len(retrieval.classes)
    return replace(result, items=items, classes=groups, labels=np.empty(0, np.str_), measure_labels=None)


def _takes_every_positive(
    rows: np.ndarray, labels: Mapping[str, np.ndarray], gallery_labels: Mapping[str, np.ndarray]
) -> bool:
    """True if queries without the gallery items at `rows (Q,)`, -1 for none, have no positive at any level."""
    for level, numbers in labels.items():
        others = gallery_labels[level]
        counts = np.bincount(others, minlength=1 + numbers.max())[numbers]
        if (counts > ((rows >= 0) & (others[rows] == numbers))).any():
            return False
    return True


def _reject(sets: QueriesAndGallery, known: Vectors, labels: np.ndarray, names: Sequence[str]) -> Rejection:
    """The rejection of queries out of scope by their distance to the known items."""
    queries, rejected = sets.queries, sets.rejected
    assert rejected is not None
    of_queries, of_rejected = (self_rows(vectors, known, by_id=sets.by_id) for vectors in (queries, rejected))
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


def _rejection_record(measured: Rejection) -> RejectionRecord:
    record = RejectionRecord(
        auroc=measured.auroc,
        fpr_at_95_tpr=measured.fpr_at_95_tpr,
        in_scope=measured.in_scope,
        out_of_scope=measured.out_of_scope,
        macro={"auroc": measured.macro},
    )
    record.intervals, record.macro_intervals = (intervals_json(measured.intervals(average)) for average in AVERAGES)
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


def compare(evaluations: Sequence[Evaluation]) -> Differences:
    """Level -> measure -> for each embedding after the first, its mean less that of the first, with intervals.

    Items vary alike for both ("paired"), so what they find equally hard cancels; `evaluate_files` has checked that all
    embeddings are of the same items.
    """
    first = evaluations[0]
    differences: Differences = {}
    for other in evaluations[1:]:
        names = {"of": other.record.embeddings, "less": first.record.embeddings}
        for level in first.levels.keys() & other.levels.keys():
            rows = differences.setdefault(level, {})
            compared = other.levels[level].differences(first.levels[level])
            for name in first.levels[level].mean():
                if name in compared:
                    queries, classes = (compared[name][over] for over in OVERS)
                    row = DifferenceRecord(
                        **names,
                        difference=finite(queries.value),
                        queries=interval_json(queries.interval),
                        classes=interval_json(classes.interval),
                    )
                    now, before = other.levels[level].retrieval, first.levels[level].retrieval
                    if other.record.postprocessing and now is not None and before is not None:
                        judge_gain(row, name, now, before, level=level, variance=other.gains.get(level))
                    rows.setdefault(name, []).append(row)
    return {level: differences[level] for level in first.levels if differences.get(level)}


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
