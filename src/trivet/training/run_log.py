"""Log of a run while it trains: rows of `metrics.csv`, and its record."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from trivet.collapse.monitor import Event
from trivet.datasets import Dataset, Splits, noise_summary
from trivet.datasets.dataset import trained_classes
from trivet.datasets.leaks import LEARNED
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.reports.label_noise_record import LabelNoise
from trivet.reports.monitor_record import MonitorRecord
from trivet.reports.run_record import (
    Counts,
    CoverageRecord,
    Curves,
    InjectedNoise,
    ModelSize,
    ProtocolCounts,
    RunData,
    RunRecord,
    SkippedRecord,
    Validation,
)
from trivet.training.checkpoint import TrainState
from trivet.training.checkpoint_selection import RECALL
from trivet.training.components import Components
from trivet.training.loggers import Loggers
from trivet.training.precision import device_of
from trivet.training.run_folder import METRICS, Metrics, RunFolder

Show = Callable[[str, int, int, str], None]
"""Called with the title of a work, parts done, parts in all, and a note."""

STEP = "step"  # what is counted while training is shown
SKIPPED = "Steps that were skipped, as their gradients in fp16 were not finite"
STEP_COLUMNS = ["loss", "active", "hard", "d_ap", "d_an", "dropped"]


class RunLog:
    """`metrics.csv` and `record.json` of a run while it trains.

    Args:
        resumed: whether the run goes on from a checkpoint; rows of later steps than its are dropped.

    Attributes:
        metrics: the rows.
        record: what is known of the run.
        loggers: what else gets the rows, what the monitor measures, and its events.
    """

    def __init__(self, run: RunFolder, components: Components, show: Show, command: str, *, resumed: bool) -> None:
        self._run, self._components, self._state, self._show = run, components, components.state, show
        self.start_clock()
        self._recall: dict[str, float] = {}
        self._status = ""
        config, state = components.config, components.state
        columns = [*STEP_COLUMNS, *(f"{RECALL}/{level}" for level in state.selection.items.labels)]
        earlier = run.record()
        self.metrics = Metrics(run.path / METRICS, columns, upto=state.learner.step, known=_rows_known(earlier))
        self.record = first_record(run.name, components.splits, command, config.recorded(), config.warnings)
        if earlier is not None:  # a forecast that was made of this run stays with it
            self.record.forecast, self.record.foreseen = earlier.forecast, earlier.foreseen
        self.record.ladder = run.ladder()
        self.record.warnings += components.notes
        self.record.warnings += state.cleaning.warnings(config.training.num_steps)
        self.record.model = ModelSize(parameters=state.learner.model.num_parameters)
        self.record.data.coverage = CoverageRecord(**components.batches.coverage(0)._asdict())
        self.loggers = Loggers(
            run.path,
            config.training.loggers,
            self.record.settings,
            tracking_uri=config.training.mlflow_uri,
            resumed=resumed,
        )
        self._watched = len(state.guard.monitor.series["step"])  # looks of the monitor that the loggers have
        if not resumed:
            self.loggers.add(self._selection_value(), 0)

    @property
    def seconds(self) -> float:
        """Seconds of training, those before a resume included."""
        return self._before + time.perf_counter() - self._began

    def start_clock(self) -> None:
        """Count the seconds of training from now."""
        self._before, self._began = self._state.seconds, time.perf_counter()

    def add_step(self, recall: Mapping[str, float] | None) -> None:
        """Show progress, and add a row where the settings say so.

        Args:
            recall: level -> recall@1, at a step at which it was measured.
        """
        training, learner = self._components.config.training, self._state.learner
        step = learner.step
        values: dict[str, float] = {}
        if step % training.log_every == 0 or step == training.num_steps or self._state.selection.ended is not None:
            values |= step_values(learner.loss, learner.value)
        sent: dict[tuple[str, ...], float] = {("train", name): value for name, value in values.items()}
        if recall is not None:
            self._recall = dict(recall)
            values |= {f"{RECALL}/{level}": share for level, share in recall.items()}
            sent |= {("validation", RECALL, level): share for level, share in recall.items()}
            sent |= self._selection_value()
        if values:
            self.metrics.add(step, values)
            self._status = self._status_line()
        if sent:
            self.loggers.add(sent, step)
        self._send_monitor()
        self._show(STEP, step, training.num_steps, self._status)

    def add_event(self, event: Event) -> None:
        """Send an event to the loggers."""
        self.loggers.add_event(event)

    def _send_monitor(self) -> None:
        """Send what the monitor has measured since the last call."""
        series = self._state.guard.monitor.series
        for index in range(self._watched, len(series["step"])):
            row = {("collapse", name): values[index] for name, values in series.items() if name != "step"}
            self.loggers.add(
                {key: value for key, value in row.items() if np.isfinite(value)}, int(series["step"][index])
            )
        self._watched = len(series["step"])

    def _selection_value(self) -> dict[tuple[str, ...], float]:
        """The measure that a step is chosen by, at the last look, as loggers get it."""
        selection = self._state.selection
        if not selection.checks:
            return {}
        return {("choosing", selection.config.measure, selection.level): selection.checks[-1].value}

    def _status_line(self) -> str:
        """The text beside the steps, the most important first: a terminal may cut it off."""
        learner, best = self._state.learner, self._state.selection.best()
        done = learner.loss.last
        assert done is not None
        levels = [f"R@1 {level} {100 * share:.1f} %" for level, share in self._recall.items()]
        columns = [f"loss {learner.value:.4f}", *levels]
        if best is not None and self._recall:
            measure = self._state.selection.config.measure.replace("recall@", "R@")
            columns.append(f"best {measure} {100 * best.value:.1f} % at step {best.step}")
        columns.append(f"active {100 * done.active_fraction:.0f} %")
        columns.append(f"d_ap {done.mean_to_positive:.3f}  d_an {done.mean_to_negative:.3f}")
        return "  ".join(columns)

    def write(self) -> None:
        """Write the record with what is known by now."""
        components, state, record = self._components, self._state, self.record
        skipped = state.learner.precision.skipped
        record.warnings = [line for line in record.warnings if not line.startswith(SKIPPED)]
        record.warnings += [f"{SKIPPED}: {skipped}."] if skipped else []
        record.curves = Curves.read(self.metrics.series(*STEP_COLUMNS))
        recalls = [column for column in self.metrics.columns if column.startswith(f"{RECALL}/")]
        checks = self.metrics.series(*recalls)
        record.validation = Validation.read(
            {
                "split": components.split,
                "items": len(state.selection.items),
                "step": checks.pop("step"),
                RECALL: {column.removeprefix(f"{RECALL}/"): values for column, values in checks.items()},
            }
        )
        record_progress(record, state, components.split, components.config.training.num_steps)
        record.seconds["training"] = round(self.seconds, 3)
        self._run.write_record(record)


def record_progress(record: RunRecord, state: TrainState, split: str, steps: int) -> None:
    """Set the sections of a record that come of the state of a run."""
    record.history = state.history.record()
    record.choosing = state.selection.record(split, steps)
    record.label_noise = LabelNoise(strategy=state.sampling.record())
    record.guard = state.guard.record()
    record.monitor = MonitorRecord.read(state.guard.monitor.as_json())
    record.cleaning = state.cleaning.checks


def _rows_known(record: RunRecord | None) -> list[int]:
    """The steps of the rows that `metrics.csv` had when the record was written."""
    if record is None:
        return []
    return sorted({*record.curves.step, *record.validation.step})


def step_values(loss: EmbeddingLoss | MatryoshkaLoss, value: float) -> dict[str, float]:
    """A row of `metrics.csv` from the loss's record of its last step; a distance that was not measured is left out."""
    done = loss.last
    assert done is not None
    values = {
        "loss": value,
        "active": done.active_fraction,
        "hard": done.hard_fraction,
        "d_ap": done.mean_to_positive,
        "d_an": done.mean_to_negative,
        "dropped": float(sum(done.dropped.values())),
    }
    return {name: number for name, number in values.items() if np.isfinite(number)}


