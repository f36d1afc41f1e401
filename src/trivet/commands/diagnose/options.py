"""`trivet diagnose`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.commands.printing import command_line, echo, print_json, print_table, print_text
from trivet.commands.shared_options import DataRoot, DistanceByDimension, Json, Report, check_written, exists, refuse
from trivet.io.overwrite_guard import is_run_folder, page
from trivet.runtime.progress import show_progress
from trivet.runtime.text import counted, digits


class Failure(StrEnum):
    """Findings that can make the exit code 1."""

    COLLAPSE = "collapse"
    WORSE = "worse"
    CHANCE = "chance"


def diagnose(
    context: typer.Context,
    embeddings: Annotated[
        list[Path],
        typer.Argument(
            help="Embeddings: .npz, .npy with a .csv beside it, .parquet, a folder of shards, or a run folder; "
            "several are shown side by side.",
            show_default=False,
            callback=exists,
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--level",
            help="The label column to diagnose. Default: the first; for a run, the level it was trained on.",
        ),
    ] = None,
    fine: Annotated[
        list[str] | None,
        typer.Option(help="A finer label column. May be repeated. Default: all finer ones."),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another embedding of the same items, such as that before training: a file or a run, matched by id "
            "if both have one. May be repeated. Default: the untrained network of a run, its backbone and its inputs; "
            "none for a file.",
            callback=exists,
        ),
    ] = None,
    distance: DistanceByDimension = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Use only the rows of this split. Default: all rows of a file; all splits of a run, its training "
            "items alone beside a --reference that is a file."
        ),
    ] = None,
    report: Report = None,
    fail_on: Annotated[
        list[Failure] | None,
        typer.Option(
            help="Exit with 1 if the network or the classes collapsed, if an embedding is worse than a reference, or "
            "if it is no better than chance. May be repeated."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0,
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Say whether embeddings are any good, whether and how they collapsed, why, and what to change."""
    check_written(context, recognised={"report": page("diagnosis")})
    if Failure.WORSE in (fail_on or ()) and not reference and not all(is_run_folder(path) for path in embeddings):
        raise ValueError("--fail-on worse needs something to compare with: give --reference FILE.")
    if not any(is_run_folder(path) for path in (*embeddings, *(reference or []))):
        refuse(context, "only a run needs its data", "data_root")
    with show_progress("diagnosis"):
        from trivet.commands.diagnose.inputs import DiagnosisOptions
        from trivet.commands.diagnose.run import diagnose_paths  # here: it loads the training stack

        request = DiagnosisOptions(
            level=labels,
            fine=tuple(fine) if fine else None,
            references=tuple(reference or ()),
            distance=distance,
            split=split,
            seed=seed,
            data_root=data_root,
        )
        result, kinds = diagnose_paths(embeddings, request, report=report, command=command_line())
    if Failure.WORSE in (fail_on or ()):
        _check_compared(result)
    if json:
        print_json(result)
    else:
        print_diagnosis(result)
    return int(any(kind in kinds for name in fail_on or () for kind in _FAILURES[name]))


def _check_compared(result: Mapping[str, Any]) -> None:
    """ValueError if an embedding was compared with nothing, as then none can be worse."""
    for diagnosis in result.get("results", [result]):
        if not diagnosis["measures"]["comparisons"]:
            why = f" ({diagnosis['notes'][-1].rstrip('.')})" if diagnosis["notes"] else ""
            raise ValueError(
                f"--fail-on worse needs something to compare with: {diagnosis['name']} was compared with nothing{why}; "
                "give --reference FILE, or for a run the --data-root of its data."
            )


