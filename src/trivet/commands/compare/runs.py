"""The runs that `trivet compare` sets side by side: read, named apart, and grouped by their settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.commands.compare.record import TrainingSeries
from trivet.commands.sweep.results import best_runs, is_sweep
from trivet.commands.train.folds import is_cross_validation
from trivet.config.base import flat
from trivet.io.embedding_table import Vectors
from trivet.metrics import Retrieval
from trivet.reports.run_record import RunRecord
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.text import distinct_names, typed
from trivet.training.run_folder import CONFIG, RunFolder

JUDGED = "recall@1"
MOST = 24  # runs on a page: of more, neither curves nor tables can be read
REPEATED = ("seed", "data.fold")  # the settings in which repetitions of a run differ


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run with what it has written.

    Attributes:
        name: no other run that is compared has it.
        settings: "section.key" -> the value as JSON; those that are not set are left out.
        splits: the evaluation splits whose embeddings it holds, the main one first.
    """

    name: str
    folder: RunFolder
    record: RunRecord
    settings: Mapping[str, Any]
    splits: tuple[str, ...]

    @property
    def repetition(self) -> tuple[Any, ...]:
        """Its seed and its fold: a run is paired with that of the other side which has the same."""
        return tuple(self.settings.get(name) for name in REPEATED)


@dataclass(frozen=True, eq=False)
class Measured:
    """The stored embeddings of a run on a split, with the measures of each query.

    Attributes:
        queries: positions `(Q,)` of the queries.
        levels: level -> its measures, of the queries in that order.
        recorded: whether the record of the run is about these items.
    """

    run: StoredRun
    split: str
    vectors: Vectors
    queries: Integers
    levels: Mapping[str, Retrieval]
    recorded: bool

    @property
    def title(self) -> str:
        """The run and the split, for messages."""
        return f"{self.run.name} ({self.split})"

    @property
    def query_ids(self) -> npt.NDArray[np.str_]:
        """Ids `(Q,)` of the queries."""
        return np.array(self.vectors.names())[self.queries]

    def knows(self, level: str) -> bool:
        """Return whether the run was trained on the classes of the split, by what its record says of its references."""
        compared = self.run.record.comparisons.get(self.split, {}).get(level, [])
        return bool(compared) and compared[0].known_classes

    def column(self, level: str, measure: str) -> Floats:
        """`(Q,)` a measure of each query."""
        retrieval = self.levels[level]
        values: Floats = retrieval.values[:, retrieval.measures.index(measure)]
        return values


@dataclass(frozen=True, eq=False)
class Side:
    """Runs that differ in nothing but the seed or the fold."""

    name: str
    runs: tuple[StoredRun, ...]


def read_runs(paths: Sequence[Path]) -> list[StoredRun]:
    """The runs in these folders; of a cross-validation, those of its folds, and of a sweep those of its best trials."""
    folders = [folder for path in paths for folder in _folders(path)]
    resolved = [folder.resolve() for folder in folders]
    for number, resolved_path in enumerate(resolved):
        if resolved_path in resolved[:number]:
            raise ValueError(f"compared runs must be different: {folders[number]} is given twice; leave one out.")
    if not 2 <= len(folders) <= MOST:
        raise ValueError(f"compare takes 2 to {MOST} runs: got {len(folders)}; give the folders of some runs.")
    return [_read(folder, name) for folder, name in zip(folders, distinct_names(resolved), strict=True)]


def sides_of(runs: Sequence[StoredRun]) -> list[Side]:
    """The runs by their settings, in the order in which they were given; each alone where all have the same."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        shared = {name: value for name, value in run.settings.items() if name not in REPEATED}
        groups.setdefault(json.dumps(shared, sort_keys=True), []).append(run)
    if len(groups) == 1:
        return [Side(run.name, (run,)) for run in runs]
    taken = {run.name for run in runs}
    return [Side(_called(group, taken), tuple(group)) for group in groups.values()]


def pairs_of(first: Side, other: Side) -> list[tuple[StoredRun, StoredRun]]:
    """Pairs of runs: each of the other side with that of the first which has its seed and fold, else with the very
    first."""
    partners = {run.repetition: run for run in reversed(first.runs)}
    return [(run, partners.get(run.repetition, first.runs[0])) for run in other.runs]


def _folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise ValueError(
            f"compare takes the folders of runs: {path} is a file; compare files with trivet evaluate FILE FILE."
        )
    if is_sweep(path):
        return best_runs(path, most=MOST)
    if not is_cross_validation(path):
        return [path]
    folds = [item for item in path.glob("fold-*") if item.name.removeprefix("fold-").isdecimal()]
    made = [item for item in folds if (item / CONFIG).is_file()]
    if not made:
        raise ValueError(
            f"a cross-validation must hold a run: {path} has none; go on with trivet train --resume {typed(path)}."
        )
    return sorted(made, key=lambda item: int(item.name.removeprefix("fold-")))


def _read(path: Path, name: str) -> StoredRun:
    folder = RunFolder.open(path)
    record = folder.record()
    if record is None:
        raise ValueError(
            f"a compared run must have a record: {path} has none that can be read; write it with trivet evaluate "
            f"{typed(path)}, or go on with trivet train --resume {typed(path)}."
        )
    settings = {key: value for key, value in flat(folder.config().model_dump(mode="json")).items() if value is not None}
    stored = [split for split in record.evaluation if (path / "embeddings" / f"{split}.parquet").is_file()]
    return StoredRun(name, folder, record, settings, tuple(stored))


def _called(group: Sequence[StoredRun], taken: set[str]) -> str:
    """Common prefix of the names of its runs; where that is no name, the first of them and how many more there are."""
    first, *others = (run.name for run in group)
    if not others:
        return first
    length = next((n for n in range(len(first)) if any(name[: n + 1] != first[: n + 1] for name in others)), len(first))
    name = re.sub(r"([-_. /]+|[-_. /](seed|fold))+$", "", first[:length])
    if not name or name in taken:
        name = f"{first} and {len(others)} more"
    taken.add(name)
    return name


def training_of(record: RunRecord) -> TrainingSeries:
    """The series of a run over its steps."""
    training, validation = record.curves, record.validation
    series = {
        "loss": training.loss,
        "active": training.active,
        "hard": training.hard,
        "d_ap": training.d_ap,
        "d_an": training.d_an,
        "dropped": training.dropped,
    }
    return TrainingSeries(
        step=training.step,
        series={name: values for name, values in series.items() if len(values) == len(training.step)},
        validation_step=validation.step,
        recall=validation.recall,
    )
