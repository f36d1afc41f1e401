"""`trivet audit`: which labels are probably wrong and what they should be; writes its files and page."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import trivet
from trivet.commands.audit.items import AuditOptions, Items, items_of
from trivet.commands.audit.record import AuditRecord
from trivet.datasets.preview import preview_record
from trivet.io.atomic_files import write_atomic
from trivet.io.csv_files import csv_text
from trivet.io.embedding_table import class_numbers
from trivet.io.label_decisions import write_decisions
from trivet.io.overwrite_guard import DECISION_FILE, SUSPECTS, Output, check_outputs, is_run_folder, page, table
from trivet.label_noise import Duplicates, NoiseEstimate, Suspects, find_duplicates, find_outliers, find_suspects
from trivet.reports.from_json import complete
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.text import counted

PAGE_ITEMS, PAGE_NEIGHBOURS = 10_000, 8  # at most so many are shown
FACES = 12_000_000  # characters of pictures and texts that a page may take
LONGEST = 1000  # characters of a text on a page
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


@dataclass(frozen=True)
class Outputs:
    """The files that an audit writes; None for those that are not asked for.

    Attributes:
        out: a csv file of all items, most suspect first: `id,label,proposed_label,probability_wrong,evidence`, then
            `probability_not_separable,probability_proposed,neighbour_label,neighbour_count`, `duplicate,duplicate_of,
            duplicate_label,outlier,text`.
        decisions: a csv file `id,decision,label` to be filled in, with the label that `offered` gives.
        relabel_above: in it, items whose proposed label is another one and right with a higher probability are to be
            relabelled, and the others kept; None leaves all decisions empty. So does a refusal, where no label must
            be wrong.
        report: a page.
        force: replace files that an earlier audit wrote.
    """

    out: Path | None = None
    decisions: Path | None = None
    relabel_above: float | None = None
    drop_above: float | None = None
    report: Path | None = None
    force: bool = False


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


def audit_path(
    path: Path,
    request: AuditOptions,
    outputs: Outputs,
    *,
    command: str = "",
) -> dict[str, Any]:
    """Audit the labels of a file of embeddings or texts, or of the training items of a run; write what is asked for.

    A run is audited out of fold: see `trivet.commands.audit.items.items_of`.

    Returns:
        {"noise_rate": {"verdict", "estimate", "interval" (95 %), "reason"}, "suspects": [{"id", "label",
        "proposed_label", "probability_wrong", "probability_not_separable",
        "probability_proposed", "evidence", "neighbour_label", "neighbour_count", "neighbour_agreement",
        "positive_margin", "mode_share", "duplicate", "duplicate_of", "duplicate_label", "outlier", "text"}], most
        suspect first, "above_half": how many have a probability above 1/2, of what is told first (wrong, or if that
        cannot be told apart, wrong or not separable), "called_wrong": how many are wrong with such a probability,
        "expected_wrong": the sum of the probabilities to be wrong, "duplicates": {"exact", "near", "other_label"}, how
        many items, "outliers", "name", "split", "level", "items", "classes", "distance", "folds", "neighbours",
        "method", "transition": {"classes", "matrix", "low", "high"}, None for more than 50 classes, "notes"}, and of
        what was written the names, under "out", "decisions" and "report". Numbers that cannot be measured are None. The
        proposed label is the item's own where no other is more probable; the neighbour label is the one that most of
        its neighbours have ("neighbour_count" of them; of equally frequent ones that of the nearest), and is no
        proposal.

        Where `relabel_above` is refused, because it cannot be told that any label is wrong, or `drop_above`, because
        the embeddings are no judge of the labels, "refused" says so.

        Where the embeddings are no judge of the labels (verdict "uninformative"), there are no suspects, no proposed
        labels and no decisions.

    Raises:
        ValueError: if the file, the run or an output cannot be used, or if what is asked does not fit.
        OSError: if an output cannot be written.
    """
    _check_outputs(path, outputs)
    items = items_of(path, request)
    judged = judge(items, neighbours=request.neighbours, seed=request.seed)
    noise = judged.suspects.noise
    result = summary(items, judged)
    informative = noise.verdict != "uninformative"
    refused = _refused(outputs, noise)
    if refused is not None:
        result["refused"] = refused
        outputs = replace(outputs, relabel_above=None, drop_above=None)
    rows = result["suspects"] if informative else _rows(items, judged)
    if outputs.out is not None:
        columns = SUSPECTS + FURTHER
        write_atomic(
            outputs.out, csv_text([columns, *([_cell(row[name]) for name in columns] for row in rows)]).encode()
        )
        result["out"] = str(outputs.out)
    if outputs.decisions is not None and informative:
        decided = _decided(result["suspects"], noise.verdict, outputs.relabel_above, outputs.drop_above)
        write_atomic(outputs.decisions, write_decisions(decided).encode())
        if outputs.drop_above is not None:
            result["notes"].append(_left_out(decided, outputs.drop_above))
        result["decisions"] = str(outputs.decisions)
    elif outputs.decisions is not None:
        result["notes"].append(f"No decision file was written to {outputs.decisions}, as no label is suspected.")
    if outputs.report is not None:
        from trivet.commands.audit.page import write_audit_report  # here: few audits have a report

        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        suspects = _page_items(items, judged, result["suspects"])
        page = {name: value for name, value in result.items() if name != "suspects"} | {
            "of_run": is_run_folder(path),
            "selected": suspects,
            "class_names": class_numbers(items.labels)[1],
            "command": command,
            "created": created,
            "trivet": trivet.__version__,
        }
        write_audit_report(complete(AuditRecord, page), outputs.report)
        result["report"] = str(outputs.report)
    return result


def _check_outputs(path: Path, outputs: Outputs) -> None:
    """Check that writing what is asked for can change nobody's file.

    Raises:
        ValueError: if two outputs are one file, a folder is not there, or a file is and may not be replaced: without
            `force`, or if an audit does not write such files.
    """
    for option, above in (("--relabel-above", outputs.relabel_above), ("--drop-above", outputs.drop_above)):
        if above is None:
            continue
        if outputs.decisions is None:
            raise ValueError(f"{option} fills in a decision file: name one with --decisions FILE.")
        if not 0 <= above <= 1:
            raise ValueError(f"{option} must be a probability from 0 to 1: got {above}.")
    options = (
        ("--out", outputs.out, table(*SUSPECTS, whole=False)),
        ("--decisions", outputs.decisions, table(*DECISION_FILE)),
        ("--report", outputs.report, page("audit")),
    )
    check_outputs(
        [Output(option, file, recognised, outputs.force) for option, file, recognised in options if file is not None],
        [path],
    )


def _refused(outputs: Outputs, noise: NoiseEstimate) -> str | None:
    """The reason why requested decisions are not filled in; None if they are."""
    if outputs.relabel_above is not None and not noise.accuses:
        instead = ", or leave out the doubtful by --drop-above alone" if noise.verdict == "cannot-tell" else ""
        return (
            f"--relabel-above needs labels that must be wrong, or it would spoil right ones: {noise.reason} No "
            f"decision was filled in; decide on each item yourself{instead}."
        )
    if outputs.drop_above is not None and noise.verdict == "uninformative":
        return f"--drop-above needs an embedding that knows the labels: {noise.reason} No decision was filled in."
    return None


def judge(items: Items, *, neighbours: int | None = None, seed: int = 0) -> Judgement:
    """Results of `trivet.label_noise.find_suspects`, `find_duplicates` and `find_outliers`.

    Raises:
        ValueError: as `find_suspects`.
    """
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


def summary(items: Items, judged: Judgement) -> dict[str, Any]:
    """The result of `audit_path` without the names of files."""
    _, names = class_numbers(items.labels)
    suspects, noise, duplicates = judged.suspects, judged.suspects.noise, judged.duplicates
    informative = noise.verdict != "uninformative"
    matrix = None if noise.verdict != "estimated" or len(names) > MOST_CLASSES else noise.transition
    matrices = {"matrix": matrix, "low": noise.transition_low, "high": noise.transition_high}
    return {
        "noise_rate": {
            "verdict": noise.verdict,
            "estimate": noise.rate if noise.verdict == "estimated" else None,
            "interval": list(noise.interval) if informative and noise.interval is not None else None,
            "reason": noise.reason,
        },
        "suspects": _rows(items, judged) if informative else [],
        "above_half": int((_first_probability(suspects) > 0.5).sum()) if informative else None,
        "called_wrong": int((suspects.probability_wrong > 0.5).sum()) if informative else None,
        "expected_wrong": round(float(suspects.probability_wrong.sum()), 1) if informative else None,
        "duplicates": {
            "exact": int(duplicates.exact.sum()),
            "near": int(duplicates.near.sum()),
            "other_label": int(duplicates.other_label.sum()),
        },
        "outliers": int(judged.outliers.sum()),
        "name": items.name,
        "split": items.split,
        "level": items.level,
        "items": len(items.labels),
        "classes": len(names),
        "distance": items.distance,
        "folds": 0 if items.fold is None else int(items.fold.max()) + 1,
        "neighbours": suspects.neighbours.shape[1],
        "method": noise.method,
        "transition": None
        if matrix is None
        else {
            "classes": list(names),
            **{
                name: [[_short(entry) for entry in row] for row in rows]
                for name, rows in matrices.items()
                if rows is not None
            },
        },
        "notes": [*items.notes, *_doubts(items, informative=informative)],
    }


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


def _rows(items: Items, judged: Judgement) -> list[dict[str, Any]]:
    """A row for each item, most suspect first; in the order of the file and without judgement if the verdict is
    "uninformative"."""
    (classes,), names = class_numbers(items.labels)
    suspects, duplicates = judged.suspects, judged.duplicates
    informative = suspects.noise.verdict != "uninformative"
    evidence = _evidence(suspects, classes, names)
    neighbour_classes, counts = _most_neighbours(classes[suspects.neighbours])

    def row(i: int) -> dict[str, Any]:
        twin = int(duplicates.twin[i])
        suspect = {
            "proposed_label": names[suspects.proposed[i]],
            "probability_wrong": round(float(suspects.probability_wrong[i]), 6),
            "probability_not_separable": round(float(suspects.probability_not_separable[i]), 6),
            "probability_proposed": round(float(suspects.probability_proposed[i]), 6),
            "evidence": "; ".join(evidence(i)),
            "neighbour_label": names[neighbour_classes[i]],
            "neighbour_count": int(counts[i]),
            "neighbour_agreement": _short(suspects.neighbour_agreement[i]),
            "positive_margin": _short(suspects.positive_margin[i]),
            "mode_share": _short(suspects.mode_share[i]),
        }
        return {
            "id": items.ids[i],
            "label": names[classes[i]],
            **(suspect if informative else dict.fromkeys(suspect)),
            "duplicate": "exact" if duplicates.exact[i] else "near" if duplicates.near[i] else None,
            "duplicate_of": items.ids[twin] if twin >= 0 else None,
            "duplicate_label": None if twin < 0 else "other" if duplicates.other_label[i] else "same",
            "outlier": bool(judged.outliers[i]),
            "text": None if items.texts is None else items.texts[i],
        }

    return [row(i) for i in (suspects.order.tolist() if informative else range(len(classes)))]


def _first_probability(suspects: Suspects) -> Floats:
    """The probability that is told first: wrong, or where that cannot be told apart, wrong or not separable."""
    return suspects.probability_wrong if suspects.noise.verdict == "estimated" else suspects.probability_not_separable


def _most_neighbours(neighbour_classes: Integers) -> tuple[Integers, Integers]:
    """The most frequent of the classes `(N, k)` of neighbours, and how many have it; of equals that of the nearest."""
    most = [Counter(row).most_common(1)[0] for row in neighbour_classes.tolist()]
    return np.array([label for label, _ in most], np.int64), np.array([count for _, count in most], np.int64)


def offered(suspect: Mapping[str, Any], verdict: str) -> str:
    """The label that a person is offered for an item, and may choose: the proposed one.

    Where it cannot be told which labels are wrong, hardly any other label is proposed; the one that most neighbours
    have then stands in for it, and no probability speaks for it.
    """
    label, proposed = suspect["label"], suspect["proposed_label"]
    return str(suspect["neighbour_label"] if proposed == label and verdict == "cannot-tell" else proposed)


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
    suspects: Sequence[Mapping[str, Any]], verdict: str, relabel_above: float | None, drop_above: float | None
) -> list[tuple[str, str, str]]:
    """Rows (id, decision, label) in the order of the suspects: relabel, or else drop, or else keep; "" if not asked."""
    filled = relabel_above is not None or drop_above is not None
    retained: Counter[str] = Counter()

    def decision(suspect: Mapping[str, Any]) -> str:
        label = suspect["label"]
        if (
            relabel_above is not None
            and suspect["probability_proposed"] > relabel_above
            and suspect["proposed_label"] != label
        ):
            return "relabel"
        if drop_above is not None and suspect["probability_not_separable"] > drop_above and retained[label] >= PAIR:
            return "drop"
        retained[label] += 1
        return "keep" if filled else ""

    # The least doubtful first: these are what each class keeps.
    return [(suspect["id"], decision(suspect), offered(suspect, verdict)) for suspect in reversed(suspects)][::-1]


def _left_out(decided: Sequence[tuple[str, str, str]], above: float) -> str:
    count = sum(decision == "drop" for _, decision, _ in decided)
    share = f"{count} of {counted(len(decided), 'item')} ({100 * count / len(decided):.1f} %)"
    doubt = f"whose labels are wrong, or whose classes overlap there, with a probability above {100 * above:g} %"
    return f"The decision file leaves out {share}, {doubt}."


def _page_items(items: Items, judged: Judgement, suspects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The most suspect items with their nearest neighbours, as a page shows them.

    When their pictures and texts take more than 12 million characters, the items that follow are without.
    """
    (classes,), names = class_numbers(items.labels)
    judgement = judged.suspects
    evidence, estimated = _evidence(judgement, classes, names), judgement.noise.verdict == "estimated"
    faces: dict[int, dict[str, str | None]] = {}
    spent = 0

    def item(i: int) -> dict[str, Any]:
        nonlocal spent
        if i not in faces and spent < FACES:
            face = preview_record(items.show and items.show(i))
            text = face["text"]
            if text is not None and len(text) > LONGEST:
                face["text"] = text[:LONGEST] + "…"
            faces[i] = face
            spent += sum(len(value) for value in face.values() if value is not None)
        return {"id": items.ids[i], "label": str(items.labels[i]), **faces.get(i, preview_record(None))}

    def neighbours(i: int) -> list[dict[str, Any]]:
        near, distances = judgement.neighbours[i, :PAGE_NEIGHBOURS], judgement.neighbour_distances[i, :PAGE_NEIGHBOURS]
        cosine = items.distance == "cosine"  # between unit rows D^2 = 2 - 2 S
        return [
            item(j) | ({"similarity": round(1 - gap**2 / 2, 4)} if cosine else {"distance": round(gap, 4)})
            for j, gap in zip(near.tolist(), distances.tolist(), strict=True)
        ]

    return [
        item(i)
        | {
            "proposed": suspect["proposed_label"],
            "offered": offered(suspect, judgement.noise.verdict),
            "probability": suspect["probability_wrong" if estimated else "probability_not_separable"],
            "evidence": evidence(i),
            "duplicate": suspect["duplicate"],
            "duplicate_of": suspect["duplicate_of"],
            "duplicate_label": suspect["duplicate_label"],
            "outlier": suspect["outlier"],
            "neighbours": neighbours(i),
        }
        for i, suspect in zip(judgement.order[:PAGE_ITEMS].tolist(), suspects, strict=False)
    ]


def _short(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