def print_diagnosis(result: Mapping[str, Any]) -> None:
    """The verdicts of one or more embeddings, each with its evidence, cause and changes, then a table of measures."""
    from trivet.collapse.formatting import verdict_lines, verdict_title  # here: it loads the training stack

    results = result.get("results", [result])
    for warning in result.get("warnings", []):
        print_text(f"Warning: {warning}", bold=True)
    names = [
        diagnosis["name"] if diagnosis["split"] is None else f"{diagnosis['name']} ({diagnosis['split']})"
        for diagnosis in results
    ]
    # What is bad comes first, in the order that was given: nothing good may stand above it.
    for diagnosis, name in sorted(zip(results, names, strict=True), key=lambda each: not _bad(each[0])):
        for verdict in diagnosis["verdicts"]:
            print_text(f"{name}: {verdict_title(verdict)}", bold=True)
            for line in verdict_lines(verdict):
                print_text(line, indent=2)
        counts = {
            "class": diagnosis["measures"]["classes"],
            "item": diagnosis["items"],
            "dimension": diagnosis["dimension"],
        }
        items = ", ".join(counted(count, name) for name, count in counts.items())
        reference = "no reference" if diagnosis["reference"] is None else f"reference: {diagnosis['reference']}"
        print_text(f"Diagnosed: {diagnosis['level']}, {items}, {diagnosis['distance']} distance, {reference}", indent=2)
        for note in diagnosis["notes"]:
            print_text(f"Note: {note}", indent=2)
        echo()
    print_table(None, ("measure",), names, _measured(results))
    if "report" in result:
        echo(f"Report: {result['report']}")


def _bad(result: Mapping[str, Any]) -> bool:
    return any(verdict["kind"] in kinds for verdict in result["verdicts"] for kinds in _FAILURES.values())


def _measured(results: list[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Rows of the table: what was measured in at least one embedding, or in a reference."""
    from trivet.collapse.formatting import measure_words  # here: it loads the training stack

    measures = [values_of["measures"] for values_of in results]
    references = [_references(values_of) for values_of in results]
    values: dict[str, list[float | None]] = {}
    for key in _DIAGNOSED:
        values[measure_words(key)] = [values_of.get(key) for values_of in measures]
        if key == "recall":
            for name in dict.fromkeys(name for known in references for name in known):
                values[name] = [known.get(name) for known in references]
            for key in ("map_at_r", "reference_map_at_r"):
                values[measure_words(key)] = [
                    next((row[key] for row in values_of["rankings"]), None) for values_of in measures
                ]
    for level in dict.fromkeys(level for values_of in measures for level in values_of["fine"]):
        for key in ("recall@1", "fine_coarse_index"):
            values[f"{level}: {measure_words(key)}"] = [
                values_of["fine"].get(level, {}).get(key) for values_of in measures
            ]
    for key in _SAMPLED:
        values[f"batches: {measure_words(key)}"] = [
            (values_of.get("sampling") or {}).get(key) for values_of in measures
        ]
    return [(name, *map(digits, row)) for name, row in values.items() if any(value is not None for value in row)]


def _references(result: Mapping[str, Any]) -> dict[str, float]:
    """Recall@1 of what an embedding is compared with."""
    return {
        f"{'' if comparison['level'] == result['level'] else comparison['level'] + ': '}recall@1 of "
        f"{comparison['reference']}": comparison["reference_recall"]
        for comparison in result["measures"]["comparisons"]
    }


_FAILURES = {
    Failure.COLLAPSE: ("network-collapse", "class-collapse"),
    Failure.WORSE: ("worse-than-reference",),
    Failure.CHANCE: ("no-better-than-chance",),
}
_SAMPLED = ("loss", "active_fraction", "hard_fraction", "dropped", "s_ap", "s_an", "choices")
_DIAGNOSED = (
    "relative_spread",
    "mean_distance",
    "effective_rank",
    "first_axis",
    "occupied",
    "class_spread",
    "modes",
    "nmi",
    "nmi_plus",
    "reference_modes",
    "mode_index",
    "reference_mode_index",
    "reference_mode_sharing",
    "retention",
    "recall@1",
    "recall",
    "chance",
    "strangers",
    "norm",
    "reference_shrinkage",
    "reference_spread",
)
