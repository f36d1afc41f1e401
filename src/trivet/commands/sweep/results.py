"""The record of a sweep, of the outcomes of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trivet.commands.sweep.record import (
    Sentence,
    SweepRecord,
    SweepTrial,
    VariedSetting,
    setting_text,
)
from trivet.commands.sweep.search_space import Range, Sweep, Varied
from trivet.commands.sweep.study import Study, best_of, ranked
from trivet.commands.train.outcome import result_lines
from trivet.metrics.intervals import across_folds, interval_json
from trivet.reports.run_record import RunRecord
from trivet.runtime.safe_read import read_json
from trivet.runtime.text import counted, typed

SETTINGS, RECORD = "sweep.toml", "sweep.json"  # in the folder of a sweep
COMPARED = 4  # trials that stand for a sweep among compared runs


def run_path(candidate: int, seed: int, fold: int | None) -> Path:
    """Path of a run of a trial in the folder of a sweep."""
    return Path(f"trial-{candidate}") / (f"seed-{seed}" if fold is None else f"fold-{fold}-seed-{seed}")


def is_sweep(path: Path) -> bool:
    """Test whether a folder is that of a sweep."""
    return (path / SETTINGS).is_file()


def best_runs(path: Path, *, most: int) -> list[Path]:
    """The folders of the runs of the best trials of a sweep, best first: of four, or fewer if they have many runs."""
    try:
        record = SweepRecord.read(read_json(path / RECORD, "the record of a sweep"))
    except FileNotFoundError:
        raise ValueError(
            f"a compared sweep must have a result: {path} has none; go on with trivet sweep --join {typed(path)}."
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{path / RECORD} must be the record of a sweep: {error}; write it anew with trivet sweep --join "
            f"{typed(path)}."
        ) from None
    trials = record.ranked[: max(1, min(COMPARED, most // record.runs_per_trial))]
    runs = [path / run_path(trial.number, run.seed, run.fold) for trial in trials for run in trial.runs]
    lacking = next((run for run in runs if not run.is_dir()), None)
    if lacking is not None:
        raise ValueError(
            f"a compared sweep must hold the runs of its best trials: {lacking} is not there; copy it from the machine "
            "whose worker made it."
        )
    return runs


def make_record(
    sweep: Sweep, study: Study, *, status: str, storage: str, tested: RunRecord | None, command: str
) -> SweepRecord:
    """The record of a sweep.

    Args:
        storage, command: without passwords.
        tested: the record of the run with the best settings; None where there is none yet.
    """
    trials = ranked(study.outcomes())
    best = best_of(trials)
    ends = sorted(trial.ended for trial in trials if trial.ended is not None)
    for trial in trials:
        values = [run.value for run in trial.runs]
        starts = [run.start for run in trial.runs if run.start is not None]
        trial.interval = interval_json(across_folds(values)[1]) if len(values) > 1 else None
        trial.start = sum(starts) / len(starts) if starts else None
        trial.level_with_best = _level(trial, best)
        trial.order = None if trial.ended is None else ends.index(trial.ended)
    settings = None if best is None else sweep.best(best.settings)
    others = None if tested is None else _on_others(tested)
    return SweepRecord(
        status=status,
        study=study.name,
        storage=storage,
        sampler=sweep.config.sampler,
        pruning=sweep.config.pruning,
        measure=sweep.measure,
        requested=sweep.trials,
        seeds=sweep.seeds,
        folds=[fold for fold in sweep.folds if fold is not None],
        vary=[_varied(name, varied) for name, varied in sweep.config.vary.items()],
        trials=trials,
        best=None if best is None else best.number,
        best_settings="" if settings is None else settings.to_toml(),
        importance=study.importance(),
        helped=[Sentence(tone=tone, text=text) for tone, text in (result_lines(others) if others else ())],
        tested=_measured(others) if others else {},
        notes=_notes(sweep, trials, best, status),
    ).stamped(command)


def _varied(name: str, varied: Varied) -> VariedSetting:
    if isinstance(varied, Range):
        return VariedSetting(name=name, **varied.model_dump())
    return VariedSetting(name=name, choices=[setting_text(value) for value in varied])


def _level(trial: SweepTrial, best: SweepTrial | None) -> bool | None:
    """Test whether the best trial is not clearly better: the interval of the difference, run by run, holds 0."""
    if best is None or trial.value is None or trial.number == best.number or len(trial.runs) < 2:
        return None
    differences = [first.value - other.value for first, other in zip(best.runs, trial.runs, strict=True)]
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


def _notes(sweep: Sweep, trials: Sequence[SweepTrial], best: SweepTrial | None, status: str) -> list[str]:
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
    if best.start is not None and best.value is not None and best.value <= best.start:
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
    level = sum(bool(trial.level_with_best) for trial in trials)
    if level:
        others = "1 other trial is" if level == 1 else f"{level} other trials are"
        notes.append(f"{others} as good as the best as far as {counted(len(best.runs), 'run')} can tell.")
    elif len(best.runs) == 1 and num_complete > 1:
        notes.append("Each trial is one run: what another seed or fold would change is not known; set sweep.seeds = 3.")
    ends = _at_an_end(sweep, best)
    if ends:
        notes.append(f"The best value is at an end of its range for {', '.join(ends)}: better ones may lie beyond.")
    return notes


def _at_an_end(sweep: Sweep, best: SweepTrial) -> list[str]:
    return [
        name
        for name, varied in sweep.config.vary.items()
        if isinstance(varied, Range) and name in best.settings and best.settings[name] in (varied.low, varied.high)
    ]
