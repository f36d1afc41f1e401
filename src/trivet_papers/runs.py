"""Runs the arms of experiments: what is missing, by any number of workers, each run going on where it was stopped."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from trivet.commands.train.run import resume, train
from trivet.config.base import overridden
from trivet.datasets import Splits
from trivet.datasets.label_noise import add_noise
from trivet.io.atomic_files import claimed, write_json
from trivet.io.file_locks import locked_file
from trivet.models import TextNetworkConfig
from trivet.reports.run_record import RunRecord
from trivet.runtime.progress import reporter, show_progress, work
from trivet.training.components import Components, load_splits
from trivet.training.config import RunConfig
from trivet.training.loop import NotFiniteError, fit
from trivet.training.run_folder import CONFIG, RunFolder, trained_model
from trivet_papers.experiment import Arm, Experiment, Results, Settings, Size
from trivet_papers.measured import Measured, MeasuredModel
from trivet_papers.measures import MEASURES
from trivet_papers.run_record import Hardware, Progress, RunLine

MODELS = "{models}"  # in settings: the folder of pretrained weights
SEED = "{seed}"  # in settings: the seed of the run, for what has a seed of its own, such as label noise
WORK = ".runs"  # in the folder of the results: runs that are under way
PROBE, WARM_UP = 5, 2  # steps by which a run's time is told, after so many
POLL = 1.0  # seconds between looks at what other workers do
Report = Callable[[str], None]


@dataclass(frozen=True)
class ArmRun:
    """An arm with a seed, and with what the user has changed.

    Attributes:
        key: names it in files; the same settings, seed and measures have the same key.
    """

    arm: Arm
    seed: int
    changes: tuple[str, ...] = ()

    @cached_property
    def settings(self) -> Settings:
        return overridden({"seed": self.seed, **_seeded(self.arm.settings, self.seed)}, self.changes)

    @cached_property
    def key(self) -> str:
        identity = {"settings": self.settings, "measures": sorted(self.arm.measures), "at": self.steps}
        identity |= {"last": sorted(self.arm.last)} if self.arm.last else {}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The steps or epochs after which it is measured."""
        return tuple(sorted({self.step_of(step) for step in self.arm.steps}))

    def step_of(self, step: int) -> int:
        """The step of this run that a step of its arm is: the last is the last, also of a longer run."""
        training = self.settings["training"]
        last: int = training.get("epochs", training.get("steps"))
        return last if step == self.arm.steps[-1] and step > 0 else min(step, last)

    def config(self, models: Path | None, length: int | None = None) -> RunConfig:
        """Its settings, with so many steps or epochs.

        Raises:
            ValueError: if it needs weights and no folder of these is known, or the settings cannot be used.
        """
        settings = _with_models(self.settings, models)
        if length:
            unit = "epochs" if "epochs" in settings["training"] else "steps"
            settings["training"] = settings["training"] | {unit: length}
        return RunConfig.parse(settings, source=str(dict(self.arm.factors)))


def _seeded(value: Any, seed: int) -> Any:
    """Settings with the seed in the place of its name."""
    if isinstance(value, Mapping):
        return {key: _seeded(item, seed) for key, item in value.items()}
    return seed if value == SEED else value


def _with_models(value: Any, models: Path | None) -> Any:
    """Settings with the folder of weights in the place of its name."""
    if isinstance(value, Mapping):
        return {key: _with_models(item, models) for key, item in value.items()}
    if isinstance(value, str) and MODELS in value:
        if models is None:
            raise ValueError(
                f"these runs need a folder of pretrained networks for {value}: give it with --models, or in the "
                "variable TRIVET_MODELS; docs/reproduce says what it holds."
            )
        return value.replace(MODELS, str(models.resolve()))
    return value


