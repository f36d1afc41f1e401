"""The folder of a run: its files, its lock, its settings and record, the rows of `metrics.csv`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import create_model

from trivet.config.base import Config, read_settings
from trivet.config.plugins import is_reference, settings_of
from trivet.datasets import Splits
from trivet.io.atomic_files import commit_new, filled_folder, locked_folder, recover, write_atomic, write_json
from trivet.io.csv_files import csv_rows, csv_text
from trivet.models import Embedder, load_model
from trivet.models.store import WEIGHTS
from trivet.models.towers import SIDES, SideName
from trivet.reports.ladder_record import LadderRecord
from trivet.reports.run_record import RunRecord
from trivet.runtime.fingerprint import file_fingerprint, fingerprint
from trivet.runtime.safe_read import read_json
from trivet.runtime.text import typed
from trivet.training.config import RunConfig
from trivet.training.loggers import LOGS

CONFIG, METRICS, RECORD, REPORT = "config.toml", "metrics.csv", "record.json", "report.html"
NOISE, DECISIONS, CLEANING = "noise.csv", "applied_decisions.csv", "cleaning.csv"
LADDER, LADDER_CONFIG, CANDIDATES = "ladder.json", "ladder.toml", "candidates"  # of a run that was the best of several
ITEMS = "items.parquet"  # of a run on items in memory
FILES = (CONFIG, METRICS, RECORD, REPORT, NOISE, DECISIONS, CLEANING)
MODEL, MODEL_LAST, MODEL_BEST = "model", "model-last", "model-best"
FOLDERS = ("checkpoints", MODEL, MODEL_LAST, MODEL_BEST, "embeddings", LOGS)
NAMES = frozenset((*FILES, *FOLDERS, LADDER, LADDER_CONFIG, CANDIDATES, ITEMS))
Which = Literal["last", "best"]
FOLDS, FOLDS_CONFIG = "folds.json", "folds.toml"  # of a folder whose folders are the runs of a cross-validation


def write_noise(path: Path, splits: Splits) -> None:
    """Write the training items with a wrong label as `id,label,true_label`, if the data have label noise.

    Raises:
        ValueError: if the file is there and says otherwise: a run must resume with the same labels.
    """
    if splits.noise is None:
        return
    names, labels, truth = splits.train.names[splits.level], splits.train.labels[splits.level], splits.noise.true_labels
    wrong = np.flatnonzero(labels != truth).tolist()
    rows = ((splits.train.ids[i], names[labels[i]], names[truth[i]]) for i in wrong)
    data = csv_text([("id", "label", "true_label"), *rows]).encode()
    if path.is_file() and path.read_bytes() != data:
        raise ValueError(
            f"a run must resume with the same labels: {path} lists different wrong labels from those the settings "
            "give for these data; restore the data and config.toml, or start a new run."
        )
    write_atomic(path, data)


def is_unfinished_ladder(path: Path) -> bool:
    """True if a folder holds candidates, and no run of the best of them yet."""
    return (path / LADDER_CONFIG).is_file() and not (path / CONFIG).is_file()


def candidate_file(run: Path, name: str, suffix: str) -> Path:
    """The file of a candidate of a ladder: "toml" for its settings, "npz" for its scores."""
    plain = "".join(character if character.isalnum() or character in "-_." else "-" for character in name)
    return run / CANDIDATES / f"{plain}.{suffix}"


class RunFolder:
    """A run on disk: `config.toml`, `metrics.csv`, `checkpoints/`, `model/`, `embeddings/`, `record.json`, report.

    Where there is something to choose by, `model-last/` or `model-best/` holds what `model/` does not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._config: RunConfig | None = None

    @contextmanager
    def new(self, config: RunConfig, *, force: bool) -> Iterator[None]:
        """Make the folder, which must be new unless `force` is set, for the block that fills it.

        One where a ladder has found the settings gets them.

        Raises:
            ValueError: if the folder exists and may not be replaced, or holds the items.
            OSError: if it cannot be written.
        """
        ladder = self.ladder()
        if ladder is not None and ladder.result and not (self.path / CONFIG).exists():
            with self.locked():
                write_atomic(self.path / CONFIG, config.to_toml().encode())
                self._config = config
                yield
            return
        items = (self.path / ITEMS).resolve()
        if any(isinstance(value, Path) and value.resolve() == items for _, value in config.data):
            raise ValueError(
                f"a run must not replace what it is trained on: {items} holds the items; name another folder with "
                "--output."
            )
        with filled_folder(
            self.path,
            NAMES,
            mark=LADDER_CONFIG if is_unfinished_ladder(self.path) else CONFIG,
            what="a run",
            force=force,
            ended=self.ended,
            go_on=f", or continue it with trivet train --resume {typed(self.path)}",
        ):
            write_atomic(self.path / CONFIG, config.to_toml().encode())
            self._config = config
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing this run meanwhile.

        Raises:
            ValueError: if another process is writing it, or a file is where a folder should be, or the reverse.
        """
        with locked_folder(self.path, NAMES, what="a run", ended=self.ended):
            for folder in (self.path, *(self.path / name for name in (*FOLDERS, CANDIDATES))):
                for item in folder.iterdir() if folder.is_dir() else ():
                    if item.is_symlink():
                        raise ValueError(
                            f"a run must hold its files itself: {item} is a link to {os.readlink(item)}, where others "
                            "may be; put what it leads to in its place."
                        )
            for names, right, kind in ((FILES, Path.is_file, "file"), (FOLDERS, Path.is_dir, "folder")):
                for item in (self.path / name for name in names):
                    if item.exists() and not right(item):
                        raise ValueError(
                            f"{item} must be a {kind}: it is none; move it away, or start a new run with --force."
                        )
            yield

    def discard(self) -> None:
        """Remove what was written so far: nothing was trained."""
        for name in FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)

    def ended(self) -> bool:
        """True if the run is complete."""
        record = self.record()
        return record is not None and record.status in ("finished", "stopped")

    def keep(self) -> None:
        """The run is worth keeping from now on: one that it replaces is not put back any more."""
        commit_new(self.path)
        if (self.path.parent / FOLDS_CONFIG).is_file():
            commit_new(self.path.parent)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """An existing run.

        Raises:
            ValueError: if the folder holds no run.
        """
        path = Path(path)  # a str will do
        recover(path, NAMES)
        if not (path / CONFIG).is_file():
            raise ValueError(f"a run folder must hold {CONFIG}: {path} does not; give the folder `trivet train` made.")
        return cls(path)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.resolve().name

    def config(self) -> RunConfig:
        """The settings of the run as its user gave them, but with its own copy of a decision file."""
        if self._config is None:
            with settings_of(self.path):
                self._config = RunConfig.read(self.path / CONFIG)
        config = self._config
        if config.data.decisions is None:
            return config
        return config.model_copy(update={"data": config.data.model_copy(update={"decisions": self.path / DECISIONS})})

    def section(self, name: Literal["data", "model", "evaluation", "choosing"]) -> Any:
        """One section of the settings, for which no code is loaded: of what is outside Trivet it has the shared keys.

        Raises:
            ValueError: if it is not what it must be.
        """
        kind: Any = RunConfig.model_fields[name].annotation
        values = read_settings(self.path / CONFIG).get(name, {})
        if isinstance(values, Mapping) and is_reference(values.get("name")):
            fields: dict[str, Any] = {key: (field.annotation, field) for key, field in kind.model_fields.items()}
            kind, values = (
                create_model(kind.__name__, __base__=Config, **fields),
                {key: value for key, value in values.items() if key in fields},
            )
        return kind.parse(values, source=f"{self.path / CONFIG}: [{name}]")

    def change(self, changes: Sequence[str]) -> None:
        """Write the settings with others in place of some, "section.key=value"."""
        with settings_of(self.path):
            self._config = RunConfig.read(self.path / CONFIG, changes)
        write_atomic(self.path / CONFIG, self._config.to_toml().encode())

    def record(self) -> RunRecord | None:
        """The record of the run so far; None where nothing, or nothing readable, was written.

        Raises:
            ValueError: if a part of it is not what it must be.
        """
        path = self.path / RECORD
        try:
            record = read_json(path, "the record of a run")
        except (FileNotFoundError, IsADirectoryError, ValueError):
            return None
        if not isinstance(record, dict):
            return None
        try:
            return RunRecord.read(record)
        except ValueError as error:
            raise ValueError(f"{path} must be the record of a run: {error}; restore it, or delete it.") from None

    def ladder(self) -> LadderRecord | None:
        """The candidates of which the run is the best; None where it was not one of several."""
        file = self.path / LADDER
        return LadderRecord.read(read_json(file, "the record of a ladder")) if file.is_file() else None

    def write_record(self, record: RunRecord) -> RunRecord:
        """Write `record.json` whole, with all its keys; returns the record."""
        write_json(self.path / RECORD, record.as_json())
        return record

    def checkpoints(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*.safetensors"))


class Metrics:
    """`metrics.csv`: a row for each logged step. Columns of a row that have nothing to say are empty."""

    def __init__(self, path: Path, columns: list[str], *, upto: int = 0, known: Collection[int] = ()) -> None:
        """Start the file, or keep its rows up to a step, to go on after them.

        Args:
            known: steps of rows that the file must have.

        Raises:
            ValueError: if the file was cut short.
        """
        self.columns = ["step", *columns]
        self._path = path
        self.rows = [row for row in self._read() if row["step"] <= upto] if upto else []
        steps = {row["step"] for row in self.rows}
        missing = [step for step in known if step <= upto and step not in steps]
        if missing and upto:
            raise self._cut_short(len(self.rows), f"the row of step {missing[0]} is missing")
        write_atomic(path, csv_text([self.columns, *map(self._cells, self.rows)]).encode())

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Append a row."""
        row = {"step": step, **values}
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(csv_text([self._cells(row)]))

    def series(self, *columns: str) -> dict[str, list[float | None]]:
        """The rows that have the first column: one list per column, the step too; None where a row has none."""
        rows = [row for row in self.rows if columns[0] in row]
        return {column: [row.get(column) for row in rows] for column in ("step", *columns)}

    def _cells(self, row: Mapping[str, float]) -> list[str]:
        return [repr(row[column]) if column in row else "" for column in self.columns]

    def _read(self) -> list[dict[str, float]]:
        try:
            names, lines = csv_rows(self._path)
            rows = [
                {key: int(text) if key == "step" else float(text) for key, text in row.items() if text}
                for _, row in lines
                if None not in row.values()
            ]
            ended = self._path.read_bytes().endswith(b"\n")
        except (FileNotFoundError, ValueError, TypeError) as error:
            raise ValueError(
                f"{self._path} must hold the metrics of the run so far: {error}; restore it, or start a new run."
            ) from None
        if len(rows) < len(lines) or not ended or not names:
            raise self._cut_short(len(rows) - (not ended and len(rows) == len(lines) > 0), "its last row is not whole")
        return rows

    def _cut_short(self, rows: int, what: str) -> ValueError:
        return ValueError(
            f"{self._path} must hold the metrics of the run so far: it was cut short, {what} ({rows} rows are whole); "
            "restore it, or start a new run."
        )


