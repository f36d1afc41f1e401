"""`trivet forecast`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.commands.printing import command_line, echo, print_json, print_table, print_text
from trivet.commands.shared_options import Change, DataRoot, Json, Report, TrustCode, check_written, exists
from trivet.io.overwrite_guard import page
from trivet.runtime.arguments import check_name
from trivet.runtime.progress import show_progress
from trivet.runtime.text import digits, event_title

if TYPE_CHECKING:
    from trivet.reports.forecast_record import ForecastRecord

AXES = ("classes", "samples", "dim")


def forecast(
    context: typer.Context,
    config: Annotated[
        Path,
        typer.Argument(
            help="The settings, a TOML file; or a run folder, whose page then shows the forecast.",
            show_default=False,
            callback=exists,
        ),
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="axis=values", help="More axes of --grid.", show_default=False)
    ] = None,
    set: Change = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of the trial run, at least 5. Default: 5 % of training.steps, from 20 to 60."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of trial runs, with consecutive seeds.")] = 1,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Try combinations of batch shape and dimension: --grid classes=2,4,8 samples=2,8 dim=4,32,128, as "
            "one argument or several; an omitted axis keeps its setting."
        ),
    ] = None,
    report: Report = None,
    data_root: DataRoot = None,
    trust_code: TrustCode = False,
    json: Json = False,
) -> int:
    """Predict from a few real training steps, which are then discarded, whether a run would shrink to a point."""
    if more and not grid:
        raise ValueError(
            f"forecast takes one settings file: got {' '.join([str(config), *more])}; write --grid before the axes."
        )
    axes = parse_grid([*(grid or []), *(more or [])])
    check_written(context, recognised={"report": page("forecast")})
    if config.is_dir() and set:
        raise ValueError("a run is forecast with its own settings: leave out --set, or give a settings file.")
    with show_progress("loading what trains"):
        from trivet.training.config import RunConfig

        settings = None if config.is_dir() else RunConfig.read(config, set or [])  # before what takes long to load
        from trivet.commands.forecast.page import write_forecast_report
        from trivet.commands.forecast.run import forecast_grid, forecast_run, recorded_run, save_forecast

    folder = None
    if settings is None:
        folder = recorded_run(config)
        settings = folder.config()
    with show_progress("forecast"):
        if grid:
            result = forecast_grid(
                settings,
                classes=axes.get("classes", ()),
                samples=axes.get("samples", ()),
                dims=axes.get("dim", ()),
                steps=steps,
                seeds=seeds,
                data_root=data_root,
            )
        else:
            result = forecast_run(settings, steps=steps, seeds=seeds, data_root=data_root)
    complete, written = result.model_copy(update={"config": config.stem}).stamped(command_line()), None
    if folder is not None:
        written = save_forecast(folder, complete)
    if report is not None:
        written = str(report)
        write_forecast_report(complete, report)
    if json:
        print_json(result.as_json(unset=False) | ({} if written is None else {"report": written}))
        return 0
    if grid:
        _print_map(result)
    else:
        _print_run(result)
    if written is not None:
        echo(f"Report: {written}")
    return 0


def parse_grid(texts: Iterable[str]) -> dict[str, list[int]]:
    """Axis -> values, of texts such as "classes=2,4 dim=32".

    Raises:
        ValueError: if an axis is unknown or given twice, or a value is not a whole number.
    """
    axes: dict[str, list[int]] = {}
    for axis_text in (axis_text for text in texts for axis_text in text.split()):
        axis, equals, values = axis_text.partition("=")
        if not equals or not values:
            raise ValueError(f"--grid needs axis=value,value,...: got {axis_text!r}; write classes=2,4,8 for instance.")
        check_name(axis, AXES, name="the axis of --grid")
        if axis in axes:
            raise ValueError(f"--grid must name each axis once: got {axis} twice; give all its values together.")
        for value in values.split(","):
            if not (value.isascii() and value.isdigit()):
                raise ValueError(
                    f"--grid {axis} must hold whole numbers above 0: got {value!r} in {axis_text}; write {axis}=2,4 "
                    "for instance."
                )
        axes[axis] = [int(value) for value in values.split(",")]
    return axes


def _print_run(result: ForecastRecord) -> None:
    assert result.bound is not None
    print_text(result.verdict, bold=True)
    if result.forecast is not None:
        evidence = (f"{name.replace('_', ' ')} {digits(value)}" for name, value in result.forecast.evidence.items())
        print_text(f"Evidence: {', '.join(evidence)}", indent=2)
    for probe in result.seeds:
        for event in probe.events:
            title = event_title(event.kind, event.step, suspected=event.suspected)
            print_text(f"Seed {probe.seed}: {title}: {event.rule}", indent=2)
    for number, change in enumerate(result.changes, 1):
        print_text(f"Change {number}: {change}", indent=2)
    print_text(result.bound.sentence)


def _print_map(result: ForecastRecord) -> None:
    from trivet.commands.forecast.page import heat_maps  # here: it loads what draws

    print_text(
        f"A point by step {result.of}, per cent (mean distance then, per cent of that at the start), forecast from "
        f"{result.steps} steps"
    )
    for drawn in heat_maps(result):
        unit = "samples" if drawn.across.startswith("samples") else "dim"
        print_table(
            drawn.title,
            ("batch",),
            [f"{column} {unit}" for column in drawn.columns],
            [
                (head, *(f"{cell.text} ({cell.ends})" if cell.ends else cell.text for cell in cells))
                for head, _, cells in drawn.rows
            ],
        )
    made = [(cell.forecast.probability, cell) for cell in result.cells if cell.forecast is not None]
    if made:
        vacuous = sum(cell.bound is not None and cell.bound.vacuous for _, cell in made)
        print_text(
            f"The bound of Xu et al. (ICLR 2024, equation 17) is vacuous (it excludes nothing) in {vacuous} of "
            f"{len(made)}"
        )
    if any(cell.outlook != "unlikely" for _, cell in made):
        _, best = min(made, key=lambda pair: pair[0])
        shape = f"batches of {best.classes} x {best.samples}, {best.dim} dimensions"
        print_text(f"Least likely to shrink to a point: {shape}")
    left_out: dict[str, list[str]] = {}
    for cell in result.cells:
        if cell.reason:
            left_out.setdefault(cell.reason, []).append(f"{cell.classes} x {cell.samples}, {cell.dim}")
    for reason, shapes in left_out.items():
        print_text(f"Left out, {shapes[0] if len(shapes) == 1 else f'{len(shapes)} shapes'}: {reason}")
