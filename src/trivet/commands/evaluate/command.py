"""`trivet evaluate`."""

from __future__ import annotations

import typer

from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.printing import command_line, print_json, print_result
from trivet.commands.shared_options import check_written, command, refuse, written_options
from trivet.commands.train.printing import print_run
from trivet.io.overwrite_guard import PER_CLASS, is_run_folder, page
from trivet.io.overwrite_guard import table as csv_table
from trivet.runtime.progress import show_progress

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
    check_options(context, request)
    recognised = {"report": page("evaluation"), "per_class": csv_table(*PER_CLASS, exact=False)}
    check_written(context, *([] if paths else [request.query, request.gallery]), recognised=recognised)
    with show_progress("loading the evaluation"):
        # Here: it loads the evaluation.
        from trivet.commands.evaluate.result import EvaluationResult
        from trivet.commands.evaluate.run import evaluate_files, meet_processes, per_class_csv

    with meet_processes() as (rank, processes), show_progress("evaluation", show=not rank):
        evaluations = evaluate_files(request, rank=rank, processes=processes)
    if rank:
        return 0
    result = EvaluationResult(evaluations, command=command_line())
    if request.per_class is not None:
        per_class_csv(evaluations, request.per_class)
    if request.report is not None:
        result.write_page(request.report)
    print_result(result, json=request.json, report=request.report, more={"command": result.command})
    return 0


def check_options(context: typer.Context, request: EvaluateOptions) -> None:
    """ValueError if an option was written that does nothing beside the others."""
    if request.quantize:
        refuse(context, "--quantize compares forms, each ranked as it is", "postprocess")
    elif request.postprocess:
        refuse(context, "--postprocess compares with every row", "approximate")
    if not request.quantize:
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
