"""`trivet audit`: which labels are probably wrong and what they should be; writes its files and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trivet.commands.audit.audited import Audited
from trivet.commands.audit.items import Items, read_items
from trivet.commands.audit.options import AuditOptions
from trivet.commands.audit.pairs import audit_pairs, settings_of_pairs
from trivet.commands.audit.record import (
    AuditRecord,
    DuplicateCounts,
    NoiseRate,
    Suspect,
    Transition,
)
from trivet.commands.audit.result import AuditResult
from trivet.commands.audit.tags import audit_tags
from trivet.commands.printing import command_line
from trivet.io.atomic_files import write_atomic
from trivet.io.beir import is_beir
from trivet.io.csv_files import csv_text
from trivet.io.embedding_table import class_numbers
from trivet.io.label_decisions import ADD, write_decisions
from trivet.io.overwrite_guard import (
    DECISION_FILE,
    PAIR_SUSPECTS,
    SUSPECTS,
    TAG_SUSPECTS,
    Output,
    check_outputs,
    is_run_folder,
    page,
    table,
)
from trivet.io.tag_cells import SINGLE
from trivet.label_noise import Duplicates, NoiseEstimate, Suspects, find_duplicates, find_outliers, find_suspects
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.record import Number
from trivet.runtime.text import counted, typed
from trivet.training.run_folder import RunFolder

PAIR = 2  # items that each class keeps: with one, nothing of it could be trained on
MOST_CLASSES = 50  # of a transition matrix that is told entry by entry
FURTHER = (
    "probability_not_separable",
    "probability_proposed",
    "neighbour_label",
    "neighbour_count",
    "duplicate",
    "duplicate_of",
    "duplicate_label",
    "outlier",
    "text",
)
JUDGED = (
    "proposed_label",
    "probability_wrong",
    "probability_not_separable",
    "probability_proposed",
    "evidence",
    "neighbour_label",
    "neighbour_count",
    "neighbour_agreement",
    "positive_margin",
    "mode_share",
)  # columns that are empty where nothing can be judged


@dataclass(frozen=True, eq=False)
class Judgement:
    """Judgement of N items.

    Attributes:
        suspects: which labels are probably wrong; `proposed` indexes the class names of `class_numbers`.
        duplicates: which items are there twice.
        outliers: `(N,)` which are far from all others.
    """

    suspects: Suspects
    duplicates: Duplicates
    outliers: Booleans


def audit_path(request: AuditOptions) -> AuditResult:
    """Audit the labels of a file of embeddings or texts, or of the training items of a run; write the requested files.

    `out` has the columns `id,label,proposed_label,probability_wrong,evidence`, then those of `FURTHER`. `decisions` has
    the label that `Suspect.offered` gives, and is not written if nothing can be judged. Where no label must be wrong,
    `relabel_above` is refused, and all decisions are left empty. Of tags see `audit_tags`, of pairs `audit_pairs`.
    """
    relabel_above, drop_above, decisions = request.relabel_above, request.drop_above, request.decisions
    for option, above in (("--relabel-above", relabel_above), ("--drop-above", drop_above)):
        if above is not None and decisions is None:
            raise ValueError(f"{option} fills in a decision file: name one with --decisions FILE.")
        if above is not None and not 0 <= above <= 1:
            raise ValueError(f"{option} must be a probability from 0 to 1: got {above}.")
    pairs = settings_of_pairs(request)
    columns = PAIR_SUSPECTS if pairs is not None else TAG_SUSPECTS if _tagged(request) else SUSPECTS
    options = (
        ("--out", request.out, table(*columns, exact=False)),
        ("--decisions", decisions, table(*DECISION_FILE)),
        ("--report", request.report, page("audit")),
    )
    check_outputs(
        [Output(option, file, kind, request.force) for option, file, kind in options if file is not None],
        [request.embeddings, *(() if pairs is None else filter(None, (pairs.left_vectors, pairs.right_vectors)))],
    )
    audited = audit_items(request, read_items(request)) if pairs is None else audit_pairs(request, pairs)
    record, suspects = audited.record, audited.suspects
    if record.refused:
        relabel_above, drop_above = None, None
    if request.out is not None:
        write_atomic(request.out, csv_text([audited.columns, *audited.rows]).encode())
        record.out = str(request.out)
    if decisions is not None and suspects:
        decided = _decided(suspects, record.verdict, relabel_above, drop_above, audited.retained)
        write_atomic(decisions, write_decisions(decided).encode())
        if drop_above is not None:
            record.notes.append(_left_out(record, decided, drop_above))
        record.decisions = str(decisions)
    elif decisions is not None:
        record.notes.append(f"No decision file was written to {decisions}, as no label is suspected.")
    of_run = pairs is None and is_run_folder(request.embeddings)
    apply = None if pairs is not None and is_beir(pairs.path) else _apply_options(request, record)
    result = AuditResult(audited, of_run=of_run, apply=apply, top=request.top, command=command_line())
    if request.report is not None:
        result.write_page(request.report)
        record.report = str(request.report)
    return result


def audit_items(request: AuditOptions, items: Items) -> Audited:
    """Audit classes or tags."""
    return audit_tags(request, items) if items.tagged else audit_classes(request, items)


def _tagged(request: AuditOptions) -> bool:
    """Test whether labels may be sets of tags: as the options say, or the settings of a run."""
    separator = None if request.tags is None else request.tags.separator
    if is_run_folder(request.embeddings):
        separator = getattr(RunFolder.open(request.embeddings).config().data, "separator", None)
    return separator not in (None, SINGLE)


def _apply_options(request: AuditOptions, record: AuditRecord) -> str:
    """The options that `--apply` needs beside the files, for the page."""
    if record.pairs is not None:
        sides = request.sides
        named = () if sides is None else (("--left", sides.left), ("--right", sides.right))
        return " --pairs" + "".join(f" {option} {typed(value)}" for option, value in named if value is not None)
    level = "" if request.level is None else f" --labels {typed(request.level)}"
    return level + (f" --separator {typed(request.separator)}" if record.tags is not None and request.separator else "")


def audit_classes(request: AuditOptions, items: Items) -> Audited:
    """Audit classes: all items are suspects, unless the embedding hardly knows the labels."""
    judgement = judge(items, neighbours=request.neighbours, seed=request.seed)
    (classes,), names = class_numbers(items.labels)
    judged, noise, record = judgement.suspects, judgement.suspects.noise, summary(items, judgement)
    if (refused := _refused(noise, request.relabel_above, request.drop_above)) is not None:
        record.refused = refused
    columns, evidence = SUSPECTS + FURTHER, _evidence(judged, classes, names)
    rows = record.suspects if noise.verdict != "uninformative" else _rows(items, judgement)
    return Audited(
        items=items,
        record=record,
        suspects=record.suspects,
        positions=judged.order,
        reasons=lambda suspect: evidence(int(judged.order[suspect])),
        near=lambda rows: (judged.neighbours[rows], judged.neighbour_distances[rows]),
        columns=columns,
        rows=([_cell(getattr(row, name)) for name in columns] for row in rows),
        retained=PAIR,
    )


def _refused(noise: NoiseEstimate, relabel_above: float | None, drop_above: float | None) -> str | None:
    """The reason why requested decisions are not filled in; None if they are."""
    if relabel_above is not None and not noise.accuses:
        instead = ", or leave out the doubtful by --drop-above alone" if noise.verdict == "cannot-tell" else ""
        return (
            f"--relabel-above needs labels that must be wrong, or it would spoil right ones: {noise.reason} No "
            f"decision was filled in; decide on each item yourself{instead}."
        )
    if drop_above is not None and noise.verdict == "uninformative":
        return f"--drop-above needs an embedding that knows the labels: {noise.reason} No decision was filled in."
    return None


def judge(items: Items, *, neighbours: int | None = None, seed: int = 0) -> Judgement:
    """Results of `trivet.label_noise.find_suspects`, `find_duplicates` and `find_outliers`."""
    (classes,), _ = class_numbers(items.labels)
    suspects = find_suspects(
        items.embeddings, classes, neighbours=neighbours, folds=items.fold, seed=seed, distance=items.distance
    )
    near, distances = suspects.neighbours, suspects.neighbour_distances
    return Judgement(
        suspects,
        find_duplicates(near, distances, classes, content=items.content, folds=items.fold),
        find_outliers(near, distances, folds=items.fold),
    )


def summary(items: Items, judgement: Judgement) -> AuditRecord:
    """The result of `audit_path` without the names of files."""
    _, names = class_numbers(items.labels)
    suspects, noise, duplicates = judgement.suspects, judgement.suspects.noise, judgement.duplicates
    informative, estimated = noise.verdict != "uninformative", noise.verdict == "estimated"
    transition = None
    if estimated and len(names) <= MOST_CLASSES and noise.transition is not None:
        matrices = {"matrix": noise.transition, "low": noise.transition_low, "high": noise.transition_high}
        entries = {name: _entries(rows) for name, rows in matrices.items() if rows is not None}
        transition = Transition(classes=list(names), **entries)
    return AuditRecord(
        noise_rate=NoiseRate(
            verdict=noise.verdict,
            estimate=noise.rate if estimated else None,
            interval=list(noise.interval) if informative and noise.interval is not None else None,
            reason=noise.reason,
        ),
        suspects=_rows(items, judgement) if informative else [],
        above_half=int((_first_probability(suspects) > 0.5).sum()) if informative else None,
        called_wrong=int((suspects.probability_wrong > 0.5).sum()) if informative else None,
        expected_wrong=round(float(suspects.probability_wrong.sum()), 1) if informative else None,
        duplicates=DuplicateCounts(
            exact=int(duplicates.exact.sum()),
            near=int(duplicates.near.sum()),
            other_label=int(duplicates.other_label.sum()),
        ),
        outliers=int(judgement.outliers.sum()),
        name=items.name,
        split=items.split,
        level=items.level,
        items=len(items.labels),
        classes=len(names),
        distance=items.distance,
        folds=0 if items.fold is None else int(items.fold.max()) + 1,
        neighbours=suspects.neighbours.shape[1],
        method=noise.method,
        transition=transition,
        notes=[*items.notes, *_doubts(items, informative=informative)],
    )


def _entries(matrix: Floats) -> list[list[Number | None]]:
    return [[_short(entry) for entry in row] for row in matrix]


def _doubts(items: Items, *, informative: bool) -> list[str]:
    """Notes on classes with few items."""
    names, sizes = np.unique(items.labels, return_counts=True)
    lone = names[sizes == 1].tolist()
    notes = []
    if items.doubt:
        notes.append(f"{items.doubt}: the estimate may be too high." if informative else f"{items.doubt}.")
    if informative and lone:
        notes.append(
            f"The class {lone[0]} has a single item, and no other tells whether its label is right."
            if len(lone) == 1
            else f"{len(lone)} classes have a single item, and no other tells whether its label is right; the first is "
            f"{lone[0]}."
        )
    return notes


def _rows(items: Items, judgement: Judgement) -> list[Suspect]:
    """A row for each item, most suspect first; in the order of the file and without judgement if the verdict is
    "uninformative".
    """
    (classes,), names = class_numbers(items.labels)
    suspects, duplicates = judgement.suspects, judgement.duplicates
    informative = suspects.noise.verdict != "uninformative"
    evidence = _evidence(suspects, classes, names)
    neighbour_classes, counts = _most_neighbours(classes[suspects.neighbours])
    rows = []
    for i in suspects.order.tolist() if informative else range(len(classes)):
        twin = int(duplicates.twin[i])
        row = Suspect(
            id=items.ids[i],
            label=names[classes[i]],
            proposed_label=names[suspects.proposed[i]],
            probability_wrong=_short(suspects.probability_wrong[i]),
            probability_not_separable=_short(suspects.probability_not_separable[i]),
            probability_proposed=_short(suspects.probability_proposed[i]),
            evidence="; ".join(evidence(i)),
            neighbour_label=names[neighbour_classes[i]],
            neighbour_count=int(counts[i]),
            neighbour_agreement=_short(suspects.neighbour_agreement[i]),
            positive_margin=_short(suspects.positive_margin[i]),
            mode_share=_short(suspects.mode_share[i]),
            duplicate="exact" if duplicates.exact[i] else "near" if duplicates.near[i] else None,
            duplicate_of=items.ids[twin] if twin >= 0 else None,
            duplicate_label=None if twin < 0 else "other" if duplicates.other_label[i] else "same",
            outlier=bool(judgement.outliers[i]),
            text=None if items.texts is None else items.texts[i],
        )
        rows.append(row if informative else row.model_copy(update=dict.fromkeys(JUDGED)))
    return rows


def _first_probability(suspects: Suspects) -> Floats:
    """The probability that is told first: wrong, or where that cannot be told apart, wrong or not separable."""
    return suspects.probability_wrong if suspects.noise.verdict == "estimated" else suspects.probability_not_separable


def _most_neighbours(neighbour_classes: Integers) -> tuple[Integers, Integers]:
    """The most frequent of the classes `(N, k)` of neighbours, and how many have it; of equals that of the nearest."""
    most = [Counter(row).most_common(1)[0] for row in neighbour_classes.tolist()]
    return np.array([label for label, _ in most], np.int64), np.array([count for _, count in most], np.int64)


def _evidence(judged: Suspects, classes: Integers, names: Sequence[str]) -> Callable[[int], list[str]]:
    """Position of an item -> what speaks for its label and against it."""
    neighbour_classes = classes[judged.neighbours]  # (N, k)

    def words(i: int) -> list[str]:
        counts = Counter(neighbour_classes[i].tolist())
        same_class = counts.pop(int(classes[i]), 0)
        near = (
            f"{same_class} of {neighbour_classes.shape[1]} neighbours {'has' if same_class == 1 else 'have'} its label"
        )
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


def _cell(value: Any) -> Any:
    """A field of a csv file, empty for None and False."""
    return "" if value is None or value is False else "yes" if value is True else value


def _decided(
    suspects: Sequence[Suspect], verdict: str, relabel_above: float | None, drop_above: float | None, least: int
) -> list[tuple[str, str, str]]:
    """Rows (id, decision, label) in the order of the suspects: relabel or add, or else drop, or else keep; "" without.

    Args:
        least: items of each label that are not dropped.
    """
    filled = relabel_above is not None or drop_above is not None
    retained: Counter[str] = Counter()

    def decision(suspect: Suspect) -> str:
        label = suspect.label
        right, doubtful = suspect.probability_proposed or 0.0, suspect.probability_not_separable or 0.0
        if relabel_above is not None and right > relabel_above and suspect.proposed_label != label:
            return ADD if suspect.missing else "relabel"
        if suspect.missing:
            return ""
        if drop_above is not None and doubtful > drop_above and retained[label] >= least:
            return "drop"
        retained[label] += 1
        return "keep" if filled else ""

    # The least doubtful first: these are what each class keeps.
    return [(suspect.id, decision(suspect), suspect.offered(verdict)) for suspect in reversed(suspects)][::-1]


def _left_out(record: AuditRecord, decided: Sequence[tuple[str, str, str]], above: float) -> str:
    count = sum(decision == "drop" for _, decision, _ in decided)
    noun, doubt = "item", "whose labels are wrong, or whose classes overlap there, with a probability"
    if record.pairs is not None:
        noun, doubt = "row", "whose sides do not belong together with a probability"
    total = record.items or 0
    share = f"{count} of {counted(total, noun)} ({100 * count / total:.1f} %)"
    return f"The decision file leaves out {share}, {doubt} above {100 * above:g} %."


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None
