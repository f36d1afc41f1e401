"""`trivet simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trivet.commands.printing import command_line, echo, print_json, print_text
from trivet.commands.shared_options import Json, check_folder, exists, refuse, written_options
from trivet.io.overwrite_guard import FIGURE_FOLDER
from trivet.runtime.progress import show_progress, work

if TYPE_CHECKING:
    from trivet_papers.simulate.run import Theory

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Folder for figures, numbers and page.", show_default=False)
]
CheckToo = Annotated[
    bool, typer.Option("--check", help="Check every checkable statement; exit 1 if one fails. Without -o, only this.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier simulation in that folder.")]

simulate = typer.Typer(
    help="Draw the papers' theory, and check its statements.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


@simulate.callback()
def everything(context: typer.Context, check: CheckToo = False, json: Json = False) -> int | None:
    """Draw the papers' theory, and check its statements."""
    if context.invoked_subcommand is not None:
        if check or json:
            written = ", ".join(written_options(context, "check", "json"))
            raise ValueError(
                f"options of simulate go after the subject: write {written} behind {context.invoked_subcommand}."
            )
        return None
    if not check:
        raise ValueError(
            "simulate needs a subject (dynamics, isometry, noise or risk), or --check for the statements of all four."
        )
    return _checked(None, json)


def print_checks(subject: str, checks: Sequence[Any]) -> None:
    """The statements of one paper, each with what was expected, what was found, and whether it holds."""
    print_text(f"{subject}: {sum(row.holds for row in checks)} of {len(checks)} hold", bold=True)
    for row in checks:
        print_text(f"{'holds' if row.holds else 'FAILS'}: {row.statement} [{row.id}]", bold=not row.holds)
        print_text(f"expected: {row.expected}", indent=7)
        print_text(f"found: {row.observed}", indent=7)
    echo()


def _checked(subject: Theory | None, json: bool) -> int:
    """Run and print checks only: of one subject, or of all."""
    checked = {}
    with show_progress("simulation"):
        from trivet_papers.simulate.run import SUBJECTS, check  # here: it loads the training stack

        checked = dict(check(SUBJECTS if subject is None else (subject,)))
    if not json:
        for name, rows in checked.items():
            print_checks(name, rows)
    checks = [row for rows in checked.values() for row in rows]
    if json:
        print_json({"checks": [row.as_json() for row in checks]})
    return int(not all(row.holds for row in checks))


def _drawn(context: typer.Context, subject: Theory, **instead: Any) -> int:
    """Draw the figures into a folder, run the checks, or both, with the options of the command.

    Args:
        instead: what an option means that was not given.
    """
    shared = ("output", "check", "force", "json")
    output, check, force, json = (context.params[name] for name in shared)
    settings = {}
    for option in context.command.params:
        name, value = str(option.name), context.params[str(option.name)]
        value = instead.get(name) if value in (None, ()) else value
        if value is not None and name not in shared:
            settings[name] = list(value) if isinstance(value, tuple) else str(value) if name == "embeddings" else value
    if output is None:
        if not check:
            raise ValueError("simulate needs a folder for its figures: add --output, or --check to run checks alone.")
        refuse(context, "without --output no figure is drawn", *settings, "force")
        return _checked(subject, json)
    check_folder(context, output, FIGURE_FOLDER)
    with show_progress("simulation"):
        from trivet_papers.simulate.run import PAGE, PAPERS, simulate  # here: they load matplotlib
        from trivet_papers.simulate.run import check as checks_of

        figures = import_module(f"trivet_papers.{PAPERS[subject]}.figures").figures
        with work("computing the figures"):
            drawn = figures(**settings)  # first, as it finds what is wrong with the options
        checks = [row for _, rows in checks_of((subject,)) for row in rows] if check else []
        record = simulate(subject, drawn, output, settings=settings, checks=checks, command=command_line(), force=force)
    if json:
        keys = ("checks", "figures") if check else ("figures",)
        print_json({key: record.as_json()[key] for key in keys} | {"report": str(output / PAGE)})
    else:
        if check:
            print_checks(subject, checks)
        echo(f"Report: {output / PAGE}")
    return int(not all(row.holds for row in checks))


@simulate.command()
def dynamics(
    context: typer.Context,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            help="first-order, vanilla or second-order. May be repeated. Default: those of each figure of the paper.",
            show_default=False,
        ),
    ] = None,
    gamma: Annotated[
        list[float] | None,
        typer.Option(
            help="Cosine between the directions from anchor to positive and to negative, from -1 to 1. May be "
            "repeated; the middle one is drawn with arrows. Default: 0.2, 0.5, 0.8.",
            show_default=False,
        ),
    ] = None,
    entanglement: Annotated[
        list[float] | None,
        typer.Option(
            help="How strongly shared weights move both pairs together (p), from 0 to 1. May be repeated; 0 is drawn "
            "too. Default: 0.4, 0.8.",
            show_default=False,
        ),
    ] = None,
    factor: Annotated[
        Literal["sqrt", "prod"], typer.Option(help="Entanglement is proportional to sqrt(S_ap S_an), or to S_ap S_an.")
    ] = "sqrt",
    learning_rate: Annotated[
        float, typer.Option(help="Learning rate of the simulated step, above 0; the paper gives none.")
    ] = 0.1,
    grid: Annotated[int, typer.Option(help="Grid cells per side of the maps, at least 2.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the triplets and the small network.")] = 0,
    embeddings: Annotated[
        Path | None,
        typer.Option(
            help="Embeddings for the scatter diagram: .npz, .npy with a .csv beside it, .parquet, or a run folder. "
            "Default: handwritten digits.",
            show_default=False,
            callback=exists,
        ),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Their column of classes. Default: the only one.", show_default=False)
    ] = None,
    output: Output = None,
    check: CheckToo = False,
    force: Force = False,
    json: Json = False,
) -> int:
    """Motion of a triplet in one gradient step: scatter diagram, changes of similarity, vector fields."""
    return _drawn(context, "dynamics", gamma=[0.2, 0.5, 0.8], entanglement=[0.4, 0.8])


