"""`trivet evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.cli.output import DataRoot, Json, command_line, print_evaluation, print_json, print_run, run_summary


def evaluate(
    embeddings: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Embeddings: .npz, .npy with a .csv beside it, .parquet, or a run folder; several are compared. "
            "A run folder alone: its model is evaluated anew.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", "--level", help="A label column. May be repeated. Default: all there are."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(help="The split of the file that is asked; without an argument, a file."),
    ] = None,
    gallery: Annotated[
        str | None, typer.Option(help="The split, or the file, that is retrieved from. Default: all others of one set.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Take the rows of this split only; of a run, this split.")] = None,
    table: Annotated[Path | None, typer.Option(help="The csv of an .npy file. Default: of the same name.")] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            help="recall@K, precision@K, r-precision, map@r, map, mrr, nmi, nmi-geometric, ami, nmi+, roc-auc, "
            "tar@far, verification-accuracy; with commas, or repeated. Default: all, with K = 1, 2, 4, 8 and 10."
        ),
    ] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"] | None, typer.Option(help="Default: that of the run; cosine for a file.")
    ] = None,
    cameras: Annotated[
        bool, typer.Option("--cameras", help="Leave out items of the query's class that its own camera saw.")
    ] = False,
    junk: Annotated[str | None, typer.Option(help="Class of the gallery that is neither right nor wrong: -1.")] = None,
    out_of_scope: Annotated[
        str | None, typer.Option(help="Class of the queries that belong to none; their rejection is measured.")
    ] = None,
    without_positive: Annotated[
        Literal["miss", "drop"],
        typer.Option(help="A query with nothing to be found is a miss, or left out."),
    ] = "miss",
    nmi_plus: Annotated[int, typer.Option(min=1, help="Clusters for each class in NMI+.")] = 10,
    folds: Annotated[int, typer.Option(min=0, help="Evaluate within so many class-disjoint folds too.")] = 0,
    sample: Annotated[int, typer.Option(min=0, help="Ask only so many random items; 0 asks all.")] = 0,
    approximate: Annotated[
        Literal["hnsw", "ivf"] | None, typer.Option(help="Rank by an approximate index, which states its own recall.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=0, help="Of the bootstrap intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of k-means, pairs, folds, samples and the bootstrap.")] = 0,
    report: Annotated[Path | None, typer.Option(help="Write a page with tables and plots here.")] = None,
    per_class: Annotated[Path | None, typer.Option(help="Write the measures of each class to this csv file.")] = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Measure embeddings: retrieval, clustering and verification, with intervals; or evaluate a run anew."""
    paths = embeddings or []
    others = (
        labels,
        query,
        gallery,
        split,
        table,
        measures,
        distance,
        junk,
        out_of_scope,
        approximate,
        report,
        per_class,
    )
    if len(paths) == 1 and paths[0].is_dir() and not any(others) and not (cameras or folds or sample):
        from trivet.tasks.evaluate_run import evaluate_run  # here: it loads the training stack

        record = evaluate_run(paths[0], data_root=data_root, progress=True)
        if json:
            print_json(run_summary(record, paths[0]))
        else:
            print_run(record, paths[0])
        return 0
    from dataclasses import replace

    from trivet.evaluation import ALL
    from trivet.tasks import evaluate as files  # here: it loads the training stack
    from trivet.tasks.display import Display

    for out in (report, per_class):
        if out is not None and (out.is_dir() or not out.parent.is_dir()):
            raise ValueError(f"an output must be a file in a folder that exists: got {out}; make the folder first.")
    request = files.Request(
        levels=tuple(labels) if labels else None,
        table=table,
        split=split,
        query=query if paths else None,
        gallery=gallery if paths else None,
        cameras=cameras,
        junk=junk,
        out_of_scope=out_of_scope,
        measures=tuple(name.strip() for part in measures for name in part.split(",")) if measures else ALL,
        distance=distance,
        without_positive=without_positive,
        nmi_plus=nmi_plus,
        folds=folds,
        sample=sample,
        approximate=approximate,
        resamples=resamples,
        seed=seed,
    )
    if not paths and (query is None or gallery is None):
        raise ValueError(
            "evaluate needs embeddings: name a file or a run folder, or give files with --query and --gallery."
        )
    with files.processes() as (rank, count), Display(show=not rank) as display:
        if count > 1:
            request = replace(files.only_retrieval(request) if rank else request, distributed=True)
        if paths:
            found = [files.evaluate_file(path, request, display.update) for path in paths]
        else:
            found = [files.evaluate_pair(Path(query or ""), Path(gallery or ""), request, display.update)]
    if rank:
        return 0
    result = files.summary(found, request) | {"command": command_line()}
    if per_class is not None:
        files.per_class_csv(found, per_class)
    if report is not None:
        files.write_report(result, found, report)
        result["report"] = str(report)
    if json:
        print_json(result)
    else:
        print_evaluation(result)
    return 0
