"""What a run writes during training: rows of `metrics.csv`, and its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trivet.collapse.monitor import Event
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.reports.run_record import RunRecord
from trivet.training.checkpoint_selection import RECALL
from trivet.training.components import Components
from trivet.training.loggers import Loggers
from trivet.training.loop import TrainState
from trivet.training.run_folder import METRICS, Metrics, RunFolder
from trivet.training.start_record import first_record

Show = Callable[[str, int, int, str], None]
"""Called with the title of a work, parts done, parts in all, and a note."""

STEP = "step"  # what is counted while training is shown
SKIPPED = "Steps that were skipped, as their gradients in fp16 were not finite"
STEP_COLUMNS = ["loss", "active", "hard", "d_ap", "d_an", "dropped"]


class RunLog:
    """`metrics.csv` and `record.json` of a run while it trains.

    Args:
        step: optimiser steps done; rows of later ones are dropped.
        seconds: of training before a resume.
        resumed: whether the run goes on from a checkpoint.

    Attributes:
        metrics: the rows.
        record: what is known of the run.
        loggers: what else gets the rows, what the monitor measures, and its events.
        stopped_by: the event that ended the training, as a line.
        skipped: steps that were left out, see `training.precision`.
    """

    def __init__(
        self, run: RunFolder, parts: Components, show: Show, command: str, *, step: int, seconds: float, resumed: bool
    ) -> None:
        self._run, self._parts, self._show = run, parts, show
        self._before, self._began = seconds, time.perf_counter()
        self._recall: dict[str, float] = {}
        self._status = ""
        self.stopped_by: str | None = None
        self.skipped = 0
        columns = [*STEP_COLUMNS, *(f"recall@1/{level}" for level in parts.sample.labels)]
        earlier = run.record()
        self.metrics = Metrics(
            run.path / METRICS, columns, upto=step, attempt=parts.guard.attempt, known=_rows_known(earlier)
        )
        self.record = first_record(run, parts.config, parts.splits, command)
        self.record["forecast"] = earlier and earlier["forecast"]  # one that was made of this run stays with it
        self.record["foreseen"] = earlier and earlier["foreseen"]
        self.record["warnings"] += parts.notes
        self.record["warnings"] += parts.cleaning.warnings(parts.config.training.num_steps)
        self.record["model"] = {"parameters": parts.model.num_parameters}
        self.cover()
        training = parts.config.training
        self.loggers = Loggers(
            run.path, training.loggers, self.record["settings"], tracking_uri=training.mlflow_uri, resumed=resumed
        )
        self._watched = len(parts.guard.monitor.series["step"])  # looks of the monitor that the loggers have
        if not resumed:
            self.loggers.add(self._chosen_by(), 0)

    @property
    def seconds(self) -> float:
        """Seconds of training, those before a resume included."""
        return self._before + time.perf_counter() - self._began

    def start_clock(self) -> None:
        """Count the seconds of training from now."""
        self._began = time.perf_counter()

    def cover(self) -> None:
        """Note how much of the data the batches in force reach."""
        self.record["data"]["coverage"] = dict(self._parts.batches.coverage(0)._asdict())

    def note_step(self, task: TrainState, recall: Mapping[str, float] | None) -> None:
        """Show progress, and add a row where the settings say so.

        Args:
            recall: level -> recall@1, at a step at which it was measured.
        """
        config, step = self._parts.settings, task.step
        last = step == config.training.num_steps or self._parts.choosing.ended is not None
        values: dict[str, float] = {}
        if step % config.training.log_every == 0 or last:
            values |= step_values(self._parts.loss, task.value)
        sent: dict[tuple[str, ...], float] = {("train", name): value for name, value in values.items()}
        if recall is not None:
            self._recall = dict(recall)
            values |= {f"{RECALL}/{level}": share for level, share in recall.items()}
            sent |= {("validation", RECALL, level): share for level, share in recall.items()} | self._chosen_by()
        if values:
            self.metrics.add(step, values)
            self._status = self._note(task)
        if sent:
            self.loggers.add(sent, step, self._parts.guard.attempt)
        self._send_monitor()
        self._show(STEP, step, config.training.num_steps, self._status)

    def note_event(self, event: Event) -> None:
        """Send an event to the loggers."""
        self.loggers.say(event, self._parts.guard.attempt)

    def _send_monitor(self) -> None:
        """What the monitor has measured since the last call."""
        series = self._parts.guard.monitor.series
        looks = len(series["step"])
        for index in range(self._watched if self._watched <= looks else 0, looks):  # after a repair a new one watches
            row: dict[tuple[str, ...], float] = {
                ("collapse", name): values[index] for name, values in series.items() if name != "step"
            }
            known = {name: value for name, value in row.items() if np.isfinite(value)}
            self.loggers.add(known, int(series["step"][index]), self._parts.guard.attempt)
        self._watched = looks

    def _chosen_by(self) -> dict[tuple[str, ...], float]:
        """The measure that a step is chosen by, at the last look, as loggers get it."""
        choosing = self._parts.choosing
        if not choosing.looks:
            return {}
        return {("choosing", choosing.config.measure, choosing.level): choosing.looks[-1]["value"]}

    def _note(self, task: TrainState) -> str:
        """What stands beside the steps, the most important first: a terminal may cut it off."""
        done, best = self._parts.loss.last, self._parts.choosing.best()
        assert done is not None
        levels = [f"R@1 {level} {100 * share:.1f} %" for level, share in self._recall.items()]
        parts = [f"loss {task.value:.4f}", *levels]
        if best is not None and self._recall:
            measure = self._parts.choosing.config.measure.replace("recall@", "R@")
            parts.append(f"best {measure} {100 * best['value']:.1f} % at step {best['step']}")
        parts.append(f"active {100 * done.active_fraction:.0f} %")
        parts.append(f"d_ap {done.mean_to_positive:.3f}  d_an {done.mean_to_negative:.3f}")
        return "  ".join(parts)

    def write(self, **known: Any) -> None:
        """Write the record with what is known by now, such as `status`."""
        parts, record = self._parts, self.record
        record |= known
        record["warnings"] = [line for line in record["warnings"] if not line.startswith(SKIPPED)]
        record["warnings"] += [f"{SKIPPED}: {self.skipped}."] if self.skipped else []
        record["curves"] = self.metrics.series(*STEP_COLUMNS)
        recalls = [column for column in self.metrics.columns if column.startswith("recall@1/")]
        looks = self.metrics.series(*recalls)
        record["validation"] = {
            "split": parts.split,
            "items": len(parts.sample),
            "step": looks.pop("step"),
            "attempt": looks.pop("attempt"),
            "recall@1": {column.removeprefix("recall@1/"): values for column, values in looks.items()},
        }
        record["history"] = parts.history.as_json()
        record["label_noise"] = {"strategy": parts.picks.as_json()}
        stopped = {} if self.stopped_by is None else {"stopped_by": self.stopped_by}
        record["guard"] = parts.guard.as_json() | stopped
        record["monitor"] = parts.guard.seen()
        record["cleaning"] = parts.cleaning.as_json()
        record["choosing"] = parts.choosing.as_json(parts.split, parts.config.training.num_steps)
        record["seconds"]["training"] = round(self.seconds, 3)
        self._run.write_record(record)


def _rows_known(record: RunRecord | None) -> list[tuple[float, float]]:
    """Attempts and steps of the rows that `metrics.csv` had when the record was written."""
    if record is None:
        return []
    sections = (record["curves"], record["validation"])
    return sorted({row for section in sections for row in zip(section["attempt"], section["step"], strict=False)})


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