def trained_model(run: RunFolder, which: Which | None = None) -> Embedder:
    """The model of a run, in evaluation mode.

    Args:
        which: that of the last step, or the best; the one that was measured, if not given.

    Raises:
        ValueError: if the run has none, or it is broken, or its weights are not finite.
    """
    folder = model_folder(run, which)
    with settings_of(run.path):
        model = load_model(folder)
    broken = [name for name, values in model.state_dict().items() if not bool(values.isfinite().all())]
    if broken:
        listed = ", ".join(broken[:4]) + (", ..." if len(broken) > 4 else "")
        raise ValueError(
            f"the weights of a model must be finite: {listed} in {folder} hold NaN or infinity "
            f"({len(broken)} of {len(model.state_dict())} tensors); train again with a lower learning rate."
        )
    return model


def model_folder(run: RunFolder, which: Which | None = None) -> Path:
    """The folder of a model of a run, see `trained_model`.

    Raises:
        ValueError: if the run has none.
    """
    if not (run.path / MODEL).is_dir():
        raise ValueError(
            f"a run has a model once it has ended: {run.path} has none; resume with trivet train --resume "
            f"{typed(run.path)}."
        )
    if which is None or which == run.section("choosing").keep:
        return run.path / MODEL
    other = run.path / (MODEL_LAST if which == "last" else MODEL_BEST)
    if not other.is_dir():
        raise ValueError(
            f"a run has a {which} model beside that in {MODEL}/ where it had items to choose by: {run.path} has none; "
            "train with data.folds, or leave out the option."
        )
    return other


def model_hash(run: RunFolder, which: Which | None = None, side: SideName | None = None) -> str:
    """The fingerprint of the weights of a model of a run, or of that of a side."""
    folder = model_folder(run, which)
    sides = [name for name in SIDES if (folder / name).is_dir()] if side is None else [side]
    paths = [folder / name / WEIGHTS for name in sides] or [folder / WEIGHTS]
    if not all(path.is_file() for path in paths):
        trained_model(run, which)  # says what is missing
    hashes = [file_fingerprint(path) for path in paths]
    return hashes[0] if len(hashes) == 1 else fingerprint(hashes)
