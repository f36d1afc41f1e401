"""The record of a sweep, of the outcomes of its trials."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

import trivet
from trivet.commands.sweep.record import (
    Sentence,
    SweepMeasurement,
    SweepRecord,
    SweepRun,
    SweepTrial,
    VariedSetting,
    setting_text,
)
from trivet.commands.sweep.search_space import Range, Sweep, Varied
from trivet.commands.sweep.study import Outcome, ranked
from trivet.commands.train.outcome import result_lines
from trivet.metrics.intervals import across_folds
from trivet.reports.run_record import RunRecord
from trivet.runtime.safe_read import read_json
from trivet.runtime.text import counted

SETTINGS, RECORD = "sweep.toml", "sweep.json"  # in the folder of a sweep
COMPARED = 4  # trials that stand for a sweep among compared runs


def run_path(candidate: int, seed: int, fold: int | None) -> Path:
    """Path of a run of a trial in the folder of a sweep."""
    return Path(f"trial-{candidate}") / (f"seed-{seed}" if fold is None else f"fold-{fold}-seed-{seed}")


def is_sweep(path: Path) -> bool:
    """Test whether a folder is that of a sweep."""
    return (path / SETTINGS).is_file()


def best_runs(path: Path, *, most: int) -> list[Path]:
    """The folders of the runs of the best trials of a sweep, best first: of four, or fewer if they have many runs.

    Raises:
        ValueError: if it has no result yet, or one that cannot be read, or its runs lie elsewhere.
    """
    try:
        record = SweepRecord.read(read_json(path / RECORD, "the record of a sweep"))
    except FileNotFoundError:
        raise ValueError(
            f"a compared sweep must have a result: {path} has none; go on with trivet sweep --join {path}."
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{path / RECORD} must be the record of a sweep: {error}; write it anew with trivet sweep --join {path}."
        ) from None
    trials = record.ranked[: max(1, min(COMPARED, most // record.runs_per_trial))]
    runs = [path / run_path(trial.number, run.seed or 0, run.fold) for trial in trials for run in trial.runs]
    lacking = next((run for run in runs if not run.is_dir()), None)
    if lacking is not None:
        raise ValueError(
            f"a compared sweep must hold the runs of its best trials: {lacking} is not there; copy it from the machine "
            "whose worker made it."
        )
    return runs


def make_record(
    sweep: Sweep,
    outcomes: Sequence[Outcome],
    *,
    status: str,
    study: str,
    storage: str,
    importance: Mapping[str, float] | None,
    tested: RunRecord | None,
    command: str,
) -> SweepRecord:
    """The record of a sweep; `storage` and `command` are without passwords.

    Args:
        tested: the record of the run with the best settings; None where there is none yet.
    """
    trials = ranked(outcomes)
    best = trials[0] if trials and trials[0].value is not None else None
    ends = sorted(outcome.ended for outcome in outcomes if outcome.ended is not None)
    settings = None if best is None else sweep.best(best.values)
    tested = None if tested is None else _on_others(tested)
    return SweepRecord(
        status=status,
        study=study,
        storage=storage,
        sampler=sweep.config.sampler,
        pruning=sweep.config.pruning,
        measure=sweep.measure,
        requested=sweep.trials,
        seeds=sweep.seeds,
        folds=[fold for fold in sweep.folds if fold is not None],
        vary=[_varied(name, varied) for name, varied in sweep.config.vary.items()],
        trials=[_trial(outcome, best, ends) for outcome in trials],
        best=None if best is None else best.candidate,
        best_settings="" if settings is None else settings.to_toml(),
        importance=None if importance is None else dict(importance),
        helped=[] if tested is None else [Sentence(tone=tone, text=text) for tone, text in result_lines(tested)],
        tested={} if tested is None else _measured(tested),
        notes=_notes(sweep, trials, best, status),
        command=command,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        trivet=trivet.__version__,
    )


def _varied(name: str, varied: Varied) -> VariedSetting:
    if isinstance(varied, Range):
        return VariedSetting(name=name, **varied.model_dump())
    return VariedSetting(name=name, choices=[setting_text(value) for value in varied])


def _trial(outcome: Outcome, best: Outcome | None, ends: Sequence[float]) -> SweepTrial:
    values = [run["value"] for run in outcome.runs]
    interval = None
    if len(values) > 1:
        ends_of = across_folds(values)[1]
        interval = [ends_of.low, ends_of.high]
    starts = [run["start"] for run in outcome.runs if run["start"] is not None]
    return SweepTrial(
        number=outcome.candidate,
        state=outcome.state,
        settings=dict(outcome.values),
        value=outcome.value,
        interval=interval,
        start=sum(starts) / len(starts) if starts else None,
        level_with_best=_level(outcome, best),
        runs=[SweepRun.read(run) for run in outcome.runs],
        why=outcome.why,
        attempts=outcome.attempts,
        measurements=[SweepMeasurement(run=run, step=step, value=value) for run, step, value in outcome.measurements],
        order=None if outcome.ended is None else ends.index(outcome.ended),
        folder=f"trial-{outcome.candidate}",
    )


def _level(outcome: Outcome, best: Outcome | None) -> bool | None:
    """Test whether the best trial is not clearly better: the interval of the difference, run by run, holds 0."""
    if best is None or outcome.value is None or outcome.candidate == best.candidate or len(outcome.runs) < 2:
        return None
    differences = [b["value"] - o["value"] for b, o in zip(best.runs, outcome.runs, strict=True)]
    return across_folds(differences)[1].low <= 0


def _on_others(tested: RunRecord) -> RunRecord:
    """The record of a run without the split by which settings, and perhaps its step, were chosen."""
    choice = tested.choosing
    chosen_by = None if choice is None else choice.split
    others = {name: rows for name, rows in tested.evaluation.items() if name != chosen_by}
    return tested.model_copy(update={"evaluation": others})


def _measured(tested: RunRecord) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Split -> level -> the trained network or what it is compared with -> measure -> value."""
    return {
        split: {
            level: {
                row.name: {name: value for name, value in row.levels[level].items() if isinstance(value, float)}
                for row in rows
            }
            for level in rows[0].levels
        }
        for split, rows in tested.evaluation.items()
        if rows
    }