class ResultFile:
    """Finished runs of one paper in one size: a file with a line of JSON for each.

    Lines are only ever added, each in one piece; the line that a killed process has left unfinished is skipped.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def rows(self) -> dict[str, RunLine]:
        """Key -> what the run has measured.

        Raises:
            ValueError: if a line is whole and no run's.
        """
        if not self.file.is_file():
            return {}
        rows = {}
        for number, text in enumerate(self.file.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                line = RunLine.read(json.loads(text))
            except json.JSONDecodeError:
                continue
            except ValueError as error:
                raise ValueError(
                    f"each line of {self.file} must be a run of trivet reproduce: line {number} is none, as {error}; "
                    "remove it, or choose another folder with --output."
                ) from None
            rows[line.key] = line
        return rows

    def add(self, row: RunLine) -> None:
        line = json.dumps(row.as_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with locked_file(self.file), self.file.open("r+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else f"\n{line}"
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())


def store_of(folder: Path, experiment: Experiment, size: Size) -> ResultFile:
    """The file of the runs of an experiment: those of a paper share one."""
    return ResultFile(folder / f"{experiment.key.partition('-')[0]}-{size}.jsonl")


def planned(experiment: Experiment, size: Size, seeds: int | None, changes: Sequence[str] = ()) -> list[ArmRun]:
    """The runs of an experiment, all of the first seed first.

    Raises:
        ValueError: if the changes set the seed, or what they set cannot be.
    """
    if any(change.partition("=")[0].strip() == "seed" for change in changes):
        raise ValueError(
            "the seeds of an experiment are 0, 1, ...: leave out --set seed, and use --seeds for their number."
        )
    recipe = experiment.recipe(size)
    if changes:
        ArmRun(recipe.arms[0], 0, tuple(changes)).config(Path())  # refuses what no run can have
    count = recipe.seeds if seeds is None else seeds
    return [ArmRun(arm, seed, tuple(changes)) for seed in range(count) for arm in recipe.arms]


def results(
    experiment: Experiment, size: Size, folder: Path, seeds: int | None = None, changes: Sequence[str] = ()
) -> tuple[Results, list[RunLine]]:
    """The measured values of the runs of an experiment, and their lines in the file."""
    recipe, known = experiment.recipe(size), store_of(folder, experiment, size).rows()
    rows: dict[int, dict[int, dict[int, Mapping[str, Any]]]] = {}
    lines, failed = [], set()
    for run in planned(experiment, size, seeds, changes):
        row = known.get(run.key)
        if row is None:
            continue
        lines.append(row)
        if row.failed:
            failed.add((recipe.arms.index(run.arm), run.seed))
        measured: dict[int, Mapping[str, Any]] = {int(step): values for step, values in row.values.items()}
        if measured and run.arm.steps != run.steps:  # the user has made it shorter: its last is the last
            placed = {step: measured.get(run.step_of(step)) for step in run.arm.steps}
            measured = {step: values for step, values in placed.items() if values is not None}
        rows.setdefault(recipe.arms.index(run.arm), {})[run.seed] = measured
    return Results(rows, recipe.arms, failed), lines


class Runner:
    """Trains and measures runs.

    Args:
        folder: of the results.
        data_root: where data sets lie, see `trivet.datasets.find_root`.
        models: the folder of pretrained networks, if there is one.
        report: called with a sentence now and then.
    """

    def __init__(self, folder: Path, *, data_root: Path | None, models: Path | None, report: Report) -> None:
        self._folder, self._root, self._models, self._report = folder, data_root, models, report
        self._known: tuple[str, Splits] | None = None

    def seconds(self, runs: Sequence[ArmRun]) -> float:
        """About how long runs will train, from a few steps of one of each kind of data, network and batch."""
        kinds: dict[str, float] = {}
        total = 0.0
        for run in self._by_data([run for run in runs if run.steps[-1] > 0]):
            config = run.config(self._models)
            kind = json.dumps([run.settings.get(section) for section in ("data", "model", "batch")], sort_keys=True)
            if kind not in kinds:
                with show_progress(f"timing {PROBE} steps"):
                    kinds[kind] = self._step(config)
            training = config.training
            if training.epochs is not None:
                training = Components(config, self._splits(config)).config.training
            total += kinds[kind] * training.num_steps
        return total

    def _by_data(self, runs: Sequence[ArmRun]) -> list[ArmRun]:
        """Those of the same data one after another, so that these are read once; else in their order."""
        groups: dict[str, list[ArmRun]] = {}
        for run in runs:
            groups.setdefault(_read(run.config(self._models)), []).append(run)
        return [run for group in groups.values() for run in group]

    def _step(self, config: RunConfig) -> float:
        short = config.model_copy(
            update={"training": config.training.model_copy(update={"epochs": None, "steps": WARM_UP + PROBE})}
        )
        components = Components(short, self._splits(config))
        stamps: list[float] = []
        components.state.learner.after_step = lambda: stamps.append(time.perf_counter())
        with _quiet():
            fit(components.state.learner, components.batches_from(0))
        return (stamps[-1] - stamps[WARM_UP - 1]) / PROBE

    def run_all(self, experiments: Sequence[Experiment], size: Size, seeds: int | None, changes: Sequence[str]) -> None:
        """Run what is missing: the first seed of all experiments, then the second; wait for other workers' runs.

        Raises:
            ValueError: if data or weights are missing, or the settings cannot be used.
        """
        missing: dict[str, tuple[Experiment, ArmRun]] = {}
        for item in experiments:
            done = store_of(self._folder, item, size).rows()
            runs = [run for run in planned(item, size, seeds, changes) if run.key not in done]
            missing |= {run.key: (item, run) for run in runs if run.key not in missing}
        todo = sorted(self._by_data([run for _, run in missing.values()]), key=lambda run: run.seed)
        while todo:
            left = []
            for run in todo:
                experiment, _ = missing[run.key]
                done = store_of(self._folder, experiment, size).rows()
                if run.key not in done and not self._claim(experiment, run, size):
                    left.append(run)
            if len(left) == len(todo):
                time.sleep(POLL)
            todo = left

    def _claim(self, experiment: Experiment, run: ArmRun, size: Size) -> bool:
        """Run it, unless another worker does; whether it is done."""
        folder = self._folder / WORK / run.key
        folder.parent.mkdir(parents=True, exist_ok=True)
        store = store_of(self._folder, experiment, size)
        with claimed(folder) as mine:
            if not mine:
                return False
            if run.key in store.rows():
                return True
            began = time.monotonic()
            row = self._measure(run, folder, experiment.key)
            store.add(row)
            shutil.rmtree(folder, ignore_errors=True)
        factors = ", ".join(f"{name} {value}" for name, value in run.arm.factors.items())
        failed = f"; it ended without a result: {row.failed}" if row.failed else ""
        self._report(f"{experiment.key}: {factors}, seed {run.seed}, {time.monotonic() - began:.0f} s{failed}")
        return True

    def _measure(self, run: ArmRun, work_folder: Path, experiment: str) -> RunLine:
        """The line of a run: trained from stage to stage, and measured after each."""
        stages, folder = work_folder / "stages.json", work_folder / "run"
        work_folder.mkdir(parents=True, exist_ok=True)
        done = Progress.read(json.loads(stages.read_text()) if stages.is_file() else {})
        done.cpu_seconds = done.cpu_seconds or 0.0
        for step in run.steps:
            if str(step) in done.values or done.failed:
                continue
            began, used = time.monotonic(), time.process_time()
            try:
                measured = self._stage(run, step, folder, done)
            except NotFiniteError as error:  # also of weights that the last step has spoiled
                done.failed = str(error)
                break
            done.values[str(step)] = {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in measured.items()
            }
            done.seconds += time.monotonic() - began
            done.cpu_seconds += time.process_time() - used
            write_json(stages, done.as_json())
        return RunLine(
            **vars(done) | {"seconds": round(done.seconds, 2), "cpu_seconds": round(done.cpu_seconds, 2)},
            key=run.key,
            factors=dict(run.arm.factors),
            seed=run.seed,
            settings={key: section for key, section in run.settings.items() if key != "seed"},
            changes=list(run.changes),
            date=datetime.date.today().isoformat(),
            versions={name: metadata.version(name) for name in ("trivet", "torch", "numpy")},
            hardware=Hardware(
                device="GPU" if torch.cuda.is_available() else "CPU",
                cores=os.cpu_count(),
                threads=torch.get_num_threads(),
            ),
            experiment=experiment,
        )

    def _stage(self, run: ArmRun, step: int, folder: Path, done: Progress) -> Measured:
        """Measure at a step, after training up to it."""
        config = run.config(self._models, step)
        splits = self._splits(config)
        if step == 0:
            model = Components(config, splits).state.learner.model.eval()
        else:
            with _quiet():
                record = self._train(config, folder, splits)
            if record.status == "interrupted":
                raise KeyboardInterrupt
            done.events = [[event.step, event.kind] for event in record.monitor.events]
            model = trained_model(RunFolder(folder))
        with work(f"measuring {run.key}"):
            subject = MeasuredModel(model, config, splits, step)
            wanted = (*run.arm.measures, *(run.arm.last if step == run.steps[-1] else ()))
            return {name: value for measure in wanted for name, value in MEASURES[measure](subject).items()}

    def _train(self, config: RunConfig, folder: Path, splits: Splits) -> RunRecord:
        """Begin a run, go on with it, or make it longer; it is not evaluated."""
        options: Settings = {"data_root": self._root, "splits": splits, "watch": lambda measurements, events: None}
        if not (folder / CONFIG).is_file():
            return train(config, folder, force=True, **options)
        run = RunFolder(folder)
        unit = "epochs" if config.training.epochs is not None else "steps"
        length = getattr(config.training, unit)
        changes = [] if getattr(run.config().training, unit) == length else [f"training.{unit}={length}"]
        return resume(folder, changes=changes, **options)

    def _splits(self, config: RunConfig) -> Splits:
        """The data of a run; those that differ in their label noise only are read once."""
        noise = config.data.noise if config.data.decisions is None else None  # decisions are for labels with noise
        if noise is not None:
            config = config.model_copy(update={"data": config.data.model_copy(update={"noise": None})})
        key = _read(config)
        if self._known is None or self._known[0] != key:
            self._known = None  # two at once may be too large
            with show_progress("reading the data"):
                self._known = key, load_splits(config, self._root, reporter("reading images"))
        return self._known[1] if noise is None else add_noise(self._known[1], noise)


def _read(config: RunConfig) -> str:
    """A text that names what is read for a run: the same text, the same data but for their label noise."""
    data = config.data.model_dump(mode="json")
    if data.get("decisions") is None:
        data["noise"] = None
    read = [data]
    read += [config.model.model_dump(mode="json")] if isinstance(config.model, TextNetworkConfig) else []
    return json.dumps(read, sort_keys=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of single runs: what their monitor saw stands in the results."""
    log = logging.getLogger("trivet")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        log.setLevel(level)