@simulate.command()
def isometry(
    context: typer.Context,
    output: Output = None,
    check: CheckToo = False,
    force: Force = False,
    json: Json = False,
    seed: Annotated[int, typer.Option(help="Seed of the first random set or network; the others follow.")] = 0,
    points: Annotated[int, typer.Option(help="Points of each set in figure collapse: 4 to 200.")] = 20,
    dimension: Annotated[
        int, typer.Option(help="Dimension of the points in figures collapse and descent: 2 to 1024.")
    ] = 2,
    starts: Annotated[
        int, typer.Option(help="Searches for the nearest separated points, in figures five-points and collapse.")
    ] = 24,
    margin: Annotated[float, typer.Option(help="Margin of the loss, in all figures but ranges and training.")] = 0.0,
    repeats: Annotated[int, typer.Option(help="Random sets behind each number of figures descent and scaling.")] = 5,
    steps: Annotated[int, typer.Option(help="Steps of figure descent.")] = 1000,
    cases: Annotated[int, typer.Option(help="Random sets of each kind in figure ranges.")] = 12,
    trainings: Annotated[int, typer.Option(help="Networks of each setting in figure training; 0 leaves it out.")] = 2,
) -> int:
    """Distance of an embedding from separating its classes: nearest separated embeddings, and how they shrink."""
    return _drawn(context, "isometry")


@simulate.command()
def noise(
    context: typer.Context,
    output: Output = None,
    classes: Annotated[
        list[int] | None, typer.Option(help="Classes, at least 2. May be repeated. Default: 2, 3, 10 and 100.")
    ] = None,
    samples_per_class: Annotated[
        list[int] | None, typer.Option(help="Items of each class, at least 2. May be repeated. Default: 2, 5 and 20.")
    ] = None,
    grid: Annotated[int, typer.Option(help="Points of each curve, 11 to 401.")] = 101,
    draws: Annotated[int, typer.Option(help="Pairs drawn for each mark of the pair rates, 100 to a million.")] = 20_000,
    margin: Annotated[float, typer.Option(help="Margin of the margin loss, above 0, at most 1.")] = 0.2,
    beta: Annotated[float, typer.Option(help="Boundary of the margin loss, between 0 and 2.")] = 1.4,
    gamma: Annotated[float, typer.Option(help="Least over largest skew in the residual, between 0 and 1.")] = 0.75,
    seed: Annotated[int, typer.Option(help="Seed of the pairs, at least 0.")] = 0,
    check: CheckToo = False,
    force: Force = False,
    json: Json = False,
) -> int:
    """Tolerance of a loss to label noise: pair-noise rates, tolerance, and what is left of the clean risk."""
    return _drawn(context, "noise", classes=[2, 3, 10, 100], samples_per_class=[2, 5, 20])


@simulate.command()
def risk(
    context: typer.Context,
    output: Output = None,
    check: CheckToo = False,
    force: Force = False,
    classes: Annotated[
        list[int] | None, typer.Option(help="A number of classes. Repeat for more. Default: 2, 5.", show_default=False)
    ] = None,
    p: Annotated[
        list[float] | None,
        typer.Option(
            "--p",
            help="Probability in (1/2, 1) that a label is that of its class. Repeat for more. Default: 0.6, 0.8, 0.95.",
            show_default=False,
        ),
    ] = None,
    margin: Annotated[float, typer.Option(help="Margin of both losses, in the unit of the squared distance.")] = 1.0,
    beta: Annotated[
        float | None,
        typer.Option(help="Bound of the margin loss, in that unit. Default: the margin.", show_default=False),
    ] = None,
    largest: Annotated[int, typer.Option(help="Largest class size in the search for thresholds.")] = 4000,
    most_classes: Annotated[int, typer.Option(help="Number of classes up to which thresholds are mapped.")] = 20,
    size: Annotated[
        int, typer.Option(help="Samples per class of the maps of the theorems; at most 60 in all classes together.")
    ] = 4,
    rank: Annotated[
        list[int] | None,
        typer.Option(
            help="Rank, up to 200, of the nearer of two samples. Repeat for more. Default: 1, 2, 3, 5.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Collapsed or in two modes: which embedding has the lower expected loss when labels are noisy."""
    return _drawn(context, "risk", classes=[2, 5], p=[0.6, 0.8, 0.95], beta=margin, rank=[1, 2, 3, 5])
