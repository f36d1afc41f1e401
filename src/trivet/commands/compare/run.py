"""`trivet compare`: runs side by side: measures with paired intervals, settings, training, diagnosis, neighbours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trivet.collapse.significance import FEWEST, LEVEL, compare_groups
from trivet.commands.compare.neighbours import shared_gallery
from trivet.commands.compare.page import write_compare_report
from trivet.commands.compare.record import (
    ComparedRun,
    CompareRecord,
    DifferingSetting,
    Finding,
    LevelTable,
    Mean,
    PairDifference,
    Row,
    RunDiagnosis,
    SideDifference,
    SideRecord,
)
from trivet.commands.compare.runs import JUDGED, Measured, Side, StoredRun, pairs_of, read_runs, sides_of, training_of
from trivet.commands.compare.shared_items import shared_items
from trivet.commands.evaluate.sets import check_same_items, related, same_queries
from trivet.commands.train.outcome import decides, result_lines
from trivet.datasets.tags import tag_relations
from trivet.io.embedding_table import Vectors, class_numbers
from trivet.io.read_embeddings import read_vectors
from trivet.metrics import Retrieval, retrieve_levels
from trivet.reports.measures import finite
from trivet.runtime.progress import steps
from trivet.runtime.text import typed

SAME = 1e-6  # by which a recall of the record may differ from that of the stored embeddings
ENVIRONMENT = ("torch", "device", "threads")


@dataclass(frozen=True, eq=False)
class Pair:
    """A run and its partner on the items of a split."""

    mine: Measured
    its: Measured


Measurements = Mapping[tuple[str, str], Measured]  # (name of the run, split)
Pairs = Mapping[tuple[str, str], Sequence[Pair]]  # (name of the side, split)


def compare_runs(
    paths: Sequence[Path], *, report: Path | None = None, data_root: Path | None = None, command: str = ""
) -> CompareRecord:
    """Compare runs, and write a page of them if `report` names one; returns the record, without curves and pictures.

    The runs are grouped into sides by their settings, see `sides_of`, and each side is compared with the first.

    Args:
        paths: folders of runs or of cross-validations.
        data_root: where data sets lie, see `trivet.datasets.find_root`; they are read for the pictures of the page
            only.
        command: what was typed, for the page.
    """
    runs = read_runs(paths)
    sides = sorted(sides_of(runs), key=lambda side: not any(run.splits for run in side.runs))  # others cannot be first
    names = _ranked(runs)
    stored = {(run.name, split): _read(run, split) for run in runs for split in run.splits}
    shared, differing = shared_items(runs, stored)
    measured = {
        (run.name, split): _measure(run, split, items, names, recorded=len(items) == len(stored[run.name, split]))
        for run, split in steps([(run, split) for run in runs for split in run.splits], "measures")
        for items in [shared[run.name, split]]
    }
    pairs, unlike = _paired(sides, measured)
    if not pairs:
        raise ValueError(
            "compared runs must share an evaluation split with the same items: "
            f"{unlike[0] if unlike else 'fewer than two that differ hold embeddings'}; give runs on the same data."
        )
    comparable = _comparable(pairs)
    tables = []
    for split, level in dict.fromkeys((split, level) for _, split, level in comparable):
        differences = [
            _difference(side, sides[0], pairs[side.name, split], level, measure)
            for side in sides[1:]
            if (side.name, split, level) in comparable
            for measure in names
        ]
        tables.append(_table(sides, measured, split, level, differences))
    notes = [*_lacking(runs), *differing, *unlike, *_stale(runs, measured), *_chosen_by(runs, tables)]
    record = CompareRecord(
        runs=[_described(run, side) for side in sides for run in side.runs],
        sides=[SideRecord(name=side.name, runs=[run.name for run in side.runs]) for side in sides],
        confidence=LEVEL,
        tables=tables,
        settings=_differing(sides),
        notes=notes,
    ).stamped(command)
    if report is not None:
        _write_page(record, sides, measured, report, data_root)
    return record


def _ranked(runs: Sequence[StoredRun]) -> list[str]:
    """The measures of rankings that all runs have; each query has a value, so they can be paired."""
    ks = sorted(set.intersection(*({*run.folder.config().evaluation.k} for run in runs)))
    return [*dict.fromkeys([*(f"recall@{k}" for k in ks), "r-precision", "map@r", *_chosen_measures(runs)])]


def _chosen_measures(runs: Sequence[StoredRun]) -> list[str]:
    """The measures by which steps of the runs were chosen, each once."""
    return [*dict.fromkeys(name for run in runs if (name := run.folder.config().choosing.counted_measure))]


def _read(run: StoredRun, split: str) -> Vectors:
    """The items of a run, in the order of those of the runs that it is compared with."""
    vectors = read_vectors(run.folder.path, split=split)
    return vectors.select(np.argsort(np.array(vectors.names()), kind="stable"))


def _measure(run: StoredRun, split: str, vectors: Vectors, measures: Sequence[str], *, recorded: bool) -> Measured:
    numbered = {level: class_numbers(names) for level, names in vectors.labels.items()}
    rules = tag_relations({level: names for level, (_, names) in numbered.items()}, vectors.tags)
    labels = related({level: numbers for level, ((numbers,), _) in numbered.items()}, rules)
    distance = run.folder.config().evaluation.distance
    protocol = vectors.protocol
    if protocol is None:
        queries = np.arange(len(vectors))
        levels = retrieve_levels(vectors.embeddings, labels, measures=measures, distance=distance)
    else:
        queries = np.flatnonzero(protocol.query)
        levels = retrieve_levels(**protocol.arguments(vectors.embeddings, labels), measures=measures, distance=distance)
    return Measured(run, split, vectors, queries, levels, recorded=recorded)


def _paired(sides: Sequence[Side], measured: Measurements) -> tuple[Pairs, list[str]]:
    """The runs of each side with their partners in the first, and why some have none, in sentences."""
    pairs: dict[tuple[str, str], list[Pair]] = {}
    unlike: dict[str, None] = {}
    for side in sides[1:]:
        for run, partner in pairs_of(sides[0], side):
            for split in dict.fromkeys([*partner.splits, *run.splits]):
                mine, its = measured.get((run.name, split)), measured.get((partner.name, split))
                if mine is None or its is None:
                    lacks = run if mine is None else partner
                    if lacks.splits:  # of one without any, that is said once
                        unlike[f"{lacks.name} holds no embeddings of {split}."] = None
                    continue
                try:
                    _check_same_task(mine, its)
                except ValueError as error:
                    why = str(error).partition(": ")[2].partition("; ")[0]
                    unlike[f"{run.name} and {partner.name} cannot be compared on {split}: {why}"] = None
                    continue
                pairs.setdefault((side.name, split), []).append(Pair(mine, its))
    return pairs, list(unlike)


def _check_same_task(mine: Measured, its: Measured) -> None:
    """Check that the items, their labels, the queries and what they retrieve from are the same."""
    check_same_items((mine.title, mine.vectors), (its.title, its.vectors))
    retrieved = []
    for measured in (mine, its):
        ids, protocol = np.array(measured.vectors.names()), measured.vectors.protocol
        cameras = protocol is not None and protocol.cameras is not None
        retrieved.append((cameras, sorted(ids if protocol is None else ids[protocol.retrieved])))
    if retrieved[0] != retrieved[1]:
        raise ValueError(
            f"compared runs must retrieve from the same items: the gallery of {mine.title} is not that of {its.title}; "
            "evaluate both by one protocol."
        )
    counts = len(mine.queries), len(its.queries)
    same_queries((mine.title, its.title), mine.query_ids, its.query_ids, counts)


def _comparable(pairs: Pairs) -> list[tuple[str, str, str]]:
    """(Side, split, level) of all comparisons: new classes first, as they say most; levels as the data have them."""
    triples = [
        (side, split, level)
        for (side, split), pairs_of in pairs.items()
        for level in pairs_of[0].mine.levels
        if all(level in of_run.levels for pair in pairs_of for of_run in (pair.mine, pair.its))
    ]
    splits = list(dict.fromkeys(split for _, split, _ in triples))
    splits.sort(key=lambda split: split != "unseen")
    levels = list(dict.fromkeys(level for _, _, level in triples))
    return sorted(triples, key=lambda triple: (splits.index(triple[1]), levels.index(triple[2])))


def _difference(side: Side, first: Side, pairs: Sequence[Pair], level: str, measure: str) -> SideDifference:
    """A measure of a side less that of the first, of pairs on the same items by their mean."""
    groups: dict[bytes, tuple[list[Retrieval], list[Retrieval]]] = {}  # by their queries
    for pair in pairs:
        now, others = groups.setdefault(pair.mine.query_ids.tobytes(), ([], []))
        now.append(pair.mine.levels[level])
        others.append(pair.its.levels[level])
    known = all(measured.knows(level) for pair in pairs for measured in (pair.mine, pair.its))
    compared = compare_groups(
        [*groups.values()], reference=first.name, level=level, measure=measure, known_classes=known
    )
    changes = [float((pair.mine.column(level, measure) - pair.its.column(level, measure)).mean()) for pair in pairs]
    outcome = "open"
    if compared.better and min(changes) > 0:
        outcome = "better"
    elif compared.worse and max(changes) < 0:
        outcome = "worse"
    return SideDifference(
        of=side.name,
        less=first.name,
        measure=measure,
        value=compared.score,
        reference=compared.reference_score,
        difference=compared.difference,
        interval=[compared.low, compared.high],
        known_classes=known,
        outcome=outcome,
        pairs=[
            PairDifference(of=pair.mine.run.name, less=pair.its.run.name, difference=change)
            for pair, change in zip(pairs, changes, strict=True)
        ],
    )


def _table(
    sides: Sequence[Side], measured: Measurements, split: str, level: str, differences: list[SideDifference]
) -> LevelTable:
    """Measures of each run on a split at a level, by its record, with the mean of each side of several."""
    rows, means = [], []
    for side in sides:
        side_rows = [row for run in side.runs if (row := _row(run, measured, split, level)) is not None]
        rows += side_rows
        for measure in side_rows[0].measures if len(side_rows) > 1 else ():
            values = [value for row in side_rows if isinstance(value := row.measures.get(measure), float)]
            if len(values) == len(side_rows):
                mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
                means.append(Mean(side=side.name, measure=measure, mean=mean, deviation=deviation))
    retrieval = next(
        run.levels[level] for (_, where), run in measured.items() if where == split and level in run.levels
    )
    return LevelTable(
        split=split,
        level=level,
        queries=len(retrieval.classes),
        classes=len(retrieval.labels),
        chance=retrieval.chance.get(JUDGED),
        rows=rows,
        means=means,
        differences=differences,
    )


def _row(run: StoredRun, measured: Measurements, split: str, level: str) -> Row | None:
    mine = measured.get((run.name, split))
    if mine is None or level not in mine.levels:
        return None
    by_name = {row.name: row.levels.get(level, {}) for row in run.record.evaluation.get(split, [])}
    intervals = run.record.intervals.get(split, {}).get(level, {})
    if not mine.recorded:
        by_name, intervals = {}, {}
    over = "classes" if len(mine.levels[level].labels) >= FEWEST else "queries"
    trained = {
        name: value
        for name, value in by_name.pop("trained", {}).items()
        if isinstance(value, float) and not name.startswith("chance_")
    }
    return Row(
        run=run.name,
        measures={**trained, **mine.levels[level].mean()},
        intervals={name: ends for name, kinds in intervals.items() if (ends := kinds.get(over))},
        references={name: finite(values.get(JUDGED)) for name, values in by_name.items()},
    )


def _lacking(runs: Sequence[StoredRun]) -> list[str]:
    """Notes on runs that were not measured."""
    return [
        f"{run.name} is {run.record.status or 'unfinished'} and holds no embeddings: only its settings and its "
        f"training are shown; finish it with trivet train --resume {typed(run.folder.path)}."
        for run in runs
        if not run.splits
    ]


def _stale(runs: Sequence[StoredRun], measured: Measurements) -> list[str]:
    """Notes on runs whose record does not match their stored embeddings."""
    notes = []
    for run in runs:
        for split in (split for split in run.splits if measured[run.name, split].recorded):
            trained = next((row.levels for row in run.record.evaluation[split] if row.name == "trained"), {})
            for level, retrieval in measured[run.name, split].levels.items():
                recorded, is_ = trained.get(level, {}).get(JUDGED), retrieval.mean()[JUDGED]
                if isinstance(recorded, float) and abs(recorded - is_) > SAME:
                    notes.append(
                        f"The record of {run.name} does not tell of its embeddings: recall@1 on {split} by {level} is "
                        f"{100 * recorded:.1f} % there and {100 * is_:.1f} % here; write both anew with trivet "
                        f"evaluate {typed(run.folder.path)}."
                    )
    return notes


def _chosen_by(runs: Sequence[StoredRun], tables: Sequence[LevelTable]) -> list[str]:
    """Notes on splits that are no test for some of the runs, as a step was chosen by them."""
    notes = []
    for split in dict.fromkeys(table.split for table in tables):
        choices = [(run.name, run.record.choosing) for run in runs]
        chosen = [name for name, choice in choices if choice and choice.split == split and decides(choice)]
        if chosen:
            notes.append(f"The step of {', '.join(chosen)} was chosen by {split}, so measures there flatter.")
    return notes


def _described(run: StoredRun, side: Side) -> ComparedRun:
    record = run.record
    return ComparedRun(
        name=run.name,
        path=str(run.folder.path),
        side=side.name,
        seed=run.folder.config().seed,
        fold=None if run.folder.config().data.folds is None else run.folder.config().data.fold,
        status=record.status,
        level=record.level,
        step=record.step,
        seconds=record.seconds,
        parameters=record.model.parameters,
        helped=[line.replace("\u00a0", " ") for _, line in result_lines(record)],
        chosen_by=run.folder.config().choosing.counted_measure,
        diagnosis={
            split: RunDiagnosis(
                verdicts=[Finding(kind=v.kind, severity=v.severity, rule=v.rule) for v in section.verdicts],
                relative_spread=section.measures.relative_spread,
                effective_rank=section.measures.effective_rank,
                class_spread=section.measures.class_spread,
            )
            for split, section in record.diagnosis.items()
        },
        events=[
            Finding(kind=event.kind, severity=None, rule=f"at step {event.step}: {event.rule}")
            for event in record.monitor.events
            if not event.suspected
        ],
    )


def _differing(sides: Sequence[Side]) -> list[DifferingSetting]:
    """The settings, versions and counts in which the runs differ, with the values of each side."""
    described = [[_facts(run) for run in side.runs] for side in sides]
    names = dict.fromkeys(name for runs in described for facts in runs for name in facts)
    rows = []
    for name in names:
        values = [list(dict.fromkeys(facts.get(name, "") for facts in runs)) for runs in described]
        if len({value for column in values for value in column}) > 1:
            rows.append(DifferingSetting(name=name, values=values))
    return rows


def _facts(run: StoredRun) -> dict[str, str]:
    record = run.record
    facts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in run.settings.items()}
    facts |= {name: str(record.environment[name]) for name in ENVIRONMENT if name in record.environment}
    facts["trivet"] = record.trivet
    if record.data.train is not None:
        facts["training items"] = str(record.data.train.items)
    return facts


def _write_page(
    record: CompareRecord, sides: Sequence[Side], measured: Measurements, report: Path, data_root: Path | None
) -> None:
    split, level = record.tables[0].split, record.tables[0].level
    alike: list[Measured] = []
    for of_run in (measured.get((side.runs[0].name, split)) for side in sides):
        if of_run is not None and level in of_run.levels:
            with suppress(ValueError):  # not on the same items as the first
                for first in alike[:1]:
                    _check_same_task(of_run, first)
                alike.append(of_run)
    gallery, notes = shared_gallery(level, alike, data_root=data_root)
    training = {run.name: training_of(run.record) for side in sides for run in side.runs}
    contents = {
        "runs": [run.model_copy(update={"training": training[run.name]}) for run in record.runs],
        "gallery": gallery,
        "notes": [*record.notes, *notes],
    }
    write_compare_report(record.model_copy(update=contents), report)