def first_record(
    name: str, splits: Splits, command: str, settings: dict[str, dict[str, Any]], warnings: Sequence[str]
) -> RunRecord:
    """The record of a run before its first step, with its settings and what is to be said of them."""
    noise = noise_summary(splits)
    evaluation = {name: _counts(dataset) for name, dataset in splits.evaluation.items()}
    of_splits = [*splits.warnings]
    if settings.get("training", {}).get("steps") == 0:  # then no network learns an item
        of_splits = [line.removesuffix(LEARNED).rstrip() for line in of_splits]
    for split, counts in evaluation.items():
        counts.trained_classes = trained_classes(splits, split)
    return RunRecord(
        status="running",
        run=name,
        level=splits.level,
        settings=settings,
        environment=environment(),
        data=RunData(
            train=_counts(splits.train),
            evaluation=evaluation,
            skipped=[SkippedRecord(id=skip.id, reason=skip.reason) for skip in splits.train.skipped],
            noise=None if noise is None else InjectedNoise.read(noise),
            decisions=None if splits.decisions is None else dict(splits.decisions),
            units={level: splits.train.unit(level) for level in splits.train.relations},
        ),
        warnings=[*of_splits, *warnings],
    ).stamped(command)


def environment() -> dict[str, str | int | None]:
    """The versions and the hardware, in general words, that a result depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else device_of("auto").type,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _counts(dataset: Dataset) -> Counts:
    return Counts(
        items=len(dataset),
        classes={level: len(dataset.classes(level)) for level in dataset.labels},
        protocol=None if dataset.protocol is None else ProtocolCounts.read(dataset.protocol.counts()),
    )
