"""`trivet reproduce`: runs experiments of the papers, judges their claims, and writes the pages."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from importlib import metadata
from pathlib import Path

from trivet.io.atomic_files import write_json
from trivet.io.overwrite_guard import Output, begins, page
from trivet.reports.figure import encode, style
from trivet_papers.catalogue import PAPERS, experiments
from trivet_papers.experiment import Drawing, DrawnRecord, Experiment, Results, ResultTable, Size, judge, mark_shared
from trivet_papers.reproduce.page import write_front_page, write_reproduction
from trivet_papers.reproduce.record import (
    CellRecord,
    ColumnRecord,
    ExperimentRecord,
    ReproductionRecord,
    RowRecord,
    TableRecord,
)
from trivet_papers.run_record import RunLine
from trivet_papers.runs import planned, results, store_of

FRONT = "README.md"
TITLES = {
    "levi2021": "Levi, Xiao, Wang, Darrell: Rethinking preventing class-collapsing in metric learning with "
    "margin-based losses",
    "xuan2020": "Xuan et al.: Extreme triplet learning",
    "le2018": "Le, Odobez: Theoretical guarantees of deep embedding losses under label noise",
    "xu2024": "Xu et al.: Mathematical justification of hard negative mining via isometric approximation",
}


def record_of(
    paper: str,
    size: Size,
    folder: Path,
    *,
    wanted: Collection[str],
    seeds: int | None = None,
    changes: Sequence[str] = (),
    command: str = "",
) -> ReproductionRecord:
    """Collect what the runs in a folder say of all experiments of a paper, with their pictures.

    Args:
        wanted: keys of the experiments that have so many `seeds`; the others have those of their recipes, and are left
            out where `changes` are none of theirs.
    """
    measured = []
    for experiment in experiments(paper):
        if experiment.key in wanted or _accepts(experiment, size, changes):
            count = seeds if experiment.key in wanted else None
            measured.append((experiment, *results(experiment, size, folder, count, changes), count))
    lines = {line.key: line for _, _, some, _ in measured for line in some}  # runs that experiments share are one
    records = [_experiment(*experiment, size, changes) for experiment in measured]
    mark_shared([(record.key, claim) for record in records for claim in record.claims])
    return ReproductionRecord(
        paper=paper,
        title=TITLES[paper],
        size=size,
        changes=list(changes),
        experiments=records,
        runs=len(lines),
        seconds=sum(line.processor_seconds for line in lines.values()),
        command=command,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        trivet=metadata.version("trivet"),
    )


def _accepts(experiment: Experiment, size: Size, changes: Sequence[str]) -> bool:
    """True if the runs of an experiment can have these changes of their settings."""
    try:
        planned(experiment, size, None, changes)
    except ValueError:
        return False
    return True


def write_pages(
    wanted: Sequence[Experiment],
    size: Size,
    folder: Path,
    pages: Path,
    *,
    seeds: int | None = None,
    changes: Sequence[str] = (),
    command: str = "",
) -> list[ReproductionRecord]:
    """Write the page and the json of each paper with a wanted experiment or, without changes, with runs.

    Without changes the front page of all of these is written, too. Returns the records of the papers with a wanted
    experiment.

    Args:
        folder: of the results.
        pages: the folder of the pages.
        seeds: of the wanted experiments; the others have those of their recipes.

    Raises:
        OSError: if a file cannot be written.
    """
    keys = {experiment.key for experiment in wanted}
    papers = [paper for paper in PAPERS if any(key.partition("-")[0] == paper for key in keys)]
    records = {}
    for paper in PAPERS:
        if paper in papers or (not changes and store_of(folder, experiments(paper)[0], size).file.is_file()):
            records[paper] = record_of(paper, size, folder, wanted=keys, seeds=seeds, changes=changes, command=command)
    for paper, record in records.items():
        name = page_name(paper, size, changes)
        write_reproduction(record, pages / f"{name}.html")
        write_json(pages / f"{name}.json", record.as_json())
    if not changes:  # the front page is of the recipes as they are
        write_front_page(list(records.values()), pages / FRONT, command=command, runs=str(folder))
    return [records[paper] for paper in papers]


def page_name(paper: str, size: Size, changes: Sequence[str]) -> str:
    """The file name of the page of a paper, without its ending."""
    return f"{paper}-{size}-changed" if changes else f"{paper}-{size}"


def outputs(size: Size, pages: Path, changes: Sequence[str]) -> list[Output]:
    """The files that `write_pages` may write, and how one that it wrote before is recognised."""
    names = [(page_name(paper, size, changes), ending, recognised) for paper in PAPERS for ending, recognised in
             (("html", page("reproduction")), ("json", begins(f'{{"paper":"{paper}"'.encode())))]  # fmt: skip
    files = [Output("--pages", pages / f"{name}.{ending}", recognised) for name, ending, recognised in names]
    return [*files, Output("--pages", pages / FRONT, begins(b"# Which of the papers' claims hold\n"))]


def _experiment(
    experiment: Experiment,
    measured: Results,
    lines: Sequence[RunLine],
    seeds: int | None,
    size: Size,
    changes: Sequence[str],
) -> ExperimentRecord:
    recipe = experiment.recipe(size)
    figures = []
    for item in recipe.shows if lines else ():
        if isinstance(item, Drawing):
            with style():
                drawn = item.draw(measured)
            figures.append(DrawnRecord.of(drawn, encode(drawn.picture, "png")))
    return ExperimentRecord(
        key=experiment.key,
        title=experiment.title,
        ran=experiment.ran,
        data=recipe.data,
        setting=recipe.setting,
        chosen=recipe.chosen,
        fair=recipe.fair,
        seeds=len(measured.seeds),
        planned=len(planned(experiment, size, seeds, changes)),
        runs=len(lines),
        failed=sum(bool(line.failed) for line in lines),
        seconds=sum(line.processor_seconds for line in lines),
        dates=sorted({line.date for line in lines}),
        versions=sorted({", ".join(f"{name} {number}" for name, number in line.versions.items()) for line in lines}),
        hardware=sorted({line.hardware.as_text() for line in lines}),
        claims=[judge(claim, measured, recipe.seeds if seeds is None else seeds) for claim in recipe.claims],
        tables=[_table(item, measured) for item in recipe.shows if isinstance(item, ResultTable)],
        figures=figures,
    )


def _table(table: ResultTable, measured: Results) -> TableRecord:
    return TableRecord(
        title=table.title,
        columns=[ColumnRecord(head=column.head, share=column.share) for column in table.columns],
        rows=[
            RowRecord(
                head=head,
                cells=[
                    CellRecord(
                        values=measured.numbers(column.measure, column.at, **factors),
                        printed=table.printed.get(head, {}).get(column.head, ""),
                    )
                    for column in table.columns
                ],
            )
            for head, factors in table.rows
        ],
    )
