"""What commands print: one JSON object, or a table for people; everything else goes to standard error."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets by name. Default: TRIVET_DATA, else ~/.cache/trivet."),
]


def command_line() -> str:
    """What was typed, for the record."""
    return shlex.join(["trivet", *sys.argv[1:]])


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def run_summary(record: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The JSON of `train` and `evaluate`: "evaluation" is that of the first split, "splits" holds all."""
    splits = {
        split: {row["name"]: row["levels"] for row in rows} for split, rows in record.get("evaluation", {}).items()
    }
    first = next(iter(splits), None)
    return {
        "run": str(folder),
        "status": record["status"],
        "split": first,
        "evaluation": splits[first]["trained"] if first else {},
        "splits": {split: rows["trained"] for split, rows in splits.items()},
        "references": {
            split: {name: levels for name, levels in rows.items() if name != "trained"}
            for split, rows in splits.items()
        },
        "intervals": record.get("intervals", {}).get(first, {}),
        "collapse": record.get("collapse", {}),
        "events": [
            {"attempt": number} | event
            for number, attempt in enumerate((record.get("monitor") or {}).get("attempts", []))
            for event in attempt["events"]
        ],
        "guard": record.get("guard", {}),
        "label_noise": record.get("label_noise", {}),
        "seconds": record["seconds"],
        "warnings": record["warnings"],
        "report": str(folder / "report.html"),
    }


