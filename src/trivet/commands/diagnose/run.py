"""`trivet diagnose`: are embeddings any good, did they collapse, how and why; and the contents of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.collapse import THRESHOLDS, Diagnosis, SamplingStrategy, diagnose, singular_values
from trivet.collapse.distances import pair_distances
from trivet.collapse.measures import ClassMeasures
from trivet.commands.diagnose.encoders import EmbeddingReader
from trivet.commands.diagnose.inputs import DiagnosisInput, read_inputs, unpaired
from trivet.commands.diagnose.options import DiagnoseOptions
from trivet.commands.displayed_items import nearest_of_each
from trivet.io.embedding_table import class_numbers
from trivet.metrics.points import as_points, spans
from trivet.mining import Classes, Relation
from trivet.mining.relations import TwoSided
from trivet.reports.diagnosis_record import (
    ClassTable,
    DiagnosisSection,
    DiagnosisSummary,
    Histograms,
    SectionScatter,
    Spectrum,
    ThresholdRecord,
)
from trivet.reports.history_record import HistoryRecord
from trivet.reports.run_record import RunRecord
from trivet.reports.shared_records import PlaneMap, QueryRecord
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import steps
from trivet.runtime.text import counted
from trivet.training.class_sample import class_sample
from trivet.training.run_folder import RunFolder

DRAWN = 2000  # items whose distances, and whose nearest positives and negatives, a page shows
ENTRIES = 2**22  # of a block of queries that are compared with all items: 32 MiB, and a few copies of it
BINS = 60
LONGEST = 0.999  # quantile of the distances at which the last bin ends; what is longer counts there
SINGULAR_VALUES, CLASSES, QUERIES, NEIGHBOURS = 64, 5000, 6, 6  # at most so many are shown
MAP_POINTS = 1000
NAMED = 5  # classes that lost, in a note


OF_CLASSES = ("of the same class", "of another class", "of other classes")
RELATED = ("that belongs to it", "that does not", "that do not belong to it")


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """An embedding with its diagnosis, and what the command prints of that."""

    subject: DiagnosisInput
    diagnosis: Diagnosis
    summary: DiagnosisSummary
    seed: int = 0

    def section(self, *, map_points: int = MAP_POINTS) -> DiagnosisSection:
        """All contents of a page.

        Args:
            map_points: items in the map; without any it is None.
        """
        return _section(self.summary, self.subject, self.diagnosis, seed=self.seed, map_points=map_points)


def diagnose_paths(request: DiagnoseOptions) -> tuple[list[Diagnosed], list[str], HistoryRecord | None]:
    """Diagnose files and runs.

    Returns:
        The diagnosis of each embedding, warnings where they cannot be compared, and the training of a single run.
    """
    paths = request.embeddings
    read = EmbeddingReader(request, paths[0])
    if request.left_vectors:
        paths = read.of_sides(request.left_vectors, request.right_vectors or ())
    inputs = [(path, subject) for path in paths for subject in read_inputs(path, request, read)]
    warnings = unpaired([subject for _, subject in inputs])
    results = []
    for path, subject in steps(inputs, "diagnosis"):
        diagnosed = diagnose_input(subject, seed=request.seed)
        if request.is_run(path):
            _name_causes(diagnosed.summary, RunFolder(path).record())
        results.append(diagnosed)
    run = RunFolder(paths[0]).record() if len(paths) == 1 and request.is_run(paths[0]) else None
    return results, warnings, None if run is None else run.history


def diagnose_input(subject: DiagnosisInput, *, seed: int = 0) -> Diagnosed:
    """The verdicts, measures and notes of an embedding."""
    relation, classes, names = _relation_of(subject)
    unit = "class" if subject.relation is None else "group" if isinstance(relation, TwoSided) else "tag"
    levels = finer_levels(subject.labels, subject.level) if subject.fine is None else subject.fine
    strategy, notes = _usable(subject.strategy, classes), subject.notes
    if strategy is None and subject.strategy is not None:
        notes += ("The sampling strategy was not tried: a batch needs two classes of two items.",)
    diagnosis = diagnose(
        subject.embeddings,
        relation,
        reference=subject.references,
        strategy=strategy,
        fine={level: class_numbers(subject.labels[level])[0][0] for level in levels},
        level=subject.level,
        distance=subject.distance,
        trained_levels=subject.trained_levels,
        trained_items=subject.trained_items,
        seed=seed,
    )
    result = DiagnosisSummary(
        **diagnosis.as_json(),
        name=subject.name,
        split=subject.split,
        level=subject.level,
        distance=subject.distance,
        items=len(classes),
        dimension=int(subject.embeddings.shape[1]),
        num_classes=diagnosis.measures.classes if unit == "tag" else len(names),
        unit=unit,
        reference=", ".join(subject.references) or None,
    )
    result.notes += [*_lost(diagnosis, names), *notes]
    return Diagnosed(subject, diagnosis, result, seed)


def _lost(diagnosis: Diagnosis, names: Sequence[str]) -> list[str]:
    """The classes that lost most, by name."""
    lost = sorted(diagnosis.measures.lost, key=lambda entry: entry.recall - entry.reference_recall)
    if not lost:
        return []
    most = ", ".join(
        f"{names[entry.number]} ({100 * entry.reference_recall:.1f} to {100 * entry.recall:.1f} %)"
        for entry in lost[:NAMED]
    )
    which = "" if len(lost) <= NAMED else ", most of all"
    return [f"{counted(len(lost), 'class')} lost 20 points of recall@1 or more{which}: {most}."]


def _name_causes(result: DiagnosisSummary, record: RunRecord | None) -> None:
    """Give the verdict on the result the cause that was found when the run was evaluated, see
    `commands.diagnose.causes`."""
    known = None if record is None else record.diagnosis.get(result.split or "")
    if known is None or (known.level, known.reference) != (result.level, result.reference):
        return
    causes = {verdict.kind: verdict for verdict in known.verdicts}
    for verdict in result.verdicts:
        if verdict.kind == "worse-than-reference" and verdict.kind in causes:
            verdict.cause, verdict.changes = causes[verdict.kind].cause, causes[verdict.kind].changes


def _section(
    result: DiagnosisSummary, subject: DiagnosisInput, diagnosis: Diagnosis, *, seed: int, map_points: int
) -> DiagnosisSection:
    relation, classes, names = _relation_of(subject)
    points = as_points(subject.embeddings, distance=subject.distance)
    before = next(iter(subject.references.values()), None)
    reference = None if before is None else as_points(before, distance=subject.distance)
    drawn = class_sample(classes, DRAWN, least=8, seed=seed)
    near = _nearest(subject.embeddings, relation, drawn)
    return DiagnosisSection(
        **dict(result),
        thresholds=[ThresholdRecord(name=name, **asdict(threshold)) for name, threshold in THRESHOLDS.items()],
        histograms=_histograms(points, reference, relation, drawn),
        spectrum=Spectrum(values=_spectrum(points), reference=None if reference is None else _spectrum(reference)),
        classes=None if diagnosis.measures.per_class is None else _class_table(diagnosis.measures.per_class, names),
        scatter=_scatter(subject, near),
        map=_map(subject, map_points, seed) if map_points else None,
        queries=_queries(subject, near, classes, names, seed),
    )


def _relation_of(subject: DiagnosisInput) -> tuple[Relation, Integers, Sequence[str]]:
    """The relation of the items at the level that is diagnosed, their class numbers `(N,)`, and the class names."""
    (classes,), names = class_numbers(subject.labels[subject.level])
    relation = Classes(torch.from_numpy(classes)) if subject.relation is None else subject.relation
    return relation, classes, names


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


def _usable(strategy: SamplingStrategy | None, classes: Integers) -> SamplingStrategy | None:
    """The strategy, if the items give it a batch."""
    return strategy if int((np.bincount(classes) > 1).sum()) > 1 else None


@dataclass(frozen=True, eq=False)
class _Near:
    """Nearest positives and negatives of some items; fields `(Q,)`.

    Attributes:
        rows: their positions; each has a positive and a negative.
        s_ap, s_an: cosine similarity to the nearest positive and to the nearest negative.
        nearer: items of other classes that are nearer than the nearest positive.
        negatives: positions of the nearest negatives.
    """

    rows: Integers
    s_ap: Floats
    s_an: Floats
    nearer: Integers
    negatives: Integers


def _nearest(embeddings: npt.NDArray[Any], relation: Relation, rows: npt.NDArray[Any]) -> _Near:
    """Like `trivet.metrics.nearest_pairs`, for some of the items only, and with ranks."""
    points = as_points(embeddings, distance="cosine")
    points = points - points.mean(dim=0)  # a narrow cone keeps more digits
    squares = points.square().sum(dim=1)
    items, queries = relation.items, torch.from_numpy(np.asarray(rows, np.int64))
    nearest, negative = torch.empty(3, len(queries), dtype=torch.float64), torch.empty_like(queries)
    for start, stop in spans(len(queries), max(1, ENTRIES // len(points))):
        block = queries[start:stop]
        squared = torch.addmm(squares, points[block], points.T, alpha=-2).add_(squares[block, None])
        positives, neutral = relation.compared(items[block], items)
        negatives = squared.masked_fill(neutral, torch.inf)
        squared[torch.arange(len(block)), block] = torch.inf
        positive = squared.masked_fill_(~positives, torch.inf).amin(dim=1)
        negatives[torch.arange(len(block)), block] = torch.inf  # also of an item without tags
        nearest[0, start:stop] = positive
        nearest[1, start:stop], negative[start:stop] = negatives.min(dim=1)
        nearest[2, start:stop] = (negatives < positive[:, None]).sum(dim=1)
    usable = nearest[:2].isfinite().all(dim=0).numpy()
    # Between unit rows D = 2 - 2 S.
    s_ap, s_an = (1 - nearest[:2] / 2).clamp(-1, 1).numpy()
    nearer = nearest[2].long().numpy()
    return _Near(queries.numpy()[usable], s_ap[usable], s_an[usable], nearer[usable], negative.numpy()[usable])


def _scatter(subject: DiagnosisInput, near: _Near) -> SectionScatter:
    labels = subject.labels[subject.level]
    return SectionScatter(
        s_ap=np.round(near.s_ap, 5).tolist(),
        s_an=np.round(near.s_an, 5).tolist(),
        ids=[subject.ids[row] for row in near.rows.tolist()],
        labels=labels[near.rows].tolist(),
    )


def _histograms(points: Tensor, reference: Tensor | None, relation: Relation, rows: npt.NDArray[Any]) -> Histograms:
    """Shares of the distances of positives and of negatives, each over the mean of its own embedding."""
    pairs_of = np.triu_indices(len(rows), 1)
    items = relation.items[torch.from_numpy(np.asarray(rows, np.int64))]
    positives, neutral = (mask.numpy()[pairs_of] for mask in relation.compared(items, items))

    def scaled(embedding: Tensor) -> Floats:
        distances_of: Floats = pair_distances(embedding[torch.from_numpy(rows)]).numpy()
        return distances_of / (float(distances_of.mean()) or 1.0)

    distances = [scaled(points)] + ([] if reference is None else [scaled(reference)])
    top = max(float(np.quantile(distances_of, LONGEST)) for distances_of in distances)
    edges = np.linspace(0, top or 1.0, BINS + 1)

    def shares(distances_of: Floats) -> list[float]:
        counts = np.histogram(np.minimum(distances_of, edges[-1]), edges)[0]
        return [round(share, 6) for share in (counts / max(1, len(distances_of))).tolist()]

    sides = {"within": positives, "between": ~neutral}
    current = {side: shares(distances[0][pairs]) for side, pairs in sides.items()}
    before = {
        f"reference_{side}": shares(distances[1][pairs]) if distances[1:] else None for side, pairs in sides.items()
    }
    return Histograms(edges=[round(float(edge), 5) for edge in edges], **current, **before)


def _spectrum(points: Tensor) -> list[float]:
    values = singular_values(points)
    return [round(value, 8) for value in (values[:SINGULAR_VALUES] / (values.sum() or 1.0)).tolist()]


def _class_table(measured: ClassMeasures, names: Sequence[str]) -> ClassTable:
    """The table of classes; of too many, the largest."""
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
    largest = np.sort(np.argsort(-measured.items, kind="stable")[:CLASSES]).tolist()
    return ClassTable(columns=list(columns), rows=[[column[c] for column in columns.values()] for c in largest])


def _map(subject: DiagnosisInput, most: int, seed: int) -> PlaneMap:
    (finest,), _ = class_numbers(max(subject.labels.values(), key=lambda names: len(class_numbers(names)[1])))
    return subject.plane_map(subject.embeddings, class_sample(finest, most, least=20, seed=seed), seed=seed)


def _queries(
    subject: DiagnosisInput, near: _Near, classes: Integers, names: Sequence[str], seed: int
) -> dict[str, list[QueryRecord]]:
    """An item of each of the most confused pairs of classes, random items, and those whose nearest positive is last."""
    related = subject.relation is not None
    why = partial(_why, near, RELATED if related else OF_CLASSES)
    margin, of_rows = near.s_ap - near.s_an, classes[near.rows]
    random = np.random.default_rng(seed).permutation(len(margin))
    chosen = {
        "confused": [] if related else _confusions(near, of_rows, classes[near.negatives], names),
        "random": [(i, why(i)) for i in _of_different_classes(random, of_rows)],
        "worst": [(i, why(i)) for i in _of_different_classes(np.lexsort((margin, -near.nearer)), of_rows)],
    }
    by_kind: dict[str, list[QueryRecord]] = {}
    for kind, several in chosen.items():
        rows = [int(near.rows[position]) for position, _ in several]
        by_kind[kind] = [
            QueryRecord(**dict(subject.record(row)), why=text, neighbours=subject.neighbours(nearest))
            for (_, text), row, nearest in zip(
                several, rows, nearest_of_each(subject.embeddings, rows, NEIGHBOURS), strict=True
            )
        ]
    return by_kind


def _confusions(near: _Near, classes: Integers, others: Integers, names: Sequence[str]) -> list[tuple[int, str]]:
    """The farthest from right of the items of each of the most confused pairs of classes, and a sentence on the pair.

    Args:
        classes, others: `(Q,)` of the items, and of their nearest negatives.
    """
    wrong = np.flatnonzero(near.nearer)
    wrong = wrong[np.argsort((near.s_ap - near.s_an)[wrong], kind="stable")]
    pairs, first, counts = np.unique(
        np.sort(np.stack([classes, others], axis=1)[wrong], axis=1), axis=0, return_index=True, return_counts=True
    )
    chosen = []
    for pair in np.argsort(-counts, kind="stable")[:QUERIES].tolist():
        total = int(np.isin(classes, pairs[pair]).sum())
        left, right = (names[number] for number in pairs[pair].tolist())
        why = f"{left} and {right}: {counts[pair]} of {counted(total, 'item')} have one of the other class as nearest."
        chosen.append((int(wrong[first[pair]]), why))
    return chosen


def _of_different_classes(order: Integers, classes: Integers) -> list[int]:
    """The first items in an order, but of each class its first before the second of any."""
    turns, counts = [], np.zeros(1 + int(classes.max(initial=0)), int)
    for number in classes[order].tolist():
        turns.append(counts[number])
        counts[number] += 1
    several: list[int] = order[np.argsort(turns, kind="stable")[:QUERIES]].tolist()
    return several


def _why(near: _Near, words: Sequence[str], position: int) -> str:
    """A sentence on how near an item is to its positives and to its negatives.

    Args:
        words: what an item does that is a positive, one that is a negative, and several of these.
    """
    positive, negative, negatives = words
    count = int(near.nearer[position])
    similar = f"similarity {near.s_ap[position]:.3f}, against {near.s_an[position]:.3f} for the nearest {negative}"
    if not count:
        return f"The nearest item is one {positive}: {similar}."
    items = f"1 item {negative} is" if count == 1 else f"{count} items {negatives} are"
    return f"{items} closer than the nearest {positive}: {similar}."


def _short(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None
