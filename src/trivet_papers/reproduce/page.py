"""The pages of `trivet reproduce`: one for each paper, and a front page with the verdict on every claim."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trivet.io.atomic_files import write_atomic
from trivet.reports.page import MISSING, duration, write_page
from trivet.runtime.text import counted
from trivet_papers.reproduce.record import CellRecord, ClaimRecord, ExperimentRecord, PartRecord, ReproductionRecord

VERDICTS = ("holds", "does not hold", "cannot tell", "not comparable", "not run")
_TONES = {"holds": "good", "does not hold": "bad", "cannot tell": "warn", "not comparable": "calm", "not run": "calm"}
_OF_SEVERAL = {"holds": "hold", "does not hold": "do not hold"}
_SIZES = {
    "here": "Stand-ins: other data and smaller networks than the papers'. The numbers are not comparable with the "
    "printed ones; the verdicts are on what the papers claim of them.",
    "paper": "The published protocols.",
}


def write_reproduction(record: ReproductionRecord, path: Path) -> None:
    """Write the page of one paper, without scripts.

    Raises:
        OSError: if the file cannot be written.
    """
    experiments = [_shown(one) for one in record["experiments"]]
    context = {
        "record": record,
        "experiments": experiments,
        "size": _SIZES[record["size"]],
        "counts": _counts(record["experiments"]),
    }
    write_page("reproduction.html", path, context)


def write_front_page(records: Sequence[ReproductionRecord], path: Path, *, command: str, runs: str) -> None:
    """Write the front page of all papers, Markdown: the verdict on each claim, with what it rests on.

    Raises:
        OSError: if the file cannot be written.
    """
    every = [one for record in records for one in record["experiments"]]
    size = records[0]["size"]
    lines = [
        "# Which of the papers' claims hold",
        "",
        f"{_sentence(every)} {_SIZES[size]}",
        "",
        f"| paper | {' | '.join(VERDICTS)} |",
        "|---" * (1 + len(VERDICTS)) + "|",
        *(_row(record) for record in records),
        "",
        "A claim *holds* if the 95 % interval of its number over the seeds (Student's t) lies above 0, *does not hold* "
        "if it lies below, and else we *cannot tell*. Where a claim is of all of several losses, batches or times, it "
        "has a number for each: it holds if all lie above 0, and does not hold if one lies below, at a level corrected "
        "for their count; the one that decides is shown. Each interval is of one claim alone, and claims share runs.",
        "",
        f"Written by `{command}` from the runs in `{runs}`; how to run them, and what they "
        "need: [reproduce.md](../reproduce.md).",
    ]
    for record in records:
        lines += ["", f'<a id="{record["paper"]}"></a>', "", f"## {record['title']}", ""]
        lines += [f"Tables, figures and protocols: [{record['paper']}-{size}.html]({record['paper']}-{size}.html)", ""]
        lines += ["| experiment | claim | verdict | measured | seeds |", "|---|---|---|---|---|"]
        for one in record["experiments"]:
            for number, claim in enumerate(one["claims"]):
                name = f"**{one['key'].partition('-')[2]}** {one['title']}" if number == 0 else ""
                verdict = f"**{claim['verdict']}**" + (f": {claim['why']}" if claim["why"] else "")
                cells = (name, claim["sentence"], verdict, f"{claim['says']}: {measured(claim)}", seeds(claim))
                lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    lines += ["", "## What was run", "", "| experiment | runs | processor time | dates | versions | hardware |"]
    lines.append("|---|---|---|---|---|---|")
    for one in every:
        failed = f", {one['failed']} without a result" if one["failed"] else ""
        facts = (
            one["key"],
            f"{one['runs']} of {one['planned']}{failed}",
            duration(one["seconds"]),
            _span(one["dates"]),
            "; ".join(one["versions"]),
            "; ".join(one["hardware"]),
        )
        lines.append("| " + " | ".join(facts) + " |")
    total = counted(sum(record["runs"] for record in records), "run")
    spent = duration(math.fsum(record["seconds"] for record in records))
    lines += ["", f"Runs that two experiments share are counted in both. In all: {total}, {spent} of a processor."]
    write_atomic(path, ("\n".join(lines) + "\n").encode())


def _row(record: ReproductionRecord) -> str:
    """How many claims of a paper have each verdict."""
    found = _found(record["experiments"])
    link = f"[{record['title'].partition(':')[0]}](#{record['paper']})"
    return f"| {link} | " + " | ".join(str(found[verdict]) for verdict in VERDICTS) + " |"


def _sentence(every: Sequence[ExperimentRecord]) -> str:
    claims = [claim for one in every for claim in one["claims"]]
    return f"{counted(len(claims), 'claim')} of {counted(len(every), 'experiment')}: {', '.join(_counts(every))}."


def _found(experiments: Sequence[ExperimentRecord]) -> Counter[str]:
    return Counter(claim["verdict"] for one in experiments for claim in one["claims"])


def _counts(experiments: Sequence[ExperimentRecord]) -> list[str]:
    """How many claims have each verdict, in words."""
    found = _found(experiments)
    return [
        f"{found[verdict]} {_OF_SEVERAL.get(verdict, verdict) if found[verdict] > 1 else verdict}"
        for verdict in VERDICTS
        if found[verdict]
    ]


def _shown(one: ExperimentRecord) -> dict[str, Any]:
    return {
        "record": one,
        "claims": [
            {
                **claim,
                "tone": _TONES[claim["verdict"]],
                "measured": measured(claim),
                "others": [f"{part['name']}: {_number(part, claim['unit'])}" for part in claim["parts"][1:]],
                "seeds": seeds(claim),
            }
            for claim in one["claims"]
        ],
        "tables": [
            {
                **table,
                "printed": any(cell["printed"] for row in table["rows"] for cell in row["cells"]),
                "rows": [
                    {
                        "head": row["head"],
                        "cells": [
                            {"ours": _cell(cell, share=column["share"]), "printed": cell["printed"]}
                            for cell, column in zip(row["cells"], table["columns"], strict=True)
                        ],
                    }
                    for row in table["rows"]
                ],
            }
            for table in one["tables"]
        ],
        "protocol": [(name, text) for name, text in _protocol(one) if text],
    }


def _protocol(one: ExperimentRecord) -> list[tuple[str, str]]:
    failed = f"{one['failed']} ended without a result" if one["failed"] else ""
    runs = [f"{one['runs']} of {one['planned']}, {counted(one['seeds'], 'seed')}", failed]
    runs += [f"{duration(one['seconds'])} of a processor", _span(one["dates"]), *one["versions"], *one["hardware"]]
    return [
        ("data", one["data"]),
        ("setting", one["setting"]),
        ("not given in the paper", one["chosen"]),
        ("as a stand-in", one["fair"]),
        ("runs", "; ".join(filter(None, runs)) if one["runs"] else f"0 of {one['planned']}"),
    ]


def _cell(cell: CellRecord, *, share: bool) -> str:
    """The mean, and the standard deviation over the seeds."""
    values = [100 * value if share else value for value in cell["values"]]
    if not values:
        return MISSING
    digits = 1 if share else 3
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def measured(claim: ClaimRecord) -> str:
    """The number of a claim with its interval, in words: that of the part that decides, by name."""
    if not claim["parts"]:
        return MISSING
    decides = claim["parts"][0]
    name = f"lowest of {len(claim['parts'])}, {decides['name']}: " if decides["name"] else ""
    return name + _number(decides, claim["unit"])


def _number(part: PartRecord, unit: str) -> str:
    def told(value: float) -> str:
        text = f"{100 * value:+.1f}" if unit == "points" else f"{value:+.3g}"
        return text.replace("-", "−")

    ends = part["interval"]
    return told(part["mean"]) + ("" if ends is None else f" ({told(ends[0])} to {told(ends[1])})")


def seeds(claim: ClaimRecord) -> int:
    """How many seeds a claim rests on."""
    return len(claim["parts"][0]["values"]) if claim["parts"] else 0


def _span(dates: Sequence[str]) -> str:
    if not dates:
        return MISSING
    return dates[0] if len(set(dates)) == 1 else f"{min(dates)} to {max(dates)}"
