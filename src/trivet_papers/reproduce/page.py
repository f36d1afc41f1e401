"""The pages of `trivet reproduce`: one for each paper, and a front page with the verdict on every claim."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from trivet.io.atomic_files import write_atomic
from trivet.reports.page import MISSING, duration, write_page
from trivet.runtime.text import counted
from trivet_papers.experiment import ClaimNumber, JudgedClaim
from trivet_papers.reproduce.record import CellRecord, ExperimentRecord, ReproductionRecord

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
    context = {"record": record, "size": _SIZES[record.size], "counts": _counts(record.experiments), "tones": _TONES}
    says = {
        "measured": measured,
        "number": _number,
        "remarks": remarks,
        "seeds": seeds,
        "shown": _cell,
        "protocol": _protocol,
    }
    write_page("reproduction.html", path, context | says)


def write_front_page(records: Sequence[ReproductionRecord], path: Path, *, command: str, runs: str) -> None:
    """Write the front page of all papers, Markdown: the verdict on each claim, with what it rests on.

    Raises:
        OSError: if the file cannot be written.
    """
    every = [experiment for record in records for experiment in record.experiments]
    size = records[0].size
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
        "for their count; the one that decides is shown. An effect of less than .2 points makes no claim hold, and "
        "runs that do not put a claim to the test decide nothing. Each interval is of one claim alone, and claims "
        "share runs. Counted are the papers' claims, those that rest on one number once; our additions say so.",
        "",
        f"Written by `{command}` from the runs in `{runs}`; how to run them, and what they "
        "need: [reproduce.md](../reproduce.md).",
    ]
    for record in records:
        lines += ["", f'<a id="{record.paper}"></a>', "", f"## {record.title}", ""]
        lines += [f"Tables, figures and protocols: [{record.paper}-{size}.html]({record.paper}-{size}.html)", ""]
        lines += ["| experiment | claim | verdict | measured | seeds |", "|---|---|---|---|---|"]
        for experiment in record.experiments:
            for number, claim in enumerate(experiment.claims):
                name = f"**{experiment.key.partition('-')[2]}** {experiment.title}" if number == 0 else ""
                verdict = f"**{claim.verdict}**" + (f": {remarks(claim)}" if remarks(claim) else "")
                cells = (name, claim.sentence, verdict, f"{claim.says}: {measured(claim)}", seeds(claim))
                lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    lines += ["", "## What was run", "", "| experiment | runs | processor time | dates | versions | hardware |"]
    lines.append("|---|---|---|---|---|---|")
    for experiment in every:
        failed = f", {experiment.failed} without a result" if experiment.failed else ""
        facts = (
            experiment.key,
            f"{experiment.runs} of {experiment.planned}{failed}",
            duration(experiment.seconds),
            _span(experiment.dates),
            "; ".join(experiment.versions),
            "; ".join(experiment.hardware),
        )
        lines.append("| " + " | ".join(facts) + " |")
    total = counted(sum(record.runs for record in records), "run")
    spent = duration(math.fsum(record.seconds for record in records))
    lines += ["", f"Runs that two experiments share are counted in both. In all: {total}, {spent} of a processor."]
    write_atomic(path, ("\n".join(lines) + "\n").encode())


def _row(record: ReproductionRecord) -> str:
    """The row of a paper: the number of claims with each verdict."""
    counts = verdict_counts(record.experiments)
    link = f"[{record.title.partition(':')[0]}](#{record.paper})"
    return f"| {link} | " + " | ".join(str(counts[verdict]) for verdict in VERDICTS) + " |"


def _sentence(every: Sequence[ExperimentRecord]) -> str:
    claims = [claim for experiment in every for claim in experiment.claims]
    ours = sum(claim.ours for claim in claims)
    shared = sum(bool(claim.same_as) for claim in claims if not claim.ours)
    rest = counted(len(claims) - ours - shared, "claim")
    more = f" Beside them: {shared} that share their number with another, and {ours} of ours."
    return f"{rest} of {counted(len(every), 'experiment')}: {', '.join(_counts(every))}." + more * bool(ours + shared)


def verdict_counts(experiments: Sequence[ExperimentRecord]) -> Counter[str]:
    """Counts of the paper's claims, those that share their number once."""
    claims = [claim for experiment in experiments for claim in experiment.claims]
    return Counter(claim.verdict for claim in claims if not (claim.ours or claim.same_as))


def _counts(experiments: Sequence[ExperimentRecord]) -> list[str]:
    """The number of claims with each verdict, in words."""
    counter = verdict_counts(experiments)
    return [
        f"{counter[verdict]} {_OF_SEVERAL.get(verdict, verdict) if counter[verdict] > 1 else verdict}"
        for verdict in VERDICTS
        if counter[verdict]
    ]


def _protocol(experiment: ExperimentRecord) -> list[tuple[str, str]]:
    failed = f"{experiment.failed} ended without a result" if experiment.failed else ""
    runs = [f"{experiment.runs} of {experiment.planned}, {counted(experiment.seeds, 'seed')}", failed]
    runs += [
        f"{duration(experiment.seconds)} of a processor",
        _span(experiment.dates),
        *experiment.versions,
        *experiment.hardware,
    ]
    return [
        ("data", experiment.data),
        ("setting", experiment.setting),
        ("not given in the paper", experiment.chosen),
        ("as a stand-in", experiment.fair),
        ("runs", "; ".join(filter(None, runs)) if experiment.runs else f"0 of {experiment.planned}"),
    ]


def _cell(cell: CellRecord, share: bool) -> str:
    """The mean, and the standard deviation over the seeds."""
    values = [100 * value if share else value for value in cell.values]
    if not values:
        return MISSING
    digits = 1 if share else 3
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def measured(claim: JudgedClaim) -> str:
    """The number of a claim with its interval, in words: that of the part that decides, by name."""
    if not claim.outcomes:
        return MISSING
    decides = claim.outcomes[0]
    name = f"lowest of {len(claim.outcomes)}, {decides.name}: " if decides.name else ""
    return name + _number(decides, claim.unit)


def remarks(claim: JudgedClaim) -> str:
    """Notes on a verdict: its reason, whose claim it is, and where its number stands already."""
    same = f"the number of {claim.same_as}" if claim.same_as else ""
    return "; ".join(filter(None, (claim.why, "a claim of ours" if claim.ours else "", same)))


def _number(outcome: ClaimNumber, unit: str) -> str:
    def formatted(value: float) -> str:
        return f"{100 * value:+.1f}" if unit == "points" else f"{value:+.3g}"

    ends = outcome.interval
    return formatted(outcome.mean) + ("" if ends is None else f" ({formatted(ends[0])} to {formatted(ends[1])})")


def seeds(claim: JudgedClaim) -> int:
    """The number of seeds that a claim rests on."""
    return len(claim.outcomes[0].values) if claim.outcomes else 0


def _span(dates: Sequence[str]) -> str:
    if not dates:
        return MISSING
    return dates[0] if len(set(dates)) == 1 else f"{min(dates)} to {max(dates)}"