def print_run(record: Mapping[str, Any], folder: Path) -> None:
    """The evaluation of a run as tables on standard output."""
    console = Console()
    for split, rows in record.get("evaluation", {}).items():
        known = next(iter(rows[0]["levels"].values()))
        measures = [key for key in known if key.startswith("recall@") or key in ("map@r", "nmi", "nmi+")]
        table = Table(title=Text(f"{split}: per cent"), title_justify="left")
        for column in (
            "level",
            "",
            *(key.replace("recall", "R").replace("map@r", "MAP@R").replace("nmi", "NMI") for key in measures),
        ):
            table.add_column(column, justify="left" if column in ("level", "") else "right", no_wrap=True)
        for level in rows[0]["levels"]:
            for row in rows:
                shares = [row["levels"][level].get(key) for key in measures]
                table.add_row(
                    Text(level), row["name"], *("–" if share is None else f"{share:.1%}"[:-1] for share in shares)
                )
            table.add_section()
        console.print(table)
    from trivet.records import read_run
    from trivet.reports.tolerance import noise_lines  # here: it loads what draws, which `--help` does not need

    for warning in [*record["warnings"], *_happened(record), *noise_lines(read_run(record), run=str(folder))]:
        console.print(f"Note: {warning}", markup=False)
    console.print(f"Run: {folder}\nReport: {folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def _happened(record: Mapping[str, Any]) -> list[str]:
    """What the monitor of a run saw, and what its guard did, a line each."""
    from trivet.training.guard import Repair, changes_said  # here: `--help` needs no settings

    guard: Mapping[str, Any] = record.get("guard") or {}
    lines = []
    for number, attempt in enumerate((record.get("monitor") or {}).get("attempts", [])):
        for event in attempt["events"]:
            lines.append(f"{event['kind'].replace('-', ' ')} seen at step {event['step']}: {event['rule']}")
        for repair in guard.get("repairs", [])[number : number + 1]:
            changed = changes_said(Repair.from_json(repair))
            lines.append(f"repair {number + 1}: back to step {repair['returned_to']} with {changed}")
    kinds = (f"{left['kind'].replace('-', ' ')} not repaired: {left['why']}" for left in guard.get("not_repaired", []))
    return [*lines, *kinds]


def print_folds(result: Mapping[str, Any]) -> None:
    """What the runs of a cross-validation say together, as tables on standard output."""
    console = Console()
    for level, measures in result.get("evaluation", {}).items():
        table = Table(title=Text(f"{level}: validation over {result['folds']} folds; per cent"), title_justify="left")
        for column in ("measure", "mean", "95 %, Student-t", "folds"):
            table.add_column(column, justify="left" if column == "measure" else "right")
        for name, found in measures.items():
            values = "  ".join(_cell(value) for value in found["values"])
            table.add_row(name, _cell(found["mean"]), _cell(found["interval"]), values)
        console.print(table)
    console.print("Runs: " + ", ".join(result["runs"]), markup=False, highlight=False, soft_wrap=True)


def print_evaluation(result: Mapping[str, Any]) -> None:
    """The evaluation of one or more files as tables on standard output, shares in per cent."""
    console = Console()
    records = result.get("results", [result])
    for level in dict.fromkeys(level for record in records for level in record["evaluation"]):
        for record in records:
            if level in record["evaluation"]:
                console.print(_measures(record, level))
        differences = result.get("differences", {}).get(level)
        if differences:
            console.print(_differences(level, differences))
    for record in records:
        for line in _notes(record):
            console.print(f"{record['embeddings']}: {line}", markup=False, highlight=False, soft_wrap=True)
    if "report" in result:
        console.print(f"Report: {result['report']}", markup=False, highlight=False, soft_wrap=True)


def _measures(record: Mapping[str, Any], level: str) -> Table:
    values, macro = record["evaluation"][level], record.get("macro", {}).get(level, {})
    intervals = record.get("intervals", {}).get(level, {})
    title = f"{record['embeddings']}, {level}: {values['classes']} classes, {values['items']} items; per cent"
    table = Table(title=Text(title), title_justify="left")
    columns = ("measure", "value", "95 %, queries", "95 %, classes", "mean of classes", "chance")
    for column in columns:
        table.add_column(column, justify="left" if column == "measure" else "right", no_wrap=column == "measure")
    for name in _named_measures(values):
        ends = intervals.get(name, {})
        chance = values.get(f"chance_{name}", _chance(name))
        row = [values[name], ends.get("queries"), ends.get("classes"), macro.get(name), chance]
        table.add_row(name, *(_cell(cell) for cell in row))
    return table


def _chance(measure: str) -> float | None:
    """What an embedding that knows nothing of the classes scores, where that does not depend on the data."""
    if measure.startswith("tar@far="):
        return float(measure.removeprefix("tar@far="))
    return {"ami": 0.0, "roc-auc": 0.5, "verification-accuracy": 0.5}.get(measure)


def _differences(level: str, differences: Mapping[str, Any]) -> Table:
    first = next(iter(differences.values()))
    table = Table(title=Text(f"{level}: less {first[0]['less']}; points, paired"), title_justify="left")
    for column in ("measure", "embeddings", "difference", "95 %, queries", "95 %, classes"):
        table.add_column(column, justify="left" if column in ("measure", "embeddings") else "right")
    for name, rows in differences.items():
        for row in rows:
            cells = (_cell(row[key]) for key in ("difference", "queries", "classes"))
            table.add_row(name, Text(row["of"]), *cells)
    return table


def _named_measures(values: Mapping[str, Any]) -> list[str]:
    counts = ("items", "classes", "without_positive", "clusters")
    return [
        name
        for name in values
        if name not in counts
        and not name.startswith(("chance_", "nmi+_", "verification_", "verification-threshold"))
        and not name.endswith("_missing")
    ]


def _cell(value: float | list[float] | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return f"{100 * value[0]:.1f} … {100 * value[1]:.1f}"
    return f"{100 * value:.1f}"


def _notes(record: Mapping[str, Any]) -> list[str]:
    """What a number in the tables cannot be read without."""
    protocol, notes = record["protocol"], []
    kind = "each item against the others" if protocol["kind"] == "self-retrieval" else "queries against a gallery"
    notes.append(f"{kind}: {protocol['queries']} in {protocol['gallery']}, {record['distance']} distance")
    for level, values in record["evaluation"].items():
        if values.get("without_positive"):
            treated = "count as misses" if protocol["without_positive"] == "miss" else "are left out"
            notes.append(f"{level}: {values['without_positive']} queries have nothing to be found and {treated}")
        notes += [f"{level}: no {key[:-8]}: {reason}" for key, reason in values.items() if key.endswith("_missing")]
    if "junk" in protocol:
        notes.append(f"{protocol['junk']} junk items taken out of the gallery")
    if "approximate" in protocol:
        index = protocol["approximate"]
        notes.append(f"approximate search by {index['kind']}: recall@10 {index['recall']:.1%} of the exact one")
    for level, measures in record.get("folds", {}).items():
        for name, fold in measures.items():
            notes.append(
                f"{level}, {name} over {len(fold['values'])} folds: {_cell(fold['mean'])} ({_cell(fold['interval'])})"
            )
    if "rejection" in record:
        found = record["rejection"]
        drawn, macro = found.get("intervals", {}), found.get("macro", {}).get("auroc")
        both = {
            name: "".join(
                f" (95 % over {over} {_cell(interval)})" for over, interval in drawn.get(name, {}).items() if interval
            )
            for name in ("auroc", "fpr_at_95_tpr")
        }
        notes.append(
            f"rejection of {found['out_of_scope']} queries out of scope: AUROC {found['auroc']:.1%}{both['auroc']}"
            f"{'' if macro is None else f', mean of classes {macro:.1%}'}, {found['fpr_at_95_tpr']:.1%}"
            f"{both['fpr_at_95_tpr']} accepted where 95 % of the {found['in_scope']} in scope are"
        )
    return notes


def print_checks(subject: str, checks: Sequence[Any]) -> None:
    """A table of statements of one paper, each with what was expected, what was found, and whether it holds."""
    console = Console()
    table = Table(title=Text(f"{subject}: {sum(row.holds for row in checks)} of {len(checks)} hold"), show_lines=True)
    table.title_justify = "left"
    for column in ("statement", "expected", "found", "verdict"):
        table.add_column(column, overflow="fold", ratio={"statement": 5, "verdict": 1}.get(column, 3))
    for row in checks:
        verdict = Text("holds", style="green") if row.holds else Text("FAILS", style="bold red")
        table.add_row(Text(f"{row.statement} [{row.id}]"), Text(row.expected), Text(row.found), verdict)
    console.print(table)


def print_diagnosis(result: Mapping[str, Any]) -> None:
    """The verdicts of one or more embeddings, each with its evidence, cause and changes, then a table of measures."""
    console = Console()
    found = result.get("results", [result])
    names = [one["name"] if one["split"] is None else f"{one['name']} ({one['split']})" for one in found]

    def say(text: str, style: str | None = None) -> None:
        # A wrapped line goes on under its first word.
        console.print(
            Padding(Text(text.lstrip(), style=style or ""), (0, 0, 0, len(text) - len(text.lstrip())), expand=False)
        )

    for one, name in zip(found, names, strict=True):
        items = f"{one['measures']['classes']} classes, {one['items']} items, {one['dimension']} dimensions"
        reference = "no reference" if one["reference"] is None else f"reference: {one['reference']}"
        for verdict in one["verdicts"]:
            kind = verdict["kind"].replace("-", " ")
            severity = f", {verdict['severity']}" if verdict["severity"] else ""
            say(f"{name}: {kind}{severity}: {verdict['rule']}", "bold")
            evidence = (f"{_words(key)} {_number(value)}" for key, value in verdict["evidence"].items())
            say(f"  Evidence: {', '.join(evidence)}")
            say(f"  Cause: {verdict['cause']}" if verdict["changes"] else f"  {verdict['cause']}")
            for number, change in enumerate(verdict["changes"], 1):
                say(f"  Change {number}: {change}")
        say(f"  Diagnosed: {one['level']}, {items}, {one['distance']} distance, {reference}")
        for note in one["notes"]:
            say(f"  Note: {note}")
        console.print()
    table = Table()
    table.add_column("measure")
    for name in names:
        table.add_column(Text(name), justify="right")
    for measure in _DIAGNOSED:
        values = [one["measures"].get(measure) for one in found]
        if any(value is not None for value in values):
            table.add_row(_words(measure), *map(_number, values))
    for level in dict.fromkeys(level for one in found for level in one["measures"]["fine"]):
        for measure in ("recall@1", "fine_coarse_index"):
            values = [one["measures"]["fine"].get(level, {}).get(measure) for one in found]
            table.add_row(Text(f"{level}: {_words(measure)}"), *map(_number, values))
    for measure in _SAMPLED:
        values = [(one["measures"].get("sampling") or {}).get(measure) for one in found]
        if any(value is not None for value in values):
            table.add_row(f"batches: {_words(measure)}", *map(_number, values))
    console.print(table)
    if "report" in result:
        console.print(f"Report: {result['report']}", markup=False, highlight=False, soft_wrap=True)


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
    "retention",
    "recall@1",
    "recall",
    "chance",
    "strangers",
    "norm",
    "reference_shrinkage",
    "reference_spread",
)


def _words(measure: str) -> str:
    return {"recall": "recall@1", "chance": "recall@1 by chance", "occupied": "occupied spots", "nmi_plus": "nmi+"}.get(
        measure, measure.replace("_", " ")
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