def _notes(sweep: Sweep, trials: Sequence[Outcome], best: Outcome | None, status: str) -> list[str]:
    """Sentences that a reader needs beside the table."""
    failed = [outcome for outcome in trials if outcome.state == "failed"]
    notes = []
    if best is None and status == "failed":
        pruned = sum(outcome.state == "pruned" for outcome in trials)
        ended = "all failed" if len(failed) == len(trials) else f"{len(failed)} failed and {pruned} were pruned"
        why = next((outcome.why for outcome in trials if outcome.why), "")
        notes.append(f"No trial has a value: of {counted(len(trials), 'trial')} {ended}. The first says: {why}.")
    if best is None:
        return notes
    starts = [run["start"] for run in best.runs if run["start"] is not None]
    if starts and best.value is not None and best.value <= sum(starts) / len(starts):
        notes.append(
            "No trial is better on validation than its network before training: vary something else, such as the loss "
            "or the network, or begin from a pretrained one."
        )
    num_complete = sum(outcome.value is not None for outcome in trials)
    if num_complete > 1:
        notes.append(
            f"The best of {num_complete} trials is the luckiest, too: its value on validation flatters, that on the "
            "test classes does not."
        )
    level = sum(bool(_level(outcome, best)) for outcome in trials)
    if level:
        others = "1 other trial is" if level == 1 else f"{level} other trials are"
        notes.append(f"{others} as good as the best as far as {counted(len(best.runs), 'run')} can tell.")
    elif len(best.runs) == 1 and num_complete > 1:
        notes.append("Each trial is one run: what another seed or fold would change is not known; set sweep.seeds = 3.")
    ends = _at_an_end(sweep, best)
    if ends:
        notes.append(f"The best value is at an end of its range for {', '.join(ends)}: better ones may lie beyond.")
    return notes


def _at_an_end(sweep: Sweep, best: Outcome) -> list[str]:
    return [
        name
        for name, varied in sweep.config.vary.items()
        if isinstance(varied, Range) and name in best.values and best.values[name] in (varied.low, varied.high)
    ]
