"""`trivet evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.printing import command_line, echo, per_cent, print_json, print_table, print_text
from trivet.commands.shared_options import check_written, command, refuse, written_options
from trivet.commands.train.printing import print_run
from trivet.io.overwrite_guard import PER_CLASS, is_run_folder, page
from trivet.io.overwrite_guard import table as csv_table
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted, noun

if TYPE_CHECKING:
    from trivet.commands.evaluate.record import DifferenceRecord, Differences, EvaluationRecord

CLUSTERED_OR_PAIRED = ("nmi", "ami", "roc-auc", "tar@far", "verification-accuracy")  # how measures of no ranking begin
OF_RANKINGS = ("cameras", "junk", "without_positive", "folds", "sample", "approximate")


@command(EvaluateOptions)
def evaluate(context: typer.Context, request: EvaluateOptions) -> int:
    """Measure retrieval, clustering and verification, with intervals."""
    paths = request.embeddings or []
    options = {param.name for param in context.command.params} - {"embeddings", "data_root", "trust_code", "json"}
    if len(paths) == 1 and is_run_folder(paths[0]) and not written_options(context, *options):
        with show_progress("loading what trains"):
            from trivet.commands.evaluate.trained_model import evaluate_run  # here: it loads the training stack
            from trivet.commands.train.record import RunSummary

        record = evaluate_run(paths[0], data_root=request.data_root, progress=True)
        if request.json:
            print_json(RunSummary.of(record, paths[0]).as_json(unset=False))
        else:
            print_run(record, paths[0])
        return 0
    if not paths and None in (request.query, request.gallery):
        raise ValueError(
            "evaluate needs embeddings: name a file or a run folder, or give files with --query and --gallery."
        )
    request.check(paths)
    refuse(context, "the data are read only where a run is evaluated again, without other options", "data_root")
    if request.quantize is not None:
        refuse(context, "--quantize compares forms, each ranked as it is", "postprocess")
    elif request.postprocess is not None:
        refuse(context, "--postprocess compares with every row", "approximate")
    if request.quantize is None:
        refuse(context, "only --quantize gives codes, whose finds are ranked anew", "rescore")
    else:
        refuse(context, "--quantize compares with every row", "approximate")
    if None in (request.query, request.gallery):
        refuse(context, "only --query and --gallery are two sets whose ids can name the same items", "same_items")
    names = request.named_measures
    if names and "nmi+" not in names:
        refuse(context, "nmi+ is not among the --measures", "nmi_plus")
    if names and all(name.startswith(CLUSTERED_OR_PAIRED) for name in names):
        refuse(context, "none of the --measures ranks neighbours", *OF_RANKINGS)
    recognised = {"report": page("evaluation"), "per_class": csv_table(*PER_CLASS, exact=False)}
    check_written(context, *([] if paths else [request.query, request.gallery]), recognised=recognised)
    with show_progress("loading the evaluation"):
        # Here: it loads the evaluation.
        from trivet.commands.evaluate.run import compare, evaluate_files, meet_processes, per_class_csv, write_report

    with meet_processes() as (rank, processes), show_progress("evaluation", show=not rank):
        results = evaluate_files(request, rank=rank, processes=processes)
    if rank:
        return 0
    records = [result.record for result in results]
    differences = compare(results)
    if request.per_class is not None:
        per_class_csv(results, request.per_class)
    if request.report is not None:
        write_report(results, differences, request.report)
    if request.json:
        print_json(_as_json(records, differences, request.report))
    else:
        print_evaluation(records, differences, request.report)
    return 0


def _as_json(records: list[EvaluationRecord], differences: Differences, report: Path | None) -> dict[str, Any]:
    """The record of one embedding, or those of several with their differences."""
    results = [record.as_json(unset=False) for record in records]
    result = results[0]
    if len(results) > 1:
        rows = {
            level: {name: [row.as_json(unset=False) for row in rows] for name, rows in measures.items()}
            for level, measures in differences.items()
        }
        result = {"results": results, "differences": rows}
    return result | {"command": command_line()} | ({} if report is None else {"report": str(report)})


def print_evaluation(records: list[EvaluationRecord], differences: Differences, report: Path | None) -> None:
    """The evaluation of one or more files as tables on standard output, shares in per cent."""
    for record in records:
        for warning in record.warnings:
            print_text(f"Warning: {record.embeddings}: {warning}", bold=True)
    for line in _answers(records, differences):
        print_text(line, bold=True)
    for level in dict.fromkeys(level for record in records for level in record.evaluation):
        for record in records:
            if level in record.evaluation:
                _print_measures(record, level)
        if level in differences:
            _print_differences(level, differences[level], of_pairs=records[0].units.get(level) == "group")
    for record in records:
        for line in _notes(record):
            print_text(f"{record.embeddings}: {line}")
    if report is not None:
        echo(f"Report: {report}")


def _answers(records: Sequence[EvaluationRecord], differences: Differences) -> list[str]:
    """Sentence for each level on the forms, or the post-processing, that are compared."""
    if not records[0].form and not records[0].postprocessing:
        return []
    from trivet.commands.evaluate.answers import answers  # here: it loads what trains

    return [
        f"{level}: {line}".replace("\u00a0", " ")
        for level, rows in differences.items()
        for line in answers(records, rows, level)
    ]


def _print_measures(record: EvaluationRecord, level: str) -> None:
    from trivet.commands.evaluate.record import Shares  # here: `--help` needs no records

    shares = Shares(record, level)
    print_table(
        f"{record.embeddings}, {level}: {counted(int(shares.values['classes'] or 0), shares.unit)}, "
        f"{counted(int(shares.values['items'] or 0), 'item')}; per cent",
        ("measure",),
        (
            "value",
            "95 %, other items",
            f"95 %, {shares.sampled['classes']}",
            f"mean of {noun(2, shares.unit)}",
            "chance",
        ),
        [
            (
                name,
                per_cent(shares.value(name)),
                per_cent(shares.interval(name, "queries")),
                per_cent(shares.interval(name, "classes")),
                per_cent(shares.macro(name)),
                per_cent(shares.chance(name)),
            )
            for name in _named_measures(shares.values)
        ],
    )


def _print_differences(level: str, differences: Mapping[str, list[DifferenceRecord]], *, of_pairs: bool) -> None:
    first = next(iter(differences.values()))
    print_table(
        f"{level}: difference from {first[0].less}; points, paired",
        ("measure", "embeddings"),
        ("difference", "95 %, other items", f"95 %, other {'groups' if of_pairs else 'classes'}"),
        [
            (name, row.of, *map(per_cent, (row.difference, row.queries, row.classes)))
            for name, rows in differences.items()
            for row in rows
        ],
    )


def _named_measures(values: Mapping[str, Any]) -> list[str]:
    counts = ("items", "classes", "without_positive", "clusters")
    return [
        name
        for name in values
        if name not in counts
        and not name.startswith(("chance_", "nmi+_", "verification_", "verification-threshold"))
        and not name.endswith("_missing")
    ]


def _notes(record: EvaluationRecord) -> list[str]:
    """Notes without which the tables cannot be understood."""
    from trivet.commands.evaluate.page import protocol_sentences  # here: it loads what draws

    notes = [protocol_sentences(record).replace("\u00a0", " ")]
    for level, values in record.evaluation.items():
        missing: dict[str, list[str]] = {}
        for key, reason in values.items():
            if key.endswith("_missing"):
                missing.setdefault(str(reason), []).append(key[:-8])
        notes += [f"{level}: no {', '.join(names)}: {reason}" for reason, names in missing.items()]
    for level, measures in record.folds.items():
        for name, fold in measures.items():
            mean, interval = per_cent(fold.mean), per_cent(fold.interval)
            notes.append(f"{level}, {name} over {len(fold.values)} folds: {mean} ({interval})")
    notes += [f"{level}: no folds: {reason}" for level, reason in record.folds_missing.items()]
    if rejection := record.rejection:
        macro = rejection.macro.get("auroc")
        both = {
            name: "".join(
                f" (95 % over {over} {per_cent(interval)})"
                for over, interval in rejection.intervals.get(name, {}).items()
                if interval
            )
            for name in ("auroc", "fpr_at_95_tpr")
        }
        notes.append(
            f"rejection of {counted(rejection.out_of_scope or 0, 'query')} out of scope: AUROC "
            f"{per_cent(rejection.auroc)} %{both['auroc']}"
            f"{'' if macro is None else f', mean of classes {per_cent(macro)} %'}, "
            f"{per_cent(rejection.fpr_at_95_tpr)} %{both['fpr_at_95_tpr']} accepted at the threshold that accepts "
            f"95 % of the {rejection.in_scope} in scope"
        )
    return notes
